"""The contract of puzzles: a page of text, `Puzzle.play`, and the outcome with its score and picture."""

import io
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from minips.lab.charts import Drawing


DPI = 150
"""Pixels of a picture per inch of its figure."""


class IllegalMoveError(ValueError):
    """Raised at a move that is not possible: the message says what was tried and what is possible."""


class Puzzle(ABC):
    """The contract. A lower score is better."""

    name: ClassVar[str]
    title: ClassVar[str]
    function: ClassVar[str]
    """The name of the learner's function in a file for `minips play`."""
    task: ClassVar[str]
    start: ClassVar[str]
    """A function that plays, badly or not to the end: the learner changes it."""
    unit: ClassVar[str]
    par: ClassVar[float]
    best: ClassVar[float]
    """The least score that is known."""

    @abstractmethod
    def play(self, function: Callable[..., Any]) -> "Played":
        """Play the learner's function, and return the outcome. `IllegalMoveError` if a move is not possible."""

    @property
    def page(self) -> str:
        """The task, the numbers to beat and a function to start from, as plain text."""
        paragraphs = (textwrap.fill(" ".join(part.split()), 80) for part in self.task.strip().split("\n\n"))
        goal = f"Par: {self.par:g} {self.unit}. Best known: {self.best:g}."
        return "\n\n".join([f"{self.name}: {self.title}", *paragraphs, goal, self.start.strip()])

    def __repr__(self) -> str:
        return self.page


@dataclass(frozen=True, repr=False)
class Played(ABC):
    """The outcome of a legal play. Shown in a notebook, it is a picture; in a terminal, the same as text."""

    puzzle: Puzzle
    score: float

    @property
    @abstractmethod
    def words(self) -> str:
        """A sentence on what makes up the score."""

    @abstractmethod
    def text(self) -> str:
        """The picture as text."""

    @abstractmethod
    def drawing(self, width: float) -> "Drawing":
        """The picture as lines and texts, for a page of this width in pixels."""

    @property
    def goals(self) -> tuple[float, float]:
        """Par, and the best known score."""
        return self.puzzle.par, self.puzzle.best

    @property
    def verdict(self) -> str:
        """The score, and how it compares with par and with the best that is known."""
        puzzle, score = self.puzzle, round(self.score, 6)
        if score < puzzle.best:
            place = "better than the best known: please tell us"
        elif score == puzzle.best:
            place = "as good as the best known"
        elif score <= puzzle.par:
            place = f"par is {puzzle.par:g}: reached; the best known is {puzzle.best:g}"
        else:
            place = f"par is {puzzle.par:g}, the best known {puzzle.best:g}"
        return f"{puzzle.name}: {score:g} {puzzle.unit} ({place})."

    def png(self, narrow: bool = False) -> bytes:
        """Return the verdict and the picture as PNG, for a wide page or a ``narrow`` one. Needs matplotlib."""
        from matplotlib.figure import Figure

        from minips.lab.charts import LETTER, NARROW_PX, ROW, WIDE_PX, Drawing, Text, paint, translate

        below, figure, picture = self.drawing(NARROW_PX if narrow else WIDE_PX), Figure(), io.BytesIO()
        said, more = (textwrap.wrap(words, int(below.width / LETTER)) for words in (self.verdict, self.words))
        lines = [*said, *more]
        texts = [Text(0, ROW * (row + 0.8), line, bold=row < len(said)) for row, line in enumerate(lines)]
        high = ROW * (len(lines) + 1)
        paint(Drawing(below.width, high + below.height, [*texts, *translate(below.parts, 0, high)]), figure)
        figure.savefig(picture, format="png", dpi=DPI)
        return picture.getvalue()

    def __repr__(self) -> str:
        return f"{self.verdict} {self.words}\n\n{self.text()}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        if not find_spec("matplotlib"):
            return {"text/plain": repr(self)}
        from minips.lab.pictures import Shown

        words, narrow = f"{self.verdict} {self.words}", self.png(narrow=True)
        return Shown(self.png(), words, repr(self), narrow=narrow)._repr_mimebundle_()


def only_the_game_makes(what: str, where: str) -> IllegalMoveError:
    """Return the error for a learner who makes a value of the game."""
    return IllegalMoveError(f"{what} cannot be made. {where}")
