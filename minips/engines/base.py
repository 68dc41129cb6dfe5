"""The contract of an engine: it runs the servers and the workers of a config and brings home what they report."""

from abc import abstractmethod
from typing import ClassVar

from minips.core.config import Config
from minips.core.run import Run, State, Stop, Watch
from minips.engines.evaluation import Evaluation
from minips.problems import Problem
from minips.stage import Stage, Tensors


class Engine(Stage):
    """The contract."""

    kind: ClassVar[str] = "engine"

    @abstractmethod
    def run(
        self,
        problem: Problem,
        config: Config,
        params: Tensors,
        watch: Watch,
        stop: Stop,
        evaluation: Evaluation | None = None,
        state: State | None = None,
    ) -> Run:
        """Train until the config's updates are applied or ``stop()`` says so, calling ``watch`` a few times a second,
        and ``evaluation`` in its pauses. ``params`` and ``state`` may be those of an earlier run, of as many workers
        and servers: then the updates that it has applied count too.

        The result has all but the validation loss and the accuracy. RuntimeError where a worker or a server failed.
        Nothing that was started is left running, whatever happens.
        """
