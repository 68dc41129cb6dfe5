"""The contract of an engine: it runs the servers and the workers of a config and brings home what they report."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from minips.core.config import Config
from minips.core.shard import Grant
from minips.core.trace import Trace
from minips.problems import Problem
from minips.stage import Stage, Tensors


class Progress(NamedTuple):
    """How far a run is: pushes applied of pushes wanted, and the rows (seconds, step, training loss) so far."""

    applied: int
    updates: int
    losses: list[tuple[float, int, float]]


@dataclass
class Outcome:
    """The results of an engine's run. Times are seconds since the step loop began."""

    params: Tensors
    seconds: float
    losses: list[tuple[float, int, float]]
    applied: int
    late: int = 0
    stopped: bool = False
    diverged: str | None = None
    bytes_sent: int = 0
    bytes_received: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    grants: list[Grant] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace)
    requantization_error: float | None = None
    replicas: list[str] = field(default_factory=list)


class Engine(Stage):
    """The contract."""

    kind: ClassVar[str] = "engine"

    @abstractmethod
    def run(
        self,
        problem: Problem,
        config: Config,
        params: Tensors,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Outcome:
        """Train until the config's updates are applied or ``stop()`` says so, calling ``watch`` a few times a second.

        RuntimeError where a worker or a server failed. Nothing that was started is left running, whatever happens.
        """
