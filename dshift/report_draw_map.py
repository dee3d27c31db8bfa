"""Figures of maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import BasicTicker, ColumnDataSource, LinearColorMapper

from dshift.report_figures import add_hover, cluster_color, fixed_range, make_figure
from dshift.report_parts import Map


def map_figure(panel: Map) -> Any:
    """Draw clusters where their samples are."""
    xs, ys = panel.x, panel.y
    margin = 0.0 if panel.clusters.ndim == 2 else 0.04 * max(np.ptp(xs), np.ptp(ys), 1e-9)
    fig = make_figure(
        sizing_mode="scale_width",
        aspect_ratio=panel.aspect,
        x_range=fixed_range(float(xs.min() - margin), float(xs.max() + margin)),
        y_range=fixed_range(float(ys.min() - margin), float(ys.max() + margin)),
        zoom=True,
    )
    tooltips = [("cluster", "@image"), *zip(panel.axis_names, ("$x", "$y"), strict=True)]
    highest = max(int(panel.clusters.max()), 0)
    if panel.clusters.ndim == 2:
        palette = [cluster_color(number) for number in range(-1, highest + 1)]
        cells = fig.image(
            [panel.clusters.astype(np.int16 if highest < 2**15 else np.int32)],
            x=float(xs.min()), y=float(ys.min()), dw=float(np.ptp(xs)), dh=float(np.ptp(ys)),
            color_mapper=LinearColorMapper(palette=palette, low=-1.5, high=highest + 0.5),
        )  # fmt: skip
    else:
        source = ColumnDataSource(
            {
                "x": xs,
                "y": ys,
                "image": panel.clusters,
                "color": [cluster_color(int(number)) for number in panel.clusters],
            }
        )
        cells = fig.scatter("x", "y", source=source, size=6, color="color", line_color=None)
    add_hover(fig, [cells], tooltips)
    fig.grid.visible = False
    fig.axis.ticker = BasicTicker(desired_num_ticks=5)
    return fig
