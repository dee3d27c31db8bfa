"""The page of a report: its figures and its HTML, from plain data.

Nothing here trusts a text: HTML is escaped by the template.
"""

from __future__ import annotations

from typing import Any

from bokeh.document import Document
from bokeh.embed import components
from bokeh.resources import Resources
from bokeh.themes import Theme
from jinja2 import Environment
from markupsafe import Markup

from dshift.report_draw_clusters import card_figure, mode_image, outlier_figure, size_figure
from dshift.report_draw_map import map_figure
from dshift.report_draw_plane import matrix_figure, view_figure
from dshift.report_draw_sweep import sweep_figures
from dshift.report_figures import N_COLORS, SHARE_COLORS, THEME, cluster_color
from dshift.report_parts import Findings
from dshift.report_template import CSS, PAGE
from dshift.report_text import percent


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


def _figures(found: Findings) -> dict[str, Any]:
    """Return the figures by the names under which the template knows them."""
    figures: dict[str, Any] = {}
    if len(found.sizes) > len(found.cards):
        figures["sizes"] = size_figure(found.sizes)
    for place, axis in enumerate(found.axes):
        if len(found.sizes) > len(found.cards):
            figures[f"modes_{place}"] = mode_image(found.all_modes[place], found.order, axis)
        for card in found.cards:
            height = 200 if len(found.cards) in (1, 2, 4) else 150
            figures[f"card_{card.number}_{place}"] = card_figure(card, place, axis, height)
        for rank, outlier in enumerate(found.outliers):
            figures[f"outlier_{rank}_{place}"] = outlier_figure(outlier, place, axis)
    for place, panel in enumerate(found.maps):
        figures[f"map_{place}"] = map_figure(panel)
    if len(found.matrix) > 1:
        figures["matrix"] = matrix_figure(found.matrix, found.order)
    if found.view is not None:
        figures["view"] = view_figure(found.view, len(found.cards))
    if found.sweep is not None:
        figures |= sweep_figures(found.sweep)
    return figures
