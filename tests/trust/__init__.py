"""Attacks that take longer than a test may: each is a command of its own.

DESIGN.md, "What is promised, and how it is tested", lists them.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Clusters and data are those of the test suite, which imports them by these names.
TESTS = str(ROOT / "tests")
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)
