"""The workbench: two configs side by side, trained for real, compared in a picture, a table and a sentence."""

import html
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
from matplotlib.figure import Figure

from minips import datasets
from minips.lab import plots
from minips.lab.controls import Column
from minips.lab.panels.base import LABELS, Job, Picture, refresh_after_cells
from minips.problems import Problem, SoftmaxRegression
from minips.runtime.config import Config
from minips.runtime.engines import Engine, Progress
from minips.runtime.train import Run, train

REDRAW_S = 0.5
"""The shortest time between two pictures of a run that is under way."""
SIDES = ("A", "B")


class Workbench:
    """Two columns of controls, A and B, each a whole `Config`; run one or both, and compare.

    ``problem`` None: softmax regression on the digits. ``configs``: one that both columns start from, or one for each.
    ``engine`` None: processes. A notebook shows the panel where the workbench is the last line of a cell. What the
    panel does can be done from code too:

    >>> bench = Workbench(engine="threads")
    >>> bench.columns["B"].controls["quantizer"].value = "sign"
    >>> bench.columns["B"].config().push.quantizer
    Sign()
    """

    def __init__(
        self,
        problem: Problem | None = None,
        configs: Config | Sequence[Config] | None = None,
        *,
        engine: Engine | str | None = None,
    ) -> None:
        starts = list(configs) if isinstance(configs, Sequence) else [configs or Config()]
        if not 1 <= len(starts) <= len(SIDES):
            raise ValueError(f"The workbench takes one config, or one for A and one for B; got {len(starts)}.")
        self.problem = problem or SoftmaxRegression(*datasets.digits())
        self.engine = engine
        self.columns = {side: Column(side, config) for side, config in zip(SIDES, [*starts, *starts], strict=False)}
        self.runs: dict[str, Run] = {}
        """The last run of each column."""
        self.job = Job()
        self._rows: dict[str, list[tuple[float, int, float]]] = {}
        self._build()
        refresh_after_cells(self)

    @property
    def busy(self) -> bool:
        """True while something is being trained."""
        return self.job.busy

    def run(self, sides: Sequence[str] | str | None = None) -> None:
        """Train the configs of these columns (None: as the panel says), one after the other, in a thread of its
        own.
        """
        self.refresh()
        if self.job.busy:
            self.job.fail("A run is under way. Stop it, or wait for its end.")
            return
        configs: dict[str, Config] = {}
        for side in sides or self.which.value:
            try:
                configs[side] = self.columns[side].config()
            except Exception as error:
                self.job.fail(f"Column {side}: {error}")
                return
        with self.job.lock:
            self._rows = {side: list(run.losses) for side, run in self.runs.items() if side not in configs}
        self.job.start(lambda: self._work(configs))

    def stop(self) -> None:
        """End the run that is under way; what it has so far is kept."""
        self.job.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """True once nothing is being trained, False where that takes longer than ``timeout`` seconds."""
        return self.job.wait(timeout)

    def refresh(self) -> None:
        """Offer the stages that have been registered since; after each notebook cell this happens by itself."""
        for column in self.columns.values():
            column.refresh()

    def _build(self) -> None:
        self.which: Any = ipywidgets.Dropdown(
            options=[("A and B", "AB"), ("A only", "A"), ("B only", "B")],
            description="Columns to run",
            style={"description_width": "initial"},
            layout={"width": "auto"},
        )
        self.job.say("Change something in B, then press Run.")
        self.picture, self.detail = Picture(), Picture()
        self.table: Any = ipywidgets.HTML()
        self.job.run_button.on_click(lambda button: self.run())
        columns = ipywidgets.GridBox(
            [column.panel for column in self.columns.values()],
            layout={"grid_template_columns": "repeat(auto-fit, minmax(310px, 1fr))", "grid_gap": "8px"},
        )
        row = {"flex_flow": "row wrap", "align_items": "center"}
        buttons = ipywidgets.HBox([self.which, self.job.run_button, self.job.stop_button, self.job.bar], layout=row)
        results = [self.job.message, self.picture.panel, self.table, self.detail.panel]
        self.panel: Any = ipywidgets.VBox([ipywidgets.HTML(LABELS), columns, buttons, *results])
        self.panel.add_class("minips-panel")

    def _work(self, configs: dict[str, Config]) -> None:
        for turn, (side, config) in enumerate(configs.items()):
            self.job.say(f"Column {side} is training …")
            live = _Live(self, side, turn, len(configs))
            run = train(self.problem, config, engine=self.engine, progress=live, stop=self.job.stopping)
            with self.job.lock:
                self.runs[side], self._rows[side] = run, list(run.losses)
            if self.job.stopping.is_set():
                break
        else:
            self.job.bar.value = self.job.bar.max
        self._show_result()

    def _live(self, side: str, progress: Progress, turn: int, turns: int) -> None:
        self.job.progress(progress.updates * turn + progress.applied, progress.updates * turns)
        with self.job.lock:
            self._rows[side] = list(progress.losses)
        self._draw()

    def _draw(self) -> None:
        with self.job.lock:
            rows = {side: self._rows[side] for side in SIDES if self._rows.get(side)}
        if not rows:
            return
        figure = Figure(figsize=(7.6, 3.2), layout="constrained")
        plots.loss(rows, ax=figure.add_subplot())
        last = (f"{side} is at {rows[side][-1][2]:.3f} after {rows[side][-1][0]:.2f} s" for side in rows)
        self.picture.show(figure, f"Training loss against seconds: {', '.join(last)}.")

    def _show_result(self) -> None:
        with self.job.lock:
            runs = {side: self.runs[side] for side in SIDES if side in self.runs}
        if not runs:
            return
        self._draw()
        self.table.value = _table(runs)
        self.job.say(in_words(runs))
        figure = Figure(figsize=(7.6, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        plots.loss(runs, against="bytes", ax=left)
        plots.spans(runs, ax=right)
        most = {
            side: max(run.trace.seconds().items(), key=lambda item: item[1], default=("nothing", 0))
            for side, run in runs.items()
        }
        where = ", ".join(f"{side} on {name}" for side, (name, _) in most.items())
        words = (
            f"Left: training loss against megabytes sent. Right: where the time of one push went; most of it: {where}."
        )
        self.detail.show(figure, words)

    def __repr__(self) -> str:
        return "<Workbench with the columns A and B: it needs a running kernel>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Mapping[str, Any]:
        return {**self.panel._repr_mimebundle_(**kwargs), "text/plain": repr(self)}


class _Live:
    """Called with a run's progress; passes it on a few times a second at most."""

    def __init__(self, bench: Workbench, side: str, turn: int, turns: int) -> None:
        self._bench, self._side, self._turn, self._turns = bench, side, turn, turns
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self._last >= REDRAW_S:
            self._bench._live(self._side, progress, self._turn, self._turns)
            self._last = time.monotonic()


def in_words(runs: Mapping[str, Run]) -> str:
    """What came of the runs, in a line."""
    parts = []
    for side, run in runs.items():
        end = (
            f"accuracy {run.accuracy:.3f}"
            if run.accuracy is not None
            else f"loss {run.losses[-1][2]:.4f}"
            if run.losses
            else "no loss yet"
        )
        stopped = " (stopped)" if run.stopped else ""
        parts.append(f"{side}{stopped}: {end}, {run.seconds:.2f} s, {run.bytes_sent / 1e6:.3f} MB sent.")
    if len(runs) == 2:
        a, b = runs.values()
        if a.bytes_sent and a.seconds:
            parts.append(
                f"B sent {b.bytes_sent / a.bytes_sent:.2f} × A's bytes and took {b.seconds / a.seconds:.2f} × A's time."
            )
    return " ".join(parts)


def _table(runs: Mapping[str, Run]) -> str:
    columns = {side: dict(run.rows()) for side, run in runs.items()}
    order = list(dict.fromkeys(name for column in columns.values() for name in column))
    left = "style='text-align:left;padding:1px 10px 1px 0;vertical-align:top;overflow-wrap:anywhere'"
    head = "".join(f"<th {left}>{side}</th>" for side in columns)
    body = "".join(
        f"<tr><th {left}>{html.escape(name)}</th>"
        + "".join(f"<td {left}>{html.escape(column.get(name, '–'))}</td>" for column in columns.values())
        + "</tr>"
        for name in order
    )
    return f"<table style='line-height:1.4'><tr><th {left}>Results</th>{head}</tr>{body}</table>"
