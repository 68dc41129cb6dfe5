"""Predict the seconds per step before any run.

A `PerformanceModel` takes each worker through its steps in virtual time, with the calibration's seconds. Short
simulated runs count the bytes.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from timeit import timeit
from typing import NamedTuple

import numpy as np

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.core.codec import Codec, Encoder
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.limits import check_run
from minips.core.local import Delays
from minips.core.message import Message
from minips.cost.calibrate import calibrate, problem_words
from minips.cost.noise import measure_quietly
from minips.cost.packets import Queues
from minips.cost.performance_model import PerformanceModel
from minips.cost.traffic import count_bytes, count_rows
from minips.engines import Engine
from minips.engines.hosts import Hosts
from minips.engines.inner import Inner
from minips.engines.simulated.engine import Simulated
from minips.engines.worker import compute, shards_of
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.machines.topology import Machines, Topology, check_one_network
from minips.problems import Problem
from minips.results.tables import fold
from minips.results.trace import SPANS, Trace
from minips.stage import Tensors
from minips.stages.consistency import ASP, BSP, SSP, Consistency
from minips.stages.transports.framing import stream_nbytes
from minips.training.progress import Wait, showing
from minips.training.train import engine_for, train
from minips.words import check_type

SLOW = Delays(seconds=0.05, slow={1: 4.0})


@dataclass(frozen=True)
class Prediction:
    """Seconds per step by span name, averaged over the workers, and the bytes of all workers' frames."""

    config: Config
    spans: dict[str, float]
    """Seconds of one update, or of one of its local steps, summed over workers and servers. `compare` joins them with
    the spans of a run's trace."""
    seconds_per_step: float
    interval_s: tuple[float, float]
    """Seconds per step with all lower quartiles of the calibration, and with all upper quartiles."""
    bytes_sent: int
    bytes_received: int
    exact_bytes: bool
    """True if the bytes depend neither on values nor on timing: a run without retries sends exactly these."""
    cores: int
    """The cores that workers and servers share: the calibrated machine's, or each machine's in the ``cluster``."""
    note: str = ""
    """A sentence if other programs kept the machine busy during the calibration."""
    cluster: Machines | None = None
    limits: tuple[str, ...] = ()
    """Sentences on effects of hosts that the model leaves out."""
    calibration: Calibration = field(kw_only=True, repr=False)
    model: Callable[..., PerformanceModel] = field(kw_only=True, repr=False, compare=False)
    """Predict again with another ``calibration``."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return self.seconds_per_step * self.config.steps

    def __str__(self) -> str:
        """A text table."""
        low, high = (milliseconds(bound, self.note) for bound in self.interval_s)
        about = "" if self.exact_bytes else "about "
        of_each = f" on each of {self.cluster.machines} machines" if self.cluster else ""
        servers = 0 if isinstance(self.config.exchange, AllReduce) else self.config.servers
        counts = {"worker": self.config.workers, "server": servers}
        who = " and ".join(f"{count} {role}" + "s" * (count > 1) for role, count in counts.items() if count)
        rows = [
            *((name, f"{milliseconds(seconds, self.note)} ms") for name, seconds in self.spans.items()),
            ("a step", f"{milliseconds(self.seconds_per_step, self.note)} ms ({low} to {high} by the calibration)"),
            ("the run", f"{self.seconds:{'.2g' if self.note else '.2f'}} s for {self.config.steps} steps"),
            ("sent by workers", f"{about}{self.bytes_sent / 1e6:.3f} MB"),
            ("received by workers", f"{about}{self.bytes_received / 1e6:.3f} MB"),
            ("cores", f"{self.cores}{of_each}, shared by {who}"),
        ]
        limits = (line for sentence in self.limits for line in fold(sentence))
        return "\n".join([*(f"{name:<20}{value}" for name, value in rows), *fold(self.note), *limits])


def milliseconds(seconds: float, note: str) -> str:
    """Return milliseconds with three decimals, or with two digits if a ``note`` says that the machine was busy."""
    return f"{float(f'{seconds * 1e3:.2g}'):g}" if note else f"{seconds * 1e3:.3f}"


def check_network(config: Config, cluster: Machines | None, engine: object = None) -> None:
    """Raise ValueError if a run would have two networks or a transport without one, TypeError for a wrong type."""
    check_type("predict", cluster, Machines | None, "a cluster, such as ps.cost.Cluster(machines=8)")
    check_type("predict", engine, Hosts | None, "ps.Hosts(…) as its engine, to predict with its network")
    check_one_network(config, cluster)
    if isinstance(engine, Hosts) and (cluster or not engine.transport(config)):
        raise ValueError(f"{engine!r} and {cluster!r} each have a network. Give one of them.")


def predict(
    problem: Problem,
    config: Config,
    calibration: Calibration | None = None,
    *,
    cluster: Machines | None = None,
    engine: Hosts | None = None,
    progress: bool | None = None,
) -> Prediction:
    """Predict the cost of a step of ``config`` on ``problem``. Without a ``calibration``, make one in a few seconds.

    All workers and servers share the cores of the calibrated machine, like processes on one machine. On a ``cluster``
    they are placed one after another, servers first, as the engine `Ray` places them. Processes on one machine share
    its cores and link. Each core is as fast as a calibrated core. In `Cluster.compare`, each has its own machine.

    An ``engine`` of hosts adds its network: packets with headers that wait in queues, and a latency that two hosts
    first measure, which takes two seconds. The prediction assumes that TCP is warm and loses no packets, and that they
    do not wait for a core. `Prediction.limits` warns if a queue exceeds ``buffer_bytes``, or the cores are busy.

    A gradient takes the cluster's ``compute_s`` if that is above 0, else the calibration's time if that was made for
    this problem, or else a time that is measured now. ``progress`` is as in `train`. ValueError for two networks.
    """
    with showing(progress, first=Wait("predicting")):
        return predict_on(problem, config, calibration, cluster, engine, engine)


@one_blas_thread
def predict_on(
    problem: Problem,
    config: Config,
    calibration: Calibration | None,
    cluster: Machines | None,
    engine: Hosts | None,
    network: Hosts | Topology | None,
) -> Prediction:
    """Like `predict`. ``network`` builds the graph: it is the engine, or `Hosts.measured_topology`'s result."""
    check_network(config, cluster, engine)
    servers = 0 if isinstance(config.exchange, AllReduce) else config.servers
    graph = network.graph(config.workers, servers) if network else None
    config = config.for_rows(problem.rows)
    params = check_run(config, problem.init(seeds.init(config.seed)), problem.tables)
    calibration = calibration or calibrate(config, problem)
    part = shards_of(problem, config)(0)
    _, gradients = (Inner() if config.local else compute)(part, replace(config, delays=None), params, 0, 0)
    rows = min(config.batch_size or part.rows, part.rows)
    if problem.tables:
        traffic = count_rows(config, problem, params, rows)
    else:
        traffic = count_bytes(config, params, gradients, rows)
    if cluster and cluster.compute_s:
        calibration = calibration.with_gradient(Line(cluster.compute_s))
    elif calibration.gradient is None or calibration.problem != problem_words(problem):
        gradient_s, note = measure_quietly(partial(_time_gradient, part, config, params), attempts=2)
        calibration = replace(calibration.with_gradient(Line(gradient_s)), note=calibration.note or note)
    bounds = (calibration, calibration.bound("low"), calibration.bound("high"))
    model = partial(PerformanceModel, config, load=traffic.load, cluster=cluster, net=graph)
    middle, low, high = (model(calibration=bound) for bound in bounds)
    seconds = middle.seconds_per_step
    ends = (seconds, low.seconds_per_step, high.seconds_per_step)
    return Prediction(
        config,
        {name: middle.spans[name] for name in SPANS if name in middle.spans},
        seconds,
        (min(ends), max(ends)),
        traffic.sent,
        traffic.received,
        traffic.exact,
        cluster.cores if cluster else calibration.cores,
        calibration.note,
        cluster,
        tuple(_limits(engine, middle)) if engine else (),
        calibration=calibration,
        model=model,
    )


def _limits(engine: Hosts, model: PerformanceModel) -> Iterator[str]:
    """Yield sentences on effects in a run on hosts that the prediction leaves out."""
    assert isinstance(model.network, Queues)
    deepest, held = model.network.deepest, engine.buffer_bytes
    if deepest > held:
        yield f"One queue would need {deepest:,.0f} bytes and has {held:,}: packets are lost, and each costs time."
    busy = PerformanceModel(model.config, model.calibration, model.load).seconds_per_step / model.seconds_per_step
    if busy > 0.25:  # measured on two cores
        yield f"The cores take {busy:.0%} of a step, whatever the network: packets wait for a core, too."


class Row(NamedTuple):
    """Seconds per step under one consistency, simulated and measured."""

    consistency: Consistency
    simulated_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Simulated seconds divided by measured seconds."""
        return self.simulated_s / self.measured_s


def against_measured(
    problem: Problem,
    config: Config | None = None,
    *,
    engine: Engine | None = None,
    calibration: Calibration | None = None,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Compare simulated seconds per step with those measured on ``engine`` (None: `Processes`), under BSP, SSP, ASP and
    BSP with a backup worker.

    ``config`` gives the other fields (None: 20 steps of four workers, one of which computes four times slower). Real
    stragglers cannot abandon a gradient, so simulated stragglers do not either. ``report`` is called after each row;
    with the default config, a row takes a few seconds.
    """
    config = config or Config(workers=4, steps=20, delays=SLOW)
    engine = engine_for(engine, [config])
    simulated = Simulated(calibration=calibration or calibrate(config, problem), abandon=False)
    rows = []
    for consistency in (BSP(), SSP(), ASP(), BSP(backup=1)):
        same = replace(config, consistency=consistency)
        runs = [train(problem, same, engine=chosen) for chosen in (simulated, engine)]
        rows.append(Row(consistency, *(run.seconds_per_step for run in runs)))
        report(rows[-1])
    return rows


def message_nbytes(codec: Codec, tensors: Tensors, *, stream: bool = False) -> int:
    """Return the bytes of one message of these tensors, counted after encoding, with scales, indices and headers.

    These are the bytes of the frames, as in `Run.bytes_sent`. With ``stream``, they are the bytes in a TCP stream:
    also a head, and padding after it and after each frame, to a multiple of 64 bytes. (A pool also announces messages
    of 8 MiB and more, which takes a few more bytes.)

    >>> x = {"w": np.zeros(1000, np.float32)}
    >>> import minips as ps
    >>> [message_nbytes(ps.Codec(quantizer), x) for quantizer in (ps.Exact(), ps.Uniform(bits=8))]
    [4076, 1155]
    >>> [message_nbytes(ps.Codec(quantizer), x, stream=True) for quantizer in (ps.Exact(), ps.Uniform(bits=8))]
    [4224, 1472]
    """
    message = Message({"kind": "push"}, tensors)
    sizes = [len(frame) for frame in Encoder(codec, np.random.default_rng(0), Trace()).encode(message)]
    return stream_nbytes(sizes) if stream else sum(sizes)


def _time_gradient(part: Problem, config: Config, params: Tensors) -> float:
    """Measure how many seconds one batch's gradient takes: the median of nine timings."""
    quick = replace(config, delays=None, accumulate=1)
    return statistics.median(timeit(partial(compute, part, quick, params, 0, clock), number=1) for clock in range(9))
