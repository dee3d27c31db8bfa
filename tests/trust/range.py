"""The suite on every Python and on the lowest dependencies that pyproject.toml allows.

`python -m tests.trust.range` makes a virtual environment for each with uv, which also finds or
fetches the interpreters, runs the tests there and prints a table. What cannot be had is said. Those
of pyenv are found if it is told to show them: PYENV_VERSION=3.11.7:3.12.1:3.13.0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.trust import ROOT

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


def try_out(kind: str, tests: list[str], folder: Path) -> str:
    """Return what became of the tests on one Python, or on the lowest dependencies."""
    home = folder / kind
    python = str(home / "bin" / "python")
    version = PYTHONS[0] if kind == LOWEST else kind
    install = ["uv", "pip", "install", "-q", "-p", python, "-e", f"{ROOT}[test]"]
    if kind == LOWEST:
        install += ["--resolution", "lowest-direct"]
    for command in (["uv", "venv", "-q", "--python", version, str(home)], install):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"cannot be had: {done.stderr.strip().splitlines()[-1]}"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(home / "numba")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "\n    ".join([*lines[-1:], *failed])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.range")
    parser.add_argument("--only", nargs="+", default=[*PYTHONS, LOWEST])
    parser.add_argument("--core", action="store_true", help="only the tests of the core")
    asked = parser.parse_args()
    tests = [f"tests/{name}.py" for name in CORE] if asked.core else []
    with tempfile.TemporaryDirectory(prefix="dshift-range-") as folder:
        for kind in asked.only:
            started = time.monotonic()
            outcome = try_out(kind, tests, Path(folder))
            print(f"{kind:8} {time.monotonic() - started:6.0f} s  {outcome}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
