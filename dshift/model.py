"""What a result says of the fit that made it: enough to go on from there."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.errors import InvalidInput, InvalidType, MissingData
from dshift.metrics import (
    KINDS,
    Embedding,
    Float,
    Int,
    Metric,
    Points,
    make_embedding,
    resolve_metric,
)
from dshift.modes import nearest_modes
from dshift.result import TITLE
from dshift.shift import NO_MODE, distances
from dshift.store import JOB_ATTRIBUTE, JOB_FILE, Store, refuse_damaged_result

NEEDED = (
    "label", "mode_index", "n_iter", "is_seed", "modes", "density", "size", "stationary",
    "cluster_of_mode", "cluster_size",
)  # fmt: skip


def open_result(result: Any) -> xr.Dataset:
    """Return the result of a fit: itself, or read from its store."""
    if isinstance(result, xr.Dataset):
        if result.attrs.get("title") != TITLE:
            raise InvalidInput(
                f"`result` is a Dataset with the title {result.attrs.get('title')!r}; give what "
                "`dshift.fit` returned or stored, with its attributes."
            )
        refuse_parts(result)
        return result
    if not isinstance(result, str | os.PathLike):
        raise InvalidType(
            f"`result` is a {type(result).__name__}; give what `dshift.fit` returned, or the path "
            "or URL of its store."
        )
    place = Store(os.path.expanduser(os.fspath(result)))
    try:
        stored = xr.open_zarr(place.url, consolidated=False)
        if JOB_ATTRIBUTE in stored.attrs:
            refuse_damaged_result(place)
        return open_result(stored.load())
    except (FileNotFoundError, ImportError):
        pass
    if place.read(JOB_FILE) is not None:
        raise MissingData(
            f"`result`={place.name!r} holds a fit that has not ended; finish it with the same call "
            "to `fit` that began it."
        )
    raise MissingData(f"`result`={place.name!r} holds no result of `dshift.fit`; check the path.")


def refuse_parts(result: xr.Dataset) -> None:
    """Raise unless a result has all of its variables, and all of its modes."""
    missing = [name for name in NEEDED if name not in result]
    if missing:
        raise InvalidInput(
            f"`result` has no variable {', '.join(f'`{name}`' for name in missing)}, so it is not "
            "a result of dshift.fit; give the whole Dataset that it returned."
        )
    n_modes = result.attrs.get("n_modes", len(result.modes))
    if result.modes.dims[:1] != ("mode",) or result.modes.ndim != 2 or len(result.modes) != n_modes:
        raise InvalidInput(
            f"`result` was altered: its `modes` are {dict(result.modes.sizes)}, and the fit found "
            f"{n_modes} modes; give the whole Dataset that dshift.fit returned."
        )


@dataclass(frozen=True, eq=False)
class Model:
    """What a result says of the fit that made it."""

    result: xr.Dataset
    kind: str
    metric: Metric | None
    edges: Float | None
    modes: Float  # (n_modes, n_bins)

    @staticmethod
    def of(result: xr.Dataset, metric: Metric | None) -> Model:
        """Read a result; `metric` is needed where the fit had one of its own."""
        name = result.attrs["metric"]
        if metric is None and name not in KINDS:
            raise InvalidInput(f"the fit used a metric of its own, {name!r}; pass it as `metric`.")
        kind, own = resolve_metric(name if metric is None else metric)
        given = kind if own is None else own.name
        if given != name:
            raise InvalidInput(f"`metric` is {given!r}, but the fit used {name!r}; pass that.")
        edges = result.modes.attrs.get("edges")
        bounds = None if edges is None else np.asarray(edges, dtype=np.float64)
        return Model(result, kind, own, bounds, result.modes.values)

    @property
    def bin_dim(self) -> str:
        """The dimension of the bins."""
        return str(self.result.modes.dims[1])

    def embedding(self) -> Embedding:
        """Return the embedding of the fit."""
        plain = make_embedding(self.kind, self.modes.shape[1], self.edges, self.metric, None)
        return replace(plain, grid=int(self.result.attrs["grid"])) if plain.exact else plain

    def mode_points(self, embedding: Embedding) -> Points:
        """Return the points of the modes: `Embedding.restore` undone.

        Medians lie on half steps of the grid too, where `Embedding.place` puts no sample.
        """
        if self.kind == "wasserstein":
            # On a grid twice as fine, the half steps are even too.
            return replace(embedding, grid=2 * embedding.grid).embed(self.modes)[0] // 2
        if self.kind == "l1":
            # Not embedded, because a median of histograms need not have a total of 1.
            return np.rint(self.modes * (2.0 * embedding.grid)).astype(np.int64)
        return self.modes

    def nearest(self, embedding: Embedding, points: Points) -> Int:
        """Return the nearest mode of each point; ties as in `fit`: denser, then smaller values."""
        modes = self.mode_points(embedding)
        by_values = np.lexsort(modes.T[::-1]) if modes.size else np.arange(len(modes))
        place = nearest_modes(
            points,
            modes[by_values],
            self.result.density.values[by_values],
            lambda x, others: distances(embedding, x, others),
        )
        return np.append(by_values, NO_MODE)[place]

    def recognise(self, embedding: Embedding, ends: Points) -> tuple[Int, NDArray[np.bool_]]:
        """Return for each end of a walk its mode, and whether it is that very mode.

        An end that is no mode of the fit gets the nearest one.
        """
        # Equal points give histograms of equal bits, so bits tell whether a mode is known.
        row_of = {mode.tobytes(): row for row, mode in reversed(list(enumerate(self.modes)))}
        rows = [row_of.get(end.tobytes(), NO_MODE) for end in embedding.restore(ends)]
        place = np.array(rows, dtype=np.int64)
        known = place != NO_MODE
        if not known.all():
            place[~known] = self.nearest(embedding, ends[~known])
        return place, known

    def bandwidth(self) -> Float:
        """Return the bandwidth of the fit: shape () or (n_samples,)."""
        if "bandwidth" in self.result:
            return np.asarray(self.result["bandwidth"].values.reshape(-1))
        return np.asarray(float(self.result.attrs["bandwidth"]))

    def weights(self) -> Float | None:
        """Return the weights of the fit (n_samples,), if it had any."""
        if not self.result.attrs["weighted"]:
            return None
        return np.asarray(self.result["sample_weight"].values.reshape(-1))
