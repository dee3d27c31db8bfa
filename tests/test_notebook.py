"""Notebook manners, in the kernel of a notebook: a process of its own, which ends with the test."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SETUP = """
import numpy as np
import dshift
from dshift.demo import synthetic
counts = synthetic(60, seed=1).counts
"""
CELLS = {
    "setup": SETUP,
    "quiet": "found = dshift.fit(counts, 3, progress=False)",
    "shown": "result = dshift.fit(counts, 'auto')",
    "result": "result",
    "histograms": "dshift.histogram(np.ones((4, 5)), [0, 1, 2], dim='dim_1')",
    "estimator": "dshift.MedianShift(2.0)",
    "report": "dshift.report(result, counts, 'report.html')",
}


# Nothing of IPython is imported by the tests: a process that has it behaves as a notebook.
RUN = """
import json, sys
import nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(code) for code in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=300, startup_timeout=300, kernel_name="python3").execute()
json.dump([cell.outputs for cell in notebook.cells], sys.stdout)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each cell shows, after a run in a real kernel."""
    folder = tmp_path_factory.mktemp("notebook")
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps([*CELLS.values()]),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "report.html").stat().st_size > 100_000
    return dict(zip(CELLS, json.loads(done.stdout), strict=True))


def text_of(outputs: list[Any], kind: str = "text/plain") -> str:
    return "".join(o.get("text", "") or o.get("data", {}).get(kind, "") for o in outputs)


def test_nothing_prints_unless_asked(outputs: dict[str, list[Any]]) -> None:
    assert outputs["setup"] == []
    assert outputs["quiet"] == []


def test_progress_shows_in_a_notebook(outputs: dict[str, list[Any]]) -> None:
    shown = text_of(outputs["shown"])
    assert "dshift sweep" in shown
    assert "36/36" in shown
    assert "60.0/60.0" in shown
    assert "Error" not in shown


def test_a_result_says_what_it_is(outputs: dict[str, list[Any]]) -> None:
    for kind in ("text/plain", "text/html"):
        shown = text_of(outputs["result"], kind)
        assert "dshift clustering" in shown
        assert "bandwidth_chosen" in shown
        assert "all_seeds_stationary" in shown
    assert "edges_units" not in text_of(outputs["histograms"])
    assert "edges" in text_of(outputs["histograms"])
    assert "MedianShift(bandwidth=2.0)" in text_of(outputs["estimator"])
    assert "report.html" in text_of(outputs["report"])
