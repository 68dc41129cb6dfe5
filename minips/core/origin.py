"""The origin of a run's parameters: the problem, as plain values from which a saved run makes it again, and by which a
run and a worker see whether another one is the same.
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

import numpy as np

from minips.core import saved
from minips.problems import Problem
from minips.stage import Tensors, reason

Origin = dict[str, Any]
"""``class``, as "module:qualname"; ``fingerprint``; and ``kept``, of `Problem.kept` all that a file holds."""


def origin_of(problem: Problem) -> Origin:
    """The origin of what is trained on this problem."""
    cls, kept = type(problem), {name: x for name, x in problem.kept().items() if saved.holds(x)}
    return {"class": f"{cls.__module__}:{cls.__qualname__}", "fingerprint": problem.fingerprint(), "kept": kept}


def remade(origin: Origin | None) -> Problem:
    """The problem without rows, its module imported. ValueError says why there is none."""
    try:
        if origin is None:
            raise ValueError("the file holds none, as one of an earlier minips or of a bare ps.Server")
        module, _, name = origin["class"].partition(":")
        if module == "__main__" or "<locals>" in name:
            raise ImportError(f"{name} is no class of a module, but of a program, a notebook or a function")
        cls = resolve_name(origin["class"])
        if not (isinstance(cls, type) and issubclass(cls, Problem)):
            raise TypeError(f"{origin['class']} is no subclass of ps.Problem")
        return cls.restored(origin["kept"])
    except (Exception, SystemExit) as error:  # whatever the module does
        raise ValueError(
            f"Predicting needs the problem, and there is none: {reason(error)}. Give it: Run.load(path, problem)."
        ) from error


def told(origin: Origin | None, params: Tensors) -> dict[str, str]:
    """What another side can compare, in texts: class, labels, parameters and rows. Without an origin the parameters
    alone.
    """
    parameters = ", ".join(f"{name} {x.dtype}{list(x.shape)}" for name, x in params.items())
    if origin is None:
        return {"parameters": parameters}
    labels = [*map(repr, np.asarray(origin["kept"].get("labels"), object).reshape(-1).tolist())]
    if len({*labels}) < len(labels):  # a problem of one's own may call the target of each row so
        labels = []
    rows = origin["fingerprint"]
    return {"class": origin["class"], "labels": ", ".join(labels), "parameters": parameters, "rows": rows}


def check_same(mine: Mapping[str, str], theirs: Mapping[str, str], whose: str) -> None:
    """ValueError where two sides have told different things. What one of them has not told is not compared."""
    for what, one in mine.items():
        other = theirs.get(what, "")
        if what == "class" and "__main__:" in one + other:  # a program's own, which others may import from its file
            one, other = (text.rpartition(":")[2] for text in (one, other))
        if one and other and one != other:
            advice = "Workers share out the same rows, to the bit" if what == "rows" else "Give it the same"
            raise ValueError(f"The problem and {whose} differ in their {what}: {one:.300} and {other:.300}. {advice}.")
