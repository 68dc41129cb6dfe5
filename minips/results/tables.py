"""Text tables, for a terminal and in HTML."""

import html
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

WIDTH = 100
"""The most characters in a line of a text table."""
CELLS = (40, 32, 24)
"""Limits to try for the characters in a shortened cell: the first that makes the table fit is used."""


def align(rows: Sequence[Sequence[str]], to: str = ">") -> list[str]:
    """A line for each row, with aligned columns: cells align to the right or, if ``to`` is ``<``, to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{to}{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]


def width(rows: Sequence[Sequence[str]]) -> int:
    """The number of characters in a line that `align` makes of these rows."""
    return len(align(rows)[0])


def fit_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows, the first being headings, in lines of at most `WIDTH`. If they do not fit, split headings into lines
    and shorten long cells. Columns that still do not fit go into further tables below. Each table begins with row
    numbers, or with as many of the first columns as are needed to tell the rows apart.
    """
    if not rows or width(rows) <= WIDTH:
        return align(rows)
    for most, least in product(CELLS, (10, 0)):
        heads, body = _shorter(rows, most, least)
        pairs = zip(zip(*body, strict=True), zip(*rows[1:], strict=True), strict=True)
        if width([*heads, *body]) <= WIDTH and all(len({*cut}) == len({*column}) for cut, column in pairs):
            return _lines([*heads, *body])
    return [line for block in _blocks(*_shorter(rows, CELLS[0], 10)) for line in ("", *_lines(block))][1:]


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return [line.rstrip() for line in align(rows)]


def _shorter(rows: Sequence[Sequence[str]], most: int, least: int) -> tuple[list[list[str]], list[list[str]]]:
    """The heading rows and the other rows, with at most ``most`` characters in a cell: an ellipsis replaces the middle
    of a longer text. Headings are split as in `_headings`.
    """
    ends = most // 2, most - most // 2 - 1
    cut = [[x if len(x) <= most else f"{x[: ends[0]]}…{x[-ends[1] :]}" for x in row] for row in rows]
    return _headings(cut, least), cut[1:]


def _blocks(heads: list[list[str]], body: list[list[str]]) -> Iterator[list[list[str]]]:
    """Tables of a few columns each. Each has row numbers, or the first columns, to tell rows apart."""
    count = len(body[0])
    keys = next((n for n in range(1, count) if len({*map(tuple, pick_columns(body, range(n)))}) == len(body)), count)
    if width(pick_columns([*heads, *body], range(keys))) > WIDTH - CELLS[0] - 2:
        heads, body = [["", *row] for row in heads], [[str(number), *row] for number, row in enumerate(body, 1)]
        keys, count = 1, count + 1
    rows, columns = [*heads, *body], [*range(keys)]
    for column in range(keys, count):
        if width(pick_columns(rows, [*columns, column])) > WIDTH:
            yield [row for row in pick_columns(rows, columns) if any(row)]
            columns = [*range(keys)]
        columns.append(column)
    yield [row for row in pick_columns(rows, columns) if any(row)]


def _headings(rows: Sequence[Sequence[str]], least: int) -> list[list[str]]:
    """Split headings into lines no wider than the widest of the cells below, the longest word, and ``least``."""
    columns = []
    for head, *cells in zip(*rows, strict=True):
        parts = re.findall(r"[^ ._]*[ ._]?", head)
        room, lines = max(least, *map(len, (*cells, *parts))), [""]
        for part in parts:
            lines = [*lines[:-1], lines[-1] + part] if len(lines[-1] + part.rstrip()) <= room else [*lines, part]
        columns.append([line.rstrip() for line in lines])
    high = max(map(len, columns))
    return [list(row) for row in zip(*([""] * (high - len(lines)) + lines for lines in columns), strict=True)]


def pick_columns(rows: Sequence[Sequence[str]], columns: Iterable[int]) -> list[list[str]]:
    """The rows with only these columns."""
    columns = [*columns]
    return [[row[column] for column in columns] for row in rows]


def fold(text: str, indent: int = 0) -> list[str]:
    """The lines of a text. A line longer than `WIDTH` is folded, and its continuation is indented."""
    wrapper = textwrap.TextWrapper(WIDTH, subsequent_indent=indent * " ", break_on_hyphens=False)
    return [part for line in text.splitlines() for part in (wrapper.wrap(line) if len(line) > WIDTH else [line])]


def align_pairs(rows: Iterable[tuple[str, str]]) -> str:
    """A line for each pair of a name and a text, with aligned texts. Long texts are folded."""
    rows = list(rows)
    indent = max(len(name) for name, _ in rows) + 2
    return "\n".join(line for name, text in rows for line in fold(f"{name:<{indent}}{text}", indent))


def html_table(rows: str, caption: str) -> str:
    """An HTML table of these HTML rows, with a caption below."""
    text = html.escape(caption).replace("\n", "<br>")
    below = f"<caption style='caption-side:bottom;text-align:left'>{text}</caption>" if text else ""
    return f"<table>{below}{rows}</table>"


def html_rows(
    rows: Iterable[Sequence[str]], headings: int = 1, style: str = "", cell: Callable[[str], str] = html.escape
) -> str:
    """The HTML rows of a table. A row's first ``headings`` cells are headings; ``cell`` turns a text into HTML."""
    look = f" style='{style}'" if style else ""

    def tagged(number: int, text: str) -> str:
        tag = "th" if number < headings else "td"
        return f"<{tag}{look}>{cell(text)}</{tag}>"

    return "".join(f"<tr>{''.join(tagged(*numbered) for numbered in enumerate(row))}</tr>" for row in rows)
