"""The lab, driven by traits: the workbench, predictions, exercises, pictures, sources."""

import base64
import csv
import dataclasses
import itertools
import json
import linecache
import re
import subprocess
import sys
import textwrap
import threading
import time
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.events import EventManager, available_events
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import minips as ps
from minips import cost, lab
from minips.lab import controls, results
from minips.lab.columns import STAGES
from minips.lab.source import code
from minips.lab.style import NARROW_IN
from minips.lab.views import flow
from minips.lab.workbench import PRESETS, _draw_pale

PNG = b"\x89PNG"


@pytest.fixture
def problem() -> ps.SoftmaxRegression:
    return ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, features=10, classes=3))


@pytest.fixture
def bench(problem: ps.SoftmaxRegression) -> lab.Workbench:
    return lab.Workbench(problem, ps.Config(steps=20, workers=2), engine="threads", predict=False)


def written_in_a_notebook(source: str, name: str) -> Any:
    """What a cell defines: it belongs to ``__main__`` and travels by value."""
    namespace = {"__name__": "__main__", "ps": ps, "np": np, "dataclass": dataclasses.dataclass}
    exec(textwrap.dedent(source), namespace)
    return namespace[name]


def axes() -> Axes:
    return Figure().add_subplot()


class TestWorkbench:
    def test_a_swapped_stage_runs_and_shows(self, bench: lab.Workbench) -> None:
        controls = bench.columns["B"].controls
        controls["quantizer"].value = "topk"
        bench.columns["B"].controls["quantizer.fraction"].value = 0.2
        controls["memory"].value = "errorfeedback"
        bench.run()
        assert bench.wait(30)
        assert bench.runs["A"].config.push == ps.Codec()
        assert bench.runs["B"].config.push == ps.Codec(quantizer=ps.TopK(0.2), memory=ps.ErrorFeedback())
        assert bench.runs["B"].bytes_sent < bench.runs["A"].bytes_sent
        assert bench.loss.png.startswith(PNG)
        assert (bench.spans.png, bench.spans.words.value) == (b"", "It is being drawn …")
        bench.tabs.selected_index = 1
        assert bench.spans.png.startswith(PNG)
        assert "accuracy" in bench.job.message.value
        assert "accuracy" in bench.table.value
        assert bench.job.bar.done == bench.job.bar.of

    @pytest.mark.soak
    def test_every_run_is_predicted_shown_and_kept(self, problem: ps.SoftmaxRegression, tmp_path: Path) -> None:
        config = ps.Config(steps=12, workers=2, transport=ps.InProc(), consistency=ps.ASP())
        bench = lab.Workbench(problem, config, engine="threads")
        for sides in ("A", "AB"):
            bench.run(sides)
            assert bench.wait(60)
        for tab, shown in enumerate((bench.loss, bench.spans, bench.timeline, bench.staleness)):
            bench.tabs.selected_index = tab
            assert shown.png.startswith(PNG)
            assert shown.words.value
        assert bench.spans.words.value.count("was predicted to take") == 2
        assert [record.side for record in bench.history] == ["A", "A", "B"]
        assert all(record.prediction and record.prediction.seconds_per_step > 0 for record in bench.history)
        assert len(bench._calibrations) == 1
        assert bench.log.value.count("<tr>") == 4
        bench.to_csv(tmp_path / "runs.csv")
        rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
        assert [row["number"] for row in rows] == ["1", "2", "3"]
        assert ps.Config.from_dict(json.loads(rows[2]["config"])) == config
        assert int(rows[2]["bytes_sent"]) == bench.runs["B"].bytes_sent
        assert float(rows[0]["predicted_seconds_per_step"]) == bench.history[0].prediction.seconds_per_step  # type: ignore[union-attr]
        link = re.search("href='data:text/csv;base64,(.*?)'", bench.download.value)
        assert link
        assert base64.b64decode(link[1]).decode() == (tmp_path / "runs.csv").read_text()

    @pytest.mark.soak
    @pytest.mark.usefixtures("registry")
    def test_what_cannot_be_predicted_runs_all_the_same(
        self, problem: ps.SoftmaxRegression, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*arguments: Any, **more: Any) -> None:
            raise RuntimeError("the crystal ball is cloudy")

        monkeypatch.setattr("minips.cost.calibrate", refuse)
        bench = lab.Workbench(problem, ps.Config(steps=5, workers=2), engine="threads")
        bench.run("A")
        assert bench.wait(30)
        assert bench.history[0].prediction is None
        bench.tabs.selected_index = 1
        assert "no prediction (the crystal ball is cloudy)" in bench.spans.words.value

    def test_the_curves_come_first_and_stop_ends_the_calibration(
        self, problem: ps.SoftmaxRegression, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = lab.Workbench(problem, ps.Config(workers=2, steps=3), engine="threads")
        measuring = threading.Event()

        def calibrate(*args: Any, stop: Any, **options: Any) -> Any:
            measuring.set()
            while not stop():
                time.sleep(0.01)
            raise RuntimeError("The calibration was stopped.")

        monkeypatch.setattr(cost, "calibrate", calibrate)
        bench.run()
        assert measuring.wait(10)
        assert bench._painter.wait(30)
        assert bench.loss.png.startswith(PNG)
        assert "accuracy" in bench.table.value
        assert "For a prediction of A, its stages are being measured" in bench.job.message.value
        bench.stop()
        assert bench.wait(30)
        assert [record.prediction for record in bench.history] == [None, None]
        assert bench.job.message.value == results.in_words(bench.runs).replace("'", "&#x27;")
        bench.tabs.selected_index = 1
        assert "A: most of the time went into" in bench.spans.words.value
        assert "no prediction (The calibration was stopped.)" in bench.spans.words.value
        assert "no prediction (its calibration was stopped)" in bench.spans.words.value

    def test_a_stop_before_anything_is_trained_keeps_the_earlier_result(
        self, bench: lab.Workbench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.run()
        assert bench.wait(30)
        curves, picture = bench.loss.words.value, bench.loss.png
        monkeypatch.setattr(bench, "_train", lambda *args: bench.stop())
        bench.run("B")
        assert bench.wait(30)
        assert bench.job.message.value == "Stopped before anything was trained."
        bench._paint()
        assert (bench.loss.words.value, bench.loss.png) == (curves, picture)
        monkeypatch.undo()
        bench.run("A")
        assert bench.wait(30)
        assert "B is at" in bench.loss.words.value

    def test_the_run_before_stays_as_a_pale_line(self, bench: lab.Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn: list[tuple[str, int]] = []

        def note(runs: Any, ax: Any, x: Any) -> None:
            drawn.extend((side, id(run)) for side, run in runs.items())

        monkeypatch.setattr("minips.lab.workbench._draw_pale", note)
        bench.run()
        assert bench.wait(30)
        assert drawn == []
        assert "the run before" not in bench.loss.words.value
        before = bench.runs
        for side in ("A", "B"):
            bench.columns[side].controls["steps"].value = 100_000
            bench.columns[side].controls["compute"].value = 10
        bench.run()
        deadline = time.monotonic() + 20
        while "the run before, of A and B." not in bench.loss.words.value and time.monotonic() < deadline:
            time.sleep(0.02)
        assert {*drawn} == {(side, id(run)) for side, run in before.items()}, "while A trains, B has its old curve"
        bench.stop()
        assert bench.wait(30)
        assert "Thin grey: the run before, of A." in bench.loss.words.value  # B has kept its curve

    def test_a_pale_line_is_thin_and_has_the_dashes_of_its_column(self, run: ps.Run) -> None:
        ax = axes()
        _draw_pale({"B": run}, ax, lambda run, row: row[1])
        (line,) = ax.lines
        assert line.get_linestyle() == lab.plots.LOOKS[1].dash
        assert line.get_linewidth() < 1
        assert [*line.get_xdata()] == [step for _, step, _ in run.losses]

    def test_curves_are_drawn_against_bytes_from_the_first_moment(
        self, bench: lab.Workbench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.columns["A"].controls["quantizer"].value = "sign"
        config = bench.columns["A"].config()
        bench.run("A")
        assert bench.wait(30)
        each = bench._bytes_per_step(config)
        assert each is not None
        assert each * config.steps == bench.runs["A"].bytes_sent
        bench._expected_bytes["A"] = None
        assert bench._step_bytes("A") == each

    def test_a_stop_between_the_trainings_of_two_columns_is_said(
        self, bench: lab.Workbench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.run()
        assert bench.wait(30)
        train, begun = bench._train, []

        def train_and_stop(*args: Any) -> None:
            begun.append(args[0])
            train(*args)
            bench.stop()

        monkeypatch.setattr(bench, "_train", train_and_stop)
        bench.run()
        assert bench.wait(30)
        assert begun == ["A"]
        assert bench.job.message.value.startswith("Stopped before column B was trained. A: accuracy ")
        assert "B is at" in bench.loss.words.value

    def test_the_first_columns_result_stands_where_the_second_fails(self, bench: lab.Workbench) -> None:
        bench.columns["B"].controls["workers"].value = 100_000
        bench.run()
        assert bench.wait(30)
        assert list(bench.runs) == ["A"]
        assert "use fewer workers" in bench.job.message.value
        assert "accuracy" in bench.table.value

    @pytest.mark.soak
    def test_its_processes_end_with_the_run(self, problem: ps.SoftmaxRegression) -> None:
        bench = lab.Workbench(problem, ps.Config(steps=5, workers=2))
        bench.run("A")
        assert bench.wait(30)
        assert list(bench.runs) == ["A"]

    def test_stop_keeps_what_there_is(self, bench: lab.Workbench) -> None:
        bench.columns["A"].controls["compute"].value = 20
        bench.columns["A"].controls["steps"].value = 10_000
        bench.run()
        deadline = time.monotonic() + 20
        while not bench.loss.png and time.monotonic() < deadline:
            time.sleep(0.05)
        assert bench.loss.png.startswith(PNG), "no live picture"
        assert bench.job.run_button.disabled
        assert bench.job.stop_button.button_style
        bench.job.stop_button.click()
        assert bench.wait(30)
        assert bench.runs["A"].stopped
        assert "B" not in bench.runs
        assert "(stopped)" in bench.job.message.value
        assert not bench.job.run_button.disabled

    def test_a_second_run_at_the_same_time_is_refused_in_a_sentence(self, bench: lab.Workbench) -> None:
        bench.columns["A"].controls["compute"].value = 20
        bench.run("A")
        bench.run("A")
        assert "under way" in bench.job.message.value
        bench.stop()
        assert bench.wait(30)

    def test_an_impossible_config_is_a_sentence_and_the_panel_stays_usable(self, bench: lab.Workbench) -> None:
        backup = bench.columns["A"].controls["consistency.backup"]
        backup.value = 2
        assert "needs more than 2 workers" in bench.columns["A"].error.value
        bench.run()
        assert bench.wait(1)
        assert "Column A: BSP(backup=2) needs more than 2 workers" in bench.job.message.value
        assert "Traceback" not in bench.job.message.value
        backup.value = 0
        assert not bench.columns["A"].error.value
        bench.run("A")
        assert bench.wait(30)
        assert "accuracy" in bench.job.message.value

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("optimizer.lr", 0, "lr must be above 0; got 0."),
            ("optimizer.lr", "", "lr takes a number; got &#x27;&#x27;."),
            ("batch size", "many", "batch size takes a whole number, or nothing for none; got &#x27;many&#x27;."),
            ("steps", 0, "steps must be at least 1; got 0."),
            ("steps", "2.7", "steps takes a whole number; got &#x27;2.7&#x27;."),
            ("steps", "nan", "steps takes a whole number; got &#x27;nan&#x27;."),
            ("latency", -1, "latency (ms) must be at least 0 and at most 1e+06; got -1."),
            ("straggler", 0, "straggler (× slower) must be above 0 and at most 1e+06; got 0."),
        ],
    )
    def test_a_wrong_value_is_said_under_its_field_and_stays(
        self, bench: lab.Workbench, name: str, value: Any, words: str
    ) -> None:
        column = bench.columns["B"]
        field, before = column.controls[name], column.controls[name].value
        field.value = value
        assert f">{words}<" in field.note.value
        assert field.value == str(value)
        assert (column.error.value, column.code.value) == ("", "")
        bench.run()
        assert bench.wait(1)
        assert words in bench.job.message.value.replace("SGD.", "")
        assert "Column B: " in bench.job.message.value
        field.value = before
        assert (field.note.value, field.note.layout.display, bench.job.message.value) == ("", "none", "")
        assert column.code.value

    def test_a_number_may_be_typed_as_in_code(self, bench: lab.Workbench) -> None:
        controls = bench.columns["B"].controls
        controls["steps"].value = "1e3"
        controls["optimizer.lr"].value = " 5E-2"
        controls["batch size"].value = "none"
        config = bench.columns["B"].config()
        assert (config.steps, config.optimizer.lr, config.batch_size) == (1000, 0.05, None)
        assert controls["steps"].value == "1000"
        assert "steps=1000" in bench.columns["B"].code.value

    def test_every_whole_number_takes_and_shows_what_is_typed_as_in_code(self, bench: lab.Workbench) -> None:
        fields = {
            label: field
            for label, field in bench.columns["A"].controls.items()
            if isinstance(field, controls.Number) and field._kind is int
        }
        assert {"steps", "workers", "servers", "batch size", "seed", "local", "consistency.backup"} <= fields.keys()
        for label, field in fields.items():
            for typed, number in (("1e0", 1), ("1_0", 10), ("2.0", 2), (" +3 ", 3), ("1e1", 10)):
                field.value = typed
                assert (field.wrong, field.number, field.value) == ("", number, str(number)), (label, typed)
            for typed in ("1.5", "1e-1", "inf", "nan", "1__0", "0x10", "ten"):
                field.value = typed
                assert "takes a whole number" in field.wrong, (label, typed)
                assert f"got {typed!r}." in field.wrong
                assert field.value == typed

    @pytest.mark.parametrize("typed", ["1e-3", "1_0.5", ".5", "5"])
    def test_a_number_with_a_point_stays_as_it_is_typed(self, bench: lab.Workbench, typed: str) -> None:
        field = bench.columns["A"].controls["optimizer.lr"]
        field.value = typed
        assert (field.wrong, field.number, field.value) == ("", float(typed), typed)

    def test_screen_readers_get_a_status_and_a_progress_bar(self, bench: lab.Workbench) -> None:
        bench.job.say("Half <b>way</b>")
        assert bench.job.message.value == "Half &lt;b&gt;way&lt;/b&gt;"
        sent = bench.job.message.get_state()["value"]
        assert sent == "<div role='status' aria-live='polite'>Half &lt;b&gt;way&lt;/b&gt;</div>"
        bench.job.progress(3, 4)
        assert bench.job.bar.value == "<progress aria-label='Progress' value='3' max='4'></progress>"

    def test_the_pipelines_show_what_a_and_b_have_and_what_a_push_weighs(self, bench: lab.Workbench) -> None:
        bench.columns["B"].controls["quantizer"].value = "sign"
        assert bench.flow.value == "", "nothing is computed before it is shown"
        bench._repr_mimebundle_()
        box = re.search("<b>.{,60}quantizer</b>.*?</div></div>", bench.flow.value)
        assert box
        for words in ("A</b> exact", "B</b> sign", "A</b> 132 B", "B</b> 21 B"):
            assert words in box[0], words
        assert "title='A: ps.Exact()\nB: ps.Sign()'" in bench.flow.value
        assert bench.flow.value.count("≠") == 1
        bench.columns["B"].controls["quantizer"].value = "exact"
        assert bench._flow_work.wait(10)
        assert "≠" not in bench.flow.value
        bench.columns["B"].controls["optimizer.lr"].value = 0.5
        assert bench._flow_work.wait(10)
        assert "A</b> sgd lr 0.1" in bench.flow.value
        assert "B</b> sgd lr 0.5" in bench.flow.value
        shown = bench.flow.value
        bench.columns["B"].controls["optimizer.lr"].value = "much"
        assert bench._flow_work.wait(10)
        assert bench.flow.value == shown, "the column says what is wrong"

    def test_the_messages_of_both_runs_move_on_one_axis(self, bench: lab.Workbench) -> None:
        bench._repr_mimebundle_()
        assert bench.play.layout.display == "none"
        bench.run()
        assert bench.wait(30)
        assert bench._flow_work.wait(30)
        start, stop = lab.plots.timeline_window(bench.runs)
        for side, run in bench.runs.items():
            sent = [one for one in run.messages if None not in one[-2:] and start <= one.start < stop]
            lane = bench.flow.value.split(f"<b class='flow-{side}'>{side}</b><div class='flow-road'>")[1]
            assert lane.split("</div>")[0].count("<i ") == min(len(sent), flow.MOST_DOTS)
        assert bench.flow.value.count("<i ") > 16
        assert "The dots are the messages of 8 steps of A and" in bench._flow_words.value
        assert bench.play.layout.display == ""
        before = bench.flow.value
        bench.play.click()
        assert bench._flow_work.wait(30)
        assert bench.flow.value != before, "the page moves them again"

    @pytest.mark.usefixtures("registry")
    def test_a_broken_stage_has_a_box_without_bytes(self, bench: lab.Workbench) -> None:
        written_in_a_notebook(
            """
            @ps.register
            @dataclass(frozen=True)
            class Broken(ps.Exact):
                name = "broken"

                def encode(self, x, rng):
                    raise RuntimeError("out of ink")
            """,
            "Broken",
        )
        bench.refresh()
        bench._repr_mimebundle_()
        bench.columns["A"].controls["quantizer"].value = "broken"
        assert bench._flow_work.wait(10)
        assert "A</b> broken" in bench.flow.value
        assert "132 B" in bench.flow.value  # of B
        assert bench.job.message.value != "out of ink"

    def test_the_timeline_says_what_it_shows_and_has_a_replay(self, bench: lab.Workbench) -> None:
        bench.columns["B"].controls["compute"].value = 10
        bench.run()
        assert bench.wait(30)
        bench.tabs.selected_index = 2
        assert re.search(">From .* to .*: 8 steps of A and [01] of B, on one time axis", bench.timeline.words.value)
        (panel,) = bench.replay.children
        assert [run["title"] for run in panel.data["runs"]] == ["A", "B"]
        bench.run("A")
        assert bench.wait(30)
        assert bench.replay.children == (panel,), "the page keeps its widget"

    def test_what_cannot_be_played_is_a_sentence(self, problem: ps.SoftmaxRegression) -> None:
        bench = lab.Workbench(problem, ps.Config(workers=2, steps=3), engine="simulated", predict=False)
        bench.run()
        assert bench.wait(30)
        bench.tabs.selected_index = 2
        (words,) = bench.replay.children
        assert "Nothing takes time in this simulated run." in words.value

    def test_without_anywidget_it_trains_and_shows_the_still_of_the_replay(
        self, problem: ps.SoftmaxRegression, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "anywidget", None)
        bench = lab.Workbench(problem, ps.Config(workers=2, steps=20), engine="threads", predict=False)
        assert bench.job.page is None
        bench._repr_mimebundle_()
        bench.run()
        assert bench.wait(30)
        assert bench._flow_work.wait(30)
        assert "<i class='flow-sent'" in bench.flow.value
        bench.tabs.selected_index = 2
        (panel,) = bench.replay.children
        assert "<svg" in panel.value
        assert "This picture moves if anywidget is installed" in panel.value

    @pytest.mark.parametrize("value", [0.1 + 0.2, 1e-8, 5e-324, 1 / 3])
    def test_a_config_comes_back_to_the_last_digit(self, problem: ps.SoftmaxRegression, value: float) -> None:
        config = ps.Config(seed=2**61 + 1, optimizer=ps.SGD(lr=value), link=ps.Link(12e6, 0.15e-3))
        bench = lab.Workbench(problem, config)
        assert bench.columns["A"].config() == config
        assert bench.columns["B"].config() == config

    def test_many_processes_are_worth_a_warning(self, bench: lab.Workbench) -> None:
        column = bench.columns["B"]
        column.controls["workers"].value = 500
        assert "501 processes would share the" in column.error.value
        assert "workers=500" in column.code.value
        column.controls["workers"].value = 2
        assert not column.error.value

    def test_each_event_has_a_row(self, problem: ps.SoftmaxRegression) -> None:
        run = ps.train(problem, ps.Config(workers=1, steps=1), engine="threads")
        run.events = [(0.0, "this"), (1.0, "and that")]
        table = results.table({"A": run, "B": dataclasses.replace(run, events=[])})
        assert table.count("<th>event</th>") == 2
        assert "s: this<" in table
        assert "s: and that<" in table

    def test_a_run_that_diverges_says_so(self, bench: lab.Workbench) -> None:
        bench.which.value = "B"
        bench.columns["B"].controls["optimizer.lr"].value = 1e30
        bench.run()
        assert bench.wait(60)
        assert "B (diverged): " in bench.job.message.value
        assert "Lower the learning rate" in bench.job.message.value
        assert "diverged" in bench.table.value
        assert "diverged)" in bench.log.value

    def test_a_run_that_fails_is_a_sentence(self, bench: lab.Workbench) -> None:
        bench.columns["A"].controls["workers"].value = 100_000
        bench.run("A")
        assert bench.wait(30)
        assert "use fewer workers" in bench.job.message.value
        assert not bench.job.run_button.disabled

    @pytest.mark.usefixtures("registry")
    def test_a_learners_stage_appears_with_its_fields(self, bench: lab.Workbench) -> None:
        source = """
            @ps.register
            @dataclass(frozen=True)
            class Halve(ps.Exact):
                name = "halve"
                factor: float = ps.option(0.5, "what is left", minimum=0, maximum=1, step=0.1)
                quietly: bool = False
                mode: str = ps.option("plain", "how", choices=["plain", "fancy"])
            """
        written_in_a_notebook(source, "Halve")
        bench.refresh()
        controls = bench.columns["A"].controls
        assert "halve" in controls["quantizer"].options
        assert controls["quantizer"].value == "exact"
        controls["quantizer"].value = "halve"
        controls = bench.columns["A"].controls
        assert controls["quantizer.factor"].wrong == ""
        assert controls["quantizer.mode"].options == ("plain", "fancy")
        controls["quantizer.quietly"].value = True
        assert bench.columns["A"].config().push.quantizer.quietly is True

        again = written_in_a_notebook(source.replace("0.5", "0.25").replace("factor", "share"), "Halve")
        bench.refresh()
        assert "quantizer.share" in bench.columns["A"].controls
        assert isinstance(bench.columns["A"].config().push.quantizer, again)

    @pytest.mark.usefixtures("registry")
    def test_a_stage_whose_library_is_missing_says_what_to_install(self, bench: lab.Workbench) -> None:
        source = """
            @ps.register
            @dataclass(frozen=True)
            class Far(ps.Exact):
                name = "far"
                requires = ("no_such_library",)
                extra = "codecs"
            """
        written_in_a_notebook(source, "Far")
        bench.refresh()
        bench.columns["A"].controls["quantizer"].value = "far"
        assert "minips[codecs]" in bench.columns["A"].error.value
        bench.columns["A"].controls["quantizer"].value = "exact"
        assert not bench.columns["A"].error.value

    @pytest.mark.usefixtures("registry")
    def test_a_notebook_cell_refreshes_the_dropdowns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shell = types.SimpleNamespace(events=None)
        shell.events = EventManager(shell, available_events)
        monkeypatch.setattr("minips.lab.panels.base.get_ipython", lambda: shell)
        bench = lab.Workbench(engine="threads")
        written_in_a_notebook(
            """
            @ps.register
            @dataclass(frozen=True)
            class Same(ps.Exact):
                name = "same"
            """,
            "Same",
        )
        shell.events.trigger("post_run_cell", None)
        assert "same" in bench.columns["B"].controls["pull quantizer"].options

    @pytest.mark.usefixtures("registry")
    def test_a_stage_that_is_written_anew_keeps_what_its_controls_say(self, bench: lab.Workbench) -> None:
        source = """
            @ps.register
            @dataclass(frozen=True)
            class Halve(ps.Exact):
                name = "halve"
                factor: float = 0.5
            """
        written_in_a_notebook(source, "Halve")
        bench.refresh()
        bench.columns["A"].controls["quantizer"].value = "halve"
        bench.columns["A"].controls["quantizer.factor"].value = 0.75
        again = written_in_a_notebook(source, "Halve")
        bench.refresh()
        assert bench.columns["A"].config().push.quantizer == again(0.75)

    def test_every_field_of_a_config_has_a_control(self, bench: lab.Workbench) -> None:
        controls = bench.columns["A"].controls
        wanted = {field.name.replace("_", " ") for field in dataclasses.fields(ps.Config)}
        wanted -= {"push", "pull", "link", "delays", "timeout s"}
        wanted |= {"quantizer", "memory", "serializer", "compressor", "pull quantizer", "pull memory"}
        wanted |= {"pull serializer", "pull compressor", "bandwidth", "latency", "compute", "straggler"}
        assert wanted <= controls.keys()

    def test_every_control_has_a_name_of_its_own(self, bench: lab.Workbench) -> None:
        for side in ("A", "B"):
            bench.columns[side].controls["quantizer"].value = "uniform"
            bench.columns[side].controls["pull quantizer"].value = "uniform"
        labels = [w.full_name for column in bench.columns.values() for w in column.controls.values()]
        assert "A quantizer" in labels
        assert "B quantizer bits" in labels
        assert all(labels)
        assert len(set(labels)) == len(labels)

    @pytest.mark.parametrize("label", STAGES)
    def test_every_stage_can_be_chosen(self, bench: lab.Workbench, label: str) -> None:
        path = STAGES[label]
        for name in ps.names(path[-1]):
            bench.columns["A"].controls[label].value = name
            column = bench.columns["A"]
            if not column.error.value:  # a library that is missing, or a config that cannot be, is a sentence
                stage: Any = column.config()
                for attribute in path:
                    stage = getattr(stage, attribute)
                assert stage == ps.build(path[-1], name)

    def test_the_code_makes_the_config(self, bench: lab.Workbench) -> None:
        config = ps.Config(
            push=ps.Codec(quantizer=ps.TopK(0.05), memory=ps.ErrorFeedback(decay=0.5), compressor=ps.Lz4()),
            pull=ps.Codec(quantizer=ps.Float16(), serializer=ps.Json()),
            consistency=ps.SSP(staleness=3),
            link=ps.Link(bandwidth_bps=5e6, latency_s=0.002),
            delays=ps.Delays(seconds=0.01, slow={1: 2.0, 3: 5.0}, exponential=True),
            batch_size=None,
            accumulate=2,
            local=ps.LocalSteps(steps=50, optimizer=ps.Adam(lr=0.01)),
            overlap=True,
            seed=7,
        )
        assert eval(code(config), {"ps": ps}) == config
        assert code(ps.Config()) == "ps.Config()"
        column = lab.Workbench(bench.problem, config).columns["A"]
        assert column.config() == config
        assert "ps.TopK(fraction=0.05)" in column.code.value

    def test_local_steps_have_a_control_each_for_how_many_and_for_what_makes_them(self, bench: lab.Workbench) -> None:
        column, before = bench.columns["A"], bench.columns["A"].config()
        column.controls["inner optimizer"].value = "adam"
        column.controls["inner optimizer.lr"].value = 0.02
        assert column.config() == before
        column.controls["local"].value = 7
        column.controls["steps"].value = 20
        assert "local.steps=7, such as 14 or 21" in column.error.value
        column.controls["steps"].value = 21
        assert column.config().local == ps.LocalSteps(7, ps.Adam(lr=0.02))
        assert "local=ps.LocalSteps(" in column.code.value
        column.controls["local"].value = None
        assert column.config().local is None

    @pytest.mark.soak
    def test_a_new_workbench_stops_the_run_of_the_one_whose_place_it_takes(self, problem: ps.SoftmaxRegression) -> None:
        long = ps.Config(steps=100_000, workers=2, delays=ps.Delays(0.01))
        old = lab.Workbench(problem, long, engine="threads", predict=False)
        old.run("A")
        new = lab.Workbench(problem, ps.Config(steps=5, workers=2), engine="threads", predict=False)
        assert old.wait(30)
        assert old.runs["A"].stopped
        new.run("A")
        assert new.wait(30)
        assert not new.runs["A"].stopped

    def test_stop_is_said_at_once(self, bench: lab.Workbench) -> None:
        bench.columns["A"].controls["steps"].value = 100_000
        bench.columns["A"].controls["compute"].value = 10.0
        bench.run("A")
        bench.stop()
        assert bench.job.message.value in ("Stopping …", "Column A is training …")
        assert bench.wait(30)

    def test_a_straggler_taken_back_leaves_nothing_behind(self, bench: lab.Workbench) -> None:
        column = bench.columns["A"]
        before = column.config()
        column.controls["straggler"].value = 4.0
        assert column.config().delays == ps.Delays(seconds=0.01, slow={1: 4.0})
        column.controls["straggler"].value = 1.0
        assert column.config() == before
        column.controls["straggler"].value = 4.0
        column.controls["compute"].value = 30.0
        column.controls["straggler"].value = 1.0
        assert column.config().delays == ps.Delays(seconds=0.03)

    def test_a_sentence_goes_once_what_it_is_about_has_changed(self, bench: lab.Workbench) -> None:
        column = bench.columns["A"]
        column.controls["consistency.backup"].value = 5
        assert "That does not work" in column.error.value
        assert column.code.value == ""
        bench.run("A")
        assert "That does not work" in bench.job.message.value
        column.controls["workers"].value = 7
        assert (bench.job.message.value, column.error.value) == ("", "")
        assert "workers=7" in column.code.value

    @pytest.mark.parametrize("preset", PRESETS)
    def test_a_preset_sets_both_columns_and_the_first_one_takes_it_back(
        self, bench: lab.Workbench, preset: str
    ) -> None:
        before = [bench.columns[side].config() for side in "AB"]
        bench.columns["A"].controls["steps"].value = 7
        bench.preset.value = preset
        a, b = (bench.columns[side].config() for side in "AB")
        assert a != b
        assert a.steps == before[0].steps
        assert "≠" in "".join(cell.value for cell in bench._names.values())
        bench.preset.value = "as it was opened"
        assert [bench.columns[side].config() for side in "AB"] == before

    def test_a_preset_that_does_not_fit_changes_nothing_and_says_why(self, problem: ps.Problem) -> None:
        opened = ps.Config(workers=2, steps=5, consistency="ssp")
        bench = lab.Workbench(problem, opened)
        bench.preset.value = "no server"
        assert [bench.columns[side].config() for side in "AB"] == [opened, opened]
        assert "The preset &#x27;no server&#x27; cannot be set" in bench.job.message.value

    def test_network_and_straggler(self, bench: lab.Workbench) -> None:
        controls = bench.columns["A"].controls
        assert controls["bandwidth"].label == "no limit"
        controls["bandwidth"].value = 10e6
        controls["latency"].value = 5
        controls["straggler"].value = 4
        config = bench.columns["A"].config()
        assert config.link == ps.Link(bandwidth_bps=10e6, latency_s=0.005)
        assert config.delays == ps.Delays(seconds=0.01, slow={1: 4.0})

    def test_it_shows_itself_as_a_widget_with_words(self, bench: lab.Workbench) -> None:
        bundle = bench._repr_mimebundle_()
        assert bundle["text/plain"] == repr(bench)
        assert "application/vnd.jupyter.widget-view+json" in bundle

    def test_too_many_configs_are_refused(self, problem: ps.SoftmaxRegression) -> None:
        with pytest.raises(ValueError, match="one for A and one for B; got 3"):
            lab.Workbench(problem, [ps.Config()] * 3)


def test_a_field_keeps_each_bound_that_an_option_can_have() -> None:
    metadata = ps.option(0.9, "a momentum", minimum=0, below=1).metadata
    field = controls.control(float, metadata, 0.9, "A", "momentum")
    for typed, said in (("0.99", ""), ("1", "momentum must be at least 0 and below 1; got 1.")):
        field.value = typed
        assert field.wrong == said


@pytest.fixture(scope="module")
def run() -> ps.Run:
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=5, classes=3))
    return ps.train(problem, ps.Config(steps=10, workers=2, consistency=ps.ASP()), engine="threads")


class TestPlots:
    @pytest.mark.parametrize("against", ["seconds", "bytes", "step"])
    def test_loss(self, run: ps.Run, against: Any) -> None:
        ax = axes()
        assert lab.plots.loss({"one": run, "two": run}, against=against, ax=ax) is ax
        assert len(ax.lines) == 2
        assert ax.lines[0].get_marker() != ax.lines[1].get_marker()
        assert {"seconds": "(s)", "bytes": "(MB)", "step": "step"}[against] in ax.get_xlabel()

    def test_loss_of_rows_so_far(self, run: ps.Run) -> None:
        assert lab.plots.loss({"A": run.losses}, ax=axes()).lines
        with pytest.raises(ValueError, match="needs a whole run, or step_bytes"):
            lab.plots.loss(run.losses, against="bytes", ax=axes())
        ax = lab.plots.loss({"A": run.losses}, against="bytes", step_bytes={"A": 2e6}, ax=axes())
        assert ax.lines[0].get_xdata()[-1] == 2 * run.losses[-1][1]  # type: ignore[index]

    def test_spans(self, run: ps.Run) -> None:
        ax = lab.plots.spans({"A": run, "B": run}, ax=axes())
        assert "(ms)" in ax.get_xlabel()
        assert "compute" in [label.get_text() for label in ax.get_yticklabels()]
        assert len({patch.get_hatch() for patch in ax.patches}) == 2
        planned = run.trace.planned.total()
        assert [text.get_text() for text in ax.get_legend().get_texts()] == [
            f"{label} ({planned} planned)" for label in "AB"
        ]

    def test_predicted_beside_measured(self) -> None:
        ax = lab.plots.predicted(
            ps.cost.Comparison([("compute", 1e-3, 2e-3), ("compress", 0, 0), ("total", 3e-3, 0)]), ax=axes()
        )
        assert [label.get_text() for label in ax.get_yticklabels()] == ["compute", "total"]
        assert [round(patch.get_width(), 6) for patch in ax.patches] == [1, 3, 2, 0]
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["predicted", "measured"]

    def test_what_one_side_does_not_count_has_no_bar(self) -> None:
        rows = [("compute", 1e-3, None), ("wait", None, 2e-3), ("apply", None, None), ("total", 3e-3, 2e-3)]
        ax = lab.plots.predicted(ps.cost.Comparison(rows, reasons=("The run counts no time for compute.",)), ax=axes())
        assert [label.get_text() for label in ax.get_yticklabels()] == ["compute", "wait", "total"]
        assert [round(patch.get_width(), 6) for patch in ax.patches] == [1, 0, 3, 0, 2, 2]
        assert [text.get_text() for text in ax.texts] == ["1", "not counted", "3", "not counted", "2", "2"]

    def test_a_pareto_front(self, run: ps.Run) -> None:
        def one(sent: float, accuracy: float | None, loss: float = 0.5, **others: Any) -> ps.Run:
            figures = {"bytes_sent": int(sent * 1e6), "accuracy": accuracy, "validation_loss": loss}
            return dataclasses.replace(run, **figures, **others)

        runs = {"a": one(1, 0.5), "b": one(3, 0.9, 0.1), "c": one(2, 0.4), "d": one(9, 0.1, diverged="At step 3.")}
        table = ps.RunTable({**runs, "none": one(1, None, float("nan"))})
        ax = lab.plots.pareto(table, y="accuracy", ax=axes())
        lines = {line.get_label(): [*map(tuple, line.get_xydata())] for line in ax.lines}  # type: ignore[arg-type]
        assert lines == {"dominated": [(2, 0.4)], "diverged": [(9, 0.1)], "Pareto front": [(1, 0.5), (3, 0.9)]}
        assert len({line.get_marker() for line in ax.lines}) == 3
        assert [text.get_text() for text in ax.texts] == ["a", "b"]
        assert (ax.get_xlabel(), ax.get_xscale()) == ("sent by the workers (MB)", "linear")
        assert ax.get_ylabel() == "accuracy (share of held-out rows)"
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["dominated", "diverged", "Pareto front"]
        ax = lab.plots.pareto(ps.RunTable([one(1, 0.5), one(30, 0.5, 0.4)]), ax=axes())
        assert (ax.get_xscale(), ax.get_ylabel()) == ("log", "validation loss")
        assert [line.get_label() for line in ax.lines] == ["Pareto front"]
        assert len(lab.plots.pareto([one(1, 0.5), one(30, 0.5, 0.4)], ax=axes()).lines) == 1
        assert not lab.plots.pareto([], ax=axes()).lines
        unlike = [dataclasses.replace(one(n, 0.5, 1 / n), config=run.config.with_({"steps": n})) for n in (2, 3)]
        ax = lab.plots.pareto(ps.RunTable(unlike), "bytes_sent", "steps", ax=axes())
        assert [text.get_text() for text in ax.texts] == ["steps=2"]
        with pytest.raises(ValueError, match="no column 'bytes'"):
            lab.plots.pareto(table, "bytes")

    def test_timeline(self, run: ps.Run) -> None:
        ax = lab.timeline(run, ax=axes())
        assert [label.get_text() for label in ax.get_yticklabels()] == ["worker 1", "worker 0", "server 0"]
        assert "(ms)" in ax.get_xlabel()
        assert len({bars.get_hatch() for bars in ax.collections}) > 2
        assert f"encode ({run.trace.planned.total()} planned)" in [
            text.get_text() for text in ax.get_legend().get_texts()
        ]

    def test_timelines_of_several_runs_have_one_axis(self, run: ps.Run) -> None:
        ax = lab.timeline({"A": run, "B": run}, ax=axes())
        rows = [label.get_text() for label in ax.get_yticklabels()]
        assert rows == [f"{name} {who}" for name in "BA" for who in ("worker 1", "worker 0", "server 0")]
        places = ax.get_yticks()
        assert [round(below - above, 1) for above, below in itertools.pairwise(places)] == [1, 1, 1.6, 1, 1]
        counts = [0, 0]
        for bars in ax.collections:
            (path, *_) = bars.get_paths()
            counts[int(path.vertices[:, 1].mean() > places[2] + 0.5)] += len(bars.get_paths())
        assert counts[0] == counts[1] > 10
        planned = run.trace.planned.total()
        legend = [text.get_text() for text in ax.get_legend().get_texts()]
        assert f"encode (A {planned}, B {planned} planned)" in legend

    def test_the_narrow_timeline_of_two_runs_leaves_most_of_its_width_to_the_bars(self, run: ps.Run) -> None:
        figure = Figure(figsize=(NARROW_IN, 3.2), layout="constrained")
        ax = lab.plots.timeline({"A": run, "B": run}, ax=figure.add_subplot())
        figure.draw_without_rendering()
        assert ax.get_position().width > 0.6
        legend, page = ax.get_legend().get_window_extent(), figure.bbox
        assert page.x0 <= legend.x0 < legend.x1 <= page.x1

    def test_the_window_is_eight_counted_steps(self) -> None:
        problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=5, classes=3))
        run = ps.train(problem, ps.Config(steps=10, workers=2), engine="threads")
        starts = sorted({span.step: span.start for span in run.trace if span[:2] == ("compute", "worker 0")}.items())
        first = (len(starts) - 8) // 2
        window = lab.plots.timeline_window(run)
        assert window == (starts[first][1], starts[first + 8][1])
        assert lab.plots.steps_in_words({"A": run}, window) == "8 steps of A"
        quick = dataclasses.replace(run, seconds=starts[9][1])
        assert lab.plots.timeline_window({"A": run, "B": quick})[1] <= starts[9][1]
        assert lab.plots.timeline_window(dataclasses.replace(run, trace=ps.Trace())) == (0.0, run.seconds)

    def test_the_map_of_codecs(self) -> None:
        codecs = {"exact": ps.Codec(), "half": ps.Codec(quantizer=ps.Float16())}
        free = {name: ps.cost.Calibration() for name in codecs}
        found = ps.cost.codec_map(codecs, [100, 1000, 9000], [1e6, 1e7], calibrations=free)
        found.samples.append(ps.cost.Sample(1, 1, {"exact": 1.0, "half": 2.0}))
        ax = lab.plots.codec_map(found, ax=axes())
        assert len(ax.patches) == 6
        assert [line.get_marker() for line in ax.lines] == [lab.plots.LOOKS[0].marker]
        assert ax.lines[0].get_markeredgecolor() == "black"  # the map says half
        assert {text.get_text() for text in ax.get_legend().get_texts()} == {"exact", "half"}
        assert "(Mbit/s)" in ax.get_xlabel()
        assert "kB" in ax.get_ylabel()

    def test_staleness(self, run: ps.Run) -> None:
        ax = lab.plots.staleness(run, ax=axes())
        assert sum(patch.get_height() for patch in ax.patches) == run.updates

    def test_the_datas_way_names_the_stages(self) -> None:
        config = ps.Config(push=ps.Codec(quantizer=ps.TopK(0.05)), servers=2)
        words = " ".join(text.get_text() for text in lab.plots.way(config, ax=axes()).texts)
        for word in ("TopK(fraction=0.05)", "MsgPack()", "SGD()", "Tcp()", "server (2 of them)"):
            assert word in words

    @pytest.mark.filterwarnings("ignore:.*non-interactive:UserWarning")
    def test_without_axes_a_figure_is_made(self, run: ps.Run) -> None:
        from matplotlib import pyplot

        for ax in (lab.plots.loss(run), lab.plots.spans(run), lab.timeline(run), lab.plots.way()):
            assert isinstance(ax, Axes)
        pyplot.close("all")


class TestShow:
    @pytest.mark.parametrize("thing", [ps.TopK, ps.TopK(0.1)], ids=repr)
    def test_source_and_place(self, thing: Any) -> None:
        listing = lab.show(thing)
        assert listing.place.startswith("minips/stages/quantizers/sparse.py, line ")
        assert "class TopK(Quantizer):" in listing.source
        assert "```python" in listing._repr_markdown_()

    def test_a_method_is_not_indented(self) -> None:
        listing = lab.show(ps.Shard.take)
        assert listing.source.startswith("def take(")
        assert "\n    worker, clock" in listing.source

    def test_what_lesson_03_tells_to_look_for_stands_there(self) -> None:
        source = lab.show(ps.Shard.take).source
        assert '"late"' in source
        assert '"held"' in source
        assert "return None" in source
        assert "self.take(contribution, checked) or self.apply()" in lab.show(ps.Shard.push).source

    def test_a_class_from_a_cell(self) -> None:
        cell = "before = 1\nclass Mine:\n    def f(self):\n        return 1\n\nafter = 2\n"
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(cell, "<cell>", "exec"), namespace)
        linecache.cache["<cell>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell>")
        listing = lab.show(namespace["Mine"])
        assert listing.source == "class Mine:\n    def f(self):\n        return 1\n"
        assert listing.place == "written in this notebook"

    def test_what_has_no_source_is_a_sentence(self) -> None:
        with pytest.raises(TypeError, match="no Python source of dict"):
            lab.show({})


def test_importing_minips_imports_no_lab() -> None:
    words = "import sys, minips; sys.exit(any(m in sys.modules for m in ('minips.lab', 'matplotlib', 'ipywidgets')))"
    assert subprocess.run([sys.executable, "-c", words], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("ipywidgets", "import minips; minips.lab"),
        ("matplotlib", "from minips.lab import Workbench"),
        ("matplotlib", "from minips.lab import plots"),
        ("ipywidgets", "from minips.cli import main; main(['check', '0.1', 'mine.ipynb'])"),
    ],
)
def test_a_missing_library_is_a_sentence(library: str, use: str) -> None:
    words = f"import sys; sys.modules[{library!r}] = None; {use}"
    outcome = subprocess.run([sys.executable, "-c", words], timeout=60, capture_output=True, text=True)
    assert f"The lab needs {library}" in outcome.stderr
    assert 'pip install "minips[lab]"' in " ".join(outcome.stderr.split())


def test_the_worker_thread_of_the_workbench_is_gone(bench: lab.Workbench) -> None:
    bench.run("A")
    assert bench.wait(30)
    assert "minips-lab" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("given", [None, "threads", "simulated", ps.Threads()])
def test_the_workbench_offers_the_engines_that_are_installed(given: Any) -> None:
    bench = lab.Workbench(engine=given, predict=False)
    there = {"processes", "threads", *(["ray"] if find_spec("ray") and find_spec("cryptography") else [])}
    there |= {"hosts"} if find_spec("pyroute2") else set()
    assert {value for _, value in bench.engines.options} == there | {bench.engine}
    assert bench.engines.value == bench.engine == (given or "processes")
    bench.engines.value = "threads"
    assert bench.engine == "threads"


def test_a_quantizer_for_each_tensor_is_more_than_the_workbench_shows() -> None:
    config = ps.Config(push=ps.Codec(quantizer={"b": ps.Exact(), "*": ps.Sign()}))
    with pytest.raises(ValueError, match=r"one quantizer for all tensors; got one for each of b, \*"):
        lab.Workbench(configs=config)
