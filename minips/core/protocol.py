"""The protocol between workers and servers, told once: in a real run, a simulation and a prediction alike.

A worker has a session for each call. All messages of a call are encoded, then all are sent, then the answers are
received in the order of the servers. A server has a session for each request. Between two needs of a session nothing
else happens at its party; the work of a `Do` may run beside that of other sessions.

A push is known by its worker and its clock, and counts once. A repetition is acknowledged without being decoded; a push
that is refused leaves clock, parameters and memories at the server as they were. A worker that was told of an error
asks (``alive``) before its next call: its clock at the server tells which pushes were taken, and its memories go back
to where they were before the others. So both halves of a memory agree.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from minips import seeds
from minips.core import saved
from minips.core.codec import Decoder, Encoder, Mark, encode_plainly, unpack, wrap
from minips.core.config import Config
from minips.core.message import Header, Message
from minips.core.partition import Layout, cut, join
from minips.core.plan import Plan
from minips.core.presence import Attendance, Attending
from minips.core.sessions import Do, Parcel, Receive, Send, Session, Until, nothing
from minips.core.shard import Outcome, Shard, checked
from minips.core.status import Status
from minips.stage import Array, Frames, Tensors, reason
from minips.stages.aggregators import Contribution
from minips.trace import DECODE, ENCODE, UNTIMED, UPDATE, Trace

PUSHES, PULLS = ("push", "push_pull"), ("pull", "push_pull")
KEPT_ROWS = 10_000
"""How many losses, grants and events, the last ones, a server without an end keeps at least; it keeps twice as many at
most."""
KINDS = ("hello", "push", "pull", "push_pull", "alive", "status", "state", "bye")
RECEIVING, SENDING = ("transfer", *DECODE), (*ENCODE, "transfer")
"""The spans of a message that comes in, and of one that goes out."""


class ServerLink:
    """One server as a worker sees it: both halves of the codec's link, and what the last answer said."""

    def __init__(self, config: Config, worker: int, index: int, trace: Trace) -> None:
        self.config, self.index, self.trace = config, index, trace
        self.receive = Receive(index)
        self.encoder = Encoder(config.push, seeds.push(config.seed, worker, index), trace)
        self.encode: Callable[[Message], Parcel] = self.encoder.encode
        """The frames of a message; in a prediction another function, of sizes."""
        self.decoder, self.plan = Decoder(trace), Plan()
        self.layout: dict[str, Layout] = {}
        self.values: float = 0
        self.clock, self.known_clock, self.version, self.done = 0, 0, 0, False
        self.whole = False
        """True where this server holds all of every tensor."""
        self.unsure = False
        """True where a push has failed that may have been taken."""
        self._marks: deque[tuple[int, Mark]] = deque()
        self._over = False  # a push came after the end: what the memories held before it is what going on needs

    def begin_push(self) -> int:
        """The clock of a push that is about to be encoded. What the memories hold now is kept until it is answered."""
        clock, self.clock = self.clock, self.clock + 1
        if not self.encoder.codec.memory.stateless:
            self._marks.append((clock, self.encoder.mark()))
        self.trace.step = clock
        return clock

    def push_failed(self, clock: int, perhaps_taken: bool = False) -> None:
        """Go on from the clock of a push, with the memories as they were before it, unless `agree` finds that it was
        taken.
        """
        self.unsure = self.unsure or perhaps_taken
        self.clock = min(self.clock, clock)
        if not perhaps_taken:
            self.undo_pushes()

    def undo_pushes(self) -> None:
        """The pushes from this clock on were not taken: let the memories hold what they held before them."""
        while self._marks and self._marks[-1][0] >= self.clock:
            self.encoder.go_back(self._marks.pop()[1])

    def note(self, stamp: Header) -> None:
        """Take this worker's clock and the end of the run from an answer's envelope."""
        clock = self.known_clock = int(stamp["clock"])
        self.clock, self.done = max(self.clock, clock), bool(stamp["done"])
        self._over |= stamp["outcome"] == "over"
        while self._marks and self._marks[0][0] < clock and not self._over:
            self._marks.popleft()

    def state(self) -> dict[str, Any]:
        """The link's state for a run that is saved, for `restore`, without the pushes that were not taken."""
        encoder = self.encoder.state()
        if self._marks:
            encoder["memory"] = self._marks[0][1]
        return {"encoder": encoder, "decoder": self.decoder.state(), "version": self.version}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a saved run, at the clock that the server has said in its answer to hello."""
        self.encoder.restore(state["encoder"])
        self.decoder.restore(state["decoder"])
        self.version = state["version"]

    def decode(self, parcel: Parcel) -> tuple[Message, Header]:
        """The message of an answer's frames, and what its envelope says."""
        packet, stamp = unpack(parcel, self.config.pull, self.trace, self.plan)
        return self.decoder.decode(packet), stamp


class WorkerSession:
    """One worker's calls. Each method returns a session; its result stands in the docstring.

    ``client`` is the identity under which no other client may be this worker; without one, its number is its own.
    """

    def __init__(self, worker: int, links: Sequence[ServerLink], client: str = "") -> None:
        self.worker, self.links = worker, links
        self.like: Tensors = {}
        """Arrays like the parameters, after `hello`: of their names, shapes and dtypes."""
        self._identity = {"client": client} if client else {}

    @property
    def clock(self) -> int:
        """Completed pushes, at the server that is furthest: with backup workers a push can be late at one and in time
        at another.
        """
        return max(link.clock for link in self.links)

    @property
    def versions(self) -> tuple[int, ...]:
        """The version of each server's parameters that was pulled last."""
        return tuple(link.version for link in self.links)

    @property
    def done(self) -> bool:
        """True once every server has said that the run is over."""
        return all(link.done for link in self.links)

    def hello(self, index: int | None = None) -> Session[list[Message]]:
        """Say who this is: to all servers, or again, over a new connection, to one. Returns the answers."""
        if index is not None:
            answers = yield from self.tell(index, "hello", again=True, **self._identity)
            link = self.links[index]
            link.decoder = Decoder(link.trace)  # what is pulled is remembered anew, on both sides
            return answers
        answers = yield from self.say("hello", **self._identity)
        for link, answer in zip(self.links, answers, strict=True):
            layout = answer.header["layout"].items()
            link.layout = {name: Layout(tuple(shape), *rest) for name, (shape, *rest) in layout}
            link.values = sum(part.stop - part.start for part in link.layout.values())
            link.whole = len(self.links) == 1 and all(part.whole for part in link.layout.values())
            for name, part in link.layout.items():
                self.like[name] = np.broadcast_to(np.empty((), part.dtype), part.shape)
        return answers

    def say(self, kind: str, **more: Any) -> Session[list[Message]]:
        """A word without tensors to all servers. Returns the answers."""
        return self._call(self.links, [self._word(kind, **more) for _ in self.links])

    def tell(self, index: int, kind: str, **more: Any) -> Session[list[Message]]:
        """A word without tensors to one server. Returns the answer."""
        return self._call([self.links[index]], [self._word(kind, **more)])

    def leave(self, parts: Sequence[Mapping[str, Any]]) -> Session[list[Message]]:
        """A goodbye to all servers, each of which keeps its part of this worker's state. Returns the answers."""
        words = [self._word("bye", state=True) for _ in self.links]
        for word, part in zip(words, parts, strict=True):
            word.tensors = saved.to_arrays(part)
        return self._call(self.links, words)

    def agree(self) -> Session[None]:
        """Ask the servers of pushes that failed which of them were taken."""
        for link in self.links:
            if link.unsure:
                again = not link.config.pull.memory.stateless  # an answer may be lost: the memories of pulls begin anew
                yield from self.hello(link.index) if again else self.tell(link.index, "alive")
                link.clock, link.unsure = link.known_clock, False
                link.undo_pushes()

    def push(
        self, whole: Tensors, loss: float | None, versions: Sequence[int] | None, pulls: bool
    ) -> Session[list[Message]]:
        """A push of gradients and, in the same message, the pull after it. Returns the answers."""
        return self._call(self.links, self._pushes("push_pull" if pulls else "push", whole, loss, versions))

    def pull(
        self, names: Sequence[str] | None = None, rows: Mapping[str, Sequence[int]] | None = None
    ) -> Session[list[Message]]:
        """A pull of all parameters, or of these names, or of these rows of some. Returns the answers."""
        messages = []
        for link in self.links:
            header: Header = {"kind": "pull", "worker": self.worker}
            if names is not None:
                header["names"] = [name for name in names if name in link.layout]
            if rows:
                header["rows"] = {name: some for name, some in rows.items() if name in link.layout}
            messages.append(Message(header))
        return self._call(self.links, messages)

    def push_pull(self, loss: float, gradients: Mapping[str, Array], versions: Sequence[int]) -> Session[Tensors]:
        """A push and the pull after it. Returns the parameters. ValueError, at once, where these are no gradients of
        them.
        """
        return self._joined(self.push(checked(gradients, self.like), float(loss), versions, pulls=True))

    def pull_whole(self) -> Session[Tensors]:
        """A pull of all parameters. Returns them."""
        return self._joined(self.pull())

    def _joined(self, call: Session[list[Message]]) -> Session[Tensors]:
        return self.join((yield from call))

    def join(self, answers: Sequence[Message], rows: Mapping[str, Sequence[int]] | None = None) -> Tensors:
        """The whole tensors of all servers' answers."""
        if self.links[0].whole and not rows:
            tensors = answers[0].tensors
            for name, x in tensors.items():
                if not x.flags.writeable:
                    tensors[name] = x.copy()
            return tensors
        return join([answer.tensors for answer in answers], [link.layout for link in self.links], rows)

    def _word(self, kind: str, **more: Any) -> Message:
        return Message({"kind": kind, "worker": self.worker, **more})

    def _pushes(
        self, kind: str, whole: Tensors, loss: float | None, versions: Sequence[int] | None
    ) -> Iterator[Message]:
        """The push to each server, at this worker's next clock there."""
        for link in self.links:
            header: Header = {"kind": kind, "worker": self.worker, "loss": loss, "clock": link.begin_push()}
            header["version"] = link.version if versions is None else versions[link.index]
            yield Message(header, whole if link.whole else cut(whole, link.layout))

    def _call(self, links: Sequence[ServerLink], messages: Iterable[Message]) -> Session[list[Message]]:
        """One message to each of these servers, and their answers; the first error, once all have answered."""
        messages = [*messages]
        kind = messages[0].header["kind"]
        pushes, pulls = kind in PUSHES, kind in PULLS
        clocks: list[int] = []
        for message in messages if pushes else ():
            clocks.append(message.header["clock"])
        parcels: list[Parcel] = []
        try:
            for number, link in enumerate(links):
                message = messages[number]
                encode = partial(link.encode, message)
                if message.tensors and not pushes:
                    encode = partial(encode_plainly, message, link.config.push)
                parcels.append((yield Do(ENCODE if pushes else (), link.values, encode)))
        except BaseException:
            for link, clock in zip(links, clocks, strict=pushes):
                link.push_failed(clock)
            raise
        del messages, message, encode  # which hold the gradients
        failed: Exception | None = None
        asked = []
        for number, link in enumerate(links):
            try:
                yield Send(link.index, parcels[number], link.values)
                asked.append(number)
            except Exception as error:
                failed = failed or error
                if pushes:
                    link.push_failed(clocks[number])
        del parcels
        answers: list[Message] = []
        for number in asked:
            link = links[number]
            try:
                parcel = yield link.receive
                answer, stamp = yield Do(RECEIVING, link.values, partial(link.decode, parcel))
                del parcel
            except Exception as error:
                failed = failed or error
                if pushes:
                    link.push_failed(clocks[number], perhaps_taken=True)
                link.unsure |= pulls and not link.config.pull.memory.stateless
            else:
                link.note(stamp)
                if pulls:
                    link.version = int(answer.header["version"])
                answer.header |= stamp
                answers.append(answer)
        if failed:
            raise failed
        return answers


class WorkerLink:
    """A server's state of one worker: both halves of the codec's link, and whether a push is being taken."""

    def __init__(self, config: Config, index: int, worker: int, trace: Trace) -> None:
        self._config, self._trace = config, trace
        self._rng = seeds.pull(config.seed, worker, index)
        self.decoder, self.encoder = Decoder(trace), Encoder(config.pull, self._rng, trace)
        self.pushing, self.queued = False, 0
        self.kept: Mapping[str, Any] | None = None
        """The worker's own part, as it has left it with its goodbye, until it goes on."""
        self.goes_on = self.asked = False
        """True from `restore` until the worker goes on, and once it has asked for what it has left."""

    def state(self) -> dict[str, Any]:
        """The link's state for a run that is saved, for `restore`."""
        return {"decoder": self.decoder.state(), "encoder": self.encoder.state()}

    def restore(self, state: Mapping[str, Any], kept: Mapping[str, Any] | None = None) -> None:
        """Go on from the state of a saved run; the worker does, too, and its first hello changes nothing. ``kept`` is
        its own part, which it will ask for, unless its engine gives it that.
        """
        self.decoder.restore(state["decoder"])
        self.encoder.restore(state["encoder"])
        self.goes_on, self.kept = True, kept

    def go_on(self) -> bool:
        """The worker's first push or pull. False where it has not asked for what it has left: both begin anew."""
        anew = self.kept is not None and not self.asked
        self.goes_on, self.kept = False, None
        if anew:
            self.meet(again=False)
        return not anew

    def meet(self, again: bool) -> None:
        """The worker says hello on a new connection, and has forgotten any earlier one.

        ``again``: it has lost the connection alone, and what it pushes goes on where it was. What it pulls does not:
        the last answer may not have arrived.
        """
        self.asked = self.asked and again
        if self.goes_on and not again:
            return
        if not self.goes_on:
            self.kept = None
        self.encoder = Encoder(self._config.pull, self._rng, self._trace)
        if not again:
            self.decoder = Decoder(self._trace)


class ServerSession:
    """One server's side of the protocol: `answer` is the session of a request, `leave` that of a worker that is gone.

    ``layout`` is this server's part of the parameters; ``changed()`` is called when sessions that wait may go on, and
    ``updated()`` after each update. A worker that says nothing for ``silence_s`` seconds of ``shard.now()`` no longer
    counts.
    """

    def __init__(
        self,
        shard: Shard,
        config: Config,
        index: int,
        layout: dict[str, Layout],
        trace: Trace,
        changed: Callable[[], None] = nothing,
        updated: Callable[[], None] | None = None,
        silence_s: float = 30.0,
    ) -> None:
        self.shard, self.config, self.index, self.layout, self.trace = shard, config, index, layout, trace
        self._changed, self._updated = changed, updated
        self.values: float = sum(part.stop - part.start for part in layout.values())
        """Values of this server's parameters: what the time of a step of the way depends on."""
        self.attendance = Attendance(shard, silence_s)
        self.links = [WorkerLink(config, index, worker, trace) for worker in range(config.workers)]
        self._hello = {
            "layout": {name: list(part) for name, part in layout.items()},
            "index": index,
            "servers": config.servers,
            "silence_s": silence_s,
        }
        self.told: Header = {}
        """Of the problem whose parameters these are, what status tells workers, who compare it with theirs."""
        self.losses: list[tuple[float, int, float]] = []
        """When, after which clock of all the workers, and the mean loss of that."""
        self.events: list[tuple[float, str]] = []
        self.changed_at, self._version = shard.now(), shard.version
        self._applied = 0
        """Pushes that were applied before this server began."""
        self.anew: list[int] = []
        """Workers that have gone on in a saved run without what they had left."""
        self._encoder = Encoder(config.pull, seeds.shared_pull(config.seed, index), trace)
        self.unpack: Callable[..., tuple[Any, Header]] = partial(unpack, codec=config.push, trace=trace, plan=Plan())
        """The packet of a request's frames, and its envelope. In a prediction this and the next two are others, of
        sizes.
        """
        self.encode: Callable[[Encoder, Message], Parcel] = Encoder.encode
        """The frames of an answer, before it has its stamp."""
        self.wrap: Callable[..., Parcel] = partial(wrap, config.pull)
        """The frames of an answer with its stamp."""
        self._encoded: tuple[tuple[Any, ...], Frames | None] = (), None
        """What was asked for last, and its frames, which all who ask for the same version of it share."""
        self._encoding, self.encodings = False, 0
        """Answers to share that were encoded: all others that asked meanwhile have waited for that."""

    def state(self) -> dict[str, Any]:
        """The server's state for a run that is saved, for `restore`; the parameters are apart."""
        links = [link.state() for link in self.links]
        return {"shard": self.shard.state(), "links": links, "encoder": self._encoder.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a saved run, which has None for a worker that was lost; under ``left`` what each
        worker has left, unless an engine gives it them.
        """
        self.shard.restore(state["shard"])
        self._applied, self._version = self.shard.applied, self.shard.version
        self.attendance = Attendance(self.shard, self.attendance.silence_s)
        self._encoder.restore(state["encoder"])
        left = state.get("left") or [None] * len(self.links)
        for link, kept, own in zip(self.links, state["links"], left, strict=True):
            if kept is not None:
                link.restore(kept, own)

    def answer(self, frames: Parcel, connection: Attending, came: float) -> Session[Parcel]:
        """One request, which came over this connection, in the words of PROTOCOL.md. Returns the answer."""
        packet, told = yield Do(RECEIVING[:1], self.values, partial(self.unpack, frames))
        header, kind = packet.header, packet.header.get("kind")
        if kind == "status":
            return (yield Do((), self.values, partial(self._tell_status, header, told), alone=True))
        if kind == "hello":
            self.attendance.admit(connection, header)
        worker = self.shard.validate_worker(header.get("worker"))
        present = self.attendance.present[worker]
        if connection.client and connection.client != present.client:
            raise ValueError(f"Worker {worker} was silent for too long: another client is worker {worker} now.")
        present.heard, present.busy, present.received = came, present.busy + 1, present.received + sum(map(len, frames))
        try:
            stamp, waited, answer = yield from self._answer(kind, worker, header, packet)
            busy = self.shard.now() - came - waited
            answer = self.wrap({**stamp, "busy": busy, "waited": waited}, answer, told)
            present.told, present.sent = stamp["done"], present.sent + sum(map(len, answer))
            return answer
        finally:
            present.heard, present.busy = self.shard.now(), present.busy - 1
            if self.shard.updates is None:
                self._forget()
            if kind == "bye":  # after what it leaves has been kept
                present.leave(connection)

    def _answer(self, kind: Any, worker: int, header: Header, packet: Any) -> Session[tuple[Header, float, Parcel]]:
        """The request of a worker: the stamp, which it alone is told in the envelope; the seconds that it has waited;
        the answer's frames.
        """
        link, shard = self.links[worker], self.shard
        outcome: Outcome | None = None
        says: Header = {}
        if kind == "hello":
            shard.join(worker)
            link.meet(bool(header.get("again")))
            says = {**self._hello, "worker": worker} if header.get("client") else self._hello
        elif kind == "state":
            link.asked = self.attendance.present[worker].leaves = True
            says = {"leave": shard.updates is not None, "applied": self._applied}
        elif kind == "bye":
            if failed := header.get("failed"):
                self.events.append((shard.now(), f"worker {worker} has left: {failed}"))
            if diverged := header.get("diverged"):
                shard.diverge(str(diverged))
            yield from self.leave(worker)
            if header.get("state"):
                link.kept = yield Do(DECODE, self.values, partial(self._left, packet))
        elif kind not in KINDS:
            raise ValueError(
                f"There is no message of kind {kind!r}; there are {', '.join(KINDS[:-1])} and {KINDS[-1]}."
            )
        if link.goes_on and (kind in PUSHES or kind in PULLS) and not link.go_on():
            self.anew.append(worker)
        encoder = link.encoder  # this connection's: a request over an earlier one does not change what is remembered
        waited = 0.0
        if kind in PUSHES:
            outcome, waited = yield from self._push(worker, header, packet)
        version = shard.version
        params: Tensors = {}
        if kind in PULLS:
            try:
                if not shard.may_pull(worker):
                    began = shard.now()
                    yield Until(partial(shard.may_pull, worker), worker)
                    waited += shard.now() - began
            except (TimeoutError, RuntimeError) as error:
                if outcome is None:
                    raise
                raise type(error)(
                    f"{error} The push was taken, with the outcome {outcome!r}: do not push it again."
                ) from None
            version, params = self.read(worker)
            if "names" in header or "rows" in header:
                params = self._chosen(header, params)
        message = Message({"kind": "reply", "version": version, **says}, params)
        stamp = {"clock": shard.clocks[worker], "done": shard.done, "outcome": outcome}
        if kind == "state" and link.kept is not None:
            message.tensors = saved.to_arrays(link.kept)
            answer = yield Do(SENDING, self.values, partial(self._plain, message))
        elif kind not in PULLS or header.get("rows") or not self.config.pull.memory.stateless:
            answer = yield Do(SENDING, self.values, partial(self.encode, encoder, message))
        else:  # all that ask for one version of the same tensors share the frames: the first encodes, the others wait
            asked = version, *params
            while self._encoding:
                yield Until(lambda: not self._encoding, worker)
            known, answer = self._encoded
            if known == asked:
                return stamp, waited, (yield Do(SENDING[-1:], self.values, lambda: answer))
            self._encoding = True
            try:
                answer = yield Do(SENDING, self.values, partial(self.encode, self._encoder, message))
                if version == shard.version:  # else the frames would keep from use what the next update could take
                    self._encoded = asked, answer
            finally:
                self._encoding, self.encodings = False, self.encodings + 1
                self._changed()
        return stamp, waited, answer

    def _push(self, worker: int, header: Header, packet: Any) -> Session[tuple[Outcome, float]]:
        """Take a push, once; what became of it, and the seconds that it has waited. An earlier connection may have
        brought the same one and still be at it.
        """
        shard, link, began = self.shard, self.links[worker], self.shard.now()
        clock, version = header.get("clock"), header.get("version")
        if not (isinstance(clock, int) and isinstance(version, int)):
            raise ValueError(
                f"The header of a push needs a whole number under 'clock' and 'version'; got {clock!r} and {version!r}."
            )
        self.trace.step = clock
        if link.pushing:
            link.queued += 1
            try:
                yield Until(lambda: not link.pushing, worker)
            except TimeoutError:
                raise TimeoutError(
                    f"Worker {worker}'s push over an earlier connection has not come to an end."
                ) from None
            finally:
                link.queued -= 1
        if not shard.is_new(worker, clock):
            return shard.repeated(worker, clock), shard.now() - began
        link.pushing, decoder = True, link.decoder
        mark, taken = None if header.get("memory") == "none" else decoder.mark(), False
        try:
            if not shard.may_push(clock):
                yield Until(partial(shard.may_push, clock), worker)
            waited = shard.now() - began
            gradients = yield Do(DECODE, self.values, partial(self.decode, packet, decoder))
            loss = header.get("loss")
            loss = float(loss) if isinstance(loss, int | float) else math.nan
            outcome = shard.take(Contribution(worker, clock, version, gradients, loss), checked=True)
            if outcome is None:
                outcome = yield Do(UPDATE, self.values, shard.apply, alone=True)
                self._record()
            taken = outcome != "over"
        finally:
            if mark is not None and not taken:
                decoder.go_back(mark)
            link.pushing = False
            if link.queued:
                self._changed()
        if outcome != "held":  # which changes nothing for those that wait
            self._changed()
        return outcome, waited

    def leave(self, worker: int, event: str = "") -> Session[None]:
        """A worker is gone, with or without a goodbye; ``event`` says why, where it was to be here."""
        if event and worker in self.shard.live and not self.shard.done:
            self.events.append((self.shard.now(), event))
        if self.shard.part(worker):
            with suppress(RuntimeError):  # no push that could be refused: those that wait are told why
                yield Do(UPDATE, self.values, self.shard.apply, alone=True)
                self._record()
        self._changed()

    def status(self) -> Status:
        """The progress of the run and the presence of its workers, now."""
        shard, began_at = self.shard, self.attendance.began_at
        loss = self.losses[-1][2] if self.losses else math.nan
        return Status(
            index=self.index,
            servers=self.config.servers,
            workers=self.attendance.status(),
            applied=shard.applied,
            updates=shard.updates,
            late=shard.late,
            duplicates=shard.duplicates,
            version=shard.version,
            loss=loss if math.isfinite(loss) else None,
            seconds=0.0 if began_at is None else shard.now() - began_at,
            done=shard.done,
            diverged=shard.diverged,
            stuck=shard.stuck,
        )

    def read(self, worker: int) -> tuple[int, Tensors]:
        """The version and the parameters that a pull is answered with."""
        return self.shard.version, self.shard.pull(worker)

    def decode(self, packet: Any, decoder: Decoder) -> Tensors:
        """The gradients of a push. ValueError where they are none of these parameters, or not finite."""
        return checked(decoder.decode(packet).tensors, self.shard.parameters.arrays)

    def _record(self) -> None:
        """Keep what the shard has recorded of an update, if one was made, with the time."""
        shard = self.shard
        if shard.version == self._version:
            return
        self._version, self._encoded = shard.version, ((), None)  # whose memory the update after the next one takes
        began, aggregating, applying = shard.parameters.times
        aggregated = began + aggregating
        self.trace.laps(UPDATE, (began, aggregated, aggregated + applying))
        self.changed_at = shard.now()
        while shard.losses:
            self.losses.append((self.changed_at, *shard.losses.pop(0)))
        if self._updated:
            self._updated()

    def _forget(self) -> None:
        """Let go of the oldest rows that a server without an end has recorded."""
        recorded: tuple[list[Any], ...] = self.losses, self.shard.grants, self.events
        if max(map(len, recorded)) >= 2 * KEPT_ROWS:
            for rows in recorded:
                del rows[:-KEPT_ROWS]

    def _tell_status(self, asked: Header, told: Header) -> Parcel:
        """The answer to a question for the status."""
        header = {"kind": "reply", "memory": "none", **self.status().to_dict()}
        if asked.get("config"):
            header |= {"config": self.config.told(), **({"problem": self.told} if self.told else {})}
        return self.wrap({}, self._plain(Message(header)), told)

    def _plain(self, message: Message) -> Parcel:
        return encode_plainly(message, self.config.pull)

    def _left(self, packet: Any) -> Mapping[str, Any]:
        """The part that a worker leaves with its goodbye. ValueError where it could not go on from that."""
        words = "What this worker leaves"
        part = saved.from_arrays(Decoder(UNTIMED).decode(packet).tensors, words)
        try:
            ServerLink(self.config, 0, 0, UNTIMED).restore(part["link"])
            params, _, arrived = part["seen"] or ({}, (), None)
            for some in filter(None, (params, arrived)):
                self.shard.check(some)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"{words} is nothing that it could go on from: {reason(error)}") from None
        return part

    def _chosen(self, header: Header, params: Tensors) -> Tensors:
        """The tensors that a pull asks for, and of those in ``rows`` what this server has of these rows."""
        names, rows = header.get("names"), header.get("rows")
        if names is None and not rows:
            return params
        rows = rows or {}
        if not isinstance(names, list | None) or not isinstance(rows, dict):
            raise ValueError(f"A pull takes a list of names and a map of rows; got {names!r} and {rows!r}.")
        for name in (*(names or ()), *rows):
            if name not in params:
                raise ValueError(f"There is no tensor {name!r} here; there are {', '.join(params)}.")
        if rows and not self.config.pull.memory.stateless:
            raise ValueError(f"{self.config.pull.memory!r} remembers whole tensors: rows cannot be pulled through it.")
        chosen = params if names is None else {name: params[name] for name in names}
        return {
            name: x if name not in rows else np.asarray(x).reshape(-1)[self.layout[name].rows(rows[name])[1]]
            for name, x in chosen.items()
        }
