"""The steps that a config needs: its rounds in this process, with nothing sent and no waiting.

Gradients, codecs, partition, aggregator, optimizer and schedule are those of a run, and so are the random draws: under
BSP the parameters are a run's to the bit.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.core.allreduce_session import all_reduce, carry_out_together
from minips.core.collectives import AllReduce
from minips.core.config import Config
from minips.core.message import DivergedError, Message, NonFiniteError, check_finite
from minips.core.partition import cut, join, partition
from minips.core.presence import Attending
from minips.core.protocol import ServerLink, ServerSession, WorkerSession
from minips.core.reduction import AllReduceState
from minips.core.sessions import Receive, Send, Session, carry_out
from minips.core.shard import Shard
from minips.engines.worker import compute
from minips.problems import Problem
from minips.stage import Frames, Tensors
from minips.stages.aggregators import Contribution
from minips.stages.consistency import BSP
from minips.trace import UNTIMED, Trace


def rounds(problem: Problem, config: Config) -> Iterator[Tensors]:
    """The parameters after each round of BSP, whatever the config's consistency, until one would not be finite."""
    config = replace(config.for_rows(problem.rows), delays=None, overlap=False, consistency=BSP())
    parts = [problem.shard(worker, config.workers) for worker in range(config.workers)]
    params = problem.init(seeds.init(config.seed))
    with suppress(NonFiniteError, DivergedError):
        if isinstance(config.exchange, AllReduce):
            each = _together(parts, params, config)
        else:
            each = _served(parts, params, config)
        following = one_blas_thread(partial(next, each, None))  # computed as in a run
        yield from iter(following, None)


@one_blas_thread
def steps_to(problem: Problem, config: Config, target_accuracy: float, *, every: int = 5) -> int | None:
    """The first step after which that share of the held-out rows is classified rightly; None where the config's steps
    are not enough. That is looked at after ``every`` so many steps, since to look may take longer than a step.
    """
    held_out, config = problem.held_out(), config.for_rows(problem.rows)
    for step, params in enumerate(rounds(problem, config), 1):
        if step % every == 0 or step == config.steps:
            accuracy = None if held_out is None else held_out.accuracy(params)
            if accuracy is None:
                raise ValueError(
                    f"{type(problem).__name__} has no accuracy on held-out rows. Give it validation rows, and classes."
                )
            if accuracy >= target_accuracy:
                return step
    return None


def _served(parts: list[Problem], params: Tensors, config: Config) -> Iterator[Tensors]:
    layouts = partition(params, config.servers)
    shards = [Shard.of(config, cut(params, layout)) for layout in layouts]
    trace = UNTIMED
    servers = [
        ServerSession(shard, config, index, layout, trace)
        for index, (shard, layout) in enumerate(zip(shards, layouts, strict=True))
    ]
    workers = [
        WorkerSession(worker, [ServerLink(config, worker, index, trace) for index in range(config.servers)])
        for worker in range(config.workers)
    ]

    here = Attending()

    def carried_out(session: Session[list[Message]]) -> list[Message]:
        asked: deque[Send] = deque()

        def receive(wanted: Receive) -> Frames:
            return carry_out(servers[wanted.source].answer(asked.popleft().parcel, here, 0.0))

        return carry_out(session, asked.append, receive)

    def pulled(worker: WorkerSession) -> Tensors:
        return worker.join(carried_out(worker.pull()))

    for worker in workers:
        carried_out(worker.hello())
    seen = [pulled(worker) for worker in workers]
    for clock in range(config.steps):
        for worker, part, one in zip(workers, parts, seen, strict=True):
            loss, gradients = compute(part, config, one, worker.worker, clock)
            check_finite(gradients, "The gradient of")
            carried_out(worker.push(gradients, loss, None, pulls=False))
        if any(shard.diverged for shard in shards):
            return
        seen = [pulled(worker) for worker in workers]
        yield join([shard.params for shard in shards], layouts)


def _together(parts: list[Problem], params: Tensors, config: Config) -> Iterator[Tensors]:
    workers = range(config.workers)
    replica = Shard.of(config, params, workers=1)
    ranks = [AllReduceState(config, rank, params, Trace()) for rank in workers]
    for clock in range(config.steps):
        seen = replica.params
        for rank, part, one in zip(workers, parts, ranks, strict=True):
            gradients = compute(part, config, seen, rank, clock)[1]
            check_finite(gradients, "The gradient of")
            one.begin(clock, gradients)
        means = carry_out_together([all_reduce(one) for one in ranks])
        replica.push(Contribution(0, clock, clock, means[0]))
        if replica.diverged:
            return
        yield replica.params
