"""Map where compression pays: the codec with the fastest step for each link bandwidth and gradient size."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minips.core.codec import Codec
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.cost.calibrate import calibrate
from minips.cost.cluster import all_reduce_load
from minips.cost.performance_model import PerformanceModel, Workload
from minips.cost.predict import message_nbytes
from minips.cost.traffic import FixedGradients
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
"""A point is not measured if its slowest codec needs more seconds than this for its steps."""
CODECS = {
    "exact": Codec(Exact()),
    "float16": Codec(Float16()),
    "8 bits": Codec(Uniform(bits=8)),
    "top 1 %": Codec(TopK(fraction=0.01), ErrorFeedback()),
}


@dataclass(frozen=True)
class Sample:
    """One measured point of the map: row, column, and seconds per step by codec."""

    size: int
    bandwidth: int
    seconds: dict[str, float]

    @property
    def winner(self) -> str:
        """The fastest codec."""
        return min(self.seconds, key=self.seconds.__getitem__)


@dataclass(frozen=True, eq=False)
class CodecMap:
    """Predicted seconds per step for each codec, size and bandwidth, and measured samples."""

    codecs: list[str]
    values: NDArray[np.int64]
    """Sizes of the gradient, in float32 values: the rows."""
    bandwidths_bps: NDArray[np.float64]
    """Bandwidths of the link: the columns."""
    seconds: NDArray[np.float64]
    """Shape (codecs, sizes, bandwidths)."""
    samples: list[Sample]

    @property
    def winners(self) -> NDArray[np.intp]:
        """The index of the fastest codec, shape (sizes, bandwidths)."""
        return np.asarray(self.seconds.argmin(axis=0))

    @property
    def regret(self) -> float:
        """The largest share, in any sample, by which the predicted codec is slower than the fastest measured codec. 0
        if the two codecs are always the same, or without samples.
        """
        over = (sample.seconds[self._predicted_codec(sample)] / min(sample.seconds.values()) for sample in self.samples)
        return max(over, default=1.0) - 1

    @property
    def hits(self) -> int:
        """The number of samples where the predicted codec was the fastest."""
        return sum(self._predicted_codec(sample) == sample.winner for sample in self.samples)

    def _predicted_codec(self, sample: Sample) -> str:
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
    progress: bool | Callable[[str, float], None] | None = None,
    watch: bool | Callable[[str, float], None] = False,
) -> CodecMap:
    """Predict a step with each push codec, for gradients of these sizes (``values``) over links of these bandwidths.

    Steps compute no gradient, since its time is the same for all codecs. ``start`` is the config of every point, except
    for codec and link (None: four workers, one server, BSP over TCP). Each codec is calibrated unless it is among
    ``calibrations``. At about ``samples`` points, spread over the part of the map where steps are not too slow, all
    codecs run on ``engine`` (None: `Processes`). ``progress`` is as in `train`; a function is called, like ``watch``,
    with a description and the share done.
    """
    codecs = CODECS if codecs is None else codecs
    sizes = np.unique(np.logspace(3, 6, 10).round().astype(int) if values is None else np.array(values, int))
    bandwidths = np.unique(np.logspace(6.5, 10, 12) if bandwidths_bps is None else np.array(bandwidths_bps, float))
    start = start or Config(workers=4, optimizer=SGD(lr=1e-3))
    known = dict(calibrations or {})
    plan = {name: replace(start, push=codec, steps=STEPS, epochs=None, local=None) for name, codec in codecs.items()}
    engine = engine_for(engine, plan.values() if samples else ())
    parts, done = 2 * len(plan) + bool(samples) * len(plan), 0
    with showing(progress or watch or progress) as show:
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
                # only one server's share; a run's headers are a few bytes longer
                if isinstance(config.exchange, AllReduce):
                    load, *_ = all_reduce_load(config.exchange, config, int(sizes[row]))
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
    """Return seconds per step for each config, the slowest link first. As long as events happen in the same order as on
    the slowest link, a step's time is linear in the link's seconds per byte. So only the two ends are simulated.
    """
    models = {0: PerformanceModel(configs[0], calibration, load)}
    for column in range(len(configs) - 1, 0, -1):
        models[column] = PerformanceModel(configs[column], calibration, load)
        if models[column].events.order == models[0].events.order:
            break
    speeds = np.array([-1 / config.link.bandwidth_bps for config in configs if config.link])
    known = sorted(models)
    return np.asarray(np.interp(speeds, speeds[known], [models[column].seconds_per_step for column in known]))


def _spread(allowed: NDArray[np.bool_], samples: int) -> Iterator[tuple[int, int]]:
    """Yield about ``samples`` of the allowed points, from a grid of every few rows and columns."""
    if not samples or not allowed.any():
        return
    every = max(1, int(np.sqrt(allowed.sum() / samples)))
    for row in range(every // 2, allowed.shape[0], every):
        for column in range(every // 2, allowed.shape[1], every):
            if allowed[row, column]:
                yield row, column
