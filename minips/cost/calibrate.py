"""Calibrate this machine: time a message, each stage and a gradient with the config's own stages and transport.

Two processes exchange bare calls of several sizes, and pushes and pulls of several models. The spans of these give each
stage's share (`minips.cost.microbenchmarks`). A `Line` is fitted to each set of timings. Processor time is measured in
addition to wall time, since many workers share the cores. Contention is the processor time of a push among many others,
divided by that of a push without others. The prediction adds the link, the delays, and the other workers and servers.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minips import files, seeds
from minips.arithmetic import one_blas_thread
from minips.core.codec import Codec
from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.partition import cut, partition
from minips.cost import microbenchmarks
from minips.cost.microbenchmarks import Block
from minips.cost.noise import measure_quietly, usable_cores
from minips.cost.performance_model import EVEN_STEPS, PerformanceModel, Workload
from minips.engines import Processes, Threads
from minips.engines.local import START_S
from minips.engines.supervisor import Supervisor, send_all
from minips.engines.worker import compute, shards_of
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.problems import Problem
from minips.results.run import Stop
from minips.results.trace import SPANS
from minips.stage import Tensors
from minips.stages.aggregators import Mean
from minips.stages.serializers import Packet
from minips.training.progress import Wait, showing

SIZES = (1_000, 10_000, 100_000)
"""The numbers of values in the models when no problem is given."""
SHARES = (8, 3, 1)
"""Numbers of servers. For each, one server's share of a given problem's parameters is a measured model."""
LEAST_BLOCKS = 6
"""With fewer blocks than this, the two halves are not compared."""
STOPPED_S = 0.1
"""The most seconds that a process may take to exit after the calibration was stopped."""
ATTEMPTS = 3
"""The most measurements while other programs keep the machine busy."""
MOST_CROWDED = 8.0
"""The limit of a crowd's factor; only a disturbed machine gives a larger one."""


def alone(config: Config) -> Config:
    """Return the part of a config that its calibration depends on: stages and transport, with the fewest workers."""
    kept = ("push", "pull", "transport", "aggregator", "optimizer", "timeout_s")
    stages = {name: getattr(config, name) for name in kept}
    return Config(**stages, workers=config.aggregator.least, steps=1, batch_size=None)


@one_blas_thread
def calibrate(
    config: Config,
    problem: Problem | None = None,
    *,
    progress: bool | Callable[[float], None] | None = None,
    cache: str | Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Calibration:
    """Measure pushes and pulls with ``config``'s stages and transport in child processes; it takes a few seconds.

    With a ``problem``, the stages process its gradients, cut for several numbers of servers, and computing a gradient
    is timed too. Without one, they process normal float32 values. ``progress`` is as in `train`; a function is called
    with the share done. ``cache`` is a JSON file. Its calibration is reused if it was made on a quiet machine for the
    same stages, transport, problem and number of cores; otherwise the file is overwritten. RuntimeError if ``stop()``
    ends the calibration early or a stage fails; OSError if the cache cannot be written.

    The measurement is repeated, twice at most, if other programs took more than a fifth of the cores, or if its second
    half took 1.5 times as long as its first. The quietest attempt counts; if even that one was disturbed, its ``note``
    says so.
    """
    if cache and Path(cache).is_dir():  # check before the measurement, not after it
        raise OSError(f"The cache {cache} is a folder. Name a file in it, such as {Path(cache) / 'calibration.json'}.")
    if cache and not Path(cache).absolute().parent.is_dir():
        raise OSError(f"The folder of the cache {cache} does not exist. Make {Path(cache).parent}, or choose another.")
    if cache:
        files.check(cache)
    subject = json.dumps(alone(config).to_dict(), sort_keys=True)
    described = problem_words(problem) if problem else ""
    if cache and Path(cache).is_file():
        with suppress(ValueError):  # the cache is truncated or another kind of file
            known = Calibration.load(cache)
            made_for = known.subject, known.problem, known.cores
            if made_for == (subject, described, _cores(config)) and not known.note:
                return known
    attempts: list[int] = []

    def wait(share: float | None) -> Wait:
        return Wait(f"measuring the stages{' again, since the machine was busy' * (len(attempts) > 1)}", share)

    with showing(progress, wait, first=wait(None)) as show:

        def attempt() -> tuple[Calibration, float]:
            attempts.append(number := len(attempts))  # each attempt gets an eighth of what is left of the bar
            return _measure(config, problem, lambda share: show(1 - (1 - share) / 8**number), stop)

        (measured, _), note = measure_quietly(attempt, ATTEMPTS, lambda found: found[1])
    calibration = replace(measured, subject=subject, problem=described, note=note)
    if cache:
        calibration.save(cache)
    return calibration


def problem_words(problem: Problem) -> str:
    """Return a problem's kind, size and rows, which distinguish it from other problems."""
    values = sum(x.size for x in problem.init(seeds.init(0)).values())
    return f"{type(problem).__name__} of {values} values, {problem.rows} rows"


def _measure(
    config: Config, problem: Problem | None, show: Callable[[float], None], stop: Stop
) -> tuple[Calibration, float]:
    """Return a calibration, and the ratio of its second half's seconds to its first half's."""
    pieces, part = _pieces(config, problem)
    together = config.consistency.quorum(config.workers) or 1
    single = replace(alone(config), workers=1, aggregator=Mean(), batch_size=config.batch_size, seed=config.seed)
    crowd = replace(single, workers=microbenchmarks.CROWD)
    configs, token = (single, crowd, _pair(single)), secrets.token_hex(16)
    plan = microbenchmarks.Assignment(*configs, pieces, config.aggregator, together, token)
    one_process = config.transport.reach == Threads.apart

    def check() -> None:
        if stop():
            if not one_process:  # a child that is measuring reads no messages, but it can be killed
                supervisor.farewell_s = STOPPED_S
            raise RuntimeError("The calibration was stopped.")

    engine = Threads() if one_process else Processes()
    with Supervisor(engine.start, check) as supervisor:
        crowd_names = [f"process {worker} of the crowd" for worker in range(1, microbenchmarks.CROWD)]
        answers, asks, *others = supervisor.start("a process that answers", "a process that asks", *crowd_names)
        answers.assign(microbenchmarks.answer, {"plan": plan})
        addresses = supervisor.receive(answers, "ready", START_S)
        asks.assign(microbenchmarks.ask, {"plan": plan, "problem": part, "addresses": addresses})
        for worker, child in enumerate(others, 1):
            child.assign(microbenchmarks.load_generator, {"plan": plan, "address": addresses.crowd, "worker": worker})
        answers.send("connect", supervisor.receive(asks, "ready", START_S))
        supervisor.receive(answers, "connected", START_S)
        for child in others:
            supervisor.receive(child, "ready", START_S)
        send_all((answers, asks), "spin")
        share = sum(supervisor.receive(child, "spun", START_S) for child in (answers, asks)) / 2
        asks.send("go")
        asked = supervisor.receive(asks, "result", START_S, show)
        supervisor.stop()
        answered = supervisor.receive(answers, "result", START_S)
    found = replace(
        _fit(asked, answered, one_process),
        together=together,
        ratios=_ratios(config.push, pieces[-1]),
        cores=_cores(config),
        others=0.0 if one_process else max(0.0, min(2, _cores(config)) / max(share, 0.01) - 2),
    )
    return replace(found, server_crowd=_server_crowd(asked["crowd"], found, crowd)), _drift(asked["trips"])


def _drift(blocks: list[Block]) -> float:
    """Return the ratio of the second half's seconds to the first half's, for the same calls; 1 for too few blocks."""
    walls = [[block.wall_s for block in blocks if block.size == size] for size in {block.size for block in blocks}]
    halves = [(row[: len(row) // 2], row[-(len(row) // 2) :]) for row in walls if len(row) >= LEAST_BLOCKS]
    medians = [(float(np.median(first)), float(np.median(second))) for first, second in halves]
    ratios = [second / first for first, second in medians if first and second]  # a coarse clock may measure 0
    return float(np.median(ratios)) if ratios else 1.0


def _pair(single: Config) -> Config | None:
    """Return a config of two workers with an all-reduce; None if the codec does not allow an all-reduce."""
    try:
        return replace(single, workers=2, pull=Codec(), exchange=RingAllReduce())
    except ValueError:
        return None


def _fit(asked: dict[str, Any], answered: dict[str, Any], one_process: bool) -> Calibration:
    """Fit lines to the timings that the processes report."""
    trips: list[Block] = asked["trips"]
    worker = _spans(trips)
    server = _spans([block.with_spans(answered["spans"]) for block in trips])
    transfer = worker.pop("transfer")
    worker.pop("wait", None)
    asker, answerer = _line(trips, "asker_s"), _line(trips, "answerer_s")
    if one_process:  # each side measured the processor time of both
        asker, answerer = asker.less(*server.values()), Line.fit([(0.0, 0.0)])
    worker_rest = asker.less(*worker.values())
    call = _line(asked["calls"], "wall_s")
    bare = _median([block for block in asked["calls"] if block.size == min(microbenchmarks.CALL_BYTES)], "wall_s")
    hop_rest, hop_idle = _hop(asked["hops"], one_process) if "hops" in asked else (Line(), Line())
    gradients = {kind: Line.fit(seconds) for kind, seconds in asked["gradients"].items()}
    return Calibration(
        worker=worker,
        server={**server, "aggregate": Line.fit(answered["aggregate"])},
        transfer=transfer,
        worker_rest=worker_rest,
        server_rest=answerer.less(*server.values()),
        idle=_line(trips, "wall_s").less(asker, answerer),
        hop_rest=hop_rest,
        hop_idle=hop_idle,
        message=replace(call, fixed_s=call.fixed_s / 2),
        late_s=max(0.0, (_median(asked["shaped"], "wall_s") - bare) / 2 - microbenchmarks.LINK.latency_s),
        gradient=gradients.get("gradient"),
        next_gradient=gradients.get("next_gradient"),
        worker_crowd=1.0 if one_process else _worker_crowd(asked["crowd"], [*worker.values()], worker_rest),
    )


Seconds = Literal["wall_s", "asker_s", "answerer_s"]


def _line(blocks: list[Block], of: Seconds) -> Line:
    return Line.fit([(block.size, getattr(block, of)) for block in blocks])


def _median(blocks: list[Block], of: Seconds) -> float:
    return float(np.median([getattr(block, of) for block in blocks]))


def _spans(blocks: list[Block]) -> dict[str, Line]:
    """Fit a line to the times of each span name."""
    timings = {name: [(block.size, block.spans[name]) for block in blocks if name in block.spans] for name in SPANS}
    return {name: Line.fit(pairs) for name, pairs in timings.items() if pairs}


def _hop(hops: list[Block], one_process: bool) -> tuple[Line, Line]:
    """Fit lines, over the values of a hop's message, to its processor time outside all spans and to its idle time.

    An exchange has two hops, each with half of the values. The two peers do the same work at the same time.
    """
    cpu, spans = _line(hops, "asker_s"), _spans(hops)
    rest = cpu.times(1 / 2 if one_process else 1).less(
        *(line for name, line in spans.items() if name not in ("transfer", "wait"))
    )
    idle = _line(hops, "wall_s").less(cpu)
    return replace(rest, fixed_s=rest.fixed_s / 2), replace(idle, fixed_s=idle.fixed_s / 2)


def _worker_crowd(crowd: list[Block], spans: list[Line], rest: Line) -> float:
    """Return the ratio of a worker's processor time outside all spans in a crowd to that of a single worker.

    Within one process, this time cannot be separated from the server's, and counts as the server's.
    """
    size = crowd[0].size
    spent, usual = _median(crowd, "asker_s") - sum(line.at(size) for line in spans), rest.at(size)
    return min(max(spent / usual, 1.0), MOST_CROWDED) if usual else 1.0


def _server_crowd(rows: Sequence[tuple[Any, ...]], found: Calibration, config: Config) -> float:
    """The factor for a server's time outside all spans in a crowd. It makes a predicted crowd take as long as the
    measured one. The factor covers processor time and threads' waits for the interpreter.
    """
    config, load = replace(config, steps=EVEN_STEPS), Workload(rows[0][0], 0.0)
    wall = float(np.median([wall for _, wall, *_ in rows]))
    low, high = 1.0, MOST_CROWDED
    for _ in range(10):
        factor = (low + high) / 2
        crowd = PerformanceModel(config, replace(found, server_crowd=factor, gradient=None), load)
        low, high = (factor, high) if crowd.seconds_per_step < wall else (low, factor)
    return low


def _pieces(config: Config, problem: Problem | None) -> tuple[list[Tensors], Problem | None]:
    """Return gradients of several sizes, and one worker's shard of the problem."""
    if problem is None:
        rng = np.random.default_rng(config.seed)
        return [{"w": rng.normal(size=size).astype(np.float32)} for size in SIZES], None
    part = shards_of(problem, config)(0)
    params = problem.init(seeds.init(config.seed))
    _, gradients = compute(part, replace(config, delays=None), params, 0, 0)
    shares = [cut(gradients, partition(params, servers)[0]) for servers in SHARES]
    pieces = {microbenchmarks.count(share): {name: np.array(x) for name, x in share.items()} for share in shares}
    return [piece for size, piece in pieces.items() if size], part


def _ratios(codec: Codec, tensors: Tensors) -> dict[str, float]:
    """Map each stage that changes the number of bytes to its ratio of output to input, for a message without header."""
    rng = np.random.default_rng(0)
    quantized = {name: (codec.quantizer_of(name), x) for name, x in tensors.items()}
    parts = {name: (quantizer.name, quantizer.encode(x, rng)) for name, (quantizer, x) in quantized.items()}
    frames = codec.serializer.dumps(Packet({}, parts))
    sizes = [
        sum(x.nbytes for x in tensors.values()),
        sum(part.nbytes for _, encoded in parts.values() for part in encoded.values()),
        sum(map(len, frames)),
        sum(len(codec.compressor.compress(frame)) for frame in frames if len(frame)),
    ]
    names = ("quantize", "serialize", "compress")
    return {name: out / into for name, into, out in zip(names, sizes, sizes[1:], strict=False) if into}


def _cores(config: Config) -> int:
    """Return how many cores work at the same time: one in a single process, whose threads share an interpreter."""
    return 1 if config.transport.reach == Threads.apart else len(usable_cores())
