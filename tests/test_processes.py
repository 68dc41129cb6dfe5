"""How processes of a run are started: one that forks into all, or each by itself; what is told where that fails."""

import atexit
import errno
import multiprocessing.util
import os
import signal
import sys
import tempfile
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import misfits
import multiprocess
import multiprocess.util
import numpy as np
import psutil
import pytest

import minips as ps
from minips.engines import processes
from minips.engines.supervisor import Supervisor
from minips.lab.measure import pairs

CONFIG = ps.Config(workers=3, servers=2, steps=5, batch_size=8)
PROBLEM = ps.LinearRegression(*misfits.rows())
forks = pytest.mark.skipif(not processes.FORKS, reason="processes that have imported NumPy do not fork here")


@pytest.mark.soak
@forks
def test_forked_or_started_each_by_itself_a_run_is_the_same_to_the_bit(monkeypatch):
    forked = ps.train(PROBLEM, CONFIG)
    monkeypatch.setattr(processes, "FORKS", False)
    started = ps.train(PROBLEM, CONFIG)
    assert [loss for _, _, loss in started.losses] == [loss for _, _, loss in forked.losses]
    for name, p in forked.params.items():
        assert p.tobytes() == started.params[name].tobytes()


class Introduces(ps.LinearRegression):
    """Each worker says its process's name and draws a number without a generator of its own."""

    def loss_and_gradient(self, params, rows=None):
        print(multiprocess.current_process().name, np.random.random())
        if sys.platform == "linux":
            print("called", Path("/proc/self/comm").read_text(), end="")
        return super().loss_and_gradient(params, rows)


def test_each_process_has_its_name_and_its_own_draws():
    run = ps.train(Introduces(*misfits.rows()), ps.Config(workers=3, steps=1))
    called = sorted(text for _, text in run.events if "called" in text)
    assert called == [f"worker {i}: called minips-worker{i}" for i in range(3) if sys.platform == "linux"]
    said = sorted(text.split() for _, text in run.events if "called" not in text)
    assert [words[:4] for words in said] == [["worker", f"{i}:", "minips-worker", f"{i}"] for i in range(3)]
    assert len({words[4] for words in said}) == 3


@forks
def test_a_run_goes_on_without_the_process_that_its_members_were_forked_from():
    killed = []

    def kill(progress):
        if progress.applied and not killed:
            (server,) = (c for c in psutil.Process().children() if "spawn_main" in " ".join(c.cmdline()))
            server.kill()
            killed.append(server)

    config = ps.Config(workers=2, steps=30, delays=ps.Delays(0.02))
    run = ps.train(PROBLEM, config, progress=kill)
    assert killed
    assert run.updates == 60


@forks
def test_a_fork_that_fails_is_told(monkeypatch):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    here, there = multiprocess.Pipe()
    report, told = multiprocess.Pipe(duplex=False)
    with here, report:
        with told:
            processes._serve_forks(told, ["worker 0"], [there])
        word, (text, _) = here.recv()
        assert (word, text) == ("failed", "BlockingIOError: [Errno 11] Resource temporarily unavailable")
        with pytest.raises(EOFError):
            report.recv()


def test_where_nothing_can_be_started_nothing_is_left(monkeypatch):
    monkeypatch.setattr(multiprocess.spawn, "_python_exe", b"/no/such/python")
    with pytest.raises(RuntimeError, match="'/no/such/python', which should be Python, cannot be run"):
        ps.train(PROBLEM, CONFIG)


def test_where_a_process_dies_as_it_starts_nothing_is_left(monkeypatch):
    def start(process):
        raise BrokenPipeError

    monkeypatch.setattr(multiprocess.context.SpawnProcess, "start", start)
    with pytest.raises(RuntimeError, match="ended before its work was done: it did not even start"):
        ps.train(PROBLEM, CONFIG)


@pytest.mark.skipif(not hasattr(os, "readv"), reason="briefings come in parts on POSIX alone")
@pytest.mark.parametrize("sent", [0, 1])
def test_after_ctrl_c_within_a_briefing_the_child_leaves_without_a_word(monkeypatch, capfd, sent):
    def interrupted(*message):
        raise KeyboardInterrupt

    with Supervisor(ps.Processes().start) as supervisor:
        (child,) = supervisor.start("the one that hears half of it")
        with monkeypatch.context() as patch:
            patch.setattr(type(child.pipe), ("send_bytes", "send")[sent], interrupted)
            with pytest.raises(KeyboardInterrupt):
                child.assign(pairs.attend, {})
    assert child._process.exitcode == 0
    assert capfd.readouterr().err == ""


class Noted:
    """Writes a file when it is deleted."""

    def __init__(self, file):
        self.file = file

    def __del__(self):
        self.file.touch()


LEFT = []
DONE = ("exit", "thread", "executor", "after", "finalizer", "finalize", "text", "binary", "update", "closed")


def leave_all_to_the_end(folder):
    """Leave work to the end of this process, each with a file that tells of it; once only."""

    def write_after(wait, file):
        wait()
        file.write_text("done")

    if LEFT:
        return
    name = multiprocess.current_process().name
    done = {what: folder / f"{name} {what}" for what in (*DONE, "deleted")}
    atexit.register(done["exit"].write_text, "done")
    soon, ended = partial(time.sleep, 0.3), threading.Event()
    threading.Thread(target=write_after, args=[soon, done["thread"]]).start()
    ThreadPoolExecutor(1).submit(write_after, soon, done["executor"])
    threading.Thread(target=write_after, args=[ended.wait, done["after"]]).start()
    multiprocess.util.Finalize(None, ended.set, exitpriority=1)  # as a pool of this library ends before threads do
    multiprocessing.util.Finalize(None, done["finalizer"].write_text, ["done"], exitpriority=1)
    for what, mode in {"text": "w", "binary": "wb", "update": "w+b", "closed": "w"}.items():
        LEFT.append(done[what].open(mode))
        LEFT[-1].write(b"done" if "b" in mode else "done")
    LEFT[-1].close()
    if Path("/dev/full").exists():
        LEFT.append(Path("/dev/full").open("w"))  # noqa: SIM115
        LEFT[-1].write("no room for this")
    LEFT.append(Noted(done["deleted"]))
    weakref.finalize(LEFT[-1], done["finalize"].write_text, "done")
    sys.__stdout__.write(f"{name} is done")
    LEFT.append(weakref.proxy(set()))
    LEFT.append(tempfile.TemporaryDirectory(dir=folder))


class LeavesAllToTheEnd(ps.LinearRegression):
    """A problem whose workers leave work to the end of their processes."""

    def __init__(self, folder):
        super().__init__(*misfits.rows())
        self.folder = folder

    def loss_and_gradient(self, params, rows=None):
        leave_all_to_the_end(self.folder)
        return super().loss_and_gradient(params, rows)


@dataclass(frozen=True)
class ServerLeavesAllToTheEnd(ps.SGD):
    """An optimizer whose server does so, too."""

    folder: str = ps.option("", "where the server's files belong")

    def step(self, params, grads, state):
        leave_all_to_the_end(Path(self.folder))
        super().step(params, grads, state)


@pytest.mark.parametrize("forked", [pytest.param(True, marks=forks), False], ids=["forked", "spawned"])
def test_what_user_code_leaves_to_the_end_of_its_process_is_done(tmp_path, monkeypatch, capfd, forked):
    monkeypatch.setattr(processes, "FORKS", forked)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    config = ps.Config(workers=2, steps=2, optimizer=ServerLeavesAllToTheEnd(folder=str(tmp_path)))
    ps.train(LeavesAllToTheEnd(tmp_path), config)
    printed = capfd.readouterr().out
    for name in ("minips-worker 0", "minips-worker 1", "minips-server 0"):
        assert f"{name} is done" in printed
        left = {file.name.removeprefix(f"{name} "): file for file in tmp_path.glob(f"{name} *")}
        assert sorted(left) == sorted(DONE)  # so nothing has been "deleted"
        assert {what: file.read_text() for what, file in left.items()} == dict.fromkeys(DONE, "done")
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def end_by(error):
    if error:
        raise error


def test_a_process_ends_with_the_exit_code_of_its_program(capfd):
    ends = {0: None, 1: ValueError("no rows"), 3: SystemExit(3)}
    started = {code: processes._spawn(end_by, "ends", error) for code, error in ends.items()}
    for code, process in started.items():
        process.join(60)
        assert process.exitcode == code
        process.close()
    assert "ValueError: no rows" in capfd.readouterr().err
