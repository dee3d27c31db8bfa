"""Eras of first names: 11,103 names clustered by the years in which their bearers were born.

python examples/first_names/run.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from numpy.typing import NDArray

import dshift
from examples.common import INK, Page, make_parser

FILE = Path(__file__).resolve().parent / "names.npz"
CHOSEN = 4.0  # years
N_SMALL = 300
N_SHOWN, N_KNOWN = 14, 8
SMALLEST_SHOWN = 3


@dataclass(frozen=True)
class Names:
    """Births of each name by year."""

    counts: xr.DataArray  # (first_name, year)
    sex: NDArray[np.str_]

    @property
    def births(self) -> NDArray[np.int64]:
        return self.counts.values.sum(axis=1)

    def best_known(self, members: NDArray[np.intp], count: int) -> list[str]:
        """Return the names with the most births among these; a boy's name if it is both."""
        first = members[np.argsort(-self.births[members], kind="stable")]
        return list(dict.fromkeys(self.counts.first_name.values[first].tolist()))[:count]


def load(n: int | None = None) -> Names:
    """Return the names, or the `n` most frequent of them."""
    stored = np.load(FILE)
    counts = stored["counts"]
    kept = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:n])
    coords = {"first_name": stored["name"][kept].astype(str), "year": stored["year"].astype(int)}
    return Names(
        xr.DataArray(counts[kept], coords, ("first_name", "year"), "births"),
        stored["sex"][kept].astype(str),
    )


def years_between(mode: NDArray[np.float64], years: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the years by which a tenth, a half and nine tenths of a mode's people were born."""
    return years[np.searchsorted(np.cumsum(mode), [0.1, 0.5, 0.9])]


@dataclass(frozen=True)
class Era:
    """A cluster of names and its mode."""

    members: NDArray[np.intp]
    mode: NDArray[np.float64]
    early: int
    middle: int
    late: int


def find_eras(names: Names, result: xr.Dataset) -> list[Era]:
    """Return the largest clusters, the oldest era first."""
    eras = []
    sizes = np.bincount(result.label.values)
    for label in np.flatnonzero(sizes >= SMALLEST_SHOWN)[:N_SHOWN]:
        members = np.flatnonzero(result.label.values == label)
        mode = result.modes.values[np.argmax(result.cluster_of_mode.values == label)]
        eras.append(Era(members, mode, *years_between(mode, names.counts.year.values).tolist()))
    return sorted(eras, key=lambda era: (era.middle, era.early))


def era_rows(names: Names, eras: list[Era]) -> list[dict[str, object]]:
    """Return the table of eras."""
    return [
        {
            "born mostly": f"{era.early} to {era.late}",
            "names": f"{len(era.members):,}",
            "people": f"{names.births[era.members].sum() / 1e6:.1f} million",
            "best known": ", ".join(names.best_known(era.members, N_KNOWN)),
        }
        for era in eras
    ]


def loner_rows(names: Names, result: xr.Dataset, count: int = 6) -> list[dict[str, object]]:
    """Return the best-known names that share their history with nobody."""
    labels = result.label.values
    members = np.flatnonzero(np.bincount(labels)[labels] == 1)
    years = names.counts.year.values
    rows = []
    for i in members[np.argsort(-names.births[members], kind="stable")][:count]:
        row = names.counts.values[i]
        rows.append(
            {
                "name": f"{names.counts.first_name.values[i]} ({names.sex[i]})",
                "births": f"{row.sum():,}",
                "best year": int(years[row.argmax()]),
                "share of its births in that year": f"{row.max() / row.sum():.0%}",
            }
        )
    return rows


def draw(page: Page, names: Names, eras: list[Era]) -> None:
    """Draw the modes of the eras, one above the other, each with its best-known names."""
    years = names.counts.year.values
    figure, axis = plt.subplots(figsize=(9, 0.55 * len(eras) + 1.2))
    tallest = max(era.mode.max() for era in eras)
    colors = plt.get_cmap("viridis")(np.linspace(0.9, 0.1, len(eras)))  # the oldest is dark
    for i, era in enumerate(reversed(eras)):
        height = 1.6 * era.mode / tallest
        layer = 2 * (len(eras) - i)
        axis.fill_between(years, i, i + height, color=colors[i], zorder=layer, linewidth=0)
        axis.plot(years, i + height, color="white", linewidth=0.8, zorder=layer)
        text = ", ".join(names.best_known(era.members, 4))
        axis.text(years[-1] + 2, i + 0.15, text, fontsize=8.5, color=INK, zorder=99)
    axis.set(yticks=[], xlim=(years[0], years[-1]), xlabel="year of birth")
    axis.spines["left"].set_visible(False)
    page.picture("eras.svg", figure)


def main() -> None:
    """Sweep, cluster with the bandwidth of the longest plateau and with a chosen one, report."""
    options = make_parser(__doc__).parse_args()
    page = Page(__file__, options.out)
    names = load(N_SMALL if options.small else None)
    swept = dshift.sweep(names.counts, sample=None if options.small else 2_000)
    # What `bandwidth="auto"` does, without a second sweep.
    longest = swept.isel(plateau=int(np.argmax(swept.plateau_length.values)))
    auto = dshift.fit(names.counts, float(longest.plateau_middle), valley=0.1)
    # A name weighs what it has bearers: eras of people, not of rare spellings.
    chosen = dshift.fit(names.counts, CHOSEN, weights=names.births)
    page.table(
        "auto",
        [
            {
                "bandwidth": width,
                "clusters": result.sizes["cluster"],
                "names in the three largest": f"{_in_largest(result):.0%}",
            }
            for width, result in (
                (f'`"auto"`: {float(longest.plateau_middle):.3g} years', auto),
                (f"{CHOSEN:g} years, weighted by births", chosen),
            )
        ],
    )
    page.table("two", era_rows(names, find_eras(names, auto)))
    eras = find_eras(names, chosen)
    page.table("eras", era_rows(names, eras))
    page.table("loners", loner_rows(names, chosen))
    draw(page, names, eras)
    title = "First names by year of birth"
    print(
        "wrote",
        dshift.report(chosen, names.counts, page.folder / "report.html", sweep=swept, title=title),
    )


def _in_largest(result: xr.Dataset, count: int = 3) -> float:
    sizes = np.sort(np.bincount(result.label.values))
    return float(sizes[-count:].sum() / sizes.sum())


if __name__ == "__main__":
    main()
