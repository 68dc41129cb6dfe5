"""The roles of a run's children: server or worker. The same code runs in a thread and in a process.

In addition to every child's words (`minips.engines.supervisor`), a role and the supervisor exchange:

    role → supervisor   ready (with its address, if it serves), connected, progress, paused, pausing, diverged,
                        finished, alone
    supervisor → role   connect (the addresses of those that serve), go, go on, end, diverged, halt, pause

With an all-reduce, no servers exist, and the workers serve each other. The holders of parameters pause every ``every``
clocks of all the workers, until the supervisor sends go on or end. All servers of a stopped run end at one clock: the
supervisor asks each server for the count of pushes at which it could pause, and sends the largest count to all. A
``state`` is the value of that name in the same role's report of a saved run.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from minips.core.config import MOST_S, Config
from minips.core.loop import Seen
from minips.core.message import DivergedError, NonFiniteError
from minips.core.partition import partition
from minips.core.states import RunState
from minips.drivers.checkpoint import WorkerFiles
from minips.drivers.client import Client
from minips.drivers.peer import LostError, Peer
from minips.drivers.server import Server
from minips.engines.inner import Inner
from minips.engines.replica import Replica, train_allreduce
from minips.engines.supervisor import ControlPipe
from minips.engines.worker import at_step, before_updates, has_moved, train_ps, worker_state
from minips.problems import Problem
from minips.results.checkpoints import Checkpoint, keeps_worker
from minips.results.status import expected
from minips.results.trace import Trace
from minips.stage import Tensors

TICK_S = 0.01
NEWS_TICKS = 10
"""A server checks for the end every ``TICK_S`` seconds; every ``NEWS_TICKS`` checks it also reports its progress."""
CROWD = 8
"""If more servers than this run, each checks less often: together, they check as often as this number of servers."""
LISTEN_S = 0.05
"""The seconds between a worker's checks for words; without servers it also reports its progress each time."""

Report = dict[str, Any]


def serve(
    control: ControlPipe,
    *,
    config: Config,
    params: Tensors,
    index: int,
    token: str,
    address: str | None = None,
    kill_at: int | None = None,
    **more: Any,
) -> Report:
    """Run one server on the engine's network until the supervisor sends stop. Return the server's report. The server
    kills its process once it has applied ``kill_at`` clocks of all the workers.
    """
    rows_sent, ticks, told, ending = 0, 0, RunState.RUNNING, False
    updates, tick_s = config.workers * config.clocks, TICK_S * max(1.0, config.servers / CROWD)
    server = Server(params, config, index=index, updates=updates, **more)
    if kill_at is not None:
        server.after_updates(lambda: die_at(kill_at, server.shard.made // config.workers))
    with server.serve(address, token, private=True):
        control.send("ready", server.address)
        while (message := control.receive(tick_s))[0] != "stop":
            if message[0] == "diverged":
                server.diverge(message[1])
            elif message[0] in ("go on", "end"):
                server.go_on(end=message[0] == "end")
                told = RunState.RUNNING if told is RunState.PAUSED else told
            elif message[0] == "pause":
                control.send("pausing", server.pause(message[1]))
                ending = message[1] is not None
            if ending and server.paused:
                server.stop()
            ticks += 1
            state = server.shard.run
            if state is not told or ticks % NEWS_TICKS == 0:
                rows = server.losses[rows_sent:]
                rows_sent += len(rows)
                shard = server.shard
                control.send("progress", (shard.applied, expected(shard) or 0, shard.made // shard.workers, rows))
            if state is RunState.PAUSED and state is not told:
                control.send("paused", (server.params, server.layout, server.shard.made // config.workers))
            if state.final and not told.final:
                if server.diverged:
                    control.send("diverged", server.diverged)
                control.send("finished")
            told = state
    return server.report()


def run_ps_worker(
    control: ControlPipe,
    *,
    config: Config,
    problem: Problem,
    worker: int,
    every: int | None,
    state: Any,
    secrets: list[str],
    checkpoint: Checkpoint | None,
    kill_at: int | None = None,
    **known: Any,
) -> Report:
    """Run one worker until the run is done or the supervisor sends stop. Return its report. The worker kills its
    process before it pushes the gradient of the clock ``kill_at``.
    """
    word, addresses = control.wait("connect")
    if word != "connect":
        return {"bytes_sent": 0, "bytes_received": 0, "trace": Trace(), "state": state}
    seen, inner = None, Inner.of(state) if config.local else None
    with ExitStack() as stack:
        own = None
        if checkpoint and keeps_worker(config):
            stem = checkpoint.stem(f"worker {worker}")
            own = stack.enter_context(WorkerFiles(stem, secrets[0], checkpoint))
        known |= {"secrets": secrets, "again": bool(own and own.last), "rows": problem.rows}
        client = stack.enter_context(Client(addresses, config, worker, **known))
        if state:
            client.restore(state["links"])
            seen = state["seen"] and Seen(*state["seen"])
        if own:
            finished = own.take_over(client)
            inner = Inner(finished) if config.local and own.last else inner
            own.inner = inner.state if inner else own.inner
        control.send("connected")
        if control.wait("go")[0] == "go":
            with _listening(control, worker) as halt:
                restored, seen = seen, None  # after an error, the next gradient is computed from a fresh pull
                try:
                    if own:
                        own.finish(config.timeout_s)
                    patience_s, computed = MOST_S if every else 0.0, partial(die_at, kill_at)
                    seen = train_ps(problem, config, client, halt, restored, patience_s, inner, computed)
                except SystemExit:
                    raise
                except BaseException as error:
                    # Sent before the goodbye, which completes the round without this worker. Otherwise the others could
                    # end the run before the reason is known.
                    if not isinstance(error, NonFiniteError):
                        control.failed(error)
                    elif has_moved(error, client.versions):
                        control.send("diverged", at_step(client.clock, worker, error))
                    else:
                        control.failed(before_updates(error))
                    halt.wait(config.timeout_s)
    report = client.report()
    return {**report, "state": worker_state(config, report.pop("links"), seen, inner)}


def run_allreduce_worker(
    control: ControlPipe,
    *,
    config: Config,
    problem: Problem,
    params: Tensors,
    worker: int,
    token: str,
    address: str | None = None,
    every: int | None = None,
    state: Any = None,
    checkpoint: Checkpoint | None = None,
    losses: Any = None,
    kill_at: int | None = None,
) -> Report:
    """Run one worker of an all-reduce until the supervisor sends stop. Return its report. The worker kills its process
    before the exchange of the clock ``kill_at``.

    The worker stays reachable until then, so that no rank finds it gone in the middle of a hop. If another rank is
    gone, the worker sends ``alone``, and the supervisor finds the cause.
    """
    rows_sent = 0
    resumed, decision = threading.Event(), [False]

    def report_progress() -> None:
        nonlocal rows_sent
        rows = replica.losses[rows_sent:]
        rows_sent += len(rows)
        applied = replica.shard.applied
        control.send("progress", (applied, config.clocks, applied, rows))

    def pause() -> bool:
        """Wait until the supervisor sends "go on" or "end". Return True for "end"."""
        resumed.clear()
        report_progress()
        control.send(
            "paused", (replica.shard.params, partition(params, 1)[0], replica.shard.applied) if worker == 0 else None
        )
        resumed.wait(MOST_S)
        return decision[0]

    def stepped() -> None:
        if checkpoint:
            replica.write(checkpoint, config, peer.reduction)

    def decide(word: str) -> None:
        if word in ("go on", "end", "halt", "stop") and not resumed.is_set():  # the first word decides for every rank
            decision[0] = word != "go on"
            resumed.set()

    with Peer(config, worker, params, token, address) as peer:
        computing = Trace(peer.trace.who)
        replica = Replica(params, config, worker, peer.trace, every)
        seen = replica.restore(state, peer.reduction) if state else None
        if losses is not None:
            replica.restore_losses(losses)
        control.send("ready", peer.address)
        word, addresses = control.wait("connect", "halt")
        try:
            if word == "connect":
                peer.connect(addresses)
                control.send("connected")
                word, _ = control.wait("go", "halt")
            if word == "go":
                with _listening(control, worker, report_progress, decide) as halt:
                    try:
                        how = (config, peer, replica, halt, computing, seen, pause, stepped)
                        seen = train_allreduce(problem, *how, partial(die_at, kill_at))
                    except DivergedError as error:
                        control.send("diverged", str(error))
                report_progress()
            control.send("finished")
        except LostError as error:
            control.send("alone", str(error))
        control.wait()
    counts = {"bytes_sent": peer.bytes_sent, "bytes_received": peer.bytes_received}
    state = replica.state(peer.reduction, seen)
    return {**replica.report(), **counts, "trace": peer.trace + computing, "state": state}


def die_at(kill_at: int | None, clock: int) -> None:
    """Kill this process if the clock has come."""
    if kill_at is not None and clock >= kill_at:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has only one way to end a process


@contextmanager
def _listening(
    control: ControlPipe,
    worker: int,
    report_progress: Callable[[], None] = lambda: None,
    handle: Callable[[str], None] = lambda word: None,
) -> Iterator[threading.Event]:
    """Yield an event that halt and stop set; a thread passes supervisor words to ``handle`` and reports progress."""
    halt, over = threading.Event(), threading.Event()

    def listen() -> None:
        while not (over.is_set() or control.stopped):
            word, _ = control.receive(LISTEN_S)
            if word in ("halt", "stop"):
                halt.set()
            handle(word)
            report_progress()

    thread = threading.Thread(target=listen, name=f"minips-listen-{worker}", daemon=True)
    thread.start()
    try:
        yield halt
    finally:
        over.set()
        thread.join()
