"""The tables' common parts: turns, spreads, processes that end, and figures for people and for machines."""

import importlib.util
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from rich.markup import escape
from rich.table import Table

from minips.stage import nearest

START_S, TURN_S = 120.0, 600.0
"""How long a process may take to be ready, and one turn to end."""
BUDGET_S, LEAST_TURNS = 5.0, 3
"""A contender whose turns would take more than ``BUDGET_S`` in all comes in fewer rounds, in ``LEAST_TURNS`` at
least."""

Watch = Callable[[str, float], None]
"""Is told what happens, and the share of the whole that is done."""
Turn = Callable[[], float]
"""One call, made when all the others have had theirs, as a worker makes one after each gradient; its seconds."""


class Spread(NamedTuple):
    """The median of some figures, and the quartiles below and above."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Iterable[float]) -> Self:
        """At least one figure."""
        low, median, high = np.quantile(list(figures), [0.25, 0.5, 0.75]).tolist()
        return cls(median, low, high)


class Chart(NamedTuple):
    """The content of a table's picture: for each series the contenders' spreads, and the axis' label with its unit."""

    series: dict[str, dict[str, Spread]]
    label: str


def rota(turns: Mapping[str, int], rounds: int, watch: Watch = lambda text, share: None) -> Iterator[tuple[int, str]]:
    """Round and contender of each turn: as many turns as are wished, spread evenly over the rounds, and in each round
    the order is drawn anew (with a fixed seed). ``watch`` is told who is next.

    >>> [number for number, name in rota({"always": 4, "now and then": 2}, 4) if name == "now and then"]
    [0, 2]
    """
    rng = np.random.default_rng(0)
    present = {name: {i * rounds // count for i in range(count)} for name, count in turns.items()}
    done, planned = 0, sum(map(len, present.values()))
    for number in range(rounds):
        names = [name for name in turns if number in present[name]]
        for name in rng.permutation(names).tolist():
            watch(name, done / planned)
            done += 1
            yield number, name


def take_turns(
    turns: Mapping[str, Turn], first_s: Mapping[str, float], rounds: int, watch: Watch
) -> dict[str, dict[int, float]]:
    """Seconds of one call by contender and round, at most ``rounds`` of them.

    ``first_s`` is what a first one took. It does not count, nor does the second one of those that are quick.
    """
    wished = dict[str, int]()
    for name, turn in turns.items():
        call_s = first_s[name] if first_s[name] > 1 else min(first_s[name], turn())
        wished[name] = min(max(int(BUDGET_S / call_s), LEAST_TURNS), rounds)
    seconds: dict[str, dict[int, float]] = {name: {} for name in turns}
    for number, name in rota(wished, rounds, watch):
        seconds[name][number] = turns[name]()
    return seconds


def over(figures: Mapping[str, Mapping[int, float]], name: str, reference: str) -> Spread | None:
    """One contender's figures over another's, round by round where both took part; None where the other never did."""
    theirs = figures.get(reference)
    if theirs is None:
        return None
    return Spread.of([figure / theirs[number] for number, figure in figures[name].items() if number in theirs])


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for the files of contenders, which goes when the block ends."""
    with tempfile.TemporaryDirectory(prefix="minips-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def busy() -> str:
    """A warning where other work keeps this machine's cores busy; empty where it does not, or that cannot be told."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load <= cores / 2:
        return ""
    return f"This machine is busy: {load:.1f} processes want its {cores} cores. Figures and ratios will be off."


def part(watch: Watch, number: int, of: int, name: str) -> Watch:
    """The watch of one of several parts."""
    return lambda text, share: watch(f"{name}: {text}", (number + share) / of)


def lacking(modules: Sequence[str], extra: str) -> str:
    """Why a contender is skipped; empty where all the modules that it needs are installed."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    return f'skipped: install {", ".join(absent)} with pip install "minips[{extra}]"' if absent else ""


def chosen(known: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Those of the ``known`` names that are wanted (None: all). ValueError for one that is not known."""
    for name in wanted or ():
        if name not in known:
            raise ValueError(f"There is no contender {name!r}. {nearest(name, known)}")
    return [name for name in known if wanted is None or name in wanted]


def plain(row: Any) -> dict[str, Any]:
    """A row as JSON can carry it: a spread becomes its median, and its quartiles under ``…_quartiles``."""
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
    """The median in its unit, and the quartiles in the same.

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
    """The median, with its quartiles where there is room for them; a dash where there is none.

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
    """The rows for the terminal: each one's ``cells``, the first to the left; below them why who is skipped.

    With a ``group``, an attribute of the rows, those with the same value stand together below it.
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
    """For each group the contenders' spreads that ``value``, an attribute of the rows, holds; without the skipped."""
    found: dict[str, dict[str, Spread]] = {}
    for row in rows:
        if not row.skipped:
            found.setdefault(row.group, {})[row.contender] = getattr(row, value)
    return found
