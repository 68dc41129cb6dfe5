"""Ships user code by value: a problem or stage written in a notebook cell or a script works in another process.

`dill` with ``recurse=True`` includes only what the code refers to. Errors name values that cannot be sent; warnings
name values that are surprisingly large.
"""

import dataclasses
import io
import pickle
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from minips.stage import Stage, Value, register
from minips.words import message_of

LARGE_BYTES = 1_000_000


def ship(thing: Any, buffers: list[memoryview] | None = None) -> bytes:
    """Return ``thing`` as bytes. Large arrays are not copied but listed in ``buffers``, unless it is None.

    TypeError names a value that cannot be sent. Warns about a captured global of over a megabyte.
    """
    for owner, name, value in _captured(thing):
        size = len(_packed(f"{owner} uses {name!r}", value))
        if size > LARGE_BYTES:
            warnings.warn(
                f"{owner} uses the global {name!r}, and its {size / 1e6:.1f} MB travel to every worker. "
                "Make it an attribute of the problem, whose rows are split among the workers.",
                stacklevel=2,
            )
    try:
        return _dumps(thing, buffers)
    except Exception:  # find the part that cannot be sent
        for name, value in _attributes(thing):
            _packed(f"{name} holds", value)
        return _packed("It holds", thing)


def unship(data: bytes, buffers: Iterable[memoryview] = ()) -> Any:
    """Return the parts that `ship` packed."""
    import dill

    return dill.loads(data, buffers=buffers)


def register_shipped_stages(value: Any) -> None:
    """Register the class of each stage within ``value``, as its notebook cell did in the original process."""
    if isinstance(value, Stage) and type(value).__module__ == "__main__" and "name" in vars(type(value)):
        register(type(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            register_shipped_stages(getattr(value, field.name))
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            register_shipped_stages(item)


def _packed(where: str, value: Any) -> bytes:
    """Return the pickled value. TypeError if it cannot be sent; ``where`` is the beginning of the error text."""
    try:
        return _dumps(value)
    except Exception as error:
        raise TypeError(
            f"{where} a {type(value).__name__}, which cannot travel to another process ({message_of(error)}). "
            "Make it inside the method that needs it, or run with engine=Threads()."
        ) from error


def _dumps(thing: Any, buffers: list[memoryview] | None = None) -> bytes:
    """Like ``dill.dumps``, but pickles modules by name: dill would include the whole of a module outside site-packages,
    such as minips installed with ``-e``.
    """
    import dill

    def keep(memory: pickle.PickleBuffer) -> bool:
        if buffers is None or memory.raw().nbytes < LARGE_BYTES:
            return True
        buffers.append(memory.raw())
        return False

    buffer = io.BytesIO()
    pickler = dill.Pickler(buffer, protocol=5, recurse=True, buffer_callback=keep)
    pickler.reducer_override = _reduced
    pickler.dump(thing)
    return buffer.getvalue()


def _reduced(thing: Any) -> Any:
    """Reduce an importable module, or an array without a copy; return NotImplemented to leave the rest to dill."""
    if type(thing) is np.ndarray:
        return thing.__reduce_ex__(5)
    if isinstance(thing, ModuleType) and thing.__name__ != "__main__" and sys.modules.get(thing.__name__) is thing:
        return import_module, (thing.__name__,)
    return NotImplemented


def _attributes(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the attributes within a problem or a config, with their paths, leaves first."""
    inner = thing.items() if isinstance(thing, dict) else getattr(thing, "__dict__", {}).items()
    for name, value in inner:
        if isinstance(value, Value) or (isinstance(thing, dict) and hasattr(value, "__dict__")):
            yield from _attributes(value, f"{path}{name}.")
        yield f"{path}{name}", value


def _captured(thing: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the globals that classes of ``__main__`` within ``thing`` use, as (class name, global's name, value)."""
    from dill.detect import globalvars

    visited: set[type] = set()
    for _, value in _attributes(thing):
        for cls in type(value).__mro__:
            if cls.__module__ != "__main__" or cls in visited:
                continue
            visited.add(cls)
            for member in vars(cls).values():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if callable(function) and hasattr(function, "__code__"):
                    for name, used in globalvars(function, recurse=False).items():
                        yield cls.__name__, name, used
