"""A parameter server's rounds without minips' servers, clients and transports.

Mean and SGD are minips' own code, so only the communication between workers and server differs.
"""

import threading
import time
from typing import Any

from minips.core.config import Config
from minips.engines.supervisor import ControlPipe
from minips.lab.measure.pairs import WAIT_S
from minips.stage import Tensors
from minips.stages.aggregators import Contribution


class Rounds:
    """A server's parameters, and its work on each round of gradients."""

    def __init__(self, config: Config, params: Tensors) -> None:
        self._config, self._state = config, dict[str, Any]()
        self._waiting: dict[int, Tensors] = {}
        self._all_here = threading.Barrier(config.workers, self._apply_waiting, WAIT_S)
        self.params, self.changed_at = params, time.monotonic()

    def apply(self, gradients: list[Tensors]) -> None:
        """Apply one round: the workers' gradients, in worker order."""
        contributions = [Contribution(worker, 0, 0, pushed) for worker, pushed in enumerate(gradients)]
        self._config.optimizer.step(self.params, self._config.aggregator.combine(contributions), self._state)
        self.changed_at = time.monotonic()

    def push_pull(self, worker: int, gradients: Tensors) -> Tensors:
        """Wait, in the server's thread for this worker, for the others' gradients; return the new parameters."""
        self._waiting[worker] = gradients
        try:
            self._all_here.wait()
        except threading.BrokenBarrierError:
            raise TimeoutError(f"Worker {worker} waited {WAIT_S:g} seconds for the others.") from None
        return self.params

    def _apply_waiting(self) -> None:
        self.apply([self._waiting.pop(worker) for worker in range(self._config.workers)])

    def report(self) -> dict[str, Any]:
        """Return the parameters at the end of the run, and the time of their last change."""
        return {"params": self.params, "changed_at": self.changed_at}


def told_to_go(control: ControlPipe) -> bool:
    """Report that this side is ready, and wait for go; return False if it is told to stop instead."""
    control.send("ready")
    return control.wait("go")[0] == "go"
