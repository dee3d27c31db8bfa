"""Branches of the pure rooms that tests take, module by module.

`python -m tests.trust.coverage` runs the tests of the core rooms under coverage.py and prints a
table; `python -m tests.trust.coverage stores` those of the stores, and so on for each group below.
It ends with 1 if a test fails, or if fewer than 95 % of the branches of a module are taken. Loops
that numba compiles are called as Python too, by their own tests.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.trust import ROOT

ENOUGH = 0.95


@dataclass(frozen=True)
class Group:
    """Names of rooms, and of the test modules that concern them."""

    rooms: str
    tests: str
    # Tests of compiled loops that nobody calls as Python: they run with numba's compiler off.
    interpreted: str = ""


GROUPS = {
    "core": Group(
        "errors edges chunks sources metrics arguments field kernels shift modes planning",
        "test_metrics test_modes test_planning test_kernels test_shift test_arguments "
        "test_sources test_errors",
    ),
    "climbing": Group(
        "ordering visited crowd stage labelling result finishing monitor",
        "test_fast_paths test_labelling test_result test_parts test_held test_monitor test_stage "
        "test_errors",
    ),
    "stores": Group(
        "redaction unreadable intact store storable locks occupied",
        "test_bad_stores test_security test_result test_occupied test_locks test_errors",
    ),
    "histograms": Group(
        "histograms cubes rows tables counting count_kernels stacks",
        "test_histograms test_stack test_count_kernels",
        "test_count_kernels",
    ),
    "bandwidths": Group(
        "plateaus drawn sweeping model predicting", "test_sweep test_predict test_careless"
    ),
    "report": Group(
        "report_alike report_axes report_check report_facts report_findings report_map "
        "report_parts report_ruler report_scan report_study report_sweep report_text summary",
        "test_report test_report_rooms test_cli",
    ),
}


def run(folder: Path, tests: str, *, compiled: bool = True) -> bool:
    """Run tests, leave what they covered in the folder, and return whether they passed."""
    env = {**os.environ, "COVERAGE_FILE": str(folder / f".coverage.{compiled}")}
    if not compiled:
        env["NUMBA_DISABLE_JIT"] = "1"
    command = [sys.executable, "-m", "coverage", "run", "--branch", "--source=dshift", "-m"]
    paths = [f"tests/{name}.py" for name in tests.split()]
    return subprocess.run([*command, "pytest", "-q", *paths], cwd=ROOT, env=env).returncode == 0


def measure(folder: Path) -> dict[str, dict]:
    """Return what was covered of each file."""
    env = {**os.environ, "COVERAGE_FILE": str(folder / ".coverage")}
    report = folder / "report.json"
    for command in (("combine", "-q", str(folder)), ("json", "-q", "-o", str(report))):
        subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, env=env, check=True)
    return json.loads(report.read_text())["files"]


def tell(room: str, found: dict) -> bool:
    """Print one line, and return whether enough branches are taken."""
    total = found["summary"]
    n_branches = total["num_branches"]
    taken = total["covered_branches"] / n_branches if n_branches else 1.0
    lines = total["covered_lines"] / max(total["num_statements"], 1)
    missed = [f"{a}->{b}" for a, b in found["missing_branches"]]
    print(
        f"{room:16} {lines:5.0%}  {total['covered_branches']:4} of {n_branches:4} "
        f"{taken:5.0%}  {', '.join(missed) or 'none'}"
    )
    return taken >= ENOUGH


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.coverage")
    parser.add_argument("groups", nargs="*", default=["core"], help=f"of {', '.join(GROUPS)}")
    asked = parser.parse_args()
    if importlib.util.find_spec("coverage") is None:
        raise SystemExit("there is no coverage.py here: pip install -e '.[dev]'")
    well = True
    for name in asked.groups:
        group = GROUPS[name]
        with tempfile.TemporaryDirectory(prefix="dshift-coverage-") as folder:
            well &= run(Path(folder), group.tests)
            if group.interpreted:
                well &= run(Path(folder), group.interpreted, compiled=False)
            files = measure(Path(folder))
        print(f"{name:16} lines  branches taken     not taken")
        for room in group.rooms.split():
            well &= tell(room, files[f"dshift/{room}.py"])
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
