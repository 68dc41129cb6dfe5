"""Each scheme against its formula, on what its paper promises."""

import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minips as ps
from minips.stage import build, missing, names, stage_class
from minips.stages.quantizers import contractive
from minips.stages.quantizers.base import LARGEST_BYTES, part, shape_tag, zeros_for
from minips.stages.quantizers.packing import pack, packed_nbytes, unpack
from minips.stages.quantizers.sparse import random_indices, sent_count
from minips.stages.serializers import Packet
from minips.testing import check
from minips.testing.quantizers import SHAPES

SEEDS = range(5)
VARIANTS = [
    ps.Uniform(bits=3),
    ps.Uniform(bits=8, block=4),
    ps.Uniform(bits=1, block=1000),
    ps.QSGD(levels=1),
    ps.QSGD(levels=127),
    ps.TwoBit(threshold=1e-3),
    ps.TopK(fraction=0.5),
    ps.RandomK(fraction=0.3),
    ps.RandomK(fraction=0.7, unbiased=False),
    ps.Threshold(value=0.0),
    ps.PowerSGD(rank=1),
    ps.Adaptive(target_error=0.1, ladder=(ps.Ternary(), ps.TopK(fraction=0.5), ps.BFloat16())),
]
REGISTERED = [build("quantizer", name) for name in names("quantizer") if not missing(stage_class("quantizer", name))]
QUANTIZERS = [*REGISTERED, *VARIANTS]


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
    k = sent_count(fraction, x.size)
    expected, order = np.zeros(x.size), np.argsort(np.abs(x).reshape(-1))[::-1][:k]
    expected[order] = x.reshape(-1)[order]
    y = through(ps.TopK(fraction=fraction), x)
    assert np.array_equal(y, expected.reshape(x.shape))
    assert square(x - y) == pytest.approx(np.sort(x.reshape(-1) ** 2)[: x.size - k].sum(), rel=1e-12)
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
    assert sent_count(fraction, size) == k


@pytest.mark.parametrize(("size", "itemsize"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_topk_sends_the_smallest_index(size, itemsize):
    parts = ps.TopK().encode(normal(size), None)
    assert parts["indices"].itemsize == itemsize
    assert np.all(np.diff(parts["indices"].astype(int)) > 0)


def test_topk_refuses_an_index_that_is_out_of_range():
    like = {"like": shape_tag(np.zeros(3, "f4")), "values": np.ones(1, "f4")}
    with pytest.raises(ValueError, match="do not fit into 3 values"):
        ps.TopK().decode({**like, "indices": np.array([3], "u1")})
    with pytest.raises(ValueError, match="do not fit into 0 values"):
        ps.TopK().decode({**like, "indices": np.array([0], "u1"), "like": shape_tag(np.zeros(0, "f4"))})


# BFloat16: the upper half of a float32


@given(hnp.arrays("f4", hnp.array_shapes(min_dims=0, max_side=20), elements=st.floats(-(2.0**127), 2.0**127, width=32)))
@settings(deadline=None, max_examples=50)
def test_bfloat16_is_the_upper_half_of_a_float32_rounded_to_even(x):
    word = x.view("u4").astype("u8")
    rounded = (word + 0x7FFF + (word >> 16 & 1)) >> 16
    assert np.array_equal(ps.BFloat16().encode(x, None)["bits"], rounded.astype("u2"))


def test_bfloat16_of_a_wider_float_is_rounded_once():
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-40, -1 - 2.0**-8 - 2.0**-40, 1 + 2.0**-8, 1e300])
    largest = (2 - 2.0**-7) * 2.0**127
    assert through(ps.BFloat16(), x).tolist() == [1 + 2.0**-7, 1 + 2.0**-7, -1 - 2.0**-7, 1, largest]


@given(hnp.arrays("f8", hnp.array_shapes(min_dims=0, max_side=20), elements=st.floats(-1e30, 1e30)))
@settings(deadline=None, max_examples=50)
def test_bfloat16_of_a_double_is_the_nearest_that_there_is(x):
    got = through(ps.BFloat16(), x)
    word = got.astype("f4").view("u4")
    near = [(word + step).astype("u4").view("f4").astype("f8") for step in (0x10000, -0x10000 % 2**32)]
    for other in near:
        usable = np.isfinite(other)
        assert (np.abs(x - got) <= np.where(usable, np.abs(x - np.where(usable, other, 0)), np.inf)).all()


def test_bfloat16_holds_what_is_too_large_at_the_largest():
    largest = (2 - 2.0**-7) * 2.0**127
    assert through(ps.BFloat16(), np.float32([3.4e38, -3.4e38, largest])).tolist() == [largest, -largest, largest]
    assert through(ps.BFloat16(), np.float16([65504, -65504])).tolist() == [65280, -65280]


# What is random: the mean and the variance that the papers give. N draws each, from fixed seeds. Errors of variance σ²
# and magnitude M have a mean beyond 4.94 σ/√N + 8.1 M/N by chance in fewer than 1 of 10⁵ cases, also where an event is
# rare (Bernstein's inequality; for 50 coordinates 1 of 2000). A variance may be 3 standard errors of the sample off
# (3 of 1000).

N = 4000


def draws(quantizer, x, seed=0):
    """N independent errors ``C(x) − x``, shape (N, d)."""
    rng = np.random.default_rng(seed)
    return np.array([quantizer.decode(quantizer.encode(x, rng)) - x for _ in range(N)], np.float64)


def assert_unbiased(errors, variances, largest):
    allowed = 4.94 * np.sqrt(variances / N) + 8.1 * largest / N + 1e-12
    assert (np.abs(errors.mean(axis=0)) <= allowed).all()


def assert_variance(errors, formula):
    squares = (errors**2).sum(axis=1)
    standard_error = squares.std(ddof=1) / np.sqrt(N)
    assert abs(squares.mean() - formula) <= 3 * standard_error + 1e-12 * formula


def heavy(seed, size=50):
    """Values of unequal size, as gradients are; one of them is zero."""
    x = normal(size, seed, "f8") ** 3
    x[3] = 0
    return x


@pytest.mark.parametrize("levels", [1, 4, 16, 127])
@pytest.mark.parametrize("seed", [1, 2])
def test_qsgd_is_unbiased_with_the_variance_of_alistarh(levels, seed):
    x, s = heavy(seed), levels
    r = s * np.abs(x) / np.linalg.norm(x)
    p = r - np.floor(r)
    variances = square(x) / s**2 * p * (1 - p)
    formula = variances.sum()
    assert formula <= min(x.size / s**2, np.sqrt(x.size) / s) * square(x)
    errors = draws(ps.QSGD(levels=levels), x, seed)
    assert_unbiased(errors, variances, np.linalg.norm(x) / s)
    assert_variance(errors, formula)


@pytest.mark.parametrize("quantizer", [ps.QSGD(), ps.QSGD(levels=1), ps.Ternary(), ps.RandomK(fraction=0.3)], ids=repr)
def test_the_relative_variance_is_that_of_the_draws_and_makes_a_contraction(quantizer):
    x = heavy(5)
    omega = quantizer.relative_variance(x)
    assert_variance(draws(quantizer, x, 7), omega * square(x))
    for scaled in (x, 1e-200 * x, 1e150 * x):
        assert quantizer.relative_variance(scaled) == pytest.approx(omega, rel=1e-6)
    assert quantizer.relative_variance(np.zeros(5)) in (0, omega, 5 / sent_count(0.3, 5) - 1)
    rng, left = np.random.default_rng(8), []
    for _ in range(N):
        left.append(square(x - quantizer.decode(quantizer.encode(contractive(quantizer, x), rng))))
    expected = omega / (1 + omega) * square(x)
    assert abs(np.mean(left) - expected) <= 3 * np.std(left, ddof=1) / np.sqrt(N) + 1e-12 * expected


@pytest.mark.parametrize("sign", [1, -1])
def test_rounding_at_random_errs_alike_on_both_sides_of_zero(sign):
    """400,000 values of about 2⁻¹⁶ of the largest add up to 6.1; ten sums have a standard error of 0.8."""
    x = np.full(400_001, 0.999 * 2.0**-16)
    x[0] = 1
    sums = [through(ps.Ternary(), sign * x, seed)[1:].sum() for seed in range(10)]
    assert abs(np.mean(sums) - sign * x[1:].sum()) <= 5 * np.sqrt(x[1:].sum() / 10)


@pytest.mark.parametrize("levels", [1, 16, 127])
def test_qsgd_gives_the_two_levels_around_a_value(levels):
    x = heavy(3)
    unit = np.linalg.norm(x) / levels
    y = through(ps.QSGD(levels=levels), x) / unit
    assert np.allclose(y, np.rint(y), atol=1e-12)
    assert np.abs(np.rint(y) - x / unit).max() < 1


def test_qsgds_codes_are_packed_into_as_few_bits_as_hold_them():
    sizes = {levels: ps.QSGD(levels=levels).encode(normal(800), None)["codes"].nbytes for levels in (1, 3, 4, 16, 127)}
    assert sizes == {1: 200, 3: 300, 4: 400, 16: 600, 127: 800}


@pytest.mark.parametrize("seed", [1, 2])
def test_ternary_is_unbiased_with_the_variance_of_wen(seed):
    x = heavy(seed)
    errors = draws(ps.Ternary(), x, seed)
    largest = np.abs(x).max()
    assert set(np.unique(np.rint((errors + x) / largest))) == {-1, 0, 1}
    assert_unbiased(errors, largest * np.abs(x) - x**2, largest)
    assert_variance(errors, largest * np.abs(x).sum() - square(x))


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.7, 1.0])
def test_randomk_is_unbiased_when_scaled_with_its_variance(fraction):
    x = heavy(4)
    k = sent_count(fraction, x.size)
    errors = draws(ps.RandomK(fraction=fraction), x, 5)
    scale = x.size / k
    assert_unbiased(errors, (scale - 1) * x**2, max(scale - 1, 1) * np.abs(x))
    assert_variance(errors, (scale - 1) * square(x))


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.7, 1.0])
def test_randomk_unscaled_keeps_k_values_and_loses_its_share(fraction):
    x = heavy(4)
    k = sent_count(fraction, x.size)
    errors = draws(ps.RandomK(fraction=fraction, unbiased=False), x, 6)
    assert np.isin(errors, [0, *-x]).all()
    assert_variance(errors, (1 - k / x.size) * square(x))


@pytest.mark.parametrize("count", [1, 5, 14, 19])
def test_randomks_places_are_uniform_and_distinct(count):
    """Each of d places is drawn by a share p = k/d of N draws, which exclude each other within a draw, so that
    ``(d−1)/d · Σ(O − Np)²/(Np(1−p))`` is χ² with d − 1 degrees of freedom: from 5.4 to 43.8 in 998 of 1000 cases."""
    size, drawn = 20, []
    for seed in range(N):
        chosen = random_indices(seed, size, count)
        assert chosen.size == count
        assert np.all(np.diff(chosen) > 0)
        drawn.append(chosen)
    p, observed = count / size, np.bincount(np.concatenate(drawn), minlength=size)
    statistic = (size - 1) / size * ((observed - N * p) ** 2).sum() / (N * p * (1 - p))
    assert 5.4 < statistic < 43.8


MANY = pytest.param(10**6, 400_000, marks=pytest.mark.soak)


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 1), (7, 0), (7, 7), (1000, 10), (1000, 999), MANY])
def test_randomks_places_come_again_with_the_seed(size, count):
    chosen = random_indices(2**63 - 1, size, count)
    assert np.array_equal(chosen, random_indices(2**63 - 1, size, count))
    assert np.array_equal(chosen, np.unique(chosen))
    assert chosen.size == count
    assert chosen.min(initial=0) >= 0
    assert chosen.max(initial=0) < max(size, 1)
    if 0 < count < size and size > 7:
        assert not np.array_equal(chosen, random_indices(0, size, count))


def test_randomks_places_are_those_that_the_docstring_says():
    words = np.random.PCG64(5).random_raw(100)
    candidates = [(int(word) >> 32) * 50 >> 32 for word in words]
    assert random_indices(5, 50, 12).tolist() == sorted(list(dict.fromkeys(candidates))[:12])
    left_out = list(dict.fromkeys(candidates))[:12]
    assert random_indices(5, 50, 38).tolist() == [place for place in range(50) if place not in left_out]


def test_randomk_scaled_stays_within_its_dtype():
    x = np.full(1000, 1000, "f2")
    assert set(through(ps.RandomK(), x)) == {0, 65504}


# TwoBit: MXNet's rule, and Threshold: Strom's


def mxnets_two_bits(gradient, residual, threshold):
    """The rule of MXNet's gradient compression, value by value: what arrives, and the new residual."""
    sent = []
    for g, r in zip(gradient, residual, strict=True):
        total = g + r
        sent.append(threshold if total >= threshold else -threshold if total <= -threshold else 0)
    return np.array(sent), gradient + residual - sent


@pytest.mark.parametrize("threshold", [0.5, 2.0])
def test_twobit_with_error_feedback_is_mxnets_compression(threshold):
    quantizer, memory, state, residual = ps.TwoBit(threshold=threshold), ps.ErrorFeedback(), {}, np.zeros(31)
    for step in range(20):
        g = normal(31, step, "f8")
        g[:4] = [threshold, -threshold, np.nextafter(threshold, 0), 0]
        p = memory.compensate(g, state)
        arrived = through(quantizer, p)
        memory.update(p, arrived, state)
        expected, residual = mxnets_two_bits(g, residual, threshold)
        assert np.array_equal(arrived, expected)
        assert np.array_equal(state["error"], residual)


def test_twobit_is_two_bits_a_value_and_what_reaches_the_threshold_is_sent():
    x = np.float32([0.1, -0.1, np.nextafter(np.float32(0.1), np.float32(0)), 0, 5])
    assert through(ps.TwoBit(threshold=0.1), x) == pytest.approx([0.1, -0.1, 0, 0, 0.1])
    assert ps.TwoBit().encode(normal(1001), None)["codes"].nbytes == 251


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, 1e60])
def test_threshold_sends_what_reaches_it_and_nothing_else(value, dtype):
    x = normal((20, 30), dtype=dtype)
    parts = ps.Threshold(value=value).encode(x, None)
    with np.errstate(over="ignore"):
        reached = np.abs(x) >= x.dtype.type(value)
    assert np.array_equal(through(ps.Threshold(value=value), x), np.where(reached, x, 0))
    assert parts["values"].size == parts["indices"].size == np.count_nonzero(reached)


# PowerSGD: a projection, which loses nothing where the rank is reached


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("batch", "rank"), [(1, 1), (2, 2), (4, 4), (3, 5)])
def test_powersgd_loses_nothing_of_a_linear_models_gradient(batch, rank, dtype):
    problem = ps.SoftmaxRegression(*ps.datasets.digits(dtype=dtype))
    g = problem.gradient(problem.init(np.random.default_rng(0)), slice(batch))["W"]
    quantizer = ps.PowerSGD(rank=rank)
    assert "P" in quantizer.encode(g, np.random.default_rng(0))
    error = np.linalg.norm(through(quantizer, g) - g) / np.linalg.norm(g)
    assert error < 20 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (12, 4, 5), (100, 9)])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_powersgd_never_increases_the_norm_and_is_no_better_than_the_best(shape, rank, dtype):
    for seed in SEEDS:
        x = normal(shape, seed, dtype)
        y = through(ps.PowerSGD(rank=rank), x, seed)
        if "values" in ps.PowerSGD(rank=rank).encode(x, None):  # factors would be larger
            assert np.array_equal(y, x)
            continue
        wide = x.astype("f8")
        rounding = 4 * float(np.finfo(dtype).eps)
        assert np.linalg.norm(y) <= np.linalg.norm(wide) * (1 + rounding)
        values = np.linalg.svd(wide.reshape(shape[0], -1), compute_uv=False)
        assert square(wide - y) >= (values[rank:] ** 2).sum() * (1 - rounding)  # Eckart and Young 1936
        assert square(wide - y) + square(y) == pytest.approx(square(wide), rel=4 * rounding)  # Pythagoras


def test_powersgd_passes_what_factors_would_not_make_smaller():
    for shape in [(), (7,), (3, 5), (0, 9), (1, 100)]:
        assert list(ps.PowerSGD().encode(normal(shape), None)) == ["values"]


# Adaptive: the first rung that is good enough


@pytest.mark.parametrize("target", [0, 1e-7, 1e-4, 1e-3, 0.01, 0.05, 0.3, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_adaptive_takes_the_cheapest_rung_that_meets_the_target(target, seed):
    x = normal((20, 30), seed)
    quantizer = ps.Adaptive(target_error=target)
    errors = [np.sqrt(square(x - through(rung, x)) / square(x)) for rung in quantizer.ladder]
    first = next(i for i, error in enumerate(errors) if error <= target or i == len(errors) - 1)
    parts = quantizer.encode(x, np.random.default_rng(0))
    assert parts["which"].tobytes().decode() == quantizer.ladder[first].name
    assert parts.get("bits", np.zeros(1)).item() == getattr(quantizer.ladder[first], "bits", 0)
    assert np.array_equal(ps.Adaptive().decode(parts), through(quantizer.ladder[first], x))
    sizes = [rung.nbytes(x.shape, x.dtype) for rung in quantizer.ladder]
    assert sizes == sorted(sizes)


def test_adaptive_takes_the_last_rung_in_any_case_and_any_ladder():
    ladder = (ps.TopK(fraction=0.01), ps.Sign())
    parts = ps.Adaptive(target_error=0, ladder=ladder).encode(normal(1000), None)
    assert parts["which"].tobytes() == b"sign"
    few = np.zeros(1000, "f4")
    few[5] = 3
    assert ps.Adaptive(target_error=0, ladder=ladder).encode(few, None)["which"].tobytes() == b"topk"
    with pytest.raises(ValueError, match="needs at least one"):
        ps.Adaptive(ladder=())


@pytest.mark.parametrize(
    ("which", "said"),
    [
        (b"adaptive", "cannot choose itself"),
        (b"unifrom", "Did you mean uniform"),
        (b"\xff\xfe", "no quantizer named"),
        (b"topk", "have no"),
    ],
)
def test_adaptive_refuses_another_rung_than_the_parts(which, said):
    parts = ps.Adaptive().encode(normal(9), None)
    with pytest.raises(ValueError, match=said):
        ps.Adaptive().decode({**parts, "which": np.frombuffer(which, "u1")})


# Uniform with blocks: each by itself


@pytest.mark.parametrize(
    ("size", "block"), [(100, 10), (101, 10), (5, 10), (0, 10), (1, 1), (1000, 64), (200_001, 70_000), (200_000, 3)]
)
@pytest.mark.parametrize("bits", [1, 3, 8])
def test_a_block_is_quantized_as_if_it_were_alone(size, block, bits):
    x = normal(size) * np.exp(normal(size, 1)).astype("f4")
    quantizer, alone = ps.Uniform(bits=bits, block=block), ps.Uniform(bits=bits)
    y, ends = through(quantizer, x), quantizer.encode(x, None)["range"]
    assert ends.shape == (2, -(-size // block))
    starts = range(0, size, block)
    for number, start in enumerate(starts if len(starts) < 1000 else (*starts[:50], *starts[-50:])):
        number, values = start // block, slice(start, start + block)
        assert ends[:, number].tolist() == [x[values].min(), x[values].max()]
        assert np.abs(y[values] - x[values]).max() <= alone.error_bound(x[values])
        assert np.array_equal(y[values], through(alone, x[values]))


def test_blocks_follow_values_of_unequal_size():
    x = np.concatenate([normal(64), 1e-3 * normal(64)])
    small = slice(64, None)
    assert np.abs(through(ps.Uniform(bits=4), x) - x)[small].max() > 50 * (
        np.abs(through(ps.Uniform(bits=4, block=64), x) - x)[small].max()
    )


# Packing


def packed_slowly(codes, bits):
    """The layout that the module's docstring describes, one bit at a time."""
    planes, whole, shift = [], len(codes) // 8 * 8, 0
    for width in (w for w in (4, 2, 1) if bits & w):
        m = whole * width // 8
        parts = [code >> shift & 2**width - 1 for code in codes[:whole]]
        planes += [sum(part << width * place for place, part in enumerate(parts[j::m])) for j in range(m)]
        shift += width
    left = "".join(f"{code:0{bits}b}" for code in codes[whole:])
    left += "0" * (-len(left) % 8)
    return [*planes, *(int(left[i : i + 8], 2) for i in range(0, len(left), 8))]


@pytest.mark.parametrize("bits", range(1, 9))
def test_packing_is_what_its_docstring_says_and_unpacking_undoes_it(bits):
    rng = np.random.default_rng(bits)
    for size in [*range(41), 65_536, 131_085]:
        codes = rng.integers(0, 2**bits, size, np.uint8)
        before = codes.copy()
        packed = pack(codes, bits)
        assert packed.nbytes == packed_nbytes(size, bits) == int(np.ceil(size * bits / 8))
        assert np.array_equal(unpack(packed, bits, size), codes)
        assert np.array_equal(codes, before)
        if size <= 40 and bits < 8:
            assert packed.tolist() == packed_slowly(codes.tolist(), bits)


@pytest.mark.parametrize(("bits", "size"), [(0, 8), (9, 8), (3, 9), (3, 5), (-1, 8)])
def test_unpacking_another_number_of_bytes_is_refused(bits, size):
    with pytest.raises(ValueError, match="do not hold"):
        unpack(np.zeros(3, np.uint8), bits, size)


# Bytes: what is said is what travels

FIXED = [quantizer for quantizer in QUANTIZERS if quantizer.nbytes((3,), "f4") is not None]
TENSORS = {"W": (13, 7), "U": (40, 30), "b": (5,), "s": (), "none": (0, 3)}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("quantizer", FIXED, ids=repr)
def test_fixed_widths_make_messages_of_one_length_which_nbytes_predicts(quantizer, dtype):
    predicted = sum(quantizer.nbytes(shape, dtype) for shape in TENSORS.values())
    lengths = {name: set() for name in ("msgpack", "npy", "protobuf", "safetensors", "pickle")}
    for number, fill in enumerate([np.zeros, np.ones, normal, lambda shape: -1e6 * normal(shape, 1)]):
        rng = np.random.default_rng(number)
        parts = {
            name: (quantizer.name, quantizer.encode(np.asarray(fill(shape)).astype(dtype), rng))
            for name, shape in TENSORS.items()
        }
        for serializer, seen in lengths.items():
            frames = build("serializer", serializer).dumps(Packet({"kind": "push", "clock": 3, "loss": 0.5}, parts))
            seen.add(sum(len(frame) for frame in frames))
            if serializer == "msgpack":
                assert sum(len(frame) for frame in frames[1:]) == predicted
    assert all(len(seen) == 1 for seen in lengths.values()), lengths


def test_what_depends_on_the_data_predicts_nothing():
    assert {quantizer.name for quantizer in QUANTIZERS if quantizer not in FIXED} == {"threshold", "adaptive"}


# All of them


def floats(dtype):
    """Values of this dtype up to a thousandth of its largest, zeros and subnormal ones among them."""
    largest = {"f2": 2.0**6, "f4": 2.0**117, "f8": 2.0**1013}[dtype]
    return st.floats(-largest, largest, width=8 * np.dtype(dtype).itemsize)


SHAPES_OF_ALL = st.one_of(st.sampled_from(SHAPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
ARRAYS = st.sampled_from(["f2", "f4", "f8"]).flatmap(
    lambda dtype: hnp.arrays(dtype, SHAPES_OF_ALL, elements=floats(dtype))
)


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=repr)
@given(x=ARRAYS, seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_any_array_comes_back_within_the_bound(quantizer, x, seed):
    before = x.copy()
    parts = quantizer.encode(x, np.random.default_rng(seed))
    y = type(quantizer)().decode(parts)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert np.isfinite(y).all()
    assert x.tobytes() == before.tobytes()
    bound, limits = quantizer.error_bound(x), np.finfo(x.dtype)
    if bound is not None:
        rounding = float(limits.eps) * float(np.abs(x).max(initial=0)) + float(limits.smallest_subnormal)
        assert np.abs(x.astype("f8") - y.astype("f8")).max(initial=0) <= bound * (1 + 1e-6) + rounding
    size = quantizer.nbytes(x.shape, x.dtype)
    assert size in (None, sum(array.nbytes for array in parts.values()))


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=repr)
def test_zeros_come_back_as_zeros(quantizer):
    for dtype in ("f2", "f4", "f8"):
        for shape in SHAPES:
            assert not through(quantizer, np.zeros(shape, dtype)).any()


HOSTILE = st.sampled_from(["f2", "f4", "f8", "u1", "u2", "u4", "u8", "i1", "i4", "i8", "?"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
)


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=repr)
@pytest.mark.parametrize("shape", [(3, 5), (12, 9)])
@given(data=st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_any_parts_give_an_array_or_a_value_error(quantizer, shape, data):
    parts = quantizer.encode(normal(shape), np.random.default_rng(0))
    whole = list(parts.values())
    for name in data.draw(st.sets(st.sampled_from([*parts, "extra"]), min_size=1)):
        replacement = data.draw(st.one_of(st.none(), HOSTILE, st.sampled_from(whole)), label=name)
        parts = {**parts, name: replacement}
    parts = {name: array for name, array in parts.items() if array is not None}
    with suppress(ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NaN and infinity among the values are for the shard to refuse
        assert isinstance(type(quantizer)().decode(parts), np.ndarray)


@pytest.mark.parametrize("quantizer", VARIANTS, ids=repr)
def test_other_fields_than_the_default_ones_meet_the_contract(quantizer):
    check(quantizer)


@pytest.mark.parametrize("index", [-1, -3, -(2**62), 3])
def test_an_index_below_zero_or_past_the_end_is_refused(index):
    parts = {"like": shape_tag(np.zeros(3, "f4")), "values": np.ones(1, "f4"), "indices": np.array([index])}
    for quantizer in (ps.TopK(), ps.Threshold()):
        with pytest.raises(ValueError, match="do not fit into 3 values"):
            quantizer.decode(parts)


# What all share


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (4, 5)])
def test_a_shape_tag_weighs_nothing_and_remembers(shape):
    seen = shape_tag(np.ones(shape, "f2"))
    assert seen.nbytes == 0
    assert zeros_for({"like": seen}).shape == shape
    assert zeros_for({"like": seen}).dtype == np.float16


def test_a_shape_tag_cannot_claim_the_memory():
    with pytest.raises(ValueError, match=f"larger than the {LARGEST_BYTES} bytes"):
        zeros_for({"like": np.empty((0, 2**20, 2**20), "f4")})
    with pytest.raises(ValueError, match=r"must have the shape \(0, …\)"):
        zeros_for({"like": np.zeros((1, 3))})


def test_a_part_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"have no 'scale'; they have: values, like"):
        part({"values": np.zeros(1), "like": np.zeros(1)}, "scale")


def test_a_half_floats_norm_is_worked_out_in_single_ones():
    small, many = np.array([2.9e-4], "f2"), np.full(70_000, 100, "f2")
    for x in (small, many):
        y = ps.QSGD().decode(ps.QSGD().encode(x, np.random.default_rng(0)))
        assert np.mean(y, dtype="f8") == pytest.approx(np.mean(x, dtype="f8"), rel=0.05)


@pytest.mark.parametrize("name", sorted(names("quantizer")))
@pytest.mark.parametrize("shape", [(0,), (), (7,), (3, 5), (1000,)])
def test_half_floats_come_back_as_half_floats(name, shape):
    for scale in (1e-5, 1.0, 10.0):
        x = np.asarray(scale * normal(shape), np.float16)
        quantizer = ps.build("quantizer", name)
        y = quantizer.decode(quantizer.encode(x, np.random.default_rng(0)))
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        assert np.isfinite(y).all()
        if (bound := quantizer.error_bound(x)) is not None:
            assert np.abs(x.astype("f8") - y).max(initial=0) <= bound * (1 + 1e-6) + 2.0**-10 * np.abs(x).max(initial=0)


RANGE = np.random.default_rng(0).uniform(-1, 1, 200)


def at_the_ends(dtype):
    """Values at both ends of the range of a dtype, and at both at once, by their names."""
    limits = np.finfo(dtype)
    most, least = float(limits.max), float(limits.smallest_normal)
    odd = np.arange(200) % 2 == 1
    return {
        "subnormal": RANGE * least / 2,
        "smallest": np.full(200, float(limits.smallest_subnormal)),
        "one subnormal": np.where(np.arange(200) == 7, float(limits.smallest_subnormal), 0),
        "small": RANGE * least * 2000,
        "large": RANGE * most,
        "half": RANGE * (most / 2),
        "largest": np.full(200, most),
        "both signs": np.where(odd, most, -most),
        "one large": np.where(np.arange(200) == 7, most, 0),
        "large and subnormal": np.where(odd, RANGE * most, RANGE * least),
        "usual and subnormal": np.where(odd, RANGE, RANGE * least),
    }


MORE = [ps.Uniform(1), ps.Uniform(4, block=64), ps.QSGD(1), ps.QSGD(127), ps.RandomK(0.9), ps.PowerSGD(1)]
MORE += [ps.TwoBit(1e-320), ps.TwoBit(1e308), ps.Threshold(1e-320), ps.Adaptive(0.0), ps.Adaptive(1.0)]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("quantizer", [*REGISTERED, *MORE], ids=lambda quantizer: quantizer.as_code())
def test_values_at_the_ends_of_the_range_stay_finite_and_within_the_bound(quantizer, dtype):
    for name, values in at_the_ends(dtype).items():
        x = values.reshape(10, 20).astype(dtype)
        y = quantizer.decode(quantizer.encode(x, np.random.default_rng(1)))
        assert np.isfinite(y).all(), name
        assert np.isfinite(quantizer.relative_variance(x)), name
        if (bound := quantizer.error_bound(x)) is not None:
            half = np.abs(y / 2.0 - x / 2.0).max() if dtype == "f8" else np.abs(y.astype("f8") - x).max() / 2
            assert half <= bound / 2 * (1 + 1e-12) + 5e-324, name


@pytest.mark.parametrize("memory", ["errorfeedback", "delta"])
@pytest.mark.parametrize("quantizer", [ps.QSGD(), ps.Ternary(), ps.Uniform(), ps.Sign()], ids=lambda one: one.as_code())
def test_a_memory_keeps_subnormal_values_finite(quantizer, memory):
    codec = ps.Codec(quantizer, memory)
    sender, receiver = codec.sender(), codec.receiver()
    for _ in range(3):
        decoded = receiver.decode(sender.encode({"w": RANGE * 1e-310}))
    assert np.isfinite(decoded["w"]).all()


def test_levels_are_unbiased_where_the_norm_is_no_double():
    x = np.full(4000, np.finfo("f8").max / 4)
    one = ps.QSGD(levels=1)
    mean = one.decode(one.encode(x, np.random.default_rng(0))) / x.size
    assert mean.sum() == pytest.approx(x[0], rel=0.1)
