"""How processes of a run are started: one that forks into all, or each by itself; what is told where that fails."""

import errno
import os
import signal
import sys
from pathlib import Path

import misfits
import multiprocess
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
