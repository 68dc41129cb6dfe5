"""Which code of a lesson is plumbing: imports and drawing alone, which a learner need not read."""

import ast

DRAWS = ("plt.", "lab.plots.", "lab.timeline", "pictures.draw_")
"""What the name of a function that draws begins with."""
SHOWS = ("static", "show")
"""The methods that draw what something has found."""
PARTS = ("dict", "zip")
"""What may make the arguments of a drawing."""


def is_plumbing(source: str) -> bool:
    """True if the code only imports, or draws what other cells have made.

    >>> is_plumbing("import numpy as np")
    True
    >>> is_plumbing("lab.plots.loss(runs)\\nplt.show()"), is_plumbing("lab.plots.loss(ps.train(problem))")
    (True, False)
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a magic command
        return False
    return all(isinstance(one, ast.Import | ast.ImportFrom) or _is_drawing(one) for one in statements)


def _is_drawing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) != "_":
        return False
    calls = [ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return isinstance(statement, ast.Expr | ast.Assign) and bool(calls) and all(map(_draws, calls))


def _draws(function: str) -> bool:
    if function.startswith(DRAWS) or function in PARTS:
        return True
    return function.rpartition(".")[2] in SHOWS and function != "lab.show"  # which shows source to be read


def count_lines(source: str) -> int:
    """The number of lines that are not blank."""
    return sum(bool(line.strip()) for line in source.splitlines())
