"""With what only POSIX systems have taken away in every process, as it is on Windows, runs come to the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SITE = """
import os
import signal
import socket
import sys

import psutil  # which joblib loads, and which takes the system at its word

for method in ("sendmsg", "recvmsg", "recvmsg_into"):
    setattr(socket.socket, method, property(lambda self, method=method: object.__getattribute__(self, "no " + method)))
unix = socket.AF_UNIX
original = socket.socketpair
socket.socketpair = lambda family=unix, *rest: original(family, *rest)  # the standard library's own process start
for owner, names in (
    (socket, ("SO_RCVTIMEO", "SO_SNDTIMEO", "MSG_WAITALL", "AF_UNIX", "CMSG_SPACE", "SCM_RIGHTS")),
    (signal, ("pthread_sigmask", "SIGKILL")),
    (os, ("memfd_create", "sched_getaffinity", "fork")),
):
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
sys.modules["fcntl"] = None
"""
PROGRAM = """
import hashlib
import sys
import minips as ps

if __name__ == "__main__":
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=96, features=5000, classes=4))
    config = ps.Config(workers=3, servers=2, steps=8, batch_size=8, transport=sys.argv[2], consistency="bsp")
    run = ps.train(problem, config, engine=sys.argv[1])
    print(hashlib.sha256(b"".join(run.params[name].tobytes() for name in sorted(run.params))).hexdigest())
"""


def outcome(command: list[str], site: Path | None, cwd: Path) -> str:
    surroundings = {**os.environ, **({"PYTHONPATH": str(site)} if site else {})}
    done = subprocess.run(command, cwd=cwd, env=surroundings, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE)
    (tmp_path / "program.py").write_text(PROGRAM)
    return folder


def test_the_calls_are_really_gone(site: Path, tmp_path: Path) -> None:
    words = (
        "import os, socket; print(hasattr(socket.socket(), 'sendmsg'), hasattr(socket, 'AF_UNIX'), hasattr(os, 'fork'))"
    )
    assert outcome([sys.executable, "-c", words], site, tmp_path) == "False False False\n"
    assert outcome([sys.executable, "-c", words], None, tmp_path) == "True True True\n"


SOAK = pytest.mark.soak


@pytest.mark.parametrize("transport", [pytest.param("tcp", marks=SOAK), "pipe", pytest.param("inproc", marks=SOAK)])
@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=SOAK)])
def test_without_posix_calls_a_run_comes_to_the_same_bits(
    engine: str, transport: str, site: Path, tmp_path: Path
) -> None:
    if (engine, transport) == ("processes", "inproc"):
        pytest.skip("inproc is for the threads of one process")
    command = [sys.executable, str(tmp_path / "program.py"), engine, transport]
    assert outcome(command, site, tmp_path) == outcome(command, None, tmp_path)


@pytest.mark.soak
def test_without_posix_calls_the_doctor_has_no_other_words(site: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minips", "doctor"]
    assert "cores" in outcome(command, site, tmp_path)


@pytest.mark.campaign
def test_without_posix_calls_the_demo_ends_well(site: Path, tmp_path: Path) -> None:
    said = " ".join(outcome([sys.executable, "-m", "minips", "demo"], site, tmp_path).split())  # which is wrapped
    assert "were off by at most" in said or "Run it again on a quiet machine" in said
