"""The report: a result and its data, read back in bounded parts, as one HTML file.

This room measures and chooses what to show; `report_plots` draws it.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.errors import InvalidInput, InvalidType
from dshift.metrics import KINDS, Embedding, Float, Int, check_edges, make_embedding, share_rows
from dshift.report_plots import (
    Bins,
    Card,
    Findings,
    Map,
    Outlier,
    Sweep,
    View,
    number,
    percent,
    render,
)
from dshift.result import RUN
from dshift.sources import Samples, open_samples

Array = NDArray[Any]
Block = tuple[slice, ...]

N_CARDS = 12  # clusters with a plot of their own
N_MODES_OF_CARD = 6  # joined modes in such a plot
N_MODES = 500  # clusters in the plots of all modes
N_MATRIX = 150
N_MEMBERS = 400  # of a cluster, in its band
N_VIEW = 2000  # samples on the plane
N_LANDMARKS, MAX_LANDMARK_VALUES = 400, 2**27  # modes and samples that span the plane
N_OUTLIERS = 6
N_DRAWN_BINS = 200
N_PIXELS = 600  # of a map, on its longer side
N_MAPS = 4
MAX_READ_BYTES = 2 * 2**30
MAX_MEASURED, MAX_MEASURED_VALUES = 1_000_000, 2**26  # samples, and numbers in them
MAX_KEPT_VALUES = 2**22
PIECE_VALUES = 2**20  # numbers worked on at a time
NOTHING = "\u2013"
NEEDED = (
    "label", "mode_index", "n_iter", "is_seed", "modes", "density", "size", "stationary",
    "cluster_of_mode", "cluster_size",
)  # fmt: skip
SHARES = {
    "largest_share": "in the largest cluster",
    "singletons_share": "in clusters of one",
    "agreement": "agreement with the next bandwidth",
}


def report(
    result: xr.Dataset,
    data: Any,
    path: str | os.PathLike[str],
    *,
    sweep: xr.Dataset | None = None,
    variable: str | None = None,
    bin_dim: str | None = None,
    title: str | None = None,
) -> Path:
    """Write one HTML file that shows what a fit found and how sure it is.

    The file holds everything that it needs. Of large data a part is read, and the page says so.

    Parameters
    ----------
    result : Dataset
        What `dshift.fit` returned.
    data : path, URL, zarr.Array, zarr.Group, xarray.DataArray, xarray.Dataset, dask or NumPy array
        The histograms that were clustered.
    path : path
        The file to write. It appears whole or not at all, in place of an older one.
    sweep : Dataset, optional
        What `dshift.sweep` returned, to show how the clusters depend on the bandwidth.
    variable, bin_dim : str, optional
        As for `dshift.fit`.
    title : str, optional
        Heading of the page; by default it names the data.

    Returns
    -------
    pathlib.Path
        `path`.
    """
    _check_result(result)
    target = _check_path(path)
    if title is not None and not isinstance(title, str):
        raise InvalidType(f"`title` is a {type(title).__name__}; give a text, or leave it out.")
    _check_sweep(sweep)
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    _check_match(result, samples)
    study = _Study.of(result, samples)
    _write_whole(target, render(study.findings(title, sweep)))
    return target


def _check_result(result: Any) -> None:
    if not isinstance(result, xr.Dataset):
        raise InvalidType(
            f"`result` is a {type(result).__name__}; give the Dataset that dshift.fit returned "
            "(one from a store opens with xarray.open_zarr)."
        )
    missing = [name for name in NEEDED if name not in result]
    if missing:
        raise InvalidInput(
            f"`result` has no variable {', '.join(f'`{name}`' for name in missing)}, so it is not "
            "a result of dshift.fit; give the whole Dataset that it returned."
        )


def _check_path(path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidType(f"`path` is a {type(path).__name__}; give the file's name, as text.")
    target = Path(os.fsdecode(path)).expanduser()
    if target.is_dir():
        raise InvalidInput(f"`path`={str(target)!r} is a directory; add a name, as in report.html.")
    if not target.parent.is_dir():
        raise InvalidInput(
            f"`path`={str(target)!r}: there is no directory {str(target.parent)!r}; make it first, "
            "or choose another place."
        )
    return target


def _check_sweep(sweep: Any) -> None:
    if sweep is not None and not isinstance(sweep, xr.Dataset):
        raise InvalidType(f"`sweep` is a {type(sweep).__name__}; give what dshift.sweep returned.")
    if sweep is not None and "bandwidth" not in sweep.coords:
        raise InvalidInput(
            f"`sweep` has the coordinates {sorted(map(str, sweep.coords))}, and `bandwidth` is "
            "needed; give what dshift.sweep returned."
        )


def _check_match(result: xr.Dataset, samples: Samples) -> None:
    label, n_bins = result["label"], result["modes"].shape[1]
    dims = tuple(map(str, label.dims))
    turned = dims != samples.dims and sorted(dims) == sorted(samples.dims)
    if label.shape != samples.shape or n_bins != samples.n_bins or turned:
        raise InvalidInput(
            f"`data` ({samples.origin}) has samples {dict(zip(samples.dims, samples.shape))} of "  # noqa: B905
            f"{samples.n_bins} bins, and `result` is about samples "
            f"{dict(zip(dims, label.shape))} of {n_bins} bins; "  # noqa: B905
            "give the data that was clustered, and the `variable` and `bin_dim` of that fit."
        )


def _write_whole(target: Path, html: str) -> None:
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(html)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # a temporary file is private, a report is not
        os.replace(name, target)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise


def _unwritable(target: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"`path`={str(target)!r} cannot be written ({error.strerror or error}); choose a place "
        "where you may write and that has room."
    )


@dataclass(frozen=True, eq=False)
class Ruler:
    """How the report measures distances: as the fit did, where it can know how."""

    embedding: Embedding
    name: str
    unit: str
    normalize: bool = True

    @classmethod
    def of(cls, result: xr.Dataset, edges: Float | None) -> Ruler:
        """Return the ruler of a result; W1 or L1 stands in for a metric of the user's own."""
        metric, modes = str(result.attrs.get("metric", "wasserstein")), result["modes"].values
        own = metric not in KINDS
        stands_in = f", in place of the metric {metric!r}," if own else ""
        if own and not ((modes >= 0).all() and np.allclose(modes.sum(axis=1), 1)):
            plain = make_embedding("custom", modes.shape[1], None, None, None)
            return cls(plain, f"L1{stands_in}", "", normalize=False)
        kind = "wasserstein" if own else metric
        embedding = make_embedding(kind, modes.shape[1], edges, None, None)
        if kind == "wasserstein":
            unit = str(result.attrs.get("unit", "")) if edges is not None else "bins"
            return cls(embedding, f"W1{stands_in}", unit)
        names = {"l1": "L1 distance", "sqeuclidean": "squared Euclidean distance"}
        return cls(embedding, names[kind], "")

    def points(self, rows: Array) -> tuple[Float, NDArray[np.bool_]]:
        """Return rows as points, and which are histograms."""
        segments = self.embedding.segments
        shares = share_rows(rows, self.embedding.kind, self.normalize, segments)
        return self.embedding.place(shares.values).astype(np.float64), shares.valid

    def between(self, points: Float, others: Float) -> Float:
        """Return the distances of points (n, p), or of each pair if `others` has the same rows."""
        gaps = points - others
        parts = gaps * gaps if self.embedding.kind == "sqeuclidean" else np.abs(gaps)
        return self.embedding.in_units(parts.sum(axis=-1))

    def table(self, points: Float, others: Float) -> Float:
        """Return the distances (n, m) of all pairs."""
        columns = [self.between(points, other) for other in others]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0))

    def squared(self, distances: Float) -> Float:
        """Return squares of lengths, for classical scaling."""
        return distances if self.embedding.kind == "sqeuclidean" else distances**2

    def say(self, distance: float) -> str:
        """Return a distance with its unit."""
        return f"{number(distance)} {self.unit}".strip() if np.isfinite(distance) else NOTHING


@dataclass(frozen=True, eq=False)
class Scan:
    """What one pass over some of the data brought back."""

    measured: Int  # indices of samples, increasing
    distances: Float  # of those, to their mode
    kept: Int  # indices of samples whose rows were kept, increasing
    rows: Float  # (n_kept, n_bins)
    n_reachable: int  # labelled samples in the blocks that were read


def _evenly(values: Array, most: int) -> Array:
    """Return at most so many of `values`, evenly spread."""
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(np.int64)]


def _drawn(index: Int, most: int) -> Int:
    """Return at most so many samples, one from each of equal parts, the same in every call."""
    if len(index) <= most:
        return index
    # At random within the part: equal steps would fall into step with the rows of a grid.
    shifts = np.random.default_rng(0).random(most)
    return index[((np.arange(most) + shifts) * (len(index) / most)).astype(np.int64)]


def _choose_blocks(samples: Samples, label: Array, n_cards: int) -> list[Block]:
    """Return the blocks to read: all, or some that hold a sample of every cluster to be drawn."""
    blocks = list(samples.blocks())
    rows = max(math.prod(s.stop - s.start for s in block) for block in blocks)
    most = max(1, MAX_READ_BYTES // (rows * samples.n_bins * samples.dtype.itemsize))
    if len(blocks) <= most:
        return blocks
    chosen = set(_evenly(np.arange(len(blocks)), most).tolist())
    seen = {number for place in chosen for number in np.unique(label[blocks[place]]).tolist()}
    for cluster in set(range(n_cards)) - seen:
        first = np.unravel_index(int(np.argmax(label.ravel() == cluster)), label.shape)
        inside = (
            all(s.start <= i < s.stop for s, i in zip(block, first, strict=True))
            for block in blocks
        )
        chosen.add(list(inside).index(True))
    return [blocks[place] for place in sorted(chosen)]


def _indices(block: Block, shape: tuple[int, ...]) -> Int:
    """Return the flat indices of a block's samples, in its own order."""
    axes = np.ix_(*(np.arange(s.start, s.stop) for s in block))
    return np.ravel_multi_index(axes, shape).ravel()


def _rows(samples: Samples, blocks: list[Block], wanted: Array) -> Iterator[tuple[Int, Array]]:
    """Read the wanted samples, a bounded number at a time."""
    piece = max(1, PIECE_VALUES // samples.n_bins)
    for block in blocks:
        index = _indices(block, samples.shape)
        places = np.flatnonzero(wanted[index])
        if len(places):
            rows = samples.read(block).reshape(-1, samples.n_bins)
            for start in range(0, len(places), piece):
                part = places[start : start + piece]
                yield index[part], rows[part]


def _scan(
    samples: Samples, ruler: Ruler, label: Array, mode_index: Array, modes: Float, n_cards: int
) -> Scan:
    """Measure how far samples are from their mode, and keep the rows that will be drawn."""
    blocks = _choose_blocks(samples, label, n_cards)
    reachable = np.zeros(samples.shape, dtype=bool)
    for block in blocks:
        reachable[block] = True
    flat = label.ravel()
    labelled = np.flatnonzero(reachable.ravel() & (flat >= 0))
    most = min(MAX_MEASURED, max(1000, MAX_MEASURED_VALUES // samples.n_bins))
    n_members = int(np.clip(MAX_KEPT_VALUES // (samples.n_bins * N_CARDS), 20, N_MEMBERS))
    n_view = int(np.clip(MAX_KEPT_VALUES // samples.n_bins, 100, N_VIEW))
    numbers = flat[labelled]
    drawn = [_drawn(labelled[numbers == c], n_members) for c in range(n_cards)]
    kept = np.unique(np.concatenate([_drawn(labelled, n_view), *drawn]))
    wanted = np.zeros(samples.n_samples, dtype=bool)
    wanted[_drawn(labelled, most)] = True
    wanted[kept] = True
    measured = np.flatnonzero(wanted)
    distances, rows = np.full(len(measured), np.nan), np.zeros((len(kept), samples.n_bins))
    targets, _ = ruler.points(modes)
    for index, part in _rows(samples, blocks, wanted):
        points, valid = ruler.points(part)
        if not valid.all():
            raise InvalidInput(
                f"`data` ({samples.origin}) holds {int((~valid).sum())} rows that are not "
                "histograms where `result` has labels; give the data that was clustered."
            )
        gaps = ruler.between(points, targets[mode_index.ravel()[index]])
        distances[np.searchsorted(measured, index)] = gaps
        at = np.minimum(np.searchsorted(kept, index), len(kept) - 1)
        here = kept[at] == index
        rows[at[here]] = part[here]
    return Scan(measured, distances, kept, rows, len(labelled))


@dataclass(frozen=True, eq=False)
class Names:
    """What samples are called, by their coordinates."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Mapping[str, xr.DataArray]

    def __call__(self, index: int) -> str:
        """Return the name of the sample with a flat index."""
        at = dict(zip(self.dims, np.unravel_index(index, self.shape), strict=True))
        words: list[str] = []
        told: set[str] = set()
        for coord in self.coords.values():  # texts tell most, so they come first
            dims = tuple(map(str, coord.dims))
            if coord.dtype.kind in "OSUT" and dims and set(dims) <= set(self.dims):
                words.append(str(coord.values[tuple(int(at[dim]) for dim in dims)]))
                told |= set(dims)
        for dim in self.dims:
            coord_of_dim = self.coords.get(dim)
            if coord_of_dim is not None and coord_of_dim.dtype.kind not in "OSUT":
                words.append(f"{dim} {_say(coord_of_dim.values[at[dim]])}")
            elif coord_of_dim is None and dim not in told:
                nameless = len(self.dims) == 1 and _is_nameless(dim)
                words.append(f"{'sample' if nameless else dim} {at[dim]}")
        name = " · ".join(words)
        return name if len(name) <= 80 else name[:79] + "…"


def _is_nameless(dim: str) -> bool:
    return re.fullmatch(r"dim_\d+", dim) is not None


def _say(value: Any) -> str:
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def _bins(result: xr.Dataset, samples: Samples, edges: Float | None) -> Bins:
    """Return the axis of the bins: in the data's unit if edges or coordinates say it."""
    dim, n_bins = str(result["modes"].dims[1]), samples.n_bins
    coord = samples.bin_coords.get(samples.bin_dim, result.coords.get(dim))
    attrs = {} if coord is None else coord.attrs
    unit = str(attrs.get("units", result.attrs.get("unit", "")))
    label, ticks = str(attrs.get("long_name", "bin" if _is_nameless(dim) else dim)), {}
    around = _edges_around(coord.values) if edges is None and coord is not None else edges
    if around is None:
        around, unit = np.arange(n_bins + 1.0) - 0.5, ""
        if coord is not None:
            at = _evenly(np.arange(n_bins), 6 if n_bins > 12 else n_bins)
            ticks = {float(i): _say(coord.values[i])[:12] for i in at}
    joined = -(-n_bins // N_DRAWN_BINS)
    equal = np.ptp(np.diff(around)) <= 1e-6 * np.diff(around).max()
    per = "share of a sample in each bin" if equal else f"share of a sample per {unit or 'unit'}"
    drawn = np.append(around[:-1:joined], around[-1])
    return Bins(drawn, f"{label} ({unit})" if unit else label, per, bool(equal), ticks, joined)


def _edges_around(centers: Array) -> Float | None:
    """Return edges halfway between bin centers, if they are increasing numbers."""
    if centers.dtype.kind not in "iuf" or len(centers) < 2 or not np.isfinite(centers).all():
        return None
    values = centers.astype(np.float64)
    if (np.diff(values) <= 0).any():
        return None
    middle = values[:-1] / 2 + values[1:] / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])


def _alike_order(distances: Float) -> Int:
    """Order rows so that neighbours are alike: a short path through all, found by reversals."""
    count = len(distances)
    order = np.argsort(distances[int(distances.sum(axis=1).argmax())], kind="stable")
    for _ in range(50 if count > 2 else 0):
        before = order.copy()
        for i in range(-1, count - 2):  # reverse order[i + 1 : j + 1] where that shortens the path
            j = np.arange(i + 1, count)
            head, tail = order[i + 1], order[j]
            after = order[np.minimum(j + 1, count - 1)]
            last = j == count - 1
            gain = np.where(last, 0.0, distances[tail, after] - distances[head, after])
            if i >= 0:
                gain += distances[order[i], head] - distances[order[i], tail]
            best = int(gain.argmax())
            if gain[best] > 1e-9 * distances.max():
                order[i + 1 : j[best] + 1] = order[i + 1 : j[best] + 1][::-1].copy()
        if (order == before).all():
            break
    return order if np.argmin(order) <= count // 2 else order[::-1]


def _plane(ruler: Ruler, landmarks: Float, points: Float) -> tuple[Float, float] | None:
    """Place points by classical scaling of their distances to landmarks.

    Returns the places (n, 2), and how much of the landmarks' spread the plane keeps.
    """
    squares = ruler.squared(ruler.table(landmarks, landmarks))
    means = squares.mean(axis=0)
    centered = -0.5 * (squares - means - means[:, None] + squares.mean())
    values, vectors = np.linalg.eigh((centered + centered.T) / 2)
    if not values[-1] > 1e-12 * max(float(squares.max()), 1e-300):
        return None
    values_2, axes = values[:-3:-1], vectors[:, :-3:-1]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1][: axes.shape[1]]] < 0, -1, 1)
    scale = np.where(values_2 > 1e-9 * values_2[0], values_2, np.inf)
    places = -0.5 * (ruler.squared(ruler.table(points, landmarks)) - means) @ axes
    kept = float(np.maximum(values_2, 0).sum() / np.abs(values).sum())
    return places / np.sqrt(scale), kept


@dataclass(frozen=True, eq=False)
class _Study:
    """A result beside its data, on the way to the page."""

    result: xr.Dataset
    samples: Samples
    ruler: Ruler
    bins: Bins
    names: Names
    label: Array  # on the samples' own dimensions
    mode_index: Array
    modes: Float
    main: Int  # the largest mode of each cluster
    scan: Scan

    @classmethod
    def of(cls, result: xr.Dataset, samples: Samples) -> _Study:
        stored = result["modes"].attrs.get("edges")
        edges = None if stored is None else check_edges(stored, samples.n_bins)
        modes = result["modes"].values.astype(np.float64)
        label, mode_index = result["label"].values, result["mode_index"].values
        clusters, first = np.unique(result["cluster_of_mode"].values, return_index=True)
        main = first[clusters >= 0]
        ruler = Ruler.of(result, edges)
        bins = _bins(result, samples, edges)
        dims = tuple(map(str, result["label"].dims))
        coords = {str(name): coord for name, coord in result.coords.items()}
        coords |= samples.coords if samples.dims == dims else {}
        names = Names(dims, samples.shape, coords)
        scan = _scan(samples, ruler, label, mode_index, modes, min(len(main), N_CARDS))
        return cls(result, samples, ruler, bins, names, label, mode_index, modes, main, scan)

    def findings(self, title: str | None, sweep: xr.Dataset | None) -> Findings:
        """Return all that the page shows."""
        result, sizes = self.result, self.result["cluster_size"].values
        points, _ = self.ruler.points(self.modes[self.main[:N_MODES]])
        table = self.ruler.table(points, points)
        certified, certificate = self._certificate()
        cards = [self._card(cluster) for cluster in range(min(len(sizes), N_CARDS))]
        all_modes = self._heights(self.modes[self.main[:N_MODES]])
        bands = [card.bands for card in cards if card.bands is not None]
        shown = _crop(self.bins.edges, np.concatenate([all_modes, *bands]))
        unit = f" ({self.ruler.unit})" if self.ruler.unit else ""
        return Findings(
            title=title or self._title(),
            summary=self._summary(),
            certified=certified,
            certificate=certificate,
            facts=self._facts(),
            attrs=[(str(name), str(value)) for name, value in result.attrs.items()],
            n_samples=self.samples.n_samples,
            n_labelled=int((self.label >= 0).sum()),
            note=self._note(),
            distance=self.ruler.name + unit,
            bins=replace(self.bins, shown=shown),
            weighted=bool(result.attrs.get("weighted", 0)),
            sizes=sizes,
            rest=self._rest(),
            cards=cards,
            all_modes=all_modes,
            order=_alike_order(table) if len(table) else np.zeros(0, dtype=np.int64),
            matrix=table[:N_MATRIX, :N_MATRIX],
            view=self._view(points),
            maps=_maps(self.names, self.label),
            outliers=self._outliers(),
            near=self._near(),
            sweep=None if sweep is None else _sweep(sweep, result, self.ruler.unit),
        )

    def _heights(self, rows: Array) -> Float:
        """Return rows as they are drawn: shares, by joined bins, by width where widths differ."""
        values = rows.astype(np.float64)
        if self.ruler.normalize:
            values = values / values.sum(axis=1, keepdims=True)
        starts = np.arange(0, values.shape[1], self.bins.n_joined)
        n_each = np.diff(np.append(starts, values.shape[1]))
        width = n_each if self.bins.is_share else np.diff(self.bins.edges)
        heights: Float = np.add.reduceat(values, starts, axis=1) / width
        return heights

    def _title(self) -> str:
        kind, _, name = str(self.result.attrs.get("source", self.samples.origin)).partition(" ")
        if kind in ("DataArray", "Dataset"):
            return f"Clusters of {name}" if name else "Clusters of histograms"
        return f"Clusters of {kind} {name}".strip()

    def _summary(self) -> str:
        sizes = self.result["cluster_size"].values
        n_samples, n_bins = self.samples.n_samples, self.samples.n_bins
        start = f"{n_samples:,} histograms of {n_bins:,} bins "
        if not len(sizes):
            return start + "fall into no cluster."
        if len(sizes) == 1:
            return start + "fall into one cluster."
        share = percent(sizes[0] / sizes.sum())
        total = "of the weight" if self.result.attrs.get("weighted", 0) else "of them"
        return start + f"fall into {len(sizes):,} clusters. The largest holds {share} {total}."

    def _certificate(self) -> tuple[bool, str]:
        stationary = self.result["stationary"].values
        n_seeds = int(self.result.attrs.get("n_seeds", self.result["is_seed"].values.sum()))
        seeds = "The only seed ends" if n_seeds == 1 else f"All {n_seeds:,} seeds end"
        modes = "its mode" if len(stationary) == 1 else f"each of the {len(stationary):,} modes"
        if stationary.all() and self.result.attrs.get("all_seeds_stationary", 1):
            return True, f"{seeds} stationary: one more step from {modes} was taken, and stayed."
        n_open = int((~stationary.astype(bool)).sum())
        return False, f"{n_open:,} of {len(stationary):,} modes are not stationary."

    def _facts(self) -> list[tuple[str, str, str]]:
        attrs, flat = self.result.attrs, self.label.ravel()
        n_seeds = int(attrs.get("n_seeds", self.result["is_seed"].values.sum()))
        steps = self.result.get("seed_n_iter", self.result["n_iter"]).values.ravel()
        steps = steps[steps >= 0]
        n_without = int((flat < 0).sum())
        bandwidth = attrs.get("bandwidth")
        shape = " \u00d7 ".join(
            f"{n:,} {dim}" for n, dim in zip(self.names.shape, self.names.dims, strict=True)
        )
        n_modes = len(self.modes)
        own = bool((self.mode_index.ravel() < 0).any())
        facts = [
            ("Samples", f"{self.samples.n_samples:,}", shape if self.label.ndim > 1 else ""),
            ("Bins", f"{self.samples.n_bins:,}", self.bins.label * (self.bins.label != "bin")),
            ("Clusters", f"{len(self.main):,}", f"{n_modes:,} mode{'s' if n_modes != 1 else ''}"),
            ("In no cluster", f"{n_without:,}", "masked, or in clusters too small" if own else "")
            if n_without
            else ("", "", ""),
            ("Metric", str(attrs.get("metric", "")), ""),
            (
                "Bandwidth",
                "per sample" if bandwidth is None else self.ruler.say(float(bandwidth)),
                "middle of the longest plateau" if "bandwidth_chosen" in attrs else "",
            ),
            ("Valley", str(attrs.get("valley", "none")), ""),
            ("Seeds", f"{n_seeds:,}", self._seed_note(n_seeds)),
            ("Steps", f"{np.median(steps):.0f}", f"median; {steps.max():,} at most")
            if len(steps)
            else ("", "", ""),
        ]
        run = self.result.encoding.get(RUN, {})
        if run:
            share = percent(run["evaluated_share"])
            facts.append(("Evaluated", share, "of the data, for a seed"))
            facts.append(("Time", _duration(run["seconds"]), ""))
        return [fact for fact in facts if fact[0]]

    def _seed_note(self, n_seeds: int) -> str:
        if "seed_label" in self.result:
            return "histograms of the caller's own; samples got the nearest mode"
        if n_seeds == int((self.mode_index >= 0).sum()):
            return "every sample"
        return "drawn samples; the others got the nearest mode"

    def _note(self) -> str:
        n_measured, n_labelled = len(self.scan.measured), int((self.label >= 0).sum())
        if n_measured == n_labelled:
            return ""
        return (
            f"Sampled: bands, distances to modes and outliers are taken from {n_measured:,} of "
            f"the {n_labelled:,} samples with a cluster, evenly spread. Sizes count all."
        )

    def _rest(self) -> str:
        sizes = self.result["cluster_size"].values
        rest = sizes[N_CARDS:]
        if not len(rest):
            return ""
        share = percent(float(rest.sum() / sizes.sum()))
        return (
            f"{len(rest):,} smaller clusters hold {share}: {rest[0]:,} down to {rest[-1]:,} each."
        )

    def _card(self, number: int) -> Card:
        result, scan = self.result, self.scan
        numbers = self.label.ravel()[scan.measured]
        mine = numbers == number
        own = np.flatnonzero(result["cluster_of_mode"].values == number)
        members = scan.rows[self.label.ravel()[scan.kept] == number]
        gaps = scan.distances[mine]
        bands = None
        if len(members) > 1:
            bands = np.quantile(
                self._heights(members), (0.05, 0.25, 0.75, 0.95), axis=0, **self._weights(number)
            )
        sizes = result["cluster_size"].values
        return Card(
            number=number,
            n_samples=int((self.label == number).sum()),
            size=f"{sizes[number]:,.6g}",
            share=float(sizes[number] / sizes.sum()),
            n_modes=len(own),
            spread=self.ruler.say(float(np.median(gaps))) if len(gaps) else NOTHING,
            typical=self.names(int(scan.measured[mine][gaps.argmin()])) if len(gaps) else NOTHING,
            modes=self._heights(self.modes[own[:N_MODES_OF_CARD]]),
            bands=bands,
            n_members=len(members),
        )

    def _weights(self, number: int) -> dict[str, Any]:
        """Return what `np.quantile` needs so that weight k counts as k members."""
        if "sample_weight" not in self.result:
            return {}
        kept = self.scan.kept[self.label.ravel()[self.scan.kept] == number]
        weights = self.result["sample_weight"].values.ravel()[kept]
        return {"weights": weights, "method": "inverted_cdf"}

    def _view(self, modes: Float) -> View | None:
        rows = _evenly(np.arange(len(self.scan.kept)), N_VIEW)
        points, _ = self.ruler.points(self.scan.rows[rows])
        everything = np.concatenate([modes, points])
        if not len(everything):
            return None
        most = int(np.clip(MAX_LANDMARK_VALUES // max(everything.size, 1), 50, N_LANDMARKS))
        n_modes = min(len(modes), most // 2)
        landmarks = np.concatenate([modes[:n_modes], _evenly(points, most - n_modes)])
        placed = _plane(self.ruler, landmarks, everything)
        if placed is None or placed[0].shape[1] < 2:
            return None
        index = self.scan.kept[rows]
        gaps = self.scan.distances[np.searchsorted(self.scan.measured, index)]
        return View(
            samples=placed[0][len(modes) :],
            labels=[self.names(int(i)) for i in index],
            clusters=self.label.ravel()[index],
            distances=[self.ruler.say(float(gap)) for gap in gaps],
            modes=placed[0][: len(modes)],
            kept=placed[1],
        )

    def _outliers(self) -> list[Outlier]:
        farthest = np.argsort(-self.scan.distances, kind="stable")[:N_OUTLIERS]
        return [self._outlier(int(at)) for at in farthest if self.scan.distances[at] > 0]

    def _outlier(self, at: int) -> Outlier:
        index, gap = int(self.scan.measured[at]), float(self.scan.distances[at])
        place = np.unravel_index(index, self.samples.shape)
        row = self.samples.read(tuple(slice(int(i), int(i) + 1) for i in place)).reshape(1, -1)
        mode = self.modes[[self.mode_index.ravel()[index]]]
        bandwidth = self.result.attrs.get("bandwidth")
        times = f", {gap / float(bandwidth):.2g} bandwidths" if bandwidth else ""
        sample, mode = self._heights(row), self._heights(mode)
        return Outlier(
            label=self.names(index),
            cluster=int(self.label.ravel()[index]),
            distance=self.ruler.say(gap) + times,
            sample=sample[0],
            mode=mode[0],
            shown=_crop(self.bins.edges, np.concatenate([sample, mode])),
        )

    def _near(self) -> str:
        if not len(self.scan.distances):
            return ""
        half, most = (
            self.ruler.say(float(q)) for q in np.quantile(self.scan.distances, (0.5, 0.99))
        )
        return f"Half of the samples are within {half} of theirs, and 99\u202f% within {most}."


def _crop(edges: Array, heights: Float) -> tuple[float, float]:
    """Return the part of the axis where something that is drawn has any height."""
    used = np.flatnonzero((np.abs(heights) > 0.003 * np.abs(heights).max(initial=0)).any(axis=0))
    low, high = (max(used[0] - 1, 0), used[-1] + 2) if len(used) else (0, len(edges) - 1)
    return float(edges[low]), float(edges[min(high, len(edges) - 1)])


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"


ROLES = {  # names, standard names, units and axes by which CF and habit say where a sample is
    "y": ({"lat", "latitude", "y"}, "latitude", "degrees_north", "Y"),
    "x": ({"lon", "long", "longitude", "x"}, "longitude", "degrees_east", "X"),
}


def _place_dim(names: Names, role: str) -> str | None:
    """Return the coordinate that says where samples are, along one axis of a map."""
    words, standard_name, units, axis = ROLES[role]
    known: list[str] = [*names.dims, *names.coords]
    for name in known:
        attrs = names.coords[name].attrs if name in names.coords else {}
        said = (attrs.get("standard_name"), attrs.get("units"), attrs.get("axis"))
        if name.lower() in words or said[0] == standard_name or said[1] == units or said[2] == axis:
            return name
    return None


def _maps(names: Names, label: Array) -> list[Map]:
    y, x = _place_dim(names, "y"), _place_dim(names, "x")
    if y is None or x is None or y == x:
        return []
    words = ("longitude", "latitude") if x.lower() not in {"x", "y"} else ("x", "y")
    if y in names.dims and x in names.dims:
        return list(_grid_maps(names, label, y, x, words))
    dims = names.coords[y].dims if y in names.coords else ()
    if len(dims) != 1 or x not in names.coords or names.coords[x].dims != dims or label.ndim > 1:
        return []
    at = _evenly(np.arange(len(label)), 5000)
    xs, ys = (names.coords[name].values[at].astype(np.float64) for name in (x, y))
    ok = np.isfinite(xs) & np.isfinite(ys)
    return [Map("", label[at][ok], xs[ok], ys[ok], words)] if ok.any() else []


def _grid_maps(names: Names, label: Array, y: str, x: str, words: tuple[str, str]) -> Iterator[Map]:
    ranges = [_pixels(names, dim) for dim in (y, x)]
    others = [dim for dim in names.dims if dim not in (y, x)]
    sizes = [names.shape[names.dims.index(dim)] for dim in others]
    for place in range(min(math.prod(sizes), N_MAPS)):
        at = dict(zip(others, np.unravel_index(place, sizes) if sizes else (), strict=True))
        part = label[tuple(int(at[dim]) if dim in at else slice(None) for dim in names.dims)]
        part = part if names.dims.index(y) < names.dims.index(x) else part.T
        (rows, ys), (columns, xs) = ranges
        name = " · ".join(f"{dim} {_coordinate(names, dim, int(i))}" for dim, i in at.items())
        yield Map(name, part[np.ix_(rows, columns)], xs, ys, words)


def _coordinate(names: Names, dim: str, index: int) -> str:
    return _say(names.coords[dim].values[index]) if dim in names.coords else str(index)


def _pixels(names: Names, dim: str) -> tuple[Int, Float]:
    """Return the index of the nearest sample for each pixel along one axis, and the axis's ends."""
    length = names.shape[names.dims.index(dim)]
    centers = names.coords[dim].values if dim in names.coords else np.arange(length)
    flipped = len(centers) > 1 and centers.dtype.kind in "iuf" and centers[0] > centers[-1]
    around = _edges_around(centers[::-1] if flipped else centers)
    flipped = flipped and around is not None
    edges = np.arange(length + 1) - 0.5 if around is None else around
    smallest = float(np.diff(edges).min())
    count = int(min(N_PIXELS, max(length, math.ceil((edges[-1] - edges[0]) / smallest - 1e-6))))
    middles = edges[0] + (np.arange(count) + 0.5) * (edges[-1] - edges[0]) / count
    index = np.clip(np.searchsorted(edges, middles, "right") - 1, 0, length - 1)
    ends: Float = edges[[0, -1]].astype(np.float64)
    return (length - 1 - index if flipped else index), ends


def _sweep(sweep: xr.Dataset, result: xr.Dataset, unit: str) -> Sweep:
    """Return what is there of a sweep; what is not is not shown."""
    chosen = result.attrs.get("bandwidth")
    bandwidth = sweep["bandwidth"].values.astype(np.float64).ravel()
    order = np.argsort(bandwidth)

    def curve(name: str) -> Array | None:
        if name not in sweep or sweep[name].dims != ("bandwidth",):
            return None
        values: Array = sweep[name].values.astype(np.float64)
        return values[order]

    n_clusters = curve("n_clusters")
    shares = {text: curve(name) for name, text in SHARES.items()}
    return Sweep(
        bandwidth=bandwidth[order],
        n_clusters=n_clusters,
        shares={text: values for text, values in shares.items() if values is not None},
        plateaus=_plateaus(sweep, bandwidth[order], n_clusters),
        chosen=None if chosen is None else float(chosen),
        label=f"bandwidth ({unit})" if unit else "bandwidth",
    )


def _plateaus(
    sweep: xr.Dataset, bandwidth: Float, n_clusters: Array | None
) -> list[tuple[float, float, int | None]]:
    if "plateau_start" not in sweep or "plateau_stop" not in sweep:
        return []
    starts, stops = (sweep[f"plateau_{end}"].values.ravel() for end in ("start", "stop"))
    if starts.dtype.kind in "iu":  # places along `bandwidth`, both ends included
        starts, stops = (bandwidth[np.clip(e, 0, len(bandwidth) - 1)] for e in (starts, stops))
    lengths = np.log(stops / starts)
    if "plateau_length" in sweep:
        lengths = sweep["plateau_length"].values.ravel()
    found = []
    for at in np.argsort(-lengths, kind="stable"):
        middle = int(np.abs(np.log(bandwidth / np.sqrt(starts[at] * stops[at]))).argmin())
        count = None if n_clusters is None else int(n_clusters[middle])
        if "plateau_clusters" in sweep:
            count = int(sweep["plateau_clusters"].values.ravel()[at])
        found.append((float(starts[at]), float(stops[at]), count))
    return found
