"""Shards of unequal size, weights for them, and rounds of a learner's worker over a real server."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.best import Best, Figure, best_of
from minips.lab.course.intervals import Interval, interval
from minips_course.arrays import flat

WORKERS, TIMEOUT_S = 4, 20.0


class Unequal(ps.SoftmaxRegression):
    """A softmax regression with rows sorted by label, each worker having twice as many as the one before it."""

    def shard(self, worker: int, workers: int) -> "Unequal":
        sizes = 2.0 ** np.arange(workers)
        ends = np.rint(self.rows * np.cumsum(sizes) / sizes.sum()).astype(int)
        return self.subset(np.split(np.argsort(self.y, kind="stable"), ends[:-1])[worker])


def unequal() -> list[Unequal]:
    """Return the digits in unequal, sorted shards, for five seeds."""
    return [Unequal(*ps.datasets.digits(seed=seed)) for seed in range(5)]


def weights_compared(problem: Unequal) -> dict[str, float]:
    """Return how far two means of the workers' gradients are from that of all rows, in lengths of the latter: the mean
    that minips' `WeightedMean` makes, and the plain one.
    """
    rng = np.random.default_rng(0)
    params = {name: p + 0.1 * rng.normal(size=p.shape) for name, p in problem.init(rng).items()}
    parts = [problem.shard(worker, WORKERS) for worker in range(WORKERS)]
    pushed = [ps.Contribution(i, 0, 0, part.gradient(params), rows=part.rows) for i, part in enumerate(parts)]
    whole, found = flat(problem.gradient(params)), {}
    for name, rule in (("by_rows", ps.WeightedMean()), ("plain", ps.Mean())):
        found[name] = float(np.linalg.norm(flat(rule.combine(pushed)) - whole) / np.linalg.norm(whole))
    return found


def cost(best: Best, scheme: str, against: str = "1") -> dict[str, float]:
    """Return the held-out loss of a scheme in multiples of that of another, and half of the interval."""
    loss, half = best.ratio(scheme, against)
    return {"loss": loss, "half": half}


def at_best(best: Best, scheme: str) -> dict[str, float]:
    """Return the best inner and outer rate of a scheme, and its `cost`."""
    local = best.config(scheme).local
    assert local is not None
    assert isinstance(local.optimizer, ps.SGD)
    return {"inner": Figure(local.optimizer.lr), "rate": best.rates[scheme], **cost(best, scheme)}


def costs(alike: Interval, apart: Interval) -> dict[str, float]:
    """Return two ratios of losses, with similar rows and with sorted ones, and half of each interval."""
    return {"alike": alike.mean, "d_alike": alike.half, "apart": apart.mean, "d_apart": apart.half}


def averaged(
    configs: Sequence[ps.Config], problems: Sequence[ps.Problem], rates: Sequence[float], best: Best
) -> Interval:
    """Return the held-out loss at an outer rate of 1, of the config that is best there, with the shards of ``best``, in
    multiples of its loss with an exchange after each step.
    """
    shards = best.config("1").shards
    found = best_of(
        {str(i): replace(one, shards=shards) for i, one in enumerate(configs)}, problems, rates, metric="loss"
    )
    losses = min((found.values(name, 1.0) for name in found.sweeps), key=np.mean)
    return Interval(*map(Figure, interval(losses / best.values("1"))))


def drift(problem: ps.SoftmaxRegression, steps: int, rate: float) -> dict[str, float]:
    """Return how far workers end from their mean after these steps from the same start, each along the gradients of its
    shard: the root of the mean square, in multiples of the mean's distance from the start.
    """
    found, start = {}, problem.init(np.random.default_rng(0))
    for name, shards in (("alike", ps.Shuffled()), ("apart", ps.ByLabel())):
        ways = []
        for rows in shards.split(problem.y, WORKERS, np.random.default_rng(0)):
            part, end = problem.subset(rows), start
            for _ in range(steps):
                gradient = part.gradient(end)
                end = {tensor: x - rate * gradient[tensor] for tensor, x in end.items()}
            ways.append(flat(end) - flat(start))
        mean = np.mean(ways, axis=0)
        apart = np.linalg.norm(np.array(ways) - mean, axis=1)
        found[name] = float(np.sqrt(np.mean(apart**2)) / np.linalg.norm(mean))
    return found


def rows_and_digits(problem: Unequal) -> str:
    """Return the number of rows and the digits of each worker, as text."""
    parts = [problem.shard(worker, WORKERS) for worker in range(WORKERS)]
    return ", ".join(f"{part.rows} ({int(part.y.min())}–{int(part.y.max())})" for part in parts)


def over_a_server(one_round: Callable[..., object], problem: Unequal, rounds: int, steps: int, rate: float) -> float:
    """Let four workers call ``one_round`` with a real server that averages what they push, and return how far its
    parameters end from those of minips' own FedAvg, in lengths of the latter.
    """
    plain = ps.Config(workers=WORKERS, optimizer=ps.SGD(1.0), transport=ps.InProc(), timeout_s=TIMEOUT_S)
    start = problem.init(np.random.default_rng(0))
    with ps.Server(start, plain).serve() as server:

        def work(worker: int) -> Any:
            part = problem.shard(worker, WORKERS)
            with ps.connect(server.address, plain, worker=worker, token=server.token) as client:
                for _ in range(rounds):
                    one_round(client, part, problem.rows, steps, rate)
                return client.pull().result(TIMEOUT_S)

        with ThreadPoolExecutor(WORKERS) as pool:
            ended, *_ = [one.result() for one in [pool.submit(work, worker) for worker in range(WORKERS)]]
    local = ps.LocalSteps(steps, ps.SGD(rate))
    own = replace(plain, aggregator=ps.WeightedMean(), local=local, batch_size=None, steps=rounds * steps)
    wanted = flat(ps.train(problem, own, engine=ps.Threads()).params)
    return float(np.linalg.norm(flat(ended) - wanted) / np.linalg.norm(wanted))
