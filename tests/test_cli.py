"""The command line, as a person types it."""

import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import types
import urllib.request
from importlib.util import find_spec

import psutil
import pytest

import minips as ps
from minips import cli, demo
from minips.lab.course import jupyter, state

SHORT_TRAINING = ["--data", "synthetic", "--engine", "threads", "--transport", "inproc", "--steps", "3"]
MINIPS = [sys.executable, "-m", "minips"]
LONG = 300 * "x"
"""A name that no file can have."""


def test_ctrl_c_ends_the_demo_with_one_sentence_and_no_process_left():
    demo = subprocess.Popen(
        [*MINIPS, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        children = wait_for_children(demo.pid, 5)
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: to the children too
        out, error = demo.communicate(timeout=30)
    finally:
        demo.kill()
    assert demo.returncode == 130
    assert error.strip().splitlines()[-1].startswith("Stopped by Ctrl-C")
    assert "Traceback" not in out + error
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_sigterm_ends_a_run_with_one_sentence_and_no_process_left():
    command = [*MINIPS, "train", "--data", "synthetic", "--steps", "1000000", "--workers", "2"]
    train = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        children = wait_for_children(train.pid, 3)
        train.terminate()
        out, error = train.communicate(timeout=30)
    finally:
        train.kill()
    assert (train.returncode, "(stopped)" in out) == (143, True)
    assert error.endswith(" of 2000000 updates.\nStopped by SIGTERM; everything that was started has ended.\n")
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_evaluations_are_printed_and_kept(tmp_path, capsys):
    run, train = str(tmp_path / "run.npz"), ["train", "--engine", "simulated", "--workers", "1", "--every"]
    assert cli.main([*train, "3", "--steps", "6", "--save", run, "--json", "-"]) == 0
    said = capsys.readouterr()
    kept = json.loads(said.out)["evaluations"]
    assert [step for _, step, *_ in kept] == [3, 6]
    for _, step, loss, held_out in kept:
        assert f"Step {step}: training loss {loss:.4f}, validation loss {held_out:.4f}\n" in said.err
    assert cli.main([*train, "4", "--resume", run, "--steps", "12", "--save", run]) == 0
    assert [step for _, step, *_ in ps.Run.load(run).evaluations] == [3, 6, 8, 12]
    assert cli.main([*train, "0"]) == 2
    assert "every is a number of steps, at least 1; got 0." in capsys.readouterr().err


def test_a_run_is_saved_and_resumed(tmp_path, capsys):
    run, straight = str(tmp_path / "run.npz"), str(tmp_path / "straight.npz")
    train = ["train", "--engine", "simulated", "--workers", "2", "--optimizer", "sgd:momentum=0.9"]
    assert cli.main([*train, "--steps", "10", "--save", run]) == 0
    assert cli.main(["train", "--engine", "simulated", "--resume", run, "--steps", "20", "--save", run]) == 0
    assert cli.main([*train, "--steps", "20", "--save", straight]) == 0
    whole, resumed = ps.Run.load(straight), ps.Run.load(run)
    assert (resumed.params["W"] == whole.params["W"]).all()
    assert resumed.config == whole.config
    capsys.readouterr()
    assert cli.main(["train", "--engine", "simulated", "--resume", run]) == 2
    assert "has applied 40 updates, and the config makes 40 in all" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--trace", "--save"])
def test_a_file_without_a_folder_is_refused_before_the_training(option, capsys):
    assert cli.main(["train", "--data", "synthetic", "--steps", "1000000", option, "/nonexistent/x"]) == 2
    assert capsys.readouterr().err == (
        "minips: There is no folder /nonexistent for /nonexistent/x. Make it, or choose another.\n"
    )


@pytest.mark.parametrize(
    "command", ["train --save", "train --json", "train --trace", "serve --token-file x --save", "demo --json"]
)
def test_a_folder_is_no_file_to_write_to_as_is_said_before_the_training(command, tmp_path, capsys):
    assert cli.main([*command.split(), str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"minips: {tmp_path} is a folder. Name a file in it.\n"


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_a_file_that_cannot_be_written_does_not_cost_the_saved_run(option, tmp_path, capsys):
    run = tmp_path / "run.npz"
    train = "train --data synthetic --engine threads --transport inproc --steps 3"
    assert cli.main([*train.split(), option, LONG, "--save", str(run)]) == 1
    said = capsys.readouterr()
    assert f"minips: {LONG} cannot be written: file name too long. Choose another file.\n" in said.err
    assert ps.Run.load(run).updates == 12
    assert "updates" in said.out


def test_the_demo_shows_its_table_where_its_rows_cannot_be_written(monkeypatch, capsys):
    monkeypatch.setattr(demo, "demo", lambda console: iter([types.SimpleNamespace(to_dict=dict)]))
    monkeypatch.setattr(demo, "table", lambda rows: f"the table of {len(rows)} row")
    assert cli.main(["demo", "--json", LONG]) == 1
    assert capsys.readouterr().out == "the table of 1 row\n"


@pytest.mark.parametrize("command", [["stages"], ["train", "--help"], ["train", "--engine", "θ"]], ids=" ".join)
def test_a_terminal_that_knows_ascii_alone_is_written_to(command):
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*MINIPS, *command], capture_output=True, env=ascii_only, timeout=60)
    assert b"codec can't encode" not in done.stdout + done.stderr
    assert done.returncode == (2 if "θ" in command else 0)
    assert (done.stdout + done.stderr).decode("ascii")


def test_a_closed_stderr_is_no_reason_to_fail():
    line = f"{' '.join(MINIPS)} train --data synthetic --engine threads --transport inproc --steps 3 2>&-"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "updates" in done.stdout) == (0, True)


def wait_for_children(pid: int, count: int) -> list[psutil.Process]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        children = psutil.Process(pid).children(recursive=True)
        if len(children) >= count:
            return children
        time.sleep(0.05)
    raise AssertionError("the demo started no processes")


def test_train_takes_an_option_for_each_field_of_the_config(tmp_path, capsys):
    run, trace = tmp_path / "run.json", tmp_path / "trace.json"
    arguments = (
        "train --data synthetic --engine threads --transport inproc --quantizer topk:fraction=0.5 "
        "--memory errorfeedback --serializer json --compressor zlib:level=2 --pull-quantizer float16 "
        "--consistency ssp:staleness=1 --workers 2 --servers 2 --steps 5 --batch-size none --accumulate 2 "
        "--overlap true --seed 3 --timeout-s 20 --aggregator median --optimizer adam:lr=0.01 "
        "--link bandwidth_bps=1e9,latency_s=0.0001 --delays seconds=0.0,slow={1:2.0}"
    )
    assert cli.main([*arguments.split(), "--json", str(run), "--trace", str(trace)]) == 0
    assert "updates" in capsys.readouterr().out
    config = ps.Config.from_dict(json.loads(run.read_text())["config"])
    assert config == ps.Config(
        push=ps.Codec(ps.TopK(0.5), ps.ErrorFeedback(), ps.Json(), ps.Zlib(2)),
        pull=ps.Codec(ps.Float16()),
        transport=ps.InProc(),
        aggregator=ps.Median(),
        consistency=ps.SSP(1),
        optimizer=ps.Adam(0.01),
        workers=2,
        servers=2,
        steps=5,
        batch_size=None,
        accumulate=2,
        overlap=True,
        link=ps.Link(1e9, 1e-4),
        delays=ps.Delays(0.0, {1: 2.0}),
        seed=3,
        timeout_s=20.0,
    )
    assert json.loads(trace.read_text())["traceEvents"]
    again = tmp_path / "config.json"
    again.write_text(json.dumps(config.to_dict()))
    assert cli.main(["train", "--data", "synthetic", "--engine", "threads", "--config", str(again), "--seed", "4"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--quantizer topkk", "Did you mean topk?"),
        ("--quantizer topk:fractoin=0.1", "Did you mean fraction?"),
        ("--quantizer topk:fraction=2", "at most 1"),
        ("--quantizer topk:fraction", "Expected field=value"),
        ("--quantizer uniform:bits=many", "--quantizer: Uniform.bits takes an int, got 'many'."),
        ("--pull-memory nothing", "--pull-memory: There is no memory named 'nothing'."),
        ("--optimizer sgd:lr=abc", "--optimizer: SGD.lr takes a float, got 'abc'."),
        ("--delays slow=many", "--delays: Delays.slow takes a dict, got 'many'."),
        ("--engine thread", "Did you mean threads?"),
        ("--workers many", "--workers: Expected a whole number, got 'many'."),
        ("--steps 1e3", "--steps: Expected a whole number, got '1e3'."),
        ("--timeout-s soon", "--timeout-s: Expected a number, got 'soon'."),
        ("--overlap perhaps", "Expected true or false"),
        ("--consistency bsp:backup=4", "needs more than 4 workers"),
        ("--link bandwith_bps=1e6", "Did you mean bandwidth_bps?"),
        ("--config nowhere.json", "nowhere.json"),
        (f"--config {os.devnull}", f"{os.devnull} is not JSON: Expecting value: line 1 column 1 (char 0)."),
        ("--features -5", "features must be at least 1; got -5."),
        ("--features 100000000000000", "Unable to allocate"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_status_2(arguments, words, capsys):
    assert cli.main(["train", "--data", "synthetic", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_stages_lists_every_registered_stage(capsys):
    assert cli.main(["stages"]) == 0
    listed = capsys.readouterr().out
    for kind in ps.kinds():
        assert kind in listed
        for name in ps.names(kind):
            assert name in listed


def test_stages_as_json_can_be_built_again(capsys):
    assert cli.main(["stages", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["name"]) for row in rows] == [
        (kind, name) for kind in ps.kinds() for name in ps.names(kind)
    ]
    for row in rows:
        assert set(row) == {"kind", "name", "class", "fields", "help", "extra", "missing"}
        if not row["missing"]:
            assert ps.build(row["kind"], {"name": row["name"], **row["fields"]}) == ps.build(row["kind"], row["name"])
    topk = next(row for row in rows if row["name"] == "topk")
    assert (topk["class"], topk["fields"], topk["extra"]) == ("TopK", {"fraction": 0.01}, "")


def test_stages_is_a_line_each_in_a_pipe_and_folds_at_spaces_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert cli.main(["stages", "memory"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ps.names("memory")
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main(["stages"]) == 0
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 60
    words = set(narrow.split())
    assert {name for kind in ps.kinds() for name in ps.names(kind)} <= words
    assert {word for line in lines for word in line.split()} <= words


def on_a_terminal(command, columns, monkeypatch):
    """What a terminal of so many columns shows, or a pipe if there are none."""
    monkeypatch.delenv("COLUMNS", raising=False)
    reading, writing = os.openpty() if columns else os.pipe()
    if columns:
        termios.tcsetwinsize(writing, (24, columns))
    shown = []
    with os.fdopen(writing, "w") as terminal, monkeypatch.context() as patched:
        reader = threading.Thread(target=read_to_the_end, args=(reading, shown))
        reader.start()
        patched.setattr(sys, "stdout", terminal)
        patched.setattr(sys, "stderr", terminal)
        with contextlib.suppress(SystemExit):
            cli.main(command)
    reader.join(30)
    os.close(reading)
    return b"".join(shown).decode().replace("\r\n", "\n")


def read_to_the_end(file, shown):
    with contextlib.suppress(OSError):  # of a terminal that nobody holds any longer
        while data := os.read(file, 4096):
            shown.append(data)


@pytest.mark.parametrize(
    "command",
    [
        ["stages"],
        ["train", "--quantizer", "tokp"],
        ["train", "--data", "digist"],
        ["work", "--connect", "tcp://127.0.0.1:1"],
        ["check", "train.99", "notebook.ipynb"],
    ],
    ids=" ".join,
)
def test_a_terminal_is_as_wide_as_each_command_thinks(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIPS_TOKEN", raising=False)
    whole = on_a_terminal(command, None, monkeypatch)
    assert max(map(len, whole.splitlines())) > 80
    for columns in (80, 120):
        lines = on_a_terminal(command, columns, monkeypatch).splitlines()
        assert max(map(len, lines)) <= columns
        assert " ".join(lines).split() == whole.split()


def test_a_summary_goes_on_below_its_second_column(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main(["train", *SHORT_TRAINING, "--quantizer", "topk", "--memory", "errorfeedback"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    (at,) = [i for i, line in enumerate(lines) if line.startswith("push ")]
    assert lines[at].index("TopK") == len(lines[at + 1]) - len(lines[at + 1].lstrip())


@pytest.mark.usefixtures("registry")
def test_stages_shows_a_docstring_as_it_stands(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    @ps.register
    @dataclasses.dataclass(frozen=True)
    class Clip(ps.Exact):
        """Clips to [lo, hi], [bold]not[/b] :b:."""

        name = "clip"
        ends: str = ps.option("[lo]", "the ends")

    assert cli.main(["stages", "quantizer"]) == 0
    said = capsys.readouterr().out
    assert "Clips to [lo, hi], [bold]not[/b] :b:." in said
    assert "ends='[lo]'" in said


def test_doctor_asks_for_nothing_that_is_not_for_this_python(monkeypatch):
    lines = [
        "numpy>=2.0",
        "new>=1.0; (python_version < '3.99') and extra == 'codecs'",
        "old>=1.0; (python_version < '3.11') and extra == 'codecs'",
        'late; python_version>="3.99" and extra == "codecs"',
        'there; python_version>="3.11" and extra == "codecs"',
    ]
    monkeypatch.setattr(cli, "requires", lambda package: lines)
    assert cli._packages() == {"": ["numpy"], "codecs": ["new", "there"]}


def test_doctor_finds_this_machine_ready(capsys, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "processes and ports: work" in said
    assert "extra lab" in said
    assert "extra test" not in said
    assert "extra docs" not in said
    assert said.splitlines()[-1] == "Ready."
    found = "the cluster at 127.0.0.1:1 does not answer"
    assert f"engine ray: {found if find_spec('ray') else 'ray missing; pip install'}" in said


def test_doctor_says_what_is_missing_and_fits_the_terminal(capsys, monkeypatch):
    def calibrate(config):
        raise RuntimeError("no process can be started")

    monkeypatch.setattr(ps.cost, "calibrate", calibrate)
    monkeypatch.setattr(cli, "_packages", lambda: {"": ["numpy", "absent"], "lab": ["never"], "test": ["nowhere"]})
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert cli.main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "processes and ports: do not work: no process can be started" in lines
    assert 'extras in part: pip install "minips[lab]"' in lines
    assert lines[-1] == "Not ready: working processes and ports, absent missing."


@pytest.mark.parametrize("command", ["train", "serve"])
def test_help_says_the_syntax_and_the_fields(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10000")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    parts = re.split(r"\n  (?=--)", capsys.readouterr().out)
    said = {part.split()[0]: " ".join(part.split()) for part in parts}
    for option, kind in (("--link", ps.Link), ("--delays", ps.Delays)):
        assert said[option].startswith(f"{option} FIELD=VALUE,…")
        for field in dataclasses.fields(kind):
            assert f"{field.name}=" in said[option]
            assert field.metadata["help"] in said[option]
    assert said["--overlap"].startswith("--overlap true|false")
    assert said["--exchange"].startswith("--exchange STAGE")
    assert "ps, ring, tree, halvingdoubling, twoshot (default PS())" in said["--exchange"]
    assert "for_rows" not in said["--epochs"]


@pytest.mark.parametrize("command", ["train", "serve"])
def test_help_has_the_fields_of_a_config_in_its_groups(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10000")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    titles = "what is sent:", "who waits and steps:", "the machine:"
    _, *sections = re.split("|".join(f"\n{title}\n" for title in titles), capsys.readouterr().out)
    options = (re.findall(r"^  --([\w-]+)", section, re.MULTILINE) for section in sections)
    found = dict(zip(titles, options, strict=True))
    assert found["what is sent:"] == [
        *("quantizer", "memory", "serializer", "compressor"),
        *("pull-quantizer", "pull-memory", "pull-serializer", "pull-compressor"),
        *("exchange", "transport"),
    ]
    others = {name.replace("-", "_") for title in titles[1:] for name in found[title]}
    assert others == {field.name for field in dataclasses.fields(ps.Config)} - {"push", "pull", "exchange", "transport"}
    assert {"consistency", "steps", "local"} <= {*found["who waits and steps:"]}
    assert {"workers", "link", "timeout-s"} <= {*found["the machine:"]}


def test_a_stage_within_a_stage_is_typed(tmp_path, capsys):
    run = tmp_path / "run.json"
    typed = "--engine simulated:topology=star(bandwidth_bps=1e6) --optimizer sgd:lr=0.3,schedule=cosine(steps=20)"
    command = f"train --data synthetic --workers 2 --steps 3 {typed} --json {run}"
    assert cli.main(command.split()) == 0
    got = json.loads(run.read_text())
    config = ps.Config.from_dict(got["config"])
    assert config.optimizer == ps.SGD(lr=0.3, schedule=ps.Cosine(steps=20))
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))
    assert got["seconds"] == ps.train(problem, config, engine=ps.Simulated(ps.cost.Star(bandwidth_bps=1e6))).seconds


@pytest.mark.parametrize("command", ["train", "demo"])
def test_json_to_standard_output_leaves_the_words_to_the_other_stream(command, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "demo", lambda console: iter([types.SimpleNamespace(to_dict=dict)]))
    monkeypatch.setattr(demo, "table", lambda rows: f"{len(rows)} updates")
    monkeypatch.setattr(demo, "verdict", lambda rows: "the verdict")
    train = ["--data", "synthetic", "--engine", "threads", "--transport", "inproc", "--steps", "3"]
    assert cli.main([command, *(train if command == "train" else ()), "--json", "-"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)
    assert "updates" in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_lab_copies_the_lessons_and_opens_the_start_page_one_server_for_a_folder(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "JUPYTER_NO_CONFIG": "1"}
    command = [*MINIPS, "lab", "mine", "--no-browser", "--allow-root"]
    options = {"env": environment, "cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **options, stdin=subprocess.DEVNULL) as server:
        try:
            said = until(server, "?token=")
            last = said.splitlines()[-1]
            assert re.fullmatch(r"http://localhost:\d+/lab/tree/START.ipynb\?token=\w+", last)
            assert f"The lessons are in {tmp_path / 'mine'}." in said
            assert "ServerApp]" not in said
            assert (tmp_path / "mine" / "00_train_in_a_minute.ipynb").exists()
            assert (tmp_path / "mine" / "START.ipynb").exists()
            with urllib.request.urlopen(last, timeout=30) as answer:  # at once
                assert answer.status == 200
            again = subprocess.run(command, **options, timeout=60)
            assert again.returncode == 0
            assert "JupyterLab runs on this folder already: http://localhost:" in again.stderr
            server.send_signal(signal.SIGINT)  # once
            server.communicate(timeout=30)
            assert server.returncode == 0
        finally:
            server.kill()


@pytest.mark.soak
def test_a_start_of_lab_that_fails_shows_why_and_no_address(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [*MINIPS, "lab", "mine", "--no-browser", "--allow-root", "--ServerApp.ip=203.0.113.9"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "OSError: " in done.stderr.splitlines()[-1]
    assert "token=" not in done.stderr


def until(server, words):
    said = ""
    for line in server.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "x.py"], "--option=value or one of --no-browser, --allow-root, --debug; got '--config'"),
        (["file"], "The lessons cannot be copied to the folder file: file exists. Name another folder."),
        (["file/below"], "The lessons cannot be copied to the folder file/below: not a directory."),
        (["new", "--port", "TAKEN"], "cannot be used: address already in use. Choose another one"),
        (["new", "--port", "70000"], "Expected a port from 0 to 65535; got 70000"),
    ],
)
def test_lab_says_in_a_sentence_what_is_wrong(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("JupyterLab was started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert cli.main(["lab", *(port if word == "TAKEN" else word for word in arguments)]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said.splitlines()[-1]
    assert "Errno" not in said


def test_a_port_that_needs_a_right_is_not_called_taken(monkeypatch):
    def bind(self, address):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(jupyter.socket.socket, "bind", bind)
    with pytest.raises(OSError, match=r"Port 80 cannot be used: permission denied\. Choose another one"):
        jupyter.free_port(80)


@pytest.fixture
def learner(tmp_path, monkeypatch):
    """One who has done an exercise."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    assert state.note("exercise", "train.1") == ""
    return state.facts()


def test_lab_forgets_progress_when_told_to_and_says_where_there_is_none(learner, tmp_path, capsys):
    assert cli.main(["lab", "--reset", "--yes"]) == 0
    kept = tmp_path / "minips" / "progress-1.jsonl"
    assert capsys.readouterr().out == f"Your progress begins anew. Your old notes are kept in {kept}.\n"
    assert state.facts() == []
    assert [json.loads(line) for line in kept.read_text().splitlines()] == learner
    assert cli.main(["lab", "--reset"]) == 0
    assert capsys.readouterr().out.startswith("Nothing to forget")


def test_lab_forgets_nothing_where_nobody_can_be_asked(learner, monkeypatch, capsys):
    for nobody in (io.StringIO("y\n"), None):
        monkeypatch.setattr(sys, "stdin", nobody)
        assert cli.main(["lab", "--reset"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"minips: --reset forgets your progress in {state.state_file()}, but cannot ask")
        assert said.endswith("Add --yes to do it.\n")
        assert state.facts() == learner


@pytest.mark.parametrize("answer", ["y", "Yes", "n", "", "never", None])
def test_lab_asks_at_a_terminal_before_it_forgets(answer, learner, tmp_path):
    terminal, end = os.openpty()
    with os.fdopen(terminal, "r+b", buffering=0) as keys, os.fdopen(end, "rb") as there:
        keys.write(b"\x04" if answer is None else f"{answer}\n".encode())  # Ctrl-D
        done = subprocess.run([*MINIPS, "lab", "--reset"], stdin=there, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"Forget your progress in {state.state_file()}? A copy is kept. [y/N] ")
    sure = answer in ("y", "Yes")
    assert ("Your progress begins anew" if sure else "Nothing was forgotten.") in done.stdout
    assert (done.returncode, state.facts()) == (0, [] if sure else learner)


def test_lab_names_the_options_of_jupyterlab_that_are_asked_for(capsys):
    with pytest.raises(SystemExit):
        cli.main(["lab", "--help"])
    said = capsys.readouterr().out
    assert "--allow-root" in said
    assert "--no-browser" in said


@pytest.mark.parametrize(
    ("user", "options", "setting", "starts"),
    [
        (0, (), "", False),
        (0, (), "c.ServerApp.allow_root = True", True),
        (0, ("--allow-root",), "", True),
        (0, ("--ServerApp.allow_root=True",), "", True),
        (0, ("--ServerApp.allow_root=False",), "c.ServerApp.allow_root = True", False),
        (1, (), "", True),
    ],
)
def test_root_is_told_how_jupyterlab_starts_and_no_server_is_started_that_fails(
    user, options, setting, starts, monkeypatch, capsys, tmp_path
):
    started = []
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(jupyter, "running", lambda folder: None)
    monkeypatch.setenv("JUPYTER_TOKEN", "secret")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "")
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "jupyter_server_config.py").write_text(setting)
    assert cli.main(["lab", str(tmp_path / "mine"), *options]) == (0 if starts else 1)
    said = capsys.readouterr().err
    assert len(started) == starts
    assert said.endswith("JupyterLab starts. Ctrl-C ends it.\n" if starts else "only with --allow-root.\n")
    assert ("minips: You are root. " in said) != starts
