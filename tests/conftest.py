"""What every test must leave behind: nothing. Who runs alone. And a registry to experiment with."""

import contextlib
import gc
import multiprocessing
import multiprocessing.resource_tracker
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import multiprocess
import multiprocess.resource_tracker
import psutil
import pytest
from sizes import pytest_terminal_summary  # noqa: F401  # a hook, by its name

from minips import stage

try:
    import fcntl
except ImportError:  # Windows, where two such tests may disturb each other
    fcntl = None

GRACE_S = 2.0
SHM = Path("/dev/shm")
FD = Path("/proc/self/fd")
os.environ.pop("COLUMNS", None)  # readline gives it to its children, if anything has imported that
TRACKERS = (multiprocessing.resource_tracker, multiprocess.resource_tracker)
"""Each has one process for the whole test run, on purpose."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A campaign that is a soak test by its module, too, does not run with ``-m soak``."""
    chosen = config.option.markexpr
    if chosen and "campaign" not in chosen:
        left = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process, a thread, a socket, a file or shared memory; ``outside`` tests may."""
    if request.node.get_closest_marker("outside"):
        yield
        return
    before = held()
    yield
    deadline = time.monotonic() + GRACE_S
    while (left := held() - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    left = {one for one in left if not one.startswith(str(SHM)) or not in_use_elsewhere(one)}
    assert not left, f"This test left behind: {', '.join(sorted(left))}."


@pytest.fixture(scope="session")
def turns() -> Iterator[TextIO]:
    """A file that all processes of a test run lock."""
    with Path(__file__).open() as file:
        yield file


@pytest.fixture(autouse=True)
def alone_or_beside(request: pytest.FixtureRequest, turns: TextIO) -> Iterator[None]:
    """While an ``alone`` test runs, the other processes of the test run wait before their next test."""
    if fcntl is None:
        yield
        return
    fcntl.flock(turns, fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH)
    yield
    fcntl.flock(turns, fcntl.LOCK_UN)


@pytest.fixture(autouse=True)
def calibrated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No calibration is repeated because the tests beside keep the machine busy."""
    if module := sys.modules.get("minips.cost.calibrate"):
        monkeypatch.setattr(module, "ATTEMPTS", 1)


@pytest.fixture
def registry() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    before = {kind: dict(classes) for kind, classes in stage._KINDS.items()}
    yield
    stage._KINDS.clear()
    stage._KINDS.update(before)


@pytest.fixture
def somebody_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner who has done nothing yet: predictions wait, and what is done is noted in the test's own folder."""
    from minips.lab.course import predictions

    monkeypatch.delenv("MINIPS_AUTOPLAY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(predictions, "_kept", {})


def held() -> set[str]:
    """In words, all that this process holds and that a test could leave behind."""
    return {*processes(), *threads(), *descriptors(), *map(str, SHM.glob("*"))}


def processes() -> Iterator[str]:
    multiprocessing.active_children()  # reaps those that have ended
    multiprocess.active_children()
    for child in psutil.Process().children(recursive=True) if has_children() else []:
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(child.cmdline()) or child.name()
            if "resource_tracker" not in command:  # one for the whole test run, on purpose
                yield f"process {child.pid} ({command[:100]})"


def has_children() -> bool:
    """Whether the kernel lists children of this process, trackers apart; true where it has no such list.

    This costs microseconds, and a look at all the machine's processes milliseconds, twice for each test.
    """
    lists = [*Path("/proc/self/task").glob("*/children")]
    try:
        children = {pid for one in lists for pid in one.read_text().split()}
    except OSError:  # a thread that has just ended
        return True
    return not lists or bool(children - {str(tracker._resource_tracker._pid) for tracker in TRACKERS})


def threads() -> Iterator[str]:
    for thread in threading.enumerate():
        if not thread.daemon or thread.name.startswith("minips-"):
            yield f"thread {thread.name} ({thread.ident})"


def descriptors() -> Iterator[str]:
    """Sockets, pipes and files by name.

    A library's event counters (anon_inode) are its own affair, and so are the fonts that matplotlib keeps open.
    """
    of_trackers = {str(tracker._resource_tracker._fd) for tracker in TRACKERS}
    for number in os.listdir(FD) if FD.exists() else []:
        with contextlib.suppress(OSError):
            target = os.readlink(FD / number)
            ordinary = target.startswith(("anon_inode:", "/dev/null", "/dev/urandom", "/proc/")) or target.endswith(
                ".ttf"
            )
            if not ordinary and number not in of_trackers:
                yield f"descriptor of {target}"


def in_use_elsewhere(segment: str) -> bool:
    """True where a process that is not of this test run uses the shared memory: another run's, on the same machine.

    It is known by its inode, as the process that makes a semaphore maps it under another name.
    """
    try:
        mapped = re.compile(rf" {os.stat(segment).st_ino} +{SHM}/")
    except FileNotFoundError:
        return True
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for process in psutil.process_iter():
        if process.pid not in ours:
            with contextlib.suppress(OSError):
                if mapped.search(Path(f"/proc/{process.pid}/maps").read_text()):
                    return True
    return not Path(segment).exists()
