"""Three tools: a problem whose parameters record what each worker has read, the virtual seconds of a rule of waiting,
and training in virtual seconds with the learner's own server.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import minips as ps
from minips.lab.course.intervals import interval
from minips.lab.course.own import BATCH, method
from minips.stage import Tensors

WORKERS, STEPS, ROOM = 4, 25, 80
DELAYS = ps.Delays(seconds=0.008, slow={3: 4.0})


class Log(ps.Problem):
    """A problem with two parameters: ``count``, each worker's updates, and ``seen``, the counts read at each clock.

    A gradient adds one to its worker's count, and records in ``seen`` the counts that the worker has just read.
    """

    me = clock = 0

    def __init__(self) -> None:
        super().__init__(np.zeros((WORKERS, 1)), np.zeros(WORKERS))  # a row for each worker

    def init(self, rng: np.random.Generator) -> Tensors:
        return {"count": np.zeros(WORKERS), "seen": np.zeros((ROOM, WORKERS, WORKERS))}

    def shard(self, worker: int, workers: int) -> "Log":
        part = super().shard(worker, workers)
        part.me = worker
        return part

    def loss_and_gradient(self, params: Tensors, rows: object = None) -> tuple[float, Tensors]:
        step = {name: np.zeros_like(p) for name, p in params.items()}
        if self.clock < ROOM:
            step["count"][self.me] = 1
            step["seen"][self.clock, self.me] = 1 + params["count"]  # 0 means that nothing was read
        self.clock += 1
        return 0.0, {name: -WORKERS * x for name, x in step.items()}  # with lr = 1, the server applies a quarter of it


def lags(rule: ps.Consistency) -> NDArray[np.int64]:
    """Return each read's lag in a real run: the reader's clock minus the smallest count of updates that it read.
    Worker 3 is four times slower than the others.
    """
    config = ps.Config(workers=WORKERS, steps=STEPS, consistency=rule, optimizer=ps.SGD(lr=1.0), delays=DELAYS)
    seen = ps.train(Log(), config, engine=ps.Threads()).params["seen"]
    clocks, readers = np.nonzero(seen.any(axis=2))
    found: NDArray[np.int64] = clocks - (seen[clocks, readers] - 1).min(axis=1).astype(np.int64)
    return found


def virtual_s(
    rule: ps.Consistency, delays: ps.Delays, steps: int, seed: int, abandon: bool = False, workers: int = WORKERS
) -> float:
    """Return the seconds until there are ``steps`` updates for each of the workers, if only computing takes time.

    If a round ends without a worker, that worker finishes its step, as a real worker does; with ``abandon``, it drops
    the step and starts the next one.

    >>> virtual_s(ps.BSP(), ps.Delays(0.5, slow={3: 4.0}), steps=10, seed=0)
    20.0
    >>> drawn = ps.Delays(0.01, exponential=True)
    >>> [round(virtual_s(ps.BSP(backup=1), drawn, 30, 1, abandon), 3) for abandon in (False, True)]
    [0.595, 0.534]
    """
    nothing = {"w": np.zeros(1)}
    shard = ps.Shard.of(ps.Config(workers=workers, consistency=rule), nothing, updates=workers * steps)
    now, waiting, ends = 0.0, {*range(workers)}, dict[int, float]()
    while not shard.done:
        for worker in [one for one in waiting if shard.may_pull(one)]:
            waiting.remove(worker)
            ends[worker] = now + delays.of(worker, shard.clocks[worker], seed)
        worker = min(ends, key=ends.__getitem__)
        now = ends.pop(worker)
        shard.push(ps.Contribution(worker, shard.clocks[worker], version=0, gradients=nothing))
        waiting.add(worker)
        for late in [one for one in ends if abandon and shard.clocks[one] < shard.rounds]:
            shard.skip(late)
            del ends[late]
            waiting.add(late)
    return now


def times(
    rules: Mapping[str, ps.Consistency],
    delays: ps.Delays,
    workers: int,
    steps: int = 300,
    seeds: int = 5,
    abandon: bool = False,
) -> dict[str, NDArray[np.float64]]:
    """Return, for each rule, the virtual time of an update of each worker, a value for each seed. The unit is the mean
    time of a step of a worker that is not slow.

    >>> times({"BSP": ps.BSP()}, ps.Delays(0.5, slow={3: 4.0}), workers=4, steps=10, seeds=1)
    {'BSP': array([4.])}
    """
    return {
        name: np.array([virtual_s(rule, delays, steps, seed, abandon, workers) for seed in range(seeds)])
        / (steps * delays.seconds)
        for name, rule in rules.items()
    }


def shares(found: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Return each rule's time as a share of BSP's, the mean over the seeds."""
    return {name: float((took / found["BSP"]).mean()) for name, took in found.items()}


def formula_saves(workers: int) -> float:
    """Return the share of BSP's time that one backup worker saves by the formula, with exponential times.

    >>> round(formula_saves(4), 3)
    0.307
    """
    bsp, backup = (ps.cost.exponential_round_s(1.0, workers, backup=one) / (workers - one) for one in (0, 1))
    return 1 - backup / bsp


class VirtualRun(NamedTuple):
    """The virtual seconds of a run with the learner's own server, and its accuracy on held-out rows."""

    seconds: float
    accuracy: float


def virtual_own(
    cls: type,
    problem: ps.SoftmaxRegression,
    delays: ps.Delays,
    steps: int,
    seed: int,
    workers: int = WORKERS,
    lr: float = 0.5,
) -> VirtualRun:
    """Train like `minips.lab.train_own`, with the same rows and times, but in virtual time: only computing takes time.

    ``handle`` gets the messages of the workers in the order of their times. ValueError if a worker is never answered.
    """
    server: Any = cls(problem.init(np.random.default_rng(seed)), workers, lr)
    team = [_Worker(cls, problem.shard(i, workers), np.random.default_rng([seed, i])) for i in range(workers)]
    now, ends = 0.0, dict[int, float]()

    def send(sender: int, kind: str, tensors: Tensors) -> None:
        for to, (said, values) in server.handle(sender, (kind, tensors)):
            if said == "error":
                raise ValueError(f"The server refused a {kind} from worker {sender}: {values}")
            if said == "params":
                team[to].compute(values)
                ends[to] = now + delays.of(to, team[to].clock, seed)
            elif team[to].clock < steps:
                send(to, "pull", {})

    for worker in range(workers):
        send(worker, "pull", {})
    while ends:
        worker = min(ends, key=ends.__getitem__)
        now = ends.pop(worker)
        send(worker, "push", team[worker].pushed(server.params))
    if any(worker.clock < steps for worker in team):
        raise ValueError("The server left a worker without an answer for ever.")
    return VirtualRun(now, (problem.held_out() or problem).accuracy(server.params))


def own_table(rounds: type, ahead: Mapping[int, type], problem: ps.SoftmaxRegression) -> str:
    """Return a line for 4, 8 and 16 workers: the virtual time of a server of each staleness in ``ahead``, if slowness
    comes and goes, in % of the server with ``rounds``: 40 steps of each worker, mean and interval of five seeds.
    """
    drawn = ps.Delays(seconds=0.01, exponential=True)
    lines = ["workers | " + " | ".join(f"staleness {one}" for one in ahead) + "   (% of the rounds' time)"]
    for workers in (4, 8, 16):
        took = [
            np.array([virtual_own(cls, problem, drawn, 40, seed, workers).seconds for seed in range(5)])
            for cls in (rounds, *ahead.values())
        ]
        columns = ["{:5.0f} ± {:.0f}".format(*interval(100 * one / took[0])) for one in took[1:]]
        lines.append(f"{workers:7} | " + " | ".join(f"{column:11}" for column in columns))
    return "\n".join(lines)


class _Worker:
    """A worker of `virtual_own`: it computes gradients, and encodes them with the methods of its server's class."""

    def __init__(self, cls: type, problem: ps.SoftmaxRegression, rng: np.random.Generator) -> None:
        self.cls, self.problem, self.rng = cls, problem, rng
        self.clock, self.memory = 0, dict[str, Any]()
        self.gradient: Tensors = {}

    def compute(self, params: Tensors) -> None:
        rows = self.rng.choice(self.problem.rows, min(BATCH, self.problem.rows), replace=False)
        self.gradient = self.problem.gradient(params, rows)

    def pushed(self, params: Tensors) -> Tensors:
        """Return the gradient as the server decodes it, and count the step."""
        whole = method(self.cls, "compensate")(self.gradient, self.memory)
        parts = method(self.cls, "encode")(whole)
        self.memory = method(self.cls, "remember")(whole, method(self.cls, "decode")(parts, self.gradient))
        self.clock += 1
        decoded: Tensors = method(self.cls, "decode")(parts, params)
        return decoded
