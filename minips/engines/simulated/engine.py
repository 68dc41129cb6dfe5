"""The simulated engine: a cluster in virtual time.

A simulation decides, computes and encodes with the code of a real run: the problem's gradients, `Shard` with its
aggregator, consistency and optimizer, and both halves of the codec. Only its time is virtual. The engine sets the time
that a gradient takes, and messages travel over a network whose links they share. So the same seed gives the same run to
the bit, including the trace, and under BSP the parameters equal those of a real run.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from minips import seeds
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.faults import Faults
from minips.core.membership import REJOIN_S
from minips.engines.base import Engine, TrainingJob
from minips.machines.calibration import Calibration
from minips.machines.topology import Machines, Own, Star, Topology, Traffic, check_one_network
from minips.results.run import Run
from minips.stage import StageField, ValueField, option, register

if TYPE_CHECKING:
    from minips.engines.simulated.central import ServerTeam
    from minips.engines.simulated.mutual import Team


PATIENT_S = 10.0
"""By default, the seconds for which others wait for a dead worker that will be started again."""


@register
@dataclass(frozen=True)
class Simulated(Engine):
    """Servers and workers in virtual time: any number of workers, on any network, and the same times in every run.

    Without a ``topology`` every worker and server has the config's link to one switch, or an infinitely fast link if
    the config has none; a ``networkx.Graph`` also works. Messages share links max-min fairly; in a real run, shaped
    links pass them one after the other. A batch takes ``compute_s``, or a time drawn for each step with that mean
    (``exponential``); the config's delays are added as in a real run. With a ``calibration``, stages, updates and the
    transport also take time, one after the other at each node. Waits have no limit.

    All nodes live on unless `Faults` kill them. With ``restart``, a dead server comes back from its journal, and a dead
    worker goes on where it was; with an all-reduce, a death ends the run. Journals are in memory.

    On a ``cluster`` of machines, servers and workers are placed in rotation, as by the engine `Ray`. Those on one
    machine share its link and its cores, and messages between them use no link. Without a cluster each has a core.

    With ``delay_versions`` τ a pull returns parameters that are τ versions old. One worker under ASP then descends with
    a constant delay of τ, and more workers add their own staleness.

    With backup workers, a round can end before stragglers have finished. With ``abandon``, they drop their gradient and
    join the current round, as the order statistics of compute times assume; the gradient counts as late. A real
    straggler does not know that the round has ended, and finishes its gradient, as with ``abandon=False``.

    >>> import minips as ps
    >>> problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    >>> config = ps.Config(workers=4, steps=10)
    >>> ps.train(problem, config, engine=Simulated(compute_s=0.5)).seconds
    5.0
    """

    name = "simulated"
    faults: ClassVar[tuple[str, ...]] = ("kill", "cut", "delay_s", "pause")
    topology: StageField[Topology | None] = option(None, "the network; None: a star of the config's links")
    compute_s: float | None = option(
        None, "seconds that a batch takes; None: as in the calibration, or none", minimum=0, unit="s"
    )
    exponential: bool = option(False, "draw each batch's time from an exponential distribution")
    calibration: ValueField[Calibration | None] = option(None, "the times of stages and transport; None: no time")
    delay_versions: int = option(0, "age of the parameters that a pull returns", minimum=0, step=1)
    abandon: bool = option(True, "stragglers give up a gradient whose round has ended")
    traffic: tuple[Traffic, ...] = option((), "competing flows on the network")
    cluster: ValueField[Machines | None] = option(None, "machines with several processes each; None: one process each")
    restart: int = option(0, "how often each server and worker is started again after it has died", minimum=0, step=1)
    restart_s: float = option(0.5, "seconds from a death to the new start", minimum=0, unit="s")
    rejoin_s: float | None = option(
        None,
        f"how long the others wait for a dead worker; None: {REJOIN_S} s, or {PATIENT_S:g} s with restart",
        above=0,
        unit="s",
    )

    def __post_init__(self) -> None:
        if hasattr(self.topology, "edges"):
            object.__setattr__(self, "topology", Own(self.topology))
        super().__post_init__()
        if self.cluster and self.topology:
            raise ValueError("Simulated takes a topology or a cluster, which has its own topology; got both.")

    @property
    def patience_s(self) -> float:
        """The seconds for which a worker still counts after its last connection broke."""
        return self.rejoin_s or (PATIENT_S if self.restart else REJOIN_S)

    def check_faults(self, faults: Faults, config: Config) -> None:
        super().check_faults(faults, config)
        backups = config.consistency.quorum(config.workers) not in (None, config.workers)
        if self.restart and self.abandon and backups and any(who.startswith("server") for who in faults.kill):
            raise ValueError(
                "A gradient that a straggler gives up is not in a server's journal, so the server could not be started "
                "again. Use Simulated(abandon=False)."
            )

    def run(self, job: TrainingJob) -> Run:
        team = self.prepare(job)
        try:
            team.simulation.run()
        except RuntimeError as failure:
            with suppress(Exception):  # the result may be impossible: replicas may be at different clocks
                failure.run = team.result()  # type: ignore[attr-defined]
            raise
        run = team.result()
        if error := team.simulation.error:
            error.run = run  # type: ignore[attr-defined]
            raise error
        return run

    def prepare(self, job: TrainingJob) -> "ServerTeam | Team":
        """Create the servers and workers of a run. `Simulation.run` advances them; their ``result`` is the run."""
        from minips.engines.simulated.central import ServerTeam
        from minips.engines.simulated.mutual import Team
        from minips.engines.simulated.simulation import Simulation

        config = job.config
        check_one_network(config, self.cluster)
        if job.state is not None and self.delay_versions:
            raise ValueError(
                f"With delay_versions={self.delay_versions} pulls return earlier parameters, which a saved run "
                "does not hold: resume with delay_versions=0."
            )
        simulation = Simulation(self, job)
        if isinstance(config.exchange, AllReduce) and self.delay_versions:
            raise ValueError(
                f"{config.exchange!r} has no server to answer with old parameters; "
                "use exchange=PS(), or delay_versions=0."
            )
        kind: Any = Team if isinstance(config.exchange, AllReduce) else ServerTeam
        if job.faults:
            from minips.engines.simulated import faults

            kind = faults.Ranks if kind is Team else faults.Served
            if job.faults.delay_s:
                simulation.network = faults.Late(simulation)
        team: ServerTeam | Team = kind(simulation)
        simulation.begin(team.begin())
        return team

    def network(self, config: Config) -> Any:
        """Return the graph of the network that ``config`` runs on; None if that is infinitely fast."""
        servers = 0 if isinstance(config.exchange, AllReduce) else config.servers
        if self.cluster:
            return self.cluster.graph(config.workers, servers)
        topology, link = self.topology, config.link
        if topology is None and link is not None:
            topology = Star(link.bandwidth_bps, link.latency_s / 2)
        if topology is None and self.traffic:
            raise ValueError("Competing traffic needs a network: give Simulated a topology, or the config a link.")
        return topology and topology.graph(config.workers, servers)

    def seconds(self, config: Config, worker: int, clock: int, rows: int) -> float:
        """Return the seconds of a worker's gradient for batches of ``rows`` rows, without the config's delays."""
        gradient = self.calibration and self.calibration.gradient_of(clock, config)
        given = self.compute_s if self.compute_s is not None else (self.cluster and self.cluster.compute_s) or None
        batch = given if given is not None else gradient.at(rows) if gradient else 0.0
        seconds = batch * config.accumulate
        if self.exponential:
            seconds *= seeds.compute(config.seed, worker, clock).exponential()
        return seconds
