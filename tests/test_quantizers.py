"""Each scheme against its formula, on what its paper promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minips as ps
from minips.stage import build, missing, names, stage_class
from minips.stages.quantizers.base import LARGEST_BYTES, blank, part, witness
from minips.stages.quantizers.sparse import kept

SEEDS = range(5)


def through(quantizer, x, seed=0):
    """What a receiver makes of ``x``, in doubles."""
    return quantizer.decode(quantizer.encode(x, np.random.default_rng(seed))).astype(np.float64)


def normal(shape, seed=0, dtype="f4"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def square(x):
    return float((np.asarray(x, np.float64) ** 2).sum())


# Exact: the same array


def test_exact_does_not_copy():
    x = normal(10)
    parts = ps.Exact().encode(x, None)
    assert ps.Exact().decode(parts) is x


# Float16: numpy's own rounding, which is IEEE's, and no infinity


@given(hnp.arrays("f4", hnp.array_shapes(max_side=20), elements=st.floats(-65504, 65504, width=32)))
@settings(deadline=None, max_examples=50)
def test_float16_is_numpys_half(x):
    assert np.array_equal(through(ps.Float16(), x), x.astype(np.float16).astype(np.float64))


def test_float16_holds_what_is_too_large_at_the_largest():
    x = np.array([65504, 65519, 65520, 1e6, 1e30, -1e30], "f4")
    assert through(ps.Float16(), x).tolist() == [65504] * 5 + [-65504]


def test_float16_rounds_ties_to_even_and_keeps_subnormals():
    one_ulp = 2.0**-10
    x = np.array([1 + one_ulp / 2, 1 + 3 * one_ulp / 2, 2.0**-24, 2.0**-25, 3 * 2.0**-25], "f8")
    assert through(ps.Float16(), x).tolist() == [1, 1 + 2 * one_ulp, 2.0**-24, 0, 2 * 2.0**-24]


# Uniform: 2ᵇ levels from the least to the greatest


@pytest.mark.parametrize("bits", range(1, 9))
def test_uniform_rounds_to_the_nearest_of_its_levels(bits):
    x = normal(1000, dtype="f8")
    levels = np.linspace(x.min(), x.max(), 2**bits)
    nearest = np.abs(x[:, None] - levels).min(axis=1)
    y = through(ps.Uniform(bits=bits), x)
    assert np.abs(y[:, None] - levels).min(axis=1).max() < 1e-12  # each is a level …
    assert np.allclose(np.abs(x - y), nearest, atol=1e-12)  # … and no other is nearer
    step = (x.max() - x.min()) / (2**bits - 1)
    assert np.abs(x - y).max() <= step / 2 * (1 + 1e-12)


@pytest.mark.parametrize("bits", range(1, 9))
def test_uniform_packs_its_codes_tightly(bits):
    parts = ps.Uniform(bits=bits).encode(normal(1001), None)
    assert parts["codes"].nbytes == -(-1001 * bits // 8)


def test_uniform_keeps_the_ends_and_a_constant():
    x = np.array([-1.7, 0.3, 2.9])
    y = through(ps.Uniform(bits=1), x)
    assert y == pytest.approx([-1.7, -1.7, 2.9], abs=1e-15)
    assert through(ps.Uniform(), np.full(7, 0.1, "f4")).tolist() == [np.float32(0.1)] * 7


@pytest.mark.parametrize("x", [np.float32([-3e38, 3e38, 0]), np.float16([-6e4, 6e4]), np.float32([0, 1e-45])], ids=repr)
def test_uniform_at_the_ends_of_its_dtype(x):
    for bits in (1, 4, 8):
        error = np.abs(through(ps.Uniform(bits=bits), x) - x.astype("f8")).max()
        assert error <= ps.Uniform(bits=bits).error_bound(x)


# Sign: mean(|x|) times the sign


def test_sign_is_the_mean_magnitude_times_the_sign():
    x = np.float32([3, -1, 0, -0.0, 6])
    assert through(ps.Sign(), x) == pytest.approx([2, -2, 2, 2, 2])


@pytest.mark.parametrize("seed", SEEDS)
def test_signs_residual_is_exactly_what_karimireddy_says(seed):
    x = normal((20, 30), seed, "f8") ** 3
    formula = (1 - np.abs(x).sum() ** 2 / (x.size * square(x))) * square(x)
    assert square(x - through(ps.Sign(), x)) == pytest.approx(formula, rel=1e-12)


def test_sign_is_one_bit_a_value():
    assert ps.Sign().encode(normal(8001), None)["bits"].nbytes == 1001


# TopK: the same as a sort


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 1.0])
def test_topk_is_a_sort_that_stops_early(seed, fraction):
    x = normal((20, 30), seed, "f8")
    k = kept(fraction, x.size)
    expected, order = np.zeros(x.size), np.argsort(np.abs(x).reshape(-1))[::-1][:k]
    expected[order] = x.reshape(-1)[order]
    y = through(ps.TopK(fraction=fraction), x)
    assert np.array_equal(y, expected.reshape(x.shape))
    assert square(x - y) <= (1 - k / x.size) * square(x)


def test_topk_with_equal_magnitudes_keeps_the_bound_with_equality():
    x = np.where(np.arange(100) % 2, 1.0, -1.0)
    y = through(ps.TopK(fraction=0.25), x)
    assert np.count_nonzero(y) == 25
    assert square(x - y) == 75 == (1 - 25 / 100) * square(x)


@pytest.mark.parametrize(
    ("fraction", "size", "k"),
    [
        (0.01, 100, 1),
        (0.01, 101, 2),
        (0.07, 100, 7),
        (0.28, 10_000, 2800),
        (0.5, 3, 2),
        (1e-9, 5, 1),
        (1, 7, 7),
        (0.1, 0, 0),
    ],
)
def test_topk_keeps_the_fraction_as_it_is_written(fraction, size, k):
    assert kept(fraction, size) == k


@pytest.mark.parametrize(("size", "itemsize"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_topk_sends_the_smallest_index(size, itemsize):
    parts = ps.TopK().encode(normal(size), None)
    assert parts["indices"].itemsize == itemsize
    assert np.all(np.diff(parts["indices"].astype(int)) > 0)


def test_topk_refuses_an_index_that_is_out_of_range():
    like = {"like": witness(np.zeros(3, "f4")), "values": np.ones(1, "f4")}
    with pytest.raises(ValueError, match="do not fit into 3 values"):
        ps.TopK().decode({**like, "indices": np.array([3], "u1")})
    with pytest.raises(ValueError, match="do not fit into 0 values"):
        ps.TopK().decode({**like, "indices": np.array([0], "u1"), "like": witness(np.zeros(0, "f4"))})


# All of them


def all_quantizers():
    return [build("quantizer", name) for name in names("quantizer") if not missing(stage_class("quantizer", name))]


FLOATS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


@pytest.mark.parametrize("quantizer", [*all_quantizers(), ps.Uniform(bits=3), ps.TopK(fraction=0.5)], ids=repr)
@given(
    x=hnp.arrays(
        st.sampled_from(["f4", "f8"]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9), elements=FLOATS
    )
)
@settings(deadline=None, max_examples=50)
def test_any_array_comes_back_within_the_bound(quantizer, x):
    before = x.copy()
    parts = quantizer.encode(x, np.random.default_rng(0))
    y = type(quantizer)().decode(parts)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert np.isfinite(y).all()
    assert np.array_equal(x, before)
    bound, largest = quantizer.error_bound(x), float(np.abs(x).max(initial=0))
    if bound is not None:
        assert np.abs(x.astype("f8") - y.astype("f8")).max(initial=0) <= bound * (1 + 1e-6) + 1e-6 * largest
    size = quantizer.nbytes(x.shape, x.dtype)
    assert size in (None, sum(array.nbytes for array in parts.values()))


# What all share


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (4, 5)])
def test_a_witness_weighs_nothing_and_remembers(shape):
    seen = witness(np.ones(shape, "f2"))
    assert seen.nbytes == 0
    assert blank(seen).shape == shape
    assert blank(seen).dtype == np.float16


def test_a_witness_cannot_claim_the_memory():
    with pytest.raises(ValueError, match=f"larger than the {LARGEST_BYTES} bytes"):
        blank(np.empty((0, 2**20, 2**20), "f4"))
    with pytest.raises(ValueError, match=r"must have the shape \(0, …\)"):
        blank(np.zeros((1, 3)))


def test_a_part_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"have no 'scale'; they have: values, like"):
        part({"values": np.zeros(1), "like": np.zeros(1)}, "scale")
