"""Figures of a sweep over bandwidths."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, NumeralTickFormatter
from bokeh.models.annotations import BoxAnnotation, Span
from numpy.typing import NDArray

from dshift.report_figures import INK, SHARE_COLORS, add_hover, fixed_range, make_figure, plain_text
from dshift.report_parts import Sweep

Array = NDArray[Any]


def sweep_figures(sweep: Sweep) -> dict[str, Any]:
    """Draw clusters and shares over bandwidths, as far as a sweep has them."""
    ends = fixed_range(float(sweep.bandwidth.min()) * 0.97, float(sweep.bandwidth.max()) * 1.03)
    figures: dict[str, Any] = {}
    if sweep.n_clusters is not None:
        top = float(sweep.n_clusters.max())
        is_log = top > 40
        fig = _sweep_figure(sweep, ends, 200, y_axis_type="log" if is_log else "linear")
        _sweep_line(fig, sweep.bandwidth, sweep.n_clusters, "clusters", "0,0", INK)
        fig.y_range = fixed_range(0.8 if is_log else 0, 1.3 * top if is_log else 1.08 * top + 0.5)
        fig.yaxis.axis_label = "clusters"
        fig.yaxis.formatter = NumeralTickFormatter(format="0,0")
        figures["sweep_clusters"] = fig
    if sweep.shares:
        fig = _sweep_figure(sweep, ends, 200)
        fig.y_range = fixed_range(-0.02, 1.04)
        fig.yaxis.formatter = NumeralTickFormatter(format="0%")
        for (name, values), color in zip(sweep.shares.items(), SHARE_COLORS, strict=True):
            _sweep_line(fig, sweep.bandwidth, values, name, "0.0%", color)
        figures["sweep_shares"] = fig
    for fig in list(figures.values())[-1:]:
        fig.xaxis.axis_label = plain_text(sweep.label)
    return figures


def _sweep_figure(sweep: Sweep, ends: Any, height: int, **options: Any) -> Any:
    fig = make_figure(height, x_range=ends, x_axis_type="log", min_border_left=64, **options)
    for place, (start, stop, _) in enumerate(sweep.plateaus):
        fig.add_layout(
            BoxAnnotation(
                left=start, right=stop, level="underlay", line_color=None,
                fill_color="#4477aa", fill_alpha=0.22 if place == 0 else 0.09,
            )
        )  # fmt: skip
    if sweep.chosen is not None:
        line = Span(location=sweep.chosen, dimension="height", line_color=INK, line_dash="dashed")
        fig.add_layout(line)
    fig.xgrid.visible = False
    return fig


def _sweep_line(fig: Any, x: Array, y: Array, name: str, form: str, color: str) -> None:
    source = ColumnDataSource({"x": x, "y": y})
    fig.line("x", "y", source=source, color=color, line_width=1.6)
    dots = fig.scatter("x", "y", source=source, color=color, size=5)
    add_hover(fig, [dots], [("bandwidth", "@x{0.[000]}"), (name, f"@y{{{form}}}")])
