"""One call of `fit` as plain data, so that it can be saved, read again and made smaller."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

SAVED = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """The data, what is asked of it, and how the work is cut up."""

    rows: list[list[float]]
    dtype: str
    bandwidth: float | list[float]
    metric: str = "wasserstein"
    edges: list[float] | None = None
    weights: list[float] | None = None
    seeds: Any = "all"  # or sample numbers, or histograms
    valley: float | None = None
    min_cluster_size: float = 1
    holes: tuple[int, ...] = ()  # a sample that is no histogram comes before each of these
    source: str = "numpy"
    chunks: tuple[int, int] = (1000, 1000)
    bins_first: bool = False
    folded: bool = False  # samples on two dimensions
    block_size: int | None = None
    threads: int = 1
    cluster: bool = False

    def counts(self) -> np.ndarray:
        """The histograms in the dtype that `fit` is given."""
        return np.array(self.rows).astype(self.dtype)


def save(case: Case, folder: Path = SAVED) -> Path:
    """Write a case where the suite will find it; the name says what it is."""
    text = json.dumps(asdict(case), indent=1)
    folder.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in folder.glob("*.json"))
    path = folder / f"{case.metric}-{number:03d}.json"
    path.write_text(text + "\n")
    return path


def load(path: Path) -> Case:
    """Read a case."""
    case = Case(**json.loads(path.read_text()))
    return replace(case, chunks=tuple(case.chunks), holes=tuple(case.holes))
