"""Each aggregator against its formula, where its paper says that it holds, and what one bad worker can do."""

import numpy as np
import pytest

import minips as ps
from minips.core.shard import Shard
from minips.testing import check_aggregator


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


def test_a_mean_of_half_floats_is_added_in_single_ones():
    many = [ps.Contribution(worker, 0, 0, {"w": np.float16([40_000, 6e-8, 1])}) for worker in range(4)]
    assert ps.Mean().combine(many)["w"].tolist() == np.float16([40_000, 6e-8, 1]).tolist()
    assert ps.Mean().combine(many)["w"].dtype == np.float16


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


# Formulas


def normal(shape, seed=0, dtype="f4"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def combined(aggregator, gradients):
    return aggregator.combine(contributions(*gradients))["w"]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize(("workers", "trim"), [(1, 0), (3, 1), (5, 1), (5, 2), (8, 3)])
def test_trimmed_mean_leaves_out_the_ends_of_each_coordinate(workers, trim, dtype):
    gradients = normal((workers, 4, 5), workers, dtype)
    got = combined(ps.TrimmedMean(trim=trim), gradients)
    for place in np.ndindex(4, 5):
        kept = sorted(float(g[place]) for g in gradients)[trim : workers - trim]
        assert got[place] == pytest.approx(
            sum(kept) / len(kept), rel=8 * float(np.finfo(dtype).eps), abs=8 * float(np.finfo(dtype).eps)
        )
    assert got.dtype == dtype


def krums_choice(gradients, bad, select):
    """Blanchard et al. 2017, section 4: the places of the lowest scores, each over the n − f − 2 nearest others."""
    n, scores = len(gradients), []
    for i in range(n):
        distances = sorted(float(((gradients[i] - gradients[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(distances[: n - bad - 2]))
    return sorted(sorted(range(n), key=lambda i: scores[i])[:select])


@pytest.mark.parametrize(
    ("workers", "bad", "select"), [(3, 0, 1), (5, 1, 1), (5, 1, 2), (7, 2, 3), (12, 3, 1), (12, 3, 7)]
)
@pytest.mark.parametrize("seed", range(3))
def test_krum_takes_the_gradients_of_the_lowest_scores(workers, bad, select, seed):
    gradients = normal((workers, 3, 4), seed, "f8")
    chosen = krums_choice(gradients, bad, select)
    got = combined(ps.Krum(bad=bad, select=select), gradients)
    assert np.allclose(got, gradients[chosen].mean(axis=0), rtol=1e-12)
    if select == 1:
        assert got.tobytes() == gradients[chosen[0]].tobytes()


def test_krum_judges_all_tensors_together_and_by_name():
    """The second worker names its tensors in another order; each name's distance counts all the same."""
    rng = np.random.default_rng(0)
    pushes = [{"w": rng.normal(size=(2, 3)), "b": rng.normal(size=4)} for _ in range(5)]
    pushes[1] = dict(reversed(pushes[1].items()))
    flat = np.array([np.concatenate([push["w"].ravel(), push["b"]]) for push in pushes])
    (chosen,) = krums_choice(flat, 1, 1)
    got = ps.Krum().combine([ps.Contribution(i, 0, 0, push) for i, push in enumerate(pushes)])
    assert got["w"].tobytes() == pushes[chosen]["w"].tobytes()
    assert got["b"].tobytes() == pushes[chosen]["b"].tobytes()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_stale_gradients_count_less(power):
    gradients, ages = normal((4, 6), 1, "f8"), [0, 1, 3, 9]
    pushes = [one._replace(staleness=age) for one, age in zip(contributions(*gradients), ages, strict=True)]
    got = ps.StalenessWeighted(power=power).combine(pushes)["w"]
    expected = sum(g / (1 + age) ** power for g, age in zip(gradients, ages, strict=True)) / 4
    assert np.allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
def test_under_bsp_nothing_is_stale_and_the_weighted_mean_is_the_mean(workers):
    gradients = normal((workers, 50), 2, "f8")
    assert np.allclose(combined(ps.StalenessWeighted(), gradients), gradients.mean(axis=0), rtol=0, atol=1e-15)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_the_shard_says_how_stale_a_gradient_is_under_asp(power):
    """Three workers read version 0; the τth of their pushes to arrive moves the parameters by 1/(1 + τ)."""
    shard = Shard(
        {"w": np.zeros(1)},
        workers=3,
        aggregator=ps.StalenessWeighted(power=power),
        consistency=ps.ASP(),
        optimizer=ps.SGD(lr=1.0),
    )
    expected = 0.0
    for age, worker in enumerate((2, 0, 1)):
        shard.push(ps.Contribution(worker, 0, 0, {"w": np.array([3.0])}))
        expected -= 3.0 / 3 / (1 + age) ** power
        assert shard.params["w"].item() == pytest.approx(expected, rel=1e-12)
    shard.push(ps.Contribution(2, 1, 3, {"w": np.array([3.0])}))  # this one has read the newest
    assert shard.params["w"].item() == pytest.approx(expected - 1, rel=1e-12)
    assert shard.staleness == {0: 2, 1: 1, 2: 1}


def test_the_majority_of_signs_decides_and_a_tie_moves_nothing():
    gradients = [[5.0, -1, 1, 0, -2, 0], [0.1, -9, -1, 0, 3, 1], [-7.0, 1, 0, 0, 0, 1], [2.0, -1, 0, -0.0, 0, -5]]
    assert combined(ps.MajorityVote(), gradients).tolist() == [1, -1, 0, 0, 0, 1]
    many = normal((9, 100), 3)
    assert np.array_equal(combined(ps.MajorityVote(), many), np.sign(np.sign(many).sum(axis=0)))


# Which worker sent what is no matter


@pytest.mark.parametrize(
    "aggregator",
    [ps.Median(), ps.TrimmedMean(), ps.TrimmedMean(trim=2), ps.Krum(), ps.Krum(bad=2), ps.MajorityVote()],
    ids=repr,
)
def test_the_choice_does_not_depend_on_the_order(aggregator):
    gradients, rng = normal((7, 30), 4), np.random.default_rng(0)
    expected = combined(aggregator, gradients).tobytes()
    for _ in range(20):
        assert combined(aggregator, gradients[rng.permutation(7)]).tobytes() == expected


# Conditions


@pytest.mark.parametrize(
    ("aggregator", "least"),
    [
        (ps.TrimmedMean(), 3),
        (ps.TrimmedMean(trim=3), 7),
        (ps.Krum(), 5),
        (ps.Krum(bad=0), 3),
        (ps.Krum(bad=3), 9),
        (ps.Krum(bad=1, select=5), 8),
    ],
    ids=repr,
)
def test_too_few_workers_are_refused_when_combined_and_already_by_the_config(aggregator, least):
    said = rf"needs at least {least} contributions at once.*Use more workers under BSP"
    combined(aggregator, normal((least, 3)))
    with pytest.raises(ValueError, match=said):
        combined(aggregator, normal((least - 1, 3)))
    ps.Config(aggregator=aggregator, workers=least)
    ps.Config(aggregator=aggregator, workers=least + 1, consistency=ps.BSP(backup=1))
    with pytest.raises(ValueError, match=said):
        ps.Config(aggregator=aggregator, workers=least - 1)
    with pytest.raises(ValueError, match=rf"BSP\(backup=1\) with {least} workers combines {least - 1}"):
        ps.Config(aggregator=aggregator, workers=least, consistency=ps.BSP(backup=1))
    for consistency in (ps.ASP(), ps.SSP(staleness=2)):
        with pytest.raises(ValueError, match=rf"{said[:40]}.*with 20 workers combines 1"):
            ps.Config(aggregator=aggregator, workers=20, consistency=consistency)


@pytest.mark.parametrize("name", ["mean", "median", "stalenessweighted", "majorityvote"])
def test_the_others_combine_any_number(name):
    for consistency in ("bsp", "ssp", "asp"):
        ps.Config(aggregator=name, workers=1, consistency=consistency)


@pytest.mark.parametrize("aggregator", [ps.TrimmedMean(trim=2), ps.Krum(bad=0, select=4), ps.Krum(bad=3)], ids=repr)
def test_other_fields_than_the_default_ones_meet_the_contract(aggregator):
    check_aggregator(aggregator)


# Bad workers

GARBAGE = {
    "huge": lambda g, rng: np.full_like(g, 1e6),
    "as large as a double goes": lambda g, rng: np.full_like(g, 1.7e308),
    "flipped": lambda g, rng: -10 * g,
    "random": lambda g, rng: 100 * rng.normal(size=g.shape),
    "zero": lambda g, rng: np.zeros_like(g),
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("workers_and_bad", [(5, 1), (9, 3), (12, 4)])
@pytest.mark.parametrize("together", [True, False])
def test_krum_picks_a_good_gradient_and_the_median_stays_among_them(garbage, workers_and_bad, together):
    workers, bad = workers_and_bad
    rng = np.random.default_rng(workers)
    truth = rng.normal(size=40)
    gradients = truth + 0.1 * rng.normal(size=(workers, 40))
    culprits = rng.permutation(workers)[:bad]
    for culprit in culprits:
        of = gradients[culprit] if not together else truth  # what they send may be the same for all of them
        gradients[culprit] = GARBAGE[garbage](of, rng)
    good = np.delete(gradients, culprits, axis=0)
    assert combined(ps.Krum(bad=bad), gradients).tobytes() in {g.tobytes() for g in good}
    several = combined(ps.Krum(bad=bad, select=workers - 2 * bad - 2), gradients)
    robust = [several, combined(ps.TrimmedMean(trim=bad), gradients), combined(ps.Median(), gradients)]
    for y in robust:
        assert (y >= good.min(axis=0)).all()
        assert (y <= good.max(axis=0)).all()


class Spoiled(ps.SoftmaxRegression):
    """Digits, and one worker whose gradients are garbage: what ``garbage`` makes of the true ones."""

    def __init__(self, garbage=None, culprit=3):
        super().__init__(*ps.datasets.digits())
        self.garbage, self.culprit, self.bad = garbage, culprit, False

    def shard(self, worker, workers):
        part = super().shard(worker, workers)
        part.bad = self.garbage is not None and worker == self.culprit
        return part

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, {name: self.garbage(g) for name, g in gradient.items()} if self.bad else gradient


def accuracy(garbage, **fields):
    fields = {"batch_size": 128, "optimizer": ps.SGD(lr=0.2), **fields}
    config = ps.Config(workers=5, steps=100, transport="inproc", **fields)
    return ps.train(Spoiled(garbage), config, engine=ps.Threads()).accuracy


@pytest.fixture(scope="module")
def clean():
    """What the mean reaches where all workers are good."""
    return accuracy(None)


SPOILS = {
    "huge": lambda g: np.where(np.arange(g.shape[-1]) % 2, 1e6, -1e6).astype(g.dtype) * np.ones_like(g),
    "flipped": lambda g: -10 * g,
}


@pytest.mark.parametrize("garbage", SPOILS)
def test_one_bad_worker_of_five_ruins_the_mean_and_none_of_the_robust_ones(clean, garbage):
    assert clean > 0.95
    assert accuracy(SPOILS[garbage]) < 0.5
    for aggregator in (ps.Krum(), ps.Krum(select=2), ps.Median(), ps.TrimmedMean()):
        assert accuracy(SPOILS[garbage], aggregator=aggregator) >= clean - 0.02, aggregator


@pytest.mark.soak
def test_one_bad_voter_of_five_is_outvoted(clean):
    voting = {"push": ps.Codec(quantizer="sign"), "aggregator": "majorityvote", "optimizer": ps.SGD(lr=0.01)}
    assert min(accuracy(garbage, **voting) for garbage in (None, *SPOILS.values())) >= clean - 0.05


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("workers", [1, 3, 5])
def test_the_weighted_mean_is_the_formula_and_of_equal_rows_the_mean_to_the_bit(workers, dtype):
    rng, near = np.random.default_rng(workers), {"f2": 5e-3, "f4": 1e-6, "f8": 1e-14}[dtype]
    gradients = [{"w": rng.normal(size=(4, 3)).astype(dtype), "b": np.asarray(-0.0, dtype)} for _ in range(workers)]
    rows = [21, 20, 1, 7, 400][:workers]
    unequal = [ps.Contribution(k, 0, 0, g, rows=n) for k, (g, n) in enumerate(zip(gradients, rows, strict=True))]
    expected = sum(n * g["w"].astype("f8") for g, n in zip(gradients, rows, strict=True)) / sum(rows)
    np.testing.assert_allclose(ps.WeightedMean().combine(unequal)["w"], expected, rtol=near, atol=near)
    equal = [one._replace(rows=17) for one in unequal]
    for name, mean in ps.Mean().combine(equal).items():
        assert ps.WeightedMean().combine(equal)[name].tobytes() == mean.tobytes()
