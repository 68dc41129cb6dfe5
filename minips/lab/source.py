"""Functions that show a stage's source code with its path, and that write the code that creates a value."""

import ast
import dataclasses
import inspect
import json
import linecache
import textwrap
from pathlib import Path
from typing import Any

import minips
from minips.core.config import Config
from minips.literals import read_fields
from minips.stage import Stage, Value
from minips.words import default_of


@dataclasses.dataclass(repr=False)
class Listing:
    """A piece of source code, and its path. A notebook highlights the code; elsewhere it is plain text."""

    source: str
    place: str

    def __repr__(self) -> str:
        return f"# {self.place}\n{self.source}"

    def _repr_markdown_(self) -> str:
        fence = "```"
        while fence in self.source:
            fence += "`"
        return f"`{self.place}`\n\n{fence}python\n{self.source}{fence}\n"


def show(thing: Any) -> Listing:
    """Show the source of a stage, a class or a function: ``lab.show(ps.TopK)``, ``lab.show(ps.TopK(0.1))``.

    TypeError if it has no Python source.
    """
    target = thing if inspect.isroutine(thing) or isinstance(thing, type) or inspect.ismodule(thing) else type(thing)
    try:
        in_notebook = isinstance(target, type) and target.__module__ == "__main__"
        lines, first = _notebook_lines(target) if in_notebook else inspect.getsourcelines(target)
    except (OSError, TypeError):
        name = getattr(target, "__name__", repr(target))
        raise TypeError(f"There is no Python source of {name} to show. Try one of its methods or its class.") from None
    return Listing(textwrap.dedent("".join(lines)), _place(target, max(first, 1)))


def code(value: Any, indent: int = 0, package: bool = True) -> str:
    """Return the code that makes a value, with only the fields that differ from the defaults, wrapped into lines.

    >>> print(code(minips.Config(workers=2, push=minips.Codec(quantizer=minips.Sign()))))
    ps.Config(
        push=ps.Codec(quantizer=ps.Sign()),
        workers=2,
    )
    """
    if not isinstance(value, Value):
        return repr(value)
    name = type(value).__name__
    if package and getattr(minips, name, None) is type(value):
        name = f"ps.{name}"
    given = [
        (field.name, getattr(value, field.name))
        for field in dataclasses.fields(value)  # type: ignore[arg-type]
        if getattr(value, field.name) != default_of(field)
    ]
    flat = f"{name}({', '.join(f'{key}={code(item, package=package)}' for key, item in given)})"
    if len(flat) + indent <= 50 or not given:
        return flat
    pad = " " * (indent + 4)
    lines = [f"{pad}{key}={code(item, indent + 4, package)}," for key, item in given]
    return "\n".join([f"{name}(", *lines, " " * indent + ")"])


def one_line(*configs: Config) -> str:
    """Return configs as one line of text, with only the fields that differ from the defaults, for `read_line`.

    >>> one_line(Config(workers=2, push=minips.Codec("topk", "errorfeedback")), Config(optimizer=minips.SGD(lr=0.5)))
    "push='quantizer=topk, memory=errorfeedback', workers=2 | optimizer=sgd(lr=0.5)"
    """
    lines = [_fields(config) or f"workers={config.workers}" for config in configs]
    return " | ".join(
        line if _reads_as(line, config) else json.dumps(config.to_dict())
        for line, config in zip(lines, configs, strict=True)
    )


def read_line(text: str) -> list[Config]:
    """Return the configs that `one_line` wrote, or that a person wrote: ``field=value, field=value``, as on the command
    line, with ``|`` between two configs. Raises ValueError, in a sentence, if they are not possible.
    """
    return [
        Config.from_dict(_json(part) if part.startswith("{") else read_fields(part))
        for part in map(str.strip, text.split(" | "))
    ]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"This config is not JSON: {error}. Got {text!r:.99}.") from None


def _reads_as(line: str, config: Config) -> bool:
    try:
        return read_line(line) == [config]
    except ValueError:  # it holds a value that `read_fields` does not know, such as a tuple of stages
        return False


def _fields(value: Any, every: bool = False) -> str:
    """Return the fields of a value in the form of `read_fields`: those that differ from the defaults, or all."""
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    usual = {field.name: default_of(field) for field in dataclasses.fields(value)}
    return ", ".join(f"{name}={_in_line(x)}" for name, x in given.items() if every or x != usual[name])


def _in_line(value: Any) -> str:
    if isinstance(value, Stage):
        fields = _fields(value)
        return f"{value.name}({fields})" if fields else value.name
    if isinstance(value, Value):
        return repr(_fields(value) or _fields(value, every=True))
    if isinstance(value, float):
        return min(repr(value), f"{value:g}" if float(f"{value:g}") == value else repr(value), key=len)
    return repr(value)


def _place(target: Any, line: int) -> str:
    """Return the file's path relative to the package, or the module of a file that is elsewhere; it never contains the
    path on this machine.
    """
    if getattr(target, "__module__", "") == "__main__":
        return "written in this notebook"
    package = Path(minips.__file__).parent
    try:
        path = Path(inspect.getsourcefile(target) or "").resolve().relative_to(package.resolve().parent)
    except (TypeError, ValueError, OSError):
        module = getattr(target, "__module__", None)
        return f"{module}, line {line}" if module else "outside of minips"
    return f"{path.as_posix()}, line {line}"


def _notebook_lines(cls: Any) -> tuple[list[str], int]:
    """Return the source lines of a class defined in a cell, since `inspect` finds methods there but not classes."""
    for member in vars(cls).values():
        code = getattr(inspect.unwrap(member), "__code__", None) if callable(member) else None
        lines = linecache.getlines(code.co_filename) if code else []
        if not lines:
            continue
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return lines[first - 1 : node.end_lineno], first
    raise OSError
