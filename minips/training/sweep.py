"""Several runs of one problem: as configs say, or with one tensor at a time quantized; and one table from them."""

import html
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from glob import escape
from operator import attrgetter
from typing import Any

from minips import seeds
from minips.core.config import Config
from minips.engines import Engine, Threads
from minips.problems import Problem
from minips.results.run import Run, frame
from minips.results.tables import aligned, html_rows
from minips.stage import Value
from minips.stages.quantizers import Exact, Quantizer
from minips.stages.transports import InProc
from minips.training.progress import showing
from minips.training.train import train
from minips.words import check_type

FIGURES: dict[str, Callable[[Run], Any]] = {
    "loss": lambda run: run.losses[-1][2] if run.losses else None,
    **{name: attrgetter(name) for name in ("validation_loss", "accuracy", "seconds")},
    **{name: attrgetter(name) for name in ("bytes_sent", "bytes_received", "diverged")},
}


def sweep(
    problem: Problem, configs: Iterable[Config], *, engine: Engine | str | None = None, progress: bool = False
) -> Iterator[Run]:
    """Train ``problem`` as each of the configs says; yields each run as soon as it has ended. ``progress`` shows a bar.

    >>> import minips as ps
    >>> problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    >>> base = ps.Config(workers=2, steps=5)
    >>> runs = ps.sweep(problem, [base.with_({"optimizer.lr": lr}) for lr in (0.1, 0.5)], engine="threads")
    >>> [row["optimizer.lr"] for row in ps.RunTable(runs).rows]
    [0.1, 0.5]
    """
    check_type("sweep", configs, Config | Iterable, "configs")
    plan = [configs] if isinstance(configs, Config) else list(configs)

    def read(done: int) -> tuple[str, float]:
        return f"{done} of {len(plan)} runs", done / len(plan)

    with showing(progress, read) as show:
        for number, config in enumerate(plan):
            show(number)
            yield train(problem, config, engine=engine)


def sensitivity(problem: Problem, config: Config, *, engine: Engine | None = None) -> dict[str, Run]:
    """A run for each tensor in which only its gradient goes through ``config.push.quantizer``, the others exactly.

    Two runs are added: ``none``, all exact, and ``all``. Compare their ``validation_loss``. The loss does not depend on
    the network, so the runs are threads without one unless an ``engine`` is given; under BSP they repeat to the bit.
    ValueError where a tensor has the name of one of the two.
    """
    check_type("sensitivity", problem, Problem, "a Problem")
    names = list(problem.init(seeds.init(config.seed)))
    quantizer = config.push.quantizer
    choices: dict[str, Quantizer | dict[str, Quantizer]] = {"none": Exact(), "all": quantizer}
    if taken := choices.keys() & names:
        raise ValueError(f"A tensor is called {min(taken)!r}, which is the name of a run beside it. Rename the tensor.")
    for name in names:
        choices[name] = {escape(name): config.push.quantizer_of(name), "*": Exact()}
    if engine is None:
        engine, config = Threads(), replace(config, transport=InProc(), link=None, delays=None)
    return {
        name: train(problem, replace(config, push=replace(config.push, quantizer=choice)), engine=engine)
        for name, choice in choices.items()
    }


class Table:
    """Rows of named figures: as text, in a notebook, and as a frame."""

    rows: list[dict[str, Any]]

    @property
    def caption(self) -> str:
        """The lines below the rows."""
        return ""

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame. ImportError without pandas."""
        return frame(self.rows, list(self.rows[0]) if self.rows else [])

    def __str__(self) -> str:
        """A text table."""
        return "\n".join([*aligned(self._cells()), *filter(None, [self.caption])])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        text = html.escape(self.caption).replace("\n", "<br>")
        caption = f"<caption style='caption-side:bottom;text-align:left'>{text}</caption>" if text else ""
        return f"<table>{caption}{html_rows([head], len(head))}{html_rows(body, 0)}</table>"

    def _cells(self) -> list[list[str]]:
        names = list(self.rows[0]) if self.rows else []
        return [names, *([_words(row[name]) for name in names] for row in self.rows)]


class RunTable(Table):
    """A row for each run: the fields in which the configs differ, by their paths, and figures, named as in `Run`."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = list(runs)
        configs = [dict(_paths(run.config)) for run in self.runs]
        known = dict.fromkeys(path for config in configs for path in config)
        differing = [path for path in known if len({repr(config.get(path)) for config in configs}) > 1]
        shown = [name for name, figure in FIGURES.items() if any(figure(run) is not None for run in self.runs)]
        self.rows = [
            {**{path: config.get(path) for path in differing}, **{name: FIGURES[name](run) for name in shown}}
            for config, run in zip(configs, self.runs, strict=True)
        ]

    def __repr__(self) -> str:
        return f"<RunTable of {len(self.runs)} runs>"


def _paths(value: Value, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The paths and values of a value's fields, and of those within them; at a stage's own path its class's name."""
    for name, inner in vars(value).items():
        if isinstance(inner, Value):
            if hasattr(inner, "name"):
                yield f"{prefix}{name}", type(inner).__name__
            yield from _paths(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _words(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
