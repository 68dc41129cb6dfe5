"""What an entry may contain, checked on its syntax tree before it runs.

An entry is arithmetic. It imports numpy, math, dataclasses and minips. It uses no name that begins with an underscore,
and nothing that reaches other modules, files or the interpreter; it changes no attribute of what it imports. It is
short, and holds no table of numbers, since the digits are public and a table could hold them.

A determined author can get around these checks, so the sandbox must hold without them. They make an entry readable, and
turn most cheats into a sentence.
"""

import ast
from collections.abc import Iterator
from typing import Any

import minips

MOST_CHARACTERS, MOST_TEXT, MOST_NUMBERS = 20_000, 300, 200
"""The most characters of an entry, of one text in it that is no docstring, and the most numbers in it."""
MODULES = ("numpy", "math", "dataclasses", "minips")
BUILTINS = {
    *("eval", "exec", "compile", "open", "input", "breakpoint", "getattr", "setattr", "delattr", "hasattr", "vars"),
    *("globals", "locals", "dir", "type", "id", "help", "memoryview", "exit", "quit"),
    *("copyright", "credits", "license"),
}
"""The builtins that an entry may not name."""
ATTRIBUTES = {
    *("load", "save", "savez", "savez_compressed", "fromfile", "tofile", "memmap", "open_memmap", "loadtxt", "savetxt"),
    *("genfromtxt", "fromregex", "DataSource", "ctypeslib", "ctypes", "f2py", "testing", "lib", "core", "distutils"),
    *("sys", "os", "builtins", "dump", "format_map", "mro", "gi_frame", "f_globals", "tb_frame", "cr_frame"),
    *("add_note", "with_traceback", "show_config", "get_include", "compat", "random_seed"),
    *("default_rng", "seed", "RandomState", "Generator", "get_state", "set_state"),
}
"""Attributes, of anything, that an entry may not name: those that reach files, modules, frames, or draws of its own."""
NOT_FOR_ENTRIES = {
    *("datasets", "engines", "connect", "status", "work", "train", "sweep", "sensitivity", "Server", "Client", "Ref"),
    *("Engine", "Hosts", "Processes", "Ray", "Simulated", "Threads", "Checkpoint", "CsvLog", "EarlyStopping", "Eval"),
    *("Progress", "Run", "RunTable", "Trace", "Shard", "Faults", "ClickModel", "Problem", "MLP", "LinearRegression"),
    *("SoftmaxRegression", "Delays", "Link", "Star", "Tree", "TwoRacks"),
}
"""minips' public names that an entry has no use for: data, problems, engines, clocks, networks."""


class EntryError(ValueError):
    """Raised if a file is no entry. The text is a sentence that names the line."""


def check(text: str, file: str) -> None:
    """EntryError if an entry's text contains what it may not."""
    if len(text) > MOST_CHARACTERS:
        raise EntryError(f"{file} has {len(text)} characters; an entry has at most {MOST_CHARACTERS}.")
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise EntryError(f"{file} is not Python: {error}.") from None
    for line, why in _faults(tree):
        raise EntryError(f"{file}, line {line}: {why}")


def _faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    public = {*minips.__all__, *(name for name in vars(minips) if name in _namespaces())} - NOT_FOR_ENTRIES
    modules: dict[str, str] = {}
    foreign: set[str] = set()
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    numbers = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in MODULES:
                    yield node.lineno, f"it imports {alias.name}; an entry may import {', '.join(MODULES)}."
                modules[alias.asname or alias.name] = alias.name
            foreign |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module not in MODULES:
                yield node.lineno, f"it imports from {node.module}; an entry may import {', '.join(MODULES)}."
            for alias in node.names:
                yield from _foreign(node, alias.name, str(node.module), public)
            foreign |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for name in _names(node):
            yield from _private(node, name)
        if isinstance(node, ast.Name) and node.id in BUILTINS:
            yield line, f"it uses {node.id}, which an entry may not."
        if isinstance(node, ast.Attribute):
            owner = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
            yield from _foreign(node, node.attr, owner or "", public)
            if isinstance(node.ctx, ast.Store | ast.Del) and _root(node) in foreign:
                yield line, f"it changes {ast.unparse(node)}, which is not its own."
        if isinstance(node, ast.Constant) and id(node) not in docs:
            if isinstance(node.value, str | bytes):
                if len(node.value) > MOST_TEXT:
                    yield line, f"it holds a text of {len(node.value)} characters; at most {MOST_TEXT} are allowed."
                if "__" in str(node.value):
                    yield line, "it holds a text with two underscores, which could name what an entry may not."
            else:
                numbers += isinstance(node.value, int | float | complex) and not isinstance(node.value, bool)
                if numbers > MOST_NUMBERS or (isinstance(node.value, int) and node.value.bit_length() > 64):
                    yield line, f"it holds a table: more than {MOST_NUMBERS} numbers, or one of more than 64 bits."
        if isinstance(node, ast.MatchClass) and node.kwd_attrs:
            yield line, f"it reads {', '.join(node.kwd_attrs)} in a pattern; name an attribute after a dot."
        if isinstance(node, ast.Global | ast.Nonlocal | ast.AsyncFunctionDef | ast.Await):
            yield (
                line,
                f"it uses {type(node).__name__.lower()}, which an entry may not: a stage's state is passed to it.",
            )


def _namespaces() -> set[str]:
    return {*minips.stages.__all__, "exchanges"}


def _names(node: ast.AST) -> Iterator[str]:
    for field in ("id", "attr", "name", "arg", "asname"):
        if isinstance(name := vars(node).get(field), str):
            yield name


def _private(node: Any, name: str) -> Iterator[tuple[int, str]]:
    if name.startswith("_"):
        yield getattr(node, "lineno", 0), f"it uses the name {name}, which begins with an underscore."


def _foreign(node: Any, name: str, module: str, public: set[str]) -> Iterator[tuple[int, str]]:
    if module == "minips" and name not in public:
        yield node.lineno, f"it uses minips' {name}, which is not for entries: they have stages and a config only."
    if name == "*":
        yield node.lineno, "it imports *; name what it needs."
    if name in ATTRIBUTES:
        yield node.lineno, f"it uses {name}, which can reach a file, a module, or draws that are not the run's."


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
