"""Servers and workers started by hand, on one machine or several.

No supervisor watches these processes: the servers detect the end of the run and inform the workers. A config gives the
same parameters as with `train`; under BSP, they are equal to the bit.
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
from minips.core.message import Header, NonFiniteError
from minips.core.partition import cut, join, partition
from minips.drivers.client import Client
from minips.drivers.connecting import as_addresses, asking, connect, new_secrets
from minips.drivers.server import FAREWELL_S, LEAVE_S, Server
from minips.drivers.starting import START_S, StartWait
from minips.engines.inner import Inner
from minips.engines.worker import at_step, before_updates, has_moved, shards_of, train_ps, worker_state
from minips.problems import Problem
from minips.results.checkpoints import Checkpoint
from minips.results.origin import check_same, origin_of
from minips.results.run import Progress, Run, check_resumable, gather_run, server_state
from minips.results.trace import Trace
from minips.stage import Tensors
from minips.stages.shards import Contiguous
from minips.stages.transports import Transport
from minips.stages.transports.patience import Limit
from minips.training.progress import Wait, showing
from minips.training.train import check_problem
from minips.words import check_type, message_of

T = TypeVar("T")
LOOK_S, DIAL_S = 0.2, 0.5
"""The seconds between a worker's checks for other workers (LOOK_S), and between its attempts to connect (DIAL_S)."""


@dataclass(frozen=True)
class Work:
    """The result of one worker's part in a run."""

    worker: int
    """The worker's number."""
    pushes: int
    """The worker's clock at the end."""
    params: Tensors
    """The parameters that the worker pulled last; under BSP, the final ones. Empty unless the worker learned of the
    run's end from the answer to a push."""
    over: bool
    """True if the servers ended the run; False if ``stop`` ended the work earlier."""
    diverged: str | None
    """The reason if this worker ended the run because its gradient was no longer finite; otherwise None."""
    bytes_sent: int
    bytes_received: int
    trace: Trace

    def __repr__(self) -> str:
        return f"<Work of worker {self.worker}: {self.pushes} pushes>"


@one_blas_thread
@showing(None, first=Wait("working for the servers"))
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
    """Join the servers at ``address`` as one worker, and train on this worker's shard of ``problem`` until the run is
    over, as `train` does.

    ``rank`` is the worker's number (None: the first free one). ``config`` None: the servers' config. ``transport``
    None: the one that the address names. The work begins once all workers are connected, or immediately if the run has
    begun without this one. `work` waits for a server that does not answer yet, and then for the other workers, for at
    most ``start_timeout_s`` seconds (infinity: no limit); every 30 seconds the log names the missing ones. ``met`` is
    called with the client once it is connected; ``session`` names a file as in `connect`. Until `work` returns, BLAS
    uses one thread in this process.

    With ``own_rows``, all rows of ``problem`` are this worker's shard, and no server or other worker needs these rows.
    Classes, labels and parameters must be those of the servers' problem.

    To leave before the run is over, set the event ``stop``, or let the function ``stop`` return True. The function is
    called after ``met``, and before and after each gradient: with ``met=clients.append`` and
    ``stop=lambda: clients[0].clock == 5`` this worker makes five pushes.

    Raises ConnectionError, PermissionError and ValueError as `connect` does. Also raises ValueError if the servers
    train a different problem, or if ``own_rows`` is set although the run's steps or shards depend on rows that all
    workers share; both are checked before this worker gets a number. Raises TimeoutError if the other workers do not
    connect, and RuntimeError if the server no longer waits for them. An error of the problem is first reported to the
    servers and then raised.
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
        for other in as_addresses(address)[1:]:  # the first server assigns ranks only once all others are up
            reached, codec = (config.shaped_transport(), config.pull) if config else (transport, None)
            with asking(other, token, reached, timeout, codec):
                pass
        reach: dict[str, Any] = {"token": token, "timeout": timeout, "transport": transport, "session": session}
        reach["secrets"] = secrets
        return connect(address, config, worker=rank, check=check, rows=rows, **reach)

    secrets = new_secrets(len(as_addresses(address)))
    client = _retry(dial, halt, dialling, ConnectionError, TimeoutError)
    diverged = None
    params: Tensors = {}
    with closing(client):
        try:
            met(client)
            shard = shard_of(client.worker, client.config)
            kept = _retry(client.resume, halt, dialling, TimeoutError)
            inner = Inner.of(kept) if client.config.local else None
            if client.files and inner:
                inner = Inner(client.files.last[1]) if client.files.last else inner
                client.files.inner = inner.state
            _await_others(client, token, timeout, halt, start_timeout_s)
            if client.files:
                client.files.finish(client.config.timeout_s)
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
            if not client.done:  # the servers, or the problem's data source, closed the connection silently
                client.close(failed=_words(error))
                raise
        except BaseException as error:
            client.close(failed=_words(error))
            raise
    over = client.done or diverged is not None
    counts = (client.bytes_sent, client.bytes_received, client.trace)
    return Work(client.worker, client.clock, params, over, diverged, *counts)


class Served:
    """The servers of a run in this process, made by `serving`."""

    def __init__(self, servers: Sequence[Server], problem: Problem, before: Run | None) -> None:
        self.servers, self._problem, self._before = servers, problem, before

    def wait(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Block until the run is over, as `Server.wait` does."""
        for server in self.servers:
            server.start.check()
        for server in self.servers:
            server.wait(progress=progress if server is self.servers[0] else None)

    def end(self) -> Run:
        """End the run if it is not over, and return it with the state that the workers send as they leave. All servers
        end at the same clock, unless the workers take too long to reach it.
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
        run = gather_run(config, [server.report() for server in self.servers])
        run.problem, run.origin = self._problem, origin_of(self._problem, run.params)
        if len(self.servers) == config.servers:
            try:
                run.judge(self._problem)
            except Exception as error:  # the trained parameters must be kept in any case
                run.events.append((run.seconds, f"the held-out rows could not be evaluated: {_words(error)}"))
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
    rejoin_s: float | None = None,
    start_timeout_s: float = START_S,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Served]:
    """Serve the parameters of ``problem`` from all servers of the config, at ``address`` and the following ports, or
    from server ``index`` only; that server's run has only its part of the parameters. ``resume`` is a run to resume.
    ``plaintext`` is as in `Server.serve`, ``rejoin_s``, ``start_timeout_s`` and ``checkpoint`` as in `Server`.
    """
    check_problem("serve", problem)
    if isinstance(config.exchange, AllReduce):
        raise ValueError(f"{config.exchange!r} has no server. Use exchange=PS().")
    epochs, config = config.epochs, config.for_rows(problem.rows)
    shards_of(problem, config)  # raises here the error that each worker would raise
    warn_of_outer(config.local, config.optimizer)
    with one_blas_thread, ExitStack() as stack:
        params = check_run(config, problem.init(seeds.init(config.seed)), problem.tables)
        layouts = partition(params, config.servers, problem.tables, config.placement)
        origin, state = origin_of(problem, params), None
        described = {name: text for name, text in origin.items() if isinstance(text, str)}
        described |= {"epochs": str(epochs)} if epochs else {}
        if resume:
            alone = [] if index is None or "index" not in (resume.state or {}) else [layouts[index]]
            parts = origin_of(problem, cut(params, alone[0])) if alone else origin
            start, state = check_resumable(resume, config, parts)
            params |= join([start], alone) if alone else start
        if checkpoint:
            checkpoint.keep_origin(origin)
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
                checkpoint=checkpoint,
            )
            server.origin.update(described)
            servers.append(stack.enter_context(server.serve(_next(address, place), token, plaintext=plaintext)))
        try:
            yield Served(servers, problem, resume)
        finally:
            for server in servers:
                server.stop()
            for server in servers:
                server.let_go(FAREWELL_S)


def _next(address: str | None, place: int) -> str | None:
    """The address ``place`` ports after the first server's, or a free one. ValueError if the first has no port."""
    if address is None or place == 0:
        return address
    head, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"Several servers use consecutive ports, but {address!r} has no port.")
    return f"{head}:{int(port) + place if int(port) else 0}"


class _PolledEvent(Event):
    """An event that counts as set once a function returns True."""

    def __init__(self, poll: Callable[[], bool]) -> None:
        super().__init__()
        self._poll = poll

    def is_set(self) -> bool:
        if not super().is_set() and self._poll():
            self.set()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        deadline = time.monotonic() + (MOST_S if timeout is None else timeout)
        while not self.is_set() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
        return self.is_set()


def _event(stop: Event | Callable[[], bool] | None) -> Event:
    """``stop`` as an event. Raises TypeError if it is neither an event nor a function."""
    if isinstance(stop, Event | None):
        return stop or Event()
    if not callable(stop):
        raise TypeError(f"stop takes a threading.Event, or a function that returns True to leave; got {stop!r}.")
    return _PolledEvent(stop)


def _check_own_rows(config: Config, epochs: str | None) -> None:
    """Raise ValueError if the run's steps or the workers' shards depend on rows that all workers share."""
    if config.shards != Contiguous():
        words = f"The run divides its rows by shards={config.shards!r}, but this worker has rows of its own"
        raise ValueError(f"{words}. Leave out shards or own_rows.")
    if epochs:
        raise ValueError(
            f"The server computed its steps from epochs={epochs} and its own rows, so they do not fit a worker with "
            "other rows. Serve with steps (--steps) instead of epochs."
        )


def _retry(call: Callable[[], T], stop: Event, start: StartWait, *late: type[OSError]) -> T:
    """Return the result of ``call``. Retry it after errors of the types ``late`` until the wait is over: the server may
    not have started yet, or may be stopped for a while. A function ``stop`` is not called here: it may need the client.
    """
    said = ""
    while True:
        try:
            return call()
        except late as error:
            if start.over() or Event.is_set(stop):
                raise
            start.log(f"the server ({message_of(error).rstrip('.')})", at_once=said != message_of(error))
            said = message_of(error)
        Event.wait(stop, DIAL_S)


def _await_others(client: Client, token: str, timeout: float, stop: Event, start_timeout_s: float) -> None:
    """Wait until all workers are connected or the run has begun. Raises TimeoutError if neither happens in time."""
    config, address = client.config, client.addresses[0]
    start = StartWait(f"Worker {client.worker}", start_timeout_s, timeout)
    with asking(address, token, config.shaped_transport(), timeout, config.pull) as ask:
        while not stop.is_set():
            status = _retry(partial(ask, "status"), stop, start, TimeoutError)
            if why := status.get("stuck"):
                raise RuntimeError(why)
            absent = _absent(status, client.resumed_at)
            if not absent:
                return
            if late := start.look(absent):
                raise TimeoutError(late)
            stop.wait(LOOK_S)


def _absent(status: Header, resumed_at: int) -> list[int]:
    """The workers that the run waits for before it begins. If the server's status does not list them, these are the
    workers that have not connected yet and have not left.
    """
    if status["done"] or status["applied"] > resumed_at:
        return []
    missing = [one["worker"] for one in status["workers"] if not one["connected"] and one.get("counts", True)]
    return status.get("awaited") or missing


def _words(error: BaseException) -> str:
    """The text of an error, as it appears in a server's event."""
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted"
    return f"{type(error).__name__}: {message_of(error)}"
