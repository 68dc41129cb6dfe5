"""The origin of a run's parameters: plain values that describe the problem, to make it again and to compare it."""

from pkgutil import resolve_name
from typing import Any

import numpy as np

from minips.intake import are_numbers, as_array
from minips.problems import Problem
from minips.results import saved
from minips.stage import Array, Tensors
from minips.words import message_of

Origin = dict[str, Any]
"""Maps ``class`` ("module:qualname"), ``labels``, ``parameters``, ``rows`` (a SHA-256) and, if X has them, ``columns``
to texts. ``kept`` holds the attributes in `Problem.kept` that a file can hold, ``lost`` all other attributes' names."""


def origin_of(problem: Problem, params: Tensors) -> Origin:
    """The origin of a problem's parameters."""
    cls, kept = type(problem), {name: x for name, x in problem.kept().items() if saved.holds(x)}
    labels = kept.get("labels")
    labels = labels.reshape(-1).tolist() if isinstance(labels, np.ndarray) else labels
    names = [*map(repr, labels if isinstance(labels, list | tuple) else [labels])]
    text = ", ".join(names) if len({*names}) == len(names) else ""  # a user's problem may have a label for each row
    texts = {"class": f"{cls.__module__}:{cls.__qualname__}", "labels": text, "parameters": describe(params)}
    if problem.feature_names and not are_numbers(problem.feature_names):
        texts["columns"] = ", ".join(map(repr, problem.feature_names))
    return {**texts, "rows": problem.fingerprint(), "kept": kept, "lost": [x for x in vars(problem) if x not in kept]}


def describe(params: Tensors) -> str:
    """The parameters' names, dtypes and shapes, as text. Raises ValueError for a masked array."""
    return ", ".join(f"{name} {_array(name, x).dtype.name}{[*np.shape(x)]}" for name, x in params.items())


def _array(name: str, x: Any) -> Array:
    return as_array(x, f"The parameter {name!r}")


def restore_problem(origin: Origin | None) -> Problem:
    """Import the problem's module and construct the problem without its rows. Failures raise ValueError."""
    where = origin["class"] if origin else "that of this run"
    try:
        if origin is None:
            raise ValueError("the file has none: it is from an earlier minips, or from a ps.Server that got none")
        if "__main__:" in where or "<locals>" in where:
            raise ImportError("its class was defined in a program, a notebook or a function, not in a module")
        cls = resolve_name(where)
        if not issubclass(cls, Problem):
            raise TypeError("it is not a subclass of ps.Problem")
        problem: Problem = cls.restored(origin["kept"])
        return problem
    except (Exception, SystemExit) as error:  # whatever the module does
        lack = f"Predicting needs the problem, and {where} cannot be made again: {message_of(error)}"
        raise ValueError(f"{lack}. Give it: Run.load(path, problem).") from error


def check_same(mine: Origin, theirs: Origin, whose: str) -> None:
    """Raise ValueError if two origins differ in a text. A text that one of the origins lacks is not compared."""
    for name in ("class", "labels", "columns", "parameters", "rows"):
        ours, other = mine.get(name, ""), theirs.get(name, "")
        if name == "class" and "__main__:" in ours + other:  # others may import the main program's class
            ours, other = (text.rpartition(":")[2] for text in (ours, other))
        if ours and other and ours != other:
            words = f"{ours:.300} and {other:.300}. Give one of the same {name}."
            if name == "rows":
                words = "all workers divide the same rows, to the bit. For a worker with rows of its own, give "
                words += "own_rows=True to ps.work, or --own-rows to minips work."
            raise ValueError(f"The problem and {whose} differ in their {name}: {words}")
