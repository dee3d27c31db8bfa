"""What a caller may pass, as it comes back; tests/test_errors.py has what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from dshift.arguments import (
    Seeds,
    check_bandwidth,
    check_invalid,
    check_min_cluster_size,
    check_progress,
    check_seeds,
    check_valley,
    check_weights,
    in_samples_order,
)
from dshift.errors import InvalidInput, InvalidType
from dshift.sources import open_samples


def test_a_number_for_all_samples_or_one_for_each() -> None:
    one = check_bandwidth(np.float32(2), (2, 3))
    assert (one.shape, one.dtype, float(one)) == ((), np.float64, 2.0)
    for given in (np.arange(1, 7), np.arange(1, 7).reshape(2, 3).tolist()):
        for each in (check_bandwidth(given, (2, 3)), check_weights(given, (2, 3))):
            assert each is not None
            assert each.tolist() == [1, 2, 3, 4, 5, 6]
    assert check_weights(None, (2, 3)) is None
    with pytest.raises(InvalidInput, match=r"one number per sample: shape \(2, 3\) or \(6,\)"):
        check_weights(np.ones((3, 2)), (2, 3))


def test_numbers_come_in_the_order_of_the_samples() -> None:
    data = xr.DataArray(np.ones((2, 3, 4)), dims=("y", "x", "bin"), coords={"y": [5, 6]})
    samples = open_samples(data, bin_dim="bin")
    each = xr.DataArray(np.arange(6).reshape(3, 2), dims=("x", "y"))
    for given in (each, each.assign_coords(y=[5, 6]), each.assign_coords(x=[7, 8, 9])):
        turned = in_samples_order("weights", given, samples)
        assert (turned.dims, turned.values.tolist()) == (("y", "x"), [[0, 2, 4], [1, 3, 5]])
    with pytest.raises(InvalidInput, match="`weights` has other coordinates along 'y' than"):
        in_samples_order("weights", each.assign_coords(y=[6, 5]), samples)
    # What does not fit is refused by its shape, later.
    for other in (each[:2], each.rename(x="z"), each.values):
        kept = in_samples_order("weights", other, samples)
        assert sorted(kept.shape) == sorted(other.shape)


def test_weights_may_add_up_to_what_a_float_holds() -> None:
    limit = np.finfo(np.float64).max / 2
    below = check_weights([np.nextafter(limit, 0), 1.0], (2,))
    assert below is not None
    assert np.isfinite(below.sum())
    with pytest.raises(InvalidInput, match="`weights` add up to more than a float64 holds"):
        check_weights([limit, 1.0], (2,))


def test_valley_size_and_words() -> None:
    assert [check_valley(v) for v in (None, 0, 0.5, np.float32(0.25))] == [None, 0.0, 0.5, 0.25]
    assert [check_min_cluster_size(v) for v in (1, 2.5, np.int8(3))] == [1.0, 2.5, 3.0]
    assert [check_invalid(v) for v in ("raise", "mask")] == ["raise", "mask"]
    assert [check_progress(v) for v in (None, True, False)] == [None, True, False]
    with pytest.raises(InvalidType, match="`valley` is True"):
        check_valley(True)
    with pytest.raises(InvalidType, match="`min_cluster_size` is True"):
        check_min_cluster_size(True)
    with pytest.raises(InvalidInput, match="`min_cluster_size` is inf"):
        check_min_cluster_size(np.inf)


@pytest.mark.parametrize(("given", "count"), [(1, 1), (40, 40), (np.int64(7), 7), (0.25, 10)])
def test_so_many_seeds_are_drawn_the_same_every_time(given: Any, count: int) -> None:
    seeds = check_seeds(given, 40, 3)
    assert seeds.count(40) == count
    assert seeds.indices is not None
    assert np.unique(seeds.indices).tolist() == seeds.indices.tolist()
    np.testing.assert_array_equal(seeds.indices, check_seeds(given, 40, 3).indices)


def test_a_fraction_is_at_least_one_seed_and_at_most_all() -> None:
    assert check_seeds(1e-9, 40, 3).count(40) == 1
    assert check_seeds(1.0, 40, 3).count(40) == 40
    with pytest.raises(InvalidInput, match=r"`seeds` is 0\.0; a fraction must be above 0"):
        check_seeds(0.0, 40, 3)


def test_seeds_by_number_and_of_the_callers_own() -> None:
    assert check_seeds("all", 40, 3) == Seeds()
    assert Seeds().count(40) == 40
    picked = check_seeds(np.array([5, 0, 5], np.uint8), 6, 3)
    assert picked.indices is not None
    assert picked.indices.tolist() == [0, 5]
    own = check_seeds([[1, 2, 3], [4, 5, 6]], 40, 3)
    assert own.count(40) == 2
    assert own.indices is None


def test_a_long_value_is_named_by_its_kind() -> None:
    with pytest.raises(InvalidType, match="`valley` is a list; give None"):
        check_valley(list(range(100)))
    with pytest.raises(InvalidType, match="`valley` is 'xxx"):
        check_valley("x" * 58)
    with pytest.raises(InvalidType, match="`valley` is a str; give None"):
        check_valley("x" * 59)
