"""Hosts that a test makes for itself: network, process and mount namespaces, which need no privileges.

Nothing that runs there reaches another network than its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LO_UP = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
os.execv(sys.argv[1], sys.argv[1:])
"""
ALONE = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]


@cache
def lacking() -> str:
    """Why hosts cannot be made here; empty where they can."""
    if not shutil.which("unshare"):
        return "there is no unshare"
    done = subprocess.run([*ALONE, "true"], capture_output=True, text=True, timeout=20)
    return done.stderr.strip()


def environment(place: str) -> dict[str, str]:
    """The environment of a program that may start Ray, whose files go to this place."""
    ray = {"RAY_TMPDIR": place, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "42" * 32, "RAY_USAGE_STATS_ENABLED": "0"}
    return {**os.environ, **ray, "TMPDIR": place, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def on_loopback(*program: str, timeout: float) -> str:
    """The output of a Python program that runs in a network of its own, which is a loopback and nothing else."""
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp", ignore_cleanup_errors=True) as place:
        command = [*ALONE, sys.executable, "-c", LO_UP, sys.executable, *program]
        done = subprocess.run(command, env=environment(place), capture_output=True, text=True, timeout=timeout, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout
