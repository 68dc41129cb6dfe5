"""A run by hand whose servers and workers are killed with SIGKILL and started again by the same commands."""

import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import numpy as np

import minips as ps
from minips import seeds
from minips.core.codec import Decoder, unpack
from minips.core.journal import from_frames
from minips.core.partition import cut, join, partition
from minips.drivers.journal import Journal
from minips.results import saved

MINIPS = [sys.executable, "-m", "minips"]
WAIT_S, LOOK_S, TOKEN = 60.0, 0.01, "t" * 32
DELAYS = "seconds=0.003"
"""A step's time, so that a kill strikes while the run is under way."""


def free_port() -> int:
    """A port that is free, with the next one, and that the system gives to no client."""
    draw = random.Random(f"{os.getpid()} {time.monotonic()}")
    while True:
        port = draw.randrange(10_000, 32_000)
        with closing(socket.socket()) as one, closing(socket.socket()) as next_one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            next_one.bind(("127.0.0.1", port + 1))
            return port


class RunByHand:
    """Servers in processes; workers in processes of their own or, with ``threads``, in threads of this one.

    ``fields`` are the config's, as on the command line. Every command is the same whenever it is started.
    """

    def __init__(self, folder: Path, fields: dict[str, str], threads: bool = False, every: int = 20) -> None:
        self.folder, self.threads, self.fields = folder, threads, {"workers": "2", "steps": "200", **fields}
        self.workers, self.servers = int(self.fields["workers"]), int(self.fields.get("servers", "1"))
        scheme, port = (
            {"shared": "shm"}.get(fields.get("transport", "tcp"), fields.get("transport", "tcp")),
            free_port(),
        )
        places = [f"{scheme}://127.0.0.1:{port + i}" for i in range(self.servers)]
        if scheme == "shm":
            places = [f"shm://minips-test-{port + i}" for i in range(self.servers)]
        self.addresses = places
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        config = [word for name, value in self.fields.items() for word in (f"--{name}", value)]
        self.commands: dict[str, list[str]] = {}
        for i, place in enumerate(places):
            kept = ["--checkpoint", str(folder / "run"), "--checkpoint-every", str(every)]
            index = ["--index", str(i)] if self.servers > 1 else []
            save = ["--save", str(folder / f"server-{i}.npz"), "--delays", DELAYS]
            where = ["--bind", place, "--token-file", str(folder / "token"), *index]
            self.commands[f"server {i}"] = [*MINIPS, "serve", *where, *kept, *save, *config]
        for i in range(0 if threads else self.workers):
            session = ["--rank", str(i), "--session", str(folder / f"session-{i}")]
            where = ["--connect", ",".join(places), "--token-file", str(folder / "token")]
            self.commands[f"worker {i}"] = [*MINIPS, "work", *where, *session]
        self.problem = ps.SoftmaxRegression(*ps.datasets.digits())
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.work: dict[int, object] = {}
        self.struck: list[tuple[str, int]] = []

    def __enter__(self) -> "RunByHand":
        self._stack = ExitStack()
        self.start(*self.commands)
        if self.threads:
            self._threads = [threading.Thread(target=self._work, args=(i,)) for i in range(self.workers)]
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(WAIT_S)
        for thread in self._threads if self.threads else ():
            thread.join(WAIT_S)
        self._stack.close()

    def _work(self, worker: int) -> None:
        try:
            self.work[worker] = ps.work(self.problem, self.addresses, token=TOKEN, rank=worker, timeout=WAIT_S)
        except Exception as error:
            self.work[worker] = error

    def start(self, *names: str) -> None:
        """Start these parties by their commands."""
        for who in names:
            log = self._stack.enter_context((self.folder / f"{who}.log").open("ab"))
            self.processes[who] = subprocess.Popen(self.commands[who], stdout=log, stderr=log)

    def clock(self) -> int:
        """The clocks of all the workers at the first server; -1 while it does not answer."""
        with suppress(OSError, ValueError, RuntimeError):
            return ps.status(self.addresses[0], TOKEN, timeout=1.0).applied // self.workers
        return -1

    def kill(self, at: int, *names: str, rng: random.Random | None = None) -> None:
        """Kill these parties once the run has reached a clock, and start them again."""
        deadline = time.monotonic() + WAIT_S
        while (clock := self.clock()) < at:
            assert time.monotonic() < deadline, f"The run did not reach clock {at}.\n{self.logs()}"
            time.sleep(LOOK_S)
        time.sleep(rng.random() * LOOK_S if rng else 0.0)
        for who in names:
            assert self.processes[who].poll() is None, f"{who} had ended before it was killed"
            self.processes[who].kill()
        for who in names:
            self.processes[who].wait(WAIT_S)
            self.struck.append((who, clock))
        self.start(*names)

    def logs(self) -> str:
        """What each party has written, and whether it has ended."""
        ended = {who: process.poll() for who, process in self.processes.items()}
        return "\n".join(f"{who} ({ended[who]}): {(self.folder / f'{who}.log').read_text()}" for who in ended)

    def finish(self) -> dict[str, np.ndarray]:
        """Wait for the end of all parties. Returns the parameters."""
        for who, process in self.processes.items():
            assert process.wait(WAIT_S) == 0, (self.folder / f"{who}.log").read_text()
        for thread in self._threads if self.threads else ():
            thread.join(WAIT_S)
        for result in self.work.values():
            if isinstance(result, Exception):
                raise result
        runs = [ps.Run.load(self.folder / f"server-{i}.npz") for i in range(self.servers)]
        pieces = [run.params for run in runs]
        if self.servers == 1:
            return pieces[0]
        whole = self.problem.init(seeds.init(0))
        layouts = partition(whole, self.servers)
        return join(pieces, layouts)

    def undisturbed(self) -> dict[str, np.ndarray]:
        """The parameters of the same run without kills."""
        return ps.train(self.problem, self.config(), engine="threads").params

    def config(self) -> ps.Config:
        """The config of the run, without its delays."""
        from minips.cli import _config, _parser

        words = [word for name, value in self.fields.items() for word in (f"--{name}", value)]
        return _config(_parser().parse_args(["train", *words]))

    def journal(self, server: int = 0) -> list:
        """All records of a server's journal; the run must have fewer clocks than there are between two snapshots."""
        folder = self.folder / "run"
        newest = max(folder.glob(f"server-{server}-*.npz"), key=lambda path: path.stat().st_mtime_ns)
        first = saved.read(newest)
        nbytes = (folder / f"server-{server}.journal-a").stat().st_size
        with Journal(folder / f"server-{server}", bytes.fromhex(first["run"]), nbytes) as journal:
            return [from_frames(frames) for _, frames in journal.read(0)]

    def serial(self, server: int = 0) -> tuple[dict[str, np.ndarray], list[tuple[int, int]]]:
        """The parameters after a loop over the journal's pushes, one after the other; and the pushes' workers and
        clocks. Without rounds.
        """
        config = self.config()
        whole = self.problem.init(seeds.init(config.seed))
        params = {name: x.copy() for name, x in cut(whole, partition(whole, self.servers)[server]).items()}
        decoders, state, pushes = {}, {}, []
        for record in self.journal(server):
            if record.kind == "hello" and not record.fields["again"]:
                decoders[record.worker] = Decoder(ps.Trace())
            if record.kind != "push":
                continue
            packet, *_ = unpack(record.frames, config.push, ps.Trace())
            gradients = decoders[record.worker].decode(packet).tensors
            state["clock"] = len(pushes) // config.workers
            scaled = {name: gradients[name] * (1 / config.workers) for name in params}
            config.optimizer.step(params, scaled, state)
            pushes.append((record.worker, packet.header["clock"]))
        return params, pushes
