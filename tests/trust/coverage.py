"""Branches that the tests of the pure rooms take, module by module.

`python -m tests.trust.coverage` runs them under coverage.py (`pip install coverage`), with numba's
compiler off so that kernels run as the Python that they are written in, and prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.trust import ROOT

PURE = ("sources", "metrics", "arguments", "field", "shift", "modes", "planning", "unreadable")
STORES = ("store", "intact", "storable")
# Compiled loops written as plain Python, as far as they are.
KERNELS = ("kernels",)
TESTS = (
    "test_errors",
    "test_sources",
    "test_parts",
    "test_planning",
    "test_adversarial",
    "test_bad_stores",
    "test_security",
    "test_result",
    "test_laws",
)
# The loops over tiles need the compiler: these fit with a metric that has no index.
INTERPRETED = "sqeuclidean or own or custom"


def run(folder: Path, tests: list[str], *options: str, compiled: bool) -> None:
    """Run tests, and leave what they covered in the folder."""
    env = {**os.environ, "COVERAGE_FILE": str(folder / f".coverage.{compiled}")}
    if not compiled:
        env["NUMBA_DISABLE_JIT"] = "1"
    command = [sys.executable, "-m", "coverage", "run", "--branch", "--source=dshift", "-m"]
    paths = [f"tests/{name}.py" for name in tests if (ROOT / "tests" / f"{name}.py").exists()]
    subprocess.run([*command, "pytest", "-q", *options, *paths], cwd=ROOT, env=env, check=False)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.coverage")
    parser.add_argument("tests", nargs="*", default=list(TESTS), help="names of test modules")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dshift-coverage-") as name:
        folder = Path(name)
        run(folder, asked.tests, compiled=True)
        run(folder, ["test_adversarial"], "-k", INTERPRETED, compiled=False)
        run(folder, ["test_histograms"], "-k", "weights or edges", compiled=False)
        env = {**os.environ, "COVERAGE_FILE": str(folder / ".coverage")}
        report = folder / "report.json"
        for command in (("combine", "-q", str(folder)), ("json", "-q", "-o", str(report))):
            subprocess.run(
                [sys.executable, "-m", "coverage", *command], cwd=ROOT, env=env, check=True
            )
        files = json.loads(report.read_text())["files"]
    print("module       lines  branches  missing lines")
    for module in (*PURE, *STORES, *KERNELS):
        found = files[f"dshift/{module}.py"]
        total = found["summary"]
        missing = ", ".join(map(str, found["missing_lines"])) or "none"
        branches = total["covered_branches"] / max(total["num_branches"], 1)
        lines = total["covered_lines"] / max(total["num_statements"], 1)
        print(f"{module:12} {lines:5.0%}  {branches:8.0%}  {missing}")


if __name__ == "__main__":
    main()
