"""The map of where compression pays: link bandwidth × gradient size, and which codec makes the fastest step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minips.core.codec import Codec
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.cost.calibrate import calibrate
from minips.cost.cluster import all_reduced
from minips.cost.predict import message_nbytes
from minips.cost.rehearsal import FixedGradients
from minips.cost.walk import Walk, Workload
from minips.drivers.events import seldom_collected
from minips.engines import Engine
from minips.machines.calibration import Calibration
from minips.stage import Tensors
from minips.stages.memories import ErrorFeedback
from minips.stages.optimizers import SGD
from minips.stages.quantizers import Exact, Float16, TopK, Uniform
from minips.stages.transports import Link
from minips.training.progress import showing
from minips.training.train import engine_for, train

STEPS, SAMPLE_STEPS = 6, 10
SAMPLE_S = 3.0
"""A point whose slowest codec takes longer for its steps is not measured."""
CODECS = {
    "exact": Codec(Exact()),
    "float16": Codec(Float16()),
    "8 bits": Codec(Uniform(bits=8)),
    "top 1 %": Codec(TopK(fraction=0.01), ErrorFeedback()),
}


@dataclass(frozen=True)
class Sample:
    """One measured point of the map: its row and column, and seconds per step by codec."""

    size: int
    bandwidth: int
    seconds: dict[str, float]

    @property
    def winner(self) -> str:
        """The codec that was fastest."""
        return min(self.seconds, key=self.seconds.__getitem__)


@dataclass(frozen=True, eq=False)
class CodecMap:
    """Seconds per step, predicted for each codec, size and bandwidth, and samples that were measured."""

    codecs: list[str]
    values: NDArray[np.int64]
    """Sizes of the gradient, in float32 values: the rows."""
    bandwidths_bps: NDArray[np.float64]
    """The columns."""
    seconds: NDArray[np.float64]
    """Of shape (codecs, sizes, bandwidths)."""
    samples: list[Sample]

    @property
    def winners(self) -> NDArray[np.intp]:
        """The number of the fastest codec, of shape (sizes, bandwidths)."""
        return np.asarray(self.seconds.argmin(axis=0))

    @property
    def regret(self) -> float:
        """The longest extra time of a predicted codec over the fastest measured one, of all samples, as a share; 0
        where they were the same, and without samples.
        """
        over = (sample.seconds[self._predicted(sample)] / min(sample.seconds.values()) for sample in self.samples)
        return max(over, default=1.0) - 1

    @property
    def hits(self) -> int:
        """The number of samples at which the predicted codec was the fastest."""
        return sum(self._predicted(sample) == sample.winner for sample in self.samples)

    def _predicted(self, sample: Sample) -> str:
        return self.codecs[int(self.winners[sample.size, sample.bandwidth])]


def codec_map(
    codecs: Mapping[str, Codec] | None = None,
    values: Sequence[int] | None = None,
    bandwidths_bps: Sequence[float] | None = None,
    *,
    start: Config | None = None,
    latency_s: float = 1e-3,
    calibrations: Mapping[str, Calibration] | None = None,
    samples: int = 0,
    engine: Engine | str | None = None,
    progress: bool | Callable[[str, float], None] = False,
    watch: bool | Callable[[str, float], None] = False,
) -> CodecMap:
    """Predict a step of each push codec for gradients of so many float32 ``values`` behind links of these bandwidths.

    A step computes no gradient, whose time would be the same for all codecs. ``start`` is the config of every point but
    for codec and link (None: four workers, one server, BSP over TCP); each codec is calibrated unless it is among
    ``calibrations``. At about ``samples`` points, spread over those of the map where a step is not too slow, all codecs
    are run on ``engine`` (None: `Processes`). ``progress`` shows a bar, or is called, as ``watch`` is, with a
    description and the share that is done.
    """
    codecs = CODECS if codecs is None else codecs
    sizes = np.unique(np.logspace(3, 6, 10).round().astype(int) if values is None else np.array(values, int))
    bandwidths = np.unique(np.logspace(6.5, 10, 12) if bandwidths_bps is None else np.array(bandwidths_bps, float))
    start = start or Config(workers=4, optimizer=SGD(lr=1e-3))
    known = dict(calibrations or {})
    plan = {name: replace(start, push=codec, steps=STEPS, epochs=None, local=None) for name, codec in codecs.items()}
    engine = engine_for(engine, plan.values() if samples else ())
    parts, done = 2 * len(plan) + bool(samples) * len(plan), 0
    with showing(progress or watch, lambda text, share: (text, share)) as show:
        for name, config in plan.items():
            show(f"calibrating {name}", done / parts)
            done += 1
            if name not in known:
                known[name] = calibrate(config)
        seconds = np.empty((len(plan), len(sizes), len(bandwidths)))
        shares = [_gradient(-(-int(size) // start.servers)) for size in sizes]
        for number, (name, config) in enumerate(plan.items()):
            show(f"predicting {name}", done / parts)
            done += 1
            behind = [replace(config, link=Link(float(bandwidth), latency_s)) for bandwidth in bandwidths]
            calibration = replace(known[name], gradient=None)
            for row, share in enumerate(shares):
                # a server's share; headers are a few bytes longer in a run
                if isinstance(config.exchange, AllReduce):
                    load, *_ = all_reduced(config.exchange, config, int(sizes[row]))
                else:
                    nbytes = message_nbytes(config.push, share), message_nbytes(config.pull, share)
                    load = Workload(int(sizes[row]), 0, *nbytes)
                seconds[number, row] = _predict(behind, calibration, load)
        found = CodecMap(list(plan), sizes, bandwidths, seconds, [])
        chosen = list(_spread(seconds.max(axis=0) * SAMPLE_STEPS < SAMPLE_S, samples))
        for number, (row, column) in enumerate(chosen):
            link = Link(float(bandwidths[column]), latency_s)
            show(f"measuring {sizes[row]} values, {link!r}", (done + number * len(plan) / len(chosen)) / parts)
            gradients = _gradient(int(sizes[row]))
            problem = FixedGradients({"w": np.zeros_like(gradients["w"])}, gradients, start.workers)
            measured = {}
            for name, config in plan.items():
                run = train(problem, replace(config, link=link, steps=SAMPLE_STEPS), engine=engine)
                measured[name] = run.seconds_per_step
            found.samples.append(Sample(row, column, measured))
    return found


def _gradient(size: int) -> Tensors:
    return {"w": np.random.default_rng(0).normal(size=size).astype(np.float32)}


@seldom_collected()
def _predict(configs: Sequence[Config], calibration: Calibration, load: Workload) -> NDArray[np.float64]:
    """Seconds of a step for each of these configs, the slowest link first. Where all events have the same order as with
    the slowest link, the seconds are linear in those of a byte on the link: only the ends of that stretch are walked.
    """
    walks = {0: Walk(configs[0], calibration, load)}
    for column in range(len(configs) - 1, 0, -1):
        walks[column] = Walk(configs[column], calibration, load)
        if walks[column].events.order == walks[0].events.order:
            break
    speeds = np.array([-1 / config.link.bandwidth_bps for config in configs if config.link])
    known = sorted(walks)
    return np.asarray(np.interp(speeds, speeds[known], [walks[column].seconds_per_step for column in known]))


def _spread(allowed: NDArray[np.bool_], samples: int) -> Iterator[tuple[int, int]]:
    """About so many of the allowed points, on a grid of every few rows and columns."""
    if not samples or not allowed.any():
        return
    every = max(1, int(np.sqrt(allowed.sum() / samples)))
    for row in range(every // 2, allowed.shape[0], every):
        for column in range(every // 2, allowed.shape[1], every):
            if allowed[row, column]:
                yield row, column
