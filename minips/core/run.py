"""The results of a training run, and how far one is."""

import html
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from minips.core.collectives import PS
from minips.core.config import Config
from minips.core.partition import join
from minips.core.shard import Grant
from minips.core.trace import Trace
from minips.problems import Problem
from minips.stage import Array, Tensors

Rows = list[tuple[float, int, float]]
"""Rows of (seconds, step, training loss)."""


class Progress(NamedTuple):
    """The progress of a run: pushes applied of pushes wanted, and the losses so far."""

    applied: int
    updates: int
    losses: Rows


Watch = Callable[[Progress], None]
Stop = Callable[[], bool]


@dataclass(repr=False)
class Run:
    """The results of one training run. Times are in seconds from the start of the step loop."""

    config: Config
    """The experiment."""
    params: Tensors
    """The final parameters."""
    losses: Rows
    """Rows of (seconds, step, training loss): the mean over the batches of one clock of all the workers."""
    seconds: float
    """Wall time of the step loop."""
    updates: int
    """Pushes that were applied."""
    late: int = 0
    """Pushes that came after their round and were dropped (backup workers)."""
    validation_loss: float | None = None
    """On held-out rows, without the problem's penalty (``l2``); None where the problem holds none."""
    accuracy: float | None = None
    """On held-out rows; None where nothing is classified."""
    bytes_sent: int = 0
    """By all the workers, in frames, each message once. Left out is what transports add: the heads and the padding of a
    stream, which `minips.cost.message_nbytes` counts, handshakes, a link's time stamps, and what is sent again.
    """
    bytes_received: int = 0
    """By all the workers, in frames."""
    staleness: Counter[int] = field(default_factory=Counter)
    """How many gradients were computed from parameters so many versions old."""
    grants: list[Grant] = field(default_factory=list)
    """Each pull that was answered: worker, its clock, the slowest clock."""
    trace: Trace = field(default_factory=Trace)
    """The spans of all the workers and servers."""
    events: list[tuple[float, str]] = field(default_factory=list)
    """Rows of (seconds, what happened), such as a worker that was lost."""
    stopped: bool = False
    """True where it ended before all updates were applied: by ``stop``, or since all workers had left."""
    diverged: str | None = None
    """When and why the run ended before parameters became NaN or infinite, and what to try; ``params`` are the last
    ones before that. None for a run that did not diverge."""
    requantization_error: float | None = None
    """Of an all-reduce, how far the exchanged mean gradients are from the exact ones, ``|mean − exact| / |exact|``:
    the average over some steps. None with servers."""
    replicas: list[str] = field(default_factory=list)
    """Of an all-reduce, the SHA-256 of each worker's parameters at the end. They are the same, or the run fails."""
    problem: Problem | None = None
    """The problem that was trained; None for a run that was loaded."""

    @property
    def seconds_per_step(self) -> float:
        """Wall seconds for one clock of all the workers."""
        return self.seconds * self.config.workers / max(self.updates, 1)

    def judge(self, problem: Problem) -> Self:
        """Keep the problem, and note loss and accuracy on the rows that it holds out."""
        self.problem = problem
        if held_out := problem.held_out():
            with np.errstate(over="ignore", invalid="ignore"):  # of a run that has diverged, which says so
                self.validation_loss, self.accuracy = held_out.loss(self.params), held_out.accuracy(self.params)
        return self

    def predict(self, X: Array) -> Array:
        """The problem's predictions for rows of ``X``, with the final parameters."""
        return self._trained().predict(self.params, X)

    def predict_proba(self, X: Array) -> Array:
        """The problem's probabilities for rows of ``X`` and each class, shape (n, classes)."""
        return self._trained().predict_proba(self.params, X)

    def _trained(self) -> Problem:
        if self.problem is None:
            raise ValueError("This run was loaded without its problem: use problem.predict(run.params, X).")
        return self.problem

    def to_frame(self) -> Any:
        """The training losses as a pandas DataFrame of ``seconds``, ``step`` and ``loss``. ImportError without
        pandas.
        """
        return frame(self.losses, ["seconds", "step", "loss"])

    def rows(self) -> list[tuple[str, str]]:
        """The summary as pairs of a name and a value with its unit."""
        config, last = self.config, self.losses[-1][2] if self.losses else float("nan")
        servers = isinstance(config.exchange, PS)
        stale = sum(versions * count for versions, count in self.staleness.items()) / max(self.staleness.total(), 1)
        rows = [
            ("diverged", self.diverged),
            ("consistency", repr(config.consistency)),
            ("workers, servers", f"{config.workers}, {config.servers}")
            if servers
            else ("workers, exchange", f"{config.workers}, {config.exchange!r}"),
            ("push", _short(config.push)),
            ("pull", _short(config.pull) if servers else None),
            ("updates", f"{self.updates}" + (" (stopped)" if self.stopped else " (diverged)" if self.diverged else "")),
            ("training loss", f"{last:.4f}"),
            ("validation loss", _figure(self.validation_loss, ".4f")),
            ("accuracy", _figure(self.accuracy, ".3f")),
            ("time", f"{self.seconds:.2f} s"),
            ("time per step", f"{self.seconds_per_step * 1e3:.2f} ms"),
            ("sent by workers", f"{self.bytes_sent / 1e6:.3f} MB"),
            ("received by workers", f"{self.bytes_received / 1e6:.3f} MB"),
            ("mean staleness", f"{stale:.2f} versions"),
            ("requantization error", _figure(self.requantization_error, ".2g")),
            ("replicas", f"{len(self.replicas)}, all alike: {self.replicas[0][:12]}…" if self.replicas else None),
            ("late pushes", str(self.late) if self.late else None),
            *[("event", f"{at:.2f} s: {text}") for at, text in self.events[:5]],
        ]
        return [(name, value) for name, value in rows if value is not None]

    def summary(self) -> str:
        """A text table."""
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def to_dict(self) -> dict[str, Any]:
        """All but parameters and spans, as plain values for JSON; seconds by span name stand for the trace."""
        apart = ("config", "params", "staleness", "grants", "trace", "problem")
        return {
            "config": self.config.to_dict(),
            **{name: value for name, value in vars(self).items() if name not in apart},
            "seconds_per_step": self.seconds_per_step,
            "staleness": {str(versions): count for versions, count in sorted(self.staleness.items())},
            "spans": self.trace.seconds(),
        }

    def __repr__(self) -> str:
        ended = ", diverged" if self.diverged else ""
        return f"<Run of {self.updates} updates in {self.seconds:.2f} s{ended}>"

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


def gathered(config: Config, reports: Sequence[dict[str, Any]]) -> Run:
    """The run that all servers' reports make; that of one of several has its own part of the parameters. The first
    sees all pushes.
    """
    first, began = reports[0], min(report["began_at"] for report in reports)
    layouts = [report["layout"] for report in reports]
    return Run(
        config=config,
        params=join([report["params"] for report in reports], layouts)
        if len(reports) == config.servers
        else first["params"],
        losses=[(at - began, step, loss) for at, step, loss in first["losses"]],
        seconds=max(max(report["changed_at"] for report in reports) - began, 0.0),
        updates=first["applied"],
        late=first["late"],
        bytes_sent=sum(report["bytes_sent"] for report in reports),
        bytes_received=sum(report["bytes_received"] for report in reports),
        staleness=first["staleness"],
        grants=first["grants"],
        trace=sum((report["trace"] for report in reports), Trace()).since(began),
        events=sorted(
            (at - began, text if len(reports) == 1 else f"server {report['index']}: {text}")
            for report in reports
            for at, text in report["events"]
        ),
        stopped=any(report["stopped"] for report in reports),
        diverged=next((report["diverged"] for report in reports if report["diverged"]), None),
    )


def frame(rows: Sequence[Any], columns: Sequence[str]) -> Any:
    """A pandas DataFrame. ImportError without pandas."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ModuleNotFoundError("A frame needs pandas, which is not installed: pip install pandas.") from None
    return pd.DataFrame(rows, columns=columns)


def _figure(x: float | None, form: str) -> str | None:
    return None if x is None else f"{x:{form}}"


def _short(codec: Any) -> str:
    """A codec as its stages that do something."""
    stages = [codec.quantizer, codec.memory, codec.serializer, codec.compressor]
    return ", ".join(repr(stage) for stage in stages if getattr(stage, "name", "") != "none")
