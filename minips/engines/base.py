"""The contract of an engine: it runs the servers and the workers of a config and brings home what they report."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

from minips.core.config import Config
from minips.core.run import Run, State, Stop, Watch
from minips.engines.evaluation import Evaluation
from minips.problems import Problem
from minips.stage import Stage, Tensors


class TrainingJob(NamedTuple):
    """The work of an engine: to train ``problem`` as ``config`` says."""

    problem: Problem
    config: Config
    params: Tensors
    """The parameters at the start, which may be those of an earlier run, as ``state`` is: of as many workers and
    servers. Then the updates that it has applied count too.
    """
    watch: Watch
    """Is told the progress a few times a second."""
    stop: Stop
    """Says whether the run is to end early."""
    evaluation: Evaluation | None
    """Is called in its pauses."""
    state: State | None


class Engine(Stage):
    """The contract."""

    kind: ClassVar[str] = "engine"

    @abstractmethod
    def run(self, job: TrainingJob) -> Run:
        """Train until the config's updates are applied, or until the job's ``stop()`` says so.

        The result has all but the validation loss and the accuracy. RuntimeError where a worker or a server failed.
        Nothing that was started is left running, whatever happens.
        """
