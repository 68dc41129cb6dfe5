"""The lessons that came with the package: where they are, what each one asks, and copies for the learner."""

import ast
import json
from pathlib import Path
from typing import Any, NamedTuple

from minips.lab.exercises import EXERCISES


class Lesson(NamedTuple):
    """One notebook."""

    path: Path
    number: str
    """Two digits."""
    title: str
    questions: list[str]
    """Those of its predictions."""
    exercises: list[str]
    """The keys of its exercises."""


def shelf() -> Path:
    """The folder of the lessons: a checkout's, or the one that was installed with the package."""
    package = Path(__file__).parents[1]
    checkout = package.parent
    if (checkout / "lessons").is_dir() and (checkout / "pyproject.toml").exists():
        return checkout / "lessons"
    return package / "lessons"


def lessons() -> list[Lesson]:
    """All the lessons in order. FileNotFoundError where there are none."""
    paths = sorted(shelf().glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise FileNotFoundError(f"There are no lessons in {shelf()}. Install minips again, or clone its repository.")
    found = []
    for path in paths:
        cells = read(path)["cells"]
        number = path.name[:2]
        title = source(cells[0]).splitlines()[0].lstrip("# ")
        questions = [text for cell in cells for text in arguments(cell, "predict")]
        keys = [key for key in EXERCISES if key.startswith(f"{number}.")]
        found.append(Lesson(path, number, title, questions, keys))
    return found


def read(path: Path) -> dict[str, Any]:
    """A notebook as the dict that it is. ValueError where it is none."""
    try:
        book: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        book["cells"][0]["source"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(f"{path} is not a notebook of the kind that JupyterLab writes (nbformat 4).") from None
    return book


def source(cell: Any) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def arguments(cell: Any, function: str) -> list[str]:
    """The first arguments of the calls of ``lab.<function>("…")`` in a code cell; cell magic and half-written code
    have none.
    """
    if cell["cell_type"] != "code":
        return []
    lines = [line for line in source(cell).splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return []
    return [
        str(node.args[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == f"lab.{function}"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
