"""Measure the times that the race charges for each stage, and write ``minips/racing/calibration.json``.

    python benchmarks/race/calibrate.py

All tracks use this one file, so figures of different machines are never mixed. After a new measurement, every row of
LEADERBOARD.md has to be run again.
"""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
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

TOGETHER = 8
"""Contributions to a round."""
SIZES = (65, 650, 6500)
REPEATS = 60


def line_of(work: "Work") -> list[float]:
    """Fit a line to the median seconds of ``work(x)()`` over arrays of several sizes."""
    timings = []
    for size in SIZES:
        call = work(np.random.default_rng(0).normal(size=(size // 5, 5)).astype(np.float32))
        call()
        for _ in range(REPEATS):
            began = time.perf_counter()
            call()
            timings.append((size, time.perf_counter() - began))
    line = _short(Line.fit(timings))
    return [line.fixed_s, line.each_s]


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


Work = Callable[[np.ndarray], Callable[[], object]]
"""Makes, from an array, the call to be timed."""


def works() -> Iterator[tuple[str, Any, Work]]:
    """Yield the span of each stage's work, the stage, and the work."""
    rng = np.random.default_rng(0)
    for quantizer in stages_of("quantizer"):
        yield "quantize", quantizer, lambda x: partial(quantizer.encode, x, rng)  # noqa: B023
        yield "dequantize", quantizer, lambda x: partial(quantizer.decode, quantizer.encode(x, rng))  # noqa: B023
    for memory in stages_of("memory"):
        yield "compensate", memory, lambda x: partial(_remember, memory, x, {})  # noqa: B023
    for serializer in stages_of("serializer"):
        yield "serialize", serializer, lambda x: partial(serializer.dumps, packet(x))  # noqa: B023
        yield "deserialize", serializer, lambda x: partial(serializer.loads, serializer.dumps(packet(x)))  # noqa: B023
    for one in stages_of("compressor"):
        yield "compress", one, lambda x: partial(one.compress, x.tobytes())  # noqa: B023
        yield "decompress", one, lambda x: partial(one.decompress, one.compress(x.tobytes()), x.nbytes)  # noqa: B023
    for aggregator in stages_of("aggregator"):
        yield "aggregate", aggregator, lambda x: partial(aggregator.combine, _round(x))  # noqa: B023
    for optimizer in stages_of("optimizer"):
        yield "apply", optimizer, lambda x: partial(optimizer.step, {"W": x.copy()}, {"W": x}, {"clock": 1})  # noqa: B023


def _remember(memory: Any, x: np.ndarray, state: dict[str, Any]) -> None:
    if not memory.stateless:
        memory.update(memory.compensate(x, state), x, state)


def _round(x: np.ndarray) -> list[Contribution]:
    return [Contribution(rank, 0, 0, {"W": x + np.float32(rank)}) for rank in range(TOGETHER)]


def _short(line: Line) -> Line:
    return Line(float(f"{line.fixed_s:.3g}"), float(f"{line.each_s:.3g}"))


@one_blas_thread
def main() -> None:
    """Measure every stage, and write the file."""
    spans: dict[str, dict[str, list[float]]] = {}
    for span, stage, work in works():
        spans.setdefault(span, {})[stage.name] = line_of(work)
        print(span, stage.name, spans[span][stage.name])
    base = ps.cost.calibrate(ps.Config(push=Codec(), batch_size=None), problem_of(0))
    kept = ps.cost.Calibration(  # the tracks say how long a gradient takes
        worker_rest=_short(base.worker_rest),
        server_rest=_short(base.server_rest),
        idle=_short(base.idle),
        hop_rest=_short(base.hop_rest),
        hop_idle=_short(base.hop_idle),
        together=TOGETHER,
    )
    file = Path(__file__).parents[2] / "minips" / "racing" / "calibration.json"
    file.write_text(json.dumps({"base": kept.to_dict(), "spans": spans}, indent=1) + "\n")


if __name__ == "__main__":
    main()
