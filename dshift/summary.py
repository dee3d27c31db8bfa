"""What a result or a store holds, in plain words and numbers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from dshift.errors import InvalidInput, MissingData
from dshift.model import open_result
from dshift.plateaus import choose_bandwidth
from dshift.result import TITLE
from dshift.store import JOB_FILE, ROOT, RUN_FOLDER, Store

# Clusters that are listed one by one.
MOST_LISTED = 100
MOST_SHOWN = 12
SWEPT = ("n_clusters", "n_large", "largest_share", "singletons_share", "agreement")
PLATEAU = ("start", "stop", "middle", "length", "clusters", "large")
SAID = (
    "source",
    "metric",
    "bandwidth",
    "bandwidth_chosen",
    "bandwidth_plateau",
    "unit",
    "valley",
    "min_cluster_size",
    "weighted",
    "n_seeds",
    "n_modes",
    "n_clusters",
    "all_seeds_stationary",
    "fingerprint",
    "dshift_version",
)


def summarise(result: xr.Dataset) -> dict[str, Any]:
    """Return what a fit found, as plain data."""
    labels = result.label.values
    # Attributes read from netCDF are NumPy's.
    said = {key: np.asarray(result.attrs[key]).tolist() for key in SAID if key in result.attrs}
    return {
        "state": "finished",
        "title": TITLE,
        **{
            key: value.tolist() if hasattr(value, "tolist") else value
            for key, value in said.items()
        },
        "shape": dict(zip(map(str, result.label.dims), result.label.shape, strict=True)),
        "n_samples": int(labels.size),
        "n_unassigned": int((labels == -1).sum()),
        "longest_walk": int(result.n_iter.max()),
        "cluster_sizes": result.cluster_size.values[:MOST_LISTED].tolist(),
    }


def describe_result(result: xr.Dataset) -> str:
    """Return the largest clusters as a table, and what was found as a sentence."""
    found, clusters = summarise(result), result.cluster_of_mode.values
    sizes, density = result.cluster_size.values, result.density.values
    total = float(result["size"].sum())
    rows = [
        [
            label,
            sizes[label].item(),
            f"{sizes[label] / total:.1%}",
            int((clusters == label).sum()),
            float(density[clusters == label].max()),
        ]
        for label in range(min(MOST_SHOWN, len(sizes)))
    ]
    rest = len(sizes) - len(rows)
    return (
        table(["cluster", "size", "share", "modes", "density"], rows)
        + (f"\n... and {rest} smaller clusters" if rest else "")
        + f"\n\n{found['n_clusters']} clusters from {found['n_modes']} modes of "
        f"{found['n_samples']} samples, {found['n_unassigned']} in none; {_bandwidth(found)}; "
        f"every seed stationary: {'yes' if found['all_seeds_stationary'] else 'no'}"
    )


def _bandwidth(found: dict[str, Any]) -> str:
    if "bandwidth" not in found:
        return "a bandwidth per sample"
    text = f"bandwidth {found['bandwidth']:.4g} {found.get('unit', '')}".strip()
    if "bandwidth_plateau" not in found:
        return text
    low, high = found["bandwidth_plateau"]
    return f"{text}, chosen from the plateau {low:.4g} to {high:.4g}"


def describe_sweep(swept: xr.Dataset) -> str:
    """Return a sweep as a table of bandwidths and one of plateaus."""
    columns = [swept.bandwidth.values.tolist(), *(swept[name].values.tolist() for name in SWEPT)]
    head = ["bandwidth", "clusters", "of 2 %", "largest", "singletons", "agrees"]
    text = table(head, list(zip(*columns, strict=True)))
    if not swept.sizes["plateau"]:
        return f"{text}\n\nno plateau: no two neighbouring bandwidths hold the same clusters"
    rows = zip(*(swept[f"plateau_{name}"].values.tolist() for name in PLATEAU), strict=True)
    plateaus = table(["from", "to", "middle", "length", "clusters", "of 2 %"], list(rows))
    return f"{text}\n\nplateaus\n{plateaus}\n\nbandwidth auto: {choose_bandwidth(swept):.4g}"


def summarise_sweep(swept: xr.Dataset) -> dict[str, Any]:
    """Return a sweep as plain data."""
    columns = {"bandwidth": swept.bandwidth} | {name: swept[name] for name in SWEPT}
    lists: dict[str, Any] = {name: column.values.tolist() for name, column in columns.items()}
    # JSON has no NaN: the last bandwidth has no next one to agree with.
    lists["agreement"][-1] = None
    found = (swept[f"plateau_{name}"].values.tolist() for name in PLATEAU)
    lists["plateaus"] = [dict(zip(PLATEAU, row, strict=True)) for row in zip(*found, strict=True)]
    return lists | {"n_samples": swept.attrs["n_samples"]}


def describe_store(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a store holds: a result, a fit that has not ended, or another Dataset."""
    place = Store(os.path.expanduser(os.fspath(path)))
    root = place.read(ROOT)
    if root is None:
        return _describe_run(place)
    title = json.loads(root).get("attributes", {}).get("title")
    if title == TITLE:
        return {"store": place.name} | summarise(open_result(place.url))
    try:
        dataset = xr.open_zarr(place.url, consolidated=False)
    except (ValueError, FileNotFoundError) as error:
        raise InvalidInput(f"{place.name!r} is not a Zarr group of dshift's ({error}).") from error
    sizes = {str(name): size for name, size in dataset.sizes.items()}
    variables = {
        str(name): f"{array.dtype} {tuple(map(str, array.dims))}"
        for name, array in dataset.data_vars.items()
    }
    return {
        "store": place.name,
        "state": "finished",
        "title": title or "Zarr group",
        "shape": sizes,
        "variables": variables,
    }


def _describe_run(place: Store) -> dict[str, Any]:
    content = place.read(JOB_FILE)
    if content is None:
        raise MissingData(
            f"{place.name!r} holds neither a result nor a run of dshift; check the path."
        )
    job = json.loads(content)
    blocks = [re.fullmatch(rf"{RUN_FOLDER}/blocks/(\d+)-(\d+)\.npz", k) for k in place.list_keys()]
    done = [(int(found[1]), int(found[2])) for found in blocks if found]
    return {
        "store": place.name,
        "state": "unfinished",
        "title": TITLE,
        **{key: job[key] for key in SAID if key in job},
        "n_blocks_done": len(done),
        "n_seeds_done": sum(stop - start for start, stop in done),
    }


def as_text(sizes: dict[str, int]) -> str:
    """Return a shape as people say it: `10 lat x 20 lon`."""
    return " x ".join(f"{size} {name}" for name, size in sizes.items())


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as a table with columns aligned to the right."""
    text = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in text
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
