"""Servers and workers that are started by hand, on one machine or on several.

Nothing supervises them: the servers know when the run is over, and the workers hear it from them. The same config gives
the same parameters as `train`, under BSP to the bit.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, TypeVar

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.core.config import MOST_S, Config
from minips.core.exchange import AllReduce
from minips.core.limits import check_run
from minips.core.local import warn_of_outer
from minips.core.loop import Seen
from minips.core.membership import REJOIN_S
from minips.core.message import Header, NonFiniteError
from minips.core.partition import cut, join, partition
from minips.drivers.client import Client
from minips.drivers.connecting import asking, connect, listed
from minips.drivers.server import FAREWELL_S, LEAVE_S, Server
from minips.drivers.starting import START_S, StartWait
from minips.engines.inner import Inner
from minips.engines.worker import at_step, before_updates, has_moved, shards_of, train_ps, worker_state
from minips.problems import Problem
from minips.results.origin import check_same, origin_of
from minips.results.run import Progress, Run, check_resumable, gathered, server_state
from minips.results.trace import Trace
from minips.stage import Tensors
from minips.stages.shards import Contiguous
from minips.stages.transports import Transport
from minips.stages.transports.patience import Limit
from minips.training.train import check_problem
from minips.words import check_type, message_of

T = TypeVar("T")
LOOK_S, DIAL_S = 0.2, 0.5
"""The seconds between two looks of a worker for the others, and between two for a server."""


@dataclass(frozen=True)
class Work:
    """The part of one worker in a run."""

    worker: int
    """Its number."""
    pushes: int
    """Its clock at the end."""
    params: Tensors
    """The parameters that it pulled last, under BSP the final ones; none where it learned of the end otherwise than by
    the answer to a push."""
    over: bool
    """True where the servers have ended the run; False where ``stop`` ended the work before."""
    diverged: str | None
    """Why this worker ended the run: it had no finite gradient any more."""
    bytes_sent: int
    bytes_received: int
    trace: Trace

    def __repr__(self) -> str:
        return f"<Work of worker {self.worker}: {self.pushes} pushes>"


@one_blas_thread
def work(
    problem: Problem,
    address: str | Sequence[str],
    *,
    token: str,
    rank: int | None = None,
    config: Config | None = None,
    transport: Transport | None = None,
    stop: Event | Callable[[], bool] | None = None,
    timeout: float = 10.0,
    met: Callable[[Client], object] = lambda client: None,
    session: str | os.PathLike[str] | None = None,
    own_rows: bool = False,
    start_timeout_s: float = START_S,
) -> Work:
    """Be one worker of the servers at ``address``, and train on this worker's shard of ``problem`` until the run is
    over, as `train` does.

    ``rank`` is the worker's number; None: the first one that is free. The config comes from the servers, which
    ``transport`` reaches (None: the address says which one does), unless ``config`` is given. The work begins once all
    workers are connected, or once the run has begun without this one. For a server that does not answer yet, and then
    for the other workers, `work` waits for ``start_timeout_s`` seconds at most, or for ever where that is infinity, and
    the log says every 30 seconds for whom. ``met`` is called with the client once it is connected, ``session`` names a
    file as in `connect`. Until `work` returns, BLAS has one thread in this process.

    With ``own_rows`` the rows of ``problem`` are this worker's shard as they are, which no server and no other worker
    has to have; classes, labels and parameters are those of the servers' problem.

    Set the event ``stop``, or let the function ``stop`` return True, to leave before the run is over. The function is
    called after ``met``, before and after each gradient, too: with ``met=clients.append`` and
    ``stop=lambda: clients[0].clock == 5`` this worker makes five pushes.

    ConnectionError, PermissionError and ValueError as `connect`; ValueError, too, before this worker takes a number,
    where the servers train another problem, or one whose rows a worker with ``own_rows`` should share; TimeoutError
    where the others do not come; RuntimeError where the server has given them up; what the problem raises, once the
    servers have heard of it.
    """
    check_problem("work", problem)
    dialling = StartWait("This worker", start_timeout_s, timeout)
    check_type("work", own_rows, bool, "True or False as own_rows")
    halt = _event(stop)

    def check(status: Header) -> None:
        theirs = status.get("problem")
        if own_rows:
            _check_own_rows(config or Config.from_dict(status["config"]), (theirs or {}).get("epochs"))
        if theirs:
            mine = origin_of(problem, problem.init(seeds.init(0)))
            check_same({**mine, "rows": ""} if own_rows else mine, theirs, "the server's")

    def shard_of(worker: int, config: Config) -> Problem:
        return problem if own_rows else shards_of(problem, config)(worker)

    def rows(worker: int, config: Config) -> int:
        return shard_of(worker, config).rows

    def dial() -> Client:
        for other in listed(address)[1:]:  # which may not be there yet: the first server gives no rank before they are
            reached, codec = (config.shaped_transport(), config.pull) if config else (transport, None)
            with asking(other, token, reached, timeout, codec):
                pass
        reach: dict[str, Any] = {"token": token, "timeout": timeout, "transport": transport, "session": session}
        return connect(address, config, worker=rank, check=check, rows=rows, **reach)

    client = _answered(dial, halt, dialling, ConnectionError, TimeoutError)
    diverged = None
    params: Tensors = {}
    with closing(client):
        try:
            met(client)
            shard = shard_of(client.worker, client.config)
            kept = _answered(client.resume, halt, dialling, TimeoutError)
            inner = Inner.of(kept) if client.config.local else None
            _await_others(client, token, timeout, halt, start_timeout_s)
            before = Seen(*kept["seen"]) if kept and kept["seen"] else None
            seen = train_ps(shard, client.config, client, halt, before, inner=inner)
            params = seen.params if seen.next_params is None else seen.next_params
            if client.done:
                client.close(state=worker_state(client.config, client.report()["links"], seen, inner))
        except NonFiniteError as error:
            if not has_moved(error, client.versions):
                failed = before_updates(error)
                client.close(failed=_words(failed))
                raise failed from error
            diverged = at_step(client.clock, client.worker, error)
            client.close(diverged=diverged)
        except ConnectionError as error:
            if not client.done:  # the servers have hung up without a word, or the problem's own source has
                client.close(failed=_words(error))
                raise
        except BaseException as error:
            client.close(failed=_words(error))
            raise
    over = client.done or diverged is not None
    counts = (client.bytes_sent, client.bytes_received, client.trace)
    return Work(client.worker, client.clock, params, over, diverged, *counts)


class Served:
    """The servers of a run in this process. Made by `serving`."""

    def __init__(self, servers: Sequence[Server], problem: Problem, before: Run | None) -> None:
        self.servers, self._problem, self._before = servers, problem, before

    def wait(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Block until the run is over, as `Server.wait` does."""
        for server in self.servers:
            server.start.check()
        for server in self.servers:
            server.wait(progress=progress if server is self.servers[0] else None)

    def end(self) -> Run:
        """End the run, if it is not over, at one clock of all servers, unless the workers take too long to come to it.
        Returns the run, with the state that the workers leave.
        """
        at = max(server.pause() for server in self.servers)
        for server in self.servers:
            server.pause(at)
        left = Limit(LEAVE_S)
        while not left.over() and any(
            server.connected and not (server.paused or server.shard.done or server.shard.stuck)
            for server in self.servers
        ):
            time.sleep(LOOK_S)
        for server in self.servers:
            server.stop()
        for server in self.servers:
            server.let_go(LEAVE_S)
        config = self.servers[0].config
        run = gathered(config, [server.report() for server in self.servers])
        run.problem, run.origin = self._problem, origin_of(self._problem, run.params)
        if len(self.servers) == config.servers:
            try:
                run.judge(self._problem)
            except Exception as error:  # which is no reason to lose what was trained
                run.events.append((run.seconds, f"held-out rows could not be judged: {_words(error)}"))
        return run.after(self._before) if self._before else run


@contextmanager
def serving(
    problem: Problem,
    config: Config,
    address: str | None,
    token: str,
    index: int | None = None,
    resume: Run | None = None,
    plaintext: bool = False,
    rejoin_s: float = REJOIN_S,
    start_timeout_s: float = START_S,
) -> Iterator[Served]:
    """Serve the parameters of ``problem``: all servers of the config, at ``address`` and the ports after it, or the one
    of number ``index`` alone, whose run has its own part of the parameters. ``resume`` is a run to go on from,
    ``plaintext`` as `Server.serve` has it, ``rejoin_s`` and ``start_timeout_s`` as `Server`.
    """
    check_problem("serve", problem)
    if isinstance(config.exchange, AllReduce):
        raise ValueError(f"With {config.exchange!r} there is no server to be served. Use exchange=PS().")
    epochs, config = config.epochs, config.for_rows(problem.rows)
    shards_of(problem, config)  # refuses here what each worker would refuse
    warn_of_outer(config.local, config.optimizer)
    with one_blas_thread, ExitStack() as stack:
        params = check_run(config, problem.init(seeds.init(config.seed)), problem.tables)
        layouts = partition(params, config.servers, problem.tables, config.placement)
        origin, state = origin_of(problem, params), None
        told = {name: text for name, text in origin.items() if isinstance(text, str)}
        told |= {"epochs": str(epochs)} if epochs else {}
        if resume:
            alone = [] if index is None or "index" not in (resume.state or {}) else [layouts[index]]
            parts = origin_of(problem, cut(params, alone[0])) if alone else origin
            start, state = check_resumable(resume, config, parts)
            params |= join([start], alone) if alone else start
        servers = []
        for place, number in enumerate(range(config.servers) if index is None else [index]):
            kept = state and server_state(state, number, layouts[number])
            server = Server(
                params,
                config,
                index=number,
                updates=config.workers * config.clocks,
                state=kept,
                tables=problem.tables,
                rejoin_s=rejoin_s,
                start_timeout_s=start_timeout_s,
            )
            server.origin.update(told)
            servers.append(stack.enter_context(server.serve(_next(address, place), token, plaintext=plaintext)))
        try:
            yield Served(servers, problem, resume)
        finally:
            for server in servers:
                server.stop()
            for server in servers:
                server.let_go(FAREWELL_S)


def _next(address: str | None, place: int) -> str | None:
    """The address so many ports after the first server's, or a free one. ValueError where the first has no port."""
    if address is None or place == 0:
        return address
    head, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"Several servers stand at ports that follow each other; {address!r} has no port.")
    return f"{head}:{int(port) + place if int(port) else 0}"


class _Asked(Event):
    """An event that is set once a function has returned True."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        super().__init__()
        self._ask = ask

    def is_set(self) -> bool:
        if not super().is_set() and self._ask():
            self.set()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        deadline = time.monotonic() + (MOST_S if timeout is None else timeout)
        while not self.is_set() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
        return self.is_set()


def _event(stop: Event | Callable[[], bool] | None) -> Event:
    """``stop`` as an event. TypeError where it is neither an event nor a function."""
    if isinstance(stop, Event | None):
        return stop or Event()
    if not callable(stop):
        raise TypeError(f"stop takes a threading.Event, or a function that returns True to leave; got {stop!r}.")
    return _Asked(stop)


def _check_own_rows(config: Config, epochs: str | None) -> None:
    """ValueError where a run takes its steps, or the shards of its workers, from rows that all of them share."""
    if config.shards != Contiguous():
        words = f"The run shares out its rows by shards={config.shards!r}, and this worker has rows of its own"
        raise ValueError(f"{words}. Leave one of them out.")
    if epochs:
        raise ValueError(
            f"The server has made steps of epochs={epochs} by its own rows, which says nothing of how often a worker "
            "passes over rows of its own. Serve with steps (--steps) in place of epochs."
        )


def _answered(call: Callable[[], T], stop: Event, start: StartWait, *late: type[OSError]) -> T:
    """The result of ``call``, repeated after each error of these types until the wait is over: the server may be yet to
    come, or stopped for a while. Meanwhile a function that is to stop the work is not asked: it may need the client.
    """
    said = ""
    while True:
        try:
            return call()
        except late as error:
            if start.over() or Event.is_set(stop):
                raise
            start.say(f"the server ({message_of(error).rstrip('.')})", at_once=said != message_of(error))
            said = message_of(error)
        Event.wait(stop, DIAL_S)


def _await_others(client: Client, token: str, timeout: float, stop: Event, start_timeout_s: float) -> None:
    """Wait until all workers are there, or until the run has begun. TimeoutError where they do not come in time."""
    config, address = client.config, client.addresses[0]
    start = StartWait(f"Worker {client.worker}", start_timeout_s, timeout)
    with asking(address, token, config.shaped_transport(), timeout, config.pull) as ask:
        while not stop.is_set():
            status = _answered(partial(ask, "status"), stop, start, TimeoutError)
            if why := status.get("stuck"):
                raise RuntimeError(why)
            absent = _absent(status, client.resumed_at)
            if not absent:
                return
            if late := start.look(absent):
                raise TimeoutError(late)
            stop.wait(LOOK_S)


def _absent(status: Header, resumed_at: int) -> list[int]:
    """The workers for which the run waits to begin. Servers that do not wait for them do not name them: then a worker
    that has left is not waited for, and one that is yet to come is.
    """
    if status["done"] or status["applied"] > resumed_at:
        return []
    missing = [one["worker"] for one in status["workers"] if not one["connected"] and one.get("counts", True)]
    return status.get("awaited") or missing


def _words(error: BaseException) -> str:
    """An error as the servers' events keep it."""
    interrupted = isinstance(error, KeyboardInterrupt)
    return "it was interrupted" if interrupted else f"{type(error).__name__}: {message_of(error)}"
