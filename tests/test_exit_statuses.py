"""The exit statuses that ``minips --help`` lists, each with the sentence that goes with it."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import minips as ps
from minips import cli
from minips.training import train as engine

MINIPS = [sys.executable, "-m", "minips"]
TRAIN = "train --data synthetic --engine threads --transport inproc --workers 2 --steps 3"
PROB = """
    import minips as ps

    def make():
        return ps.SoftmaxRegression(*ps.datasets.synthetic(rows=60, classes=3))

    def needs(x):
        return x

    def fails():
        return {}["rows"]
"""
OWN = """
    from dataclasses import dataclass
    import minips as ps

    @ps.register
    @dataclass(frozen=True)
    class Mine(ps.Exact):
        name = "mine_alone"
"""
WRONG_OPTION = """
    import minips as ps

    least = ps.option(0.5, "how much", beneath=3)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that a command is typed in."""
    for name, text in {"prob_exits.py": PROB, "own_exits.py": OWN, "torn_exits.py": WRONG_OPTION}.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    (tmp_path / "c.json").write_text('{"wrokers": 2}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "named.json").write_text('{"push": {"quantizer": "log4"}}')
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    for name in ("prob_exits", "own_exits", "torn_exits"):
        sys.modules.pop(name, None)


def status(arguments):
    """The exit status, also where the parser has ended the command."""
    try:
        return cli.main(arguments.split())
    except SystemExit as end:
        return end.code


def test_help_lists_them(capsys):
    assert status("--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "Exit status: 0 done, 1 failed, 2 a wrong option or value, 3 diverged, 130 and 143 interrupted (SIGINT, "
        "SIGTERM), 141 a closed pipe."
    ) in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--nonsense", "minips: error: unknown: --nonsense"),
        ("", "minips: error: Expected a command, such as minips demo."),
        ("train --nonsense", "minips train: error: unknown: --nonsense"),
        ("train --wrokers 2", "minips train: error: unknown: --wrokers 2. Did you mean --workers?"),
        ("stages --jsn", "minips stages: error: unknown: --jsn. Did you mean --json?"),
        ("bench pushpull", "minips: error: argument command: invalid choice: 'bench' (choose from "),
        ("train --quantizer topk:", "minips: --quantizer: Expected field=value, field=value, …"),
        ("train --optimizer sgd:schedule=cosine:steps=20", "with name(field=value, …) for a nested stage; got"),
        ("train --config nope.json", "minips: --config: nope.json cannot be read: no such file or directory."),
        ("train --config folder", "minips: --config: folder cannot be read: is a directory."),
        ("train --config c.json", "minips: --config: Config has no field 'wrokers'. Known:"),
        ("train --config list.json", "minips: --config: Config.from_dict takes a mapping"),
        (
            "train --config named.json",
            "It names a stage that is not registered here. There is no quantizer named 'log4'.",
        ),
        (
            "train --resume nope.npz",
            "minips: nope.npz cannot be read: no such file or directory. Name a file that --save",
        ),
        ("train --resume folder", "minips: The folder folder holds no snapshot of a server or a rank"),
        ("train --resume c.json", "minips: c.json is not a complete file of a saved run"),
        ("check 0.3 nope.ipynb", "minips: nope.ipynb cannot be read: no such file or directory. Name your copy"),
        ("check 0.3 folder", "minips: folder cannot be read: is a directory."),
        ("--load c.json stages", "--load takes an existing Python file that defines stages, FILE.py; got c.json."),
        ("--load torn_exits.py stages", "unexpected keyword argument 'beneath' (torn_exits.py, line 4)"),
        ("train --problem prob_exits", "prob_exits is not a function of prob_exits."),
        ("train --problem prob_exits:mkae", "prob_exits:mkae is not a function of prob_exits."),
        ("train --problem prob_exits:needs", "called without arguments, failed: TypeError: needs() missing 1 required"),
        ("train --servers 5000", "minips: Config.servers is 5000, and the parameters have"),
        ("train --data digits --transport tcp:max_message_bytes=1024", "A push of these parameters has 2600 bytes"),
        ("train --problem prob_exits:fails", "failed: KeyError: 'rows' (prob_exits.py, line 11)"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_option_or_value_is_2(arguments, sentence, capsys):
    assert status(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err.splitlines()[-1]
    assert "Did you mean --" not in said.err or "Did you mean --" in sentence
    assert "Errno" not in said.err
    usage = f"usage: {' '.join(sentence.split(': error')[0].split())}"
    assert said.err.startswith(usage) if ": error" in sentence else len(said.err.splitlines()) == 1


@pytest.mark.usefixtures("registry")
def test_a_saved_run_with_a_stage_of_ones_own_asks_for_its_file(folder, capsys):
    assert status(f"--load own_exits.py {TRAIN} --quantizer mine_alone --save r.npz") == 0
    del sys.modules["own_exits"]
    ps.stage._KINDS["quantizer"].pop("mine_alone")
    capsys.readouterr()
    again = f"{TRAIN[:-1]}5 --resume r.npz"
    assert status(again) == 2
    assert capsys.readouterr().err.startswith(
        "minips: r.npz cannot be read. It names a stage that is not registered here. There is no quantizer named "
        "'mine_alone'. Known: exact"
    )
    assert status(f"--load own_exits.py {again}") == 0


def test_a_failure_is_1(folder, capsys, monkeypatch):
    def fails(*arguments, **options):
        raise ValueError("the third column is empty")

    monkeypatch.setattr(engine, "train", fails)
    assert status(TRAIN) == 1
    assert capsys.readouterr().err == "minips: the third column is empty\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_1(folder, capsys):
    assert status(f"{TRAIN} --save run.npz --json /dev/full") == 1
    said = capsys.readouterr()
    assert said.err == "minips: /dev/full cannot be written: no space left on device. Choose another file.\n"
    assert "updates" in said.out
    assert ps.Run.load("run.npz").updates == 6
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONUNBUFFERED": ""}
        command = [*MINIPS, *TRAIN.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment, text=True, timeout=60)
    words = "Standard output cannot be written: no space left on device. Choose another file."
    assert (done.returncode, done.stderr) == (1, f"minips: {words}\n")


def test_a_run_that_diverged_is_written_and_3(folder, capsys):
    assert status(f"{TRAIN} --optimizer sgd:lr=1e38 --save run.npz --json run.json") == 3
    said = capsys.readouterr()
    assert said.out.startswith("diverged")
    assert said.err == "The run is saved in run.npz.\n"
    assert ps.Run.load("run.npz").diverged == json.loads((folder / "run.json").read_text())["diverged"]


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt("it was interrupted"), 130, "Stopped by Ctrl-C; everything that was started has ended."),
        (cli.Terminated(), 143, "Stopped by SIGTERM; everything that was started has ended."),
        (RuntimeError("worker 0 failed: ValueError: no"), 1, "minips: worker 0 failed: ValueError: no"),
    ],
    ids=["Ctrl-C", "SIGTERM", "failure"],
)
def test_a_run_that_ended_early_is_written_as_far_as_it_got(error, code, sentence, folder, capsys, monkeypatch):
    def stopped(problem, config, **options):
        error.run = real(problem, config, engine="threads", stop=lambda: True)
        raise error

    real = engine.train
    monkeypatch.setattr(engine, "train", stopped)
    files = "--save run.npz --json run.json --trace trace.json"
    assert status(f"{TRAIN} --steps 1000 {files}") == code
    said = capsys.readouterr()
    updates = ps.Run.load("run.npz").updates
    assert said.err.splitlines() == [
        f"The run was stopped after {updates} of 2000 updates.",
        "The run is saved in run.npz; --resume run.npz continues it.",
        sentence,
    ]
    assert f"{updates} (stopped)" in said.out
    assert json.loads((folder / "run.json").read_text())["updates"] == updates
    assert "traceEvents" in json.loads((folder / "trace.json").read_text())


def test_an_interrupt_without_a_run_writes_nothing(folder, capsys, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "train", stopped)
    assert status(f"{TRAIN} --save run.npz") == 130
    assert capsys.readouterr().err == "Stopped by Ctrl-C; everything that was started has ended.\n"
    assert not (folder / "run.npz").exists()


def closed_pipe(command, unbuffered="", both=False):
    """A command that is done, whose standard output nobody reads."""
    source, sink = os.pipe()
    os.close(source)
    try:
        return subprocess.run(
            [*MINIPS, *command.split()],
            stdout=sink,
            stderr=sink if both else subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            text=True,
            timeout=60,
        )
    finally:
        os.close(sink)


@pytest.mark.parametrize("command", ["stages", "stages --json", "--help", TRAIN, "doctor"])
def test_a_closed_pipe_is_silent_and_141(command):
    done = closed_pipe(command)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", ["stages", TRAIN])
def test_a_closed_pipe_without_a_buffer_is_silent_and_141(command):
    done = closed_pipe(command, unbuffered="1")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", ["stages", f"{TRAIN} --config nope.json"])
def test_both_streams_into_one_closed_pipe_are_141(command):
    assert closed_pipe(command, both=True).returncode == 141


def test_a_closed_pipe_does_not_cost_the_saved_run(folder):
    assert closed_pipe(f"{TRAIN} --save run.npz --json -").returncode == 141
    assert ps.Run.load("run.npz").updates == 6


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "train --transport inproc",
            "--engine: Processes() cannot use InProc(), which does not reach beyond one process. Use",
        ),
        (
            "train --transport pipe --engine hosts",
            "--engine: Only a network joins Hosts; got transport=Pipe(",
        ),
        ("serve --transport inproc", "InProc() does not reach beyond one process, but servers"),
        ("work --connect inproc://x", "InProc() does not reach beyond one process, but servers"),
        (
            "status inproc://x",
            "InProc() does not reach beyond one process, but servers and workers by hand are separate processes.",
        ),
    ],
)
def test_a_transport_that_does_not_reach_is_a_wrong_value(command, said, monkeypatch, capsys):
    monkeypatch.setenv("MINIPS_TOKEN", "secret")
    assert status(f"{command} --data synthetic" if command[:6] != "status" else command) == 2
    assert said in capsys.readouterr().err
