"""The page of a report: its figures and its HTML, from plain data.

Nothing here trusts a text: HTML is escaped by the template, and Bokeh gets what comes from the data
as columns of tooltips (which it escapes) or as `PlainText` (which it does not take for TeX).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.document import Document
from bokeh.embed import components
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    LogTicker,
    NoOverlap,
    NumeralTickFormatter,
    PlainText,
    Range1d,
)
from bokeh.models.annotations import BoxAnnotation, ColorBar, Span
from bokeh.palettes import Blues256
from bokeh.plotting import figure
from bokeh.resources import Resources
from bokeh.themes import Theme
from jinja2 import Environment
from markupsafe import Markup
from numpy.typing import NDArray

Array = NDArray[Any]

INK, MUTED, FAINT, NO_CLUSTER_COLOR = "#1d2430", "#5d6673", "#e6e9ee", "#d5d8dd"
# Paul Tol's "bright" scheme, safe for the colour-blind; then its shades, then its tints.
HUES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
MIXES = ((0, 0.0), (0, 0.4), (255, 0.5))
SHARE_COLORS = (INK, "#b07d2b", "#5f9a94")  # of curves that are no clusters
N_COLORS = len(HUES) * len(MIXES)
N_NUMBERED = 12  # distances are written into a matrix of at most so many clusters
N_TICKED = 40  # and its rows are numbered up to here


@dataclass(frozen=True, eq=False)
class Bins:
    """The axis of the bins, as it is drawn."""

    edges: Array  # (n_drawn + 1,)
    label: str
    height_label: str
    is_share: bool  # heights are shares of a sample, to be shown as per cent
    ticks: dict[float, str] = field(default_factory=dict)  # for bins that are named, not measured
    n_joined: int = 1
    shown: tuple[float, float] = (0.0, 1.0)  # what of the axis has anything on it


@dataclass(frozen=True, eq=False)
class Card:
    """One cluster."""

    number: int
    n_samples: int
    size: str
    share: float
    n_modes: int
    spread: str  # half of its samples are nearer to their mode than this
    typical: str  # the sample nearest to a mode
    modes: Array  # (n, n_drawn): the first is the largest
    bands: Array | None  # (4, n_drawn): quantiles 5, 25, 75, 95 % of the members
    n_members: int

    @property
    def color(self) -> str:
        """The colour of the cluster in all plots."""
        return cluster_color(self.number)


@dataclass(frozen=True, eq=False)
class View:
    """Samples and modes on a plane."""

    samples: Array  # (n, 2)
    labels: list[str]
    clusters: Array
    distances: list[str]
    modes: Array  # (k, 2)
    kept: float  # share of the spread that the plane keeps


@dataclass(frozen=True, eq=False)
class Map:
    """Clusters on a regular grid of pixels, or at points."""

    name: str
    clusters: Array  # (ny, nx), or (n,) for points
    x: Array  # two ends, or (n,)
    y: Array
    axis_names: tuple[str, str]

    @property
    def aspect(self) -> float:
        """Width over height."""
        width, height = np.ptp(self.x), np.ptp(self.y)
        return float(np.clip(width / height if height > 0 else 1, 0.6, 3))


@dataclass(frozen=True, eq=False)
class Outlier:
    """A sample far from its mode."""

    label: str
    cluster: int
    distance: str
    sample: Array
    mode: Array
    shown: tuple[float, float]  # of the axis of the bins

    @property
    def color(self) -> str:
        """The colour of the outlier's cluster."""
        return cluster_color(self.cluster)


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep over bandwidths found."""

    bandwidth: Array
    n_clusters: Array | None
    shares: dict[str, Array]  # by what they are shares of
    plateaus: list[tuple[float, float, int | None]]  # start, stop, clusters; the longest first
    chosen: float | None
    label: str  # of the bandwidth, with its unit


@dataclass(frozen=True, eq=False)
class Findings:
    """All that the page shows."""

    title: str
    summary: str
    certified: bool
    certificate: str
    facts: list[tuple[str, str, str]]  # name, value, note
    attrs: list[tuple[str, str]]
    n_samples: int
    n_labelled: int  # samples with a cluster
    note: str  # how samples were drawn, if they were
    distance: str  # its name, with the unit
    bins: Bins
    weighted: bool
    sizes: Array  # of all clusters
    rest: str  # what the clusters beyond the cards hold
    cards: list[Card]
    all_modes: Array  # (k, n_drawn), by size
    order: Array  # of alike modes
    matrix: Array  # (m, m) distances between modes, by size
    view: View | None
    maps: list[Map]
    outliers: list[Outlier]
    near: str  # how far samples usually are
    sweep: Sweep | None


def cluster_color(number: int) -> str:
    """Return the colour of a cluster; it repeats after `N_COLORS`."""
    if number < 0:
        return NO_CLUSTER_COLOR
    end, share = MIXES[number // len(HUES) % len(MIXES)]
    hue = bytes.fromhex(HUES[number % len(HUES)][1:])
    return "#" + "".join(f"{round(part + (end - part) * share):02x}" for part in hue)


def render(found: Findings) -> str:
    """Return the whole page."""
    figures = _figures(found)
    script, divs = _embed(figures) if figures else ("", {})
    env = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    env.filters["percent"] = percent
    env.globals.update(color=cluster_color, n_colors=N_COLORS, share_colors=SHARE_COLORS)
    resources = Resources(mode="inline", components=["bokeh"], log_level="warn")
    html: str = env.from_string(PAGE).render(
        found=found,
        css=Markup(CSS),
        bokeh=Markup(resources.render() if figures else ""),
        script=Markup(script),
        plot={name: Markup(div) for name, div in divs.items()},
    )
    return html


def _embed(figures: dict[str, Any]) -> tuple[str, dict[str, str]]:
    # One document that is frozen meanwhile: else each figure has it look at all the others again.
    document = Document(theme=Theme(json=THEME))
    with document.models.freeze():
        for fig in figures.values():
            document.add_root(fig)
    script, divs = components(figures)
    return script, divs


def percent(share: float) -> str:
    """Return a share as a reader wants it: neither 0 % nor 100 % unless it is."""
    shown = f"{share:.0%}" if 0.095 <= share <= 0.995 else f"{share:.1%}"
    if 0 < share < 0.0005:
        shown = "< 0.1%"
    elif 0.9995 <= share < 1:
        shown = "> 99.9%"
    return shown.replace("100.0%", "100%").replace("%", "\u202f%")


def number(value: float) -> str:
    """Return a number with three digits, and no more than it needs."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _figures(found: Findings) -> dict[str, Any]:
    bins = found.bins
    figures: dict[str, Any] = {}
    if len(found.sizes) > len(found.cards):
        figures["sizes"] = _size_figure(found.sizes)
        figures["modes"] = _mode_image(found)
    for card in found.cards:
        figures[f"card_{card.number}"] = _card_figure(
            card, bins, 200 if len(found.cards) < 3 else 150
        )
    for place, panel in enumerate(found.maps):
        figures[f"map_{place}"] = _map_figure(panel)
    if len(found.matrix) > 1:
        figures["matrix"] = _matrix_figure(found)
    if found.view is not None:
        figures["view"] = _view_figure(found.view, len(found.cards))
    for place, outlier in enumerate(found.outliers):
        figures[f"outlier_{place}"] = _outlier_figure(outlier, bins)
    if found.sweep is not None:
        figures |= _sweep_figures(found.sweep)
    return figures


def _figure(height: int = 150, **options: Any) -> Any:
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


def _hover(
    fig: Any, renderers: Sequence[Any], tooltips: list[tuple[str, str]], **options: Any
) -> None:
    fig.add_tools(HoverTool(renderers=list(renderers), tooltips=tooltips, **options))


def _range(low: float, high: float) -> Any:
    return Range1d(start=low, end=high)


def _plain(text: str) -> Any:
    return PlainText(text=text)


def _bin_axis(fig: Any, bins: Bins, labelled: bool = False) -> None:
    fig.xgrid.visible = False
    fig.xaxis.ticker = BasicTicker(desired_num_ticks=5)
    if bins.ticks:
        fig.xaxis.ticker = FixedTicker(ticks=list(bins.ticks))
        fig.xaxis.major_label_overrides = {at: _plain(text) for at, text in bins.ticks.items()}
    if labelled:
        fig.xaxis.axis_label = _plain(bins.label)


def _height_axis(fig: Any, bins: Bins) -> None:
    fig.yaxis.ticker = BasicTicker(desired_num_ticks=3)
    fig.yaxis.formatter = NumeralTickFormatter(format="0.[0]%" if bins.is_share else "0.[000]")


def _steps(bins: Bins, **heights: Array) -> ColumnDataSource:
    """Return columns with one row an edge, for glyphs that step after their x."""
    columns = {"left": bins.edges, "right": np.append(bins.edges[1:], bins.edges[-1])}
    for name, values in heights.items():
        columns[name] = np.append(values, values[-1]).astype(np.float32)
    return ColumnDataSource(columns)


def _card_figure(card: Card, bins: Bins, height: int) -> Any:
    main, *others = card.modes
    heights = {"mode": main, "zero": np.zeros_like(main)}
    if card.bands is not None:
        heights |= dict(zip(("q05", "q25", "q75", "q95"), card.bands, strict=True))
    heights |= {f"mode_{place}": other for place, other in enumerate(others)}
    top = max(float(values.max()) for values in heights.values()) or 1.0
    source = _steps(bins, **heights, top=np.full(len(main), 1.05 * top))
    fig = _figure(height, x_range=_range(*bins.shown), y_range=_range(0, 1.05 * top))
    band = {"x": "left", "source": source, "step_mode": "after", "color": card.color}
    tooltips = [("from", "@left{0.[000]}"), ("to", "@right{0.[000]}")] if not bins.ticks else []
    form = "{0.[00]%}" if bins.is_share else "{0.[0000]}"
    tooltips.append(("mode", f"@mode{form}"))
    if card.bands is not None:
        fig.varea_step(y1="q05", y2="q95", alpha=0.18, **band)
        fig.varea_step(y1="q25", y2="q75", alpha=0.3, **band)
        tooltips += [("half of the members", f"@q25{form} to @q75{form}")]
        tooltips += [("nine in ten", f"@q05{form} to @q95{form}")]
    line = {"x": "left", "source": source, "mode": "after", "color": INK}
    for place in range(len(others)):
        fig.step(y=f"mode_{place}", line_width=0.8, line_alpha=0.55, **line)
    fig.step(y="mode", line_width=1.6, **line)
    pane = fig.quad("left", "right", "top", "zero", source=source, alpha=0, hover_alpha=0.06)
    _hover(fig, [pane], tooltips, attachment="above")
    _bin_axis(fig, bins)
    _height_axis(fig, bins)
    return fig


def _outlier_figure(outlier: Outlier, bins: Bins) -> Any:
    zero = np.zeros_like(outlier.sample)
    source = _steps(bins, sample=outlier.sample, mode=outlier.mode, zero=zero)
    top = max(float(outlier.sample.max()), float(outlier.mode.max())) or 1.0
    fig = _figure(120, x_range=_range(*outlier.shown), y_range=_range(0, 1.05 * top))
    band = {"source": source, "step_mode": "after", "color": outlier.color, "alpha": 0.45}
    fig.varea_step("left", "zero", "sample", **band)
    fig.step("left", "mode", source=source, mode="after", color=INK, line_width=1.6)
    _bin_axis(fig, bins)
    _height_axis(fig, bins)
    return fig


def _size_figure(sizes: Array) -> Any:
    shown = sizes[:2000]
    source = ColumnDataSource(
        {
            "cluster": np.arange(len(shown)),
            "size": shown,
            "color": [cluster_color(number) for number in range(len(shown))],
        }
    )
    is_log = shown[0] > 30 * shown[-1] > 0
    low = 0.7 * float(shown[-1]) if is_log else 0.0
    fig = _figure(
        180,
        y_axis_type="log" if is_log else "linear",
        x_range=_range(-0.7, len(shown) - 0.3),
        y_range=_range(low, float(shown[0]) * (1.4 if is_log else 1.05)),
    )
    if is_log:  # where bars would have no foot to stand on
        marks = fig.scatter("cluster", "size", source=source, color="color", size=5)
        fig.yaxis.ticker = LogTicker(desired_num_ticks=3)
    else:
        marks = fig.vbar("cluster", 0.8, "size", source=source, color="color", line_color=None)
    _hover(fig, [marks], [("cluster", "@cluster"), ("size", "@size{0,0.[00]}")])
    fig.xgrid.visible = False
    fig.xaxis.axis_label = "cluster, by size"
    fig.yaxis.axis_label = "size" + (", log scale" if is_log else "")
    fig.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    return fig


def _mode_image(found: Findings) -> Any:
    rows = found.all_modes[found.order]
    peaks = np.maximum(rows.max(axis=1, keepdims=True), np.finfo(float).tiny)
    image = np.rint(255 * rows / peaks).clip(0, 255).astype(np.uint8)
    count, bins, edges = len(rows), found.bins, found.bins.edges
    # Bins of different widths are drawn on pixels of one width.
    centers = np.linspace(edges[0], edges[-1], 2 * len(edges))
    image = image[:, np.clip(np.searchsorted(edges, centers, "right") - 1, 0, len(edges) - 2)]
    height = int(np.clip(3 * count, 160, 640)) + 40
    fig = _figure(height, x_range=_range(*bins.shown), y_range=_range(count - 0.5, -0.5))
    shades = LinearColorMapper(palette=Blues256[::-1], low=0, high=255)
    span = float(edges[-1] - edges[0])
    fig.image([image], x=edges[0], y=-0.5, dw=span, dh=count, color_mapper=shades)
    _color_strip(fig, found.order, *bins.shown)
    _bin_axis(fig, found.bins, labelled=True)
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
    _hover(fig, [pane], [("cluster", "@cluster")])


def _matrix_figure(found: Findings) -> Any:
    order = found.order[found.order < len(found.matrix)]
    matrix = found.matrix[np.ix_(order, order)]
    count, names = len(order), [str(number) for number in order]
    fig = _figure(
        560,
        sizing_mode="scale_width",
        aspect_ratio=1.08,
        x_range=_range(-0.5, count - 0.5),
        y_range=_range(count - 0.5, -0.5),
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
    _hover(fig, [cells], [("clusters", "@row and @column"), ("distance", "@distance{0.[000]}")])
    if count <= N_NUMBERED:
        light = matrix < 0.48 * matrix.max()
        source.data["text"] = [number(value) for value in matrix.ravel()]
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


def _view_figure(view: View, n_named: int) -> Any:
    width, height = np.ptp(np.concatenate([view.samples, view.modes]), axis=0)
    fig = _figure(int(np.clip(960 * height / width, 220, 520)), match_aspect=True, zoom=True)
    source = ColumnDataSource(
        {
            "x": view.samples[:, 0].astype(np.float32),
            "y": view.samples[:, 1].astype(np.float32),
            "label": view.labels,
            "cluster": view.clusters,
            "distance": view.distances,
            "color": [cluster_color(int(number)) for number in view.clusters],
        }
    )
    size = 5 if len(view.labels) > 200 else 9
    dots = fig.scatter(
        "x", "y", source=source, size=size, color="color", alpha=0.55, line_color=None
    )
    tooltips = [("sample", "@label"), ("cluster", "@cluster"), ("to its mode", "@distance")]
    _hover(fig, [dots], tooltips)
    numbers = np.arange(len(view.modes))[::-1]  # the largest on top
    named = numbers < n_named
    source = ColumnDataSource(
        {
            "x": view.modes[numbers, 0],
            "y": view.modes[numbers, 1],
            "cluster": numbers,
            "name": [str(number) if number < n_named else "" for number in numbers],
            "size": np.where(named, 18, 7),
            "color": [cluster_color(int(number)) for number in numbers],
        }
    )
    modes = fig.scatter(
        "x", "y", source=source, size="size", fill_color="white", line_color="color", line_width=2
    )
    fig.text(
        "x", "y", "name", source=source, text_align="center", text_baseline="middle",
        text_font_size="11px", text_font=value(FONT), text_color=INK,
    )  # fmt: skip
    _hover(fig, [modes], [("mode of cluster", "@cluster")])
    fig.axis.ticker = BasicTicker(desired_num_ticks=5)
    return fig


def _map_figure(panel: Map) -> Any:
    xs, ys = panel.x, panel.y
    margin = 0.0 if panel.clusters.ndim == 2 else 0.04 * max(np.ptp(xs), np.ptp(ys), 1e-9)
    fig = _figure(
        sizing_mode="scale_width",
        aspect_ratio=panel.aspect,
        x_range=_range(float(xs.min() - margin), float(xs.max() + margin)),
        y_range=_range(float(ys.min() - margin), float(ys.max() + margin)),
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
    _hover(fig, [cells], tooltips)
    fig.grid.visible = False
    fig.axis.ticker = BasicTicker(desired_num_ticks=5)
    return fig


def _sweep_figures(sweep: Sweep) -> dict[str, Any]:
    ends = _range(float(sweep.bandwidth.min()) * 0.97, float(sweep.bandwidth.max()) * 1.03)
    figures: dict[str, Any] = {}
    if sweep.n_clusters is not None:
        top = float(sweep.n_clusters.max())
        is_log = top > 40
        fig = _sweep_figure(sweep, ends, 200, y_axis_type="log" if is_log else "linear")
        _sweep_line(fig, sweep.bandwidth, sweep.n_clusters, "clusters", "0,0", INK)
        fig.y_range = _range(0.8 if is_log else 0, 1.3 * top if is_log else 1.08 * top + 0.5)
        fig.yaxis.axis_label = "clusters"
        fig.yaxis.formatter = NumeralTickFormatter(format="0,0")
        figures["sweep_clusters"] = fig
    if sweep.shares:
        fig = _sweep_figure(sweep, ends, 200)
        fig.y_range = _range(-0.02, 1.04)
        fig.yaxis.formatter = NumeralTickFormatter(format="0%")
        for (name, values), color in zip(sweep.shares.items(), SHARE_COLORS, strict=True):
            _sweep_line(fig, sweep.bandwidth, values, name, "0.0%", color)
        figures["sweep_shares"] = fig
    for fig in list(figures.values())[-1:]:
        fig.xaxis.axis_label = _plain(sweep.label)
    return figures


def _sweep_figure(sweep: Sweep, ends: Any, height: int, **options: Any) -> Any:
    fig = _figure(height, x_range=ends, x_axis_type="log", min_border_left=64, **options)
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
    _hover(fig, [dots], [("bandwidth", "@x{0.[000]}"), (name, f"@y{{{form}}}")])


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
# The policy lets nothing be fetched, whatever a text in the data may try.
PAGE = """<!DOCTYPE html>
{% macro swatch(number) %}<i class="swatch" style="background: {{ color(number) }}"></i>
{%- endmacro %}
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none';
 form-action 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light">
<meta name="generator" content="dshift">
<title>{{ found.title }}</title>
<style>{{ css }}</style>
{{ bokeh }}
</head>
<body>
<main>
<header>
<p class="eyebrow">dshift report</p>
<h1>{{ found.title }}</h1>
<p class="lead">{{ found.summary }}</p>
<p class="seal{{ '' if found.certified else ' open' }}"><b>{{ '✓' if found.certified else '!' }}</b>
<span>{{ found.certificate }}</span></p>
<noscript><p class="note">The plots need JavaScript; the tables do not.</p></noscript>
</header>

<section id="run"><h2>What was run</h2>
<dl class="facts">
{% for name, value, note in found.facts %}
<div><dt>{{ name }}</dt><dd>{{ value }}{% if note %}<small>{{ note }}</small>{% endif %}</dd></div>
{% endfor %}
</dl>
{% if found.note %}<p class="note">{{ found.note }}</p>{% endif %}
<details><summary>All attributes of the result</summary><table class="attrs">
{% for name, value in found.attrs %}<tr><th>{{ name }}<td>{{ value }}</tr>
{% endfor %}
</table></details>
</section>

{% if found.cards %}
<section id="clusters"><h2>Clusters by size</h2>
<table class="clusters"><thead><tr><th>Cluster<th class="number">Samples
{% if found.weighted %}<th class="number">Weight{% endif %}
<th class="bars">Share<th class="number wide">Modes<th class="number wide">Median distance
<th class="wide">Nearest to the mode</tr></thead><tbody>
{% for card in found.cards %}
<tr><td>{{ swatch(card.number) }}{{ card.number }}
<td class="number">{{ "{:,}".format(card.n_samples) }}
{% if found.weighted %}<td class="number">{{ card.size }}{% endif %}
<td class="bars"><div><i style="width: {{ (100 * card.share / found.cards[0].share)|round(2) }}%;
background: {{ card.color }}"></i></div><span>{{ card.share|percent }}</span>
<td class="number wide">{{ card.n_modes }}<td class="number wide">{{ card.spread }}
<td class="wide text">{{ card.typical }}</tr>
{% endfor %}
</tbody></table>
{% if found.rest %}<p class="note">{{ found.rest }}</p>{% endif %}
{% if plot.sizes %}{{ plot.sizes }}{% endif %}
</section>

<section id="modes"><h2>Modes and their members</h2>
<p>The line is the mode that a cluster&rsquo;s samples climb to
{%- if found.cards|map(attribute="n_modes")|max > 1 %}
 (thin lines: further modes that were joined to it){% endif %}. The darker band holds half of
the members in each bin, the lighter one nine in ten. Across: {{ found.bins.label }}. Up:
{{ found.bins.height_label }}, on each plot&rsquo;s own scale.
{% if found.bins.n_joined > 1 %}{{ found.bins.n_joined }} neighbouring bins are drawn as one.
{% endif %}</p>
<div class="grid{{ ' few' if found.cards|length < 3 else '' }}">
{% for card in found.cards %}
<figure><figcaption>{{ swatch(card.number) }}<b>Cluster {{ card.number }}</b>
<span>{{ "{:,}".format(card.n_samples) }} · {{ card.share|percent }}</span></figcaption>
{{ plot["card_%d"|format(card.number)] }}</figure>
{% endfor %}
</div>
{% if plot.modes %}
<h3>{{ "All clusters" if found.all_modes|length == found.sizes|length else
"The largest %d clusters"|format(found.all_modes|length) }} at a glance</h3>
<p>A row is a cluster&rsquo;s mode, shaded up to its own peak; neighbouring rows are alike. The
strip at the left has the clusters&rsquo; colours
{%- if found.sizes|length > n_colors %}, which repeat after {{ n_colors }}{% endif %}.</p>
{{ plot.modes }}
{% endif %}
</section>

{% if found.maps %}
<section id="map"><h2>Map</h2>
<p>Each {{ "cell" if found.maps[0].clusters.ndim == 2 else "point" }} has the colour of its
cluster{{ "" if found.n_labelled == found.n_samples else "; pale grey belongs to none" }}.
{% if found.sizes|length > n_colors %} Colours repeat after {{ n_colors }}
clusters: point at a place to read its number.{% endif %}</p>
<p class="legend">{% for card in found.cards %}
<span>{{ swatch(card.number) }}{{ card.number }}</span>{% endfor %}
{% if found.sizes|length > found.cards|length %}<span>…</span>{% endif %}</p>
{% for panel in found.maps %}
<figure>{% if panel.name %}<figcaption><b>{{ panel.name }}</b></figcaption>{% endif %}
{{ plot["map_%d"|format(loop.index0)] }}</figure>
{% endfor %}
</section>
{% endif %}

{% if plot.matrix %}
<section id="matrix"><h2>Distances between modes</h2>
<p>{{ found.distance }} between the largest modes of
{{ "all" if found.matrix|length == found.sizes|length else
"the %d largest"|format(found.matrix|length) }} clusters, ordered
so that neighbours are alike. The darker, the nearer: dark blocks are families of clusters.</p>
<div style="max-width: {{ [660, 170 + 44 * found.matrix|length]|min }}px">{{ plot.matrix }}</div>
</section>
{% endif %}

{% if found.view %}
<section id="view"><h2>Samples and modes on a plane</h2>
<p>Dots are
{% if found.view.labels|length < found.n_labelled %}
{{ "{:,}".format(found.view.labels|length) }} of the
{% endif %}
samples, rings are modes. Classical scaling of the {{ found.distance }}: near on the plane means
alike, and the plane keeps {{ found.view.kept|percent }} of the spread.</p>
{{ plot.view }}
</section>
{% endif %}
{% endif %}

{% if found.sweep %}
<section id="sweep"><h2>Other bandwidths</h2>
<p>Shaded: plateaus, where neighbouring bandwidths agree on the clusters; the longest is darkest.
{% if found.sweep.chosen is not none %}The dashed line is the bandwidth of this result.
{% endif %}</p>
{% if plot.sweep_clusters %}{{ plot.sweep_clusters }}{% endif %}
{% if plot.sweep_shares %}
<p class="legend">{% for name in found.sweep.shares %}<span><i class="swatch"
style="background: {{ share_colors[loop.index0] }}"></i>{{ name }}</span>
{% endfor %}</p>
{{ plot.sweep_shares }}{% endif %}
{% if found.sweep.plateaus %}
<table class="plateaus"><thead><tr><th>Plateau<th class="number">From<th class="number">To
<th class="number">Clusters</tr></thead><tbody>
{% for start, stop, n_clusters in found.sweep.plateaus[:8] %}<tr><td>{{ loop.index }}
<td class="number">{{ "%.3g"|format(start) }}<td class="number">{{ "%.3g"|format(stop) }}
<td class="number">{{ "\u2013" if n_clusters is none else n_clusters }}</tr>
{% endfor %}
</tbody></table>{% endif %}
</section>
{% endif %}

{% if found.outliers %}
<section id="outliers"><h2>Outliers</h2>
<p>The samples farthest from their mode: filled is the sample, the line is its mode, each on scales
of its own. {{ found.near }}</p>
<div class="grid">
{% for outlier in found.outliers %}
<figure><figcaption><b>{{ outlier.label }}</b></figcaption>
<p class="sub">{{ swatch(outlier.cluster) }}cluster {{ outlier.cluster }} ·
{{ outlier.distance }}</p>
{{ plot["outlier_%d"|format(loop.index0)] }}</figure>
{% endfor %}
</div>
</section>
{% endif %}
</main>
{{ script }}
</body>
</html>
"""
CSS = """
:root { --ink: #1d2430; --muted: #5d6673; --faint: #e6e9ee }
* { box-sizing: border-box }
body { margin: 0; background: #fff; color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { max-width: 1040px; margin: 0 auto; padding: 40px 24px 80px }
header { margin-bottom: 40px }
.eyebrow { margin: 0; color: var(--muted); font-size: 13px; letter-spacing: .06em;
  text-transform: uppercase }
h1 { margin: 4px 0 12px; font-size: 30px; line-height: 1.2; font-weight: 650;
  overflow-wrap: anywhere }
h2 { margin: 0 0 8px; font-size: 20px; font-weight: 650 }
h3 { margin: 28px 0 4px; font-size: 16px; font-weight: 650 }
section { padding-top: 28px; margin-top: 36px; border-top: 1px solid var(--faint) }
section > p, header > p { max-width: 72ch; margin: 0 0 16px; overflow-wrap: anywhere }
p { text-wrap: pretty }
section > p { color: var(--muted) }
.lead { font-size: 19px; line-height: 1.45 }
.seal { display: flex; gap: 10px; align-items: baseline; color: #1a6b2d }
.seal.open { color: #9a5b00 }
.seal span { color: var(--ink) }
.note { font-size: 14px; color: var(--muted) }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr));
  gap: 20px 24px; margin: 16px 0 24px }
.facts > div { min-width: 0 }
dt { color: var(--muted); font-size: 13px }
dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
small { display: block; color: var(--muted); font-size: 13px; line-height: 1.35 }
details { font-size: 14px; color: var(--muted) }
summary { cursor: pointer }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 500; font-size: 13px; color: var(--muted);
  vertical-align: bottom }
th, td { padding: 6px 20px 6px 0; border-bottom: 1px solid var(--faint) }
.number { text-align: right; white-space: nowrap }
.text, .attrs td { overflow-wrap: anywhere }
.attrs { margin-top: 8px } .attrs th { width: 12em; vertical-align: top }
.plateaus { width: auto; margin-top: 12px }
.clusters { margin-bottom: 16px }
td.bars { width: 34% }
td.bars > div { display: inline-block; width: calc(100% - 64px); vertical-align: middle }
td.bars i { display: block; height: 12px; min-width: 2px; border-radius: 2px }
td.bars span { display: inline-block; width: 64px; text-align: right; font-size: 14px }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 8px; border-radius: 3px }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 14px }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(270px, 1fr));
  gap: 24px 28px }
.grid.few { grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)) }
figure { margin: 0; min-width: 0 }
figcaption { display: flex; align-items: baseline; font-size: 14px; overflow-wrap: anywhere }
figcaption b { font-weight: 600 } figcaption span { margin-left: auto; color: var(--muted) }
.sub { margin: 0; font-size: 13px; color: var(--muted) }
@media (max-width: 640px) {
  main { padding: 24px 16px 48px } h1 { font-size: 24px } .lead { font-size: 17px }
  .facts { grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)) }
  .wide { display: none } th, td { padding-right: 12px } td.bars { width: 50% }
  section { margin-top: 24px }
}
"""
