"""Figures of what is near to what: the matrix of distances, and the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import BasicTicker, ColumnDataSource, FixedTicker, LinearColorMapper, NoOverlap
from bokeh.models.annotations import ColorBar
from bokeh.palettes import Blues256
from numpy.typing import NDArray

from dshift.report_figures import FONT, INK, add_hover, cluster_color, fixed_range, make_figure
from dshift.report_parts import View
from dshift.report_text import number

Array = NDArray[Any]

N_NUMBERED = 12  # distances are written into a matrix of at most so many clusters
N_TICKED = 40  # and its rows are numbered up to here


def matrix_figure(distances: Array, order: Array) -> Any:
    """Draw the distances between modes, alike ones side by side."""
    order = order[order < len(distances)]
    matrix = distances[np.ix_(order, order)]
    count, names = len(order), [str(cluster) for cluster in order]
    fig = make_figure(
        560,
        sizing_mode="scale_width",
        aspect_ratio=1.08,
        x_range=fixed_range(-0.5, count - 0.5),
        y_range=fixed_range(count - 0.5, -0.5),
        x_axis_location="above",
    )
    shades = LinearColorMapper(palette=Blues256, low=0, high=float(matrix.max()) or 1.0)
    source = _cells(matrix, order)
    if count <= N_TICKED:
        cells = fig.rect(
            "x", "y", 1, 1, source=source, line_color="white", line_width=0.5,
            fill_color={"field": "distance", "transform": shades},
        )  # fmt: skip
        fig.axis.ticker = FixedTicker(ticks=list(range(count)))
        fig.axis.major_label_overrides = dict(enumerate(names))
        fig.axis.major_label_policy = NoOverlap(min_distance=4)
    else:
        cells = fig.image(
            source=_pixels(matrix, order), image="distance",
            x=-0.5, y=-0.5, dw=count, dh=count, color_mapper=shades,
        )  # fmt: skip
        fig.axis.visible = False
    add_hover(fig, [cells], [("clusters", "@row and @column"), ("distance", "@distance{0.[000]}")])
    if count <= N_NUMBERED:
        light = matrix < 0.48 * matrix.max()
        source.data["text"] = [number(distance) for distance in matrix.ravel()]
        source.data["ink"] = np.where(light.ravel(), "#ffffff", INK).tolist()
        fig.text(
            "x", "y", "text", source=source, text_align="center", text_baseline="middle",
            text_color="ink", text_font_size="11px", text_font=value(FONT),
        )  # fmt: skip
    fig.grid.visible = False
    bar = ColorBar(color_mapper=shades, width=8, padding=4, title=None)
    fig.add_layout(bar, "right")
    return fig


def _cells(matrix: Array, order: Array) -> ColumnDataSource:
    y, x = np.indices(matrix.shape)
    return ColumnDataSource(
        {
            "x": x.ravel(),
            "y": y.ravel(),
            "row": order[y.ravel()],
            "column": order[x.ravel()],
            "distance": matrix.ravel().astype(np.float32),
        }
    )


def _pixels(matrix: Array, order: Array) -> ColumnDataSource:
    row, column = (order[part].astype(np.uint16) for part in np.indices(matrix.shape))
    columns = {"row": row, "column": column, "distance": matrix.astype(np.float32)}
    return ColumnDataSource({name: [values] for name, values in columns.items()})


def view_figure(view: View, n_named: int) -> Any:
    """Draw samples and modes on a plane."""
    width, height = np.ptp(np.concatenate([view.samples, view.modes]), axis=0)
    fig = make_figure(int(np.clip(960 * height / width, 220, 520)), match_aspect=True, zoom=True)
    source = ColumnDataSource(
        {
            "x": view.samples[:, 0].astype(np.float32),
            "y": view.samples[:, 1].astype(np.float32),
            "label": view.labels,
            "cluster": view.clusters,
            "distance": view.distances,
            "color": [cluster_color(int(cluster)) for cluster in view.clusters],
        }
    )
    size = 5 if len(view.labels) > 200 else 9
    dots = fig.scatter(
        "x", "y", source=source, size=size, color="color", alpha=0.55, line_color=None
    )
    tooltips = [("sample", "@label"), ("cluster", "@cluster"), ("to its mode", "@distance")]
    add_hover(fig, [dots], tooltips)
    numbers = np.arange(len(view.modes))[::-1]  # the largest on top
    named = numbers < n_named
    source = ColumnDataSource(
        {
            "x": view.modes[numbers, 0],
            "y": view.modes[numbers, 1],
            "cluster": numbers,
            "name": [str(mode) if mode < n_named else "" for mode in numbers],
            "size": np.where(named, 18, 7),
            "color": [cluster_color(int(mode)) for mode in numbers],
        }
    )
    modes = fig.scatter(
        "x", "y", source=source, size="size", fill_color="white", line_color="color", line_width=2
    )
    fig.text(
        "x", "y", "name", source=source, text_align="center", text_baseline="middle",
        text_font_size="11px", text_font=value(FONT), text_color=INK,
    )  # fmt: skip
    add_hover(fig, [modes], [("mode of cluster", "@cluster")])
    fig.axis.ticker = BasicTicker(desired_num_ticks=5)
    return fig
