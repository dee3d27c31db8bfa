"""The command line within the process of a test."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from click.testing import CliRunner, Result

from dshift.cli import main

# Before 8.2, Click has stdout and stderr in one unless told; since then it has no such option.
APART = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


def invoke(words: Sequence[str], env: Mapping[str, str | None] | None = None) -> Result:
    """Run a command of dshift, with stdout and stderr kept apart."""
    return CliRunner(**APART).invoke(main, words, env=env)
