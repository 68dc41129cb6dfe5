"""Save values and arrays in one file, which is either complete or missing.

The file is an uncompressed .npz archive without pickles, so NumPy can read it without minips. An array's name is its
path, such as ``params/w``, except for characters that an archive cannot keep. The entry ``minips`` holds everything
else as JSON in UTF-8: ``{"array": name}`` stands for an array, ``{"scalar": name}`` for a NumPy number, ``{"tuple":
[…]}`` for a tuple and ``{"map": [[key, value], …]}`` for a dict. The first key is ``format``, a whole number that
increases with each change that older readers would misread.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minips import files
from minips.stage import Array
from minips.words import message_of, public_message

FORMAT = 1
_JSON = "minips"
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, KeyError)
_LONGEST = 2**13
"""The most characters in an entry's name: an archive has room for 65,535 bytes."""


def to_arrays(values: Mapping[str, Any]) -> dict[str, Array]:
    """Convert these values to a file's arrays, by name. Raises TypeError for a value that a file cannot hold."""
    arrays: dict[str, Array] = {}
    text = json.dumps(_to_json({"format": FORMAT, **values}, "", arrays))
    return {_JSON: np.frombuffer(text.encode(), np.uint8), **arrays}


def from_arrays(arrays: Mapping[str, Array], source: str | Path) -> dict[str, Any]:
    """The values in arrays made by `to_arrays`. Raises ValueError, naming the ``source``, for other arrays."""
    try:
        tree = json.loads(arrays[_JSON].tobytes())
        newer = tree["map"][0][1]
        values: dict[str, Any] = {} if newer > FORMAT else _from_json(tree, arrays)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = public_message(error, "An entry is missing or malformed.")
        raise ValueError(f"{source} is not a file that minips wrote: {why}") from error
    if newer > FORMAT:
        raise ValueError(
            f"{source} has the format {newer}, and this minips reads formats up to {FORMAT}. Install a newer minips."
        )
    return values


@contextmanager
def restoring(what: str) -> Iterator[None]:
    """Turn errors while restoring ``what`` into a ValueError: ``what`` is not part of a saved run."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            public_message(error, f"{what} is not from a saved run: an entry is missing or malformed.")
        ) from error


def write(path: str | Path, values: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write these values to a file, replacing any older ones. A new file gets this ``mode``, less the umask. Raises
    TypeError for a value that a file cannot hold, and OSError as `files.write` does.
    """
    arrays = to_arrays(values)
    with files.writing(path, mode) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read(path: str | Path) -> dict[str, Any]:
    """Read a file's values. Raises ValueError for a torn, foreign or newer file, OSError if it cannot be opened."""
    with Path(path).open("rb") as file:
        arrays: dict[str, Array] = {}
        try:
            with zipfile.ZipFile(file) as names:
                ours = f"{_JSON}.npy" in names.namelist()
            file.seek(0)
            if ours:
                with np.load(file, allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in archive.files}
        except _DAMAGED as error:
            raise ValueError(
                f"{path} is not a complete file of a saved run: {message_of(error)}. Was its writing interrupted, or "
                "is it another kind of file?"
            ) from error
    if not ours:
        raise ValueError(f"{path} is not a file of minips: it has no entry {_JSON!r}.")
    return from_arrays(arrays, path)


def holds(value: Any) -> bool:
    """True if a file can hold this value, so that reading the file gives the same value."""
    if type(value) in (dict, list, tuple):
        try:
            return all(map(holds, (*value, *value.values()) if type(value) is dict else value))
        except RecursionError:  # the value contains itself
            return False
    plain = type(value) in (bool, int, float, str, type(None))
    return plain or ((type(value) is np.ndarray or isinstance(value, np.generic)) and not value.dtype.hasobject)


def _to_json(value: Any, where: str, arrays: dict[str, Array]) -> Any:
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        where = _entry(where)
        while where in arrays:  # such as the keys 1 and "1" of one map, or several NumPy numbers
            where += "'"
        arrays[where] = np.asarray(value)
        return {"scalar" if isinstance(value, np.generic) else "array": where}
    if isinstance(value, Mapping):
        inner = f"{where}/" if where else ""
        return {
            "map": [[_to_json(key, where, arrays), _to_json(x, f"{inner}{key}", arrays)] for key, x in value.items()]
        }
    if isinstance(value, list | tuple):
        items = [_to_json(x, f"{where}/{i}", arrays) for i, x in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    raise TypeError(
        f"{where} is {value!r}, of type {type(value).__name__}, which cannot be saved. Numbers, texts, arrays, lists, "
        "tuples and dicts can."
    )


def _entry(where: str) -> str:
    """Turn an array's path into an entry name; characters that an archive cannot store are replaced."""
    text = where[:_LONGEST].replace("\0", "?").replace("\\", "?").encode(errors="replace").decode()
    return f"{text}'" if text.endswith(".npy") else text  # NumPy removes this ending


def _from_json(value: Any, arrays: Mapping[str, Array]) -> Any:
    if isinstance(value, list):
        return [_from_json(x, arrays) for x in value]
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    if kind == "array":
        return arrays[inner]
    if kind == "scalar":
        return arrays[inner][()]
    if kind == "tuple":
        return tuple(_from_json(x, arrays) for x in inner)
    return {_from_json(key, arrays): _from_json(x, arrays) for key, x in inner}
