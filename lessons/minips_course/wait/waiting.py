"""Two tools: a problem whose parameters record what each worker has read, and the virtual seconds that a run takes."""

import numpy as np
from numpy.typing import NDArray

import minips as ps
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


def virtual_s(rule: ps.Consistency, delays: ps.Delays, steps: int, seed: int, abandon: bool = False) -> float:
    """Return the seconds that four workers need for ``steps`` updates each if only computing takes time.

    If a round ends without a worker, that worker finishes its step, as a real worker does; with ``abandon``, it drops
    the step and starts the next one.

    >>> virtual_s(ps.BSP(), ps.Delays(0.5, slow={3: 4.0}), steps=10, seed=0)
    20.0
    >>> drawn = ps.Delays(0.01, exponential=True)
    >>> [round(virtual_s(ps.BSP(backup=1), drawn, 30, 1, abandon), 3) for abandon in (False, True)]
    [0.595, 0.534]
    """
    nothing = {"w": np.zeros(1)}
    shard = ps.Shard.of(ps.Config(workers=WORKERS, consistency=rule), nothing, updates=WORKERS * steps)
    now, waiting, ends = 0.0, {*range(WORKERS)}, dict[int, float]()
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
