"""The lessons' exercises refuse broken answers: each is the folded solution of the notebook with one piece changed.

That the solutions themselves pass is test_lessons' part.
"""

import re
from typing import Any

import pytest
from test_lessons import LESSONS, exercises, lesson

from minips import lab

BROKEN = {
    "01.1": {
        "a plain mean": ("n * g[name]", "total / len(rows) * g[name]"),
        "a sum": (") / total", ")"),
        "the wrong way round": ("n * g[name]", "(total - n) * g[name]"),
        "one name for all": ("g[name]", "g['w']"),
        "shares of the first two": ("zip(rows, gradients, strict=True)", "zip(rows[:2], gradients)"),
        "another's array": ("total = sum(rows)", "total = sum(rows); gradients[0]['w'] *= 1.5"),
    },
    "01.2": {
        "least squares": ("np.clip(r, -self.delta, self.delta)", "r"),
        "the loss alone is clipped": ("self.delta * (np.abs(r) - self.delta / 2)", "self.delta**2 / 2"),
        "a delta of its own": ("self.delta", "1.0"),
        "one side only": ("np.clip(r, -self.delta, self.delta)", "np.minimum(r, self.delta)"),
        "a sum": ("losses.mean()", "losses.sum()"),
        "always float64": ("X.T @ slopes", "X.T.astype(float) @ slopes"),
    },
    "01.3": {
        "all at once": ("rows[start : start + most]", "rows if start == 0 else rows[:0]"),
        "pieces count alike": ("len(piece) * g", "most * g"),
        "the last piece is lost": ("range(0, len(rows), most)", "range(0, len(rows) - most, most)"),
        "overlapping": ("start : start + most", "max(start - 1, 0) : start + most - 1"),
        "a sum": ("t / len(rows)", "t"),
    },
}
"""By exercise, and by what is wrong: a piece of the solution, and what stands there instead."""


def answer(key: str, old: str, new: str) -> Any:
    """What the lesson would hand to its check, were ``old`` in the folded solution ``new``."""
    (path,) = (path for path in LESSONS if path.name.startswith(key[:2]))
    book = lesson(path)
    imports = next(cell.source for cell in book.cells if cell.cell_type == "code")
    (asked, solution), *others = (pair for pair in exercises(book) if f'"{key}"' in pair[0])
    assert not others
    assert old in solution, f"the solution of {key} has no {old!r}"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(f"{imports}\n{solution.replace(old, new)}", namespace)
    return eval(re.fullmatch(r'lab\.check\("[\d.]+", (.*)\)', asked)[1], namespace)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("key", "old", "new"),
    [pytest.param(key, *change, id=f"{key} {what}") for key, all_ in BROKEN.items() for what, change in all_.items()],
)
def test_a_broken_answer_is_refused(key: str, old: str, new: str) -> None:
    verdict = lab.check(key, answer(key, old, new))
    assert not verdict
    assert len(verdict.words.partition("\nHint: ")[0]) > 20
