"""Measure the times that the race charges for each stage, and write ``minips/racing/calibration.json``.

    python benchmarks/race/calibrate.py

All tracks use this one file, so figures of different machines are never mixed. After a new measurement, every row of
LEADERBOARD.md has to be run again.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import minips as ps
from minips.arithmetic import one_blas_thread
from minips.core.codec import Codec
from minips.machines.fit import Line
from minips.racing.tracks import problem_of
from minips.stage import names, stage_class
from minips.stages.aggregators import Contribution
from minips.stages.serializers import Packet

SIZES = (65, 650, 6500)
REPEATS = 60


def line_of(work: Callable[[np.ndarray], Callable[[], object]]) -> list[float]:
    """Fit a line to the median seconds of ``work(x)()`` over arrays of several sizes."""
    timings = []
    for size in SIZES:
        call = work(np.random.default_rng(0).normal(size=(size // 5, 5)).astype(np.float32))
        call()
        for _ in range(REPEATS):
            began = time.perf_counter()
            call()
            timings.append((size, time.perf_counter() - began))
    line = Line.fit(timings)
    return [float(f"{line.fixed_s:.3g}"), float(f"{line.each_s:.3g}")]


def packet(x: np.ndarray) -> Packet:
    """A packet with one tensor."""
    return Packet({"clock": 1}, {"W": ("exact", {"values": x})})


def stages_of(kind: str) -> list[Any]:
    """The stages of a kind, with their default fields, that can be made here."""
    found = []
    for name in names(kind):
        try:
            found.append(stage_class(kind, name)())
        except ImportError as error:
            print(f"left out: {error}")
    return found


@one_blas_thread
def main() -> None:
    """Measure every stage, and write the file."""
    rng = np.random.default_rng(0)
    spans: dict[str, dict[str, list[float]]] = {}

    def keep(span: str, stage: Any, work: Callable[[np.ndarray], Callable[[], object]]) -> None:
        spans.setdefault(span, {})[stage.name] = line_of(work)
        print(span, stage.name, spans[span][stage.name])

    for quantizer in stages_of("quantizer"):
        keep("quantize", quantizer, lambda x, q=quantizer: lambda: q.encode(x, rng))
        keep("dequantize", quantizer, lambda x, q=quantizer: (lambda parts: lambda: q.decode(parts))(q.encode(x, rng)))
    for memory in stages_of("memory"):

        def compensate(x: np.ndarray, m: Any = memory) -> Callable[[], object]:
            state: dict[str, Any] = {}
            return lambda: m.stateless or m.update(m.compensate(x, state), x, state)

        keep("compensate", memory, compensate)
    for serializer in stages_of("serializer"):
        keep("serialize", serializer, lambda x, s=serializer: (lambda p: lambda: s.dumps(p))(packet(x)))
        keep("deserialize", serializer, lambda x, s=serializer: (lambda f: lambda: s.loads(f))(s.dumps(packet(x))))
    for compressor in stages_of("compressor"):
        keep("compress", compressor, lambda x, c=compressor: (lambda b: lambda: c.compress(b))(x.tobytes()))
        keep(
            "decompress",
            compressor,
            lambda x, c=compressor: (lambda b: lambda: c.decompress(b, x.nbytes))(c.compress(x.tobytes())),
        )
    for aggregator in stages_of("aggregator"):
        together = max(8, aggregator.least)

        def combine(x: np.ndarray, a: Any = aggregator, n: int = together) -> Callable[[], object]:
            each = [Contribution(rank, 0, 0, {"W": x + np.float32(rank)}) for rank in range(n)]
            return lambda: a.combine(each)

        keep("aggregate", aggregator, combine)
    for optimizer in stages_of("optimizer"):

        def step(x: np.ndarray, o: Any = optimizer) -> Callable[[], object]:
            params, state = {"W": x.copy()}, {"clock": 1}
            return lambda: o.step(params, {"W": x}, state)

        keep("apply", optimizer, step)
    base = ps.cost.calibrate(ps.Config(push=Codec(), batch_size=None), problem_of(0))
    rests = ("worker_rest", "server_rest", "idle", "hop_rest", "hop_idle")
    lines = {
        name: Line(*(float(f"{x:.3g}") for x in (line.fixed_s, line.each_s)))
        for name in rests
        if (line := getattr(base, name))
    }
    base = ps.cost.Calibration(**lines, together=8)  # the tracks say how long a gradient takes
    file = Path(__file__).parents[2] / "minips" / "racing" / "calibration.json"
    file.write_text(json.dumps({"base": base.to_dict(), "spans": spans}, indent=1) + "\n")


if __name__ == "__main__":
    main()
