"""A parameter server: a transport, its threads and the wall clock around one shard and its sessions.

Each connection has a thread, which carries out the session of each request (`minips.core.protocol`). Between two needs
of the session, the thread holds the server's only lock; it releases the lock for the session's work. A session that has
to wait is put aside. The thread whose session makes others ready goes on with them too, and sends their answers. A
thread of its own sends the rest of an answer whose peer is slow and, if the server holds more than `LARGE_BYTES` of
parameters, goes on with each ready session. A watcher looks at what time alone changes.
"""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from minips.core.config import Config, check_seconds
from minips.core.limits import check_run, of_requests
from minips.core.local import warn_of_outer
from minips.core.membership import REJOIN_S, SILENCE_S, ClientConnection, Member
from minips.core.partition import cut, layout_at, named_arrays
from minips.core.protocol import ServerProtocol
from minips.core.sessions import Do, Session, Until
from minips.core.shard import Shard
from minips.core.states import Resumption
from minips.core.tables import rows_pushed
from minips.drivers.checkpoint import ServerFiles
from minips.drivers.starting import START_S, ServerStart
from minips.problems import Problem
from minips.results import saved
from minips.results.checkpoints import Checkpoint
from minips.results.run import Progress, Run, Watch, gather_run
from minips.results.state import ServerState, check_state
from minips.results.status import Status, expected
from minips.results.trace import Trace
from minips.stage import Array, Frames, Tensors
from minips.stages.transports import Connection, Endpoint, Service
from minips.stages.transports.base import DEFERRED, Closable, Reply, check_token
from minips.stages.transports.patience import Limit, outlasts
from minips.words import as_error, check_count, check_type

TURN_S, TURNS = 1.0, 20
"""The watcher checks waiting sessions at least every ``TURN_S`` seconds, and at least ``TURNS`` times in a time-out."""
LARGE_BYTES = 2**16
"""A server with more bytes of parameters continues each waiting session in a separate thread."""
LOOK_S = 0.05
"""The seconds between two checks by `Server.wait` for the end of the run."""
FAREWELL_S, LEAVE_S = 1.0, 5.0
"""The seconds for workers to say goodbye once they know of the end, and for those that send their state with it."""


class Server(Closable):
    """A server: it holds parameters, applies workers' pushes, and answers their pulls.

    ``params`` are all the parameters, named arrays of floating-point numbers. If ``config.servers`` is above 1,
    this server has the number ``index``, and keeps its part. The run ends after ``updates`` applied pushes; under BSP,
    they include those missing from workers that left. None: it has no end, and the server keeps only the last rows of
    its records. A worker that is silent for ``silence_s`` seconds, or whose last connection broke ``rejoin_s`` seconds
    ago, no longer counts; its rank is free. ``rank_secrets``, one per rank, reserve ranks for clients that know them.
    The server pauses after every ``every`` clocks of all the workers, until `go_on`. ``state`` is this server's part of
    a saved run. ``tables`` names the tensors pushed by `Rows`. `wait` gives workers ``start_timeout_s`` to connect.

    With a ``checkpoint``, or the path of its folder, what the server has acknowledged survives its process: a server
    made with the same arguments goes on with the run in that folder. Lost workers then keep their ranks for
    ``silence_s`` seconds, unless ``rejoin_s`` says otherwise.

    TypeError or ValueError for an argument that could not work. OSError if the folder cannot be written.

    >>> import numpy as np
    >>> import minips as ps
    >>> config = ps.Config(transport="inproc", consistency="asp", workers=1, optimizer=ps.SGD(lr=0.5))
    >>> with Server({"w": np.zeros(2)}, config).serve() as server:
    ...     with ps.connect(server.address, config, token=server.token) as client:
    ...         client.push_pull({"w": np.array([1.0, -1.0])}).result()["w"]
    array([-0.5,  0.5])
    """

    def __init__(
        self,
        params: Mapping[str, Array],
        config: Config,
        *,
        index: int = 0,
        updates: int | None = None,
        silence_s: float = SILENCE_S,
        rejoin_s: float | None = None,
        every: int | None = None,
        state: Mapping[str, Any] | None = None,
        checkpoint: Checkpoint | str | Path | None = None,
        tables: Collection[str] = (),
        rank_secrets: Sequence[str] = (),
        start_timeout_s: float = START_S,
    ) -> None:
        check_type("Server", config, Config, "the Config that its clients have")
        if not isinstance(index, int) or not 0 <= index < config.servers:
            raise ValueError(f"Config.servers is {config.servers}: index is 0 to {config.servers - 1}, got {index!r}.")
        check_count("updates", updates, "how many pushes end the run, at least 1, or None for a server without an end")
        check_count("every", every, "a number of clocks, at least 1, or None for no pauses")
        check_seconds("silence_s", silence_s)
        kept_in = Checkpoint.of(checkpoint)
        rejoin_s = (silence_s if kept_in else REJOIN_S) if rejoin_s is None else rejoin_s
        check_seconds("rejoin_s", rejoin_s)
        check_type("Server", state, Mapping | None, "its state of a saved run")
        check_type("Server", tables, Collection, "the names of tables")
        whole = named_arrays(params, "Server takes its parameters", "parameter")
        self.config, self.index, self.silence_s, self.rejoin_s = config, index, silence_s, rejoin_s
        check_run(config, whole, tables, trained=False)
        self.layout = layout_at(whole, config.servers, index, tables, config.placement)
        self.trace = Trace(f"server {index}")
        pause = math.inf if every is None else every * config.workers
        own = cut(whole, self.layout)
        self._files = ServerFiles(kept_in, config, index) if kept_in else None
        if self._files:
            own = self._files.params(own)
        self.shard = Shard.of(config, own, updates=updates, now=time.monotonic, every=pause, tables=tables)
        self.address, self.token = "", ""
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._waiting: list[_WorkerConnection] = []
        """The connections whose sessions were put aside, the oldest first."""
        self._to_check = False
        """True if a change may have made waiting sessions ready, and no thread has checked them since."""
        self._large = sum(x.nbytes for x in own.values()) > LARGE_BYTES
        self._limits = limits = of_requests(config, whole, self.layout, index, updates is not None)
        self._protocol = protocol = ServerProtocol(
            self.shard,
            config,
            index,
            self.layout,
            self.trace,
            self._wake,
            silence_s=silence_s,
            rejoin_s=rejoin_s,
            rank_secrets=rank_secrets,
            limits=limits,
            updated=self._files.updated if self._files else None,
        )
        if state is not None:
            if self._files and self._files.goes_on:
                raise ValueError(f"The folder {self._files.checkpoint.folder} holds a run: leave out state.")
            with saved.restoring("The state for Server"):
                protocol.restore(check_state(ServerState, state, "the server"))
        self.start = ServerStart(protocol, self._lock, self._changing, start_timeout_s)
        if self._files:
            self._files.attach(protocol)
        self._membership, self._members = protocol.membership, protocol.membership.members
        self.losses, self.events = protocol.losses, protocol.events
        self.origin = protocol.origin
        self._endpoint: Endpoint | None = None
        self._watcher: threading.Thread | None = None

    def after_updates(self, call: Callable[[], None]) -> None:
        """Also call this after each update, with the server's lock held."""
        protocol, before = self._protocol, self._protocol.updated

        def updated() -> None:
            if before:
                before()
            call()

        protocol.updated = updated

    def serve(
        self, address: str | None = None, token: str | None = None, *, private: bool = False, plaintext: bool = False
    ) -> Self:
        """Start to answer at ``address`` (None: a local one), with ``token`` (None: a fresh one). Use with ``with``.

        An address that other machines can reach needs TLS, unless the network is ``private`` or ``plaintext`` is true;
        the run's events record the latter. OSError if the address cannot be used. ValueError for an address that needs
        TLS; ValueError or TypeError for an invalid address or token. An error closes a server with a checkpoint.
        """
        try:
            self._serve(address, token, private, plaintext)
        except BaseException:
            if self._files:
                self.close()
            raise
        return self

    def _serve(self, address: str | None, token: str | None, private: bool, plaintext: bool) -> None:
        check_type("serve", address, str | None, "an address as tcp://127.0.0.1:0, or None for a fresh local one")
        if token is not None:
            check_token(token)
        if not private and self.config.transport.plain(address, "certificate", plaintext):
            self.events.append((self.shard.now(), f"{address} is served without TLS, as plaintext=True says"))
            logging.getLogger("minips").warning(self.events[-1][1])
        warn_of_outer(None if token else self.config.local, self.config.optimizer)  # else the engine has warned
        self.token = secrets.token_hex(16) if token is None else token
        service = Service(partial(_WorkerConnection, self))
        self._endpoint = self.config.shaped_transport(self._limits.nbytes).serve(service, address, self.token)
        self.address = self._endpoint.address
        self._watcher = threading.Thread(target=self._watch, name=f"minips-watch-{self.index}", daemon=True)
        self._watcher.start()
        if self._files and self._files.lost_at is not None:
            _start_thread(partial(self._await_return, self._files.lost_at))

    @property
    def params(self) -> Tensors:
        """A copy of this server's current parameters."""
        with self._lock:
            params = self.shard.params
        return {name: x.copy() for name, x in params.items()}

    @property
    def diverged(self) -> str | None:
        """The reason why the run ended before its updates were applied."""
        return self.shard.diverged

    def diverge(self, reason: str) -> None:
        """End the run with the current parameters. Pushes are then answered with ``over``, and pulls immediately."""
        with self._changing():
            self._protocol.diverge(reason)

    @property
    def paused(self) -> bool:
        """True while pushes, and with rounds also pulls, wait for `go_on`."""
        return self.shard.paused

    def pause(self, at: float | None = None) -> float:
        """Pause as `Shard.pause` does. To pause several servers together, use the largest count that they return."""
        check_type("pause", at, int | float | None, "a count of pushes")
        with self._changing():
            return self.shard.pause(at)

    def go_on(self, end: bool = False) -> None:
        """Leave a pause, or ``end`` the run with the current parameters."""
        with self._changing():
            self._protocol.go_on(end)

    def stop(self) -> None:
        """End the run with the current parameters. Workers learn of this from the next answer that they receive."""
        self.go_on(end=True)

    def wait(
        self, timeout: float | None = None, *, problem: Problem | None = None, progress: Watch | None = None
    ) -> Run:
        """Block until the run is over, and return it.

        The run is over if its updates have been applied (under BSP those of the remaining workers), if it has diverged
        or was stopped, or if workers have pushed and all have left: with a goodbye, or without one for longer than
        ``silence_s``. The workers then have up to ``Config.timeout_s`` seconds to learn of that. The run keeps
        ``problem``, and its loss and accuracy on held-out rows. The server calls ``progress`` a few times a second. The
        run records the time since all workers were connected, and the bytes that this server received and sent. With
        several servers, each run has only its server's part of the parameters.

        TimeoutError after ``timeout`` seconds, while the run continues, and if a worker has not connected
        ``start_timeout_s`` after the first call (infinity: it waits for ever). RuntimeError if no round can end.
        """
        check_type("wait", timeout, int | float | None, "seconds as its timeout")
        check_type("wait", problem, Problem | None, "a Problem")
        check_type("wait", progress, Callable | None, "a function as its progress")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._over():
            self.start.check()
            if progress:
                progress(Progress.of(self.config, self.shard.applied, expected(self.shard) or 0, self.losses))
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"The run is not over in {timeout:g} seconds: {self.shard.applied} pushes applied.")
            if self._closing.wait(LOOK_S):
                break
        self.let_go(self.config.timeout_s)
        run = gather_run(self.config, [self.report()])
        return run.judge(problem) if problem else run

    def let_go(self, timeout: float) -> None:
        """Wait for up to ``timeout`` seconds until all workers know that the run is over, and a little longer for their
        goodbyes.
        """
        phases: list[tuple[float, Callable[[Member], bool]]] = [
            (timeout, lambda worker: not worker.informed),
            (min(timeout, FAREWELL_S), lambda worker: True),
            (LEAVE_S, lambda worker: worker.leaves),
        ]
        for seconds, waited_for in phases:
            left = Limit(seconds)
            while any(worker.connections and waited_for(worker) for worker in self._members):
                if left.over() or self._closing.wait(min(LOOK_S, left.tick)):
                    break

    @property
    def connected(self) -> int:
        """The number of connected workers."""
        with self._lock:
            return self._membership.connected

    def status(self) -> Status:
        """The current progress of the run, and its workers."""
        with self._lock:
            return self._protocol.status()

    def report(self) -> dict[str, Any]:
        """This server's part of the run's report."""
        shard, protocol, began_at = self.shard, self._protocol, self._membership.began_at
        began_at = protocol.changed_at if began_at is None else began_at
        began_at = began_at if self._membership.resumed_at is None else self._membership.resumed_at
        words = "did not fetch its saved state: its memories begin anew"
        restarted = [n for n, record in enumerate(protocol.records) if record.resumption is Resumption.RESTARTED]
        events = [*((began_at, f"worker {worker} {words}") for worker in restarted), *self.events]
        counts = {"applied": shard.applied, "late": shard.late, "staleness": shard.staleness, "grants": shard.grants}
        times = {"losses": self.losses, "changed_at": protocol.changed_at, "events": events, "trace": self.trace}
        return {
            "index": self.index,
            "params": self.params,
            "layout": self.layout,
            "rows": rows_pushed(shard),
            "state": protocol.state(),
            "left": [record.kept for record in protocol.records],
            **counts,
            "missing": shard.missing,
            **times,
            "began_at": began_at,
            "bytes_sent": sum(worker.received for worker in self._members),  # as the workers count them
            "bytes_received": sum(worker.sent for worker in self._members),
            "stopped": shard.updates is not None and shard.made < shard.updates and not shard.diverged,
            "diverged": shard.diverged,
        }

    def close(self) -> None:
        """End the waiting sessions, close all connections, and free the address."""
        with self._changing():
            self._closing.set()
        if self._endpoint:
            self._endpoint.close()
        if self._watcher:
            self._watcher.join()
        if self._files:
            self._files.close()

    def _carry_out(
        self, session: Session[Any], connection: "_WorkerConnection | None" = None, error: Exception | None = None
    ) -> Any:
        """Carry out a session with the lock held, which is released for the session's work. Returns its result; or puts
        the session aside if it has to wait, and returns `DEFERRED`. Raises an ``error`` in the session first.
        """
        answer, lock = None, self._lock
        while True:
            try:
                need = session.send(answer) if error is None else session.throw(error)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            if type(need) is Do:
                if not need.alone:
                    lock.release()
                try:
                    answer = need.call()
                except BaseException as raised:  # in a connection's thread, it would go unnoticed
                    error = as_error(raised)
                finally:
                    if not need.alone:
                        lock.acquire()
            elif type(need) is Until and connection:
                connection.session, connection.need = session, need
                connection.left_s = self.config.timeout_s * (1 + 1 / TURNS)  # the wait may begin within a turn
                over = self._is_over(connection)
                if not over:
                    self._waiting.append(connection)
                    self._membership.waiting.add(need.worker)
                    return DEFERRED
                error = over if isinstance(over, Exception) else None
            else:
                error = RuntimeError(f"A server's session has no other party, but it needs {need!r}.")

    def _is_over(self, waiting: "_WorkerConnection") -> bool | Exception:
        """True if a session need not wait any longer, or the error that ends its wait. Call it with the lock held."""
        need, shard = waiting.need, self.shard
        try:
            if need.ready():
                return True
        except Exception as error:
            return error
        if self._closing.is_set():
            return ConnectionError("The server is closing.")
        if waiting.gone:
            return ConnectionError("The connection is closed.")
        if shard.stuck:
            return RuntimeError(shard.stuck)
        if waiting.left_s > 0:
            return False
        behind = ", ".join(f"worker {other}" for other in self._membership.behind(need.worker)) or "the others"
        return TimeoutError(
            f"Worker {need.worker} at clock {shard.clocks[need.worker]} waited {self.config.timeout_s:g} seconds for "
            f"{behind} at clock {shard.slowest()}. Are they running? Config.timeout_s sets how long to wait."
        )

    def _wake(self) -> None:
        """Note, with the lock held, that waiting sessions may be ready; `_go_on` follows once the lock is free."""
        if self._waiting:
            self._to_check = True

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock for a change outside all sessions, then resume those that are ready, also after an error."""
        try:
            with self._lock:
                try:
                    yield
                finally:
                    self._wake()
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """Go on with the waiting sessions that are ready, until none has made further ones ready. Those of a large
        server go on side by side, since their work takes longer than the start of a thread.
        """
        while self._to_check:
            self._to_check = False
            with self._lock:
                ready = [waiting for waiting in self._waiting if self._is_over(waiting)]
            for waiting in ready:
                if self._large:
                    _start_thread(partial(self._go_on_with, waiting))
                else:
                    self._go_on_with(waiting)

    def _go_on_with(self, waiting: "_WorkerConnection") -> None:
        """Go on with a session if it still is ready, and send its answer without waiting for a slow peer."""
        answer: Any
        try:
            with self._lock:
                over = waiting in self._waiting and self._is_over(waiting)
                if not over:
                    return
                self._waiting.remove(waiting)
                self._membership.waiting.discard(waiting.need.worker)
                answer = self._carry_out(waiting.session, waiting, over if isinstance(over, Exception) else None)
        except Exception as raised:
            answer = self._protocol.refusal(raised)
        if self._large:
            self._go_on()
        if answer is not DEFERRED and (rest := waiting.reply(answer)):
            _start_thread(rest)

    def _over(self) -> bool:
        """True once the run is over. RuntimeError if no further round can be completed."""
        with self._lock:
            if self.shard.done:
                return True
            if self.shard.stuck:
                raise RuntimeError(self.shard.stuck)
            return self._membership.gone()

    def _connection_closed(self, connection: ClientConnection) -> None:
        """Handle a closed connection, with or without a goodbye. Its worker may come back for a while."""
        with self._lock:
            lost_at, worker = self._membership.lost(connection), connection.worker
        if lost_at is not None and outlasts(self.rejoin_s, self._closing):
            self._leave(worker, f"worker {worker} is gone: its connection closed without a goodbye", lost_at)

    def _await_return(self, lost_at: float) -> None:
        """After a restart, stop counting the workers that do not come back within ``silence_s`` of the first one."""
        while not self._membership.connected:
            if self._closing.wait(LOOK_S):
                return
        if outlasts(max(self.rejoin_s, self.silence_s), self._closing):
            for worker in range(self.config.workers):
                self._leave(worker, f"worker {worker} did not come back after the server's restart", lost_at)

    def _leave(self, worker: int, event: str, lost_at: float | None = None) -> None:
        with self._changing():
            self._carry_out(self._protocol.leave(worker, "" if self._closing.is_set() else event, lost_at))

    def _watch(self) -> None:
        """Check for changes that only time causes: long waits, rules that depend on time, and silent workers."""
        quarter, looked = self.silence_s / 4, 0
        looks = math.ceil(quarter / min(TURN_S, self.config.timeout_s / TURNS))
        turn = quarter / looks
        while not self._closing.wait(turn):
            with self._changing():
                for waiting in () if self.shard.paused else self._waiting:
                    waiting.left_s -= turn  # even if more time has passed: a suspended process must not blame workers
            looked += 1
            if looked % looks == 0:
                with self._lock:
                    silent = self._membership.silent()
                for worker, event in silent:
                    self._leave(worker, event)


class _WorkerConnection(Connection, ClientConnection):
    """A connection of a worker to this server, with the session of its request if that was put aside."""

    session: Session[Frames]
    need: Until
    reply: Reply
    left_s = 0.0
    """The seconds that the session may still wait."""
    gone = False
    """True once no answer can reach the worker."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def begin(self, frames: Frames, reply: Reply) -> Frames:
        """Carry out one request's session and answer it; then resume the waiting sessions that this has made ready.

        First it sends as much of the answer as it can without waiting, so that this worker computes while the others
        are answered. The rest of the answer comes last, so that the others do not wait for a slow peer.
        """
        server, rest, self.reply = self._server, None, reply
        session = server._protocol.answer(frames, self, time.monotonic())
        try:
            with server._lock:
                answer: Frames = server._carry_out(session, self)
            if server._to_check and answer is not DEFERRED:
                answer, rest = DEFERRED, reply(answer)
        except Exception as error:
            raise server._protocol.refusal(error) from None
        finally:
            if server._to_check:
                server._go_on()
        if rest:
            rest()
        return answer

    def cancel(self) -> None:
        """Let the waiting session, if any, end."""
        with self._server._changing():
            self.gone = True

    def closed(self) -> None:
        self._server._connection_closed(self)


def _start_thread(call: Callable[[], object]) -> None:
    """Make a call in a new thread or, if none can be started, in this one."""
    try:
        threading.Thread(target=call, name="minips-answer", daemon=True).start()
    except RuntimeError:
        call()
