"""Figures of clusters: sizes, modes over bands of their members, outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, LinearColorMapper, LogTicker, NumeralTickFormatter
from bokeh.palettes import Blues256
from numpy.typing import NDArray

from dshift.report_figures import (
    INK,
    N_COLORS,
    add_hover,
    cluster_color,
    dress_bins,
    dress_heights,
    fixed_range,
    make_figure,
    step_columns,
)
from dshift.report_parts import Axis, Card, Outlier

Array = NDArray[Any]

FADED = "#b3bac5"  # of clusters whose colour is that of a larger one


def card_figure(card: Card, place: int, axis: Axis, height: int) -> Any:
    """Draw the modes of a cluster over the band of its members, on the axis at a place."""
    main, *others = card.modes[place]
    heights = {"mode": main, "zero": np.zeros_like(main)}
    if card.bands is not None:
        heights |= dict(zip(("q05", "q25", "q75", "q95"), card.bands[place], strict=True))
    heights |= {f"mode_{rank}": other for rank, other in enumerate(others)}
    top = max(float(values.max()) for values in heights.values()) or 1.0
    source = step_columns(axis, **heights, top=np.full(len(main), 1.05 * top))
    fig = make_figure(height, x_range=fixed_range(*axis.shown), y_range=fixed_range(0, 1.05 * top))
    band = {
        "x": "left",
        "source": source,
        "step_mode": "after",
        "color": cluster_color(card.number),
    }
    tooltips = [("from", "@left{0.[000]}"), ("to", "@right{0.[000]}")] if not axis.ticks else []
    form = "{0.[00]%}" if axis.is_share else "{0.[0000]}"
    tooltips.append(("mode", f"@mode{form}"))
    if card.bands is not None:
        fig.varea_step(y1="q05", y2="q95", alpha=0.18, **band)
        fig.varea_step(y1="q25", y2="q75", alpha=0.3, **band)
        tooltips += [("half of the members", f"@q25{form} to @q75{form}")]
        tooltips += [("nine in ten", f"@q05{form} to @q95{form}")]
    line = {"x": "left", "source": source, "mode": "after", "color": INK}
    for rank in range(len(others)):
        fig.step(y=f"mode_{rank}", line_width=0.8, line_alpha=0.55, **line)
    fig.step(y="mode", line_width=1.6, **line)
    pane = fig.quad("left", "right", "top", "zero", source=source, alpha=0, hover_alpha=0.06)
    add_hover(fig, [pane], tooltips, attachment="above")
    dress_bins(fig, axis)
    dress_heights(fig, axis)
    return fig


def outlier_figure(outlier: Outlier, place: int, axis: Axis) -> Any:
    """Draw an outlier beneath its mode, on the axis at a place."""
    sample, mode = outlier.sample[place], outlier.mode[place]
    source = step_columns(axis, sample=sample, mode=mode, zero=np.zeros_like(sample))
    top = max(float(sample.max()), float(mode.max())) or 1.0
    shown = fixed_range(*outlier.shown[place])
    fig = make_figure(120, x_range=shown, y_range=fixed_range(0, 1.05 * top))
    color = cluster_color(outlier.cluster)
    band = {"source": source, "step_mode": "after", "color": color, "alpha": 0.45}
    fig.varea_step("left", "zero", "sample", **band)
    fig.step("left", "mode", source=source, mode="after", color=INK, line_width=1.6)
    dress_bins(fig, axis)
    dress_heights(fig, axis)
    return fig


def size_figure(sizes: Array) -> Any:
    """Draw the sizes of all clusters."""
    shown = sizes[:2000]
    colors = [cluster_color(number) for number in range(min(len(shown), N_COLORS))]
    source = ColumnDataSource(
        {
            "cluster": np.arange(len(shown)),
            "size": shown,
            "color": colors + [FADED] * (len(shown) - len(colors)),
        }
    )
    is_log = shown[0] > 30 * shown[-1] > 0
    low = 0.7 * float(shown[-1]) if is_log else 0.0
    fig = make_figure(
        180,
        y_axis_type="log" if is_log else "linear",
        x_range=fixed_range(-0.7, len(shown) - 0.3),
        y_range=fixed_range(low, float(shown[0]) * (1.4 if is_log else 1.05)),
    )
    if is_log:  # where bars would have no foot to stand on
        marks = fig.scatter("cluster", "size", source=source, color="color", size=5)
        fig.yaxis.ticker = LogTicker(desired_num_ticks=3)
    else:
        marks = fig.vbar("cluster", 0.8, "size", source=source, color="color", line_color=None)
    add_hover(fig, [marks], [("cluster", "@cluster"), ("size", "@size{0,0.[00]}")])
    fig.xgrid.visible = False
    fig.xaxis.axis_label = "cluster, by size"
    fig.yaxis.axis_label = "size" + (", log scale" if is_log else "")
    fig.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    return fig


def mode_image(modes: Array, order: Array, axis: Axis) -> Any:
    """Draw modes as rows of shades, on one axis."""
    rows = modes[order]
    peaks = np.maximum(rows.max(axis=1, keepdims=True), np.finfo(float).tiny)
    image = np.rint(255 * rows / peaks).clip(0, 255).astype(np.uint8)
    count, edges = len(rows), axis.edges
    # Bins of different widths are drawn on pixels of one width.
    centers = np.linspace(edges[0], edges[-1], 2 * len(edges))
    image = image[:, np.clip(np.searchsorted(edges, centers, "right") - 1, 0, len(edges) - 2)]
    height = int(np.clip(3 * count, 160, 640)) + 40
    fig = make_figure(
        height, x_range=fixed_range(*axis.shown), y_range=fixed_range(count - 0.5, -0.5)
    )
    shades = LinearColorMapper(palette=Blues256[::-1], low=0, high=255)
    span = float(edges[-1] - edges[0])
    fig.image([image], x=edges[0], y=-0.5, dw=span, dh=count, color_mapper=shades)
    _color_strip(fig, order, *axis.shown)
    dress_bins(fig, axis, labelled=True)
    fig.ygrid.visible = fig.yaxis.visible = False
    return fig


def _color_strip(fig: Any, order: Array, left: float, right: float) -> None:
    """Draw each row's colour at its left end, and let its tooltip say which cluster it is."""
    source = ColumnDataSource(
        {
            "row": np.arange(len(order)),
            "cluster": order,
            "color": [cluster_color(int(number)) for number in order],
        }
    )
    fig.hbar(
        "row", 1, left + 0.012 * (right - left), left, source=source, color="color", line_color=None
    )
    pane = fig.hbar("row", 1, right, left, source=source, alpha=0, hover_alpha=0.15)
    add_hover(fig, [pane], [("cluster", "@cluster")])
