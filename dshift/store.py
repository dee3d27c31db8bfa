"""A run in a store: blocks as they end, then the result, each written whole or not at all.

A store is a folder (or an object-store prefix). While a run lasts it holds a folder `dshift`:
`job.json`, which says what was asked, and one record a finished block. The result's arrays follow,
and the group's own `zarr.json` comes last: before that there is no Zarr group to open, after that
the result is whole, says itself what was asked, and the folder goes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import fsspec
import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from dshift.errors import InvalidInput, InvalidType, StoreFailed
from dshift.intact import checked_encoding, refuse_damaged, with_plain_strings
from dshift.redaction import public_cause, public_name
from dshift.shift import Climbed
from dshift.sources import refuse_half_url

ROOT = "zarr.json"
RUN_FOLDER = "dshift"
JOB_FILE = f"{RUN_FOLDER}/job.json"
PARCELS = f"{RUN_FOLDER}/parcel-"
LOCK_FILE = f"{RUN_FOLDER}/lock.json"
LOCK_GUARD = f"{RUN_FOLDER}/guard"
JOB_ATTRIBUTE = "dshift_job"
DIGEST_BYTES = 16


@dataclass(frozen=True)
class Store:
    """Where a run is kept. Small enough to travel with every task."""

    url: str

    @property
    def name(self) -> str:
        """The URL as messages may show it."""
        return public_name(self.url)

    @property
    def local_path(self) -> str | None:
        """The path, if the store is on a file system of this host."""
        fs, path = self._at("")
        return path.rstrip("/") if "file" in np.atleast_1d(fs.protocol) else None

    def _at(self, key: str) -> tuple[Any, str]:
        fs, root = fsspec.core.url_to_fs(self.url)
        return fs, f"{root.rstrip('/')}/{key}"

    def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, or None."""
        fs, path = self._at(key)
        try:
            return bytes(fs.cat_file(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self.failed("read", key, error) from self._public(error)

    def write(self, key: str, content: bytes) -> None:
        """Write bytes under a key, whole or not at all."""
        if self.local_path is None:
            self._put(key, content)
            return
        _, path = self._at(key)
        # Object stores put whole objects; on a disk, a file is whole once it is renamed.
        fresh = f"{path}.{uuid.uuid4().hex[:8]}"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(fresh, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except OSError as error:
            raise self.failed("written", key, error) from error
        finally:
            if os.path.exists(fresh):
                os.unlink(fresh)

    def _put(self, key: str, content: bytes, **how: Any) -> None:
        """Put an object; let FileExistsError through."""
        fs, path = self._at(key)
        try:
            fs.pipe_file(path, content, **how)
        except FileExistsError:
            raise
        except OSError as error:
            raise self.failed("written", key, error) from self._public(error)

    def failed(self, done: str, key: str, error: OSError) -> StoreFailed:
        """Return the error that names what could not be read or written."""
        cause = (self._public(error) and error.strerror) or public_cause(error, self.url)
        return StoreFailed(
            f"{key} of `store`={self.name!r} cannot be {done} ({cause}). Mend "
            "that (room on the disk, the right to write, another path); the same call then "
            "continues from the blocks that are recorded."
        )

    def _public(self, error: OSError) -> OSError | None:
        """Return an error that may be shown: one that quotes a URL with credentials may not."""
        return error if self.name == self.url else None

    def create(self, key: str, content: bytes) -> bool:
        """Write bytes under a key; return False if it is there, where the file system can tell."""
        if self.local_path is not None:
            self.write(key, content)
            return True
        try:
            self._put(key, content, mode="create")
        except FileExistsError:
            return False
        except (TypeError, NotImplementedError):  # an older file system of fsspec
            self._put(key, content)
        return True

    def list_keys(self) -> list[str]:
        """Return all keys."""
        fs, root = self._at("")
        fs.invalidate_cache()
        return [path.removeprefix(root) for path in fs.find(root)]

    def remove(self, prefix: str) -> None:
        """Remove all keys under a prefix."""
        fs, path = self._at(prefix)
        with suppress(FileNotFoundError):
            fs.rm(path, recursive=True)


def check_store(store: object) -> Store | None:
    """Return where to keep the run; refuse a place that holds anything but a run."""
    if store is None:
        return None
    if not isinstance(store, str | os.PathLike):
        raise InvalidType(
            f"`store` is a {type(store).__name__}; give the path or URL of a Zarr store to write, "
            "or None."
        )
    refuse_half_url("store", os.fspath(store))
    place = Store(_absolute(os.path.expanduser(os.fspath(store))))
    try:
        # A run that died, or has just begun, may not have said yet what it is.
        keys = [key for key in place.list_keys() if not key.startswith(f"{RUN_FOLDER}/")]
    except Exception as error:  # object stores have errors of their own
        raise InvalidInput(
            f"`store`={place.name!r} cannot be reached ({public_cause(error, place.url)}); give a "
            "path, or a URL whose fsspec package is installed (S3: `pip install 'dshift[s3]'`), "
            "whose bucket exists and whose credentials are set."
        ) from None
    if keys and known_job(place) is None:
        raise InvalidInput(
            f"`store`={place.name!r} exists and is not a run of dshift; "
            "give another path, or remove it first."
        )
    return place


def _absolute(path: str) -> str:
    """Return a path as it is for processes in another folder too; a URL as it is."""
    return path if "://" in path or "::" in path else os.path.abspath(path)


def known_job(place: Store) -> dict[str, Any] | None:
    """Return what is said to be run in a store: by the result if it is whole, else by the job."""
    # The job first: a run that ends meanwhile writes the result, and takes the job away after that.
    job = place.read(JOB_FILE)
    try:
        root = json.loads(place.read(ROOT) or b"{}").get("attributes", {})
        known = json.loads(root.get(JOB_ATTRIBUTE) or job or b"null")
    except (ValueError, AttributeError):
        return None
    return known if isinstance(known, dict) else None


def claim(place: Store, identity: dict[str, Any]) -> xr.Dataset | None:
    """Say in the store what is being run there; return the result if it is whole already.

    A store where something else is run is refused.
    """
    known = known_job(place)
    if known is None:
        place.write(JOB_FILE, json.dumps(identity, indent=1).encode())
        return None
    differing = [key for key in identity if known.get(key) != identity[key]]
    if differing:
        said = "; ".join(f"{k}: {known.get(k)!r} there, {identity[k]!r} here" for k in differing)
        raise InvalidInput(
            f"`store`={place.name!r} holds a run of another job ({said}). "
            "Give another store, or remove this one."
        )
    if place.read(ROOT) is None:
        return None
    refuse_damaged_result(place)
    return open_finished(place)


def refuse_damaged_result(place: Store) -> None:
    """Raise StoreFailed unless all of a finished result can be read."""
    keys = [key.split("/") for key in place.list_keys()]
    variables = {key[0] for key in keys if len(key) == 2 and key[1] == ROOT} - {RUN_FOLDER}
    refuse_damaged(place.url, place.name, variables)


def _block_key(seeds: slice) -> str:
    return f"{RUN_FOLDER}/blocks/{seeds.start}-{seeds.stop}.npz"


def write_block(place: Store, seeds: slice, climbed: Climbed) -> None:
    """Record a finished block."""
    write_record(place, _block_key(seeds), asdict(climbed))


def read_block(place: Store, seeds: slice) -> Climbed | None:
    """Return a recorded block, or None if there is none or it is torn."""
    arrays = read_record(place, _block_key(seeds))
    if arrays is None:
        return None
    fields: dict[str, Any] = {name: a if a.ndim else int(a) for name, a in arrays.items()}
    return Climbed(**fields)


def write_record(place: Store, key: str, arrays: Mapping[str, Any]) -> None:
    """Record arrays, with a digest in front."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    body = buffer.getvalue()
    place.write(key, _digest(place, key, body) + body)


def read_record(place: Store, key: str) -> dict[str, NDArray[Any]] | None:
    """Return recorded arrays, or None if there are none or they are torn."""
    content = place.read(key)
    if content is None or content[:DIGEST_BYTES] != _digest(place, key, content[DIGEST_BYTES:]):
        return None
    return dict(np.load(io.BytesIO(content[DIGEST_BYTES:]), allow_pickle=False))


def _digest(place: Store, key: str, content: bytes) -> bytes:
    # Of the key and the job too, so that a record is not taken for that of another block or run.
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in (key.encode(), place.read(JOB_FILE) or b"", content):
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()


def write_arrays(place: Store, result: xr.Dataset, identity: dict[str, Any]) -> bytes:
    """Write all but the group's own metadata, and return that.

    Of variables that are Dask arrays only the metadata is written, with their chunks.
    """
    memory: dict[str, Any] = {}
    said = with_plain_strings(result).assign_attrs({JOB_ATTRIBUTE: json.dumps(identity)})
    said.to_zarr(
        zarr.storage.MemoryStore(memory),
        mode="w",
        consolidated=False,
        compute=False,
        encoding=checked_encoding(said),
        # Of nothing but fill values too, or else a lost chunk would pass for one.
        write_empty_chunks=True,
    )
    root: bytes = memory.pop(ROOT).to_bytes()
    for key in sorted(memory):
        place.write(key, memory[key].to_bytes())
    return root


def finish(place: Store, root: bytes) -> None:
    """Write the metadata that makes the arrays of a store a whole result."""
    place.write(ROOT, root)


def open_finished(place: Store) -> xr.Dataset:
    """Return the result of a store; its arrays are read when they are looked at."""
    result: xr.Dataset = xr.open_zarr(place.url, consolidated=False, chunks=None)
    del result.attrs[JOB_ATTRIBUTE]
    return result
