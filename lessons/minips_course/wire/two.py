"""Trains with several of a learner's servers, each of which holds some of the keys."""

from collections.abc import Callable, Sequence

import numpy as np

from minips.lab.course.own import BATCH, method
from minips.problems import SoftmaxRegression
from minips.stage import Tensors
from minips_course.arrays import copied

Split = Callable[[Tensors, int], Sequence[Tensors]]
Join = Callable[[Sequence[Tensors], Tensors], Tensors]


def train(
    cls: type,
    split: Split,
    join: Join,
    problem: SoftmaxRegression,
    workers: int = 4,
    steps: int = 100,
    lr: float = 0.5,
    seed: int = 0,
    servers: int = 2,
) -> tuple[Tensors, list[int]]:
    """Train as `lab.train_own` does, one worker after the other. Return the parameters, and the bytes that each server
    received.
    """
    start = problem.init(np.random.default_rng(seed))
    shards = [problem.shard(worker, workers) for worker in range(workers)]
    rngs = [np.random.default_rng([seed, worker]) for worker in range(workers)]
    held = [cls(copied(piece), workers, lr) for piece in split(start, servers)]
    pack, unpack, received = method(cls, "pack"), method(cls, "unpack"), [0] * servers

    def pull(worker: int) -> Tensors:
        answers = [server.handle(worker, ("pull", {})) for server in held]
        return join([unpack(pack(params)) for ((_, (_, params)),) in answers], start)

    for _ in range(steps):
        for worker, (shard, rng) in enumerate(zip(shards, rngs, strict=True)):
            rows = rng.choice(shard.rows, min(BATCH, shard.rows), replace=False)
            gradient = shard.gradient(pull(worker), rows)
            for number, piece in enumerate(split(gradient, servers)):
                message = pack(piece)
                received[number] += len(message)
                held[number].handle(worker, ("push", unpack(message)))
    return pull(0), received
