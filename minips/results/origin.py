"""The origin of a run's parameters: the problem, as plain values to make it again from, and to compare it by."""

from pkgutil import resolve_name
from typing import Any

import numpy as np

from minips.intake import are_numbers, as_array
from minips.problems import Problem
from minips.results import saved
from minips.stage import Array, Tensors
from minips.words import message_of

Origin = dict[str, Any]
"""Texts: ``class`` ("module:qualname"), ``labels``, ``parameters``, ``rows`` (a SHA-256), ``columns`` where they have
names. ``kept``, those attributes of `Problem.kept` that a file can hold; ``lost``, the names of the others."""


def origin_of(problem: Problem, params: Tensors) -> Origin:
    """The origin of these parameters of a problem."""
    cls, kept = type(problem), {name: x for name, x in problem.kept().items() if saved.holds(x)}
    labels = kept.get("labels")
    labels = labels.reshape(-1).tolist() if isinstance(labels, np.ndarray) else labels
    names = [*map(repr, labels if isinstance(labels, list | tuple) else [labels])]
    text = ", ".join(names) if len({*names}) == len(names) else ""  # a user's problem may keep a label for each row
    texts = {"class": f"{cls.__module__}:{cls.__qualname__}", "labels": text, "parameters": described(params)}
    if problem.feature_names and not are_numbers(problem.feature_names):
        texts["columns"] = ", ".join(map(repr, problem.feature_names))
    return {**texts, "rows": problem.fingerprint(), "kept": kept, "lost": [x for x in vars(problem) if x not in kept]}


def described(params: Tensors) -> str:
    """The parameters' names, dtypes and shapes. ValueError for a masked array."""
    return ", ".join(f"{name} {_array(name, x).dtype.name}{[*np.shape(x)]}" for name, x in params.items())


def _array(name: str, x: Any) -> Array:
    return as_array(x, f"The parameter {name!r}")


def remade(origin: Origin | None) -> Problem:
    """Import the problem's module and make the problem without rows. ValueError says why that fails."""
    where = origin["class"] if origin else "that of this run"
    try:
        if origin is None:
            raise ValueError("its file holds none, as one of an earlier minips, or of a ps.Server that was given none")
        if "__main__:" in where or "<locals>" in where:
            raise ImportError("its class stood in a program, in a notebook or in a function, not in a module")
        cls = resolve_name(where)
        if not issubclass(cls, Problem):
            raise TypeError("it is no subclass of ps.Problem")
        problem: Problem = cls.restored(origin["kept"])
        return problem
    except (Exception, SystemExit) as error:  # whatever the module does
        lack = f"Predicting needs the problem, and {where} cannot be made again: {message_of(error)}"
        raise ValueError(f"{lack}. Give it: Run.load(path, problem).") from error


def check_same(mine: Origin, theirs: Origin, whose: str) -> None:
    """ValueError where two origins differ in a text. A text that either of them lacks is not compared."""
    for name in ("class", "labels", "columns", "parameters", "rows"):
        ours, other = mine.get(name, ""), theirs.get(name, "")
        if name == "class" and "__main__:" in ours + other:  # a class of the main program, which others may import
            ours, other = (text.rpartition(":")[2] for text in (ours, other))
        if ours and other and ours != other:
            words = f"{ours:.300} and {other:.300}. Give one of the same {name}."
            if name == "rows":
                words = (
                    "workers share out the same rows, to the bit. A worker may have rows of its own: own_rows=True of "
                )
                words += "ps.work, --own-rows of minips work."
            raise ValueError(f"The problem and {whose} differ in their {name}: {words}")
