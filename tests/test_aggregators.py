"""The mean in worker order to the bit, the median as numpy's, and what one bad worker can do."""

import numpy as np
import pytest

import minips as ps


def contributions(*gradients):
    return [ps.Contribution(i, 0, 0, {"w": np.asarray(g)}) for i, g in enumerate(gradients)]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_mean_adds_in_worker_order_to_the_bit(dtype, workers):
    gradients = (np.random.default_rng(0).standard_normal((workers, 100)) * 10.0 ** np.arange(workers)[:, None]).astype(
        dtype
    )
    total = gradients[0]
    for g in gradients[1:]:
        total = total + g
    expected = total / np.dtype(dtype).type(workers)
    assert ps.Mean().combine(contributions(*gradients))["w"].tobytes() == expected.tobytes()


def test_the_order_matters_to_the_bit():
    a, b, c = np.float32([1e8]), np.float32([-1e8]), np.float32([1])
    assert ps.Mean().combine(contributions(a, b, c))["w"] == np.float32(1) / np.float32(3)
    assert ps.Mean().combine(contributions(a, c, b))["w"] == 0


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 8])
def test_median_is_numpys(workers):
    gradients = np.random.default_rng(1).standard_normal((workers, 3, 5)).astype("f4")
    got = ps.Median().combine(contributions(*gradients))["w"]
    assert np.array_equal(got, np.median(gradients, axis=0))
    assert got.dtype == np.float32


def test_one_bad_worker_moves_the_mean_anywhere_and_the_median_nowhere():
    good = [[1.0], [2.0], [3.0], [4.0]]
    everyone = contributions(*good, [1e9])
    assert ps.Mean().combine(everyone)["w"] > 1e8
    assert 1 <= ps.Median().combine(everyone)["w"] <= 4


@pytest.mark.parametrize("aggregator", [ps.Mean(), ps.Median()], ids=repr)
def test_pieces_of_several_servers_are_combined_as_the_whole_is(aggregator):
    gradients = np.random.default_rng(2).standard_normal((5, 101)).astype("f4")
    whole = aggregator.combine(contributions(*gradients))["w"]
    pieces = [
        aggregator.combine(contributions(*gradients[:, cut]))["w"] for cut in (np.s_[:30], np.s_[30:31], np.s_[31:])
    ]
    assert np.concatenate(pieces).tobytes() == whole.tobytes()


def test_each_name_by_itself():
    both = [ps.Contribution(i, 0, 0, {"w": np.full(2, i, "f4"), "b": np.full(1, 10.0 * i)}) for i in range(3)]
    combined = ps.Mean().combine(both)
    assert {name: (x.tolist(), str(x.dtype)) for name, x in combined.items()} == {
        "w": ([1.0, 1.0], "float32"),
        "b": ([10.0], "float64"),
    }
