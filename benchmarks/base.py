"""Common parts of the tables: folders, names, and figures as text and as JSON."""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from minips.lab.measure.turns import Spread, Watch
from minips.words import suggestion


class Chart(NamedTuple):
    """The content of a table's picture: the contenders' spreads by series, and the axis label with its unit."""

    series: dict[str, dict[str, Spread]]
    label: str


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder for the contenders' files."""
    with tempfile.TemporaryDirectory(prefix="minips-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def busy() -> str:
    """A warning if other work keeps this machine's cores busy; empty if not, or if that is unknown."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load <= cores / 2:
        return ""
    return f"This machine is busy: {load:.1f} processes compete for its {cores} cores. Figures and ratios will be off."


def part(watch: Watch, number: int, of: int, name: str) -> Watch:
    """The progress callback for one of several parts."""
    return lambda text, share: watch(f"{name}: {text}", (number + share) / of)


def select(known: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """The ``known`` names that are also ``wanted`` (None: all). ValueError for an unknown one."""
    for name in wanted or ():
        if name not in known:
            raise ValueError(f"There is no contender {name!r}. {suggestion(name, known)}")
    return [name for name in known if wanted is None or name in wanted]


def to_plain(row: Any) -> dict[str, Any]:
    """A row for JSON: a spread becomes its median, with its quartiles under ``…_quartiles``."""
    fields: dict[str, Any] = {}
    for name, value in vars(row).items():
        if isinstance(value, Spread):
            fields |= {name: value.median, f"{name}_quartiles": [value.low, value.high]}
        elif isinstance(value, dict):
            fields[name] = {key: spread.median for key, spread in value.items()}
            fields[f"{name}_quartiles"] = {key: [spread.low, spread.high] for key, spread in value.items()}
        else:
            fields[name] = value
    return fields


def duration(spread: Spread | None, quartiles: bool = True) -> str:
    """The median in a fitting unit, with the quartiles in the same unit.

    >>> duration(Spread(0.0123, 0.012, 0.0131))
    '12.3 ms [12.0, 13.1]'
    """
    if spread is None:
        return "skipped"
    unit, scale = next((unit, scale) for unit, scale, most in _UNITS if spread.median < most)
    median, low, high = (_three(x * scale) for x in (spread.median, spread.low, spread.high))
    return f"{median} {unit}" + (f" [{low}, {high}]" if quartiles else "")


_UNITS = (("µs", 1e6, 1e-3), ("ms", 1e3, 1.0), ("s", 1.0, float("inf")))


def ratio(spread: Spread | None, quartiles: bool = False) -> str:
    """The median, with its quartiles if asked for; a dash for None.

    >>> ratio(Spread(1.5, 1.25, 2.0), quartiles=True)
    '1.50 [1.25, 2.00]'
    """
    if spread is None:
        return "–"
    median, low, high = map(_three, (spread.median, spread.low, spread.high))
    return f"{median} [{low}, {high}]" if quartiles else median


def _three(x: float) -> str:
    return f"{x:,.0f}" if x >= 99.5 else f"{x:.1f}" if x >= 9.95 else f"{x:.2f}"


def table(
    title: str, headings: Sequence[str], rows: Sequence[Any], cells: Callable[[Any], list[str]], group: str = ""
) -> Table:
    """The rows for the terminal: each one's ``cells``, the first on the left; below, the reasons for skipped ones.

    Rows are grouped under the value of their attribute ``group``, if that is given.
    """
    skipped = {f"{row.contender}: {row.skipped}": None for row in rows if row.skipped}
    shown = Table(title=escape(title), title_justify="left", box=None, padding=(0, 1, 0, 0))
    shown.caption, shown.caption_justify = "\n".join(map(escape, skipped)) or None, "left"
    for heading in ("", *headings):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for name, members in itertools.groupby(rows, lambda row: getattr(row, group) if group else ""):
        if name:
            shown.add_row(f"[bold]{name}[/bold]")
        for row in members:
            shown.add_row(*map(escape, cells(row)))
    return shown


def series(rows: Sequence[Any], value: str) -> dict[str, dict[str, Spread]]:
    """For each group, the contenders' spreads in the attribute ``value``, without the skipped rows."""
    found: dict[str, dict[str, Spread]] = {}
    for row in rows:
        if not row.skipped:
            found.setdefault(row.group, {})[row.contender] = getattr(row, value)
    return found
