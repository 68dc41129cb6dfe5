"""The results of a training run, and its progress."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from math import inf, isinf, nan
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from minips import seeds
from minips.core.config import Config
from minips.core.exchange import PS
from minips.core.partition import Layouts, cut_state, join, join_state
from minips.core.shard import Grant
from minips.intake import as_number, check_columns, check_unmasked
from minips.problems import Problem
from minips.results import saved
from minips.results.checkpoints import Checkpoint
from minips.results.clocks import clock_offsets
from minips.results.messages import Joined, Message, Wait, messages_of
from minips.results.origin import Origin, check_same, describe, origin_of, restore_problem
from minips.results.state import SavedState, ServerState, check_state, state_of
from minips.results.tables import align_pairs, html_rows
from minips.results.trace import Span, Trace
from minips.results.waits import waits_of
from minips.stage import Array, Tensors
from minips.words import check_type, message_of

Rows = list[tuple[float, int, float]]
"""Rows of (seconds, gradient step, training loss)."""
Evaluations = list[tuple[float, int, float, float | None]]
"""Rows of (seconds, gradient step, training loss, validation loss)."""
HELD_OUT = "The loss of the held-out rows"


class Progress(NamedTuple):
    """The progress of a run, counted in gradient steps: the number of pushes times the local steps of a push."""

    applied: int
    """Gradient steps of all workers in the pushes that were applied."""
    updates: int
    """The number of steps that ends the run: workers × steps. Under BSP, departed workers' later steps do not count."""
    losses: Rows
    """Rows of (seconds, step, training loss) so far."""

    @classmethod
    def of(cls, config: Config, applied: int, updates: int, losses: Rows) -> Self:
        """The progress after ``applied`` of ``updates`` pushes."""
        return cls(applied * config.local_steps, updates * config.local_steps, losses)


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
    """Rows of (seconds, gradient step, training loss). A loss is the mean over all workers' batches of one clock."""
    seconds: float
    """The wall time of the step loop."""
    updates: int
    """The number of applied pushes. A push counts once, however many local steps it has. The config asks for workers ×
    `Config.clocks` pushes. Under SSP and ASP the run ends at that number: if a worker leaves, the others make its
    pushes. Under BSP each worker makes only its own pushes: if one leaves, ``missing`` pushes fewer are applied. With
    backup workers there may be more, since rounds are applied whole."""
    late: int = 0
    """The number of pushes that were dropped because they arrived too late for their round (backup workers)."""
    validation_loss: float | None = None
    """The loss on held-out rows, without the problem's penalty (``l2``); None if there are no held-out rows."""
    accuracy: float | None = None
    """The accuracy on held-out rows; None without held-out rows, or if the problem is not a classifier."""
    bytes_sent: int = 0
    """Bytes of frames sent by all workers, each message once. Bytes that transports add are not counted: a stream's
    heads and padding (`minips.cost.message_nbytes` counts these), handshakes, a link's time stamps, and retries.
    """
    bytes_received: int = 0
    """Bytes of frames received by all workers."""
    staleness: Counter[int] = field(default_factory=Counter)
    """Maps the age of parameters, in versions, to the number of gradients that were computed from them."""
    grants: list[Grant] = field(default_factory=list)
    """For each answered pull: the worker, its clock, and the slowest clock."""
    server_rows: list[int] = field(default_factory=list)
    """The number of table rows in pushes to each server, which is its load; empty without tables."""
    trace: Trace = field(default_factory=Trace)
    """The spans of all workers and servers."""
    events: list[tuple[float, str]] = field(default_factory=list)
    """Rows of (seconds, event), such as a lost worker."""
    stopped: bool = False
    """True if the run ended before all updates were applied: by ``stop``, or because all workers had left."""
    diverged: str | None = None
    """If the run diverged, a text: when and why it ended, before parameters became NaN or infinite, and what to try.
    ``params`` are then the last finite ones. None for a run that did not diverge."""
    requantization_error: float | None = None
    """The relative error of an all-reduce's mean gradients, ``|mean − exact| / |exact|``, averaged over some steps.
    None with servers."""
    replicas: list[str] = field(default_factory=list)
    """With an all-reduce, the SHA-256 of each worker's final parameters. They are equal, or the run fails."""
    problem: Problem | None = None
    """The trained problem. In a loaded run: the argument ``problem`` of `load`, or the problem made without rows."""
    state: SavedState | None = field(default=None, repr=False)
    """Optimizer state, clocks, random generators, and the memories of all codecs, for ``train(…, resume=…)``."""
    origin: Origin | None = field(default=None, repr=False)
    """A description of the problem, for `save`: class, labels, parameters, SHA-256 of rows, attributes to predict."""
    evaluations: Evaluations = field(default_factory=list)
    """Rows of (seconds, gradient step, training loss, loss on held-out rows or None), one for each evaluation that
    `train` makes (argument ``every``)."""
    name: str = ""
    """The run's name in `minips.sweep`."""
    missing: int = 0
    """The number of pushes that are missing from BSP rounds because their workers had left."""
    start_s: float = 0.0
    """The seconds that starting servers and workers took, before the step loop. 0 if they were simulated, or were
    started by hand."""
    clock_error_s: float = 0.0
    """The largest error of a time in the trace, in seconds, if the run's machines have several clocks; see `align`."""
    queues: dict[str, list[tuple[float, int, int]]] = field(default_factory=dict)
    """With `Hosts.watch_s`, maps the queue at each end of a link, such as "switch → server 0", to rows of (seconds,
    bytes that wait, packets dropped so far): one for each reading that differs from the one before."""

    @property
    def messages(self) -> list[Message]:
        """The messages between workers and servers, in order of start, as far as the trace has rows of them."""
        return messages_of(self.trace)

    @property
    def waits(self) -> list[Wait]:
        """The workers' waits, in order of start, each with those for whom it was."""
        return waits_of(self.trace, self.config.consistency, self.config.workers)

    @property
    def clocks(self) -> int:
        """The number of clocks that all workers completed or, under BSP, that all workers then present completed."""
        return (self.updates + self.missing) // self.config.workers

    @property
    def seconds_per_step(self) -> float:
        """The wall time, in seconds, for one gradient step of all workers."""
        return self.seconds * self.config.workers / (max(self.updates + self.missing, 1) * self.config.local_steps)

    def align(self, machine_of: Mapping[str, str]) -> Self:
        """Correct the times in the trace by the offsets of the machines' clocks: see `clock_offsets`."""
        if len({*machine_of.values()}) > 1:
            offsets, self.clock_error_s = clock_offsets(self.messages, machine_of)
            self.trace = self.trace.since(0.0, offsets)
        return self

    def judge(self, problem: Problem, origin: Origin | None = None) -> Self:
        """Record the problem, its origin, and the loss and accuracy on its held-out rows."""
        check_type("judge", problem, Problem, "a Problem")
        self.problem, self.origin = problem, origin or origin_of(problem, self.params)
        if held_out := problem.held_out():
            with np.errstate(over="ignore", invalid="ignore"):  # in a run that has diverged
                self.validation_loss = as_number(held_out.loss(self.params), HELD_OUT)
                accuracy = held_out.accuracy(self.params)
            self.accuracy = None if accuracy is None else as_number(accuracy, "The accuracy")
        return self

    def predict(self, X: Array) -> Array:
        """The problem's predictions for rows of ``X``, with the final parameters."""
        return self._predicted("predict", X)

    def predict_proba(self, X: Array) -> Array:
        """The problem's probability of each class for each row of ``X``, shape (n, classes)."""
        return self._predicted("predict_proba", X)

    def _predicted(self, how: str, X: Array) -> Array:
        if "index" in (self.state or {}):
            raise ValueError("This run has only one server's part of the parameters, so it cannot predict.")
        self.problem = restore_problem(self.origin) if self.problem is None else self.problem
        if X is None:
            raise ValueError(f"{how} takes rows of X, as an array or a data frame; got None.")
        check_unmasked(X, "X")
        check_columns(X, self.problem.feature_names, "X")
        try:
            return getattr(self.problem, how)(self.params, X)  # type: ignore[no-any-return]
        except AttributeError as error:
            if error.obj is not self.problem or error.name not in (self.origin or {}).get("lost", ()):
                raise
            lack = f"Predicting needs the problem's {error.name!r}, which the file of this run does not hold"
            raise ValueError(f"{lack}. Give the problem: Run.load(path, problem).") from error

    def check(self, origin: Origin) -> None:
        """Raise ValueError if the trained problem differs from this ``origin`` in more than its rows."""
        mine = {**(self.origin or {}), "parameters": describe(self.params), "rows": ""}
        check_same(origin, mine, "the run")

    def to_frame(self) -> Any:
        """The losses as a pandas DataFrame: ``seconds``, ``step``, ``loss``. Raises ImportError without pandas."""
        return frame(self.losses, ["seconds", "step", "loss"])

    def save(self, path: str | Path) -> None:
        """Write the run to one file, an .npz archive, with the problem's class and `Problem.kept` but not its rows.

        The file is written whole or not at all. A symbolic link to the file stays. If the file exists, it keeps its
        mode, and its other hard links keep the older run. Raises OSError if the file cannot be written, and TypeError
        if a stage of your own has a state that cannot be saved.
        """
        check_type("save", path, str | Path, "the path of a file")
        spans = list(zip(*self.trace, strict=True)) or [()] * len(Span._fields)
        converted = {
            "config": self.config.to_dict(),
            "losses": np.array(self.losses, float).reshape(-1, 3),
            "grants": np.array(self.grants, int).reshape(-1, 3),
            "trace": [[*spans[0]], [*spans[1]], *map(np.array, spans[2:])],
            "trace_until": None if isinf(self.trace.until) else self.trace.until,
            "trace_planned": dict(self.trace.planned),
            "staleness": dict(self.staleness),
            **({"queues": {end: np.array(rows, float) for end, rows in self.queues.items()}} if self.queues else {}),
            **Joined(tuple(self.messages), tuple(self.waits)).columns(),
        }
        left_out = {"problem", *(() if self.queues else ("queues",))}  # older releases do not know the second
        whole = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out}
        saved.write(path, {**whole, **converted})

    @classmethod
    def load(cls, path: str | Path, problem: Problem | None = None) -> Self:
        """Read a run that `save` wrote. If no ``problem`` is given, `load` makes the run's problem for `predict`,
        without rows: it imports the module named in the file, which runs the module's code, and accepts only a subclass
        of `Problem`. Load only files that you trust. If the problem cannot be made, `predict` says why.

        The path may be that of a checkpoint's folder: the run is then that of its last snapshot or, once it is over,
        the whole run.

        Raises ValueError if the file is torn, foreign, from a newer minips, or names an unregistered stage, or if
        ``problem`` has another class, labels or parameters than the run. Raises OSError if the file cannot be opened.
        """
        check_type("load", path, str | Path, "the path of a file, or of a checkpoint's folder")
        if Path(path).is_dir():
            checkpoint = Checkpoint(str(path))
            if not checkpoint.run.exists():
                config, reports, origin = checkpoint.reports()
                kept = gather_run(config, reports)
                kept.origin = origin
                return kept._with_problem(problem)  # type: ignore[return-value]
            path = checkpoint.run
        values = saved.read(path)
        try:
            names, parties, *numbers = values["trace"]
            spans = zip(names, parties, *(column.tolist() for column in numbers), strict=True)
            until = inf if values.get("trace_until") is None else values["trace_until"]
            planned, parts = values.get("trace_planned"), [values.get(name, []) for name in ("messages", "waits")]
            values |= {
                "config": Config.from_dict(values["config"]),
                "losses": [(at, int(step), loss) for at, step, loss in values["losses"].tolist()],
                "grants": [Grant(*row) for row in values["grants"].tolist()],
                "trace": Trace(spans=spans, until=until, planned=planned, joined_before=Joined.from_columns(*parts)),
                "staleness": Counter(values["staleness"]),
                "queues": {
                    end: [(at, int(waiting), int(dropped)) for at, waiting, dropped in rows.tolist()]
                    for end, rows in values.get("queues", {}).items()
                },
            }
            known = {field.name for field in fields(cls)}
            run = cls(**{name: value for name, value in values.items() if name in known})
        except (KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} holds no saved run: {type(error).__name__}: {message_of(error)}.") from error
        return run._with_problem(problem)

    def _with_problem(self, problem: Problem | None) -> Self:
        """This run with its problem: the given one, or one without rows."""
        if problem is not None:
            self.check(origin_of(problem, problem.init(seeds.init(self.config.seed))))
        with suppress(ValueError):  # `predict` raises this error
            self.problem = restore_problem(self.origin) if problem is None else problem
        return self

    def after(self, before: "Run") -> "Run":
        """Join this run and the run ``before``, from which it resumed, into one run."""
        began, config = before.seconds, self.config
        remembers = config.local or not (config.push.lossless and config.pull.lossless)
        workers = before.state["workers"] if before.state and remembers and before.updates else ()
        restarted = [worker for worker, kept in enumerate(workers) if not kept]
        notes = [f"worker {worker} has no saved state: its memories begin anew" for worker in restarted]
        rows = {run.origin["rows"] for run in (before, self) if run.origin and run.origin["rows"]}
        notes += ["its rows differ from those of the run that it resumed"] if len(rows) > 1 else []
        return replace(
            self,
            losses=[*before.losses, *((began + at, step, loss) for at, step, loss in self.losses)],
            seconds=began + self.seconds,
            start_s=before.start_s + self.start_s,
            late=before.late + self.late,
            bytes_sent=before.bytes_sent + self.bytes_sent,
            bytes_received=before.bytes_received + self.bytes_received,
            staleness=before.staleness + self.staleness,
            server_rows=[sum(rows) for rows in zip(before.server_rows, self.server_rows, strict=False)],
            grants=[*before.grants, *self.grants],
            trace=before._joined_trace() + self.trace.since(-began),
            clock_error_s=max(before.clock_error_s, self.clock_error_s),
            evaluations=[*before.evaluations, *self.evaluations],
            queues={
                end: [
                    *before.queues.get(end, []),
                    *((began + at, waiting, dropped) for at, waiting, dropped in self.queues.get(end, [])),
                ]
                for end in {**before.queues, **self.queues}
            },
            events=[
                *before.events,
                *((began, text) for text in notes),
                *((began + at, text) for at, text in self.events),
            ],
        )

    def _joined_trace(self) -> Trace:
        """The trace with its messages and waits joined. Those of another run, with another config, can follow."""
        trace, joined = self.trace, Joined(tuple(self.messages), tuple(self.waits))
        return Trace(spans=trace, limit=trace.limit, until=trace.until, planned=trace.planned, joined_before=joined)

    def rows(self) -> list[tuple[str, str]]:
        """The summary as pairs of a name and a value with its unit."""
        from statistics import fmean  # slow to import

        config, losses = self.config, [loss for _, _, loss in self.losses] or [nan]
        advice = f"the loss was {losses[0]:.4f} at first: lower the learning rate, or scale the columns of X"
        rose = 0 < 2 * losses[0] < fmean(losses[len(losses) * 9 // 10 :]) and not self.diverged  # batches vary less
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
            ("local steps", f"{config.local.steps} of {config.local.optimizer!r}" if config.local else None),
            ("updates", f"{self.updates}" + (" (stopped)" if self.stopped else " (diverged)" if self.diverged else "")),
            ("missing updates", f"{self.missing}, of workers that had left" if self.missing else None),
            ("training loss", f"{losses[-1]:.4f}"),
            ("advice", advice if rose else None),
            ("validation loss", _figure(self.validation_loss, ".4f")),
            ("accuracy", _figure(self.accuracy, ".3f")),
            ("start-up", f"{self.start_s:.2f} s, before the first step" if self.start_s else None),
            ("time", f"{self.seconds:.2f} s"),
            ("time per step", f"{self.seconds_per_step * 1e3:.2f} ms"),
            ("sent by workers", f"{self.bytes_sent / 1e6:.3f} MB"),
            ("received by workers", f"{self.bytes_received / 1e6:.3f} MB"),
            ("rows by server", ", ".join(map(str, self.server_rows)) or None),
            ("mean staleness", f"{stale:.2f} versions"),
            ("planned messages", _planned(self.trace)),
            ("requantization error", _figure(self.requantization_error, ".2g")),
            ("replicas", f"{len(self.replicas)}, all alike: {self.replicas[0][:12]}…" if self.replicas else None),
            ("late pushes", str(self.late) if self.late else None),
            *[("event", f"{at:.2f} s: {text}") for at, text in self.events[:5]],
        ]
        return [(name, value) for name, value in rows if value is not None]

    def summary(self) -> str:
        """The main results as a text table."""
        return align_pairs(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """The run as plain values for JSON, without parameters; seconds by span name replace the trace."""
        omitted = ("config", "params", "staleness", "grants", "trace", "problem", "state", "origin")
        return {
            "config": self.config.to_dict(),
            **{name: value for name, value in vars(self).items() if name not in omitted},
            "seconds_per_step": self.seconds_per_step,
            "staleness": {str(versions): count for versions, count in sorted(self.staleness.items())},
            "spans": self.trace.seconds(),
        }

    def __repr__(self) -> str:
        ended = ", diverged" if self.diverged else ""
        start = f" after {self.start_s:.2f} s of start-up" if self.start_s else ""
        return f"<Run of {self.updates} updates in {self.seconds:.2f} s{start}{ended}>"

    def _repr_html_(self) -> str:
        return f"<table>{html_rows(self.rows())}</table>"


def gather_run(config: Config, reports: Sequence[dict[str, Any]]) -> Run:
    """Make the run from the reports of all servers, or from the report of only one of several servers; that run has
    only its part of the parameters. The run's counts are those of the first server, since every push sends it a part.
    """
    first, began = reports[0], min(report["began_at"] for report in reports)
    layouts = [report["layout"] for report in reports]
    alone = len(reports) < config.servers
    left = zip(*(report["left"] for report in reports), strict=True)
    workers = [join_state(parts, None if alone else layouts) if all(parts) else None for parts in left]
    state = state_of([report["state"] for report in reports], workers)
    return Run(
        config=config,
        params=first["params"] if alone else join([report["params"] for report in reports], layouts),
        losses=[(at - began, step, loss) for at, step, loss in first["losses"]],
        seconds=max(max(report["changed_at"] for report in reports) - began, 0.0),
        updates=first["applied"],
        missing=first["missing"],
        late=first["late"],
        bytes_sent=sum(report["bytes_sent"] for report in reports),
        bytes_received=sum(report["bytes_received"] for report in reports),
        staleness=first["staleness"],
        grants=first["grants"],
        trace=Trace.joined([report["trace"] for report in reports]).since(began),
        events=sorted(
            (at - began, text if len(reports) == 1 else f"server {report['index']}: {text}")
            for report in reports
            for at, text in report["events"]
        ),
        server_rows=[rows for report in reports if (rows := report["rows"]) is not None],
        state={**state, "index": first["index"]} if alone else state,
        stopped=any(report["stopped"] for report in reports),
        diverged=next((report["diverged"] for report in reports if report["diverged"]), None),
    )


def server_state(state: SavedState, index: int, layout: Layouts) -> ServerState:
    """One server's state, with its workers' state there. Raises ValueError if the run is that of another server."""
    alone = state.get("index")
    if alone not in (None, index):
        raise ValueError(f"The run is only that of server {alone}: resume server {alone} from it, not server {index}.")
    place, whole = (index, layout) if alone is None else (0, None)
    left = [worker and cut_state(worker, place, whole) for worker in state["workers"]]
    return {**state["servers"][place], "left": left}


_FITTING = ("workers", "servers", "placement", "exchange", "optimizer.name", "push.memory.name", "pull.memory.name")
"""The paths of the config fields that determine the form of a run's state."""


def _differing(before: Run, config: Config, origin: Origin) -> Iterator[str]:
    """The reasons, as sentences, why ``before`` cannot resume with this config and with parameters of this origin."""
    for path in _FITTING:
        kept, value = map(attrgetter(path), (before.config, config))
        if kept != value:
            what = path.removesuffix(".name")
            yield f"The run has {what} {kept!r}, and the config {value!r}: its state would not fit."
    old, new = (one.local and (one.local.steps, one.local.optimizer.name) for one in (before.config, config))
    if old != new:
        words = f"The run has local={before.config.local!r}, and the config {config.local!r}"
        yield f"{words}: its state would not fit. Other fields of the same inner optimizer may change."
    workers, each = before.config.workers, before.config.local_steps
    if before.updates + before.missing >= (wanted := workers * (config.steps // each)):
        more = "give more than" if workers == config.workers else f"with workers={workers} give more than"
        lack = f" ({before.missing} missing)" if before.missing else ""
        yield (
            f"The run has applied {before.updates} updates{lack}, and the config makes {wanted} in all. "
            f"Config.steps is the total: {more} {before.clocks * each}, as in run.config.with_({{'steps': …}})."
        )
    try:
        before.check(origin)
    except ValueError as error:
        yield message_of(error)


def check_resumable(before: Run, config: Config, origin: Origin) -> tuple[Tensors, SavedState]:
    """The parameters and the state of ``before``, to resume with this ``config`` and parameters of this ``origin``.
    Raises ValueError if these are not compatible.
    """
    if not isinstance(before, Run):
        raise TypeError(f"resume takes a Run, or the path of a saved one; got {before!r}.")
    if before.state is None:
        raise ValueError("This run has no state to resume from.")
    if before.diverged is not None:
        raise ValueError(f"A run that has diverged cannot resume: {before.diverged}")
    if differing := [*_differing(before, config, origin)]:
        raise ValueError(" ".join(differing))
    return before.params, check_state(SavedState, before.state, "the run")


def frame(rows: Sequence[Any], columns: Sequence[str]) -> Any:
    """The rows as a pandas DataFrame. Raises ImportError without pandas."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ModuleNotFoundError("A frame needs pandas, which is not installed: pip install pandas.") from None
    return pd.DataFrame(rows, columns=columns)


def _figure(x: float | None, form: str) -> str | None:
    return None if x is None else f"{x:{form}}"


def _planned(trace: Trace) -> str | None:
    """The number of messages that a plan wrote, for workers and for servers, and a name for such messages."""
    pushes = sum(count for who, count in trace.planned.items() if who.startswith("worker"))
    if not trace.planned:
        return None
    least = "" if isinf(trace.until) else "at least "
    counts = f"{least}{pushes} of workers, {trace.planned.total() - pushes} of servers"
    return f"{counts}; names, dtypes and shapes as in the message before"


def _short(codec: Any) -> str:
    """The codec's stages other than ``none``, separated by commas."""
    stages = [codec.quantizer, codec.memory, codec.serializer, codec.compressor]
    return ", ".join(repr(stage) for stage in stages if getattr(stage, "name", "") != "none")
