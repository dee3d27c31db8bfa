"""Attacks that take longer than a test may: each is a command of its own.

DESIGN.md, "What is promised, and how it is tested", lists them.
"""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Clusters and data are those of the test suite, which imports them by these names.
TESTS = str(ROOT / "tests")
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)


def command(name: str) -> str:
    """Return where a command is: beside this Python, activated or not, or on the path."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise SystemExit(f"there is no `{name}` here: pip install -e '.[dev]'")
    return found
