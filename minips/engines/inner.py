"""The inner loop of a worker's local steps (`LocalSteps`), which replaces `minips.engines.worker.compute`."""

import copy
from collections.abc import Mapping
from threading import Event
from typing import Any, Self

import numpy as np

from minips.core.config import Config
from minips.core.exchange import PS
from minips.core.message import NonFiniteError, check_finite
from minips.core.shard import check_gradients
from minips.engines.worker import compute
from minips.problems import Problem
from minips.results.state import WorkerState
from minips.stage import Tensors


class Inner:
    """The inner optimizer of one worker, called like `compute`. ``kept`` is the `state` from a saved run."""

    def __init__(self, kept: Mapping[int, Any] | None = None) -> None:
        self._before = dict(kept or {})
        """Maps each clock to the optimizer's state before it: a difference that did not enter the run (for example,
        because it came after the end) is computed again when the run is resumed.
        """

    @classmethod
    def of(cls, state: WorkerState | None) -> Self:
        """Build the inner optimizer of a worker whose ``state`` is from a saved run."""
        first: Any = state and state.get("links", [state])[0]
        return cls(first and first.get("inner"))

    def state(self) -> dict[int, Any]:
        """Return the state to keep in a saved run."""
        return dict(self._before)

    def __call__(
        self, problem: Problem, config: Config, params: Tensors, worker: int, clock: int, stop: Event | None = None
    ) -> tuple[float, Tensors]:
        """Return the mean loss of this clock's gradient steps, and the difference start − end. NonFiniteError, with the
        failing gradient's ``step``, if one is not finite. With servers, ``stop`` ends the steps and nothing is sent.
        """
        assert config.local
        known = sorted(at for at in self._before if at <= clock)
        state = copy.deepcopy(self._before[known[-1]]) if known else {}
        end, loss, each = {name: np.array(p) for name, p in params.items()}, 0.0, config.local_steps
        step = clock * each
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                for step in range(clock * each, (clock + 1) * each):
                    if stop and stop.is_set() and isinstance(config.exchange, PS):
                        return loss, end
                    more, gradients = compute(problem, config, end, worker, step, stop)
                    state["clock"], loss = step, loss + more
                    config.local.optimizer.step(end, check_gradients(gradients, end), state)
                difference = {name: np.asarray(p - end[name]) for name, p in params.items()}
                step += 1  # all steps of this clock are done
            check_finite(difference, "The difference of local steps, of")
        except NonFiniteError as error:
            error.step = step  # type: ignore[attr-defined]
            raise
        kept = known[-1 - config.overlap :]  # with overlap, one more difference may be too late
        self._before = {at: self._before[at] for at in kept} | {clock + 1: state}
        return loss / each, difference
