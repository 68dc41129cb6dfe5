"""Walks to the minimum of λw²/2, where the gradient λw is sent as +t, 0 or −t, with a memory."""

from typing import NamedTuple

import numpy as np

import minips as ps
from minips.stage import Array
from minips.stages.memories import State
from minips_course.remember import sending

STARTS = np.linspace(4.5, 5.5, 101)
"""From a multiple of rate · t a walk may hit the minimum by accident, so there are many starts."""
SHOWN = 53
"""The start whose path is drawn, 5.03."""
LAST = 200


class Walk(NamedTuple):
    """The walks from all starts at once."""

    path: Array
    """w at each step (rows) from each start (columns)."""
    held: float
    """The most that the memory held."""

    @property
    def end(self) -> float:
        """The largest distance from the minimum in the last steps."""
        return float(np.abs(self.path[-LAST:]).max())

    @property
    def beyond(self) -> float:
        """How far a walk went beyond the minimum, at most."""
        return float(max(-self.path.min(), 0))

    def settled(self, reach: float) -> int:
        """The first step from which on all walks stay within ``reach`` of the minimum; the last step if none does."""
        outside = np.flatnonzero((np.abs(self.path) > reach + 1e-9).any(axis=1))
        return min(int(outside.max(initial=-1)) + 1, len(self.path) - 1)


def walk(
    memory: ps.Memory, rate: float = 0.1, threshold: float = 0.5, curvature: float = 1.0, steps: int = 1500
) -> Walk:
    """Walk from all of `STARTS`. `TwoBit` sends value by value, so the starts do not mix.

    >>> walk(ps.NoMemory()).end, walk(ps.ErrorFeedback()).end < 0.05
    (0.49..., True)
    """
    quantizer, ours, theirs = ps.TwoBit(threshold=threshold), State(), State()
    w, path, held = STARTS, [STARTS], 0.0
    for _ in range(steps):
        p = memory.compensate(curvature * w, ours)
        sent = quantizer.decode(quantizer.encode(p, None))
        memory.update(p, sent, ours)
        w = w - rate * memory.restore(sent, theirs)
        path.append(w)
        held = max(held, float(np.abs(memory.compensate(np.zeros_like(w), dict(ours))).max()))
    return Walk(np.array(path), held)


def table(problem: ps.Problem, memories: dict[str, ps.Memory]) -> str:
    """For each memory: how far a walk goes beyond the minimum, where all end, and the share of the digits' gradients
    that top-k neither sends nor leaves in the memory.
    """
    meant, lines = sending.gradients(problem), ["memory            beyond    end   lost"]
    for name, memory in memories.items():
        walked, (arrived, held) = walk(memory), sending.send(meant, ps.TopK(fraction=0.02), memory)
        lost = sending.apart(arrived.sum(axis=0) + held[-1], meant.sum(axis=0))
        lines.append(f"{name:16}  {walked.beyond:6.2f}  {walked.end:5.3f}  {100 * lost:3.0f} %")
    return "\n".join(lines)
