"""The suite on every Python and on the lowest dependencies that pyproject.toml allows.

`python -m tests.trust.range` makes a virtual environment for each with uv, which also finds or
fetches the interpreters, runs the tests there and prints a table. What cannot be had is said. Those
of pyenv are found if it is told to show them: PYENV_VERSION=3.11.7:3.12.1:3.13.0. With `--keep` the
environments stay in a folder, each with all that pytest said, so that what failed can be looked at.
It ends with 1 unless all tests passed everywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.trust import ROOT, command

PYTHONS = ("3.11", "3.12", "3.13")
LOWEST = "lowest"
CORE = (
    "test_parts",
    "test_metrics",
    "test_modes",
    "test_planning",
    "test_shift",
    "test_kernels",
    "test_arguments",
    "test_errors",
    "test_sources",
    "test_result",
    "test_adversarial",
)


def try_out(kind: str, tests: list[str], folder: Path) -> tuple[bool, str]:
    """Return whether the tests passed on one Python, or on the lowest dependencies; and how."""
    home = folder / kind
    python = str(home / "bin" / "python")
    version = PYTHONS[0] if kind == LOWEST else kind
    uv = command("uv")
    install = [uv, "pip", "install", "-q", "-p", python, "-e", f"{ROOT}[test]"]
    if kind == LOWEST:
        install += ["--resolution", "lowest-direct"]
    for step in ([uv, "venv", "-q", "--python", version, str(home)], install):
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            return False, f"cannot be had: {done.stderr.strip().splitlines()[-1]}"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(home / "numba")}
    said = home / "pytest.txt"
    # Into a file, which can be read while the tests run.
    with open(said, "w") as log:
        suite = [python, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--durations=20", *tests]
        code = subprocess.run(suite, cwd=ROOT, env=env, stdout=log, stderr=log).returncode
    lines = said.read_text().strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return code == 0, "\n    ".join([*lines[-1:], *failed])


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.range")
    parser.add_argument("--only", nargs="+", default=[*PYTHONS, LOWEST])
    parser.add_argument("--core", action="store_true", help="only the tests of the core")
    parser.add_argument("--keep", type=Path, help="a folder for the environments")
    asked = parser.parse_args()
    tests = [f"tests/{name}.py" for name in CORE] if asked.core else []
    all_passed = True
    with contextlib.ExitStack() as stack:
        folder = asked.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="dshift-range-"))
        )
        for kind in asked.only:
            started = time.monotonic()
            passed, outcome = try_out(kind, tests, folder.absolute())
            all_passed &= passed
            print(f"{kind:8} {time.monotonic() - started:6.0f} s  {outcome}", flush=True)
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
