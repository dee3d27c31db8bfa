"""What the examples share: options, tables that fill a README, pictures."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

Row = Mapping[str, Any]

COLORS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99",
    "#99ddff", "#999933", "#332288", "#882255",
)  # fmt: skip
INK = "#222222"
PALE = "#bbbbbb"
MOST_PICTURE_BYTES = 300_000

plt.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#888888",
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "figure.constrained_layout.use": True,
        "legend.frameon": False,
        # The same picture in every run: no random names inside an SVG.
        "svg.hashsalt": "dshift",
    }
)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all examples have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a tiny run, to see that it works")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write (default: beside the script)"
    )
    return parser


class Page:
    """The README and the pictures of one example.

    Parameters
    ----------
    script : path
        The example's script: its README stands beside it.
    out : path, optional
        Another folder to write to. The README is copied there and filled in, and the one beside
        the script stays as it is.
    """

    def __init__(self, script: str, out: Path | None) -> None:
        home = Path(script).resolve().parent
        self.folder = home if out is None else out.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.readme = self.folder / "README.md"
        if out is not None:
            self.readme.write_bytes((home / "README.md").read_bytes())

    def table(self, name: str, rows: Sequence[Row]) -> None:
        """Fill in and print a table; the keys of the first row are the heads."""
        self.text(name, markdown_table(rows))

    def text(self, name: str, text: str) -> None:
        """Fill in and print what stands between the README's markers of this name."""
        print(f"\n{text}", flush=True)
        fill(self.readme, name, text)

    def picture(self, name: str, figure: Figure) -> None:
        """Save a figure; the ending of its name says how."""
        path = self.folder / name
        # A date would make every run a new file.
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=110, metadata=metadata)
        plt.close(figure)
        if path.stat().st_size > MOST_PICTURE_BYTES:
            raise SystemExit(f"{path} has {path.stat().st_size:,} bytes: too much for a README")
        print(f"wrote {path}", flush=True)


def markdown_table(rows: Sequence[Row]) -> str:
    """Return a table in Markdown; the keys of the first row are the heads."""
    if not rows:
        return "(none)"
    heads = list(rows[0])
    lines = [heads, ["---"] * len(heads), *([_cell(row[head]) for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def fill(file: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- table:NAME -->`` and ``<!-- /table -->`` in a file."""
    content = file.read_text(encoding="utf-8")
    start = f"<!-- table:{name} -->"
    pattern = re.compile(re.escape(start) + r"\n.*?<!-- /table -->", re.DOTALL)
    filled, n_found = pattern.subn(lambda _: f"{start}\n{text}\n<!-- /table -->", content)
    if n_found != 1:
        raise SystemExit(f"{file} has {n_found} places for the table {name!r}; it needs one")
    file.write_text(filled, encoding="utf-8")
