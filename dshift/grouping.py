"""Which rows of a table belong to one sample: ids of any type to rows of a table of counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dshift.count_kernels import mark_labels, span_of
from dshift.errors import InvalidType
from dshift.hash_kernels import move_keys, number_ids

FIRST_BITS = 12  # of the slots of a hash table; two more whenever half of them are taken
BATCH = 2**12  # rows that are numbered at a time: their keys stay in the cache


class Groups(NamedTuple):
    """The ids, each once; row i of the data belongs to ``places[labels[i] - lowest]``."""

    ids: pd.Index
    labels: NDArray[Any]
    lowest: int
    places: NDArray[np.int64] | None  # None: ``labels[i] - lowest`` itself
    order: NDArray[np.intp] | None  # that sorts the ids; None: they are sorted

    def sorted_ids(self) -> pd.Index:
        """Return the ids in their order."""
        return self.ids if self.order is None else self.ids.take(self.order)


def whole_span(ids: Any) -> tuple[int, int] | None:
    """Return the lowest of some whole numbers, and how many there are from it to the highest."""
    if not isinstance(ids.dtype, np.dtype) or ids.dtype.kind not in "iu" or not len(ids):
        return None
    if ids.dtype == np.int64:  # others would each have the loop compiled for them
        lowest, highest = map(int, span_of(np.asarray(ids)))
    else:
        lowest, highest = int(ids.min()), int(ids.max())
    return (lowest, highest - lowest + 1) if highest < 2**63 else None


def as_labels(ids: Any) -> NDArray[np.int64]:
    """Return whole numbers in the form that kernels take."""
    return np.asarray(ids).astype(np.int64, copy=False)


def grouped(ids: Any, span: tuple[int, int] | None) -> Groups:
    """Return the groups of the rows with one id.

    Parameters
    ----------
    span : tuple, optional
        Of whole numbers, as `whole_span` gives it.
    """
    if isinstance(ids.dtype, pd.CategoricalDtype):
        codes = ids.array.codes
        groups = grouped(codes, whole_span(codes))
        categories = ids.array.categories.take(groups.sorted_ids())
        return groups._replace(ids=categories, order=categories.argsort())
    # A lookup is faster than hashing, where it is not too large.
    if span is not None and span[1] <= 4 * len(ids) + 2**20:
        labels, (lowest, n_labels) = as_labels(ids), span
        seen = np.zeros(n_labels, np.bool_)
        mark_labels(labels, lowest, seen)
        found = pd.Index(np.flatnonzero(seen) + lowest)
        return Groups(found, labels, lowest, np.cumsum(seen) - 1, None)
    numbered = _numbered(ids, span)
    if numbered is not None:
        codes, rows = numbered
        found = pd.Index(ids.array.take(rows) if isinstance(ids, pd.Series) else ids[rows])
    else:
        codes, unique = pd.factorize(ids)
        found = pd.Index(unique)
    try:
        order = found.argsort()
    except TypeError as error:
        raise InvalidType(
            f"the `id` column holds ids that cannot be sorted ({error}); make them of one type."
        ) from error
    return Groups(found, codes, 0, None, order)


def _numbered(
    ids: Any, span: tuple[int, int] | None
) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    """Return what `pd.factorize` does, several times faster, with rows for ids; None: it cannot."""
    if not 0 < len(ids) < 2**31:
        return None
    if span is not None:
        return _number(as_labels(ids), None, len(ids))
    texts = _texts(ids)
    return None if texts is None else _number(*texts, len(ids))


def _texts(ids: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]] | None:
    """Return offsets and bytes of strings, if they are those of Arrow."""
    if not (isinstance(ids.dtype, pd.StringDtype) and ids.dtype.storage == "pyarrow"):
        return None
    import pyarrow as pa  # type: ignore[import-untyped]

    array = ids.array.__arrow_array__()
    if array.type != pa.large_string():
        array = array.cast(pa.large_string())
    # A single chunk would be copied all the same.
    array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    _, offsets, data = array.buffers()
    part = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return part, np.frombuffer(b"" if data is None else data, np.uint8)


def _number(
    ids: NDArray[np.int64], data: NDArray[np.uint8] | None, n: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    """Run `number_ids` over ever larger tables; None where it cannot tell ids apart."""
    codes, found = np.empty(n, np.int32), np.empty(0, np.int64)
    scratch = np.empty(BATCH, np.uint64), np.empty(BATCH, np.uint32)
    at = n_found = 0
    slots = np.empty((0, 2), np.uint64)
    for bits in range(FIRST_BITS, 64, 2):
        larger, shift = np.empty((2**bits, 2), np.uint64), 64 - bits
        move_keys(slots, larger, shift)
        slots = larger
        found = np.concatenate([found, np.empty(2**bits // 2 - len(found), np.int64)])
        at, n_found = number_ids(ids, data, at, codes, slots, shift, found, n_found, *scratch)
        if at < 0:
            return None
        if at == n:
            break
    return codes, found[:n_found]
