"""Values that only a library can compute. For machines without it, a lesson's run recorded them, with machine and date,
and with a hash of the program that computed them: they are shown for that program alone.

values = lab.recorded("bits.torch", of=program)       # if torch is missing
lab.record("bits.torch", values, of=program)          # if torch is installed; only `tests/execute_lessons.py` writes
"""

import ast
import datetime
import hashlib
import inspect
import json
import os
import platform
import sys
from typing import Any

from minips import files
from minips.lab.course.courses import course_of
from minips.lab.course.questions import full_key
from minips.lab.source import show


class NotRunError(ValueError):
    """Raised if a program was not run, and its values are not those recorded. IPython shows its sentence alone."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"This program was not run: {library} is not here, and what was recorded is of another program. "
            f"To run your own, install it: pip install {library}"
        )

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def fingerprint(*program: Any) -> str:
    """Return a hash of values, and of the source of functions and classes, or of their whole module outside notebooks,
    without comments and docstrings.
    """
    return hashlib.sha256("\n".join(map(_describe, program)).encode()).hexdigest()[:16]


def _describe(piece: Any) -> str:
    if not (inspect.isfunction(piece) or inspect.isclass(piece)):
        return repr(piece)
    try:
        source = show(piece if piece.__module__ == "__main__" else sys.modules[piece.__module__]).source
    except TypeError:  # there is none, so it cannot be known to be the same
        return os.urandom(16).hex()
    words = set[int]()  # the lines of docstrings
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            words |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = [line.rstrip() for number, line in enumerate(source.splitlines(), 1) if number not in words]
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def _file(key: str) -> Any:
    full = full_key(key)
    name = full.removeprefix(course_of(full).prefix).replace(".", "_")
    return course_of(full).notebooks / "recorded" / f"{name}.json"


def record(key: str, values: dict[str, Any], of: Any = None) -> None:
    """Write values, which must be valid in JSON, if the environment has ``MINIPS_RECORD=1``; otherwise do nothing."""
    if os.environ.get("MINIPS_RECORD") == "1":
        machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
        program = {} if of is None else {"of": fingerprint(of)}
        kept = {"machine": machine, "date": f"{datetime.date.today():%B %Y}", **program, "values": values}
        _file(key).parent.mkdir(exist_ok=True)
        files.write(_file(key), json.dumps(kept, indent=1) + "\n")


def load(key: str) -> dict[str, Any]:
    """Return the recorded values with their origin. ValueError if there are none."""
    try:
        return dict(json.loads(_file(key).read_text()))
    except FileNotFoundError:
        raise ValueError(f"Nothing was recorded under {key!r}.") from None


def recorded(key: str, of: Any = None) -> dict[str, Any]:
    """Return the recorded values; print their origin, and which library is missing. ValueError if there are none, or if
    they are of another program than ``of``, the function that computed them.
    """
    kept = load(key)
    missing = key.partition(".")[2]
    if of is not None and kept.get("of") != fingerprint(of):
        raise NotRunError(missing)
    print(f"{missing} is not here. The values were recorded elsewhere: {kept['machine']}, {kept['date']}.")
    values: dict[str, Any] = kept["values"]
    return values
