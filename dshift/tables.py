"""Data frames, Parquet and lists of series, as rows to count."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from dask.system import CPU_COUNT
from numpy.typing import NDArray

from dshift.counting import as_numbers, plain_array, refuse_unless_numbers
from dshift.errors import InvalidInput, MissingData
from dshift.redaction import public_name
from dshift.rows import Piece, Rows
from dshift.sources import _is_dask_array

LEAST_ROWS = 2**18  # of a data frame that are worth a thread
BATCH_VALUES = 2**20  # short series are counted together, so many values at a time


def is_dask_frame(data: Any) -> bool:
    """Tell a Dask DataFrame, without importing any."""
    dask_frame = sys.modules.get("dask.dataframe")
    return dask_frame is not None and isinstance(data, dask_frame.DataFrame)


def read_parquet(path: str) -> Any:
    """Return the Dask DataFrame of a path or URL."""
    shown = public_name(path)
    try:
        import dask.dataframe as dd

        return dd.read_parquet(os.path.expanduser(path))
    except ImportError as error:
        raise InvalidInput(
            f"`data`={shown!r}: reading Parquet needs more packages ({error}); "
            "`pip install 'dshift[tables]'`."
        ) from error
    except FileNotFoundError:
        raise MissingData(f"`data`={shown!r} does not exist; check the path.") from None
    except (OSError, ValueError) as error:
        cause = error if shown == path else None  # it may quote the URL whole
        raise InvalidInput(
            f"`data`={shown!r} cannot be read as Parquet ({cause or type(error).__name__}); give a "
            "Parquet file or directory, or open the data with pandas, Dask or xarray."
        ) from cause


def open_frame(frame: Any, id: Any, value: Any, weights: Any) -> Rows:
    """Check a data frame and the names of its columns."""
    columns = list(frame.columns)
    wanted = {"id": id, "value": value, **({} if weights is None else {"weights": weights})}
    for name, column in wanted.items():
        if not isinstance(column, Hashable) or columns.count(column) != 1:
            raise InvalidInput(
                f"`{name}` is {column!r}; name one of the columns of `data`: "
                f"{', '.join(map(repr, columns))}."
            )
        if name != "id":
            refuse_unless_numbers(f"{name}` column `{column}", frame.dtypes[column])
    if len({*wanted.values()}) < len(wanted):
        raise InvalidInput(f"`id` is {id!r} and so is another column; name columns that differ.")
    lazy = not isinstance(frame, pd.DataFrame)
    cut = partial(_cut_piece, id=id, value=value, weights=weights)

    def pieces() -> Iterable[Any]:
        if not lazy:
            size = max(LEAST_ROWS, -(-len(frame) // CPU_COUNT))  # counted side by side
            starts = range(0, max(len(frame), 1), size)
            return [cut(frame.iloc[start : start + size]) for start in starts]
        from dask.delayed import delayed

        return map(delayed(cut), frame[list(wanted.values())].to_delayed())

    return Rows(pieces, lazy, weights is not None, (str(id),), quantity=str(value))


def _cut_piece(frame: pd.DataFrame, id: str, value: str, weights: str | None) -> Piece:
    dtype = frame[id].dtype
    # Whole numbers of NumPy's cannot be missing; those of pandas and Arrow can.
    never = isinstance(dtype, np.dtype) and dtype.kind in "biu"
    missing = np.zeros(0, np.bool_) if never else frame[id].isna()
    if missing.any():  # several times faster than their sum
        raise InvalidInput(
            f"`id` column `{id}` is missing in {missing.sum()} rows; drop those rows, or fill them "
            "in."
        )
    return frame[id], _column(frame[value]), None if weights is None else _column(frame[weights])


def _column(column: pd.Series) -> NDArray[Any]:
    if isinstance(column.dtype, np.dtype):
        return np.asarray(column)
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def open_series(data: Any, id: Any, value: Any, weights: Any) -> Rows:
    """Check a list or dict of series, and their weights."""
    if value is not None or not isinstance(id, str | None):
        raise InvalidInput(
            f"`id` is {id!r} and `value` {value!r}, but `data` is a {type(data).__name__}; leave "
            "`value` out, and give `id` a string, the name of the samples' dimension."
        )
    keys = list(data) if isinstance(data, Mapping) else list(range(len(data)))
    if not keys:
        raise InvalidInput("`data` is empty; give at least one series.")
    arrays = [_one_series("data", key, data[key]) for key in keys]
    loads = None
    if weights is not None:
        if type(weights) is not type(data) or len(weights) != len(data):
            raise InvalidInput(
                f"`weights` is a {type(weights).__name__}; for series give a "
                f"{type(data).__name__} of {len(data)} arrays, like `data`."
            )
        loads = [_one_series("weights", key, _weights_of(weights, key)) for key in keys]
        for key, array, load in zip(keys, arrays, loads, strict=True):
            if array.shape != load.shape:
                raise InvalidInput(
                    f"`weights` of {key!r} has shape {load.shape} and `data` {array.shape}; give "
                    "as many weights as values."
                )
    every, labels = pd.RangeIndex(len(keys)), keys if isinstance(data, Mapping) else None
    dims, weighted = (id or "sample",), loads is not None
    if not any(map(_is_dask_array, [*arrays, *(loads or ())])):
        batches = partial(_batches, arrays, loads)
        return Rows(batches, False, weighted, dims, every, labels=labels)
    pieces, numbers = _lazy_pieces(arrays, loads)
    places = [every[[number]] for number in numbers]
    return Rows(lambda: pieces, True, weighted, dims, every, places, labels)


def _weights_of(weights: Any, key: Any) -> Any:
    try:
        return weights[key]
    except KeyError:
        raise InvalidInput(f"`weights` has no {key!r}; give it the keys of `data`.") from None


def _one_series(name: str, key: Any, series: Any) -> Any:
    array = series if _is_dask_array(series) else np.asanyarray(series)
    if isinstance(series, xr.DataArray):
        array = plain_array(series)
    if array.ndim != 1:
        raise InvalidInput(
            f"`{name}` of {key!r} has {array.ndim} dimensions; each series must be a 1-D array."
        )
    # An empty list has no dtype of its own.
    refuse_unless_numbers(f"{name}` of `{key}", array.dtype)
    return as_numbers(array) if np.ma.isMaskedArray(array) else array


def _batches(arrays: Sequence[Any], loads: Sequence[Any] | None) -> Iterator[Piece]:
    """Yield series joined into pieces, because each piece takes microseconds to begin."""
    ends = np.cumsum([len(array) for array in arrays]) // BATCH_VALUES
    for _, group in itertools.groupby(range(len(arrays)), key=ends.__getitem__):
        some = list(group)
        joined = [np.concatenate([of[i] for i in some]) for of in (arrays, loads) if of is not None]
        labels = np.repeat(some, [len(arrays[i]) for i in some])
        yield labels, joined[0], joined[1] if loads is not None else None


def _lazy_pieces(arrays: Sequence[Any], loads: Sequence[Any] | None) -> tuple[list[Any], list[int]]:
    """Return the Delayed of a piece for each chunk of each series, and which series that is."""
    import dask.array as da
    from dask.delayed import delayed

    pieces, numbers = [], []
    for number, array in enumerate(arrays):
        values = da.asarray(array)
        blocks = [values.to_delayed()]
        if loads is not None:
            blocks.append(da.asarray(loads[number]).rechunk(values.chunks).to_delayed())
        for some in zip(*blocks, strict=True):
            pieces.append(delayed(_numbered)(number, *some))
            numbers.append(number)
    return pieces, numbers


def _numbered(number: int, values: Any, weights: Any = None) -> Piece:
    return np.full(len(values), number), values, weights
