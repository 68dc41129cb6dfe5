"""What a long call says about its wait: where it is shown, its phases, and that a notebook keeps nothing of it."""

import io
import os
import threading
import time
from contextlib import contextmanager

import pytest
from jupyter_client.manager import start_new_kernel
from rich.console import Console

import minips as ps
from minips import demo
from minips.lab import waits
from minips.training import progress as module
from minips.training.progress import Chain, Level, Wait, bars, place, showing, words

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
SMALL = ps.Config(workers=2, steps=5)


@pytest.mark.parametrize("unattended", [False, True])
@pytest.mark.parametrize(
    ("caller", "by_default", "if_asked"),
    [
        ("terminal", "", "bars"),
        ("cell", "page", "page"),
        ("thread", "", "page"),
        ("kernel", "", "output"),
    ],
)
def test_where_waits_are_shown(caller, by_default, if_asked, unattended):
    quiet = unattended and caller != "terminal"
    assert place(None, caller, unattended) == ("" if quiet else by_default)
    assert place(True, caller, unattended) == ("" if quiet else if_asked)
    assert place(False, caller, unattended) == ""


def message(kind="execute_request", **metadata):
    return {"header": {"msg_type": kind}, "metadata": metadata, "content": {"code": "1"}}


@pytest.mark.parametrize(
    ("request_", "caller"),
    [
        (None, "terminal"),
        ({}, "kernel"),
        (message(), "kernel"),  # a client without a page, as nbclient and nbval are
        (message(cellId=None), "kernel"),
        (message(cellId="7437b3da-66"), "cell"),
        (message(cellId="vscode-notebook-cell:/home/x.ipynb#W0sZmlsZQ"), "kernel"),
        (message("comm_msg", cellId="7437b3da"), "kernel"),  # a widget's callback
    ],
)
def test_who_calls(request_, caller, monkeypatch):
    assert waits.caller_of(request_, in_main_thread=True) == caller
    assert waits.caller_of(request_, in_main_thread=False) == ("thread" if caller == "cell" else caller)
    monkeypatch.setattr(waits, "find_spec", lambda name: None)
    assert waits.caller_of(request_, in_main_thread=True) == ("kernel" if request_ is not None else "terminal")


def test_a_line_has_the_phases_first_and_the_seconds_of_the_outermost():
    outer, inner = Level(Wait("run 2 of 5", 0.2)), Level(Wait("measuring the stages", 0.4))
    chain, now = Chain([outer]), outer.since + 2.04
    assert words(chain, now) == ("run 2 of 5", " · 20% · 2.0 s", 0.2)
    chain.append(inner)
    assert words(chain, now) == ("run 2 of 5 · measuring the stages", " · 40% · 2.0 s", 0.2)
    inner.show(Wait("training", 0.5, "step 3 of 6"))
    assert words(chain, outer.since + 12.6) == ("run 2 of 5 · training", " · step 3 of 6 · 13 s", 0.2)
    assert words(Chain([Level(Wait(""))]), outer.since)[0] == ""


def test_a_phase_begins_when_its_name_changes():
    level = Level(Wait("training", 0.1))
    began = level.since
    level.show(Wait("training", 0.2, "step 2"))
    assert level.since == began
    time.sleep(0.001)
    level.show(Wait("ending"))
    assert level.since > began


def test_bars_fit_a_terminal_and_show_any_text():
    chain = Chain(
        [Level(Wait("row 1 of 7 · " + 9 * "a long name ", 0.5)), Level(Wait("TopK[/bold]")), Level(Wait("", 1))]
    )
    console = Console(width=80, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(bars(chain, chain[0].since + 75))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert "50% 1 min 15 s row 1 of 7" in lines[0]
    assert lines[0].rstrip().endswith("…")
    assert "TopK[/bold]" in lines[1]
    assert "%" not in lines[1]
    assert "100%" in lines[2]


@pytest.fixture
def seen(monkeypatch):
    """What is on screens that are asked for: each state of each chain, as the phases of its levels."""
    states = []

    @contextmanager
    def screen(progress, chain, console):
        said = Level.show

        def show(level, wait):
            said(level, wait)
            note()

        def note():
            states.append([level.wait for level in chain])

        def append(chain, level):
            list.append(chain, level)
            note()

        with monkeypatch.context() as patch:
            patch.setattr(Level, "show", show)
            patch.setattr(Chain, "append", append)
            note()
            yield

    hidden = module._screen
    monkeypatch.setattr(module, "_screen", lambda *given: screen(*given) if given[0] else hidden(*given))
    return states


def phases(states):
    """The phases, without those that repeat."""
    named = [tuple(wait.phase for wait in state) for state in states]
    return [phase for i, phase in enumerate(named) if named[i - 1 : i] != [phase]]


@pytest.mark.parametrize(
    ("engine", "config", "first", "then"),
    [
        ("threads", SMALL, "starting 3 threads", "training"),
        ("simulated", SMALL, "simulating", "simulating"),
        ("threads", SMALL.with_({"exchange": "ring"}), "starting 2 threads", "training"),
        ("threads", SMALL.with_({"servers": 2, "transport": "tcp"}), "starting 4 threads", "training"),
    ],
)
def test_a_run_says_what_it_starts_and_its_step(seen, engine, config, first, then):
    run = ps.train(PROBLEM, config, engine=engine, progress=True)
    assert phases(seen) == [(first,), *([(then,)] if then != first else [])]
    assert seen[0][0] == Wait(first)
    assert seen[-1][0] == Wait(then, 1.0, f"step 5 of 5 · loss {run.losses[-1][2]:.4f}")


def test_calls_inside_a_call_are_shown_with_it(seen):
    runs = list(ps.sweep(PROBLEM, {"a": SMALL, "b": SMALL}, engine="threads", progress=True))
    assert [run.name for run in runs] == ["a", "b"]
    expected = [
        phase
        for run in ("run 1 of 2 · a", "run 2 of 2 · b")
        for phase in [(run,), (run, "starting 3 threads"), (run, "training")]
    ]
    assert phases(seen) == expected
    assert [state[0].share for state in seen if len(state) == 1] == [0.0, 0.5]
    seen.clear()
    ps.sensitivity(PROBLEM, SMALL.with_({"push.quantizer": "sign"}), progress=True)
    assert list(dict.fromkeys(phase[0] for phase in phases(seen))) == [
        "",
        "run 1 of 4 · none",
        "run 2 of 4 · all",
        "run 3 of 4 · W",
        "run 4 of 4 · b",
    ]


@pytest.mark.soak
def test_a_prediction_says_that_the_stages_are_measured(seen):
    ps.cost.predict(PROBLEM, SMALL.with_({"transport": "inproc"}), progress=True)
    said = phases(seen)
    assert said[:2] == [("predicting",), ("predicting", "measuring the stages")]
    shares = [state[1].share for state in seen if state[1:] and state[1].phase == "measuring the stages"]
    assert shares[0] is None
    assert shares[1:] == sorted(shares[1:])


@pytest.mark.parametrize("outer", [False, print])
def test_what_a_call_does_not_show_the_calls_inside_it_do_not_show(seen, outer):
    with showing(outer):
        ps.train(PROBLEM, SMALL, engine="threads")
        assert seen == []
        ps.train(PROBLEM, SMALL, engine="threads", progress=True)
        assert phases(seen)[0] == ("starting 3 threads",)
    assert module._calls.chain is None


def test_nothing_is_left_of_a_call_that_fails(seen):
    def fail(now):
        raise KeyError("mine")

    with showing(True, first=Wait("outer")) as show:
        for _ in range(2):
            with pytest.raises(KeyError):
                ps.train(PROBLEM, SMALL, engine="threads", every=2, on_eval=fail)
            show("outer")
            assert [wait.phase for wait in seen[-1]] == ["outer"]
    assert module._calls.chain is None


def test_calls_of_several_threads_do_not_mix(seen):
    with showing(True, first=Wait("here")):
        thread = threading.Thread(target=ps.train, args=(PROBLEM, SMALL), kwargs={"engine": "threads"})
        thread.start()
        thread.join()
    assert phases(seen) == [("here",)]


@pytest.mark.parametrize(
    "call", [ps.train, ps.cost.predict, ps.sensitivity, lambda *given, **more: list(ps.sweep(*given, **more))]
)
def test_a_progress_that_is_neither_is_refused(call):
    with pytest.raises(TypeError, match=r"progress takes True, False, .*; got 'yes'"):
        call(PROBLEM, SMALL, progress="yes")


@pytest.mark.soak
def test_no_bar_of_the_demo_names_a_run_while_the_stages_are_measured(seen, monkeypatch):
    plan = [next(demo.experiments())]
    plan[0] = (*plan[0][:3], plan[0][3].with_({"steps": 10}))
    monkeypatch.setattr(demo, "experiments", lambda: iter(plan))
    (row,) = demo.demo(Console(quiet=True))
    assert row.name == "BSP"
    for state in seen:
        texts = [" ".join((wait.phase, wait.detail)) for wait in state]
        if any("measuring the stages" in text for text in texts):
            assert not any("BSP" in text or "training" in text for text in texts)
    said = list(dict.fromkeys(phase for phase in phases(seen) if "again" not in phase[0]))
    row = "row 1 of 1 · one slow worker: BSP"
    assert said[:2] == [("row 1 of 1",), ("row 1 of 1", "measuring the stages")]
    assert said[2:] == [(row,), (row, "predicting"), *said[4:-2], (row, "starting 5 processes"), (row, "training")]


def test_a_run_tells_its_start_up_apart(seen, tmp_path):
    run = ps.train(PROBLEM, SMALL, engine="processes", progress=True)
    assert phases(seen) == [("starting 3 processes",), ("training",)]
    assert run.start_s > 0
    rows = dict(run.rows())
    assert rows["start-up"] == f"{run.start_s:.2f} s, before the first step"
    assert rows["time"] == f"{run.seconds:.2f} s"
    assert repr(run) == f"<Run of 10 updates in {run.seconds:.2f} s after {run.start_s:.2f} s of start-up>"
    assert "start-up" in run._repr_html_()
    run.save(tmp_path / "run.npz")
    assert ps.Run.load(tmp_path / "run.npz").start_s == run.to_dict()["start_s"] == run.start_s
    more = ps.train(PROBLEM, SMALL.with_({"steps": 7}), engine="threads", resume=run)
    assert more.start_s > run.start_s


def test_a_run_that_started_nothing_has_no_start_up():
    run = ps.train(PROBLEM, SMALL, engine="simulated")
    assert run.start_s == 0
    assert "start-up" not in dict(run.rows())
    assert "start-up" not in repr(run)
    assert ps.Run.load(os.path.join(os.path.dirname(__file__), "run_without_problem.npz")).start_s == 0


CELL = """
import os, sys, threading
import minips as ps
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
config = ps.Config(workers=2, steps=16, transport="inproc", delays=ps.Delays(seconds=0.05))

def train(**given):
    ps.train(problem, config, engine="threads", **given)
"""
IN_A_THREAD = """
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
UNATTENDED = """
os.environ["MINIPS_AUTOPLAY"] = "1"
train(progress=True)
del os.environ["MINIPS_AUTOPLAY"]
"""
WITHOUT_WIDGETS = """
sys.modules["anywidget"] = sys.modules["ipywidgets"] = None
train()
del sys.modules["anywidget"], sys.modules["ipywidgets"]
"""
FAILING = """
def fail(now):
    if now.step == 12:
        raise KeyError("mine")
train(every=6, on_eval=fail)
"""


class Notebook:
    """A kernel, and a client that names cells as JupyterLab's page does."""

    def __init__(self, client):
        self.client = client

    def run(self, code, **metadata):
        """Run a cell, and return what the kernel says."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        request = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(request)
        said = []
        while not said or said[-1]["content"].get("execution_state") != "idle":
            found = self.client.get_iopub_msg(timeout=60)
            if found["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                said.append(found)
        return [one for one in said if one["msg_type"] not in ("status", "execute_input")]


@pytest.fixture(scope="module")
def notebook():
    environment = {name: value for name, value in os.environ.items() if name != "MINIPS_AUTOPLAY"}
    manager, client = start_new_kernel(kernel_name="python3", env=environment)
    try:
        book = Notebook(client)
        book.run(CELL)
        yield book
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def opened(said):
    """The models of widgets that were opened, and not closed."""
    models = {one["content"]["comm_id"] for one in said if one["msg_type"] == "comm_open"}
    return models, models - {one["content"]["comm_id"] for one in said if one["msg_type"] == "comm_close"}


@pytest.mark.outside
def test_a_page_is_told_the_phases_and_gets_no_output(notebook):
    said = notebook.run("train()", cellId="a1")
    assert {one["msg_type"] for one in said} == {"comm_open", "comm_msg", "comm_close"}
    models, left = opened(said)
    assert (len(models), left) == (2, set())  # the line and its layout
    sent = [one["content"]["data"].get("state", {}).get("wait") for one in said if one["msg_type"] != "comm_close"]
    told = [wait for wait in sent if wait and wait[0]]
    assert {wait[0] for wait in told} <= {"starting 3 threads", "training"}
    assert told[-1][0] == "training"
    assert "step " in told[-1][1]
    steps = [wait[2] for wait in told if wait[2] is not None]
    assert steps == sorted(steps)


@pytest.mark.outside
@pytest.mark.parametrize(
    ("code", "metadata"),
    [
        pytest.param("train()", {}, id="no page"),
        pytest.param(UNATTENDED, {"cellId": "a1"}, id="unattended"),
        pytest.param("train(progress=False)", {"cellId": "a1"}, id="not asked for", marks=pytest.mark.soak),
        pytest.param(IN_A_THREAD, {"cellId": "a1"}, id="a thread", marks=pytest.mark.soak),
        pytest.param(WITHOUT_WIDGETS, {"cellId": "a1"}, id="no widgets", marks=pytest.mark.soak),
    ],
)
def test_the_kernel_says_nothing(notebook, code, metadata):
    assert notebook.run(code, **metadata) == []


@pytest.mark.outside
def test_an_error_takes_the_line_away(notebook):
    said = notebook.run(FAILING, cellId="a1")
    models, left = opened(said)
    assert models
    assert not left
    assert [one["content"]["ename"] for one in said if one["msg_type"] == "error"] == ["KeyError"]
    assert not {one["msg_type"] for one in said} & {"display_data", "stream", "execute_result"}


@pytest.mark.outside
def test_without_a_page_an_output_that_is_asked_for_is_empty_at_the_end(notebook):
    said = notebook.run("train(progress=True)")
    texts = [one["content"]["data"]["text/plain"] for one in said]
    assert [one["msg_type"] for one in said] == ["display_data", *["update_display_data"] * (len(said) - 1)]
    assert any(text.startswith("training · step ") for text in texts)
    assert texts[-1] == ""
