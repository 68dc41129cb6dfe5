"""Text for errors and docstrings: what was expected, what was got, and the nearest known name."""

import dataclasses
import difflib
import inspect
import re
import reprlib
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import ge, gt, index, le, lt
from typing import Any, SupportsIndex, get_type_hints

BOUNDS = {"minimum": ("at least", ge), "above": ("above", gt), "maximum": ("at most", le), "below": ("below", lt)}


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the known names, and the name that ``word`` was probably meant to be.

    >>> suggestion("topkk", ["exact", "topk"])
    'Known: exact, topk. Did you mean topk?'
    """
    known = list(known)
    if not known:
        return "None is known."
    close = difflib.get_close_matches(str(word), known, n=1)
    return f"Known: {', '.join(known)}." + (f" Did you mean {close[0]}?" if close else "")


def join_names(names: Sequence[str]) -> str:
    """The names as a list in a sentence, with "and" before the last.

    >>> join_names(["compute"]), join_names(["stages", "calls", "waits"])
    ('compute', 'stages, calls and waits')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def message_of(error: BaseException) -> str:
    """An error's text, for the end of a sentence; if the error has no text, its type.

    >>> message_of(ValueError("too large")), message_of(TimeoutError())
    ('too large', 'a TimeoutError without a text')
    """
    return str(error) or f"{a_or_an(type(error).__name__)} without a text"


def as_error(raised: BaseException) -> Exception:
    """The exception that user code raised, or a RuntimeError if it would end the program, as SystemExit does.

    >>> as_error(SystemExit(3))
    RuntimeError('User code raised SystemExit: 3.')
    """
    if isinstance(raised, Exception):
        return raised
    return RuntimeError(f"User code raised {type(raised).__name__}: {message_of(raised)}.")


def public_message(error: BaseException, otherwise: str) -> str:
    """The text that tells a peer about an error: the error's own text if that is a sentence, else ``otherwise``.

    >>> public_message(ValueError("There is no worker 5."), ""), public_message(KeyError("w"), "It has no w.")
    ('There is no worker 5.', 'It has no w.')
    """
    text = str(error)
    return text if text.endswith((".", "?")) and not text[:1].islower() and "\n" not in text else otherwise


def check_type(taker: str, value: object, kind: Any, what: str) -> None:
    """Raise TypeError if ``value`` is not of this type."""
    if not isinstance(value, kind):
        raise TypeError(f"{taker} takes {what}; got {reprlib.repr(value)}.")


def check_count(what: str, count: object, words: str) -> None:
    """Raise ValueError unless ``count`` is None or a whole number above 0."""
    if count is not None and not (type(count) is int and count > 0):
        raise ValueError(f"{what} is {words}; got {count!r}.")


def check_name(what: str, name: str) -> None:
    """Raise ValueError for a name that UTF-8 cannot encode, such as half of a surrogate pair."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"The name of a {what} must be text that UTF-8 encodes; got {reprlib.repr(name)}.") from None


def check_seed(taker: str, seed: Any) -> None:
    """Raise ValueError unless ``seed`` is a whole number of at least 0, or several such numbers."""
    numbers = seed if isinstance(seed, Iterable) else [seed]
    if not all(isinstance(number, SupportsIndex) and index(number) >= 0 for number in numbers):
        raise ValueError(f"{taker} takes a seed, a whole number from 0 on or several; got {reprlib.repr(seed)}.")


def workers_of(ranks: Iterable[int]) -> str:
    """A phrase that names these workers by their numbers.

    >>> workers_of([2]), workers_of([0, 1, 3])
    ('worker 2', 'workers 0, 1 and 3')
    """
    *others, last = map(str, ranks)
    return f"workers {', '.join(others)} and {last}" if others else f"worker {last}"


def a_or_an(noun: str) -> str:
    """The noun with the article "a" or "an"."""
    return f"an {noun}" if noun[0] in "aeiouAEIOU" else f"a {noun}"


def limits_of(metadata: Mapping[str, Any]) -> list[str]:
    """The limits of a field in words."""
    choices = [] if metadata.get("choices") is None else [f"one of {', '.join(map(repr, metadata['choices']))}"]
    bounds = (f"{words} {metadata[key]:g}" for key, (words, _) in BOUNDS.items() if metadata.get(key) is not None)
    return [*choices, *bounds]


def check_limits(where: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Raise ValueError if the value is not one of the field's choices or exceeds its limits."""
    choices, wanted = metadata.get("choices"), limits_of(metadata)
    if choices is not None and value not in choices:
        raise ValueError(f"{where} takes {wanted[0]}; got {value!r}.")
    bounds = [(holds, metadata[key]) for key, (_, holds) in BOUNDS.items() if metadata.get(key) is not None]
    if isinstance(value, int | float) and not all(holds(value, bound) for holds, bound in bounds):
        raise ValueError(f"{where} must be {' and '.join(wanted)}; got {value!r}.")


class FieldsDoc:
    """A docstring that ends with a line for each field. The lines are written on access, when the fields are known."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __get__(self, instance: object, owner: Any) -> str:
        if "__match_args__" not in vars(owner) or not dataclasses.fields(owner):  # set by @dataclass when it is done
            return self.words
        try:
            hints = get_type_hints(owner)
        except Exception:  # such as a field whose type is a class local to a function
            hints = {}
        fields = dataclasses.fields(owner)
        lines = {field.name: field_line(field, hints.get(field.name, field.type)) for field in fields}
        groups = (["", f"{title}:", *(lines[name] for name in names)] for title, names in groups_of(owner).items())
        return "\n".join([inspect.cleandoc(self.words), *chain.from_iterable(groups)])


def groups_of(cls: Any) -> dict[str, list[str]]:
    """Maps each title in a dataclass's ``_GROUPS`` to its fields, and "Fields" to the fields in no group."""
    groups = {title: names.split() for title, names in getattr(cls, "_GROUPS", {}).items()}
    named = {name for names in groups.values() for name in names}
    groups["Fields"] = [field.name for field in dataclasses.fields(cls) if field.name not in named]
    return {title: names for title, names in groups.items() if names}


def default_of(field: Any) -> Any:
    """The default of a dataclass field, or ``dataclasses.MISSING`` if it has none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def field_line(field: Any, hint: Any) -> str:
    """A field's line in the docstring of a value: ``name: type (unit) = default, limits: help``."""
    of_type = re.sub(r"\b[a-z_]\w*\.", "", inspect.formatannotation(hint))  # a class: its name without its module
    try:
        default = default_of(field)
    except ModuleNotFoundError:  # a stage whose library is not installed
        default = dataclasses.MISSING
    code = getattr(type(default), "as_code", repr)  # a value's code, even if its class has another repr
    unit = f" ({field.metadata['unit']})" if field.metadata.get("unit") else ""
    words = f"{field.name}: {of_type}{unit}" + ("" if default is dataclasses.MISSING else f" = {code(default)}")
    words += "".join(f", {limit}" for limit in limits_of(field.metadata))
    if said := field.metadata.get("help"):
        words += f": {said}"
    return textwrap.fill(words, 110, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


def printable(text: str) -> str:
    r"""Return a text with question marks for the characters that a terminal would obey or could not show. Lines stay.

    >>> printable("a\x1b[2Jb\nc")
    'a?[2Jb\nc'
    """
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)
