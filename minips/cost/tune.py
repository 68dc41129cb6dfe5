"""Search for the config that reaches an accuracy soonest: rank configs by prediction, and run the best few."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from minips.core.codec import Codec
from minips.core.collectives import RingAllReduce, TwoShot
from minips.core.config import Config
from minips.core.exchange import PS, AllReduce, Exchange
from minips.cost.calibrate import alone, calibrate
from minips.cost.predict import check_network, predict_on
from minips.cost.probe import steps_to
from minips.engines import Engine, Processes, Threads
from minips.engines.hosts import Hosts
from minips.engines.simulated.engine import Simulated
from minips.machines.calibration import Calibration
from minips.machines.topology import Machines
from minips.problems import Problem
from minips.results.tables import fold
from minips.stage import build
from minips.stages.aggregators import Mean
from minips.stages.consistency import BSP
from minips.stages.memories import ErrorFeedback
from minips.stages.quantizers import Exact, Float16, Sign, TopK, Uniform
from minips.stages.transports import Link
from minips.training.progress import showing
from minips.training.train import check_problem, engine_for, train
from minips.words import check_type

PROBE_STEPS, TRIED = 300, 3


@dataclass(frozen=True)
class Choice:
    """One candidate. Its seconds run from the first step until it reaches the accuracy; None if it never does."""

    config: Config
    """The config, with as many steps as it needs."""
    steps: int | None
    predicted_s: float | None
    measured_s: float | None = None
    """None if it was not tried; virtual seconds if it was tried on `Simulated`."""
    accuracy: float | None = None
    """The accuracy at the end of its run."""


@dataclass(frozen=True)
class Tuning:
    """All candidates, the fastest predicted first; candidates that do not reach the accuracy come last."""

    target_accuracy: float
    choices: list[Choice]
    note: str = ""
    """Sentences: if other programs kept the machine busy during a calibration, and if the runs were simulated."""

    @property
    def tried(self) -> list[Choice]:
        """The choices that were tried, in predicted order."""
        return [choice for choice in self.choices if choice.measured_s is not None]

    @property
    def _times(self) -> list[float]:
        return [choice.measured_s for choice in self.choices if choice.measured_s is not None]

    @property
    def best(self) -> Config:
        """The fastest config among those tried. ValueError if none was tried."""
        times = self._times
        if not times:
            raise ValueError(f"No candidate reached an accuracy of {self.target_accuracy}, so none was tried.")
        return self.tried[times.index(min(times))].config

    @property
    def regret(self) -> float:
        """The share by which the first choice takes longer than the best tried choice; 0 if the first is the best."""
        times = self._times
        return times[0] / min(times) - 1 if times else 0.0

    @property
    def agreement(self) -> float:
        """The share of tried pairs that finished in the predicted order: at best 1; a guess would average one half."""
        pairs = list(combinations(self._times, 2))
        return statistics.mean(first <= second for first, second in pairs) if pairs else 1.0

    def __str__(self) -> str:
        lines = [f"{'steps':>6}{'predicted':>12}{'measured':>12}{'accuracy':>10}"]
        for choice in self.choices:
            times = [
                f"{x:>10.2f} s" if x is not None else f"{'–':>12}" for x in (choice.predicted_s, choice.measured_s)
            ]
            accuracy = f"{choice.accuracy:>10.3f}" if choice.accuracy is not None else f"{'–':>10}"
            start = f"{choice.steps or '–':>6}{''.join(times)}{accuracy}  "
            lines += fold(start + words(choice.config), len(start))
        if self.tried:
            lines += fold(
                f"The first choice took {self.regret:.0%} longer than the best of the {len(self.tried)} tried; "
                f"{self.agreement:.0%} of their pairs came in the predicted order."
            )
        return "\n".join([*lines, *fold(self.note)])


def tune(
    problem: Problem,
    link: Link | None = None,
    target_accuracy: float | None = None,
    *,
    cluster: Machines | None = None,
    start: Config | None = None,
    candidates: Sequence[Config] | None = None,
    tried: int = TRIED,
    engine: Engine | str | None = None,
    progress: bool | Callable[[str, float], None] | None = None,
    watch: bool | Callable[[str, float], None] = False,
) -> Tuning:
    """Rank configs by the predicted seconds until an accuracy on the held-out rows, and run the best of them.

    The network is a ``link`` for every candidate, a ``cluster`` as in `predict`, or that of an ``engine`` of `Hosts`.
    Without any of these, it is this machine's bare transport. ValueError for two networks, or no accuracy.

    Seconds per step are predicted from one calibration for each codec. Steps are counted in short probing runs, of at
    most the candidate's steps. Every consistency is probed as BSP, which makes other rules look better than they are.

    The best ``tried`` of the ``candidates`` (None: 30 made from ``start`` by `candidates_of`) are run on ``engine``,
    for as many steps as they need. None means `Processes`, or on a cluster `Simulated` with the calibrations; `Ray`
    runs them on the machines themselves. ``progress`` is as in `train`; a function is called, like ``watch``, with a
    description and the share done.
    """
    check_problem("tune", problem)
    if not isinstance(target_accuracy, int | float | np.floating) or not 0 <= target_accuracy <= 1:
        raise ValueError(f"tune needs a target_accuracy, such as 0.9, from 0 to 1; got {target_accuracy!r}.")
    if not isinstance(tried, int) or tried < 0:
        raise ValueError(f"tried is the number of best candidates to run, at least 0; got {tried!r}.")
    check_type("tune", link, Link | None, "a ps.Link, or None")
    check_type("tune", cluster, Machines | None, "a cluster, such as ps.cost.Cluster(machines=8)")
    chosen, cluster = _engine(engine, cluster)
    hosts = chosen if isinstance(chosen, Hosts) else None
    check_type("tune", candidates, Iterable | None, "several configs as its candidates, or None")
    given = [*(candidates_of(start or Config(steps=PROBE_STEPS)) if candidates is None else candidates)]
    for config in given:
        check_type("tune", config, Config, "a Config for each candidate")
    plan = [replace(config.for_rows(problem.rows), link=link) for config in given]
    for config in plan:
        check_network(config, cluster, hosts)
        if isinstance(chosen, Simulated):
            chosen.network(config)  # an error that says what to install, if something is missing
    engine_for(chosen, plan if tried else [])
    network = hosts and hosts.measured_topology()
    parts = len(plan) + min(tried, len(plan))
    calibrations: dict[str, Calibration] = {}
    steps: dict[str, int | None] = {}
    ranked: list[Choice] = []
    with showing(progress or watch or progress) as show:
        for number, config in enumerate(plan):
            show(f"probing {words(config)}", number / parts)
            key = _arithmetic(config)
            if key not in steps:
                steps[key] = steps_to(problem, config, target_accuracy)
            if (needed := steps[key]) is None:
                ranked.append(Choice(config, None, None))
                continue
            config = replace(config, steps=needed)
            stages = repr(alone(config))
            if stages not in calibrations:
                calibrations[stages] = calibrate(config, problem)
            prediction = predict_on(problem, config, calibrations[stages], cluster, hosts, network)
            ranked.append(Choice(config, needed, prediction.seconds))
        ranked.sort(key=lambda choice: (choice.predicted_s is None, choice.predicted_s or 0.0))
        notes = [next((known.note for known in calibrations.values() if known.note), "")]
        engine = chosen
        for number, choice in enumerate(ranked[:tried]):
            if choice.predicted_s is not None:
                show(f"trying {words(choice.config)}", (len(plan) + number) / parts)
                if isinstance(chosen, Simulated) and chosen.calibration is None:
                    engine = replace(chosen, calibration=calibrations[repr(alone(choice.config))])
                run = train(problem, choice.config, engine=engine)
                ranked[number] = replace(choice, measured_s=run.seconds, accuracy=run.accuracy)
    if isinstance(chosen, Simulated):
        notes.append("The tried runs are simulated: their measured seconds are virtual.")
    return Tuning(target_accuracy, ranked, "\n".join(filter(None, notes)))


def _engine(engine: Engine | str | None, cluster: Machines | None) -> tuple[Engine, Machines | None]:
    """Return the engine of the tried runs, and the cluster. ValueError if they have different networks."""
    if engine is None:
        return (Simulated(cluster=cluster) if cluster else Processes()), cluster
    chosen: Engine = build("engine", engine)
    if isinstance(chosen, Simulated):
        if chosen.topology:
            known = "Give a link, a cluster=ps.cost.Cluster(…), or engine=ps.Hosts(…)"
            raise ValueError(f"A prediction cannot use the network of {chosen!r}. {known}.")
        if cluster and chosen.cluster not in (None, cluster):
            raise ValueError(f"Got two clusters, {cluster!r} and that of {chosen!r}. Give one of them.")
        cluster = cluster or chosen.cluster
        return replace(chosen, cluster=cluster), cluster
    if cluster and isinstance(chosen, Threads | Processes):
        instead = "Leave the engine out to simulate the best, or run them on the cluster with engine=ps.Ray(…)"
        raise ValueError(f"{chosen!r} runs on this machine, not on {cluster!r}. {instead}.")
    return chosen, cluster


def candidates_of(start: Config) -> Iterator[Config]:
    """Yield six push codecs, each with one server, two servers, one server with float16 pulls, and two all-reduces."""
    ways: tuple[tuple[Exchange, int, Codec], ...] = (
        (PS(), 1, Codec()),
        (PS(), 2, Codec()),
        (PS(), 1, Codec(Float16())),
        (RingAllReduce(), 1, Codec()),
        (TwoShot(), 1, Codec()),
    )
    codecs = (
        Codec(Exact()),
        Codec(Float16()),
        Codec(Uniform(bits=8)),
        Codec(Uniform(bits=4), ErrorFeedback()),
        Codec(Sign(), ErrorFeedback()),
        Codec(TopK(fraction=0.01), ErrorFeedback()),
    )
    plain = replace(start, consistency=BSP(), aggregator=Mean())
    for push in codecs:
        for exchange, servers, pull in ways:
            yield replace(plain, push=push, exchange=exchange, servers=servers, pull=pull)


def _arithmetic(config: Config) -> str:
    """Return the fields that determine a run's parameters; the exchange is not one of them if gradients are exact."""
    same = replace(config, link=None, delays=None, overlap=False, consistency=BSP())
    if config.push.quantizer == Exact() and config.pull.quantizer == Exact() and config.aggregator == Mean():
        same = replace(same, push=Codec(), pull=Codec(), exchange=PS(), servers=1)
    return repr(same)


def words(config: Config) -> str:
    """Return, as a short text, the fields in which candidates differ."""
    push = ", ".join(repr(stage) for stage in (config.push.quantizer, config.push.memory) if stage != Codec().memory)
    pull = "" if config.pull == Codec() else f", pull {config.pull.quantizer!r}"
    how = (
        repr(config.exchange)
        if isinstance(config.exchange, AllReduce)
        else f"{config.servers} server" + "s" * (config.servers > 1)
    )
    return f"{push}; {how}{pull}"
