"""A share of the fuzzer in the suite: cases that failed once, and the first of a fixed seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clusters import local
from distributed import Client
from fuzz.case import SAVED, Case, load, save
from fuzz.check import check
from fuzz.draw import draw
from fuzz.shrink import shrink

N_CASES = 100


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local(2, processes=False) as (_, client):
        yield client


@pytest.mark.parametrize("path", sorted(SAVED.glob("*.json")), ids=lambda path: path.stem)
def test_what_failed_once(path: Path, client: Client) -> None:
    case = load(path)
    check(case, client if case.cluster else None)


@pytest.mark.parametrize("first", range(0, N_CASES, 10))
def test_drawn_cases(first: int, client: Client) -> None:
    for number in range(first, first + 10):
        case = draw(0, number)
        check(case, client if case.cluster else None)


def test_a_case_is_the_same_when_drawn_or_read_again(tmp_path: Path) -> None:
    for number in range(20):
        case = draw(7, number)
        assert draw(7, number) == case
        assert load(save(case, tmp_path)) == case


def test_a_failure_is_made_small() -> None:
    """Stand-in for a bug: two samples whose first bin holds all, and a valley."""

    def failure(case: Case) -> str | None:
        first_alone = sum(row[0] == sum(row) for row in case.rows)
        return "AssertionError" if first_alone >= 2 and case.valley is not None else None

    case = next(c for c in (draw(1, n) for n in range(1000)) if failure(c) and len(c.rows) > 9)
    small = shrink(case, failure)
    assert failure(small)
    assert len(small.rows) == 2
    assert small.valley == case.valley
    plain = replace(small, rows=case.rows, bandwidth=case.bandwidth, valley=case.valley)
    assert plain == Case(case.rows, "<f8", case.bandwidth, metric=case.metric, valley=case.valley)
