"""Differential fuzzing: random calls of `fit`, compared with the oracle bit for bit.

`python -m tests.fuzz --seconds 1800 --seed 1` runs it; DESIGN.md, "What is promised, and how it is
tested", says what it covers.
"""

import sys
from pathlib import Path

# The oracle and the comparison are those of the test suite, which imports them by these names.
TESTS = str(Path(__file__).parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)
