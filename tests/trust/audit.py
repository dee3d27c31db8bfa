"""Known holes of what dshift installs: its dependencies and those of its extras, as resolved now.

`python -m tests.trust.audit` has uv resolve them, for the Python that runs it or `--python 3.13`,
and asks the index of packages for its advisories of each. That is what pip-audit does, with two
differences. Where an index tells of the latest version alone, pip-audit skips every package, and
ends with 0 unless it is told `--strict`: here the answer counts if that is the version installed.
And a release with holes that everybody knows is asked for first: an index that is silent of it
would be of all. It ends with 0 only if all were answered for, and none has a hole.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from pip._internal.models.index import PyPI

from tests.trust import ROOT, command

# The last release of a package that nobody mends: CVE-2013-7459 and CVE-2018-6594.
KNOWN_TO_HAVE_HOLES = ("pycrypto", "2.6.1")
NOT_FOR_USERS = {"test", "dev"}
TIMEOUT_SECONDS = 60


def resolved(python: str) -> list[tuple[str, str]]:
    """Return name and version of all that a user with every extra installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = sorted(set(project["optional-dependencies"]) - NOT_FOR_USERS)
    ask_uv = [command("uv"), "pip", "compile", "-q", "--no-header", "--no-annotate"]
    ask_uv += ["pyproject.toml", "--python-version", python, *(f"--extra={e}" for e in extras)]
    said = subprocess.run(ask_uv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    # As in "zarr==3.1.5 ; marker".
    pins = [line.partition(";")[0].strip().partition("==") for line in said.splitlines()]
    return [(name, version) for name, _, version in pins]


def ask(index: str, *path: str) -> dict[str, Any] | None:
    """Return what the index says of a package, or of a version of it; None if it has no answer."""
    address = "/".join([index, *path, "json"])
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            said: dict[str, Any] = json.load(answer)
            return said
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


def holes(index: str, name: str, version: str) -> list[str] | None:
    """Return the advisories that hold for a version, or None if the index does not tell."""
    said = ask(index, name, version) or ask(index, name)
    if said is None or said["info"]["version"] != version or "vulnerabilities" not in said:
        return None
    return [hole["id"] for hole in said["vulnerabilities"] if not hole.get("withdrawn")]


def audit(index: str, packages: Sequence[tuple[str, str]]) -> bool:
    """Print what the index tells of packages; return whether all are known to have no holes."""
    told = {" ".join(package): holes(index, *package) for package in packages}
    unknown = [package for package, found in told.items() if found is None]
    for package, found in told.items():
        if found:
            print(f"{package}: {', '.join(found)}")
    n_holed = sum(bool(found) for found in told.values())
    n_clean = len(told) - len(unknown) - n_holed
    print(f"{len(told)} packages: {n_clean} without known holes, {n_holed} with")
    if unknown:
        print(f"{len(unknown)} that the index does not tell of: {', '.join(unknown)}")
    return n_clean == len(told)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.audit")
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--index", default=PyPI.pypi_url, help="URL of its JSON API")
    asked = parser.parse_args()
    if not holes(asked.index, *KNOWN_TO_HAVE_HOLES):
        print(f"the index tells of no holes in {' '.join(KNOWN_TO_HAVE_HOLES)}: it knows of none")
        return 1
    return 0 if audit(asked.index, resolved(asked.python)) else 1


if __name__ == "__main__":
    sys.exit(main())
