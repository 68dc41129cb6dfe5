"""Train a problem as a config says, and look at what came of it."""

import html
import reprlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.core.collectives import PS
from minips.core.config import Config
from minips.core.shard import Grant
from minips.core.trace import Trace
from minips.engines import Engine, Processes, Progress
from minips.problems import Problem
from minips.stage import Tensors, build


@dataclass(repr=False)
class Run:
    """The results of one training run. Times are in seconds from the start of the step loop."""

    config: Config
    """The experiment."""
    params: Tensors
    """The final parameters."""
    losses: list[tuple[float, int, float]]
    """Rows of (seconds, step, training loss): the mean over the batches of one clock of all the workers."""
    seconds: float
    """Wall time of the step loop."""
    updates: int
    """Pushes that were applied."""
    late: int
    """Pushes that came after their round and were dropped (backup workers)."""
    validation_loss: float | None
    """On held-out rows, the problem's penalty (``l2``) included; None where the problem holds none."""
    accuracy: float | None
    """On held-out rows; None where nothing is classified."""
    bytes_sent: int
    """By all the workers, in frames, each message once. Left out is what transports add: the heads and the padding of a
    stream, which `minips.cost.message_nbytes` counts, handshakes, a link's time stamps, and what is sent again.
    """
    bytes_received: int
    """By all the workers, in frames."""
    staleness: Counter[int]
    """How many gradients were computed from parameters so many versions old."""
    grants: list[Grant]
    """Each pull that was answered: worker, its clock, the slowest clock."""
    trace: Trace
    """The spans of all the workers and servers."""
    events: list[tuple[float, str]]
    """Rows of (seconds, what happened), such as a worker that was lost."""
    stopped: bool
    """By ``stop``, before all updates were applied."""
    diverged: str | None = None
    """When and why the run ended before parameters became NaN or infinite, and what to try; ``params`` are the last
    ones before that. None for a run that did not diverge."""
    requantization_error: float | None = None
    """Of an all-reduce, how far the exchanged mean gradients are from the exact ones, ``|mean − exact| / |exact|``:
    the average over some steps. None with servers."""
    replicas: list[str] = field(default_factory=list)
    """Of an all-reduce, the SHA-256 of each worker's parameters at the end. They are the same, or the run fails."""

    @property
    def seconds_per_step(self) -> float:
        """Wall seconds for one clock of all the workers."""
        return self.seconds * self.config.workers / max(self.updates, 1)

    def rows(self) -> list[tuple[str, str]]:
        """The summary as pairs of a name and a value with its unit."""
        config, last = self.config, self.losses[-1][2] if self.losses else float("nan")
        stale = sum(versions * count for versions, count in self.staleness.items()) / max(
            sum(self.staleness.values()), 1
        )
        return [
            *([("diverged", self.diverged)] if self.diverged else []),
            ("consistency", repr(config.consistency)),
            ("workers, servers", f"{config.workers}, {config.servers}")
            if isinstance(config.exchange, PS)
            else ("workers, exchange", f"{config.workers}, {config.exchange!r}"),
            ("push", _short(config.push)),
            *([("pull", _short(config.pull))] if isinstance(config.exchange, PS) else []),
            ("updates", f"{self.updates}" + (" (stopped)" if self.stopped else " (diverged)" if self.diverged else "")),
            ("training loss", f"{last:.4f}"),
            *([("validation loss", f"{self.validation_loss:.4f}")] if self.validation_loss is not None else []),
            *([("accuracy", f"{self.accuracy:.3f}")] if self.accuracy is not None else []),
            ("time", f"{self.seconds:.2f} s"),
            ("time per step", f"{self.seconds_per_step * 1e3:.2f} ms"),
            ("sent by workers", f"{self.bytes_sent / 1e6:.3f} MB"),
            ("received by workers", f"{self.bytes_received / 1e6:.3f} MB"),
            ("mean staleness", f"{stale:.2f} versions"),
            *(
                [("requantization error", f"{self.requantization_error:.2g}")]
                if self.requantization_error is not None
                else []
            ),
            *([("replicas", f"{len(self.replicas)}, all alike: {self.replicas[0][:12]}…")] if self.replicas else []),
            *([("late pushes", f"{self.late}")] if self.late else []),
            *[("event", f"{at:.2f} s: {text}") for at, text in self.events[:5]],
        ]

    def summary(self) -> str:
        """A text table."""
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def to_dict(self) -> dict[str, Any]:
        """All but parameters and spans, as plain values that JSON can carry; seconds by span name stand for the
        trace.
        """
        plain = (
            "losses",
            "seconds",
            "updates",
            "late",
            "validation_loss",
            "accuracy",
            "bytes_sent",
            "bytes_received",
            "stopped",
            "diverged",
            "requantization_error",
            "replicas",
        )
        return {
            "config": self.config.to_dict(),
            **{name: getattr(self, name) for name in plain},
            "seconds_per_step": self.seconds_per_step,
            "staleness": {str(versions): count for versions, count in sorted(self.staleness.items())},
            "spans": self.trace.seconds(),
            "events": self.events,
        }

    def __repr__(self) -> str:
        ended = ", diverged" if self.diverged else ""
        return f"<Run of {self.updates} updates in {self.seconds:.2f} s{ended}>"

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


@one_blas_thread
def train(
    problem: Problem,
    config: Config | None = None,
    *,
    engine: Engine | str | None = None,
    progress: bool | Callable[[Progress], None] = False,
    stop: threading.Event | Callable[[], bool] | None = None,
) -> Run:
    """Train ``problem`` as ``config`` says, on ``engine`` (None: `Processes`).

    ``progress`` shows a bar, or is called with a `Progress` a few times a second. Set the event ``stop``, or let the
    function ``stop`` return True, to end the run early with what it has. A run that diverges ends with the last finite
    parameters, and `Run.diverged` says why. RuntimeError says which worker or server failed, and why. Until it
    returns, BLAS has one thread in this process too, so that every engine gives the same bits.
    """
    _check_problem(problem)
    if not (stop is None or isinstance(stop, threading.Event) or callable(stop)):
        raise TypeError(f"stop takes a threading.Event, or a function that returns True to end the run; got {stop!r}.")
    config = config or Config()
    chosen: Engine = build("engine", engine) if engine else Processes()
    params = problem.init(seeds.init(config.seed))
    stopping = stop.is_set if isinstance(stop, threading.Event) else stop or (lambda: False)
    with _Watcher(progress) as watch:
        try:
            outcome = chosen.run(problem, config, params, watch, stopping)
        except KeyboardInterrupt as interrupt:
            words = "The run was interrupted; all that it started has ended."
            interrupt.args = (words,)
            vars(interrupt)["_render_traceback_"] = lambda: [words]  # what a notebook shows instead of a traceback
            raise
    held_out = problem.held_out()
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that has diverged, which says so
        validation_loss = held_out.loss(outcome.params) if held_out else None
        accuracy = held_out.accuracy(outcome.params) if held_out else None
    return Run(
        config=config,
        params=outcome.params,
        losses=outcome.losses,
        seconds=outcome.seconds,
        updates=outcome.applied,
        late=outcome.late,
        validation_loss=validation_loss,
        accuracy=accuracy,
        bytes_sent=outcome.bytes_sent,
        bytes_received=outcome.bytes_received,
        staleness=outcome.staleness,
        grants=outcome.grants,
        trace=outcome.trace,
        events=outcome.events,
        stopped=outcome.stopped,
        diverged=outcome.diverged,
        requantization_error=outcome.requantization_error,
        replicas=outcome.replicas,
    )


def _check_problem(problem: object) -> None:
    """TypeError where it is no problem."""
    if not isinstance(problem, Problem):
        raise TypeError(
            "train takes a problem, which knows a loss and its gradient. Wrap the rows in one: "
            "ps.SoftmaxRegression(X, y) where y holds class numbers, ps.LinearRegression(X, y) where it holds values, "
            f"or a subclass of ps.Problem. Got {reprlib.repr(problem)}."
        )


class _Watcher:
    """``with``: a function to be called with `Progress`, which shows a bar where one is wanted."""

    def __init__(self, progress: bool | Callable[[Progress], None]) -> None:
        self._progress, self._bar = progress, None  # type: bool | Callable[[Progress], None], Any

    def __enter__(self) -> Callable[[Progress], None]:
        if callable(self._progress):
            return self._progress
        if not self._progress:
            return lambda progress: None
        from rich.progress import Progress as Bar

        self._bar = Bar(transient=True)
        self._bar.start()
        task = self._bar.add_task("training", total=None)

        def show(progress: Progress) -> None:
            loss = f" loss {progress.losses[-1][2]:.4f}" if progress.losses else ""
            self._bar.update(task, completed=progress.applied, total=progress.updates, description=f"training{loss}")

        return show

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()


def _short(codec: Any) -> str:
    """A codec as its stages that do something."""
    stages = [codec.quantizer, codec.memory, codec.serializer, codec.compressor]
    return ", ".join(repr(stage) for stage in stages if getattr(stage, "name", "") != "none")
