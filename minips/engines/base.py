"""The contract of an engine: it runs a config's servers and workers, and builds a `Run` from their reports."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from minips.core.config import Config
from minips.core.faults import Faults
from minips.core.membership import REJOIN_S
from minips.engines.evaluation import Evaluation
from minips.problems import Problem
from minips.results.checkpoints import Checkpoint
from minips.results.run import Run, Stop, Watch
from minips.results.state import SavedState
from minips.stage import Stage, Tensors, names, stage_class
from minips.words import join_names

REACHES = ("process", "machine", "network")
"""The possible reaches of a transport, nearest first."""


class Restarts(NamedTuple):
    """The number of times that an engine starts each server and each worker again whose process has died, and the
    seconds for which the others wait for it.
    """

    times: int
    rejoin_s: float


NEVER = Restarts(0, REJOIN_S)


class TrainingJob(NamedTuple):
    """The job of an engine: train ``problem`` as ``config`` says."""

    problem: Problem
    config: Config
    params: Tensors
    """The initial parameters: fresh ones or, with ``state``, those of a saved run."""
    watch: Watch
    """The function that is called with the progress several times a second."""
    stop: Stop
    """A function that returns True to end the run early."""
    evaluation: Evaluation | None
    """The function that is called when the run pauses."""
    state: SavedState | None
    """A saved run's state, for the same numbers of workers and servers; its updates count too. None for a fresh run."""
    checkpoint: Checkpoint | None = None
    """The folder in which the run is kept. If it holds the run already, the run goes on."""
    faults: Faults | None = None
    """The faults to make; None: none."""


class Engine(Stage):
    """The base class of engines."""

    kind: ClassVar[str] = "engine"
    apart: ClassVar[str] = "process"
    """The distance between its servers and workers, in the terms of `Transport.reach`."""
    faults: ClassVar[tuple[str, ...]] = ()
    """The kinds of `Faults` that it can make."""

    def check(self, config: Config) -> None:
        """Raise ValueError if this engine cannot run ``config``. It is called before anything is started."""
        reach, far = config.transport.reach, REACHES[REACHES.index(self.apart) :]
        if reach not in far:
            classes: dict[str, Any] = {name: stage_class("transport", name) for name in names("transport")}
            fitting = [name for name, cls in classes.items() if cls.reach in far]
            raise ValueError(
                f"{self.as_code()} cannot use {config.transport.as_code()}, which does not reach beyond one {reach}. "
                f"Use one of the transports {', '.join(fitting)}; or engine='threads', which takes every transport."
            )

    def check_faults(self, faults: Faults, config: Config) -> None:
        """Raise ValueError if this engine cannot make these faults in a run of ``config``."""
        lacking = [name for name in faults.kinds if name not in self.faults]
        if lacking:
            classes: dict[str, Any] = {name: stage_class("engine", name) for name in names("engine")}
            able = [cls.__name__ for cls in classes.values() if {*faults.kinds} <= {*cls.faults}]
            why = ": a thread cannot be killed" if lacking == ["kill"] else ""
            raise ValueError(
                f"{self.as_code()} cannot make the faults {join_names(lacking)}{why}. Use engine={' or '.join(able)}."
            )
        faults.check(config)

    @abstractmethod
    def run(self, job: TrainingJob) -> Run:
        """Train until the config's updates are applied, or until the job's ``stop()`` returns True.

        The returned run lacks only validation loss and accuracy. Raise RuntimeError if a worker or a server fails. In
        every case, end everything that was started.
        """
