"""The command line, as a person would call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from sklearn.metrics import adjusted_rand_score

from dshift.cli import main
from dshift.demo import agreement, synthetic


def test_demo(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "dshift", "demo", "--out", "d", "--samples", "200"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "agreement with the truth (adjusted Rand index): 1.000" in done.stdout
    assert "every seed stationary: yes" in done.stdout
    assert "200/200" in done.stderr
    result = xr.open_zarr(tmp_path / "d" / "result.zarr", consolidated=False)
    assert result.attrs["n_clusters"] == 2
    picture = ElementTree.parse(tmp_path / "d" / "clusters.svg").getroot()
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}text"))) == 2


def test_demo_does_not_write_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("mine")
    done = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "d")])
    assert done.exit_code == 1
    assert "this is a file; give a folder" in done.output
    assert (tmp_path / "d").read_text() == "mine"


def test_help_and_version() -> None:
    assert "demo" in CliRunner().invoke(main, ["--help"]).output
    assert "version" in CliRunner().invoke(main, ["--version"]).output


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_the_adjusted_rand_index(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-1, 4, 50), rng.integers(0, 3, 50)
    assert agreement(a, b) == pytest.approx(adjusted_rand_score(a, b))
    assert agreement(a, a) == 1.0
    assert agreement(np.zeros(5), np.zeros(5)) == 1.0


def test_the_synthetic_set_is_as_the_paper_says() -> None:
    data = synthetic(300, seed=3)
    counts, truth = data.counts.values, data.truth.values
    assert counts.shape == (300, 100)
    np.testing.assert_array_equal(counts.sum(axis=1), 100)
    np.testing.assert_array_equal(counts[:, :35].sum(axis=1), np.where(truth == 1, 20, 0))
    assert (synthetic(300, seed=3).counts == data.counts).all()
    assert not (synthetic(300, seed=4).counts == data.counts).all()
