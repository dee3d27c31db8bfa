"""The look of a report's figures: colours, fonts, axes.

Nothing here trusts a text: Bokeh gets what comes from the data as columns of tooltips (which it
escapes) or as `PlainText` (which it does not take for TeX).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    PlainText,
    Range1d,
)
from bokeh.plotting import figure
from numpy.typing import NDArray

from dshift.report_parts import Axis

Array = NDArray[Any]

INK, MUTED, FAINT, NO_CLUSTER_COLOR = "#1d2430", "#5d6673", "#e6e9ee", "#d5d8dd"
# Paul Tol's "bright" scheme, safe for the colour-blind; then its shades, then its tints.
HUES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
MIXES = ((0, 0.0), (0, 0.4), (255, 0.5))
SHARE_COLORS = (INK, "#b07d2b", "#5f9a94")  # of curves that are no clusters
N_COLORS = len(HUES) * len(MIXES)
FONT = "system-ui, sans-serif"
THEME = {
    "attrs": {
        "Plot": {
            "background_fill_color": None,
            "border_fill_color": None,
            "outline_line_color": None,
            "min_border": 6,
        },
        "Axis": {
            "axis_line_color": "#b8bec8",
            "major_tick_line_color": "#b8bec8",
            "minor_tick_line_color": None,
            "major_tick_in": 0,
            "major_tick_out": 4,
            "major_label_text_font": FONT,
            "major_label_text_font_size": "11px",
            "major_label_text_color": MUTED,
            "axis_label_text_font": FONT,
            "axis_label_text_font_size": "12px",
            "axis_label_text_font_style": "normal",
            "axis_label_text_color": MUTED,
        },
        "Grid": {"grid_line_color": FAINT},
        "ColorBar": {
            "major_label_text_font": FONT,
            "major_label_text_font_size": "11px",
            "major_label_text_color": MUTED,
            "background_fill_color": None,
        },
    }
}


def cluster_color(number: int) -> str:
    """Return the colour of a cluster; it repeats after `N_COLORS`."""
    if number < 0:
        return NO_CLUSTER_COLOR
    end, share = MIXES[number // len(HUES) % len(MIXES)]
    hue = bytes.fromhex(HUES[number % len(HUES)][1:])
    return "#" + "".join(f"{round(part + (end - part) * share):02x}" for part in hue)


def make_figure(height: int = 150, **options: Any) -> Any:
    """Return an empty figure; with `zoom=True` it has tools."""
    zoom = options.pop("zoom", False)
    options.setdefault("sizing_mode", "stretch_width")
    fig = figure(
        height=height,
        tools="pan,box_zoom,wheel_zoom,reset" if zoom else "",
        toolbar_location="right" if zoom else None,
        toolbar_inner=True,
        active_drag=None,
        active_scroll=None,
        **options,
    )
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    return fig


def add_hover(
    fig: Any, renderers: Sequence[Any], tooltips: list[tuple[str, str]], **options: Any
) -> None:
    """Let glyphs tell of themselves."""
    fig.add_tools(HoverTool(renderers=list(renderers), tooltips=tooltips, **options))


def fixed_range(low: float, high: float) -> Any:
    """Return a range that does not follow the data."""
    return Range1d(start=low, end=high)


def plain_text(text: str) -> Any:
    """Return a text that is not taken for TeX."""
    return PlainText(text=text)


def dress_bins(fig: Any, axis: Axis, labelled: bool = False) -> None:
    """Give a figure the axis of the bins."""
    fig.xgrid.visible = False
    fig.xaxis.ticker = BasicTicker(desired_num_ticks=5)
    if axis.ticks:
        fig.xaxis.ticker = FixedTicker(ticks=list(axis.ticks))
        fig.xaxis.major_label_overrides = {at: plain_text(text) for at, text in axis.ticks.items()}
    if labelled:
        fig.xaxis.axis_label = plain_text(axis.label)


def dress_heights(fig: Any, axis: Axis) -> None:
    """Give a figure the axis of the heights over bins."""
    fig.yaxis.ticker = BasicTicker(desired_num_ticks=3)
    fig.yaxis.formatter = NumeralTickFormatter(format="0.[0]%" if axis.is_share else "0.[000]")


def step_columns(axis: Axis, **heights: Array) -> ColumnDataSource:
    """Return columns with one row an edge, for glyphs that step after their x."""
    columns = {"left": axis.edges, "right": np.append(axis.edges[1:], axis.edges[-1])}
    for name, values in heights.items():
        columns[name] = np.append(values, values[-1]).astype(np.float32)
    return ColumnDataSource(columns)
