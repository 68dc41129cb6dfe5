"""Kept sweeps: the results of many runs, each sweep in a JSON file that is named by a hash of all that was asked.

Those of a course are in the folders ``sweeps`` of its lessons, those of the learner beside the learner's progress. A
kept sweep answers only for what was run: if the data, the config, the rates, the seeds, or the code of a stage or a
problem that is not part of minips is another, then so is the hash, and the sweep is run anew.
"""

import hashlib
import inspect
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from minips import files
from minips.lab.course import courses, state
from minips.lab.source import show
from minips.problems import Problem
from minips.stage import Array, Value


def key_of(asked: Mapping[str, Any]) -> str:
    """A hash of what was asked, which names the file of a kept sweep."""
    return digest(json.loads(json.dumps(asked, sort_keys=True, default=repr)))


def code_of(*parts: Any) -> str:
    """A hash of the code in these values that is not part of minips: of stages and problems, and what they call."""
    return digest([*dict.fromkeys(_code(parts))])


def digest(value: Any) -> str:
    """A hash of a value: arrays by dtype, shape and content, functions by source, other objects by class and fields."""
    found = hashlib.sha256()

    def feed(part: Any) -> None:
        if isinstance(part, np.ndarray) and not part.dtype.hasobject:
            found.update(f"{part.dtype.str}{part.shape}".encode() + _contents(part))
        elif isinstance(part, Mapping):
            feed(sorted(part.items(), key=repr))
        elif isinstance(part, list | tuple):
            found.update(f"{type(part).__name__}{len(part)}".encode())
            for one in part:
                feed(one)
        elif isinstance(part, np.random.Generator):
            feed(part.bit_generator.state)
        elif isinstance(part, partial):
            feed([part.func, part.args, part.keywords])
        elif isinstance(part, FunctionType) and not part.__closure__:
            feed([part.__qualname__, part.__defaults__, part.__kwdefaults__, *_sources(part, set())])
        elif isinstance(part, FunctionType | MethodType):  # depends on more than its source: its sweep is run anew
            feed(secrets.token_hex())
        elif hasattr(part, "__dict__") and not isinstance(part, type):
            feed([type(part).__qualname__, vars(part)])
        else:
            found.update(repr(part).encode())

    feed(value)
    return found.hexdigest()[:16]


def _contents(array: Array) -> bytes:
    """The bytes of an array; of floats their length and two projections, since machines differ in the last bits of what
    they compute.
    """
    flat = np.asarray(array, "f8").ravel() if array.dtype.kind == "f" else np.array([np.inf])
    length = np.linalg.norm(flat)
    if not np.isfinite(length):
        return np.ascontiguousarray(array).tobytes()
    places = np.arange(flat.size)
    shares = (flat @ np.cos(step * places) / (length or 1) for step in (1.0, np.sqrt(5)))
    return f"{length:.3g} {' '.join(f'{share:+.3f}' for share in shares)}".encode()


def _code(parts: Any) -> Iterator[str]:
    """The source of the classes in these values that are not part of minips, and of the functions that they call."""
    for part in parts:
        if isinstance(part, Problem | Value):
            yield from _sources(type(part), set())
            yield from _code(vars(part).values())
        elif isinstance(part, Mapping):
            yield from _code(part.values())


def _sources(thing: Any, seen: set[Any]) -> Iterator[str]:
    """The source of a class or a function, of its bases, and of what its functions use of the same module."""
    known = getattr(thing, "__module__", "").partition(".")[0] in ("minips", "builtins", "abc", "typing", "numpy")
    if known or thing in seen:
        return
    seen.add(thing)
    try:
        yield show(thing).source
    except TypeError:  # without its source, two classes cannot be told apart: this one is run anew each time
        yield secrets.token_hex()
    members = [*vars(thing).values(), *thing.__bases__] if isinstance(thing, type) else [thing]
    for member in map(inspect.unwrap, members):
        if isinstance(member, type):
            yield from _sources(member, seen)
        elif isinstance(member, FunctionType) and member.__module__ == thing.__module__:
            for name in _names(member.__code__):
                used = member.__globals__.get(name)
                if isinstance(used, type | FunctionType) and used.__module__ == thing.__module__:
                    yield from _sources(used, seen)
                elif isinstance(used, int | float | str | tuple | np.ndarray):
                    yield f"{name} = {digest(used)}"


def _names(code: CodeType) -> list[str]:
    """The names that a function uses, in order. In some versions of Python a comprehension has code of its own."""
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return sorted({*code.co_names, *inner})


def _own() -> Path:
    """The folder of the learner's sweeps."""
    return state.state_file().parent / "sweeps"


def load(asked: Mapping[str, Any]) -> dict[float, Array]:
    """The runs of this sweep that a course or the learner keeps; empty if neither does."""
    name = f"{key_of(asked)}.json"
    places = [] if state.autoplay() else [_own() / name]
    with suppress(ImportError):
        places += [path for folder in courses.folders() for path in folder.glob(f"*/sweeps/{name}")]
    for place in places:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            return read(place)
    return {}


def read(path: Path) -> dict[float, Array]:
    """Return a file's runs, by learning rate; null is infinity. ValueError if the file's name is another sweep's."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    rows = facts.pop("runs")
    if path.stem != key_of(facts):
        raise ValueError(f"{path.name} holds the runs of another sweep, {key_of(facts)}.")
    return {float(rate): np.nan_to_num(np.array(numbers, float), nan=np.inf) for rate, numbers in rows.items()}


def text_of(asked: Mapping[str, Any], runs: Mapping[float, Array]) -> str:
    """The text of a file that keeps these runs."""
    rows = {}
    for rate in sorted(runs):
        rows[str(rate)] = [[x if np.isfinite(x) else None for x in row] for row in runs[rate].tolist()]
    facts = [f"{json.dumps(name)}: {json.dumps(said, default=repr)}" for name, said in {**asked, "runs": rows}.items()]
    return "{\n" + ",\n".join(facts) + "\n}\n"


def keep(asked: Mapping[str, Any], runs: Mapping[float, Array]) -> None:
    """Keep a sweep beside the learner's progress. Unattended runs keep none."""
    if state.autoplay():
        return
    with suppress(OSError):  # the sweep is then run again the next time
        _own().mkdir(parents=True, exist_ok=True)
        files.write(_own() / f"{key_of(asked)}.json", text_of(asked, runs))
