"""Several runs of one problem, with different configs or with one tensor quantized at a time; tables of runs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from glob import escape
from itertools import repeat
from operator import attrgetter, le
from typing import Any

import numpy as np

from minips import seeds
from minips.core.config import Config
from minips.engines import Engine, Threads
from minips.problems import Problem
from minips.results.run import Run, frame
from minips.results.tables import WIDTH, fit_lines, fold, html_rows, html_table, width
from minips.stage import Value
from minips.stages.quantizers import Exact, Quantizer
from minips.stages.transports import InProc
from minips.training.progress import Wait, showing
from minips.training.train import engine_for, train
from minips.words import check_type, suggestion

Number = int | float | np.number
FIGURES: dict[str, Callable[[Run], Any]] = {
    "loss": lambda run: run.losses[-1][2] if run.losses else None,
    **{name: attrgetter(name) for name in ("validation_loss", "accuracy", "seconds")},
    **{name: attrgetter(name) for name in ("bytes_sent", "bytes_received", "diverged")},
}


def sweep(
    problem: Problem,
    configs: Iterable[Config] | Mapping[str, Config],
    *,
    engine: Engine | str | None = None,
    progress: bool | None = None,
) -> Iterator[Run]:
    """Train ``problem`` with each of the configs, and yield each run as soon as it ends. ``progress`` is as in `train`.

    If the configs are a mapping, its keys name the runs: in `Run.name`, and in the first column of a `RunTable`.

    >>> import minips as ps
    >>> problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    >>> base = ps.Config(workers=2, steps=5)
    >>> runs = ps.sweep(problem, [base.with_({"optimizer.lr": lr}) for lr in (0.1, 0.5)], engine="threads")
    >>> [row["optimizer.lr"] for row in ps.RunTable(runs).rows]
    [0.1, 0.5]
    """
    check_type("sweep", configs, Config | Iterable, "configs")
    named = configs if isinstance(configs, Mapping) else None
    plan = [configs] if isinstance(configs, Config) else list(named.values() if named else configs)
    for label, config in zip(named or range(1, len(plan) + 1), plan, strict=True):
        where = f"under each name, also under {label!r}" if named else f"for each run, also for run {label}"
        check_type("sweep", config, Config, f"a Config {where}")

    chosen = engine_for(engine, plan)
    for number, (label, config) in enumerate(zip(named or repeat(""), plan, strict=False)):
        first = Wait(f"run {number + 1} of {len(plan)}" + f" · {label}" * bool(label), number / len(plan))
        with showing(progress, first=first):
            run = train(problem, config, engine=chosen)
        run.name = str(label)
        yield run


def sensitivity(
    problem: Problem, config: Config, *, engine: Engine | None = None, progress: bool | None = None
) -> dict[str, Run]:
    """Train once for each tensor, with only that tensor's gradient quantized by ``config.push.quantizer``.

    Maps tensors' names to runs. Two more runs are called ``none`` (no gradient is quantized) and ``all``. Compare their
    ``validation_loss``. It does not depend on the network, so the runs use threads without a network unless an
    ``engine`` is given; under BSP they repeat to the bit. ``progress`` is as in `train`. Raises ValueError for tensors
    named ``none`` or ``all``.
    """
    check_type("sensitivity", problem, Problem, "a Problem")
    names = list(problem.init(seeds.init(config.seed)))
    quantizer = config.push.quantizer
    choices: dict[str, Quantizer | dict[str, Quantizer]] = {"none": Exact(), "all": quantizer}
    if clashes := choices.keys() & names:
        raise ValueError(f"A tensor is called {min(clashes)!r}, which is also the name of a run. Rename the tensor.")
    for name in names:
        choices[name] = {escape(name): config.push.quantizer_of(name), "*": Exact()}
    if engine is None:
        engine, config = Threads(), replace(config, transport=InProc(), link=None, delays=None)
    runs: dict[str, Run] = {}
    with showing(progress) as show:
        for name, choice in choices.items():
            show(f"run {len(runs) + 1} of {len(choices)} · {name}", len(runs) / len(choices))
            runs[name] = train(problem, replace(config, push=replace(config.push, quantizer=choice)), engine=engine)
    return runs


class Table:
    """Rows of named figures that can be shown as text, in a notebook, or as a data frame."""

    rows: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @property
    def caption(self) -> str:
        """The text below the rows."""
        return ""

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame. Raises ImportError without pandas."""
        return frame(self.rows, list(self.rows[0]) if self.rows else [])

    def __str__(self) -> str:
        """The rows as a text table."""
        return "\n".join([*fit_lines(self._cells()), *fold(self.caption)])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        return html_table(html_rows([head], len(head)) + html_rows(body, 0), self.caption)

    def _cells(self) -> list[list[str]]:
        names = list(self.rows[0]) if self.rows else []
        return [names, *([_words(row[name]) for name in names] for row in self.rows)]


class RunTable(Table):
    """A table with a row for each run. Its columns are the run's name, if the runs have names; the paths of the fields
    in which the configs differ; and figures, named as in `Run`. If a text table would be too wide, a stage and its
    fields share one column.
    """

    def __init__(self, runs: Iterable[Run] | Mapping[str, Run]) -> None:
        check_type("RunTable", runs, Iterable, "several runs")
        self.runs = list(runs.values() if isinstance(runs, Mapping) else runs)
        for run in self.runs:
            check_type("RunTable", run, Run, "runs")
        if isinstance(runs, Mapping):
            self.runs = [replace(run, name=str(name)) for name, run in runs.items()]
        configs = [dict(_paths(run.config)) for run in self.runs]
        known = dict.fromkeys(path for config in configs for path in config)
        differing = [path for path in known if len({repr(config.get(path)) for config in configs}) > 1]
        named = {"name": attrgetter("name")} if any(run.name for run in self.runs) else {}
        shown = {name: figure for name, figure in FIGURES.items() if any(figure(run) is not None for run in self.runs)}
        self.rows = [
            {
                **{name: figure(run) for name, figure in named.items()},
                **{path: config.get(path) for path in differing},
                **{name: figure(run) for name, figure in shown.items()},
            }
            for config, run in zip(configs, self.runs, strict=True)
        ]

    def pareto(self, *columns: str) -> "RunTable":
        """The runs that no other run dominates: one dominates another if it is better in a column and worse in none.

        ``columns`` are column names of this table (default: ``bytes_sent``, and ``validation_loss`` or, without
        held-out rows, ``loss``). Less is better, except for ``accuracy``. If equal runs are not dominated, all are
        kept. The best run in the first column comes first. Diverged runs, and runs without a finite number in each of
        the columns, are omitted. Raises ValueError for an unknown column, or one without numbers.
        """
        columns = columns or self.objectives
        rows = self.rows
        for column in columns if rows else ():
            if not isinstance(column, str) or column not in rows[0]:
                raise ValueError(f"This table has no column {column!r}. {suggestion(column, rows[0])}")
            if not any(isinstance(row[column], Number) for row in rows):
                raise ValueError(f"A Pareto front needs numbers, but the column {column!r} has {rows[0][column]!r}.")
        points = [
            tuple(_cost(column, row[column]) for column in columns) if run.diverged is None else (math.inf,)
            for row, run in zip(rows, self.runs, strict=True)
        ]
        finite = [number for number, point in enumerate(points) if all(map(math.isfinite, point))]
        best = [
            number
            for number in finite
            if not any(points[o] != points[number] and all(map(le, points[o], points[number])) for o in finite)
        ]
        front = RunTable([])
        best.sort(key=points.__getitem__)
        front.runs, front.rows = [self.runs[number] for number in best], [rows[number] for number in best]
        return front

    @property
    def objectives(self) -> tuple[str, str]:
        """The default columns of `pareto`."""
        return "bytes_sent", "validation_loss" if any("validation_loss" in row for row in self.rows) else "loss"

    def _cells(self) -> list[list[str]]:
        cells = super()._cells()
        return cells if not self.rows or width(cells) <= WIDTH else _together(cells)

    def __repr__(self) -> str:
        return f"<RunTable of {len(self.runs)} runs>"


def is_number(value: Any) -> bool:
    """True if the value is a finite number."""
    return isinstance(value, Number) and not isinstance(value, bool) and math.isfinite(value)


def _cost(column: str, value: Any) -> float:
    """Convert a figure to a cost, for which less is better; NaN if the figure is not a number."""
    return math.nan if not is_number(value) else float(-value if column == "accuracy" else value)


def _together(cells: list[list[str]]) -> list[list[str]]:
    """Merge the columns of a stage's fields into the column of the stage: ``TopK(fraction=0.01)``."""
    head, *body = cells
    for column in reversed(range(len(head))):
        parent, _, field = head[column].rpartition(".")
        if parent not in head:
            continue
        for row in body:
            if value := row.pop(column):
                stage, bracket, others = row[head.index(parent)].partition("(")
                row[head.index(parent)] = f"{stage}({field}={value}" + (f", {others}" if bracket else ")")
        head.pop(column)
    return [head, *body]


def _paths(value: Value, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The paths and values of all fields in a value, nested ones included. A stage's path includes its class name."""
    for name, inner in vars(value).items():
        if isinstance(inner, Value):
            if hasattr(inner, "name"):
                yield f"{prefix}{name}", type(inner).__name__
            yield from _paths(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _words(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
