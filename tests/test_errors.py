"""Every refusal says what was given, what is allowed and what to do, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import dshift

ROWS = np.array([[4, 1, 0], [3, 2, 0], [0, 1, 4], [0, 2, 3]])

BAD_CALLS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"bandwidth": 0}, ValueError, r"`bandwidth` is 0\.0; it must be finite and above 0"),
    ({"bandwidth": -1.5}, ValueError, r"`bandwidth` is -1\.5"),
    ({"bandwidth": float("nan")}, ValueError, r"`bandwidth` is nan"),
    ({"bandwidth": float("inf")}, ValueError, r"`bandwidth` is inf"),
    ({"bandwidth": "wide"}, ValueError, r"`bandwidth` is 'wide'; the only word allowed is 'auto'"),
    ({"bandwidth": b"wide"}, TypeError, r"`bandwidth` is b'wide', which is not made of real num"),
    ({"bandwidth": True}, TypeError, r"`bandwidth` is True, which is not made of real numbers"),
    ({"bandwidth": [1, 2, 3]}, ValueError, r"`bandwidth` has shape \(3,\); the 4 samples have"),
    ({"bandwidth": [1, 2, 0, 1]}, ValueError, r"`bandwidth` is 0\.0 \(the first at sample 2\)"),
    ({"metric": "euclid"}, ValueError, r"`metric` is 'euclid'; allowed are 'wasserstein', 'l1'"),
    ({"metric": 3}, TypeError, r"`metric` is a int; give one of 'wasserstein'"),
    ({"edges": [0, 1, 2]}, ValueError, r"`edges` has shape \(3,\); 3 bins have 4 edges"),
    ({"edges": [0, 1, 1, 2]}, ValueError, r"`edges` must increase strictly, but edges 1 and 2"),
    ({"edges": [0, 1, 2, np.inf]}, ValueError, r"`edges` holds NaN or infinity"),
    ({"edges": ["a", "b", "c", "d"]}, TypeError, r"`edges` is a list that is not made of num"),
    ({"weights": [1, 2]}, ValueError, r"`weights` has shape \(2,\); the 4 samples have shape"),
    ({"weights": [1, 2, 0, 1]}, ValueError, r"`weights` is 0\.0 \(the first at sample 2\)"),
    ({"weights": [1e308] * 4}, ValueError, r"`weights` add up to more than a float64 holds"),
    ({"weights": "heavy"}, TypeError, r"`weights` is 'heavy', which is not made of real"),
    ({"seeds": "some"}, ValueError, r"`seeds` is 'some'; the only word allowed is \"all\""),
    ({"seeds": 5}, ValueError, r"`seeds` is 5; with 4 samples it must be from 1 to 4"),
    ({"seeds": 0}, ValueError, r"`seeds` is 0; with 4 samples"),
    ({"seeds": 1.5}, ValueError, r"`seeds` is 1\.5; a fraction must be above 0 and at most 1"),
    ({"seeds": [0, 4]}, ValueError, r"`seeds` holds the index 4; the 4 samples are numbered 0 to"),
    ({"seeds": [-1]}, ValueError, r"`seeds` holds the index -1"),
    ({"seeds": np.empty(0, int)}, ValueError, r"`seeds` is empty; give at least one sample"),
    ({"seeds": np.empty((0, 3))}, ValueError, r"`seeds` is empty; give at least one histogram"),
    ({"seeds": [[1, 2]]}, ValueError, r"`seeds` has shape \(1, 2\), but the data has 3 bins"),
    ({"seeds": [[0, 0, 0]]}, ValueError, r"`seeds` holds 1 rows that are not histograms"),
    ({"seeds": [0.5, 0.7]}, TypeError, r"`seeds` is an array of shape \(2,\) and dtype float64"),
    ({"seeds": None}, TypeError, r"`seeds` is None; give \"all\""),
    ({"valley": 1}, ValueError, r"`valley` is 1; it must be at least 0 and below 1"),
    ({"valley": "deep"}, TypeError, r"`valley` is 'deep'; give None or a number"),
    ({"min_cluster_size": 0}, ValueError, r"`min_cluster_size` is 0; it must be finite"),
    ({"min_cluster_size": "2"}, TypeError, r"`min_cluster_size` is '2'; give a number"),
    ({"invalid": "drop"}, ValueError, r"`invalid` is 'drop'; allowed are \"raise\""),
    ({"progress": "yes"}, TypeError, r"`progress` is 'yes'; give True, False, or None"),
    ({"store": 3}, TypeError, r"`store` is a int; give the path"),
    ({"bin_dim": "nowhere"}, ValueError, "nowhere"),
    ({"data": ROWS[0]}, ValueError, "sample"),
    ({"data": ROWS[:0]}, ValueError, r"lengths \(0, 3\): each needs"),
    ({"data": ROWS[:, :0]}, ValueError, r"lengths \(4, 0\): each needs"),
    ({"data": ROWS.astype(complex)}, TypeError, "complex"),
    ({"data": ROWS.astype(str)}, TypeError, "dtype|numeric"),
    ({"data": "no/such/store.zarr"}, FileNotFoundError, "no/such/store.zarr"),
    ({"data": xr.Dataset({"a": (("s", "q"), ROWS), "b": (("s", "q"), ROWS)})}, ValueError, "a.*b"),
    ({"data": xr.DataArray(ROWS, dims=("mode", "b"))}, ValueError, "called `mode`, which is the"),
    ({"data": ROWS - 1}, ValueError, r"4 of 4 samples of .* are not histograms \(the first at"),
    (
        {"data": np.zeros((2, 3)), "invalid": "mask"},
        ValueError,
        "2 of 2 samples .* so nothing is left to cluster",
    ),
    (
        {"data": np.array([[1, 2, 0], [np.nan, 1, 1]]), "invalid": "mask", "seeds": [1]},
        ValueError,
        "every sample in `seeds` is masked",
    ),
]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    BAD_CALLS,
    ids=[f"{i}-{next(iter(c[0]))}" for i, c in enumerate(BAD_CALLS)],
)
def test_bad_input_is_refused_and_leaves_nothing(
    change: dict[str, Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    call: dict[str, Any] = {"data": ROWS, "bandwidth": 1.0, "store": "out.zarr", **change}
    with pytest.raises(error, match=message) as caught:
        dshift.fit(**call)
    assert isinstance(caught.value, dshift.DshiftError)
    assert list(tmp_path.iterdir()) == []


def test_non_numeric_zarr(tmp_path: Path) -> None:
    words = zarr.create_array(tmp_path / "words.zarr", shape=(2, 2), dtype="string")
    words[:] = np.array([["a", "b"], ["c", "d"]])
    with pytest.raises(TypeError, match=r"words\.zarr"):
        dshift.fit(tmp_path / "words.zarr", 1.0)


@pytest.mark.parametrize(
    ("part", "returns", "message"),
    [
        ("distance", lambda x, rows: np.zeros(1), r"distance of metric 'mine' returned shape \(1,"),
        ("distance", lambda x, rows: np.full(4, np.nan), "4 NaN; it must return one number"),
        ("center", lambda rows, weights: np.zeros(2), "center of metric 'mine' returned array"),
        ("center", lambda rows, weights: np.full(3, np.inf), "must return a finite point"),
    ],
)
def test_a_metric_that_misbehaves_is_named(part: str, returns: Any, message: str) -> None:
    parts: dict[str, Any] = {
        "distance": lambda x, rows: np.abs(rows - x).sum(axis=1),
        "center": lambda rows, weights: np.median(rows, axis=0),
        part: returns,
    }
    with pytest.raises(ValueError, match=message):
        dshift.fit(ROWS, 1.0, metric=dshift.Metric(**parts, name="mine"))


def test_a_metric_needs_functions() -> None:
    with pytest.raises(TypeError, match="`center` is None; a function is needed"):
        dshift.Metric(lambda x, rows: rows[:, 0], None)  # type: ignore[arg-type]


def test_a_store_that_is_not_a_result_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.zarr").mkdir()
    (tmp_path / "thesis.zarr" / "chapter").write_text("years of work")
    with pytest.raises(ValueError, match="exists and is not a run of dshift"):
        dshift.fit(ROWS, 1.0, store=tmp_path / "thesis.zarr")
    assert (tmp_path / "thesis.zarr" / "chapter").read_text() == "years of work"


def test_a_fit_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dshift.engine.memory_limit", lambda: 50)
    with pytest.raises(dshift.PlanRefused, match=r"needs .* in one process .* There are 50 B of"):
        dshift.fit(ROWS, 1.0)
