"""A push counts once, neither twice nor never, whatever proxies do to the connections between workers and servers."""

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minips as ps
from minips import seeds
from minips.core.codec import Decoder, Encoder, unpack
from minips.core.message import Message
from minips.core.partition import cut
from minips.drivers.client import Client
from minips.stage import Frames, Tensors
from minips.stages.transports import Connection, Service, futures

WAIT_S = 30.0
TOKEN = "once"
WORKERS, PUSHES = 2, 8
SECRETS = [f"{worker:032x}" for worker in range(WORKERS)]
START = {"w": np.zeros(6), "b": np.zeros(2)}
SOON = (0.0, 0.01, 0.02, 0.05, 0.4, 0.1, 0.4, 0.4)  # twice, the answer to hello may be lost, and the number held
TRANSPORTS = {"tcp": ps.Tcp(), "shm": ps.SharedMemory(), "http": ps.Http()}
RULES = {"bsp": ps.BSP(), "ssp": ps.SSP(2), "asp": ps.ASP()}
MEMORIES = {
    "none": ps.Codec(ps.TopK(0.5)),
    "errorfeedback": ps.Codec(ps.TopK(0.5), ps.ErrorFeedback()),
    "delta": ps.Codec(ps.TopK(0.5), ps.Delta()),
    "momentumcorrection": ps.Codec(ps.TopK(0.5), ps.MomentumCorrection(momentum=0.5)),
}


class Proxy(Service):
    """Passes requests on to the server at ``address``; some it delays, repeats, or cuts the connection for."""

    def __init__(self, transport: ps.Transport, address: str, seed: int) -> None:
        super().__init__(self.opened_connection)
        self.transport, self.address, self.seed = transport, address, seed
        self.opened = 0
        self.endpoint = transport.serve(self, None, TOKEN)

    def opened_connection(self) -> Connection:
        self.opened += 1
        return _Passing(self, random.Random(1000 * self.seed + self.opened))


class _Passing(Connection):
    def __init__(self, proxy: Proxy, rng: random.Random) -> None:
        self.proxy, self.rng = proxy, rng
        self.channel = self.connect()

    def connect(self):
        return self.proxy.transport.connect(self.proxy.address, TOKEN)

    def answer(self, frames: Frames) -> Frames:
        frames = [bytes(frame) for frame in frames]
        deed = self.rng.random()
        if deed < 0.05:
            return self.cut()  # before the server hears of it
        if deed < 0.10:
            self.channel.call(frames)
            return self.cut()  # before the server has answered, perhaps before it has heard all of it
        if deed < 0.15:
            self.pass_on(frames)
            return self.cut()  # before the worker hears the answer
        if deed < 0.20:
            self.channel.call(frames)
        elif deed < 0.25:
            if b"hello" not in frames[1]:  # another connection is no worker's, and so is refused
                with self.connect() as another, pytest.raises((ValueError, TimeoutError)):
                    another.call(frames).result(WAIT_S)
        elif deed < 0.30:
            time.sleep(self.rng.choice([0.01, 0.05, 0.4]))
        return self.pass_on(frames)

    def pass_on(self, frames: Frames) -> Frames:
        try:
            return self.channel.call(frames).result(WAIT_S)
        except ConnectionError:
            return self.cut()

    def cut(self) -> Frames:
        self.channel.close()
        self.proxy.endpoint._wires[threading.current_thread()].shutdown()
        return []

    def closed(self) -> None:
        self.channel.close()


@contextmanager
def proxied(server: ps.Server, config: ps.Config, seed: int) -> Iterator[str]:
    proxy = Proxy(config.transport, server.address, seed + 10_000 * server.index)
    with proxy.endpoint:
        yield proxy.endpoint.address


def gradient(seed: int, worker: int, number: int) -> Tensors:
    """Small whole numbers: sums of them, and halves of sums, are exact in any order."""
    rng = np.random.default_rng([seed, worker, number])
    return {name: rng.integers(-8, 9, x.shape).astype(x.dtype) for name, x in START.items()}


class Trial:
    """Two workers that push through proxies; what they were told, and what each server applied.

    With several servers, nothing but the protocol ends a wait: no heartbeat comes, no worker is given up, and a waiting
    thread does not look again by itself. So a call that waits for longer than a break fails the trial.

    With a folder, the servers keep journals there, short ones, so that snapshots are taken; and servers that start from
    what the folder had at the end must have the same parameters.
    """

    def __init__(self, config: ps.Config, seed: int, folder: Path | None = None) -> None:
        self.config, self.seed, self.folder = config, seed, folder
        self.acknowledged: list[dict[int, tuple[int, str]]] = [{} for _ in range(WORKERS)]
        """Of each worker, by the number of its gradient: the clock that it was pushed at, and its outcome."""
        self.sent: list[list[list[tuple[int, int]]]] = [[[] for _ in range(WORKERS)] for _ in range(config.servers)]
        """Of each server and worker: clock and number of all that was encoded, without what was taken back."""
        self.updates: list[list[tuple[list[tuple[int, int]], float]]] = [[] for _ in range(config.servers)]
        self.failures: list[BaseException] = []

    def run(self) -> list[ps.Server]:
        patience = {"rank_secrets": SECRETS, "rejoin_s": WAIT_S, "silence_s": 1000.0} if self.config.servers > 1 else {}
        with ExitStack() as stack:
            if patience:
                stack.enter_context(pytest.MonkeyPatch.context()).setattr(futures, "TICK_S", 2 * WAIT_S)
            servers = [self.server(i, self.folder, **patience) for i in range(self.config.servers)]
            addresses = []
            for server, updates in zip(servers, self.updates, strict=True):
                stack.enter_context(server.serve(None, TOKEN))
                self.note(server, updates)
                addresses.append(stack.enter_context(proxied(server, self.config, self.seed)))
            threads = [threading.Thread(target=self.work, args=(worker, addresses)) for worker in range(WORKERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_S)
            assert not any(thread.is_alive() for thread in threads)
            if self.failures:
                raise self.failures[0]
            if self.folder:
                self.check_journals(servers)
            return servers

    def server(self, index: int, folder: Path | None, **how: Any) -> ps.Server:
        checkpoint = folder and ps.Checkpoint(folder, every=3, journal_bytes=2**14)
        return ps.Server(START, self.config, index=index, checkpoint=checkpoint, **how)

    def check_journals(self, servers: list[ps.Server]) -> None:
        """Start servers from a copy of the folder, as after kill -9, and compare their parameters."""
        assert self.folder
        copy = self.folder.with_name("copy")
        for server in servers:
            with server._lock:  # nobody pushes any more, but a snapshot may be under way
                server._files._finish_snapshot()
        shutil.copytree(self.folder, copy)
        for server in servers:
            with self.server(server.index, copy).serve(None, TOKEN) as again:
                assert again.shard.clocks == server.shard.clocks
                for name, x in server.params.items():
                    np.testing.assert_array_equal(again.params[name], x, err_msg=f"seed {self.seed}: {self.config}")

    def note(self, server: ps.Server, updates: list[tuple[list[tuple[int, int]], float]]) -> None:
        update = server.shard.parameters.update

        def noted(contributions, scale, clock):
            lost = update(contributions, scale, clock)
            updates.append(([(one.worker, one.clock) for one in contributions], scale))
            return lost

        server.shard.parameters.update = noted

    def work(self, worker: int, addresses: list[str]) -> None:
        secrets = [SECRETS[worker]] * len(addresses) if len(addresses) > 1 or self.folder else []
        try:
            with Client(addresses, self.config, worker, TOKEN, pauses_s=SOON, secrets=secrets) as client:
                for number in range(PUSHES):
                    while number not in self.acknowledged[worker]:
                        pulls = (number + worker) % 2 == 0
                        call = (client.push_pull if pulls else client.push)(gradient(self.seed, worker, number))
                        for server, of_workers in zip(client._servers, self.sent, strict=True):
                            clock, sent = server.clock - 1, of_workers[worker]
                            while sent and sent[-1][0] >= clock:
                                sent.pop()  # it was taken back
                            sent.append((clock, number))
                        outcome = "taken"
                        try:
                            result = call.result(WAIT_S)
                            outcome = outcome if pulls else str(result)
                        except TimeoutError as error:
                            if len(addresses) > 1:
                                raise
                            if "was taken" not in str(error):
                                continue
                        self.acknowledged[worker][number] = clock, outcome
        except BaseException as error:
            self.failures.append(error)

    def expected(self, server: ps.Server) -> Tensors:
        """The serial loop of what was sent to a server and applied there."""
        decoded: dict[tuple[int, int], Tensors] = {}
        index = server.index
        for worker in range(WORKERS):
            encoder = Encoder(self.config.push, seeds.push(self.config.seed, worker, index), ps.Trace())
            decoder = Decoder(ps.Trace())
            for clock, number in self.sent[index][worker]:
                part = cut(gradient(self.seed, worker, number), server.layout)
                frames = encoder.encode(Message({"kind": "push"}, part))
                decoded[worker, clock] = decoder.decode(unpack(frames, self.config.push, ps.Trace())[0]).tensors
        params = cut({name: x.copy() for name, x in START.items()}, server.layout)
        for pushes, scale in self.updates[index]:
            for name in params:
                params[name] -= sum(decoded[one][name] for one in pushes) / len(pushes) * scale
        return params

    def check_counts(self) -> None:
        for updates in self.updates:
            applied = [one for pushes, _ in updates for one in pushes]
            assert len(applied) == len(set(applied)), "a push was applied twice"
            for worker, told in enumerate(self.acknowledged):
                for clock, outcome in told.values():
                    if outcome == "late":
                        assert (worker, clock) not in applied
                    elif outcome != "taken":
                        assert (worker, clock) in applied, (
                            f"worker {worker}'s push at {clock} was {outcome}, and is not"
                        )
            if self.config.consistency != RULES["bsp"]:
                assert len(applied) == WORKERS * PUSHES
            elif self.config.servers > 1:  # so the bits are those of an undisturbed run
                rounds = [[(worker, clock) for worker in range(WORKERS)] for clock in range(PUSHES)]
                assert [sorted(pushes) for pushes, _ in updates] == rounds


def try_out(seed: int, servers: int = 1, folder: Path | None = None) -> None:
    transport = list(TRANSPORTS.values())[seed % 3]
    rule = list(RULES.values())[seed // 3 % 3]
    codec = list(MEMORIES.values())[seed // 9 % 4]
    config = ps.Config(
        transport=transport,
        consistency=rule,
        push=codec,
        pull=ps.Codec(memory=ps.Delta()) if seed % 2 else ps.Codec(),
        workers=WORKERS,
        servers=servers,
        optimizer=ps.SGD(lr=1.0),
        timeout_s=0.3 if seed % 5 == 0 and servers == 1 else 20.0,
    )
    trial = Trial(config, seed, folder)
    for server in trial.run():
        trial.check_counts()
        for name, x in trial.expected(server).items():
            np.testing.assert_array_equal(server.params[name], x, err_msg=f"seed {seed}: {config}")


@pytest.mark.parametrize("seed", range(9))
def test_a_push_counts_once_through_a_proxy_that_cuts_delays_and_repeats(seed: int) -> None:
    try_out(4 * seed)


@pytest.mark.parametrize("seed", [0, 13, 29])
def test_a_push_counts_once_at_each_of_two_servers(seed: int) -> None:
    try_out(seed, servers=2)


@pytest.mark.parametrize(("seed", "servers"), [(5, 1), (13, 2)])
def test_a_push_counts_once_and_its_journal_tells_so(seed: int, servers: int, tmp_path: Path) -> None:
    try_out(seed, servers, tmp_path / "run")


@pytest.mark.soak
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("seed", range(200, 218))
def test_a_push_counts_once_and_its_journal_tells_so_in_more_runs(seed: int, servers: int, tmp_path: Path) -> None:
    try_out(seed, servers, tmp_path / "run")


@pytest.mark.soak
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("seed", range(100, 141))
def test_a_push_counts_once_in_more_runs(seed: int, servers: int) -> None:
    try_out(seed, servers)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("servers", [1, 2])
def test_a_push_counts_once_in_hundreds_of_runs(servers: int, kept: bool, tmp_path: Path) -> None:
    for seed in range(1000, 1450):
        try_out(seed, servers, tmp_path / str(seed) / "run" if kept else None)


SERVER = """
import sys
import time
import numpy as np
import minips as ps

if __name__ == "__main__":
    consistency, silence_s, timeout_s = ps.build("consistency", sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    config = ps.Config(workers=2, consistency=consistency, optimizer=ps.SGD(lr=1.0), timeout_s=timeout_s)
    start = {"w": np.zeros(6), "b": np.zeros(2)}
    with ps.Server(start, config, silence_s=silence_s).serve(None, "once") as server:
        print(server.address, flush=True)
        sys.stdin.read()
        print(server.events, flush=True)
"""


@pytest.mark.parametrize("consistency", ["bsp", pytest.param("asp", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("silence_s", "timeout_s", "pause_s"),
    [(0.8, 2.0, 2.5), pytest.param(30.0, 40.0, 45.0, marks=pytest.mark.campaign)],
)
def test_a_server_that_was_paused_blames_no_worker(
    tmp_path: Path, consistency: str, silence_s: float, timeout_s: float, pause_s: float
) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    command = [sys.executable, str(program), consistency, str(silence_s), str(timeout_s)]
    config = ps.Config(workers=2, consistency=ps.build("consistency", consistency))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        address = process.stdout.readline().strip()
        clients = [ps.connect(address, config, worker=worker, token=TOKEN) for worker in range(2)]
        pulled: list[Tensors] = [{}, {}]

        def work(worker: int) -> None:
            for number in range(30):
                if number == 15 and worker == 0:
                    os.kill(process.pid, signal.SIGSTOP)
                    threading.Timer(pause_s, os.kill, (process.pid, signal.SIGCONT)).start()
                pulled[worker] = clients[worker].push_pull(gradient(7, worker, number)).result(pause_s + WAIT_S)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(pause_s + 2 * WAIT_S)
        last = clients[0].pull().result(WAIT_S)
        for client in clients:
            client.close()
        process.stdin.close()
        assert process.stdout.read().strip() == "[]", "an event tells of a worker that was dropped"
    for name, x in START.items():
        sums = [gradient(7, worker, number)[name] for worker in range(2) for number in range(30)]
        np.testing.assert_array_equal(last[name], x - sum(sums) / 2)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_push_that_was_refused_leaves_both_halves_of_a_memory_as_they_were(memory: str) -> None:
    config = ps.Config(
        transport="tcp", push=MEMORIES[memory], workers=2, optimizer=ps.SGD(lr=1.0), timeout_s=0.2, consistency="bsp"
    )
    results = []
    for disturbed in (False, True):
        with (
            ps.Server(START, config).serve(None, TOKEN) as server,
            ps.connect(server.address, config, worker=0, token=TOKEN) as one,
            ps.connect(server.address, config, worker=1, token=TOKEN) as other,
        ):
            for number in range(4):
                assert one.push(gradient(1, 0, number)).result(WAIT_S) in ("held", "applied")
                if disturbed:  # its round is not complete, so it waits and is refused, after it has been encoded
                    late = [one.push(gradient(2, 0, turn)) for turn in range(2)]
                    for push in late:
                        with pytest.raises((TimeoutError, ValueError)):
                            push.result(WAIT_S)
                assert other.push(gradient(1, 1, number)).result(WAIT_S) == "applied"
            results.append(server.params)
    for name in START:
        np.testing.assert_array_equal(results[0][name], results[1][name])
    assert any(x.any() for x in results[0].values())


@pytest.mark.parametrize("raises", ["aggregator", "optimizer"])
@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_a_stage_that_raises_ends_the_run_with_its_reason(raises: str, consistency: str) -> None:
    @dataclasses.dataclass(frozen=True)
    class Broken(ps.Mean if raises == "aggregator" else ps.SGD):
        name = "broken"

        def combine(self, contributions):
            raise ZeroDivisionError("Nothing to divide by.")

        def step_into(self, *arguments):
            raise ZeroDivisionError("Nothing to divide by.")

    config = ps.Config(transport="inproc", workers=2, consistency=consistency, timeout_s=5.0, **{raises: Broken()})
    with (
        ps.Server(START, config).serve(None, TOKEN) as server,
        ps.connect(server.address, config, worker=0, token=TOKEN) as one,
        ps.connect(server.address, config, worker=1, token=TOKEN) as other,
    ):
        pushes = [client.push(gradient(0, worker, 0)) for worker, client in enumerate((one, other))]
        errors = [push.exception(WAIT_S) for push in pushes]
        assert any("Update 1 failed and was not applied: ZeroDivisionError" in str(error) for error in errors)
        with pytest.raises(RuntimeError, match="Nothing to divide by"):
            one.push_pull(gradient(0, 0, 1)).result(WAIT_S)
        for name, x in START.items():
            np.testing.assert_array_equal(server.params[name], x)
        assert (server.shard.applied, server.shard.version) == (0, 0)
