"""Syntax with which an answer could reach around its check, when both run in one process.

`reaches` finds it by reading alone: a module such as gc, an attribute such as ``__globals__``, a private name of a
module, code made from texts. None of it is needed for an exercise. A student may use it for good reasons, so the
mark is "blocked", and a person reads the line.
"""

import ast
from collections.abc import Iterator, Sequence

from minips.lab.course.slices import Piece

MODULES = {
    *("_ctypes", "atexit", "builtins", "cffi", "code", "ctypes", "faulthandler", "gc", "importlib", "inspect", "mmap"),
    *("multiprocessing", "pty", "resource", "runpy", "signal", "subprocess", "sys", "unittest"),
}
"""The modules that an answer must not import. Of other modules, such as os, it must not use some names."""
PARTS = ("minips.lab.course", "minips.sandbox", "minips.racing")
"""The parts of minips that grade."""
ATTRIBUTES = {
    *("__array_finalize__", "__array_function__", "__array_ufunc__", "__builtins__", "__class__", "__closure__"),
    *("__code__", "__defaults__", "__globals__", "__instancecheck__", "__kwdefaults__", "__mro__", "__subclasses__"),
    *("cr_frame", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "tb_frame", "VERDICTS", "EXERCISES"),
}
OF_OS = {"_exit", "abort", "dup", "dup2", "exec", "fork", "forkpty", "kill", "killpg", "pipe", "posix_spawn"}
OF_OS |= {"sendfile", "system", "write", "writev", "popen", "fdopen", "register_at_fork", "pwrite"}
CALLS = {"__import__", "compile", "delattr", "eval", "exec", "globals", "setattr"}
"""The functions whose effect cannot be read from their call."""


def reaches(chosen: Sequence[Piece], answer: ast.expr, packages: Sequence[str]) -> str:
    """Return a sentence about the first place that reaches around a check; an empty text if there is none. The courses'
    ``packages`` have right answers in their modules named cases.
    """
    modules: set[str] = set()
    trees = [(piece.cell, piece.node) for piece in chosen if piece.node]
    for cell, tree in [*trees, (0, ast.Expr(answer))]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            for what in _places(node, modules, packages):
                where = f"Cell {cell}, line {getattr(node, 'lineno', 1)}" if cell else "The call of lab.check"
                return f"{where} reaches around the check: {what}. A person must read it."
    return ""


def _places(node: ast.AST, modules: set[str], packages: Sequence[str]) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (f"import {alias.name}" for alias in node.names if _is_barred(alias.name, packages))
        case ast.ImportFrom(module=str(module)):
            for alias in node.names:
                private = alias.name.startswith("_") or (module == "os" and _is_of_os(alias.name))
                if private or _is_barred(module, packages) or _is_barred(f"{module}.{alias.name}", packages):
                    yield f"from {module} import {alias.name}"
        case ast.Attribute():
            name, root = node.attr, _root(node)
            private = root in modules and (name.startswith("_") or _is_barred(name, ()))
            if private or name in ATTRIBUTES or (root == "os" and _is_of_os(name)):
                yield f"{ast.unparse(node):.60}"
            elif root in modules and not isinstance(node.ctx, ast.Load):
                yield f"{ast.unparse(node):.60} is changed"
        case ast.FunctionDef() if node.name in ATTRIBUTES:
            yield f"def {node.name}"
        case ast.Name() if node.id in CALLS or node.id in ATTRIBUTES:
            yield node.id
        case ast.Call(func=ast.Name(id="getattr"), args=[_, name, *_]) if not (
            isinstance(name, ast.Constant) and isinstance(name.value, str) and not name.value.startswith("_")
        ):
            yield "getattr of a name that is private or not written out"
        case ast.Call(func=ast.Name(id="vars"), args=[ast.Name(id=name)]) if name in modules:
            yield f"vars({name})"


def _is_barred(module: str, packages: Sequence[str]) -> bool:
    """True for a module that an answer must not import."""
    first, *rest = module.split(".")
    return first in MODULES or module.startswith(PARTS) or (first in packages and "cases" in rest)


def _is_of_os(name: str) -> bool:
    return name in OF_OS or name.startswith(("exec", "spawn", "fork", "posix_"))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
