"""Hosts that a test makes for itself: network, process and mount namespaces, which need no privileges.

Nothing that runs there reaches another network than its own.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pages

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
    ray["RAY_worker_niceness"] = "0"  # else other programs of the machine come first, and time-outs pass
    return {**os.environ, **ray, "TMPDIR": place, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def on_loopback(*program: str, timeout: float) -> str:
    """The output of a Python program that runs in a network of its own, which is a loopback and nothing else."""
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp", ignore_cleanup_errors=True) as place:
        command = [*ALONE, sys.executable, "-c", LO_UP, sys.executable, *program]
        done = subprocess.run(
            command, env=environment(place), capture_output=True, text=True, timeout=timeout, cwd=ROOT
        )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def commands(word: str, address: str) -> list[str]:
    """The commands of the block of docs/clusters.md that has this word, at this address in place of the page's."""
    blocks = pages.blocks("docs/clusters.md", "sh")
    (block,) = (one.replace("\\\n", "").replace("10.0.0.1", address) for one in blocks if word in one)
    return [line.partition("#")[0].rstrip() for line in block.splitlines()]


IDLE = ["sleep", "infinity"]


class Host:
    """A host. Its network outlives `kill`, which ends all of its processes at once, and `start`."""

    def __init__(self, land: int, number: int) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="m", dir="/tmp", ignore_cleanup_errors=True)
        self.address, self.place = f"10.77.0.{number}", Path(self._place.name)
        self._holder = subprocess.Popen([*entering(land), "unshare", "--net", *IDLE])
        self.network, self._unplugged = child_of(self._holder.pid), False
        self.start()

    def start(self) -> None:
        command = ["unshare", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child", *IDLE]
        self._host = subprocess.Popen([*entering(self.network), *command], stderr=subprocess.DEVNULL)
        self.init = child_of(child_of(self._host.pid, "unshare"))
        self.run("mount", "-t", "tmpfs", "shm", "/dev/shm")
        if self._unplugged:
            self.run("ip", "link", "set", "eth0", "up")
        (self.place / "t").mkdir(exist_ok=True)

    def popen(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        given = {**environment(str(self.place)), "TMPDIR": str(self.place / "t")}
        return subprocess.Popen([*entering(self.init), *command], env=given, cwd=ROOT, text=True, **options)

    def run(self, *command: str, timeout: float = 120, check: bool = True) -> str:
        """The output of a program on this host; AssertionError with its errors unless it ends well."""
        with self.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            try:
                output, errors = program.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                program.kill()
                raise
        assert not check or program.returncode == 0, (command, output[-3000:], errors[-3000:])
        return output + ("" if check else errors)

    def in_shell(self, command: str) -> tuple[str, ...]:
        """The program that carries out a command of the page in this host's place."""
        python = shlex.quote(sys.executable)
        known = f'minips() {{ {python} -m minips "$@"; }}; ray() {{ {python} -m ray.scripts.scripts "$@"; }}'
        return ("sh", "-ec", f"{known}; cd {self.place}; {command}")

    def python(self, *arguments: str, timeout: float = 120, check: bool = True) -> str:
        return self.run(sys.executable, *arguments, timeout=timeout, check=check)

    def ray_start(self, head: "Host") -> None:
        """Join the cluster of this head by the page's command; begin it, where that is this host."""
        command = commands("ray start", head.address)[self is not head]
        options = "--num-cpus 3 --disable-usage-stats" + " --include-dashboard false" * (self is head)
        self.run(*self.in_shell(f"{command} {options}"))

    def actors(self) -> list[str]:
        """The processes of minips' actors, and the files that they could have left."""
        listed = self.run("ps", "-eo", "pid,args").splitlines()
        files = [str(one) for one in (self.place / "t").iterdir()]
        return [line for line in listed if "ray::Actor" in line] + files

    def kill(self, unplug: bool = False) -> None:
        """End all processes; ``unplug`` so that not even the end of its connections is told."""
        self._unplugged = unplug
        if unplug:
            self.run("ip", "link", "set", "eth0", "down")
        os.kill(self.init, signal.SIGKILL)
        self._host.wait(20)

    def close(self) -> None:
        for process in (self._host, self._holder):
            process.kill()
            process.wait(20)
        self._place.cleanup()


@contextmanager
def joined(count: int) -> Iterator[list[Host]]:
    """Hosts that a switch joins, and nothing else."""
    with ExitStack() as stack:
        land = stack.enter_context(subprocess.Popen([*ALONE, *IDLE]))
        stack.callback(land.kill)  # and with it all that lives there
        inner, hosts = child_of(land.pid), []

        def ip_link(*words: str) -> None:
            subprocess.run([*entering(inner), "ip", "link", *words], check=True, timeout=20)

        ip_link("add", "switch", "up", "type", "bridge")
        for number in range(1, count + 1):
            host = Host(inner, number)
            stack.callback(host.close)
            hosts.append(host)
            there, port = str(pid_there(host.network)), f"port{number}"
            ip_link("add", port, "up", "master", "switch", "type", "veth", "peer", "name", "eth0", "netns", there)
            host.run("ip", "link", "set", "lo", "up")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
        yield hosts


def entering(pid: int) -> list[str]:
    """The command that runs another one where this process is."""
    return ["nsenter", "--target", str(pid), "--user", "--net", "--pid", "--mount", "--preserve-credentials"]


def child_of(pid: int, name: str = "sleep") -> int:
    """The process that this one has started, once it runs the program of this name: in its own namespaces by then."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == name:
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError(f"process {pid} has started none")


def pid_there(pid: int) -> int:
    """The process's number in the outermost of the namespaces that were made."""
    (line,) = (one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("NSpid:"))
    return int(line.split()[2])
