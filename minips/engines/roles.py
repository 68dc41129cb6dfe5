"""The roles of a run's children: to serve, or to work. The same code runs in a thread and in a process.

Besides the words of every child (`minips.engines.supervisor`) a role and the supervisor say:

    role → supervisor   ready (where it serves: its address), met, progress, diverged, finished, alone
    supervisor → role   meet (the addresses of those who serve), go, diverged, halt

Servers serve; where gradients meet by an all-reduce, the workers do, and there is no server.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from minips.core.collectives import AllReduce
from minips.core.config import Config
from minips.core.message import DivergedError, NonFiniteError
from minips.core.trace import Trace
from minips.drivers.client import Client
from minips.drivers.peer import LostError, Peer
from minips.drivers.server import Server
from minips.engines.replica import Replica
from minips.engines.supervisor import ControlPipe
from minips.engines.worker import at_step, train_allreduce, train_ps
from minips.problems import Problem
from minips.stage import Tensors

TICK_S = 0.01
NEWS_TICKS = 10
"""How often a server looks whether it is done, and after how many looks it tells how far it is."""
LISTEN_S = 0.05
"""How often a worker looks up from its work, and tells how far it is where no server does."""

Report = dict[str, Any]


def serve(line: ControlPipe, *, config: Config, params: Tensors, index: int, token: str) -> Report:
    """One server, from its start until the supervisor says stop; its report."""
    told, ticks, finished = 0, 0, False
    with Server(params, config, index=index, updates=config.workers * config.steps).serve(token=token) as server:
        line.say("ready", server.address)
        while (heard := line.hear(TICK_S))[0] != "stop":
            if heard[0] == "diverged":
                server.diverge(heard[1])
            ticks += 1
            over = server.shard.done and not finished
            if over or ticks % NEWS_TICKS == 0:
                rows = server.losses[told:]
                told += len(rows)
                line.say("progress", (server.shard.applied, rows))
            if over:
                finished = True
                if server.diverged:
                    line.say("diverged", server.diverged)
                line.say("finished")
    return server.report()


def run_ps_worker(line: ControlPipe, *, config: Config, problem: Problem, worker: int, token: str) -> Report | None:
    """One worker, from its first connection until the run is done or the supervisor says stop; its report."""
    word, addresses = line.wait("meet")
    if word != "meet":
        return None
    with Client(addresses, config, worker, token) as client:
        line.say("met")
        if line.wait("go")[0] == "go":
            with _listening(line, worker) as halt:
                try:
                    train_ps(problem, config, client, halt)
                except Exception as error:
                    # Told before the goodbye, which completes the round without this worker: the others could end the
                    # run before anybody hears why.
                    if isinstance(error, NonFiniteError) and any(client.versions):
                        line.say("diverged", at_step(client.clock, worker, error))
                    else:  # where nothing has moved yet, the data, or the problem, are at fault
                        line.failed(error)
                    halt.wait(config.timeout_s)
    return client.report()


def run_allreduce_worker(
    line: ControlPipe, *, config: Config, problem: Problem, params: Tensors, worker: int, token: str
) -> Report:
    """One worker among its equals, from its start until the supervisor says stop; its report.

    It stays reachable until then, so that no rank finds it gone in the middle of a hop. Where another rank is gone it
    says that it is alone, and leaves it to the supervisor to find out why.
    """
    told, exchange = 0, config.exchange
    assert isinstance(exchange, AllReduce)

    def tell() -> None:
        nonlocal told
        rows = replica.losses[told:]
        told += len(rows)
        line.say("progress", (told, rows))

    with Peer(exchange, config, worker, params, token) as peer:
        computing, replica = Trace(peer.trace.who), Replica(params, config, worker, peer.trace)
        line.say("ready", peer.address)
        word, addresses = line.wait("meet", "halt")
        try:
            if word == "meet":
                peer.meet(addresses)
                line.say("met")
                word, _ = line.wait("go", "halt")
            if word == "go":
                with _listening(line, worker, tell) as halt:
                    try:
                        train_allreduce(problem, config, peer, replica, halt, computing)
                    except DivergedError as error:
                        line.say("diverged", str(error))
                tell()
            line.say("finished")
        except LostError as error:
            line.say("alone", str(error))
        line.wait()
    counts = {"bytes_sent": peer.bytes_sent, "bytes_received": peer.bytes_received}
    return {**replica.report(), **counts, "trace": peer.trace + computing}


@contextmanager
def _listening(line: ControlPipe, worker: int, tell: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Hear the supervisor in a thread, and call ``tell`` from time to time; the event that halt and stop set."""
    halt, over = threading.Event(), threading.Event()

    def listen() -> None:
        while not (over.is_set() or line.stopped):
            if line.hear(LISTEN_S)[0] in ("halt", "stop"):
                halt.set()
            tell()

    thread = threading.Thread(target=listen, name=f"minips-listen-{worker}", daemon=True)
    thread.start()
    try:
        yield halt
    finally:
        over.set()
        thread.join()
