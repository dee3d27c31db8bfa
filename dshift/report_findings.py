"""The parts of a report, made from a result beside its data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from dshift.metrics import Float
from dshift.report_alike import alike_order, place_on_plane
from dshift.report_axes import crop
from dshift.report_facts import (
    certificate_of,
    facts_of,
    near_of,
    note_of,
    rest_of,
    summary_of,
    title_of,
)
from dshift.report_map import make_maps
from dshift.report_parts import Axis, Card, Findings, Outlier, View
from dshift.report_scan import N_CARDS, N_VIEW, evenly
from dshift.report_study import Study
from dshift.report_sweep import read_sweep
from dshift.report_text import NOTHING

N_MODES = 500  # clusters in the plots of all modes
N_MODES_OF_CARD = 6  # joined modes in the plot of a cluster
N_MATRIX = 150
N_OUTLIERS = 6
N_LANDMARKS, MAX_LANDMARK_VALUES = 400, 2**27  # modes and samples that span the plane
BAND = (0.05, 0.25, 0.75, 0.95)


def find(study: Study, title: str | None, sweep: xr.Dataset | None) -> Findings:
    """Return all that the page shows."""
    result = study.result
    main = study.modes[study.main[:N_MODES]]
    points, _ = study.ruler.points(main)
    table = study.ruler.table(points, points)
    certified, certificate = certificate_of(study)
    cards = [_card(study, cluster) for cluster in range(min(len(study.sizes), N_CARDS))]
    all_modes = study.heights(main)
    unit = f" ({study.ruler.unit})" if study.ruler.unit else ""
    return Findings(
        title=title or title_of(study),
        summary=summary_of(study),
        certified=certified,
        certificate=certificate,
        facts=facts_of(study),
        attrs=[(str(name), str(value)) for name, value in result.attrs.items()],
        n_samples=study.samples.n_samples,
        n_labelled=int((study.label >= 0).sum()),
        note=note_of(study),
        distance=study.ruler.name + unit,
        axes=_cropped(study.axes, all_modes, cards),
        weighted=bool(result.attrs.get("weighted", 0)),
        sizes=study.sizes,
        rest=rest_of(study),
        cards=cards,
        all_modes=all_modes,
        order=alike_order(table) if len(table) else np.zeros(0, dtype=np.int64),
        matrix=table[:N_MATRIX, :N_MATRIX],
        view=_view(study, points),
        maps=make_maps(study.names, study.label),
        outliers=_outliers(study),
        near=near_of(study),
        sweep=None if sweep is None else read_sweep(sweep, result, study.ruler.unit),
    )


def _cropped(axes: tuple[Axis, ...], all_modes: list[Float], cards: list[Card]) -> list[Axis]:
    """Return the axes with the part of each on which any mode or band has a height."""
    bands = [card.bands for card in cards if card.bands is not None]
    drawn = [[modes, *(band[place] for band in bands)] for place, modes in enumerate(all_modes)]
    return [
        replace(axis, shown=crop(axis.edges, rows)) for axis, rows in zip(axes, drawn, strict=True)
    ]


def _card(study: Study, number: int) -> Card:
    scan, flat = study.scan, study.label.ravel()
    mine = flat[scan.measured] == number
    own = np.flatnonzero(study.result["cluster_of_mode"].values == number)
    kept = flat[scan.kept] == number
    members, gaps = scan.rows[kept], scan.distances[mine]
    bands = None
    if len(members) > 1:
        weights = _weights(study, kept)
        bands = [np.quantile(h, BAND, axis=0, **weights) for h in study.heights(members)]
    n_samples = int((study.label == number).sum())
    return Card(
        number=number,
        n_samples=n_samples,
        size=f"{study.sizes[number]:,.6g}",
        share=float(study.sizes[number] / study.sizes.sum()),
        n_modes=len(own),
        spread=study.ruler.say(float(np.median(gaps))) if len(gaps) else NOTHING,
        typical=study.names(int(scan.measured[mine][gaps.argmin()])) if len(gaps) else NOTHING,
        modes=study.heights(study.modes[own[:N_MODES_OF_CARD]]),
        bands=bands,
        n_drawn=len(members) if len(members) < n_samples else 0,
    )


def _weights(study: Study, kept: Any) -> dict[str, Any]:
    """Return what `np.quantile` needs so that weight k counts as k members."""
    if "sample_weight" not in study.result:
        return {}
    weights = study.result["sample_weight"].values.ravel()[study.scan.kept[kept]]
    return {"weights": weights, "method": "inverted_cdf"}


def _view(study: Study, modes: Float) -> View | None:
    scan = study.scan
    rows = evenly(np.arange(len(scan.kept)), N_VIEW)
    points, _ = study.ruler.points(scan.rows[rows])
    everything = np.concatenate([modes, points])
    if not len(everything):
        return None
    most = int(np.clip(MAX_LANDMARK_VALUES // max(everything.size, 1), 50, N_LANDMARKS))
    n_modes = min(len(modes), most // 2)
    landmarks = np.concatenate([modes[:n_modes], evenly(points, most - n_modes)])
    placed = place_on_plane(study.ruler, landmarks, everything)
    if placed is None or placed[0].shape[1] < 2:
        return None
    index = scan.kept[rows]
    gaps = scan.distances[np.searchsorted(scan.measured, index)]
    return View(
        samples=placed[0][len(modes) :],
        labels=[study.names(int(i)) for i in index],
        clusters=study.label.ravel()[index],
        distances=[study.ruler.say(float(gap)) for gap in gaps],
        modes=placed[0][: len(modes)],
        kept=placed[1],
    )


def _outliers(study: Study) -> list[Outlier]:
    gaps = study.scan.distances
    farthest = np.argsort(-gaps, kind="stable")[:N_OUTLIERS]
    return [_outlier(study, int(at)) for at in farthest if gaps[at] > 0]


def _outlier(study: Study, at: int) -> Outlier:
    index, gap = int(study.scan.measured[at]), float(study.scan.distances[at])
    place = np.unravel_index(index, study.samples.shape)
    row = study.samples.read(tuple(slice(int(i), int(i) + 1) for i in place)).reshape(1, -1)
    mode = study.modes[[study.mode_index.ravel()[index]]]
    bandwidth = study.result.attrs.get("bandwidth")
    times = f", {gap / float(bandwidth):.2g} bandwidths" if bandwidth else ""
    drawn, modes = study.heights(row), study.heights(mode)
    return Outlier(
        label=study.names(index),
        cluster=int(study.label.ravel()[index]),
        distance=study.ruler.say(gap) + times,
        sample=[h[0] for h in drawn],
        mode=[h[0] for h in modes],
        shown=[
            crop(axis.edges, pair) for axis, *pair in zip(study.axes, drawn, modes, strict=True)
        ],
    )
