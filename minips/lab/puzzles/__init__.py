"""Puzzles: a task in a few sentences, a function of the learner's, a picture of what it does, and a number to beat.

A puzzle gives the learner's function objects that allow only what is possible: a partial sum knows which gradients it
contains, a gradient does not exist before the backward pass has reached its layer. A move that is not possible raises
`IllegalMoveError` on the learner's own line. Every figure is a count or a virtual time, the same on every machine.

Deciding needs neither widgets nor pictures, so `minips play` runs without them; only `Played.drawing` needs matplotlib.
"""

from minips.lab.puzzles.allreduce import ALL_REDUCES
from minips.lab.puzzles.base import IllegalMoveError, Played, Puzzle
from minips.lab.puzzles.buckets import BucketsPuzzle
from minips.lab.puzzles.clicks import ClicksPuzzle
from minips.lab.puzzles.waiting import WaitingPuzzle

__all__ = ["PUZZLES", "IllegalMoveError", "Played", "Puzzle", "puzzle"]

PUZZLES: dict[str, Puzzle] = {one.name: one for one in (*ALL_REDUCES, WaitingPuzzle(), BucketsPuzzle(), ClicksPuzzle())}
"""Maps a puzzle's name to it, in the order of play."""


def puzzle(name: str) -> Puzzle:
    """Return the puzzle of this name; showing it shows its task. ValueError for an unknown name.

    >>> puzzle("ring").par
    24
    """
    if name not in PUZZLES:
        raise ValueError(f"There is no puzzle {name!r}. Known: {', '.join(PUZZLES)}.")
    return PUZZLES[name]
