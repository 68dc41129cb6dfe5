"""The protocol between workers and servers, written once: real runs, simulations and predictions all follow it.

A worker has a session for each call. The session encodes all messages of the call, then sends them all, then receives
the answers in the order of the servers. A server has a session for each request. While one session runs from one need
to the next, no other session of its party runs; only the work of a `Do` may run at the same time as that of others.

Worker and clock identify a push, and each push counts once. The server acknowledges a repetition without dequantizing
it. A push that it refuses leaves the worker's clock, the parameters and the memories unchanged. A worker that does not
know whether its push was taken asks the server before its next call (``alive``, or ``hello`` if pulls have a memory).
The answer's clock shows which pushes were taken; for the others, the worker undoes the changes of its memories.

Skip the code for saved runs at first: ``state``, ``restore``, ``resume``, and the state that a worker leaves.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgpack
import numpy as np

from minips import seeds
from minips.core.codec import Codec, Decoder, Encoder, Mark, encode_plainly, unpack, wrap
from minips.core.config import Config
from minips.core.fields import ANSWERS, NEEDED, REQUESTS, check_fields, check_request
from minips.core.journal import JournalRecord, Keep
from minips.core.limits import Expected, Limits, check_plain, of_answers, of_anything
from minips.core.membership import REJOIN_S, SILENCE_S, ClientConnection, Member, Membership
from minips.core.message import Header, Message
from minips.core.partition import Layouts, cut, join
from minips.core.plan import Plan
from minips.core.rows import TablePart
from minips.core.sessions import Do, Parcel, Receive, Send, Session, Until, nothing
from minips.core.shard import Outcome, Shard, check_gradients
from minips.core.states import MemberState, Resumption
from minips.core.tables import Wanted, add_row_numbers, decode_rows, layout_of, rows_at, select_tensors, tables_of
from minips.results import saved
from minips.results.state import LeftState, LinkState, ServerState, check_state
from minips.results.status import Status
from minips.results.trace import DECODE, ENCODE, UNTIMED, UPDATE, Trace
from minips.stage import Array, Frames, Tensors, default_stage
from minips.stages.aggregators import Contribution
from minips.words import message_of, public_message

PUSHES, PULLS = ("push", "push_pull"), ("pull", "push_pull")
KEPT_ROWS = 10_000
"""A server without an end keeps the last losses, grants and events: at least this many, at most twice this many."""
_PARTED = MemberState.PARTED  # read for each message
RECEIVING, SENDING = ("transfer", *DECODE), (*ENCODE, "transfer")
"""The spans of an incoming message, and of an outgoing one."""


class ServerRecord:
    """A worker's record of one server: encoder, decoder, clock, and fields of the last answer."""

    def __init__(self, config: Config, worker: int, index: int, trace: Trace) -> None:
        self.config, self.index, self.trace = config, index, trace
        self.secret = ""
        """The secret of this worker's session, from the answer to hello or from the engine."""
        self.receive = Receive(index)
        self.encoder = Encoder(config.push, seeds.push(config.seed, worker, index), trace, index)
        self.encode: Callable[[Message], Parcel] = self.encoder.encode
        """Encodes a message into frames; in a prediction, into their sizes."""
        self.decoder, self.plan = Decoder(trace), Plan()
        self.layout: Layouts = {}
        self.anything: Expected = of_anything(config.transport), None
        self.expected: Expected | None = None
        """After `hello`, the limits and tensors expected in the answer to a pull of whole tensors."""
        self.values: float = 0
        self.clock, self.known_clock, self.version, self.done = 0, 0, 0, False
        self.holds_all = False
        """True if this server holds every tensor as a whole."""
        self.unsure = False
        """True if the server may have taken a push that failed here, or changed its memories for a lost answer."""
        self._marks: deque[tuple[int, Mark]] = deque()
        self._over = False  # after a push that came after the end: a resumed run needs the memories from before it

    def begin_push(self) -> int:
        """Return the next push's clock; call it before encoding. Keeps memories' states until the server answers."""
        clock, self.clock = self.clock, self.clock + 1
        if not self.encoder.codec.memory.stateless:
            self._marks.append((clock, self.encoder.mark()))
        self.trace.step = clock
        return clock

    def push_failed(self, clock: int, perhaps_taken: bool = False) -> None:
        """Set the clock back to that of a failed push, and the memories: now or, if ``perhaps_taken``, in `agree`."""
        self.unsure = self.unsure or perhaps_taken
        self.clock = min(self.clock, clock)
        if not perhaps_taken:
            self.undo_pushes()

    def undo_pushes(self) -> None:
        """Undo the memories' changes by pushes that the server has not taken: those from this clock on."""
        while self._marks and self._marks[-1][0] >= self.clock:
            self.encoder.go_back(self._marks.pop()[1])

    def read_stamp(self, kind: str, header: Header) -> None:
        """Read this worker's clock, and whether the run is over, from the answer to a request of this ``kind``: its
        header with the stamp. ValueError if a field is missing or invalid.
        """
        try:
            for name, (_, fits) in ANSWERS[kind].items():
                value = header.get(name)
                if not fits[type(value)](value):
                    raise KeyError(name)
        except KeyError:
            check_fields(f"The answer to {kind}", header, ANSWERS[kind], ANSWERS[kind], others=True)  # says which
        clock = self.known_clock = header["clock"]
        self.clock, self.done = max(self.clock, clock), header["done"]
        self._over |= header.get("outcome") == "over"
        while self._marks and self._marks[0][0] < clock and not self._over:
            self._marks.popleft()

    def state(self, pushed: bool = False) -> LinkState:
        """The codec's state for a saved run, as it was before any push that the server has not taken or, if ``pushed``,
        as it is after the last one: for `restore`.
        """
        encoder = self.encoder.state()
        if self._marks and not pushed:
            encoder["memory"] = self._marks[0][1]
        return LinkState(encoder=encoder, decoder=self.decoder.state(), version=self.version)

    def restore(self, state: LinkState) -> None:
        """Resume from the state of a saved run, at the clock in the server's answer to hello."""
        self.encoder.restore(state["encoder"])
        self.decoder.restore(state["decoder"])
        self.version = state["version"]

    def decode(self, parcel: Parcel, expected: Expected | None = None) -> tuple[Message, Header]:
        """Decode an answer's frames into a message and the envelope's fields. ValueError if they are invalid."""
        limits, like = expected or self.anything
        packet, stamp, names, moments = unpack(parcel, self.config.pull, self.trace, self.plan, limits, like)
        self.trace.laps(names, moments, "reply", self.index, stamp.get("clock"), sum(map(len, parcel)))
        return self.decoder.decode(packet, like), stamp


class KeptPush(NamedTuple):
    """A push that is about to be sent: for each server its clock, the codec's state after it, and its frames.

    A worker that crashes between two servers has pushed a gradient to one of them only, and could not compute the same
    gradient again.
    """

    clocks: list[int]
    links: list[LinkState]
    parcels: list[Parcel]


class WorkerProtocol:
    """One worker's side of the protocol. Most methods return a call's session; "Returns …" then names its result.

    ``rows``, if given, is the number of rows in the worker's shard of the data; hello sends it to the servers.
    """

    def __init__(self, worker: int, servers: Sequence[ServerRecord], rows: float = 0) -> None:
        self.worker, self.servers = worker, servers
        self.like: Tensors = {}
        """After `hello`, arrays with the names, shapes and dtypes of the parameters."""
        self.tables: dict[str, TablePart] = {}
        """After `hello`, one server's part of each table."""
        self.keep: Callable[[KeptPush], None] | None = None
        """Keeps each push before it is sent, for a process that takes this worker's place after a crash."""
        self._rows = {"rows": float(rows)} if rows else {}

    @property
    def clock(self) -> int:
        """The highest clock of the next push at any server: with backup workers, the servers' clocks may differ."""
        return max(server.clock for server in self.servers)

    @property
    def versions(self) -> tuple[int, ...]:
        """For each server, the version of the parameters pulled last."""
        return tuple(server.version for server in self.servers)

    @property
    def done(self) -> bool:
        """True once all servers have said that the run is over."""
        return all(server.done for server in self.servers)

    def hello(self, index: int | None = None, again: bool = False) -> Session[list[Message]]:
        """Say hello to all servers or, over a new connection, again to the server ``index``. Returns the answers.

        ``again``: this worker has kept its memories, though its process is new.
        """
        servers = self.servers if index is None else [self.servers[index]]
        told = {"again": True, **self._rows} if again or index is not None else self._rows
        secrets = [{"secret": server.secret} if server.secret else {} for server in servers]
        answers = yield from self._call(servers, [self._message("hello", **told, **secret) for secret in secrets])
        for server, answer in zip(servers, answers, strict=True):
            server.secret = answer.header.get("secret", "")
            if index is not None:
                server.decoder = Decoder(server.trace)  # both sides reset the memories of pulls
                return answers
            server.layout = layout_of(answer.header["layout"])
            server.expected = of_answers(server.layout, server.config.transport)
            server.values = sum(part.values for part in server.layout.values())
            self.tables |= tables_of(server.layout)
            server.holds_all = len(self.servers) == 1 and all(part.whole for part in server.layout.values())
            for name, part in server.layout.items():
                self.like[name] = np.broadcast_to(np.empty((), part.dtype), part.shape)
        return answers

    def ask_all(self, kind: str, **fields: Any) -> Session[list[Message]]:
        """Send a message without tensors to all servers. Returns the answers."""
        return self._call(self.servers, [self._message(kind, **fields) for _ in self.servers])

    def ask_one(self, index: int, kind: str, **fields: Any) -> Session[list[Message]]:
        """Send a message without tensors to one server. Returns a list with its answer."""
        return self._call([self.servers[index]], [self._message(kind, **fields)])

    def leave(self, parts: Sequence[Mapping[str, Any]]) -> Session[list[Message]]:
        """Say goodbye to all servers, and leave each its part of this worker's state. Returns the answers."""
        goodbye = {"kind": "bye", "worker": self.worker, "state": True}
        return self._call(self.servers, [Message({**goodbye}, saved.to_arrays(part)) for part in parts])

    def agree(self) -> Session[None]:
        """Ask the servers which of this worker's failed pushes they took."""
        for server in self.servers:
            if server.unsure:
                again = not server.config.pull.memory.stateless  # an answer may be lost: reset the pull memories
                yield from self.hello(server.index) if again else self.ask_one(server.index, "alive")
                server.clock, server.unsure = server.known_clock, False
                server.undo_pushes()

    def finish_push(self, kept: KeptPush) -> Session[None]:
        """Continue after the last push that this worker kept: send the same frames to the servers that lack it. Call it
        after `hello`. ValueError if the push is not the last one that the servers have, or lack.
        """
        lacking = [server.clock - clock for server, clock in zip(self.servers, kept.clocks, strict=True)]
        if not {*lacking} <= {0, 1}:
            clocks = [server.clock for server in self.servers]
            raise ValueError(f"The kept push has the clocks {kept.clocks}, and the servers are at {clocks}.")
        for server, link in zip(self.servers, kept.links, strict=True):
            server.restore(link)
        servers = [server for server, lead in zip(self.servers, lacking, strict=True) if lead == 0]
        rows: Header = {"rows": {}} if self.tables else {}  # the answer has the rows that the kept frames name
        messages = [self._message("push_pull", clock=server.begin_push(), **rows) for server in servers]
        if servers:
            yield from self._call(servers, messages, [kept.parcels[server.index] for server in servers])

    def push(
        self, gradients: Tensors, loss: float | None, versions: Sequence[int] | None, pulls: bool, rows: Wanted = None
    ) -> Session[list[Message]]:
        """Push gradients and, if ``pulls``, pull all parameters, or these rows, with them. Returns the answers."""
        return self._call(self.servers, self._pushes("push_pull" if pulls else "push", gradients, loss, versions, rows))

    def pull(self, names: Sequence[str] | None = None, rows: Wanted = None) -> Session[list[Message]]:
        """Pull all parameters, or those with these names, or these rows of named tensors. Returns the answers."""
        messages = []
        for server in self.servers:
            header: Header = {"kind": "pull", "worker": self.worker}
            if names is not None:
                header["names"] = [name for name in names if name in server.layout]
            if rows:
                header["rows"] = rows_at(rows, server.layout)
            messages.append(Message(header))
        return self._call(self.servers, messages)

    def push_pull(self, loss: float, gradients: Mapping[str, Array], versions: Sequence[int]) -> Session[Tensors]:
        """Push and pull in one message. Returns the parameters. ValueError, immediately, for invalid gradients."""
        return self._joined(self.push(check_gradients(gradients, self.like), float(loss), versions, pulls=True))

    def pull_whole(self) -> Session[Tensors]:
        """Pull all parameters. Returns them."""
        return self._joined(self.pull())

    def _joined(self, call: Session[list[Message]]) -> Session[Tensors]:
        return self.join((yield from call))

    def join(self, answers: Sequence[Message], rows: Wanted = None) -> Tensors:
        """Join the pieces in all servers' answers into whole tensors."""
        if self.servers[0].holds_all and not rows:
            tensors = answers[0].tensors
            for name, x in tensors.items():
                if not x.flags.writeable:
                    tensors[name] = x.copy()
            return tensors
        return join([answer.tensors for answer in answers], [server.layout for server in self.servers], rows)

    def _message(self, kind: str, **fields: Any) -> Message:
        return Message({"kind": kind, "worker": self.worker, **fields})

    def _pushes(
        self, kind: str, gradients: Tensors, loss: float | None, versions: Sequence[int] | None, rows: Wanted
    ) -> Iterator[Message]:
        """Yield the push to each server, at this worker's next clock there."""
        for server in self.servers:
            clock, told_loss = server.begin_push(), loss if loss is None or math.isfinite(loss) else None
            header: Header = {"kind": kind, "worker": self.worker, "loss": told_loss, "clock": clock}
            header["version"] = server.version if versions is None else versions[server.index]
            message = Message(header, gradients if server.holds_all else cut(gradients, server.layout))
            yield add_row_numbers(message, server.layout, rows) if self.tables or rows else message

    def _call(
        self, servers: Sequence[ServerRecord], messages: Iterable[Message], parcels: Sequence[Parcel] = ()
    ) -> Session[list[Message]]:
        """Send one message to each of these servers. Returns all answers, or then raises the first error. ``parcels``
        are the messages as encoded by an earlier process.
        """
        messages = [*messages]
        kind = messages[0].header["kind"]
        pushes, pulls = kind in PUSHES, kind in PULLS
        whole = pulls and "rows" not in messages[0].header
        clocks: list[int] = []
        for message in messages if pushes else ():
            clocks.append(message.header["clock"])
        parcels, message = [*parcels], messages[0]
        encode: Callable[[], Any] = nothing
        try:
            for number, server in enumerate(() if parcels else servers):
                message = messages[number]
                encode = partial(server.encode, message)
                if kind == "hello":  # the length of a compressed secret would vary
                    codec = Codec(serializer=server.config.push.serializer)
                    encode = partial(encode_plainly, message, codec, server.trace, server.index)
                elif message.tensors and not pushes:
                    encode = partial(encode_plainly, message, server.config.push, server.trace, server.index)
                parcels.append((yield Do(ENCODE if pushes else (), server.values, encode)))
            if pushes and self.keep:
                links = [server.state(pushed=True) for server in servers]
                yield Do((), 0, partial(self.keep, KeptPush(clocks, links, parcels)))
        except BaseException:
            for server, clock in zip(servers, clocks, strict=pushes):
                server.push_failed(clock)
            raise
        del messages, message, encode  # they hold the gradients
        failed: Exception | None = None
        sent = []
        for number, server in enumerate(servers):
            try:
                yield Send(server.index, parcels[number], server.values)
                sent.append(number)
            except Exception as error:
                failed = failed or error
                if pushes:
                    server.push_failed(clocks[number])
        del parcels
        answers: list[Message] = []
        for number in sent:
            server = servers[number]
            try:
                parcel, expected = (yield server.receive), server.expected if whole else None
                answer, stamp = yield Do(RECEIVING, server.values, partial(server.decode, parcel, expected))
                del parcel
                answer.header |= stamp
                server.read_stamp(kind, answer.header)
            except Exception as error:
                failed = failed or error
                if pushes:
                    server.push_failed(clocks[number], perhaps_taken=True)
                server.unsure |= pulls and not server.config.pull.memory.stateless
            else:
                if pulls:
                    server.version = answer.header["version"]
                answers.append(answer)
        if failed:
            raise failed
        return answers


class WorkerRecord:
    """A server's record of one worker: decoder, encoder, and whether a push is under way."""

    def __init__(self, config: Config, index: int, worker: int, trace: Trace) -> None:
        self._config, self._worker, self._trace = config, worker, trace
        self._rng = seeds.pull(config.seed, worker, index)
        self.decoder, self.encoder = Decoder(trace), Encoder(config.pull, self._rng, trace, worker)
        self.pushing, self.queued = False, 0
        self._before: tuple[Decoder, Mark] | None = None
        """The decoder of the push that is under way, and its memories before that push, if they may have changed."""
        self.kept: LeftState | None = None
        """The state that the worker left with its goodbye, until the worker resumes."""
        self.resumption = Resumption.FRESH

    def state(self) -> LinkState:
        """The codec's state to keep in a saved run, from which `restore` resumes."""
        decoder = self.decoder.state()
        if self._before and self._before[0] is self.decoder:
            decoder["memory"] = self._before[1]
        return LinkState(decoder=decoder, encoder=self.encoder.state())

    def remember(self) -> None:
        """Keep the decoder's memories as they are before a push, until `settle`."""
        self._before = self.decoder, self.decoder.mark()

    def settle(self, taken: bool) -> None:
        """Undo the memories' changes by the push that is under way, unless it was taken."""
        if self._before and not taken:
            decoder, mark = self._before
            decoder.go_back(mark)
        self._before = None

    def restore(self, state: LinkState, kept: LeftState | None = None) -> None:
        """Resume from the state of a saved run. The worker resumes too, so its first hello changes nothing. ``kept`` is
        the worker's part of the state; the worker fetches it, unless its engine provides it.
        """
        self.decoder.restore(state["decoder"])
        self.encoder.restore(state["encoder"])
        self.resumption, self.kept = self.resumption.after("restore"), kept

    def resume(self) -> None:
        """Accept the worker's first push or pull. If it has not fetched its part, both sides restart."""
        restarts = self.kept is not None and self.resumption is Resumption.RESUMING
        self.resumption, self.kept = self.resumption.after("restart" if restarts else "resume"), None
        if restarts:
            self.accept_hello(again=False)

    def accept_hello(self, again: bool) -> None:
        """Reset the codec for a worker that says hello on a new connection and remembers nothing of earlier ones.

        ``again``: the worker has only lost its connection, so its push memories stay. Its pull memories are reset,
        since the last answer may not have arrived.
        """
        if not again:
            self.resumption = self.resumption.after("hello")
        resumes = "resume" in self.resumption.row
        if not resumes:
            self.kept = None
        if again or not resumes:
            self.encoder = Encoder(self._config.pull, self._rng, self._trace, self._worker)
        if not (again or resumes):
            self.decoder = Decoder(self._trace)


class ServerProtocol:
    """One server's side of the protocol. `answer` is the session for a request, `leave` for a worker's departure.

    ``layout`` describes this server's part of the parameters. The protocol calls ``changed()`` when waiting sessions
    may be ready, and ``updated()`` after each update. The driver asks ``membership`` for workers that have been silent
    for ``silence_s`` seconds of ``shard.now()``, or lost for ``rejoin_s``, and carries out `leave` for each.
    """

    def __init__(
        self,
        shard: Shard,
        config: Config,
        index: int,
        layout: Layouts,
        trace: Trace,
        changed: Callable[[], None] = nothing,
        updated: Callable[[], None] | None = None,
        silence_s: float = SILENCE_S,
        rejoin_s: float = REJOIN_S,
        rank_secrets: Sequence[str] = (),
        limits: Limits | None = None,
        journal: Keep | None = None,
    ) -> None:
        self.journal = journal
        """Keeps a record of each change before it is applied; None: a crash loses the run."""
        self.shard, self.config, self.index, self.layout, self.trace = shard, config, index, layout, trace
        self._changed, self.updated, self._each = changed, updated, config.local_steps
        self.tables = tables_of(layout)
        self.values: float = sum(part.values for part in layout.values())
        """The number of this server's values; the time of each `Do` depends on it."""
        self._new_membership = partial(Membership, shard, silence_s, rejoin_s, rank_secrets)
        self.membership = self._new_membership()
        self._greeting = Codec(serializer=config.pull.serializer)
        self.records = [WorkerRecord(config, index, worker, trace) for worker in range(config.workers)]
        self._hello_fields = {
            "layout": {name: [list(shape), *rest] for name, (shape, *rest) in layout.items()},
            "index": index,
            "servers": config.servers,
            "silence_s": silence_s,
            "rejoin_s": float(rejoin_s),
        }
        self.origin: Header = {}
        """The origin of these parameters, sent in answers to status. Workers compare it with their own problem's."""
        self.losses: list[tuple[float, int, float]] = []
        """Each row: the time, the gradient step of all the workers, and the mean loss over that clock."""
        self.events: list[tuple[float, str]] = []
        self.changed_at, self._version = shard.now(), shard.version
        self._applied = 0
        """The number of pushes applied before this server began."""
        self._encoder = Encoder(config.pull, seeds.shared_pull(config.seed, index), trace)
        self.unpack: Callable[..., Any] = partial(
            unpack, codec=config.push, trace=trace, plan=Plan(), limits=limits or of_anything(config.transport)
        )
        """Converts a request's frames to packet and envelope, with their spans. A prediction replaces this and the next
        two, to handle sizes without spans.
        """
        self.encode: Callable[[Encoder, Message], Parcel] = Encoder.encode
        """Encodes an answer into frames, without a stamp."""
        self.wrap: Callable[..., Parcel] = partial(wrap, config.pull, pack=msgpack.Packer().pack)
        """Adds the stamp to an answer's frames."""
        self._encoded: tuple[tuple[Any, ...], Frames | None] = (), None
        """The last shared answer, for all pulls of the same tensors: its version and names, and its frames."""
        self._encoding, self.encodings = False, 0
        """``_encoding``: true while a session encodes a shared answer. ``encodings``: the number encoded so far."""

    def state(self) -> ServerState:
        """The server's state to keep in a saved run, without the parameters, for `restore`."""
        links: list[LinkState | None] = [record.state() for record in self.records]
        return ServerState(shard=self.shard.state(), links=links, encoder=self._encoder.state())

    def restore(self, state: ServerState) -> None:
        """Resume from the state of a saved run."""
        self.shard.restore(state["shard"])
        self._applied, self._version = self.shard.applied, self.shard.version
        self.membership = self._new_membership()
        self._encoder.restore(state["encoder"])
        left = state.get("left") or [None] * len(self.records)
        for record, link, part in zip(self.records, state["links"], left, strict=True):
            if link is not None:
                record.restore(link, part)

    def answer(self, frames: Parcel, connection: ClientConnection, received_at: float) -> Session[Parcel]:
        """Answer one request from this connection as PROTOCOL.md describes. Returns the answer."""
        packet, _, *spans = yield Do(RECEIVING[:1], self.values, partial(self.unpack, frames))
        header, kind, shard, wrap_it = packet.header, packet.header.get("kind"), self.shard, self.wrap
        try:
            fields = REQUESTS[kind]
            for name, value in header.items():
                if not fields[name].fits[type(value)](value):
                    raise KeyError(name)
            if not NEEDED[kind] <= header.keys():
                raise KeyError(kind)
        except (KeyError, TypeError):
            check_request(header)  # says which
        if header.get("memory", "none") != "none":
            default_stage("memory", header["memory"])  # ValueError for an unknown name
        nbytes, worker, pushes, pulls = sum(map(len, frames)), header.get("worker"), kind in PUSHES, kind in PULLS
        if pushes:
            self.trace.step = header["clock"]
        member: Member | None = None
        replied: tuple[Any, ...] = ()
        try:
            if kind == "status":
                return (yield Do((), self.values, partial(self._answer_status, header), alone=True))
            if kind == "hello":
                worker = yield from self._admit(connection, header)
            elif worker >= shard.workers:
                shard.validate_worker(worker)  # says how many there are
            claimed, record = self.membership.members[worker], self.records[worker]
            if connection not in claimed.connections or claimed.state is _PARTED:
                raise self.membership.stranger(connection, worker)
            member = claimed
            member.heard, member.busy = received_at, member.busy + 1
            member.received += nbytes
            if (pushes or pulls) and "resume" in record.resumption.row:
                self._keep("resume", worker, state=record.resumption.word)
                record.resume()
            reply, outcome, waited = Message({"kind": "reply", "version": 0}), None, 0.0
            encode: Callable[[Message], Parcel] = partial(self.encode, record.encoder)  # a later hello replaces it
            if pushes:
                outcome, waited = yield from self._push(worker, header, packet, frames)
            if pulls:
                waited += yield from self._pull(worker, header, reply, outcome)
            elif kind == "hello":
                self._hello(worker, header, reply)
                encode, wrap_it = partial(encode_plainly, codec=self._greeting), partial(wrap, self._greeting)
            elif kind == "state":
                self._state(worker, reply)
                encode = self._plain if reply.tensors else encode
            elif kind == "bye":
                yield from self._bye(worker, header, packet, frames)
            if not pulls:
                reply.header["version"] = shard.version
            stamp = {"clock": shard.clocks[worker], "done": shard.run.final, "outcome": outcome}
            if pulls and self.config.pull.memory.stateless and not header.get("rows"):
                answer = yield from self._encode_once(reply, worker)
            else:
                answer = yield Do(SENDING, self.values, partial(encode, reply))
            answered_at = shard.now()
            busy = answered_at - received_at - waited
            answer = wrap_it({**stamp, "busy": busy, "waited": waited}, answer)
            sent = sum(map(len, answer))
            member.informed, member.sent = stamp["done"], member.sent + sent
            replied = (), self.trace.step, answered_at, "reply", worker, stamp["clock"], sent
            return answer
        finally:
            if spans:
                self.trace.laps(*spans, kind, worker, header.get("clock"), nbytes, *replied)
            if member:
                member.heard, member.busy = shard.now(), member.busy - 1
                if shard.updates is None:
                    self._forget()
                if kind == "bye":  # after the server has kept the worker's part
                    member.disconnect()

    def _admit(self, connection: ClientConnection, header: Header) -> Session[int]:
        """Admit the session that says hello, which may wait for a rank that will soon be free. Returns the worker."""
        if self.membership.free_soon(connection, header):
            with suppress(TimeoutError):  # `admit` says that the rank is held
                yield Until(lambda: not self.membership.free_soon(connection, header), -1)
        return self.membership.admit(connection, header)

    def _hello(self, worker: int, header: Header, reply: Message) -> None:
        """Count the worker, and prepare its codec. The reply contains the layout and the session's secret."""
        member, again = self.membership.members[worker], bool(header.get("again"))
        self._keep("hello", worker, again=again, secret=member.secret, rows=member.rows)
        self.shard.join(worker)
        self.records[worker].accept_hello(again)
        rank = {"worker": worker} if header["worker"] == -1 else {}
        reply.header |= {**self._hello_fields, "secret": member.secret, **rank}

    def _state(self, worker: int, reply: Message) -> None:
        """Reply with the worker's part of the saved run's state, if there is one."""
        record = self.records[worker]
        record.resumption = record.resumption.after("fetch")
        self.membership.members[worker].leaves = True
        reply.header |= {"leave": self.shard.updates is not None, "applied": self._applied}
        if record.kept is not None:
            reply.tensors = saved.to_arrays(record.kept)

    def _bye(self, worker: int, header: Header, packet: Any, frames: Parcel) -> Session[None]:
        """Stop counting the worker, and keep its part of the run's state."""
        shard, member = self.shard, self.membership.members[worker]
        self._keep("bye", worker, frames if header.get("state") else [], diverged=header.get("diverged"))
        member.state = member.state.after("bye")
        if failed := header.get("failed"):
            self.events.append((shard.now(), f"worker {worker} has left: {failed}"))
        if diverged := header.get("diverged"):
            shard.diverge(str(diverged))
        event = f"worker {worker} has left at clock {shard.clocks[worker]}"
        yield from self.leave(worker, "" if failed or shard.updates is None else event)
        if header.get("state"):
            part = yield Do(DECODE, self.values, partial(self.read_part, packet))
            if member.state is _PARTED:
                self.records[worker].kept = part

    def _pull(self, worker: int, header: Header, reply: Message, outcome: Outcome | None) -> Session[float]:
        """Wait until the worker may pull, and reply with the parameters. The ``outcome`` is its push's,
        in a push_pull. Returns the number of seconds for which the pull has waited.
        """
        shard, waited = self.shard, 0.0
        try:
            if not shard.may_pull(worker):
                began = shard.now()
                yield Until(partial(shard.may_pull, worker), worker)
                waited = shard.now() - began
        except (TimeoutError, RuntimeError) as error:
            if outcome is None:
                raise
            raise type(error)(
                f"{error} The push was taken, with the outcome {outcome!r}: do not push it again."
            ) from None
        reply.header["version"], reply.tensors = self.read(worker)
        if "names" in header or "rows" in header:
            reply.tensors = select_tensors(header, reply.tensors, self.layout, self.config.pull)
        return waited

    def _encode_once(self, message: Message, worker: int) -> Session[Parcel]:
        """Encode an answer for all pulls of one version of the same tensors: the first pull encodes it, others wait."""
        version = message.header["version"]
        key = version, *message.tensors
        while self._encoding:
            yield Until(lambda: not self._encoding, worker)
        known, answer = self._encoded
        if known == key:
            return (yield Do(SENDING[-1:], self.values, lambda: answer))
        self._encoding = True
        try:
            answer = yield Do(SENDING, self.values, partial(self.encode, self._encoder, message))
            if version == self.shard.version:  # older frames would only hold memory that the next update needs
                self._encoded = key, answer
        finally:
            self._encoding, self.encodings = False, self.encodings + 1
            self._changed()
        return answer

    def _push(self, worker: int, header: Header, packet: Any, frames: Parcel) -> Session[tuple[Outcome, float]]:
        """Take a push exactly once, even if a request over an earlier connection is taking the same push meanwhile.
        Returns the outcome and the number of seconds for which the push has waited.
        """
        shard, record, waited = self.shard, self.records[worker], 0.0
        clock, version, loss = header["clock"], header["version"], header.get("loss")
        if version > shard.version:
            raise ValueError(f"Worker {worker} pushed gradients of version {version}; the newest is {shard.version}.")
        member = self.membership.members[worker]
        rows, secret = member.rows, member.secret
        if shard.aggregator.weighs and not rows > 0:
            words = f"{shard.aggregator!r} weights each worker by the rows in its shard; worker {worker} sent {rows!r}."
            raise ValueError(f"{words} Send their number, above 0, in hello: connect(…, rows=…).")
        if record.pushing:
            record.queued, began = record.queued + 1, shard.now()
            try:
                yield Until(lambda: not record.pushing, worker)
                waited = shard.now() - began
            except TimeoutError:
                raise TimeoutError(f"Worker {worker}'s push over an earlier connection has not ended.") from None
            finally:
                record.queued -= 1
        if not shard.is_new(worker, clock):
            return shard.repeated(worker, clock), waited
        record.pushing, decoder, taken = True, record.decoder, False
        if remembers := header.get("memory") != "none":
            record.remember()
        try:
            if not shard.may_push(clock):
                began = shard.now()
                yield Until(partial(shard.may_push, clock), worker)
                waited += shard.now() - began
                if member.secret != secret:
                    raise ValueError(f"Another session has become worker {worker} while this push of it waited.")
            gradients = yield Do(DECODE, self.values, partial(self.decode, packet, decoder))
            if worker not in shard.live:  # the worker was silent, or has left while this push waited
                if "push" not in member.state.row:
                    raise ValueError(f"Worker {worker} has left while this push of it waited.")
                member.state = member.state.after("push")
            if self.journal and not shard.run.final:
                self._keep("push", worker, frames, rows=rows)
            loss = math.nan if loss is None else float(loss)
            outcome = shard.take(Contribution(worker, clock, version, gradients, loss, rows=rows), checked=True)
            if outcome is None:
                outcome = yield Do(UPDATE, self.values, shard.apply, alone=True)
            taken = outcome != "over"
            if remembers:
                record.settle(taken)  # before a snapshot of the new version is taken
            self.record_update(worker, clock)
        finally:
            if remembers:
                record.settle(taken)
            record.pushing = False
            if record.queued:
                self._changed()
        if outcome != "held":  # a held push cannot make a waiting session ready
            self._changed()
        return outcome, waited

    def refusal(self, error: Exception) -> Exception:
        """The error to send to a peer: this one or, if it is unexpected, a general one; `events` then has its text."""
        if public_message(error, "") or isinstance(error, ConnectionError):
            return error
        if len(self.events) < KEPT_ROWS:
            words = f"{type(error).__name__}: {message_of(error)}"[:200]
            self.events.append((self.shard.now(), f"a request could not be answered: {words}"))
        return RuntimeError("The server could not answer this request; its events say why.")

    def leave(self, worker: int, event: str = "", lost_at: float | None = None) -> Session[None]:
        """Stop counting a worker that is silent, lost since ``lost_at`` or parted, unless it has come back meanwhile.
        Keeps ``event`` if the run counted on the worker.
        """
        member = self.membership.members[worker]
        if member.state is MemberState.PRESENT or member.lost_at != lost_at:
            return
        if member.state is not _PARTED and worker in self.shard.live and not self.shard.run.final:
            try:
                self._keep("leave", worker)
            except RuntimeError as error:  # no peer would learn of this error
                self.shard.fail(f"Worker {worker} is lost. {error}")
        if event and worker in self.shard.live and not self.shard.done:
            self.events.append((self.shard.now(), event))
        if self.shard.depart(worker):
            with suppress(RuntimeError):  # no push can be refused; waiting sessions learn why
                yield Do(UPDATE, self.values, self.shard.apply, alone=True)
                self.record_update(worker, self.shard.rounds - 1)
        self.trace.laps(("",), (self.shard.now(),) * 2, None, worker, None, 0)
        self._changed()

    def diverge(self, reason: str) -> None:
        """End the run as diverged, with the current parameters."""
        self._keep_decision("diverge", reason=reason)
        self.shard.diverge(reason)

    def go_on(self, end: bool = False) -> None:
        """Leave a pause, or ``end`` the run with the current parameters."""
        self._keep_decision("end" if end else "go on")
        if end:
            self.shard.end()
        else:
            self.shard.go_on()

    def _keep_decision(self, kind: str, **fields: Any) -> None:
        """Keep a record of the operator's decision, which holds even if it cannot be kept."""
        if not self.shard.run.final:
            with suppress(RuntimeError):
                self._keep(kind, **fields)

    def _keep(self, kind: str, worker: int = -1, frames: Parcel = (), **fields: Any) -> None:
        """Keep a record of what is about to be applied. RuntimeError if it cannot be kept."""
        if self.journal is None:
            return
        try:
            self.journal(JournalRecord(kind, worker, self.shard.now(), fields, [*frames]))
        except OSError as error:
            words = f"This {kind} was refused, and nothing was changed, since it cannot be written to the journal"
            raise RuntimeError(f"{words}: {message_of(error)}") from error

    def status(self) -> Status:
        """The current progress of the run, and its workers."""
        return Status.of(self)

    def read(self, worker: int) -> tuple[int, Tensors]:
        """The version and the parameters that answer a pull."""
        return self.shard.version, self.shard.pull(worker)

    def decode(self, packet: Any, decoder: Decoder) -> Tensors:
        """The gradients of a push. ValueError if they do not fit the parameters, or are not finite."""
        like = self.shard.parameters.arrays
        if self.tables or packet.header.get("of"):
            return decode_rows(packet, decoder, like, self.tables)
        return check_gradients(decoder.decode(packet, like).tensors, like)

    def record_update(self, worker: int, clock: int) -> None:
        """If the shard has made an update, record it: the time, and this worker, whose push of this ``clock`` (or whose
        departure) was the last that it needed.
        """
        shard = self.shard
        if shard.version == self._version:
            return
        self._version, self._encoded = shard.version, ((), None)  # the next update reuses the memory
        began, aggregating, applying = shard.parameters.times
        self.trace.laps(UPDATE, (began, began + aggregating, began + aggregating + applying), None, worker, clock, 0)
        self.changed_at = shard.now()
        for clock, loss in shard.losses:
            self.losses.append((self.changed_at, clock * self._each, loss))
        shard.losses.clear()
        if self.updated:
            self.updated()

    def _forget(self) -> None:
        """Drop the oldest rows of the records, at a server whose run has no end."""
        recorded: tuple[list[Any], ...] = self.losses, self.shard.grants, self.events
        if max(map(len, recorded)) >= 2 * KEPT_ROWS:
            for rows in recorded:
                del rows[:-KEPT_ROWS]

    def _answer_status(self, question: Header) -> Parcel:
        """The answer to a status request."""
        header = {"kind": "reply", "memory": "none", **self.status().to_dict()}
        if question.get("config"):
            header |= {"config": self.config.public(), **({"problem": self.origin} if self.origin else {})}
        return self.wrap({}, self._plain(Message(header)))

    def _plain(self, message: Message) -> Parcel:
        return encode_plainly(message, self.config.pull)

    def read_part(self, packet: Any) -> LeftState:
        """The part of the state that a worker leaves with its goodbye. ValueError if no worker could resume from it."""
        words = "The state that this worker leaves"
        check_plain(packet)
        values = saved.from_arrays(Decoder(UNTIMED).decode(packet).tensors, words)
        try:
            part: LeftState = check_state(LeftState, values, "it")
            ServerRecord(self.config, 0, 0, UNTIMED).restore(part["link"])
            params, _, arrived = part["seen"] or ({}, (), None)
            for tensors in filter(None, (params, arrived)):
                check_gradients(tensors, self.shard.params)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            why = public_message(error, "It lacks a key, or has other tensors.")
            raise ValueError(f"{words} is not one to continue from: {why}") from error
        return part
