"""The contract of an engine: it runs the servers and workers of a config, and turns their reports into a `Run`."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from minips.core.config import Config
from minips.engines.evaluation import Evaluation
from minips.problems import Problem
from minips.results.run import Run, State, Stop, Watch
from minips.stage import Stage, Tensors, names, stage_class

REACHES = ("process", "machine", "network")
"""How far a transport may reach, the nearest first."""


class TrainingJob(NamedTuple):
    """The work of an engine: train ``problem`` as ``config`` says."""

    problem: Problem
    config: Config
    params: Tensors
    """The parameters at the start: fresh ones, or with ``state`` those of a saved run."""
    watch: Watch
    """Called with the progress a few times a second."""
    stop: Stop
    """Returns True to end the run early."""
    evaluation: Evaluation | None
    """Called in the pauses."""
    state: State | None
    """The state of a saved run with as many workers and servers, whose updates count too; None for a fresh run."""


class Engine(Stage):
    """The contract."""

    kind: ClassVar[str] = "engine"
    apart: ClassVar[str] = "process"
    """How far apart its servers and workers are, in the terms of `Transport.reach`."""

    def check(self, config: Config) -> None:
        """ValueError where this engine cannot run ``config``; called before anything is started."""
        reach, far = config.transport.reach, REACHES[REACHES.index(self.apart) :]
        if reach not in far:
            classes: dict[str, Any] = {name: stage_class("transport", name) for name in names("transport")}
            fitting = [name for name, cls in classes.items() if cls.reach in far]
            raise ValueError(
                f"{self.as_code()} cannot use {config.transport.as_code()}, which does not reach beyond one {reach}. "
                f"Use one of the transports {', '.join(fitting)}; or engine='threads', which takes every transport."
            )

    @abstractmethod
    def run(self, job: TrainingJob) -> Run:
        """Train until the config's updates are applied, or until the job's ``stop()`` says so.

        The run lacks only validation loss and accuracy. RuntimeError where a worker or a server failed. Whatever
        happens, nothing that was started is left running.
        """
