"""The workbench: two configs side by side, predicted, trained, and compared in pictures, tables and a sentence."""

import base64
import dataclasses
import html
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ipywidgets
from IPython.display import HTML, display
from matplotlib.figure import Figure

from minips import cost, datasets, files
from minips.core.config import Config
from minips.engines import Engine
from minips.engines.hosts import Hosts
from minips.lab import plots, results
from minips.lab.columns import FIRST, PRESETS, Column, row_label
from minips.lab.controls import WithTooltip, close, help_html
from minips.lab.panels.base import Interactive, Job, Picture, Work, cover, numbered_name, show_still, side_by_side
from minips.lab.source import read_line
from minips.lab.style import NARROW_IN, STYLE, WIDE, WIDE_IN
from minips.lab.views import flow, outcomes
from minips.lab.views.base import format_seconds
from minips.lab.views.funnel import push_of
from minips.lab.views.recording import Recording
from minips.lab.views.replay import Replay, check_playable
from minips.problems import Problem, SoftmaxRegression
from minips.results.run import Progress, Run
from minips.stage import missing, names, stage_class
from minips.training.train import train
from minips.words import join_names

__all__ = ["PRESETS", "Workbench"]

REDRAW_S = 0.5
"""The shortest time between two pictures of an unfinished run."""
SIDES = ("A", "B")
PALE = {"color": "#6e6e6e", "linewidth": 0.9}
"""The look of the run before the last one, which has its column's dashes."""
REAL = ("processes", "threads", "hosts", "ray")
"""The engines that the panel offers if they are installed: those that measure real seconds."""


class Workbench(Interactive):
    """Two columns of controls, A and B, for a whole `Config` each. Run one or both, and compare them.

    ``problem`` None: softmax regression on the digits. ``configs``: one config with which both columns start, or one
    for each, or the text that "Copy as one line" of `playground` copies. ``engine`` None: processes. With ``predict``,
    each run is also predicted: after the training its stages are calibrated, once. A notebook shows the panel if the
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
        self._earlier: dict[str, Run] = {}
        """The run before the last one, or before the one under way, of each column that was trained again."""
        self._expected_bytes: dict[str, float | None] = {}
        """The bytes that each column's workers send per step, counted before the run; None if that is not possible."""
        self._unpredicted: dict[str, str] = {}
        """Maps a column to the reason why its run has no prediction."""
        self._calibrations: list[tuple[Config, cost.Calibration]] = []
        self._replay: Replay | None = None
        self._sizes: dict[str, tuple[Config, dict[str, int]]] = {}
        """The bytes of a push after each stage, with the config that they were computed for."""
        self._displayed, self._drawings = False, 0
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
            last = self.runs
            self._rows = {side: list(run.losses) for side, run in last.items() if side not in configs}
            self._earlier = {side: run for side, run in last.items() if side in configs and not run.diverged}
        self.job.start(lambda: self._work(configs))

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(timeout) and self._painter.wait(timeout)

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
            f"{name} {number}".strip() for name in ("Columns to run", "Preset", "Predict each run", "Engine")
        )
        columns = [("A and B", "AB"), ("A only", "A"), ("B only", "B")]
        self.which = ipywidgets.Dropdown(options=columns, description=which, tooltip="the columns to train", **WIDE)
        presets = ["as it was opened", *PRESETS]
        self.preset = ipywidgets.Dropdown(options=presets, description=preset, tooltip="sets both columns", **WIDE)
        self.predict = ipywidgets.Checkbox(
            value=predict,
            description=words,
            indent=False,
            tooltip="after the training, measure the stages, and predict the seconds and bytes of each run",
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
        self.loss.say("The training loss of A and B appears here.")
        self.replay = ipywidgets.VBox()
        self._build_flow(number)
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
        rest = ipywidgets.VBox([WithTooltip(self.predict), WithTooltip(self.engines), more])
        halves = {"grid_template_columns": "repeat(auto-fit, minmax(min(100%, 340px), 1fr))", "grid_gap": "0 12px"}
        code = ipywidgets.GridBox([column.code for column in self.columns.values()], layout=halves)
        folded = [
            *_collapsible("More", "the other fields of A and B, the engine, and predictions", rest),
            *_collapsible("The configs as code", "Python that makes the configs of A and B", code),
        ]
        sections = {
            "Results": self.table,
            "Where the time goes": self.spans.panel,
            "Timeline": ipywidgets.VBox([self.timeline.panel, self.replay]),
            "Staleness": self.staleness.panel,
            "All runs": ipywidgets.VBox([self.log, self.download]),
        }
        self.tabs = ipywidgets.Tab([*sections.values()], titles=(*sections,), layout={"display": "none"})
        self.tabs.observe(lambda change: self._draw_tab(), "selected_index")
        self._painter = Aside(f"pictures {number}", self.tabs, self.job)
        """Draws curves and tabs, which would delay Stop in the run's own thread."""
        self._pictures = {
            "Where the time goes": (self.spans, self._show_spans),
            "Timeline": (self.timeline, self._show_timeline),
            "Staleness": (self.staleness, self._show_staleness),
        }
        """Maps each tab with a picture to the picture, and to the function that draws it."""
        self._undrawn: set[str] = set()
        """The tabs that are not drawn since their runs ended."""
        main = ipywidgets.GridBox([ipywidgets.VBox([first, *errors]), self.loss.panel], layout=halves)
        buttons = ipywidgets.HBox(bar, layout={"flex_flow": "row wrap", "align_items": "center"})
        top = [ipywidgets.HTML(STYLE), buttons, self.job.message, self.flow, self._flow_row]
        self.panel.children = [*top, main, self.tabs, *folded, self.help, *self.job.own()]
        for column in self.columns.values():
            column.on_change = self._mark_differences
        self._mark_differences()

    def _grid(self, names: Sequence[str]) -> Any:
        """Return rows, each with a name and the two columns' controls."""
        cells: list[Any] = [
            ipywidgets.HTML(f"<b><span class='minips-{side}'>{mark}</span> {side}</b>")
            for mark, side in zip(("", "━●", "╌■"), ("", *SIDES), strict=True)
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
        self._draw_flow()

    def _build_flow(self, number: str) -> None:
        """Make the picture of the pipelines, and the button that moves its messages once more."""
        self.flow, self._flow_words = ipywidgets.HTML(), ipywidgets.HTML(html.escape(flow.CAPTION))
        self.play = ipywidgets.Button(
            description=f"Play {number}".strip(),
            tooltip="move the messages of the last runs once more, slowed down",
            layout={"display": "none", "width": "84px", "height": "22px"},
        )
        self.play.on_click(lambda button: self._draw_flow(moving=True))
        self.play.add_class("minips-small")
        self._flow_words.add_class("minips-small")
        self._flow_row = ipywidgets.HBox([self.play, self._flow_words], layout={"align_items": "center"})
        self._flow_work = Aside(f"flow {number}", self.flow, self.job)
        """Counts bytes, which takes long for large problems, while controls can be changed."""

    def _draw_flow(self, moving: bool = False) -> None:
        """Draw the pipelines of the columns' configs, in a thread. If ``moving``, the last runs' messages move once."""
        if self._displayed:
            self._flow_work.start(lambda: self._show_flow(self.runs if moving else {}))

    def _show_flow(self, runs: Mapping[str, Run]) -> None:
        try:
            configs = {side: column.config() for side, column in self.columns.items()}
        except Exception:  # the column says what is wrong
            return
        for side, config in configs.items():
            if side not in self._sizes or self._sizes[side][0] != config:
                try:
                    self._sizes[side] = config, push_of(self.problem, config).sizes()
                except Exception:  # a broken stage raises the same error in its run
                    self._sizes[side] = config, {}
        self._drawings += 1  # messages move again only if the page gets another text
        sizes = {side: found for side, (_, found) in self._sizes.items()}
        self.flow.value = f"{flow.flow_html(configs, sizes, runs)}<!-- {self._drawings} -->"
        if runs:
            self._flow_words.value = html.escape(flow.played_words(runs))
            self.play.layout.display = ""

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
                if not self.job.stopping.is_set():
                    self._train(side, config, turn, len(configs))
        finally:
            with self.job.lock:
                trained = {record.side: record for record in self.history[known:]}
                before = {side: list(run.losses) for side, run in self.runs.items()}
                self._rows = before | {side: rows for side, rows in self._rows.items() if rows}
                self._earlier = {side: run for side, run in self._earlier.items() if side in trained}
            words = "Stopped before anything was trained."
            if trained:
                missed = " and ".join(side for side in configs if side not in trained)
                words = f"Stopped before column {missed} was trained. " if missed else ""
                words += results.in_words(self.runs)
                self._draw_flow(moving=True)
                self._redraw(self._pictures)
            self.job.say(words)
        if self.predict.value:
            self._predict_each(trained.values(), words)
        if not self.job.stopping.is_set():
            self.job.progress(1, 1)

    def _train(self, side: str, config: Config, turn: int, turns: int) -> None:
        self.job.say(f"Column {side} is training …")
        self._expected_bytes[side] = self._bytes_per_step(config)
        drawn_at = 0.0

        def live(progress: Progress) -> None:
            nonlocal drawn_at
            if time.monotonic() - drawn_at >= REDRAW_S and progress.losses and not self.job.stopping.is_set():
                self.job.progress(progress.updates * turn + progress.applied, progress.updates * turns)
                with self.job.lock:
                    self._rows[side] = list(progress.losses)
                self._painter.start(self._paint)
                drawn_at = time.monotonic()

        run = train(self.problem, config, engine=self.engine, progress=live, stop=self.job.stopping)
        with self.job.lock:
            self._unpredicted[side] = "none requested"
            self.history.append(results.Record(len(self.history) + 1, side, run, None))
            self._rows[side] = list(run.losses)

    def _bytes_per_step(self, config: Config) -> float | None:
        try:
            sent = outcomes.expected_bytes(self.problem, config)
        except Exception:  # a broken stage raises the same error in its run
            return None
        return None if sent is None else sent / config.for_rows(self.problem.rows).steps

    def _predict_each(self, trained: Iterable[results.Record], words: str) -> None:
        """Predict these runs, and show the predictions beside what was measured."""
        for number, side, run, _ in trained:
            self._unpredicted[side] = "its calibration was stopped"
            if not self.job.stopping.is_set():
                self.job.say(f"{words} For a prediction of {side}, its stages are being measured …")
                prediction = self._predict(side, run.config)
                with self.job.lock:
                    self.history[number - 1] = self.history[number - 1]._replace(prediction=prediction)
        self.job.say(words)
        self._redraw(["Where the time goes"])

    def _predict(self, side: str, config: Config) -> cost.Prediction | None:
        """Return the predicted cost of the run; None, with the reason in ``_unpredicted``, if it is not possible."""
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
        except Exception as error:
            self._unpredicted[side] = str(error)
            return None

    def _draw(self) -> None:
        """Draw the training loss so far, against seconds and, if the bytes per step are known, against bytes.

        Earlier runs are pale lines.
        """
        with self.job.lock:
            rows = {side: self._rows[side] for side in SIDES if self._rows.get(side)}
            sent = {side: self._step_bytes(side) for side in rows}
            earlier = dict(self._earlier)
        if not rows:
            return
        known = {side: each for side, each in sent.items() if each is not None}

        def draw(figure: Figure) -> None:
            above, *below = figure.subplots(2 if known else 1, 1, squeeze=False)[:, 0]
            _draw_pale(earlier, above, lambda run, row: row[0])
            plots.loss(rows, ax=above)
            for ax in below:
                _draw_pale(earlier, ax, lambda run, row: run.bytes_sent / max(run.losses[-1][1], 1) / 1e6 * row[1])
                plots.loss({side: rows[side] for side in known}, against="bytes", step_bytes=known, ax=ax)

        last = ", ".join(f"{side} is at {rows[side][-1][2]:.3f} after {rows[side][-1][0]:.2f} s" for side in rows)
        words = f"Training loss against seconds{' and megabytes sent' if known else ''}: {last}."
        words += f" Thin grey: the run before, of {join_names([*earlier])}." if earlier else ""
        self.loss.show(words, draw, (NARROW_IN, 3.7 if known else 1.9))

    def _step_bytes(self, side: str) -> float | None:
        """Return the bytes that the workers send per step: as measured once the run has ended, or as expected."""
        run = self.runs.get(side)
        if run is not None and run.losses and self._rows[side] == run.losses:
            return run.bytes_sent / max(run.losses[-1][1], 1)
        return self._expected_bytes.get(side)

    def _last(self) -> dict[str, results.Record]:
        with self.job.lock:
            last = {record.side: record for record in self.history}
        return {side: last[side] for side in SIDES if side in last}

    def _redraw(self, titles: Iterable[str]) -> None:
        """Show finished runs: curves, tables, and the pictures of these tabs."""
        with self.job.lock:
            self._undrawn.update(titles)
        for title in titles:
            self._pictures[title][0].say("It is being drawn …")
        self._painter.start(self._paint)

    def _paint(self) -> None:
        """Draw the curves, the tables and the open tab, as far as they are not drawn yet."""
        self._draw()
        if self._undrawn:
            self._show_tables()
            self._draw_tab()

    def _show_tables(self) -> None:
        self.tabs.layout.display = ""
        self.table.value = results.table(self.runs)
        self.log.value = results.history(self.history)
        content = base64.b64encode(results.to_csv(self.history).encode()).decode()
        link = f"<a download='minips-runs.csv' href='data:text/csv;base64,{content}'>Download these runs as CSV</a>"
        self.download.value = link

    def _draw_tab(self) -> None:
        """Draw the open tab if it is not drawn yet. Other tabs wait until they are opened."""
        with self.job.lock:
            title = self.tabs.titles[self.tabs.selected_index or 0]
            undrawn = title in self._undrawn
            self._undrawn.discard(title)
        if undrawn:
            self._pictures[title][1]()

    def _show_spans(self) -> None:
        records = self._last()
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
            expected = f"no prediction ({self._unpredicted[side]})"
            if side in compared and record.prediction:
                expected = results.predicted_step(record.prediction, record.run)
            words.append(f"{side}: most of the time went into {most}; {expected}.")
        self.spans.show(" ".join(words), draw, (WIDE_IN, high), (NARROW_IN, high * len(runs) if whole else high))

    def _show_timeline(self) -> None:
        runs = self.runs
        window = plots.timeline_window(runs)
        start, stop = (format_seconds(moment) for moment in window)
        steps = plots.steps_in_words(runs, window)
        words = f"From {start} to {stop}: {steps}, on one time axis, with a row for each worker and each server."
        high = 1.2 + sum(0.2 + 0.26 * len({span.who for span in run.trace}) for run in runs.values())
        self.timeline.show(
            words,
            lambda figure: plots.timeline(runs, seconds=window, ax=figure.add_subplot()),
            *((WIDE_IN, high), (NARROW_IN, high + 0.4)),
        )
        self._show_replay(runs)

    def _show_replay(self, runs: Mapping[str, Run]) -> None:
        """Show the runs under their timeline, played back on one clock; or a sentence, if nothing can be played."""
        whole = 0.0, max(run.seconds for run in runs.values())  # from the same zero as the timeline
        recordings = [Recording(run, side, whole) for side, run in runs.items()]
        try:
            for recording in recordings:
                check_playable(recording)
            fresh = Replay(recordings)
        except ValueError as error:
            self.replay.children = [ipywidgets.HTML(html.escape(str(error)))]
            return
        if self._replay is None:
            self._replay = fresh
        else:  # the page keeps its widget
            self._replay.show(fresh.data, fresh.still, fresh.sentence)
            close(fresh.panel)
        self.replay.children = [self._replay.panel]

    def _show_staleness(self) -> None:
        runs = self.runs
        if not any(version for run in runs.values() for version in run.staleness):
            self.staleness.say("Every gradient came from the newest parameters.")
            return
        oldest = ", ".join(f"{max(run.staleness, default=0)} in {side}" for side, run in runs.items())
        self.staleness.show(
            f"How many gradients came from parameters how many versions old. The oldest: {oldest}.",
            lambda figure: plots.staleness(runs, ax=figure.add_subplot()),
            *((WIDE_IN, 2.6), (NARROW_IN, 2.8)),
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Mapping[str, Any]:
        self._displayed = True
        self._show_flow({})
        return super()._repr_mimebundle_(**kwargs)

    def __repr__(self) -> str:
        return "<Workbench with the columns A and B: it needs a running kernel>"


class Aside(Work):
    """Work beside a job, which shows its errors."""

    def __init__(self, name: str, panel: Any, job: Job) -> None:
        super().__init__(name, panel)
        self._job = job

    def fail(self, error: BaseException | str) -> None:
        self._job.fail(error)


def _collapsible(title: str, tooltip: str, panel: Any) -> list[Any]:
    """Return a button that shows and hides a panel, and the panel, which is hidden at first."""
    button = ipywidgets.ToggleButton(description=title, tooltip=tooltip, layout={"width": "auto"})
    button.add_class("minips-fold")
    panel.layout.display = "none"
    button.observe(lambda change: setattr(panel.layout, "display", None if change["new"] else "none"), "value")
    return [button, panel]


def _draw_pale(runs: Mapping[str, Run], ax: Any, x: Callable[[Run, Any], float]) -> None:
    """Draw these runs' training losses as pale lines, with the dashes of their columns."""
    for side, look in zip(SIDES, plots.LOOKS, strict=False):
        if side in runs and runs[side].losses:
            rows = runs[side].losses
            points = [x(runs[side], row) for row in rows], [row[2] for row in rows]
            ax.plot(*points, linestyle=look.dash, **PALE)


def _each(plot: Callable[..., Any], things: Mapping[str, Any], axes: Any) -> None:
    """Plot each item on its own axes, with the name of its column."""
    for ax, (side, thing) in zip(axes, things.items(), strict=True):
        plot(thing, ax=ax)
        ax.set_ylabel(side, rotation=0, weight="bold", size=12, labelpad=8)
