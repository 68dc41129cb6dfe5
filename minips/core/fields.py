"""A table of the fields in a message's envelope and header. Clients and servers check messages with it.

`ServerProtocol.answer`, `ServerRecord.read_stamp` and `unpack` check each message as they read it. If one is invalid,
`check_fields` says why. PROTOCOL.md contains the tables.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple


class Field(NamedTuple):
    """The valid values of a field: a description for people, and a test of the value for each type."""

    words: str
    fits: Mapping[type, Callable[[Any], object]]


Fields = Mapping[str, Field]


def _rows(rows: Mapping[Any, Any]) -> bool:
    return all(type(name) is str and type(ids) is list and {*map(type, ids)} <= {int} for name, ids in rows.items())


def _layout(layout: Mapping[Any, Any]) -> bool:
    parts = [*layout.values()]
    listed = all(type(part) is list and 4 <= len(part) <= 5 and type(part[0]) is list for part in parts)
    return listed and all({*map(type, shape + rest)} <= {int} and type(dtype) is str for shape, dtype, *rest in parts)


_WHOLE, _ANY = range(2**63), type  # type(value) is true for any value
_NIL = {type(None): _ANY}
COUNT = Field("a whole number from 0 to 2⁶³ − 1", {int: _WHOLE.__contains__})
RANK = Field("a worker's number, or -1,", {int: range(-1, 2**63).__contains__})
FLAG = Field("true or false", {bool: _ANY})
TEXT = Field("a text", {str: _ANY})
REASON = Field("a text, or nil", {str: _ANY, **_NIL})
NUMBER = Field("a finite number", {int: range(-(2**63), 2**64).__contains__, float: isfinite})
LOSS = Field("a finite number, or nil", {**NUMBER.fits, **_NIL})
SHARE = Field("a number of rows, from 0 to below 2⁶³", {int: _WHOLE.__contains__, float: lambda n: 0 <= n < 2**63})
NAMES = Field("a list of texts, or nil", {list: lambda names: {*map(type, names)} <= {str}, **_NIL})
ROWS = Field("a map of names to lists of whole numbers, or nil", {dict: _rows, **_NIL})
_OUTCOMES = {"applied", "held", "late", "duplicate", "over"}
OUTCOME = Field("an outcome, or nil", {str: _OUTCOMES.__contains__, **_NIL})
LAYOUT = Field("a map of names to lists of a shape, a dtype and a range", {dict: _layout})

_ALL: Fields = {"kind": TEXT, "memory": TEXT, "worker": COUNT}
_PUSH: Fields = {**_ALL, "clock": COUNT, "version": COUNT, "loss": LOSS, "of": ROWS}
_PULL: Fields = {**_ALL, "names": NAMES, "rows": ROWS}
REQUESTS: dict[str, Fields] = {
    "hello": {**_ALL, "worker": RANK, "secret": TEXT, "again": FLAG, "rows": SHARE},
    "push": _PUSH,
    "pull": _PULL,
    "push_pull": {**_PUSH, **_PULL},
    "alive": _ALL,
    "status": {**_ALL, "config": FLAG},
    "state": _ALL,
    "bye": {**_ALL, "diverged": REASON, "failed": REASON, "state": FLAG},
}
"""All fields of a request, by kind; `NEEDED` names the required ones."""
_SAID = {"kind", "worker", "clock", "version"}
NEEDED = {**{kind: _SAID & fields.keys() for kind, fields in REQUESTS.items()}, "status": {"kind"}}
_STAMP: Fields = {"clock": COUNT, "done": FLAG, "outcome": OUTCOME}
ENVELOPE: Fields = {"v": COUNT, "s": TEXT, "c": TEXT, **_STAMP, "busy": NUMBER, "waited": NUMBER}
"""The fields of the first frame; only answers have the stamp, from ``clock`` on."""
ANSWERS: dict[str, Fields] = {
    **dict.fromkeys(REQUESTS, _STAMP),
    "hello": {**_STAMP, "layout": LAYOUT, "index": COUNT, "servers": COUNT, "silence_s": NUMBER}
    | {"rejoin_s": NUMBER, "secret": TEXT},
    "pull": {**_STAMP, "version": COUNT},
    "push_pull": {**_STAMP, "version": COUNT},
    "state": {**_STAMP, "leave": FLAG, "applied": COUNT},
    "status": {"index": COUNT, "servers": COUNT, "applied": COUNT, "version": COUNT, "done": FLAG},
}
"""The required fields of an answer, by the request's kind; other fields are ignored."""


def check_fields(what: str, header: Any, fields: Fields, needed: Iterable[str], others: bool = False) -> None:
    """ValueError if a field of a header is missing, invalid or, without ``others``, unknown."""
    if type(header) is not dict:
        raise ValueError(f"{what} is a map; got {reprlib.repr(header)}.")
    for name, value in {**dict.fromkeys(needed), **header}.items():
        if name in fields:
            words, fits = fields[name]
            if type(value) not in fits or not fits[type(value)](value):
                raise ValueError(f"{what} needs {words} under {name!r}; got {reprlib.repr(value)}.")
        elif not others:
            raise ValueError(f"{what} has no field {reprlib.repr(name)}; it may have {', '.join(fields)}.")


def check_request(header: Mapping[str, Any]) -> None:
    """ValueError if this is not the header of a request."""
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in REQUESTS:
        *kinds, last = REQUESTS
        raise ValueError(f"No message is of kind {reprlib.repr(kind)}; there are {', '.join(kinds)} and {last}.")
    check_fields(f"The header of {kind}", header, REQUESTS[kind], NEEDED[kind])
