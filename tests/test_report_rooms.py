"""Rooms of a report, each by itself: what whole pages do not come by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dshift
from dshift import report_scan, report_study
from dshift.metrics import Metric
from dshift.report_axes import edges_around, make_axes
from dshift.report_check import check_fingerprint, check_path
from dshift.report_facts import facts_of, note_of, rest_of
from dshift.report_map import make_maps
from dshift.report_study import study
from dshift.report_sweep import read_sweep
from dshift.report_text import Names
from dshift.sources import open_samples
from dshift.summary import describe_result

ROWS = np.array([[8, 1, 1], [7, 2, 1], [1, 1, 8]])


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return dshift.fit(ROWS, 0.5)


def facts(result: xr.Dataset, rows: Any = ROWS) -> dict[str, tuple[str, str]]:
    return {
        name: (value, note) for name, value, note in facts_of(study(result, open_samples(rows)))
    }


# ---------------------------------------------------------------- axes


@pytest.mark.parametrize("n_bins", [3, 12, 13])
def test_bins_with_names_are_named_on_the_axis(n_bins: int) -> None:
    names = [f"a kind of bin, {i}" for i in range(n_bins)]
    data = xr.DataArray(np.eye(n_bins), dims=("s", "kind"), coords={"kind": names})
    (axis,) = make_axes(dshift.fit(data, 0.1), open_samples(data), None)
    at = range(n_bins) if n_bins <= 12 else [0, 2, 4, 7, 9, 12]
    assert axis.ticks == {float(i): names[i][:12] for i in at}
    assert axis.label == "kind"
    np.testing.assert_array_equal(axis.edges, np.arange(n_bins + 1) - 0.5)


def test_bins_without_coordinates_are_numbered(result: xr.Dataset) -> None:
    (axis,) = make_axes(result, open_samples(ROWS), None)
    assert (axis.label, axis.ticks) == ("bin", {})
    np.testing.assert_array_equal(axis.edges, [-0.5, 0.5, 1.5, 2.5])


def test_edges_lie_halfway_between_centers_that_increase() -> None:
    found = edges_around(np.array([1, 2, 4]))
    assert found is not None
    assert found.tolist() == [0.5, 1.5, 3, 5]
    for none in (["a", "b"], [1], [1, np.nan], [2, 1], [1, 1]):
        assert edges_around(np.array(none)) is None, none


# ---------------------------------------------------------------- refusals


def test_a_path_that_is_no_plain_file_or_the_data(tmp_path: Path) -> None:
    with pytest.raises(dshift.InvalidInput, match="is a device or a pipe"):
        check_path("/dev/null", ROWS)
    opened = xr.Dataset()
    opened.encoding["source"] = str(tmp_path / "data.nc")
    for data in (opened, tmp_path / "data.nc"):
        with pytest.raises(dshift.InvalidInput, match="is the data; give the name of another"):
            check_path(tmp_path / "data.nc", data)
        assert check_path(tmp_path / "page.html", data) == tmp_path / "page.html"


def test_fingerprints(result: xr.Dataset) -> None:
    same, other = open_samples(ROWS), open_samples(ROWS[::-1])
    check_fingerprint(result, same, None)
    with pytest.raises(dshift.InvalidInput, match="holds other histograms"):
        check_fingerprint(result, other, None)
    unknown = result.drop_attrs(deep=False)
    check_fingerprint(unknown, other, None)  # nothing to compare it with


@pytest.mark.parametrize("normalize", [True, False])
def test_fingerprints_of_a_metric_of_ones_own(normalize: bool) -> None:
    own = Metric(
        lambda x, points: np.abs(points - x).sum(axis=1),
        lambda rows, weights: rows[0],
        name="mine",
        normalize=normalize,
    )
    found = dshift.fit(ROWS, 0.5, metric=own)
    check_fingerprint(found, open_samples(ROWS), None)
    with pytest.raises(dshift.InvalidInput, match="holds other histograms"):
        check_fingerprint(found, open_samples(ROWS[::-1]), None)


def test_rows_that_are_no_histograms_where_the_result_has_labels(
    result: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_study, "MAX_CHECKED_VALUES", 0)  # too large for the fingerprint
    torn = np.where(np.arange(3)[:, None] == 1, 0, ROWS)
    with pytest.raises(dshift.InvalidInput, match="holds 1 rows that are not histograms where"):
        study(result, open_samples(torn))


# ---------------------------------------------------------------- what is said


def test_how_a_bandwidth_was_chosen(result: xr.Dataset) -> None:
    assert facts(result)["Bandwidth"][1] == ""
    chosen = result.assign_attrs(bandwidth_chosen="auto")
    assert facts(chosen)["Bandwidth"][1] == "chosen: middle of the longest plateau"
    chosen = chosen.assign_attrs(bandwidth_plateau=[0.25, 0.75])
    said = "chosen: middle of the longest plateau, 0.25 to 0.75"
    assert facts(chosen)["Bandwidth"][1] == said


def test_why_data_were_not_compared(result: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    start = "The data were not compared with the fingerprint of the result: "
    unknown, rows = result.drop_attrs(deep=False), open_samples(ROWS)
    assert note_of(study(result, rows)) == ""
    assert note_of(study(unknown, rows)) == start + "it has none."
    monkeypatch.setattr(report_study, "MAX_CHECKED_VALUES", ROWS.size - 1)
    assert note_of(study(unknown, rows)) == start + "it has none."
    too_large = "they are too large to be read as a whole here."
    assert note_of(study(result, rows)) == start + too_large


def test_without_seeds_there_are_no_steps(result: xr.Dataset) -> None:
    assert facts(result)["Steps"][1] == f"median; {int(result.n_iter.max())} at most"
    none = result.assign(n_iter=result.n_iter * 0 - 1)
    assert "Steps" not in facts(none)


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (12, ""),
        (13, "One more cluster holds 7.7\u202f%: 1."),
        (14, "2 smaller clusters hold 14\u202f%: 1 down to 1 each."),
    ],
)
def test_clusters_beyond_the_cards(n: int, said: str) -> None:
    rows = np.eye(n)
    assert rest_of(study(dshift.fit(rows, 0.1), open_samples(rows))) == said


def test_a_bandwidth_per_sample_is_said(result: xr.Dataset) -> None:
    assert "; bandwidth 0.5;" in describe_result(result)
    each = dshift.fit(ROWS, np.array([0.5, 0.5, 0.4]))
    assert "; a bandwidth per sample;" in describe_result(each)


# ---------------------------------------------------------------- maps, blocks, sweeps


def test_coordinates_that_do_not_say_where_each_sample_is_make_no_map() -> None:
    label, at = np.arange(4), np.arange(4.0)
    along = {"lat": xr.DataArray(at, dims="s"), "lon": xr.DataArray(at, dims="s")}
    assert len(make_maps(Names(("s",), (4,), along), label)) == 1
    for lost in (
        along | {"lat": xr.DataArray(at.reshape(2, 2), dims=("s", "t"))},
        along | {"lon": xr.DataArray(at, dims="t")},
    ):
        assert make_maps(Names(("s",), (4,), lost), label) == []
    assert make_maps(Names(("s", "t"), (4, 1), along), label[:, None]) == []


def test_of_the_blocks_that_are_read_some_hold_every_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = open_samples(np.ones((12, 3)))
    blocks = [(slice(start, start + 2),) for start in range(0, 12, 2)]
    monkeypatch.setattr(type(samples), "blocks", lambda self: iter(blocks))
    label = np.zeros(12, int)
    label[5], label[7] = 1, 2

    def chosen(n_cards: int, n_blocks: int) -> list[int]:
        row_bytes = 3 * samples.dtype.itemsize
        monkeypatch.setattr(report_scan, "MAX_READ_BYTES", 2 * n_blocks * row_bytes)
        return [b[0].start for b in report_scan._choose_blocks(samples, label, n_cards)]

    assert chosen(1, 2) == [0, 10]
    assert chosen(2, 2) == [0, 4, 10]
    assert chosen(3, 2) == [0, 4, 6, 10]
    assert chosen(3, 6) == [0, 2, 4, 6, 8, 10]


def test_plateaus_without_lengths_come_by_their_width(result: xr.Dataset) -> None:
    swept = xr.Dataset(
        {
            "n_clusters": ("bandwidth", [9, 5, 4, 2]),
            "plateau_start": ("plateau", [1.0, 3.0]),
            "plateau_stop": ("plateau", [2.0, 9.0]),
        },
        {"bandwidth": [1.0, 2.0, 4.0, 8.0]},
    )
    assert read_sweep(swept, result, "").plateaus == [(3, 9, 4), (1, 2, 5)]
    swept["plateau_length"] = "plateau", [7, 2]
    assert [p[:2] for p in read_sweep(swept, result, "").plateaus] == [(1, 2), (3, 9)]
