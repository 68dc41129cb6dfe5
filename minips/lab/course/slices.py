"""The part of a notebook that an answer needs: the statements that define or change a name that it uses.

`pieces` are the statements of a notebook's code cells. `needed` goes backwards from ``lab.check("key", EXPRESSION)``:
it takes the last statement that binds a name of the expression, the later ones that change what the name stands for,
and then what these need. So the trainings and panels of a lesson do not run, unless the answer uses what they leave.

A change is an assignment to an attribute or an item, ``del``, or a method called as a statement: ``table.clear()``.
Such a call of an imported module, as in ``lab.say(…)``, changes nothing. A call of a function of the notebook also
changes what the function changes. A name that a function uses when it is called may be defined below the function.
"""

import ast
import re
import symtable
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

EVERY = "*"
"""Stands in `Piece.changes` for all names: those of ``from module import *``."""
MAGIC = re.compile(r"^([ \t]*)(?:[%!?]|[\w.][\w., ]*=[ \t]*[%!]|[\w.]+\?{1,2}[ \t]*$).*$", re.MULTILINE)
"""A line of IPython's own: a magic, a command of the shell, or a question."""
TIMED = re.compile(r"\s*%%(time|timeit|capture|prun)\b")
"""The first line of a cell whose other lines are Python."""


@dataclass(frozen=True)
class Piece:
    """A statement of a cell, or all of a cell that is not Python. Cells are counted from 1, with those of text."""

    cell: int
    node: ast.stmt | None
    binds: frozenset[str]
    """The names that it gives new values, whatever they were."""
    changes: frozenset[str] = frozenset()
    """The names whose values it may change."""
    uses: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    """The names that its functions use when they are called."""
    error: str = ""
    """Why its cell is not Python."""
    text: str = ""
    line: int = 1
    """The line of the cell on which its text begins."""


class Known(NamedTuple):
    """The names of imported modules, and by the name of a function or class, the names that calling it may change."""

    modules: set[str]
    effects: dict[str, set[str]]


def pieces(cells: Sequence[tuple[int, str]]) -> list[Piece]:
    """Return the statements of code cells, which are pairs of a number and a text."""
    found: list[Piece] = []
    known = Known(set(), {})
    for number, text in cells:
        text = re.sub("\r\n?", "\n", text)
        tree, plain, error = _parse(text)
        if tree is None:
            found.append(Piece(number, None, frozenset(_guess_names(text)), error=error))
            continue
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                known.modules.update(_imported_names(node))
            try:
                found.append(_piece(number, node, known, plain.split("\n")))
            except RecursionError:
                guessed = frozenset(_guess_names(text))
                found.append(Piece(number, None, guessed, error=f"line {node.lineno}: it is nested too deeply"))
    return found


def _parse(text: str) -> tuple[ast.Module | None, str, str]:
    """Return a cell's tree, the Python that it is of, and what is wrong if there is no tree."""
    plain, wrong = text, ""
    if text.lstrip().startswith("%%") and not TIMED.match(text):
        return ast.Module([], []), "", ""
    for _ in range(2):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(plain), plain, ""
        except SyntaxError as error:
            wrong = f"line {error.lineno}: {error.msg}"
        except (ValueError, MemoryError, RecursionError) as error:
            wrong = f"{type(error).__name__}: {error}"
        plain = MAGIC.sub(r"\1pass", text)
    return None, "", wrong


def _guess_names(text: str) -> Iterator[str]:
    """Yield the names that a text which is not Python seems to define."""
    for line in text.splitlines():
        if named := re.match(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)", line):
            yield named[1]
        elif "=" in line or "import" in line:
            yield from re.findall(r"\w+", line.partition("=")[0])


def _imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for alias in node.names:
        yield alias.asname or (alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name)


def _piece(cell: int, node: ast.stmt, known: Known, lines: list[str]) -> Piece:
    binds, changes = set[str](), set[str]()
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            binds.add(node.name)
        case ast.Import() | ast.ImportFrom():
            binds.update(_imported_names(node))
        case ast.Assign():
            binds.update(name.id for target in node.targets for name in _names(target))
        case ast.AnnAssign(value=ast.expr()):
            binds.update(name.id for name in _names(node.target))
    changes.update(_changed_names(node, known))
    if EVERY in binds:
        binds.remove(EVERY)
        changes.add(EVERY)
    uses, late = _used_names(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inside = {name for one in ast.walk(node) if isinstance(one, ast.FunctionDef) for name in _body(one, known)}
        known.effects[node.name] = inside & (late | uses) | set().union(*(known.effects.get(name, ()) for name in late))
    text, line = _text(node, lines)
    changes -= binds
    return Piece(cell, node, frozenset(binds), frozenset(changes), uses, late, text=text, line=line)


def _text(node: ast.stmt, lines: list[str]) -> tuple[str, int]:
    """Return a statement's text and its first line."""
    first, column = node.lineno, node.col_offset
    for decorator in getattr(node, "decorator_list", []):
        first, column = min(first, decorator.lineno), 0
    last = node.end_lineno or first
    segment = [line.encode() for line in lines[first - 1 : last]]
    segment[-1] = segment[-1][: node.end_col_offset]
    segment[0] = segment[0][column:]
    return b"\n".join(segment).decode(), first


def _body(node: ast.FunctionDef, known: Known) -> Iterator[str]:
    """Yield the names that a call of this function may change, its own among them."""
    for statement in node.body:
        yield from _changed_names(statement, known)


def _names(target: ast.expr) -> Iterator[ast.Name]:
    """Yield the plain names of an assignment's target."""
    match target:
        case ast.Name():
            yield target
        case ast.Tuple() | ast.List():
            for one in target.elts:
                yield from _names(one)
        case ast.Starred():
            yield from _names(target.value)


def _changed_names(node: ast.AST, known: Known) -> Iterator[str]:
    """Yield the names that a statement may bind or change, without those of functions inside it."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
            for inner in ast.walk(node):
                if isinstance(inner, ast.Global):
                    yield from inner.names
            return
        case ast.Import() | ast.ImportFrom():
            yield from _imported_names(node)
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return
        case ast.Name(ctx=ast.Store() | ast.Del()):
            yield node.id
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            yield from _root(node)
        case ast.ExceptHandler(name=str()):
            yield str(node.name)
        case ast.Expr(value=ast.Call() as call):
            if isinstance(call.func, ast.Name) and call.func.id in ("setattr", "delattr") and call.args:
                yield from _root(call.args[0])
            yield from (name for name in _root(call.func) if name not in known.modules)
    if isinstance(node, ast.Call):
        yield from (name for function in _root(node.func) for name in known.effects.get(function, ()))
    for child in ast.iter_child_nodes(node):
        yield from _changed_names(child, known)


def _root(node: ast.AST) -> Iterator[str]:
    """Yield the name at the beginning of ``name.attribute[item]``, if it has one."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


def _used_names(node: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """Return the global names that a statement uses itself, and those that its functions use."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            top = symtable.symtable(ast.unparse(node), "cell", "exec")
    except (SyntaxError, ValueError, RecursionError):  # such as a return outside a function, which fails when it runs
        names = frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
        return names, frozenset()
    return frozenset(_global_names(top, late=False)), frozenset(_global_names(top, late=True))


def _global_names(table: symtable.SymbolTable, late: bool, inside: bool = False) -> Iterator[str]:
    """Yield the global names that a table uses: ``late``, inside its functions, or else outside of them."""
    inside = inside or (table.get_type() == "function" and not table.get_name().endswith(("comp", "genexpr")))
    if inside == late:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
                yield symbol.get_name()
    for child in table.get_children():
        yield from _global_names(child, late, inside)


@dataclass(frozen=True)
class Check:
    """A call ``lab.check(key, answer)``, the number of its cell, and the place of its statement among the pieces."""

    key: str
    answer: ast.expr
    cell: int
    place: int


def checks(found: Sequence[Piece]) -> list[Check]:
    """Return the calls of ``lab.check`` in the order of the notebook."""
    return [
        Check(node.args[0].value, answer, piece.cell, place)
        for place, piece in enumerate(found)
        for node in (ast.walk(piece.node) if piece.node else ())
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) == "lab.check"
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
        for answer in [*node.args[1:2], *(given.value for given in node.keywords if given.arg == "thing")]
    ]


def needed(found: Sequence[Piece], check: Check) -> list[Piece]:
    """Return the pieces before a check that its answer needs, in their order."""
    places: dict[str, list[int]] = {}
    for place, piece in enumerate(found[: check.place]):
        for name in piece.binds | piece.changes:
            places.setdefault(name, []).append(place)
    chosen: set[int] = set()
    seen: set[tuple[str, int]] = set()
    uses, late = _used_names(ast.Expr(check.answer))
    todo = [(name, check.place) for name in {EVERY} | uses | late]
    while todo:
        name, before = todo.pop()
        of_name = places.get(name, [])
        for place in reversed(of_name[: bisect_left(of_name, before)]):
            if (name, place) in seen:  # and with it all before that matters
                break
            seen.add((name, place))
            piece = found[place]
            if place not in chosen:
                chosen.add(place)
                todo += [(one, place) for one in piece.uses | piece.late]
                todo += [(one, check.place) for one in piece.late]
            if name in piece.binds:
                break
    return [found[place] for place in sorted(chosen)]


def program(chosen: Sequence[Piece]) -> list[tuple[int, str]]:
    """Return the texts of the chosen pieces by their cells, each on the line that it has there."""
    cells: dict[int, str] = {}
    for piece in chosen:
        text = cells.get(piece.cell, "")
        missing = piece.line - 1 - text.count("\n")
        cells[piece.cell] = text + ("; " if missing == 0 and text else "\n" * missing) + piece.text
    return [*cells.items()]
