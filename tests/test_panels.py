"""The small panels, driven by traits."""

import dataclasses
import html
import re
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import every_panel
import numpy as np
import pytest
from IPython.core.events import EventManager, available_events
from ipywidgets.widgets.widget import _instances
from matplotlib.figure import Figure

import minips as ps
from minips import cost, lab
from minips.lab import charts, panels
from minips.lab.controls import Number, Slider
from minips.lab.panels import base, collectives
from minips.lab.panels.compressor_explorer import WHAT
from minips_course.lecture.panel import CopyOrCall
from minips_course.rounding.panel import RoundedAverage
from minips_course.server.panel import ServerRules
from minips_course.stranger.panel import Damage

PNG = b"\x89PNG"
PANELS = [*every_panel.PANELS.values()]
MEASURING = [panels.TransportLadder, panels.Stragglers]
SOME_NOW = [pytest.param(make, marks=[pytest.mark.soak] * (make in MEASURING)) for make in PANELS]
"""The panels; the two slowest ones run with the soak."""


def drawn(panel: lab.Panel[Any, Any]) -> list[str]:
    """The sides of the panel's picture, of which a page shows the wide one or the narrow one."""
    return re.findall(r"<svg class='minips-(wide|narrow)' ", panel.picture.image.value)


def said(panel: lab.Panel[Any, Any]) -> str:
    """The sentence that a screen reader says when it changes."""
    (words,) = re.findall("<div role='status'>(.*)</div>", panel.picture.words.value)
    return html.unescape(str(words))


def slide(panel: lab.Panel[Any, Any], label: str, *places: int) -> Slider:
    """Move the slider of a control to places, as a page does that a learner drags it in."""
    slider: Slider = panel.controls[label].slider
    for place in places:
        number = slider.view.panel.asked.get("number", 0) + 1
        slider.view.panel.set_state({"asked": {"place": place, "number": number}})
    return slider


@dataclass(frozen=True)
class Wishes(ps.stage.Value):
    rows: int = ps.option(3, "how many", minimum=0, maximum=9, step=1)
    quantizer: ps.Quantizer = ps.option(ps.Exact(), "which")


class Slow(lab.Panel[Wishes, int]):
    """Counts, for as long as it may."""

    title, asks, instant = "Slow", Wishes, False

    def __init__(self, **asked: Any) -> None:
        super().__init__(**asked)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def find(self, asked: Wishes) -> int:
        if not asked.rows:
            raise ValueError("There is nothing to count.")
        self.begun.set()
        while not (self.go_on.wait(0.01) or self.job.stopping.is_set()):
            self.job.progress(1, 2)
        return asked.rows

    def draw(self, found: int, figure: Figure) -> None:
        figure.add_subplot().plot(range(found))

    def words(self, found: int) -> str:
        return f"It counted to {found} <at most>."


class Quick(Slow):
    instant = True


@pytest.mark.parametrize("make", SOME_NOW)
def test_every_panel_has_a_picture_with_words_and_a_name_for_each_control(make: Any) -> None:
    panel = make()
    bundle = panel._repr_mimebundle_()
    assert bundle["text/plain"] == repr(panel)
    labels = [widget.full_name for widget in panel.controls.values()]
    assert all(widget.tooltip in html.unescape(panel.help.value) for widget in panel.controls.values())
    assert all(label.startswith(panel.title) for label in labels)
    assert len(set(labels)) == len(labels)
    panel.run()
    assert panel.wait(60)
    if isinstance(panel, lab.Collectives | ServerRules):
        assert panel.view.sentence == panel.words(panel.found)
        assert panel.view.still.startswith("<svg ")
    else:
        assert said(panel) == panel.words(panel.found)
        assert drawn(panel) == ["wide", "narrow"]
    assert not panel.job.message.value


@pytest.mark.parametrize("make", SOME_NOW)
def test_every_panel_reads_without_a_kernel(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    panel = make()
    panel.static()
    assert capsys.readouterr().out == f"<picture: {panel.title}>\n{panel.words(panel.found)}\n"
    panel.static("In a word.")
    assert capsys.readouterr().out.endswith("In a word.\n")


def test_the_panels_of_two_cells_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_cells", {})
    cell = {"cellId": "one"}
    shell = types.SimpleNamespace(get_parent=lambda: {"metadata": cell}, events=EventManager(None, available_events))
    monkeypatch.setattr(base, "get_ipython", lambda: shell)
    first, again = Slow(), Slow()
    cell["cellId"] = "another"
    other, bench = Slow(), lab.Workbench()
    cell["cellId"] = "a third"
    another = lab.Workbench()
    labels = [[widget.full_name for widget in panel.controls.values()] for panel in (first, again, other)]
    assert labels[0] == labels[1] == ["Slow quantizer", "Slow rows"]
    assert labels[2] == ["Slow 2 quantizer", "Slow 2 rows"]
    assert (again.job.run_button.description, other.job.run_button.description) == ("Run slow", "Run slow 2")
    assert bench.columns["B"].controls["steps"].full_name == "B steps"
    assert another.columns["B"].controls["steps"].full_name == "B 2 steps"
    assert "<th>steps</th>" in another.help.value


@pytest.mark.parametrize(
    ("cells", "runs", "closed"),
    [("aa", "12", True), ("aa", "11", False), ("ab", "12", False), (["", ""], "12", False)],
    ids=["the cell run again", "two in one run", "another cell", "no notebook"],
)
def test_a_panel_made_again_by_its_cell_takes_the_place_of_the_earlier_one(
    cells: Any, runs: str, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_cells", {})
    parent: dict[str, Any] = {}
    events = EventManager(None, available_events)
    shell = types.SimpleNamespace(get_parent=lambda: parent, events=events)
    monkeypatch.setattr(base, "get_ipython", lambda: shell)
    made = []
    for cell, run in zip(cells, runs, strict=True):
        parent |= {"metadata": {"cellId": cell}, "header": {"msg_id": run}}
        made.append((lab.Workbench(), Slow()))
    events.trigger("post_run_cell", None)
    assert len(events.callbacks["post_run_cell"]) == (2 if closed else 4)
    for earlier, later in zip(*made, strict=True):
        assert {part.comm is None for part in parts(earlier.panel)} == {closed}
        assert {part.comm is None for part in parts(later.panel)} == {False}
        assert (earlier.job.run_button.comm is None) == closed
    bench, slow = made[0]
    bench.columns["A"].controls["steps"].value = 7  # and from code it stays usable
    assert bench.columns["A"].config().steps == 7
    assert slow.form.value() == Wishes()


def parts(widget: Any) -> Iterator[Any]:
    """A widget with all that is in it."""
    yield widget
    for part in (*getattr(widget, "children", ()), getattr(widget, "layout", None), getattr(widget, "style", None)):
        if part is not None:
            yield from parts(part)


def test_a_preset_leaves_no_widgets_behind() -> None:
    bench = lab.Workbench()
    presets = ("a straggler", "no server", "as it was opened")
    counts = []
    for preset in 2 * presets:
        bench.preset.value = preset
        counts.append(len(_instances))
    assert counts[:3] == counts[3:]


def test_run_stop_and_run_again() -> None:
    panel = Slow()
    panel.job.run_button.click()
    assert panel.begun.wait(10)
    assert panel.job.busy
    assert panel.job.run_button.disabled
    panel.job.stop_button.click()
    assert panel.wait(10)
    assert panel.found == 3
    assert not panel.job.stop_button.button_style
    panel.controls["rows"].value = 5
    panel.go_on.set()
    panel.job.run_button.click()
    assert panel.wait(10)
    assert panel.found == 5
    assert said(panel) == "It counted to 5 <at most>."
    assert panel.picture.png.startswith(PNG)


def test_an_error_is_a_sentence_and_the_panel_goes_on() -> None:
    panel = Slow(rows=0)
    panel.go_on.set()
    panel.run()
    assert panel.wait(10)
    assert "nothing to count" in panel.job.message.value
    assert "Traceback" not in panel.job.message.value
    panel.controls["rows"].value = 1
    panel.run()
    assert panel.wait(10)
    assert not panel.job.message.value
    assert panel.found == 1


def test_an_instant_panel_follows_its_controls_and_the_last_move_counts() -> None:
    panel = Quick()
    panel.controls["rows"].value = 4
    assert panel.begun.wait(10)
    for rows in (5, 6, 7):
        panel.controls["rows"].value = rows
    panel.go_on.set()
    assert panel.wait(10)
    assert panel.found == 7


SLIDERS = {
    panels.AlphaBeta: "transport.pool megabits milliseconds kilobytes",
    panels.CodecExplorer: "quantizer.bits quantizer.block steps",
    panels.Collectives: "topology.bandwidth_bps topology.latency_s topology.loss workers servers kilobytes",
    panels.CompressorExplorer: "compressor.acceleration bandwidth",
    panels.FrameViewer: "rows columns",
    panels.GradientShards: "workers rows times",
    panels.RobustAggregation: "workers liars strength draw",
    panels.Stragglers: "consistency.staleness slower",
    ServerRules: "slower",
    panels.TransportLadder: "transport.pool at_once",
    CopyOrCall: "calls values",
    every_panel.PANELS["minips_course.fails.panel.ThresholdWalk"]: "memory.decay rate threshold curvature",
    every_panel.PANELS["minips_course.hide.panel.Overlap"]: "latency_ms compute_ms",
    every_panel.PANELS["minips_course.wait.panel.WhoWaits"]: "rule.staleness workers",
    every_panel.PANELS["minips_course.stale.panel.OldGradients"]: "rate momentum",
    every_panel.PANELS["minips_course.batch.panel.NoisySteps"]: "workers batch_size accumulate lr",
    every_panel.PANELS["minips_course.spend.panel.BitsByTensor"]: "U a W b lr",
    every_panel.PANELS["minips_course.local.panel.SeldomExchanges"]: "outer",
    every_panel.PANELS["minips_course.race.panel.SecondsAndBytes"]: "",
    every_panel.PANELS["minips_course.links.panel.PlacesOnTwoRacks"]: "workers servers megabits",
    RoundedAverage: "workers levels shift",
    Damage: "place new",
    every_panel.PANELS["minips_course.pays.panel.CodecRace"]: "megabits features workers",
    every_panel.PANELS["minips_course.survive.panel.RetryStorm"]: "callers wait retries",
    every_panel.PANELS["minips_course.cost.panel.StepOnPaper"]: "megabits milliseconds kilobytes workers buffer",
    every_panel.PANELS["minips_course.ddp.panel.BucketSize"]: "kilobytes milliseconds megabytes",
    every_panel.PANELS[
        "minips_course.network.panel.SchedulesOnNetworks"
    ]: "topology.bandwidth_bps topology.latency_s topology.loss workers kilobytes",
}


@pytest.mark.parametrize("make", PANELS)
def test_every_number_with_a_range_has_a_slider_whose_stops_the_number_takes(make: Any) -> None:
    panel = make()
    panel.run = lambda: None
    numbers = [label for label, widget in panel.controls.items() if isinstance(widget, Number)]
    assert set(SLIDERS[make].split()) == set(numbers)
    for label in numbers:
        number, before = panel.controls[label], panel.controls[label].value
        slider = number.slider
        data = slider.view.data
        assert data["name"] == f"{number.full_name}, slider"
        assert 2 <= len(data["stops"]) <= 129
        assert data["words"] == before
        for place in (0, len(data["stops"]) // 2, len(data["stops"]) - 1):
            slide(panel, label, place)
            assert number.value == data["stops"][place]
            assert not number.wrong
            assert slider.view.data["place"] == place
        number.value = before
        assert slider.view.data["words"] == before


def test_a_slider_answers_the_page_and_follows_the_number() -> None:
    panel = Quick()
    panel.go_on.set()
    slider = slide(panel, "rows", 4, 7)
    assert slider.view.data["answered"] == 2
    assert panel.wait(10)
    assert panel.found == 7
    panel.controls["rows"].value = "many"
    assert (slider.view.data["words"], slider.view.data["place"]) == ("many", 0)
    panel.controls["rows"].value = 9
    assert slider.view.data["place"] == 9
    assert panel.wait(10)


def test_a_drag_queues_nothing_and_the_last_value_wins() -> None:
    panel, found = Quick(), []
    find = panel.find
    panel.find = lambda asked: found.append(asked.rows) or find(asked)  # type: ignore[func-returns-value,method-assign]
    slide(panel, "rows", 1)
    assert panel.begun.wait(10)
    slide(panel, "rows", *range(2, 9))
    panel.go_on.set()
    assert panel.wait(10)
    assert (found, panel.found) == ([1, 8], 8)


class Repeating(lab.Panel[Wishes, int]):
    """Squares, and notes for what."""

    title, asks, repeats = "Squares", Wishes, True

    def __init__(self, **asked: Any) -> None:
        super().__init__(**asked)
        self.asked: list[int] = []

    def find(self, asked: Wishes) -> int:
        if asked.rows == 7:
            raise ValueError("Seven is one too many.")
        self.asked.append(asked.rows)
        return asked.rows**2

    def chart(self, found: int, width: float) -> charts.Drawing:
        return charts.Chart(width, 100, charts.Scale("", 0, 1), charts.Scale("", 0, 1)).drawing()

    def words(self, found: int) -> str:
        return f"{found}"


class TestKept:
    def test_a_slider_that_was_moved_has_its_other_stops_computed(self) -> None:
        panel = Repeating()
        slide(panel, "rows", 5)
        assert panel.wait(10)
        assert panel.found == 25
        assert panel.asked == [5, 4, 6, 3, 2, 8, 1, 9, 0]
        slide(panel, "rows", 2, 8)
        assert panel.wait(10)
        assert panel.found == 64
        assert len(panel.asked) == 9, "nothing is computed twice"
        slide(panel, "rows", 7)
        assert panel.wait(10)
        assert "Seven is one too many." in panel.job.message.value

    def test_a_cell_can_change_what_a_stage_does(self) -> None:
        panel = Repeating()
        panel.run()
        assert panel.wait(10)
        panel.run()
        assert panel.wait(10)
        panel.refresh()
        panel.run()
        assert panel.wait(10)
        assert panel.asked == [3, 3]

    def test_a_typed_number_computes_only_itself(self) -> None:
        panel = Repeating()
        panel.controls["rows"].value = 5
        assert panel.wait(10)
        assert panel.asked == [5]

    def test_what_is_asked_for_comes_before_the_other_stops(self) -> None:
        panel, begun, go_on = Repeating(), threading.Event(), threading.Event()
        find = panel.find

        def slowly(asked: Wishes) -> int:
            if asked.rows == 4:
                begun.set()
                assert go_on.wait(10)
            return find(asked)

        panel.find = slowly  # type: ignore[method-assign]
        slide(panel, "rows", 5)
        assert begun.wait(10), "the nearest stop is computed"
        panel.controls["rows"].value = 9
        go_on.set()
        assert panel.wait(10)
        assert panel.found == 81
        assert panel.asked[:3] == [5, 4, 9]


def test_what_is_asked_for_after_a_stop_is_not_stopped_with_it() -> None:
    panel = Quick()
    stopped, begun, go_on = [], threading.Event(), threading.Event()

    def find(asked: Wishes) -> int:
        begun.set()
        assert go_on.wait(10)
        stopped.append(panel.job.stopping.is_set())
        return asked.rows

    panel.find = find  # type: ignore[method-assign]
    panel.run()
    assert begun.wait(10)
    panel.stop()
    panel.controls["rows"].value = 7
    go_on.set()
    assert panel.wait(10)
    assert stopped == [True, False]
    assert panel.found == 7


class TestWithoutThreads:
    """As in a browser's Python."""

    @pytest.fixture(autouse=True)
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
        started: list[threading.Thread] = []

        def start(thread: threading.Thread) -> None:
            started.append(thread)
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", start)
        return started

    def test_a_panel_can_be_made(self, started: list[threading.Thread]) -> None:
        for make in PANELS:
            assert make().controls
        lab.Workbench()._repr_mimebundle_()
        assert started == []

    def test_work_is_done_before_run_returns(self, started: list[threading.Thread]) -> None:
        panel = Slow(rows=4)
        panel.go_on.set()
        panel.run()
        assert (panel.found, len(started), panel.job.busy) == (4, 1, False)
        assert panel.picture.png.startswith(PNG)
        assert (panel.job.run_button.disabled, panel.job.stop_button.button_style) == (False, "")
        panel.controls["rows"].value = 0
        panel.run()
        assert "There is nothing to count." in panel.job.message.value
        assert panel.wait(0)

    def test_what_is_asked_for_meanwhile_follows(self) -> None:
        panel = Quick(rows=4)
        found = []

        def find(asked: Wishes) -> int:
            found.append(asked.rows)
            panel.controls["rows"].value = 7
            return asked.rows

        panel.find = find  # type: ignore[method-assign]
        panel.controls["rows"].value = 5
        assert found == [5, 7]
        assert panel.found == 7

    def test_the_workbench_trains_what_is_simulated_and_says_what_else_lacks(self) -> None:
        config, engine = ps.Config(workers=2, steps=3), ps.Simulated(compute_s=0.01)
        bench = lab.Workbench(configs=config, engine=engine, predict=False)
        bench.run()
        assert [run.updates for run in bench.runs.values()] == [6, 6]
        bench.engine = "threads"
        bench.run("A")
        assert "can&#x27;t start new thread" in bench.job.message.value


def test_what_goes_wrong_at_the_first_sight_is_a_sentence_too() -> None:
    panel = Quick(rows=0)
    assert "application/vnd.jupyter.widget-view+json" in panel._repr_mimebundle_()
    assert "nothing to count" in panel.job.message.value
    with pytest.raises(ValueError, match="nothing to count"):
        panel.static()


@pytest.mark.usefixtures("registry")
def test_a_stage_is_a_dropdown_with_its_fields() -> None:
    panel = Slow()

    @ps.register
    @dataclass(frozen=True)
    class Mine(ps.Exact):
        name = "mine"

    panel.refresh()
    panel.controls["quantizer"].value = "mine"
    assert panel.form.value().quantizer == Mine()
    panel.controls["quantizer"].value = "topk"
    panel.controls["quantizer.fraction"].value = 0.25
    assert panel.form.value() == Wishes(quantizer=ps.TopK(0.25))


class TestGradientShards:
    def test_equal_shards_average_to_the_full_gradient(self) -> None:
        panel = lab.GradientShards(workers=8, rows=96)
        panel.static()
        assert panel.found.sizes == [12] * 8
        assert panel.found.apart < 1e-12
        assert "equals" in panel.words(panel.found)

    def test_unequal_shards_do_not(self) -> None:
        panel = lab.GradientShards(workers=5, rows=24)
        panel.static()
        assert sorted(panel.found.sizes) == [4, 5, 5, 5, 5]
        assert panel.found.apart > 1e-3
        assert "differs from" in panel.words(panel.found)

    @pytest.mark.parametrize(("workers", "rows", "times"), [(4, 350, 11), (12, 24, 12), (1, 24, 12), (3, 40, 2)])
    def test_the_first_shard_may_have_more_rows_than_the_others(self, workers: int, rows: int, times: int) -> None:
        panel = lab.GradientShards(workers=workers, rows=rows, times=times)
        panel.static()
        first, *others = panel.found.sizes
        assert first + sum(others) == rows
        assert min(panel.found.sizes) > 0
        assert all(abs(times * other - first) <= times for other in others)
        assert (panel.found.apart > 1e-3) == (workers > 1)

    def test_more_workers_than_can_be_shown_are_refused(self) -> None:
        with pytest.raises(ValueError, match="at most 12"):
            lab.GradientShards(workers=13)


class TestFrameViewer:
    def test_the_arrays_own_memory_travels(self) -> None:
        panel = lab.FrameViewer(rows=64, columns=10)
        panel.static()
        assert panel.found.views == [False, True]
        assert [len(frame) for frame in panel.found.frames] == [49, 2560]
        assert "2609 bytes in all, 1.02 × the array. It was not copied." in panel.words(panel.found)

    @pytest.mark.parametrize("serializer", [*ps.names("serializer")])
    def test_every_serializer_can_be_looked_at(self, serializer: str) -> None:
        for rows in (0, 1, 2000):
            panel = lab.FrameViewer(serializer=ps.build("serializer", serializer), rows=rows, columns=3, dtype="int64")
            panel.static()
            assert panel.found.total > 3 * rows
            assert ("copied" in panel.words(panel.found)) == (rows > 0)


class TestCompressorExplorer:
    @pytest.mark.parametrize("what", WHAT)
    def test_lz4_finds_repetition_and_nothing_else(self, what: str) -> None:
        panel = lab.CompressorExplorer(what=what)
        panel.static()
        found = panel.found
        assert (found.after < 0.9 * found.before) == (what in ("1 % of it, zeros between", "JSON text"))
        assert ("Nothing is saved" in panel.words(found)) == (found.break_even_bps == 0)

    def test_it_pays_below_the_break_even_and_not_above(self) -> None:
        panel = lab.CompressorExplorer(what="8-bit codes", compressor=ps.Zlib())
        panel.static()
        even = panel.found.break_even_bps / 1e6
        for bandwidth, pays in ((0.9 * even, True), (1.1 * even, False)):
            one = panel.found._replace(asked=dataclasses.replace(panel.found.asked, bandwidth=bandwidth))
            assert (one.squeezed_s < one.plain_s) == pays
            assert ("it pays:" in panel.words(one)) == pays

    @pytest.mark.usefixtures("registry")
    def test_a_compressor_that_loses_something_is_a_sentence(self) -> None:
        @ps.register
        @dataclass(frozen=True)
        class Forgetful(ps.NoCompression):
            name = "forgetful"

            def decompress(self, buffer: Any, limit: int) -> Any:
                return bytes(limit)

        panel = lab.CompressorExplorer(compressor=Forgetful())
        panel.run()
        assert panel.wait(30)
        assert "changed the data" in panel.job.message.value


class TestCodecExplorer:
    def test_bytes_and_error_are_those_of_the_stage(self) -> None:
        panel = lab.CodecExplorer(quantizer=ps.TopK(0.01), steps=1)
        panel.static()
        found = panel.found
        assert found.nbytes == ps.TopK(0.01).nbytes((64, 32), "f4")
        kept = np.argsort(np.abs(found.meant))[-21:]
        assert np.flatnonzero(found.arrived).tolist() == sorted(kept)
        lost = np.linalg.norm(np.delete(found.meant, kept)) / np.linalg.norm(found.meant)
        assert found.error == pytest.approx(lost, rel=1e-5)
        assert found.summed == found.error
        assert f"8192 bytes become {found.nbytes}, 0.49 bits a value" in panel.words(found)
        assert found.streamed % 64 == 0
        assert (
            found.nbytes + 64
            < found.streamed
            <= ps.cost.message_nbytes(ps.Codec(ps.TopK(0.01)), {"U": found.meant.reshape(64, 32)}, stream=True)
        )

    def test_what_is_exact_loses_nothing(self) -> None:
        found = lab.CodecExplorer().find(dataclasses.replace(lab.CodecExplorer.asks(), quantizer="exact"))
        assert (found.error, found.summed) == (0, 0)

    def test_error_feedback_shows_in_the_sum(self) -> None:
        panel = lab.CodecExplorer(quantizer=ps.Sign(), steps=100)
        panel.static()
        without = panel.found
        panel.controls["memory"].value = "errorfeedback"
        assert panel.wait(10)
        assert panel.found.summed < without.summed / 3
        assert panel.found.error > 0.5

    @pytest.mark.parametrize("memory", ps.names("memory"))
    def test_every_quantizer_and_memory_can_be_chosen(self, memory: str) -> None:
        panel = lab.CodecExplorer(memory=memory, tensor="a")
        for quantizer in ps.names("quantizer"):
            found = panel.find(dataclasses.replace(panel.form.value(), quantizer=quantizer))
            assert found.arrived.shape == found.meant.shape == (32,)
            assert panel.words(found)


class TestRobustAggregation:
    def test_a_stronger_lie_drags_the_mean_along_and_the_median_not(self) -> None:
        panel = lab.RobustAggregation()
        panel.static()
        found = panel.found
        assert found.mean_off == pytest.approx(found.strengths / 5, abs=1e-9)
        assert found.off.max() < 2
        assert found.off[20:] == pytest.approx(found.off[20])
        assert "downhill" in panel.words(found)

    def test_two_liars_are_one_too_many_for_a_trim_of_one(self) -> None:
        panel = lab.RobustAggregation(aggregator=ps.TrimmedMean(1), liars=2)
        panel.static()
        assert panel.found.off[-1] > 5
        panel.controls["aggregator.trim"].value = 2
        assert panel.wait(10)
        assert panel.found.off[-1] < 2

    @pytest.mark.parametrize("lie", ["far away", "scattered", "uphill", "lazy"])
    def test_without_liars_every_lie_is_the_same(self, lie: str) -> None:
        panel = lab.RobustAggregation(aggregator=ps.Mean(), liars=0, lie=lie)
        panel.static()
        assert not panel.found.off.any()
        assert "none of them a lie" in panel.words(panel.found)

    def test_uphill_liars_in_the_majority_lead_uphill(self) -> None:
        panel = lab.RobustAggregation(liars=3, lie="uphill")
        panel.static()
        assert "uphill" in panel.words(panel.found)

    def test_too_few_workers_are_a_sentence(self) -> None:
        panel = lab.RobustAggregation()
        panel.controls["aggregator"].value = "krum"
        panel.controls["workers"].value = 4
        assert panel.wait(10)
        assert "needs at least 5 contributions" in panel.job.message.value
        panel.controls["liars"].value = 4
        assert panel.wait(10)
        assert "at least one must be honest" in panel.job.message.value
        panel.controls["workers"].value = 9
        panel.controls["aggregator"].value = "median"
        assert panel.wait(10)
        assert not panel.job.message.value


class TestCollectives:
    def test_a_rings_links_carry_what_the_formula_says_and_a_servers_carry_all(self) -> None:
        found = lab.Collectives(topology=cost.Star(8e6, 0.0), workers=4, kilobytes=100)
        found.static()
        star = found.found
        assert star.carried["worker 2", "switch"] == pytest.approx(1.5 * 100e3)
        assert star.seconds["ring"] == pytest.approx(cost.ring_allreduce_s(4, 100e3, 1e6), rel=0.02)
        served = lab.Collectives(topology=cost.Star(8e6, 0.0), workers=4, kilobytes=100, exchange=ps.PS())
        served.static()
        assert served.found.carried["switch", "server 0"] == 400e3
        assert "4 workers and a server" in served.words(served.found)

    def test_what_cannot_be_done_by_so_many_is_left_out_and_a_sentence_where_it_was_chosen(self) -> None:
        panel = lab.Collectives(workers=6)
        panel.static()
        assert set(panel.found.seconds) == {"ps", "ring", "tree", "twoshot"}
        panel.controls["exchange"].value = "halvingdoubling"
        assert panel.wait(10)
        assert "power of two" in panel.job.message.value

    @pytest.mark.soak
    def test_a_stranger_on_the_link_slows_a_step_down(self) -> None:
        calm, busy = (lab.Collectives(workers=4, busy=busy) for busy in (False, True))
        calm.static()
        busy.static()
        assert busy.found.seconds["ring"] > 1.2 * calm.found.seconds["ring"]
        assert "takes longest: worker 0 → switch" in busy.words(busy.found)

    def test_the_link_that_decides_is_the_one_that_takes_longest(self) -> None:
        panel = lab.Collectives(topology=cost.TwoRacks(100e6, 0.0, uplink_bps=20e6))
        panel.static()
        longest = "The link that takes longest: rack 0 → rack 1, 700 kB, 280 ms of 281 ms; the way back takes as long."
        assert longest in panel.view.sentence
        assert "Its rival, parameter server, takes 1.28 s." in panel.view.sentence
        assert [lap.name for lap in panel.found.laps] == ["ring", "parameter server"]

    def test_an_exchange_does_not_race_against_itself(self) -> None:
        panel = lab.Collectives(workers=3, exchange=ps.PS())
        panel.static()
        assert [side["name"] for side in panel.view.data["sides"]] == ["parameter server"]
        assert "rival" not in panel.view.sentence

    def test_a_worker_alone_has_a_step_of_no_time_and_a_picture(self) -> None:
        panel = lab.Collectives(workers=1)
        panel.run()
        assert panel.wait(60)
        assert not panel.job.message.value
        assert panel.found.seconds["ring"] == 0
        assert "No message crosses a link." in panel.view.sentence

    def test_it_can_be_stopped_between_two_exchanges(self, monkeypatch: pytest.MonkeyPatch) -> None:
        panel = lab.Collectives(workers=4)
        begun, go_on, simulated = threading.Event(), threading.Event(), []

        def step(asked: Any) -> tuple[float, list[Any]]:
            simulated.append(asked.exchange.name)
            begun.set()
            assert go_on.wait(10)
            return 1.0, []

        monkeypatch.setattr(collectives, "_step", step)
        panel.run()
        assert begun.wait(10)
        panel.stop()
        go_on.set()
        assert panel.wait(10)
        assert simulated == ["ring"], "the one that was asked for comes first"
        assert panel.found.seconds == {"ring": 1.0}
        assert "takes 1 s a step" in panel.view.sentence
        assert panel.view.sentence == panel.words(panel.found)
        assert not panel.job.message.value

    def test_a_gradient_that_would_take_gigabytes_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"kilobytes.*at most 4000"):
            lab.Collectives(workers=16, kilobytes=100_000)


class TestStragglers:
    def test_a_run_that_was_stopped_at_once_has_a_picture_without_bars(self) -> None:
        panel = lab.Stragglers()
        panel.job.stopping.set()
        found = panel.find(panel.form.value())
        assert found.updates == 0
        drawing = panel.chart(found, charts.NARROW_PX)
        assert "gradients" in charts.svg(drawing, panel.words(found))


class TestAlphaBeta:
    @pytest.mark.soak
    def test_the_line_knows_the_link_and_the_slider_another_size(self) -> None:
        panel = lab.AlphaBeta(megabits=100.0, milliseconds=2.0)
        panel.static("Fitted.")
        assert panel.found.line.fixed_s > 4e-3
        assert panel.found.line.each_s > 0.5 * 8e-8
        before = panel.found.calls
        slider = slide(panel, "kilobytes", 17)
        assert panel.wait(20)
        assert panel.controls["kilobytes"].number == 50
        assert panel.found.nbytes == 50_000
        assert panel.found.calls == before, "what is known is not measured again"
        panel.controls["kilobytes"].value = 20
        assert panel.wait(20)
        assert slider.view.data["place"] == 13

    def test_what_is_typed_stays_and_the_slider_has_round_numbers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        panel = lab.AlphaBeta()
        monkeypatch.setattr(panel, "run", lambda: None)
        field = panel.controls["kilobytes"]
        for typed in ("1234", "123.456", "350", "4000", "1", "0.5", "abc"):
            field.value = typed
            assert field.value == typed
        field.value = "1234"
        slider = slide(panel, "kilobytes", 32)
        assert field.value == slider.view.data["stops"][32] == "1500"
