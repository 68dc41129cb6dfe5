"""A worker's side of a run: it pushes gradients and pulls parameters, over one channel to each server.

Every call returns a future immediately. The client cuts a tensor on several servers into pieces, and joins them.
"""

import operator
import reprlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from minips.core.codec import unpack
from minips.core.config import Config
from minips.core.limits import Expected
from minips.core.message import ADVICE, AT_FIRST, Header, Message, NonFiniteError
from minips.core.partition import cut_state, join_state
from minips.core.protocol import ServerRecord, WorkerProtocol
from minips.core.resending import Resending, hello_again
from minips.core.sessions import Do, Receive, Send, Session, carry_out
from minips.core.shard import check_gradients
from minips.core.tables import Gradients, Wanted, check_rows, wanted_rows
from minips.drivers.reconnecting import Meet, Reconnecting
from minips.intake import as_number
from minips.results import saved
from minips.results.state import LinkState, WorkerState
from minips.results.trace import ANSWER, Trace
from minips.stage import Array, Frames, Tensors
from minips.stages.compressors.base import BombError
from minips.stages.transports import Channel
from minips.stages.transports.base import Closable
from minips.stages.transports.framing import TooLargeError
from minips.stages.transports.futures import CallFuture
from minips.words import message_of

T = TypeVar("T")
Versions = tuple[int, ...] | None


@dataclass(frozen=True)
class Ref:
    """A reference to a tensor on the servers: its name, shape and dtype. ``fetch()`` pulls its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    _client: "Client"

    def fetch(self, rows: Sequence[int] | None = None) -> Array:
        """Return the values, or only those of these ``rows``, once the consistency model lets this worker pull."""
        chosen = None if rows is None else {self.name: rows}
        return self._client.pull([self.name], chosen).result()[self.name]

    def __repr__(self) -> str:
        return f"<Ref {self.name!r} {self.dtype}{list(self.shape)}>"


class Client(Closable):
    """One worker's connection to all the servers. `connect` and the engines create clients; engines also pass the
    ``secrets`` of the worker's session, one for each server. ``again``: an earlier process of this session has kept its
    memories.
    """

    def __init__(
        self,
        addresses: list[str],
        config: Config,
        worker: int,
        token: str,
        timeout: float = 10.0,
        trace: Trace | None = None,
        pauses_s: Sequence[float] | None = None,
        secrets: Sequence[str] = (),
        rows: float = 0,
        again: bool = False,
    ) -> None:
        self.addresses, self.config, self.worker, self._timeout = addresses, config, worker, timeout
        self.trace = Trace(f"worker {worker}") if trace is None else trace
        self.bytes_sent = self.bytes_received = 0
        self.files: Any = None
        """The `WorkerFiles` of a client with a session's file, if only this worker knows how to continue."""
        self._closing = threading.Event()
        self._beginning = threading.Lock()
        """Held from the beginning of a call until the call has sent all its messages."""
        self._stepping = threading.Lock()
        """Held while a session runs from one need to the next, since all calls share the servers' records."""
        self._servers = [_MeteredRecord(self, index) for index in range(len(addresses))]
        for server, secret in zip(self._servers, secrets, strict=False):
            server.secret = secret
        self.protocol = WorkerProtocol(worker, self._servers, rows if config.aggregator.weighs else 0)
        self._connections: list[Reconnecting] = []
        self._dials: list[Callable[[], Channel]] = []
        self._numbers = count()
        self._leaves, self.resumed_at = False, 0
        """``_leaves``: true if the servers will keep this worker's state; ``resumed_at``: pushes applied before."""
        transport = config.shaped_transport()
        try:
            for index, address in enumerate(addresses):
                dial = partial(transport.connect, address, token, timeout)
                self._dials.append(dial)
                resending = Resending(partial(hello_again, self.protocol, index), pauses_s, config.transport)
                self._connections.append(Reconnecting(dial, resending, self._meet, self._stepping))
            self._check_servers(
                self.begin(self.protocol.hello(again=again), timed=False).result(timeout) if addresses else []
            )
        except BaseException:
            self._shutdown()
            raise
        self._heart = threading.Thread(target=self._beat, name=f"minips-heart-{worker}", daemon=True)
        self._heart.start()

    @property
    def done(self) -> bool:
        """True once all servers have said that the run is over."""
        return self.protocol.done

    @property
    def clock(self) -> int:
        """The highest clock of this worker's next push at any server: the number of its pushes so far.

        Each server counts separately: with backup workers, a push can be late at one server and in time at another.
        """
        return self.protocol.clock

    @property
    def versions(self) -> tuple[int, ...]:
        """For each server, the version of the parameters pulled last."""
        return self.protocol.versions

    def push(self, gradients: Gradients, *, loss: float | None = None, versions: Versions = None) -> CallFuture[str]:
        """Send gradients. The future's result is the outcome: applied, held (for its round), late, duplicate or over.

        ``loss`` is the training loss of the gradients. ``versions`` are those of the parameters from which the
        gradients were computed (None: the last pull's). Without rounds (SSP, ASP), the server scales each push by
        1/workers. ValueError if names, shapes or dtypes differ from the parameters', or if a value is NaN or infinite.
        """
        return self._push(gradients, loss, versions, False, lambda answers: str(answers[0].header["outcome"]))

    def pull(
        self, names: Sequence[str] | None = None, rows: Mapping[str, Sequence[int]] | None = None
    ) -> CallFuture[Tensors]:
        """Fetch all parameters, or those with these ``names``. The future waits as the consistency model says.

        ``rows`` maps a tensor's name to the rows to fetch, in order; the servers send only those. ValueError for names
        or rows that do not exist.
        """
        if isinstance(names, str) or not isinstance(names, Iterable | None):
            raise TypeError(f"pull takes a list of names, such as ['w'], or None for all of them; got {names!r}.")
        names = None if names is None else list(names)
        chosen = wanted_rows(names or (), rows, self.protocol.like)
        return self.begin(self.protocol.pull(names, chosen), lambda answers: self.protocol.join(answers, chosen))

    def push_pull(
        self, gradients: Gradients, *, loss: float | None = None, versions: Versions = None, rows: Wanted = None
    ) -> CallFuture[Tensors]:
        """Push and then pull in a single round trip: one request and one answer. For ``rows`` see `pull`."""
        if rows is None:
            return self._push(gradients, loss, versions, True, self.protocol.join)
        chosen = wanted_rows((), rows, self.protocol.like)
        return self._push(gradients, loss, versions, True, partial(self.protocol.join, rows=chosen), chosen)

    def begin(
        self,
        session: Session[T],
        finish: Callable[[T], Any] = lambda result: result,
        *,
        timed: bool = True,
        last: bool = False,
    ) -> CallFuture[Any]:
        """Carry out a session of this worker until it has sent all its messages. Returns a future; its result is
        ``finish`` of the session's result.

        The trace records the times of a ``timed`` call. The ``last`` call does not reconnect.
        """
        with self._beginning:
            for server in self._servers:
                if server.unsure:
                    _Call(self, self.protocol.agree()).result(self._timeout)
            call = _Call(self, session, finish, timed, last)
        if timed and self.config.overlap:
            call.attend()  # the worker computes its next gradient before any thread waits for this call
        return call

    def refs(self) -> dict[str, Ref]:
        """A reference to each tensor on the servers, by name."""
        return dict(self._refs)

    def report(self) -> dict[str, Any]:
        """The client's part of the run's report."""
        codecs = [server.state() for server in self._servers]
        counts = {"bytes_sent": self.bytes_sent, "bytes_received": self.bytes_received}
        return {**counts, "trace": self.trace, "links": codecs}

    def resume(self) -> WorkerState | None:
        """Fetch the state that this worker left in the run that the servers resume; call it before any push or pull.
        Restores the worker's codecs. Returns the state, or None if it left none or the servers do not know this
        message.
        """
        try:
            answers = self.begin(self.protocol.ask_all("state"), timed=False).result(self._timeout)
        except (TooLargeError, BombError):
            raise
        except ValueError:
            return None
        self._leaves = all(answer.header["leave"] for answer in answers)
        self.resumed_at = int(answers[0].header["applied"])
        parts: list[Any] = []
        for server, answer in zip(self._servers, answers, strict=True):
            if answer.tensors:
                parts.append(saved.from_arrays(answer.tensors, "The state that this worker left"))
                server.restore(parts[-1]["link"])
        whole = len(parts) == len(answers)
        return join_state(parts, [server.layout for server in self._servers]) if whole else None

    def restore(self, links: Sequence[LinkState]) -> None:
        """Resume from a saved run's links, one for each server; the servers resume, too. ValueError for other links."""
        with saved.restoring("What Client.restore got"):
            for server, link in zip(self._servers, links, strict=True):
                server.restore(link)

    def close(self, *, diverged: str = "", failed: str = "", state: WorkerState | None = None) -> None:
        """Say goodbye and close the connections. A reason as ``diverged`` ends the run; a reason as ``failed`` goes to
        the run's events. ``state`` is the worker's part of a saved run, for servers that keep it.
        """
        why = {name: text for name, text in (("diverged", diverged), ("failed", failed)) if text}
        if not self._closing.is_set():
            self._closing.set()
            if not why and state and self._leaves:
                try:
                    parts = [cut_state(state, server.index, server.layout) for server in self._servers]
                    self.begin(self.protocol.leave(parts), timed=False, last=True).result(self.config.timeout_s)
                    self._forget()
                except Exception as error:  # a user's own memory may hold what cannot be sent
                    why = {"failed": f"its memories were not saved: {message_of(error)}"}
            elif not why:
                with suppress(Exception):
                    self.begin(self.protocol.ask_all("bye"), timed=False, last=True).result(1.0)
                    self._forget()
            for index, dial in enumerate(self._dials if why else ()):
                # A signal may have interrupted a call anywhere, so the old connections are useless.
                self._connections[index].close()
                with suppress(Exception), dial() as channel:
                    self._carry_out(self.protocol.hello(index), channel)
                    self._carry_out(self.protocol.ask_one(index, "bye", **why), channel)
        self._shutdown()
        self._heart.join()
        if self.files:
            self.files.close()

    def _check_servers(self, answers: list[Message]) -> None:
        indices = [answer.header["index"] for answer in answers]
        wanted = answers[0].header["servers"] if answers else self.config.servers
        if indices != list(range(wanted)):
            raise ValueError(
                f"Expected the addresses of all {wanted} servers of one run, in their order; "
                f"got servers {', '.join(map(str, indices)) or 'none'}."
            )
        layouts = [item for server in self._servers for item in server.layout.items()]
        self._refs = {name: Ref(name, part.shape, part.dtype, self) for name, part in layouts}
        self._beat_s = min(answer.header["silence_s"] for answer in answers) / 4
        for connection, answer in zip(self._connections, answers, strict=True):
            connection.resending.outlast(answer.header.get("rejoin_s", 0.0))

    def _push(
        self,
        gradients: Gradients,
        loss: float | None,
        versions: Versions,
        pulls: bool,
        finish: Callable[[list[Message]], Any],
        rows: Wanted = None,
    ) -> CallFuture[Any]:
        if type(gradients) is not dict and not isinstance(gradients, Mapping):
            raise TypeError(
                f"A push takes a mapping of names to gradients, here of {', '.join(self.protocol.like)}; "
                f"got {reprlib.repr(gradients)}."
            )
        like, tables = self.protocol.like, self.protocol.tables
        try:
            tensors = check_rows(gradients, like, tables) if tables else check_gradients(gradients, like)
        except NonFiniteError as error:
            raise NonFiniteError(f"{error} {ADVICE if any(self.versions) else AT_FIRST}") from None
        try:
            whole = None if versions is None else [*map(operator.index, versions)]
        except TypeError:
            whole = []
        if whole is not None and len(whole) != len(self._servers):
            raise ValueError(
                f"versions holds one whole number for each of the {len(self._servers)} servers, as client.versions "
                f"does, or is None; got {versions!r}."
            )
        if loss is not None and type(loss) is not float:
            loss = as_number(loss, "The loss of a push")
        return self.begin(self.protocol.push(tensors, loss, whole, pulls, rows), finish)

    def _carry_out(self, session: Session[Any], channel: Channel) -> None:
        """Carry out a session of one message on this connection."""
        carry_out(session, self._meet(channel), self._stepping)

    def _meet(self, channel: Channel) -> Meet:
        """The functions that send a session's one message on this connection, and receive its answer."""
        answers: list[Future[Frames]] = []

        def send(need: Send) -> None:
            self.bytes_sent += sum(map(len, need.parcel))
            answers.append(channel.call(need.parcel))

        def receive(need: Receive) -> _Answer:
            return answers[0].result(self.config.timeout_s), None

        return {Send: send, Receive: receive}

    def _beat(self) -> None:
        while not self._closing.wait(self._beat_s):
            for server, connection in zip(self._servers, self._connections, strict=True):
                if server.outstanding:  # an answer may have arrived that no thread waits for
                    connection.channel.attend()
                else:
                    with suppress(Exception):
                        self.begin(self.protocol.ask_one(server.index, "alive"), timed=False).result(self._beat_s)

    def _forget(self) -> None:
        """After a goodbye, forget the last push: a later session begins with new memories."""
        if self.files:
            self.files.forget()

    def _shutdown(self) -> None:
        self._closing.set()
        for connection in self._connections:
            connection.close()


_Answer = tuple[Frames, float | None]
"""The frames of an answer, and the time of its request (None for a call that is not timed)."""


class _MeteredRecord(ServerRecord):
    """A server's record that adds the times of each message to the client's trace."""

    def __init__(self, client: Client, index: int) -> None:
        super().__init__(client.config, client.worker, index, client.trace)
        self._client, self.outstanding = client, 0

    def decode(self, answer: _Answer, expected: Expected | None = None) -> tuple[Message, Header]:
        (frames, sent_at), (limits, like), trace = answer, expected or self.anything, self.trace
        nbytes = sum(map(len, frames))
        self._client.bytes_received += nbytes
        packet, stamp, names, moments = unpack(frames, self.config.pull, trace, self.plan, limits, like)
        if sent_at is not None:  # the trace shows both transfers first, then the wait between them
            received_at, busy, waited = moments[0], float(stamp.get("busy", 0.0)), float(stamp.get("waited", 0.0))
            travelled = max(0.0, received_at - sent_at - busy - waited)
            names, moments = ANSWER[: 3 + len(names)], (sent_at, sent_at + travelled, received_at - waited, *moments)
        trace.laps(names, moments, "reply", self.index, stamp.get("clock"), nbytes)
        return self.decoder.decode(packet, like), stamp


class _Request:
    """One message of a call, as the client sent it to one server."""

    __slots__ = ("breaks", "call", "frames", "index", "number", "sent_at")

    def __init__(self, call: "_Call", index: int, frames: Frames, sent_at: float | None) -> None:
        self.call, self.index, self.frames, self.sent_at = call, index, frames, sent_at
        self.number, self.breaks = next(call.client._numbers), 0

    @property
    def last(self) -> bool:
        return self.call.last

    def arrived(self, frames: Frames) -> None:
        self.call.answered(self.index, (frames, self.sent_at), None)

    def failed(self, error: Exception) -> None:
        if failure := self.call.client._connections[self.index].failed(self, error):
            self.call.answered(self.index, None, failure)


class _Call(CallFuture[Any]):
    """A call as a future, which carries out a session. The calling thread begins: it sends the messages. Whenever the
    session then needs an answer, the thread that reads this answer continues: the one that waits for the call or, after
    `attend`, a channel's background thread. Errors before a message is sent are raised immediately.
    """

    def __init__(
        self,
        client: Client,
        session: Session[Any],
        finish: Callable[[Any], Any] = lambda result: result,
        timed: bool = False,
        last: bool = False,
    ) -> None:
        self.client, self.last, self._session, self._finish, self._timed = client, last, session, finish, timed
        self._needed = set[int]()
        """The server whose answer the session needs; empty while a thread carries out the session."""
        self._early: dict[int, tuple[_Answer | None, Exception | None]] = {}
        """The answers, or errors, that arrived before the session needs them, by server."""
        self._sent = False
        self._advance(None, None)
        if not self._sent:
            self.result(0)

    def answered(self, index: int, answer: _Answer | None, error: Exception | None) -> None:
        """Continue with a server's answer; if the session needs another one first, keep it."""
        with self.client._stepping:
            self.client._servers[index].outstanding -= 1
            if index not in self._needed:
                self._early[index] = answer, error
                return
            self._needed.clear()
        self._advance(answer, error)

    def drive(self, deadline: float | None) -> None:
        while needed := [*self._needed]:
            has_come = partial(self._needed.isdisjoint, needed)
            self.client._connections[needed[0]].channel.read(has_come, deadline)
            if not has_come():  # it is too late, or another thread reads here or reconnects
                break
        if self._state != "FINISHED":  # the next answer may arrive from a server that no thread reads
            self.attend()

    def attend(self) -> None:
        for connection in self.client._connections:
            connection.channel.attend()

    def _advance(self, answer: Any, error: Exception | None) -> None:
        """Pass the answer to the session, and run it until it needs an answer that has not arrived yet."""
        session, early = self._session, self._early
        try:
            while True:
                with self.client._stepping:
                    need = session.send(answer) if error is None else session.throw(error)
                    if type(need) is Receive and need.source not in early:
                        self._needed.add(need.source)
                        return
                answer, error = None, None
                if type(need) is Do:
                    try:
                        answer = need.call()
                    except Exception as raised:
                        error = raised
                elif type(need) is Send:
                    error = self._send(need.to, need.parcel)
                elif type(need) is Receive:
                    answer, error = early.pop(need.source)
                else:
                    error = RuntimeError(f"A worker's session waits for servers' answers only, but it needs {need!r}.")
        except StopIteration as end:
            try:
                self._complete(self._finish(end.value), None)
            except Exception as raised:
                self._complete(None, raised)
        except Exception as raised:
            self._complete(None, raised)

    def _send(self, index: int, frames: Frames) -> Exception | None:
        """Send a message. Returns the error if it cannot be sent."""
        client = self.client
        client.bytes_sent += sum(map(len, frames))
        request = _Request(self, index, frames, time.monotonic() if self._timed else None)
        client._servers[index].outstanding += 1
        try:
            client._connections[index].channel.ask(frames, request)
        except Exception as error:  # nothing was sent
            if failure := client._connections[index].failed(request, error):
                client._servers[index].outstanding -= 1
                return failure
        self._sent = True
        return None
