"""Who holds which rows: the same on every engine, by hand and in a saved run; the mean that weighs by them."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

import minips as ps
from minips import seeds
from minips.engines.worker import shards_of
from minips.machines.fit import Line
from minips.training import byhand

WAIT_S = 30.0
DATA = ps.datasets.synthetic(rows=150, features=6, classes=3)  # 30 rows are held out
PROBLEM = ps.SoftmaxRegression(*DATA)
CONFIG = ps.Config(workers=3, steps=8, batch_size=8, optimizer=ps.SGD(lr=0.5), seed=4)
ENGINES = ["threads", "processes", "simulated"]


@dataclass(frozen=True)
class Lopsided(ps.Shards):
    """Worker k holds k + 1 shares of the rows."""

    name = "lopsided"

    def split(self, y, workers, rng):
        ends = np.cumsum(np.arange(1, workers)) * len(y) // (workers * (workers + 1) // 2)
        return np.split(np.arange(len(y)), ends)


UNEQUAL = replace(CONFIG, shards=Lopsided(), aggregator=ps.WeightedMean())


def rows_of(config, problem=PROBLEM):
    shard = shards_of(problem, config)
    return [shard(worker) for worker in range(config.workers)]


def assert_same(params, others):
    assert params.keys() == others.keys()
    for name, p in params.items():
        assert p.tobytes() == others[name].tobytes()


# Whose rows


def test_contiguous_shards_are_the_slices_that_a_problem_makes():
    rows = ps.Contiguous().split(PROBLEM.y, 7, np.random.default_rng(0))
    for worker, mine in enumerate(rows):
        slices = PROBLEM.shard(worker, 7)
        np.testing.assert_array_equal(PROBLEM.X[mine], slices.X)
        np.testing.assert_array_equal(PROBLEM.y[mine], slices.y)


def test_shards_by_label_have_few_labels_and_shuffled_ones_have_all():
    for shards, most in ((ps.ByLabel(), 2), (ps.Shuffled(), 3)):
        parts = rows_of(replace(CONFIG, shards=shards))
        assert [len(set(part.y)) <= most for part in parts] == [True] * 3
        assert sorted(x.tobytes() for part in parts for x in part.X) == sorted(x.tobytes() for x in PROBLEM.X)
    assert all(len(set(part.y)) == 3 for part in parts)


def test_values_are_sorted_where_there_are_no_labels():
    y = np.sin(np.arange(30.0))
    parts = rows_of(replace(CONFIG, shards="bylabel"), ps.LinearRegression(np.ones((30, 2)), y))
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), np.sort(y))


def test_shuffled_shards_follow_from_the_seed_and_weights_go_along():
    weights = np.arange(120.0) + 1
    problem = ps.SoftmaxRegression(DATA.X, DATA.y, weights=weights)
    config = replace(CONFIG, shards=ps.Shuffled())
    parts, others = rows_of(config, problem), rows_of(replace(config, seed=5), problem)
    drawn = np.array_split(seeds.shards(4).permutation(120), 3)
    for part, other, mine in zip(parts, others, drawn, strict=True):
        np.testing.assert_array_equal(part.weights, problem.weights[mine])
        np.testing.assert_array_equal(part.X, problem.X[mine])
        assert not np.array_equal(part.X, other.X)


@pytest.mark.parametrize("shards", [ps.Shuffled(), ps.ByLabel()], ids=repr)
def test_every_engine_and_the_all_reduce_train_on_the_same_rows(shards):
    config = replace(CONFIG, shards=shards)
    runs = [ps.train(PROBLEM, config, engine=engine) for engine in ENGINES]
    for run in runs[1:]:
        assert_same(run.params, runs[0].params)
    rings = [ps.train(PROBLEM, replace(config, exchange="ring"), engine=engine) for engine in ENGINES[::2]]
    assert_same(rings[0].params, rings[1].params)
    for name, p in ps.train(PROBLEM, replace(config, shards="contiguous"), engine="threads").params.items():
        assert not np.array_equal(p, runs[0].params[name])
        np.testing.assert_allclose(rings[0].params[name], runs[0].params[name], rtol=1e-4, atol=1e-6)


def test_a_saved_run_keeps_its_shards_and_goes_on_to_the_bit(tmp_path):
    config = replace(CONFIG, shards=ps.Shuffled(), aggregator=ps.WeightedMean())
    ps.train(PROBLEM, replace(config, steps=3), engine="threads").save(tmp_path / "run.npz")
    assert ps.Run.load(tmp_path / "run.npz").config.shards == ps.Shuffled()
    run = ps.train(PROBLEM, config, engine="simulated", resume=tmp_path / "run.npz")
    assert_same(run.params, ps.train(PROBLEM, config, engine="threads").params)


class Own(ps.SoftmaxRegression):
    """Shares out its rows by itself."""

    def shard(self, worker, workers):
        return super().shard(workers - 1 - worker, workers)


def test_a_problems_own_shard_goes_first_and_takes_no_other_shards():
    problem = Own(*DATA)
    np.testing.assert_array_equal(rows_of(CONFIG, problem)[0].X, PROBLEM.shard(2, 3).X)
    config = replace(CONFIG, shards="bylabel")
    refused = r"Own divides its rows with its own shard.*shards=ByLabel\(\) would do nothing.*override subset"
    for engine in ENGINES:
        with pytest.raises(ValueError, match=refused):
            ps.train(problem, config, engine=engine)
    with pytest.raises(ValueError, match=refused), byhand.serving(problem, config, None, "t"):
        pass


@dataclass(frozen=True)
class Wrong(ps.Shards):
    name = "wrong"
    how: str = "losing"

    def split(self, y, workers, rng):
        whole = np.arange(len(y))
        if self.how == "two global draws":
            return np.array_split(np.random.default_rng().permutation(len(y)), workers)
        if self.how == "changing":
            y[...] = y[0]
        parts = np.array_split(whole, workers)
        first, last = parts[0], parts[-1]
        return {
            "losing": [first[1:], *parts[1:]],
            "twice": [*parts[:-1], np.append(last, last[-1:])],
            "too many": [*parts, first[:0]],
            "empty": [*(whole[:0] for _ in range(workers - 1)), whole],
            "lists": [part.tolist() for part in parts],
        }.get(self.how, parts)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("losing", r"shards of \[.*\] rows do not hold each of 40 rows once"),
        ("twice", "rows do not hold each of 40 rows once"),
        ("too many", "returned 2 index arrays for 1 workers"),
        ("empty", r"a worker has no rows: the shards have \[0, 40\]"),
        ("lists", "a shard must be a one-dimensional array of row numbers"),
        ("two global draws", "the shards differ for the same draws"),
        ("changing", "read-only"),
    ],
)
def test_wrong_shards_are_told_why(registry, how, said):
    ps.register(Wrong)
    with pytest.raises(AssertionError, match=rf"Wrong\(.*\)\.split\(class numbers.*{said}"):
        ps.testing.check(Wrong(how))


@pytest.mark.parametrize("how", ["losing", "twice", "too many", "empty"])
def test_wrong_shards_end_a_run_before_it_begins(how):
    with pytest.raises(ValueError, match=r"must give each of 120 rows to one of 3 workers, and every worker some; got"):
        ps.train(PROBLEM, replace(CONFIG, shards=Wrong(how)), engine="simulated")


@pytest.mark.parametrize("shards", ["contiguous", "shuffled"])
def test_more_workers_than_rows_are_refused(shards):
    with pytest.raises(ValueError, match="120 training rows cannot be shared among 121 workers"):
        ps.train(PROBLEM, replace(CONFIG, workers=121, shards=shards), engine="simulated")


# The mean that weighs


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("servers", [1, 2])
def test_unequal_shards_that_are_weighed_make_the_gradient_of_all_rows(engine, servers):
    X = DATA.X.astype("f8")
    problem = ps.LinearRegression(X, X @ np.arange(6.0) + np.sin(np.arange(120)))
    config = replace(UNEQUAL, batch_size=None, servers=servers, optimizer=ps.SGD(lr=0.1))
    assert [part.rows for part in rows_of(config, problem)] == [20, 40, 60]
    params = problem.init(np.random.default_rng(0))
    for _ in range(config.steps):
        params = {name: p - 0.1 * problem.gradient(params)[name] for name, p in params.items()}
    run = ps.train(problem, config, engine=engine)
    plain = ps.train(problem, replace(config, aggregator="mean"), engine="threads")
    for name, p in params.items():
        np.testing.assert_allclose(run.params[name], p, rtol=1e-12, atol=1e-12)
        assert np.abs(plain.params[name] - p).max() > 1e-4


def test_by_hand_it_is_the_same_run_to_the_bit(registry):
    ps.register(Lopsided)
    with byhand.serving(PROBLEM, replace(UNEQUAL, servers=2, transport="inproc"), None, "t") as served:
        addresses = [server.address for server in served.servers]
        with ThreadPoolExecutor() as pool:
            done = [pool.submit(ps.work, PROBLEM, addresses, token="t") for _ in range(3)]
            served.wait()
            assert sorted(one.result(WAIT_S).worker for one in done) == [0, 1, 2]
        run = served.end()
    assert_same(run.params, ps.train(PROBLEM, replace(UNEQUAL, servers=2), engine="threads").params)


def pair(**options):
    config = ps.Config(workers=2, transport="inproc", aggregator="weightedmean", optimizer=ps.SGD(lr=1.0))
    return ps.Server({"w": np.zeros(2)}, config, **options).serve()


def test_a_client_tells_its_rows():
    with pair() as server:
        clients = [
            ps.connect(server.address, worker=worker, token=server.token, rows=rows)
            for worker, rows in ((0, 1), (None, lambda worker, config: 2 + worker))
        ]
        futures = [
            client.push_pull({"w": np.array(g)}) for client, g in zip(clients, ([4.0, 0], [0, 8.0]), strict=True)
        ]
        for future in futures:
            np.testing.assert_allclose(future.result(WAIT_S)["w"], [-1.0, -6.0])
        for client in clients:
            client.close()


def test_a_push_of_a_worker_that_told_no_rows_is_refused_and_changes_nothing():
    with pair() as server:
        with ps.connect(server.address, token=server.token) as client:
            with pytest.raises(
                ValueError, match=r"WeightedMean\(\) weights each worker by the rows.*worker 0 sent 0.0. Send their"
            ):
                client.push({"w": np.ones(2)}).result(WAIT_S)
            assert (client.clock, server.shard.clocks) == (0, [0, 0])
        with ps.connect(server.address, token=server.token, rows=5) as client:
            assert client.push({"w": np.ones(2)}).result(WAIT_S) == "held"


def test_another_client_does_not_inherit_the_rows_of_the_last_one():
    with pair() as server:
        ps.connect(server.address, token=server.token, rows=5).close()
        with ps.connect(server.address, token=server.token) as client, pytest.raises(ValueError, match=r"sent 0\.0"):
            client.push({"w": np.ones(2)}).result(WAIT_S)


@pytest.mark.parametrize("rows", [-1, float("nan"), float("inf")])
def test_rows_that_are_no_number_of_rows_are_refused(rows):
    with pair() as server, pytest.raises(ValueError, match=f"a number of rows, .* under 'rows'; got {float(rows)!r}"):
        ps.connect(server.address, token=server.token, rows=rows)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"consistency": "ssp"},
            r"WeightedMean\(\) weighs the pushes of a round; SSP\(staleness=2\) has none\. Use BSP",
        ),
        ({"consistency": "asp"}, r"ASP\(\) has none\. Use BSP"),
        ({"exchange": "ring"}, r"RingAllReduce\(\).*takes aggregator=Mean\(\) only, got WeightedMean\(\)"),
    ],
)
def test_it_is_refused_where_contributions_come_one_by_one(fields, said):
    with pytest.raises(ValueError, match=said):
        ps.Config(aggregator="weightedmean", **fields)


@pytest.mark.parametrize("servers", [1, 2])
def test_the_bytes_are_predicted_with_the_word_in_hello_and_without_it_where_nothing_is_weighed(servers):
    config = replace(UNEQUAL, servers=servers)
    calibration = ps.cost.Calibration(worker={}, server={}, worker_rest=Line(1e-4), idle=Line(1e-4))
    sent = {}
    for aggregator in ("mean", "weightedmean"):
        config = dataclasses.replace(config, aggregator=aggregator)
        predicted = ps.cost.predict(PROBLEM, config, calibration)
        run = ps.train(PROBLEM, config, engine="threads")
        assert predicted.exact_bytes
        assert (predicted.bytes_sent, predicted.bytes_received) == (run.bytes_sent, run.bytes_received)
        sent[aggregator] = run.bytes_sent
    assert sent["weightedmean"] - sent["mean"] == 3 * servers * len(b"\xa4rows\xcb" + bytes(8))


def test_a_backup_worker_that_is_late_does_not_weigh():
    config = replace(CONFIG, aggregator="weightedmean", consistency=ps.BSP(backup=1), optimizer=ps.SGD(lr=1.0))
    shard = ps.Shard.of(config, {"w": np.zeros(1)})
    for worker, (rows, g) in enumerate([(10, 3.0), (20, 6.0), (1000, 1.0)]):
        shard.push(ps.Contribution(worker, 0, 0, {"w": np.array([g])}, rows=rows))
    np.testing.assert_allclose(shard.params["w"], [-5.0])
