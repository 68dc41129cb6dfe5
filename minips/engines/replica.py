"""A worker in a run without servers: an all-reduce averages gradients, and each worker applies the mean itself."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np

from minips.core.config import Config
from minips.core.loop import Await, Begin, Call, Compute, train_together
from minips.core.message import DivergedError, NonFiniteError
from minips.core.partition import native, partition
from minips.core.reduction import AllReduceState, all_reduce
from minips.core.sessions import Do, Session, carry_out, nothing
from minips.core.shard import Shard, check_gradients
from minips.drivers.peer import Peer
from minips.engines.inner import Inner
from minips.engines.worker import at_step, before_updates, compute, has_moved
from minips.problems import Problem
from minips.results.checkpoints import Checkpoint
from minips.results.run import Rows
from minips.results.state import WorkerState
from minips.results.trace import UPDATE, Trace
from minips.stage import Array, Tensors
from minips.stages.aggregators import Contribution

SAMPLES = 8
SAMPLE_BYTES = 2**23
"""A replica keeps the gradients of up to ``SAMPLES`` steps, spread evenly over a run: at least one step, and otherwise
no more than ``SAMPLE_BYTES`` bytes. The exchange's error is computed from them after the run, when that delays nothing.
"""


class Replica:
    """A `Shard` that holds all the parameters and receives one push per step, the mean of all the workers' gradients.

    ``trace`` records its steps. The shard pauses every ``every`` steps. With local steps, ``inner`` makes them.
    """

    def __init__(self, params: Tensors, config: Config, rank: int, trace: Trace, every: int | None = None) -> None:
        self._trace = trace
        self.shard = Shard.of(config, params, workers=1, now=time.monotonic, every=math.inf if every is None else every)
        self.inner = Inner() if config.local else None
        self._each, self._overlap = config.local_steps, config.overlap
        self.losses: Rows = []
        self.changed_at = time.monotonic()
        self.rank = rank
        count = max(1, min(SAMPLES, SAMPLE_BYTES // max(1, sum(x.nbytes for x in params.values()))))
        self._sampled = {config.clocks * sample // count for sample in range(count)}
        self._samples: list[tuple[Tensors, Tensors]] = []

    def copy(self) -> tuple[Tensors, int]:
        """Return a copy of the parameters, and their version."""
        return {name: p.copy() for name, p in self.shard.params.items()}, self.shard.version

    def exchange(
        self,
        reduction: AllReduceState,
        contribution: Contribution,
        diverged: str,
        ending: bool,
        paused: Callable[[], Session[bool]],
        stepped: Callable[[], None] = nothing,
    ) -> Session[bool]:
        """Make one step of all the workers, with this worker's ``contribution``, then call ``stepped()``. Return True
        after the last step. ``paused`` creates a pause's session, which returns True if the run ends there.
        """
        reduction.begin(contribution.clock, contribution.gradients, ending, diverged)
        self.step(contribution, (yield from all_reduce(reduction)))
        stepped()
        ending = reduction.ending
        if self.shard.paused:
            ending = (yield from paused()) or ending
            self.shard.go_on()
        return ending

    def step(self, contribution: Contribution, mean: Tensors) -> None:
        """Make one step along ``mean``, which includes this worker's ``contribution``.

        DivergedError, with the parameters unchanged, if the step would make them NaN or infinite.
        """
        if self.shard.version in self._sampled:
            means = {name: g.copy() for name, g in mean.items() if self.rank == 0}
            self._samples.append((contribution.gradients, means))
        self.shard.push(contribution._replace(worker=0, gradients=mean))
        began, aggregating, applying = self.shard.parameters.times
        self._trace.laps(UPDATE, (began, began + aggregating, began + aggregating + applying))
        if self.shard.diverged:
            raise DivergedError(self.shard.diverged)
        self.changed_at = time.monotonic()
        self.losses.append((self.changed_at, self.shard.version * self._each, contribution.loss))

    def state(self, reduction: AllReduceState, seen: tuple[Tensors, int] | None) -> WorkerState:
        """Return this rank's part of a run's state, without the shard, which is the same at all ranks."""
        kept = WorkerState(hops=reduction.state(), seen=[*seen] if seen and self._overlap else None)
        return {**kept, "inner": self.inner.state()} if self.inner else kept

    def write(self, checkpoint: Checkpoint, config: Config, reduction: AllReduceState) -> None:
        """Write a snapshot if one is due, after a step."""
        clock = self.shard.version
        if clock % checkpoint.every == 0:
            state = {**self.state(reduction, None), "replica": self.shard.state()}
            values = {"config": config.to_dict(), "params": self.shard.params, "state": state}
            ahead = time.time() - time.monotonic()
            losses = [(at + ahead, step, loss) for at, step, loss in self.losses]
            checkpoint.write_rank(self.rank, clock, {**values, "losses": np.array(losses, float).reshape(-1, 3)})

    def restore_losses(self, losses: Array) -> None:
        """Restore the losses of a snapshot, with times of this machine's clock."""
        ahead = time.time() - time.monotonic()
        self.losses += [(at - ahead, int(step), loss) for at, step, loss in losses.tolist()]

    def restore(self, state: WorkerState, reduction: AllReduceState) -> tuple[Tensors, int] | None:
        """Let the rank resume from its part of a run's state. Return what `train_allreduce` takes as ``seen``."""
        self.shard.restore(state["replica"])
        reduction.restore(state["hops"])
        self.inner = self.inner and Inner.of(state)
        return (state["seen"][0], state["seen"][1]) if state["seen"] else None

    def report(self) -> dict[str, Any]:
        """Return the replica's part of a run's report: the parameters' digest and, at rank 0, the parameters too."""
        shard, params = self.shard, self.shard.params
        whole: dict[str, Any] = {}
        if self.rank == 0:  # all replicas are identical
            whole = {"params": params, "layout": partition(params, 1)[0], "shard": shard.state()}
        counts = {"applied": shard.applied, "missing": shard.missing, "late": shard.late}
        pulls = {"staleness": shard.staleness, "grants": shard.grants}
        times = {"losses": self.losses, "changed_at": self.changed_at, "events": []}
        digest = hashlib.sha256()
        for name, p in params.items():
            digest.update(f"{name} {p.dtype} {p.shape} ".encode() + p.tobytes())
        return {**whole, **counts, **pulls, **times, "digest": digest.hexdigest(), "samples": self._samples}


def train_allreduce(
    problem: Problem,
    config: Config,
    peer: Peer,
    replica: Replica,
    stop: Event,
    trace: Trace,
    seen: tuple[Tensors, int] | None = None,
    pause: Callable[[], bool] = lambda: False,
    stepped: Callable[[], None] = nothing,
    computed: Callable[[int], object] = lambda clock: None,
) -> tuple[Tensors, int]:
    """Train on ``problem``, this worker's shard of the rows, by `train_together`, until the config's steps are done. If
    ``stop`` is set at any worker, all workers end after the same step. ``trace`` records the computing. After a step at
    which the replica pauses, it calls ``pause()``, which returns True at every worker or at none; True ends the run.
    ``computed`` is called with the clock of each gradient, before its exchange.
    Return the parameters for the next gradient, and their version; ``seen`` holds those of a saved run.

    DivergedError, at all the workers, if a worker's gradient, or the parameters after the mean, are not finite.
    """

    def compute_timed(need: Compute) -> tuple[Contribution, str]:
        trace.step = need.clock
        with trace.span("compute"):
            contribution = contribute(problem, config, replica, need.clock, need.seen, stop)
        computed(need.clock)
        return contribution

    def pause_session() -> Session[bool]:
        return bool((yield Do((), 0, pause)))

    def exchange(clock: int, computed: tuple[Contribution, str]) -> Session[bool]:
        return replica.exchange(peer.reduction, *computed, stop.is_set(), pause_session, stepped)

    clocks = range(replica.shard.version, config.clocks)
    loop = train_together(replica.copy, exchange, clocks, config.overlap, seen)
    with ThreadPoolExecutor(1, f"minips-exchange-{peer.rank}") as pool:
        meet = {
            Compute: compute_timed,
            Call: lambda need: peer.carry_out(need.session),
            Begin: lambda need: pool.submit(peer.carry_out, need.session),
            Await: lambda need: need.begun.result(),
        }
        last: tuple[Tensors, int] = carry_out(loop, meet)
        return last


def contribute(
    problem: Problem, config: Config, replica: Replica, clock: int, seen: tuple[Tensors, int], stop: Event | None = None
) -> tuple[Contribution, str]:
    """Compute a rank's contribution to the sum of a step from ``seen``, the copy of its replica. Also return the reason
    if the gradient is not finite, or an empty text. In place of such a gradient the rank adds zeros, so that every rank
    completes the step. NonFiniteError before the first update, when only the data or the problem can be at fault.
    """
    params, version = seen
    try:
        loss, gradients = (replica.inner or compute)(problem, config, params, replica.rank, clock, stop)
        # copies, since the problem may reuse its arrays
        gradients = {name: np.array(native(g, f"The gradient of {name!r}")) for name, g in gradients.items()}
        check_gradients(gradients, params)
    except NonFiniteError as error:
        if not has_moved(error, (version,)):
            raise before_updates(error) from error
        zeros = {name: np.zeros_like(p) for name, p in params.items()}
        return Contribution(replica.rank, clock, version, zeros), at_step(clock, replica.rank, error)
    return Contribution(replica.rank, clock, version, gradients, loss), ""


def check_replicas(digests: Sequence[str]) -> None:
    """Raise RuntimeError if the replicas' digests, listed by rank, differ."""
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise RuntimeError(
                f"The replicas differ at the end of the run: worker {rank} does not have the parameters of worker 0. "
                "An optimizer, and the decoding of a quantizer, must do the same with the same input at every worker."
            )


def requantization_error(samples: Sequence[Sequence[tuple[Tensors, Tensors]]]) -> float | None:
    """Return the relative error of the exchanged means, ``|mean − exact| / |exact|`` over all tensors, averaged over
    the sampled steps; None without samples. ``samples`` has a list for each worker; the first list holds the means.
    """
    errors = []
    for step in zip(*samples, strict=True):
        off = size = 0.0
        for name, mean in step[0][1].items():
            exact = np.mean([gradients[name] for gradients, _ in step], axis=0, dtype=np.float64)
            off += float(np.sum((mean - exact) ** 2))
            size += float(np.sum(exact**2))
        errors.append((off / size) ** 0.5 if size else float(off > 0))
    return sum(errors) / len(errors) if errors else None
