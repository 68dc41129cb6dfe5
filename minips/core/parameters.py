"""A server's parameters: arrays that readers may keep and that updates replace.

An update never writes to an array that a reader may hold. It writes to other arrays, which then replace the current
ones. The next update reuses the old arrays if no reader holds them or any part of them.
"""

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from minips.core.message import check_finite
from minips.intake import check_unmasked
from minips.stage import ONE_THREAD, Array, Tensors, is_finite
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.optimizers import Optimizer

BLOCK = 2**18
"""The number of values aggregated and applied at a time, so that the aggregate stays in a core's cache."""


class Parameters:
    """Named arrays, and the aggregator and the optimizer that change them.

    ``now()`` returns the time, for ``times``. NonFiniteError if an array contains NaN or infinity.
    """

    def __init__(
        self, params: Mapping[str, Array], aggregator: Aggregator, optimizer: Optimizer, now: Callable[[], float]
    ) -> None:
        for name, x in params.items():
            check_unmasked(x, f"The parameter {name!r}")
        check_finite(dict(params), "The parameter", "Look at the code that makes it.")
        self.aggregator, self.optimizer, self._now = aggregator, optimizer, now
        self.arrays = {name: x.copy() for name, x in params.items()}
        self.times: tuple[float, float, float] = 0.0, 0.0, 0.0
        """The start time of the last update, the seconds that aggregation took, and the seconds that the step took."""
        self._loans: dict[str, weakref.ref[Array]] = {}
        self._spare: tuple[Tensors, dict[str, weakref.ref[Array]]] = {}, {}
        """The previous arrays and their loans: the next update writes to these arrays."""
        self._blocks: list[dict[str, slice] | None] = [None]  # None: all parameters together
        if aggregator.elementwise and optimizer.elementwise and sum(x.size for x in self.arrays.values()) > BLOCK:
            self._blocks = [*_blocks(self.arrays)]
        self.states: list[dict[str, Any]] = [{} for _ in self._blocks]
        """The optimizer's state for each block."""
        np.empty(4 * BLOCK)  # freed immediately; glibc then keeps a block's memory instead of unmapping it

    def restore(self, states: Sequence[dict[str, Any]]) -> None:
        """Let the optimizer resume from these states, one per block. ValueError if their number differs."""
        if len(states) != len(self.states):
            raise ValueError(f"Expected the optimizer's state of {len(self.states)} blocks, got {len(states)}.")
        self.states = copy.deepcopy([*states])  # an optimizer writes into its arrays

    def lend(self) -> Tensors:
        """Return the current parameters, read-only. Updates do not change them while a reader holds a view of them."""
        lent = {}
        for name, p in self.arrays.items():
            loan = self._loans[name]() if name in self._loans else None
            if loan is None:
                loan = np.frombuffer(p.data, p.dtype) if p.size else p[...]  # every view keeps it alive
                loan.flags.writeable = False
                self._loans[name] = weakref.ref(loan)
            lent[name] = loan.reshape(p.shape)
        return lent

    def update(self, contributions: Sequence[Contribution], scale: float, clock: int = 0) -> str | None:
        """Aggregate the contributions; the optimizer makes a step with ``scale`` times the result, at this clock.

        Returns the name of a parameter that the step would make NaN or infinite, if any; then only the optimizer's
        state has changed. Errors of the aggregator and the optimizer propagate, and leave the parameters unchanged.
        """
        before, after, now = self.arrays, self._free_arrays(), self._now
        began, aggregating, applying = now(), 0.0, 0.0
        for number, block in enumerate(self._blocks):
            state, old, new, pieces = self.states[number], before, after, contributions
            if block is not None:
                old, new = _views(before, block), _views(after, block)
                pieces = [piece._replace(gradients=_views(piece.gradients, block)) for piece in contributions]
            state["clock"] = clock
            with np.errstate(over="ignore", invalid="ignore"):
                start = now()
                gradients = self.aggregator.combine(pieces)
                aggregated = now()
                if scale != 1.0:
                    gradients = {name: np.asarray(g * scale) for name, g in gradients.items()}
                self.optimizer.step_into(new, old, gradients, state)
            aggregating, applying = aggregating + aggregated - start, applying + now() - aggregated
            for name, p in new.items():
                if (p.size > ONE_THREAD or not isfinite(np.vdot(p, p))) and not is_finite(p):
                    return name
        self._spare = before, self._loans
        self.arrays, self._loans, self.times = after, {}, (began, aggregating, applying)
        return None

    def _free_arrays(self) -> Tensors:
        """Arrays for the next parameters, with arbitrary values: the previous arrays, unless a reader holds them."""
        spare, loans = self._spare
        for loan in loans.values():
            if loan() is not None:
                spare = {}
        if not spare:
            for name, p in self.arrays.items():
                spare[name] = np.empty_like(p)
        return spare


def _blocks(params: Tensors) -> Iterator[dict[str, slice]]:
    """Cut the parameters into blocks of at most ``BLOCK`` values; small tensors share a block."""
    block: dict[str, slice] = {}
    room = BLOCK
    for name, p in params.items():
        if p.size > BLOCK:
            for start in range(0, p.size, BLOCK):
                yield {name: slice(start, min(start + BLOCK, p.size))}
            continue
        if p.size > room:
            yield block
            block, room = {}, BLOCK
        block[name] = slice(None)
        room -= p.size
    if block:
        yield block


def _views(tensors: Tensors, block: dict[str, slice]) -> Tensors:
    """Views of a block of the flattened values; a tensor that is completely in the block keeps its shape."""
    return {
        name: tensors[name] if where == slice(None) else tensors[name].reshape(-1)[where]
        for name, where in block.items()
    }
