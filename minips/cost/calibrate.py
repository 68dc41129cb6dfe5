"""What this machine takes: a message, each stage, a gradient; measured on the config's own stages and transport.

A process asks and a process answers (`minips.cost.meters`): bare calls of several sizes, and pushes with their pulls of
several models, whose spans tell each stage's share. A `Line` goes through the timings of each. Processor time is kept
apart from walls: many workers share the cores, nobody shares the time in which a message only travels. The link, the
delays, the other workers and servers are left out: they are for the prediction to add.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from minips.cost import meters
from minips.cost.fit import Bound, Line
from minips.problems import Problem
from minips.runtime.codec import Codec
from minips.runtime.collectives import PS
from minips.runtime.config import Config
from minips.runtime.engines import Processes, Threads
from minips.runtime.engines.crew import FAREWELL_S, START_S, LocalEngine, Member, ctrl_c_later
from minips.runtime.partition import cut, partition
from minips.runtime.trace import SPANS, Span
from minips.runtime.worker import compute
from minips.stage import Tensors, Value, option
from minips.stages.aggregators import Mean
from minips.stages.consistency import BSP
from minips.stages.serializers import Packet

SIZES = (1_000, 10_000, 100_000)
"""Values in the models, where no problem is given."""
SHARES = (8, 3, 1)
"""Where one is: a server's share when there are so many."""


@dataclass(frozen=True)
class Calibration(Value):
    """What was measured. Lines are in seconds, by values, bytes or rows as they say; see `Line` for their intervals."""

    worker: dict[str, Line] = option(dict, "by span name: a worker's part of a push and its pull, by values")
    server: dict[str, Line] = option(dict, "by span name: the server's part; aggregate: a round's; by values")
    transfer: Line = option(Line(), "the span of that name, there and back, by values")
    worker_rest: Line = option(Line(), "processor time of a push and its pull in no span, at the worker, by values")
    server_rest: Line = option(Line(), "the same at the server, by values")
    idle: Line = option(Line(), "time of a push and its pull in which neither works, by values")
    message: Line = option(Line(), "a message over the bare transport, one way: α, and β for each byte")
    send: Line = option(Line(), "processor time of sending a message, and of hearing that it came, by bytes")
    receive: Line = option(Line(), "processor time of receiving a message, and of saying that it came, by bytes")
    late_s: float = option(0.0, "how much later than it says a shaped link delivers", minimum=0, unit="s")
    gradient: Line | None = option(None, "a batch's gradient of ``problem``, by rows")
    together: int = option(1, "contributions to a round", minimum=1)
    ratios: dict[str, float] = option(dict, "bytes that leave a stage of the push codec over those that enter it")
    cores: int = option(1, "cores of this machine", minimum=1)
    others: float = option(0.0, "processes of others that wanted a core at the same time", minimum=0)
    problem: str = option("", "whose gradients these were; empty: normal float32 values")
    subject: str = option("", "the stages and the transport that were measured")

    @property
    def alpha_s(self) -> float:
        """Seconds that a message takes however small it is."""
        return self.message.fixed_s

    @property
    def beta_s(self) -> float:
        """Seconds for each byte of a message."""
        return self.message.each_s

    def bound(self, which: Bound) -> Self:
        """All the lower quartiles, or all the upper ones."""
        lines = ("transfer", "worker_rest", "server_rest", "idle", "message", "send", "receive", "gradient")
        return replace(
            self,
            worker={name: line.bound(which) for name, line in self.worker.items()},
            server={name: line.bound(which) for name, line in self.server.items()},
            **{name: line.bound(which) for name in lines if (line := getattr(self, name))},
        )

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` wrote. ValueError where the file holds something else."""
        return cls.from_dict(json.loads(Path(path).read_text()))

    def __str__(self) -> str:
        """A text table: α and β, then each stage: what it takes for a message, for a float32, and its ratio."""
        lines = [
            f"α  {_micro(self.message.fixed_s, self.message)} µs for a message",
            f"β  {_nano(self.message.each_s, self.message)} ns for a byte",
            f"{'':<22}{'fixed, µs':>22}{'ns for a byte':>22}{'ratio':>8}",
        ]
        if self.gradient:
            lines.insert(
                2,
                f"a gradient: {_micro(self.gradient.fixed_s, self.gradient)} µs, and for a row "
                f"{_micro(self.gradient.each_s, self.gradient)} µs",
            )
        for side, spans in (("worker", self.worker), ("server", self.server)):
            for name, line in spans.items():
                ratio = f"{self.ratios[name]:8.3f}" if side == "worker" and name in self.ratios else ""
                each = line.times(1 / 4)
                lines.append(f"{side} {name:<15}{_micro(line.fixed_s, line):>22}{_nano(each.each_s, line):>22}{ratio}")
        return "\n".join(lines)


def alone(config: Config) -> Config:
    """What of a config its calibration depends on: its stages and its transport, without link and delays, with as few
    workers as its aggregator can do with.
    """
    return replace(
        config,
        workers=config.aggregator.least,
        servers=1,
        steps=1,
        batch_size=None,
        seed=0,
        consistency=BSP(),
        exchange=PS(),
        link=None,
        delays=None,
        overlap=False,
        accumulate=1,
    )


def calibrate(
    config: Config,
    problem: Problem | None = None,
    *,
    progress: bool | Callable[[float], None] = False,
    cache: str | Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Calibration:
    """Measure a push and a pull of ``config``'s stages and transport here, in processes of its own: a second or two.

    With a ``problem`` the stages work on its gradients, of several servers' shares, and the gradient is timed too;
    without one, on normal float32 values. ``progress`` shows a bar, or is called with the share that is done.
    ``cache`` is a JSON file: what it holds is taken if it was measured for the same stages, transport and problem with
    as many cores, and it is written otherwise. RuntimeError where ``stop()`` ends it before, or a stage fails.
    """
    subject = json.dumps(alone(config).to_dict(), sort_keys=True)
    described = problem_words(problem) if problem else ""
    if cache and Path(cache).exists():
        known = Calibration.load(cache)
        if (known.subject, known.problem, known.cores) == (subject, described, _cores(config)):
            return known
    with _showing(progress) as show:
        measured = _measure(config, problem, show, stop)
    calibration = replace(measured, subject=subject, problem=described)
    if cache:
        calibration.save(cache)
    return calibration


def problem_words(problem: Problem) -> str:
    """A problem's kind, size and rows, to tell it from others."""
    values = sum(x.size for x in problem.init(np.random.default_rng(0)).values())
    return f"{type(problem).__name__} of {values} values, {problem.rows} rows"


def _measure(
    config: Config, problem: Problem | None, show: Callable[[float], None], stop: Callable[[], bool]
) -> Calibration:
    pieces, part = _pieces(config, problem)
    together = config.consistency.quorum(config.workers) or 1
    single = replace(alone(config), workers=1, aggregator=Mean(), batch_size=config.batch_size, seed=config.seed)
    engine: LocalEngine = Threads() if config.transport.name == "inproc" else Processes()
    members: list[Member] = []
    try:
        with ctrl_c_later():
            for who in ("a process that answers", "a process that asks"):
                members.append(engine.start(who))
        answers, asks = members
        common = {"config": single, "pieces": pieces, "token": ""}
        answers.brief(meters.answer, {**common, "aggregator": config.aggregator, "together": together})
        addresses = _hear(answers, "ready", stop)
        asks.brief(meters.ask, {**common, "problem": part, "addresses": addresses})
        _hear(asks, "ready", stop)
        for member in members:
            member.say("spin")
        share = sum(_hear(member, "spun", stop) for member in members) / 2
        asked = _hear(asks, "result", stop, show)
        answers.say("stop")
        answered = _hear(answers, "result", stop)
    finally:
        for member in members:
            member.say("stop")
        for member in members:
            member.end(FAREWELL_S)
    one_process = isinstance(engine, Threads)
    return replace(
        _fit(asked, answered, one_process),
        together=together,
        ratios=_ratios(config.push, pieces[-1]),
        cores=_cores(config),
        others=0.0 if one_process else max(0.0, min(2, _cores(config)) / max(share, 0.01) - 2),
    )


def _fit(asked: dict[str, Any], answered: dict[str, Any], one_process: bool) -> Calibration:
    """Lines through what the two processes report. In one process the processor time of both is that of either."""
    worker, server = _spans(asked["blocks"], answered["spans"])
    server["aggregate"] = answered["aggregate"]
    lines = {
        side: {name: Line.fit(spans[name]) for name in SPANS if name in spans}
        for side, spans in (("worker", worker), ("server", server))
    }
    transfer = lines["worker"].pop("transfer")
    lines["worker"].pop("wait", None)
    trips, calls = asked["trips"], asked["calls"]
    trip = Line.fit([(size, wall) for size, wall, _, _ in trips])
    here = Line.fit([(size, here) for size, _, here, _ in trips])
    there = Line.fit([(size, 0.0 if one_process else there) for size, _, _, there in trips])
    call = Line.fit([(size, wall) for size, wall, _, _ in calls])
    update = Line.fit(server["aggregate"])
    spent = [line for name, line in lines["server"].items() if name != "aggregate"]
    small = min(size for size, *_ in calls)
    bare = float(np.median([wall for size, wall, _, _ in calls if size == small]))
    shaped = float(np.median([wall for _, wall, _, _ in asked["shaped"]]))
    return Calibration(
        worker=lines["worker"],
        server=lines["server"],
        transfer=transfer,
        worker_rest=here.less(*lines["worker"].values(), *(spent if one_process else ())),
        server_rest=there.less(*spent, update),
        idle=trip.less(here, there),
        message=replace(call, fixed_s=call.fixed_s / 2),
        send=Line.fit([(size, here) for size, _, here, _ in calls]),
        receive=Line.fit([(size, 0.0 if one_process else there) for size, _, _, there in calls]),
        late_s=max(0.0, (shaped - bare) / 2 - meters.LINK.latency_s),
        gradient=Line.fit(asked["gradient"]) if asked["gradient"] else None,
    )


def _spans(
    blocks: list[tuple[float, int, dict[str, float], float, float]], spans: list[list[Span]]
) -> tuple[dict[str, meters.Timings], dict[str, meters.Timings]]:
    """For worker and server the timings of one push and its pull, by span name: those of a server's spans that lie in a
    block's time belong to it.
    """
    worker: dict[str, meters.Timings] = defaultdict(list)
    server: dict[str, meters.Timings] = defaultdict(list)
    everything = sorted((span for one in spans for span in one), key=lambda span: span.start)
    for size, calls, totals, began, ended in blocks:
        for name, seconds in totals.items():
            worker[name].append((size, seconds / calls))
        theirs: dict[str, float] = defaultdict(float)
        for span in everything:
            if began <= span.start < ended:
                theirs[span.name] += span.seconds
        for name, seconds in theirs.items():
            server[name].append((size, seconds / calls))
    return worker, server


def _pieces(config: Config, problem: Problem | None) -> tuple[list[Tensors], Problem | None]:
    """Gradients of several sizes, and the part of the problem that a worker computes."""
    if problem is None:
        rng = np.random.default_rng(config.seed)
        return [{"w": rng.normal(size=size).astype(np.float32)} for size in SIZES], None
    part = problem.shard(0, config.workers)
    params = problem.init(np.random.default_rng(config.seed))
    _, gradients = compute(part, replace(config, delays=None), params, 0, 0)
    pieces = {}
    for servers in SHARES:
        piece = {name: np.array(x) for name, x in cut(gradients, partition(params, servers)[0]).items()}
        if size := sum(x.size for x in piece.values()):
            pieces[size] = piece
    return list(pieces.values()), part


def _ratios(codec: Codec, tensors: Tensors) -> dict[str, float]:
    """Bytes out over bytes in of the stages that change them, for one message without its header."""
    rng = np.random.default_rng(0)
    quantized = {name: (codec.quantizer_of(name), x) for name, x in tensors.items()}
    parts = {name: (quantizer.name, quantizer.encode(x, rng)) for name, (quantizer, x) in quantized.items()}
    frames = codec.serializer.dumps(Packet({}, parts))
    sizes = [
        sum(x.nbytes for x in tensors.values()),
        sum(part.nbytes for _, one in parts.values() for part in one.values()),
        sum(map(len, frames)),
        sum(len(codec.compressor.compress(frame)) for frame in frames if len(frame)),
    ]
    names = ("quantize", "serialize", "compress")
    return {name: out / into for name, into, out in zip(names, sizes, sizes[1:], strict=False) if into}


def _cores(config: Config) -> int:
    """The cores that work at the same time: threads of one interpreter take turns, so within a process it is one."""
    return 1 if config.transport.name == "inproc" else os.cpu_count() or 1


def _hear(
    member: Member, wanted: str, stop: Callable[[], bool], show: Callable[[float], None] = lambda share: None
) -> Any:
    """The value of the member's word ``wanted``; RuntimeError where it fails first, or ``stop()`` says so."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if stop():
            raise RuntimeError("The calibration was stopped.")
        if not member.pipe.poll(0.1):
            continue
        word, value = member.pipe.recv()
        if word == wanted:
            return value
        if word == "failed":
            raise RuntimeError(f"{member.who} failed: {value[0]}")
        if word == "progress":
            show(value)
            deadline = time.monotonic() + START_S
    raise RuntimeError(f"{member.who} said nothing for {START_S:g} seconds. Is the machine overloaded?")


@contextmanager
def _showing(progress: bool | Callable[[float], None]) -> Iterator[Callable[[float], None]]:
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda share: None
    else:
        from rich.progress import Progress

        with Progress(transient=True) as bar:
            task = bar.add_task("calibrating", total=1.0)
            yield lambda share: bar.update(task, completed=share)


def _micro(seconds: float, line: Line) -> str:
    """Microseconds with their interval."""
    return _interval(seconds * 1e6, line)


def _nano(seconds: float, line: Line) -> str:
    return _interval(seconds * 1e9, line)


def _interval(value: float, line: Line) -> str:
    return f"{value:.3g} ({value * line.low:.3g} to {value * line.high:.3g})"
