"""How fast dshift is: beside its peers, against N, and on more workers. Figures and tables.

    python examples/scaling/run.py

This takes under two minutes, most peers are timed once. --full measures the larger sets and the
slower peers too, some for several times: seven minutes on a quiet machine, and it also fills in the
table of the project's README. What was measured is kept in results.json. After an interruption,
--resume measures what is missing; --draw measures nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import matplotlib.pyplot as plt
import psutil

from examples.common import COLORS, INK, PALE, Page, fill, make_parser, markdown_table
from tests.benchmarks import cluster, common, growth, peers

Rows = list[dict[str, Any]]

ROOT = Path(__file__).resolve().parents[2]
NAMES = ROOT / "examples" / "first_names" / "names.npz"
ONE = {"1 threads": "1 thread", "1 processes": "1 process"}
WORKERS_PICTURE = "![How many times as fast as one worker several are](workers.svg)"
DSHIFT = "dshift.fit"
MOST_BUSY_CORES = 0.5  # with the work of others, before a part
MEANS_NOTHING = "**A small run, or one on a busy machine: its times mean nothing.**"


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    name: str
    sizes: tuple[int, ...]  # beside the peers
    names: int | None
    large_sizes: tuple[int, ...]  # dshift alone
    worker_rows: int
    mean_shift_most: int  # rows: it takes 40 s for 5,000
    fast_hdbscan: bool  # it compiles for a minute
    enough_seconds: float  # what is shorter is timed several times, for so long
    caption: str = ""


SMALL = Scale(
    "small",
    sizes=(300, 600),
    names=300,
    large_sizes=(1_000,),
    worker_rows=cluster.QUICK_SPEED_ROWS,
    mean_shift_most=0,
    fast_hdbscan=False,
    enough_seconds=0.0,
    caption=MEANS_NOTHING,
)
BRIEF = Scale(
    "brief",
    sizes=(1_000, 2_000, 5_000),
    names=4_000,
    large_sizes=(50_000,),
    worker_rows=75_000,
    mean_shift_most=1_000,
    fast_hdbscan=False,
    enough_seconds=0.5,
    caption="A brief run.",
)
FULL = Scale(
    "full",
    sizes=(1_000, 2_000, 5_000, 10_000, 20_000),
    names=None,
    large_sizes=(50_000, 100_000, 200_000),
    worker_rows=cluster.SPEED_ROWS,
    mean_shift_most=peers.MEAN_SHIFT_MOST,
    fast_hdbscan=True,
    enough_seconds=4.0,
)
SCALES = {scale.name: scale for scale in (SMALL, BRIEF, FULL)}


class Results:
    """What was measured, in a file that is written after every part."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, Any] = {}
        self.failed: list[str] = []
        if path.is_file():
            self.parts = json.loads(path.read_text(encoding="utf-8"))

    def forget_others(self, scale: Scale) -> None:
        """Keep only what was measured at this scale: tables do not mix them."""
        self.parts = {
            name: part for name, part in self.parts.items() if part["scale"] == scale.name
        }

    @cached_property
    def machine(self) -> dict[str, Any]:
        """Where this run measures: asked once, before its own work is on the machine."""
        return common.describe_machine()

    def measure(self, name: str, scale: Scale, run: Callable[[], Rows]) -> None:
        """Run a part and keep its rows, unless it is there already.

        A part that fails is noted, and does not keep the others from being measured.
        """
        if name in self.parts:
            return
        machine = {**self.machine, "busy_cores": _busy_cores()}
        try:
            rows = run()
        except Exception as error:
            common.note(f"failed: {name} with {type(error).__name__}: {error}")
            self.failed.append(name)
            return
        self.parts[name] = {"machine": machine, "scale": scale.name, "rows": rows}
        text = json.dumps(self.parts, indent=1) + "\n"
        self.path.write_text(text, encoding="utf-8")

    def rows(self, start: str) -> Rows:
        """Return the rows of all parts whose names start so."""
        parts = [part for name, part in self.parts.items() if name.startswith(start)]
        return [row for part in parts for row in part["rows"]]

    def caption(self, start: str) -> str:
        """Return on what machine the numbers were taken, and whether they mean anything."""
        parts = {name: part for name, part in self.parts.items() if name.startswith(start)}
        if not parts:
            return "Not measured yet."
        first = next(iter(parts.values()))["machine"]
        machine = f"{first['cores']} cores ({first['cpu']}), Python {first['python']}."
        about = MEANS_NOTHING if self.means_nothing(start) else self._scale(start).caption
        return f"{machine} {about}".strip()

    def means_nothing(self, start: str) -> bool:
        """Return whether these times mean nothing."""
        parts = [part for name, part in self.parts.items() if name.startswith(start)]
        busy = any(part["machine"]["busy_cores"] > MOST_BUSY_CORES for part in parts)
        return busy or self._scale(start) is SMALL

    def _scale(self, start: str) -> Scale:
        return next(SCALES[p["scale"]] for name, p in self.parts.items() if name.startswith(start))


def _busy_cores() -> float:
    """Return how many cores others use, while this process waits.

    Not the load of the system, which is a mean over a minute: of the part before, mostly.
    """
    return round(psutil.cpu_percent(interval=1.0) / 100 * (psutil.cpu_count() or 1), 2)


def measure_all(results: Results, scale: Scale) -> None:
    """Measure every part that is not there yet."""

    def compare(histograms: common.Histograms) -> Rows:
        without = [] if scale.fast_hdbscan else ["fast_hdbscan"]
        if len(histograms) > scale.mean_shift_most:
            without.append("MeanShift")
        return peers.compare(histograms, without, enough_seconds=scale.enough_seconds)

    for n in scale.sizes:
        results.measure(f"peers, synthetic {n}", scale, lambda n=n: compare(common.synthetic(n)))
    names = common.names(NAMES, n=scale.names)
    results.measure("peers, names", scale, lambda: compare(names))
    for n in scale.large_sizes:
        results.measure(
            f"growth, synthetic {n}",
            scale,
            lambda n=n: [growth.measure_alone("synthetic", n, NAMES)],
        )
    results.measure("workers", scale, lambda: _speeds(scale.worker_rows))


def _speeds(n: int) -> Rows:
    with tempfile.TemporaryDirectory() as folder:
        rounds = cluster.time_everywhere(n, Path(folder), n_rounds=1)
    return [
        {"where": where, "n": n, "seconds": taken}
        for where, seconds in rounds.items()
        for taken in seconds
    ]


def peer_rows(results: Results) -> Rows:
    """Return the table of peers: dshift's seconds, and how many times as long the others took."""
    measured = results.rows("peers")
    sets = list(dict.fromkeys((row["data"], row["n"]) for row in measured))
    # The larger half of the synthetic sizes says enough.
    synthetic = sorted(n for data, n in sets if data == "synthetic")[-3:]
    sets = [(data, n) for data, n in sets if data != "synthetic" or n in synthetic]
    found = {(row["method"], row["data"], row["n"]): row for row in measured}
    rows = []
    for method in dict.fromkeys(row["method"] for row in measured):
        row = {"method": f"`{method}`, seconds" if method == DSHIFT else method}
        for data, n in sets:
            one = found.get((method, data, n))
            key = "seconds" if method == DSHIFT else "ratio"
            if one is None or "error" in one:
                row[f"{data}, {n:,}"] = "not run" if one is None else "failed"
            else:
                row[f"{data}, {n:,}"] = _three_digits(one[key])
        rows.append(row)
    return rows


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def growth_rows(results: Results) -> Rows:
    """Return dshift's own time and work at large N."""
    return [
        {
            "N": f"{row['n']:,}",
            "seconds": f"{row['seconds']:.3g}",
            "microseconds a seed": f"{row['microseconds_per_seed']:.0f}",
            "distances evaluated, of N": f"{row['evaluated_share']:.1%}",
        }
        for row in results.rows("growth")
    ]


def worker_rows(results: Results) -> Rows:
    """Return the time of one fit on threads and on processes."""
    return [
        {
            "where": ONE.get(row["where"], row["where"]),
            "N": f"{row['n']:,}",
            "seconds": f"{row['seconds']:.3g}",
        }
        for row in results.rows("workers")
    ]


def draw_peers(page: Page, results: Results) -> None:
    """Draw time against N beside the peers, on the synthetic sets."""
    figure, axis = plt.subplots(figsize=(8, 4))
    measured = [
        row for row in results.rows("peers") if row["data"] == "synthetic" and "error" not in row
    ]
    grown = [{**row, "method": DSHIFT} for row in results.rows("growth")]
    methods = dict.fromkeys(row["method"] for row in measured)
    lines = []
    for method, color in zip(methods, (INK, *COLORS), strict=False):
        points = sorted(
            (row["n"], row["seconds"]) for row in measured + grown if row["method"] == method
        )
        width = 2.4 if method == DSHIFT else 1.2
        lines += axis.plot(
            *zip(*points, strict=True),
            "o-",
            color=color,
            linewidth=width,
            markersize=4,
            label=method,
        )
    # In the order in which they stand above each other at the right.
    lines.sort(key=lambda line: -line.get_ydata()[-1] / line.get_xdata()[-1])
    axis.legend(handles=lines, loc="center left", bbox_to_anchor=(1, 0.5))
    axis.set(xscale="log", yscale="log", xlabel="histograms of 64 bins", ylabel="seconds")
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_formatter(lambda value, _: f"{value:,g}")
        one.set_minor_formatter(lambda value, _: "")
    axis.set_title("from a NumPy array of counts to labels")
    page.picture("peers.svg", figure)


def draw_workers(page: Page, results: Results) -> None:
    """Draw the speed-up against workers."""
    figure, axis = plt.subplots(figsize=(4.6, 3.6))
    most = 1
    for kind, color in (("threads", COLORS[0]), ("processes", COLORS[1])):
        measured = [row for row in results.rows("workers") if row["where"].endswith(kind)]
        counts = [int(row["where"].split()[0]) for row in measured]
        speed = [measured[0]["seconds"] / row["seconds"] for row in measured]
        most = max(most, *counts)
        axis.plot(counts, speed, "o-", color=color, label=kind)
    axis.plot([1, most], [1, most], ":", color=PALE, label="ideal")
    axis.set(xlabel="workers", ylabel="times as fast as one", xticks=range(1, most + 1))
    nothing = " (a trial run: no measurement)" if results.means_nothing("workers") else ""
    axis.set_title("the same fit, the same bits" + nothing)
    axis.legend()
    page.picture("workers.svg", figure)


def main() -> None:
    """Measure, then draw and fill in."""
    parser = make_parser(__doc__)
    parser.add_argument("--resume", action="store_true", help="measure only what is missing")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--full", action="store_true", help="larger sets and slower peers too")
    options = parser.parse_args()
    page = Page(__file__, options.out)
    results = Results(page.folder / "results.json")
    scale = SMALL if options.small else FULL if options.full else BRIEF
    if not options.draw:
        if options.resume:
            results.forget_others(scale)
        else:
            results.parts = {}
        measure_all(results, scale)
    if not results.parts:
        raise SystemExit(f"{results.path} holds nothing to draw: run without --draw first")
    for name, rows in (("peers", peer_rows), ("growth", growth_rows)):
        page.text(name, _with_caption(results, name, rows(results)))
    if results.rows("peers"):
        draw_peers(page, results)
        if options.out is None and options.full:
            fill(ROOT / "README.md", "speed", _with_caption(results, "peers", peer_rows(results)))
    workers = _with_caption(results, "workers", worker_rows(results))
    if results.rows("workers"):
        draw_workers(page, results)
        workers = f"{WORKERS_PICTURE}\n\n{workers}"
    page.text("workers", workers)
    if results.failed:
        raise SystemExit(f"failed: {'; '.join(results.failed)}. --resume tries these again.")


def _with_caption(results: Results, name: str, rows: Rows) -> str:
    table = f"{markdown_table(rows)}\n\n" if rows else ""
    return table + results.caption(name)


if __name__ == "__main__":
    main()
