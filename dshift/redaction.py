"""What may be shown of a URL: never who asks, nor with which password."""

from __future__ import annotations

import re

# Of the words of another library's error.
MOST_CHARACTERS = 200


def public_name(text: str) -> str:
    """Strip user, password, query and fragment from a URL; a plain path stays as it is."""
    if "://" not in text:
        return text
    # The second form is a secret with bare slashes, as AWS hands them out (not host:port/...).
    return re.sub(r"//[^/]*@|//[^/:]*:(?!\d+/).*@", "//", re.split(r"[?#]", text, maxsplit=1)[0])


def public_cause(error: BaseException, text: str) -> str:
    """Return what an error says of a path or URL; its kind alone if the URL has something to hide.

    Libraries quote URLs in parts too, which cannot be told from other words.
    """
    said = " ".join(str(error).split())[:MOST_CHARACTERS]
    return said if said and public_name(text) == text else type(error).__name__


def public_text(text: str) -> str:
    """Strip the same from every URL in a text: the errors of other libraries quote them whole."""
    return re.sub(r"[\w.+-]+://\S+", lambda url: public_name(url[0]), text)
