"""The workbench: two configs side by side, predicted, trained, and compared in pictures, tables and a sentence."""

import base64
import dataclasses
import html
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ipywidgets
from IPython.display import HTML, display
from matplotlib.figure import Figure

from minips import cost, datasets, files
from minips.core.codec import Codec
from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.local import Delays
from minips.engines import Engine
from minips.engines.hosts import Hosts
from minips.lab import plots, results
from minips.lab.columns import FIRST, Column, row_label
from minips.lab.controls import WithTooltip, help_html
from minips.lab.panels.base import Interactive, Job, Picture, cover, numbered_name, show_still, side_by_side
from minips.lab.source import read_line
from minips.lab.style import NARROW_IN, STYLE, WIDE, WIDE_IN
from minips.problems import Problem, SoftmaxRegression
from minips.results.run import Progress, Run
from minips.stage import missing, names, stage_class
from minips.stages.consistency import ASP
from minips.stages.memories import ErrorFeedback
from minips.stages.quantizers import Sign, TopK, Uniform
from minips.stages.transports import Link
from minips.training.train import train

REDRAW_S = 0.5
"""The shortest time between two pictures of an unfinished run."""
SIDES = ("A", "B")
REAL = ("processes", "threads", "hosts", "ray")
"""The engines that the panel offers if they are installed: those that measure real seconds."""
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "fewer bits": {"B": {"push": Codec(Sign(), ErrorFeedback())}},
    "fewer values": {"B": {"push": Codec(TopK(0.05), ErrorFeedback())}},
    "a slow network": {"AB": {"link": Link(10e6, 1e-3)}, "B": {"push": Codec(Uniform(bits=8))}},
    "a straggler": {"AB": {"workers": 4, "delays": Delays(0.01, slow={3: 4.0})}, "B": {"consistency": ASP()}},
    "no server": {"B": {"exchange": RingAllReduce()}},
}
"""Maps each preset to its changes to the configs that the workbench was opened with: to both, and only to B."""


class Workbench(Interactive):
    """Two columns of controls, A and B, for a whole `Config` each. Run one or both, and compare them.

    ``problem`` None: softmax regression on the digits. ``configs``: one config with which both columns start, or one
    for each, or the text that "Copy as one line" of `playground` copies. ``engine`` None: processes. With ``predict``,
    each run is predicted before it starts, after its stages are calibrated once. A notebook shows the panel if the
    workbench is the last line of a cell. Code can set controls:

    >>> bench = Workbench(engine="threads")
    >>> bench.columns["B"].controls["quantizer"].value = "sign"
    >>> bench.columns["B"].config().push.quantizer
    Sign()
    """

    def __init__(
        self,
        problem: Problem | None = None,
        configs: Config | Sequence[Config] | str | None = None,
        *,
        engine: Engine | str | None = None,
        predict: bool = True,
    ) -> None:
        given = read_line(configs) if isinstance(configs, str) else configs or Config()
        starts = [given] if isinstance(given, Config) else list(given)
        if not 1 <= len(starts) <= len(SIDES):
            raise ValueError(f"The workbench takes one config, or one for A and one for B; got {len(starts)}.")
        self.problem = problem or SoftmaxRegression(*datasets.digits())
        self.engine: Engine | str = engine or "processes"
        self._starts = [starts[0], starts[-1]]
        number = numbered_name("")  # numbers this workbench if another cell also has one
        self.columns = {
            side: Column(f"{side} {number}".strip(), config) for side, config in zip(SIDES, self._starts, strict=True)
        }
        self.history: list[results.Record] = []
        """All runs so far."""
        super().__init__(Job(number))
        self._rows: dict[str, list[tuple[float, int, float]]] = {}
        self._predictions: dict[str, cost.Prediction | None] = {}
        self._unpredicted: dict[str, str] = {}
        """Maps a column to the reason why its run has no prediction."""
        self._calibrations: list[tuple[Config, cost.Calibration]] = []
        self._build(predict, number)

    @property
    def runs(self) -> dict[str, Run]:
        """The last run of each column."""
        return {side: record.run for side, record in self._last().items()}

    def run(self, sides: Sequence[str] | str | None = None) -> None:
        """Train the configs of these columns (None: those chosen in the panel), one after another, in a thread."""
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

    def refresh(self) -> None:
        for column in self.columns.values():
            column.refresh()

    def static(self, runs: Mapping[str, Run]) -> None:
        """Show curves and a table of these runs as plain output of a cell, for readers without a kernel."""

        def draw(figure: Figure) -> None:
            seconds, megabytes = side_by_side(figure)
            plots.loss(runs, ax=seconds)
            plots.loss(runs, against="bytes", ax=megabytes)

        show_still(f"training loss of {' and '.join(runs)}", draw, (WIDE_IN, 3.0), results.in_words(runs))
        display(HTML(results.table(runs)))  # type: ignore[no-untyped-call]
        cover()

    def to_csv(self, path: str | Path) -> None:
        """Write the history as CSV, a line for each run: seconds, bytes, loss, the config as JSON."""
        with self.job.lock:
            files.write(path, results.to_csv(self.history))

    def _build(self, predict: bool, number: str) -> None:
        which, preset, words, engine = (
            f"{name} {number}".strip() for name in ("Columns to run", "Preset", "Predict before running", "Engine")
        )
        columns = [("A and B", "AB"), ("A only", "A"), ("B only", "B")]
        self.which = ipywidgets.Dropdown(options=columns, description=which, tooltip="the columns to train", **WIDE)
        presets = ["as it was opened", *PRESETS]
        self.preset = ipywidgets.Dropdown(options=presets, description=preset, tooltip="sets both columns", **WIDE)
        self.predict = ipywidgets.Checkbox(
            value=predict,
            description=words,
            indent=False,
            tooltip="measure the stages, and predict the seconds and bytes of each run",
            layout={"width": "auto"},
        )
        there = [name for name in names("engine") if name in REAL and not missing(stage_class("engine", name))]
        offered = [(str(one), one) for one in dict.fromkeys([self.engine, *there])]
        self.engines = ipywidgets.Dropdown(
            options=offered, value=self.engine, description=engine, tooltip="where workers run", **WIDE
        )
        self.engines.observe(lambda change: setattr(self, "engine", change["new"]), "value")
        self.job.say("Change something in B, then press Run.")
        self.loss, self.spans, self.timeline, self.staleness = (Picture() for _ in range(4))
        self.table, self.log, self.download, self.help = (ipywidgets.HTML() for _ in range(4))
        self.job.on_run(self.run)
        self.preset.observe(self._set, "value")
        for button in (self.job.run_button, self.job.stop_button):
            button.layout.width = "84px"
        bar = [
            self.job.run_button,
            self.job.stop_button,
            self.job.bar,
            WithTooltip(self.which),
            WithTooltip(self.preset),
        ]
        self._names: dict[str, Any] = {}
        first = self._grid(FIRST)
        more = self._grid([name for name in self.columns["A"].rows if name not in FIRST])
        errors = [column.error for column in self.columns.values()]
        folded = ipywidgets.Accordion(
            [ipywidgets.VBox([WithTooltip(self.predict), WithTooltip(self.engines), more])], titles=("More",)
        )
        code = ipywidgets.HBox([column.code for column in self.columns.values()], layout={"flex_flow": "row wrap"})
        sections = {
            "Results": self.table,
            "Where the time goes": self.spans.panel,
            "Timeline": self.timeline.panel,
            "Staleness": self.staleness.panel,
            "All runs": ipywidgets.VBox([self.log, self.download]),
        }
        self.tabs = ipywidgets.Tab([*sections.values()], titles=(*sections,), layout={"display": "none"})
        self.tabs.observe(lambda change: self._draw_tab(), "selected_index")
        self._undrawn: dict[str, Callable[[], None]] = {}
        """The functions that draw the tabs that were not opened since the last run."""
        as_code = ipywidgets.Accordion([code], titles=("The configs as code",))
        halves = {"grid_template_columns": "repeat(auto-fit, minmax(min(100%, 340px), 1fr))", "grid_gap": "0 12px"}
        main = ipywidgets.GridBox([ipywidgets.VBox([first, *errors]), self.loss.panel], layout=halves)
        buttons = ipywidgets.HBox(bar, layout={"flex_flow": "row wrap", "align_items": "center"})
        top = [ipywidgets.HTML(STYLE), buttons, self.job.message]
        self.panel.children = [*top, main, folded, self.tabs, as_code, self.help]
        for column in self.columns.values():
            column.on_change = self._mark_differences
        self._mark_differences()

    def _grid(self, names: Sequence[str]) -> Any:
        """Return rows, each with a name and the two columns' controls."""
        cells: list[Any] = [
            ipywidgets.HTML(f"<b><span class='minips-look' style='color:{look.colour}'>{mark}</span> {side}</b>")
            for mark, side, look in zip(("", "━●", "╌■"), ("", *SIDES), (plots.LOOKS[0], *plots.LOOKS), strict=False)
        ]
        for name in names:
            self._names[name] = ipywidgets.HTML()
            self._names[name].add_class("minips-row")
            cells += [self._names[name], *(column.rows[name].panel for column in self.columns.values())]
        columns = {"grid_template_columns": "fit-content(34%) minmax(0, 1fr) minmax(0, 1fr)"}
        return ipywidgets.GridBox(cells, layout={**columns, "grid_gap": "0 4px", "align_items": "flex-start"})

    def _mark_differences(self) -> None:
        """Mark the differences between the columns after a control has changed."""
        self.job.forget_failure()
        for name, cell in self._names.items():
            rows = [column.rows[name] for column in self.columns.values()]
            a, b = ({label: one.value for label, one in row.controls.items()} for row in rows)
            differs = a != b
            words = html.escape(row_label(name))
            if differs:
                mark = "<span aria-hidden='true'>≠</span><span class='minips-told'>A and B differ:</span>"
                words = f"{mark} <b>{words}</b>"
            tooltips = dict.fromkeys(row.controls[""].tooltip for row in rows if "" in row.controls)
            title = html.escape("\n".join(tooltips), quote=True)
            cell.value = f"<span title='{title}'>{words}</span>"
            for one in (cell, *(row.panel for row in rows)):
                (one.add_class if differs else one.remove_class)("minips-differs")
                one.layout.display = None if a or b else "none"
        self.help.value = help_html(*self.columns.values())

    def _set(self, change: Any) -> None:
        """Apply the selected preset: both columns as the workbench was opened, with the preset's changes."""
        changes = PRESETS.get(change["new"], {})
        try:
            configs = [
                dataclasses.replace(start, **(changes.get("AB", {}) | changes.get(side, {})))
                for side, start in zip(SIDES, self._starts, strict=True)
            ]
        except ValueError as error:  # a change does not fit the configs that the workbench was opened with
            self.job.fail(f"The preset {change['new']!r} cannot be set: {error}")
            return
        for side, config in zip(SIDES, configs, strict=True):
            self.columns[side].load(config)

    def _work(self, configs: dict[str, Config]) -> None:
        known = len(self.history)
        try:
            for turn, (side, config) in enumerate(configs.items()):
                self._predictions[side] = self._predict(side, config)
                if not self.job.stopping.is_set():
                    self._train(side, config, turn, len(configs))
                if self.job.stopping.is_set():
                    break
            else:
                self.job.progress(1, 1)
        finally:
            with self.job.lock:
                trained = {record.side for record in self.history[known:]}
                before = {side: list(run.losses) for side, run in self.runs.items()}
                self._rows = before | {side: rows for side, rows in self._rows.items() if rows}
            if trained:
                missed = " and ".join(side for side in configs if side not in trained)
                self._show_result(f"Stopped before column {missed} was trained. " if missed else "")
            else:
                self.job.say("Stopped before anything was trained.")

    def _train(self, side: str, config: Config, turn: int, turns: int) -> None:
        self.job.say(f"Column {side} is training …")
        drawn_at = 0.0

        def live(progress: Progress) -> None:
            nonlocal drawn_at
            if time.monotonic() - drawn_at >= REDRAW_S and not self.job.stopping.is_set():
                self.job.progress(progress.updates * turn + progress.applied, progress.updates * turns)
                with self.job.lock:
                    self._rows[side] = list(progress.losses)
                self._draw()
                drawn_at = time.monotonic()

        run = train(self.problem, config, engine=self.engine, progress=live, stop=self.job.stopping)
        with self.job.lock:
            self.history.append(results.Record(len(self.history) + 1, side, run, self._predictions[side]))
            self._rows[side] = list(run.losses)

    def _predict(self, side: str, config: Config) -> cost.Prediction | None:
        """Return the predicted cost of the run; None if predictions are off, or it is not possible."""
        self._unpredicted.pop(side, None)
        if not self.predict.value:
            return None
        self.job.say(f"Column {side}: what should this cost? Its stages are being measured …")
        try:
            alone = cost.alone(config)
            calibration = next((known for key, known in self._calibrations if key == alone), None)
            if calibration is None:
                calibration = cost.calibrate(
                    config,
                    self.problem,
                    progress=lambda share: self.job.progress(round(100 * share), 100),
                    stop=self.job.stopping.is_set,
                )
                self._calibrations.append((alone, calibration))
            hosts = Hosts() if self.engine == "hosts" else self.engine if isinstance(self.engine, Hosts) else None
            return cost.predict(self.problem, config, calibration, engine=hosts)
        except Exception as error:  # a broken stage raises the same error in its run
            self._unpredicted[side] = str(error)
            return None

    def _draw(self) -> None:
        """Draw the training loss so far, against seconds and, if the bytes per step are known, against bytes."""
        with self.job.lock:
            rows = {side: self._rows[side] for side in SIDES if self._rows.get(side)}
            sent = {side: self._step_bytes(side) for side in rows}
        if not rows:
            return
        known = {side: each for side, each in sent.items() if each is not None}

        def draw(figure: Figure) -> None:
            above, *below = figure.subplots(2 if known else 1, 1, squeeze=False)[:, 0]
            plots.loss(rows, ax=above)
            for ax in below:
                plots.loss({side: rows[side] for side in known}, against="bytes", step_bytes=known, ax=ax)

        last = ", ".join(f"{side} is at {rows[side][-1][2]:.3f} after {rows[side][-1][0]:.2f} s" for side in rows)
        words = f"Training loss against seconds{' and megabytes sent' if known else ''}: {last}."
        self.loss.show(words, draw, (4.0, 3.7 if known else 1.9))

    def _step_bytes(self, side: str) -> float | None:
        """Return the bytes that the workers send per step: as measured once the run has ended, or as predicted."""
        run, prediction = self.runs.get(side), self._predictions.get(side)
        if run is not None and run.losses and self._rows[side] == run.losses:
            return run.bytes_sent / max(run.losses[-1][1], 1)
        return prediction.bytes_sent / prediction.config.steps if prediction else None

    def _last(self) -> dict[str, results.Record]:
        with self.job.lock:
            last = {record.side: record for record in self.history}
        return {side: last[side] for side in SIDES if side in last}

    def _show_result(self, first: str) -> None:
        records = self._last()
        runs = {side: record.run for side, record in records.items()}
        self.job.say(first + results.in_words(runs))
        self.table.value = results.table(runs)
        self._draw()
        for picture in (self.spans, self.timeline, self.staleness):
            picture.say("It is being drawn …")
        with self.job.lock:
            self._undrawn = {
                "Where the time goes": lambda: self._show_spans(records),
                "Timeline": lambda: self._show_timeline(runs),
                "Staleness": lambda: self._show_staleness(runs),
            }
        self._draw_tab()
        self.log.value = results.history(self.history)
        content = base64.b64encode(results.to_csv(self.history).encode()).decode()
        link = f"<a download='minips-runs.csv' href='data:text/csv;base64,{content}'>Download these runs as CSV</a>"
        self.download.value = link
        self.tabs.layout.display = ""

    def _draw_tab(self) -> None:
        """Draw the open tab if it is not drawn yet. Other tabs wait, since drawing all would delay Stop."""
        with self.job.lock:
            draw = self._undrawn.pop(self.tabs.titles[self.tabs.selected_index or 0], None)
        if draw:
            draw()

    def _show_spans(self, records: Mapping[str, results.Record]) -> None:
        compared = {
            side: cost.compare(record.prediction, record.run)
            for side, record in records.items()
            if record.prediction and record.run.updates
        }
        runs = {side: record.run for side, record in records.items()}

        def draw(figure: Figure) -> None:
            if whole:
                _each(plots.predicted, compared, side_by_side(figure, len(compared)))
            else:
                plots.spans(runs, ax=figure.add_subplot())

        whole = compared.keys() == records.keys()
        high = 0.9 + 0.33 * max(len(comparison.rows) for comparison in compared.values()) if whole else 3.6
        words = []
        for side, record in records.items():
            spent = record.run.trace.seconds()
            most = max(spent, key=lambda name: spent[name]) if spent else "nothing"
            expected = f"no prediction ({self._unpredicted.get(side, 'none requested')})"
            if side in compared and record.prediction:
                expected = results.predicted_step(record.prediction, record.run)
            words.append(f"{side}: most of the time went into {most}; {expected}.")
        self.spans.show(" ".join(words), draw, (WIDE_IN, high), (NARROW_IN, high * len(runs) if whole else high))

    def _show_timeline(self, runs: Mapping[str, Run]) -> None:
        rows = [len({span.who for span in run.trace}) for run in runs.values()]

        def draw(figure: Figure) -> None:
            axes = figure.subplots(len(runs), 1, squeeze=False, height_ratios=[4 + count for count in rows])[:, 0]
            _each(plots.timeline, runs, axes)

        high = sum(1.2 + 0.3 * count for count in rows)
        words = "Eight steps from the middle of each run: a row for each worker and each server."
        self.timeline.show(words, draw, (WIDE_IN, high), (NARROW_IN, high + 0.3 * len(runs)))

    def _show_staleness(self, runs: Mapping[str, Run]) -> None:
        if not any(version for run in runs.values() for version in run.staleness):
            self.staleness.say("Every gradient came from the newest parameters.")
            return
        oldest = ", ".join(f"{max(run.staleness, default=0)} in {side}" for side, run in runs.items())
        self.staleness.show(
            f"How many gradients came from parameters how many versions old. The oldest: {oldest}.",
            lambda figure: plots.staleness(runs, ax=figure.add_subplot()),
            *((WIDE_IN, 2.6), (NARROW_IN, 2.8)),
        )

    def __repr__(self) -> str:
        return "<Workbench with the columns A and B: it needs a running kernel>"


def _each(plot: Callable[..., Any], things: Mapping[str, Any], axes: Any) -> None:
    """Plot each item on its own axes, with the name of its column."""
    for ax, (side, thing) in zip(axes, things.items(), strict=True):
        plot(thing, ax=ax)
        ax.set_ylabel(side, rotation=0, weight="bold", size=12, labelpad=8)
