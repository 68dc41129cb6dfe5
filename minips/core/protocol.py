"""The protocol between workers and servers, told once: in a real run, a simulation and a prediction alike.

A worker has a session for each call. All messages of a call are encoded, then all are sent, then the answers are
received in the order of the servers. A server has a session for each request. Between two needs of a session nothing
else happens at its party; the work of a `Do` may run beside that of other sessions.

A push is known by its worker and its clock, and counts once. A repetition is acknowledged without being decoded; a push
that is refused leaves clock, parameters and memories at the server as they were. A worker that was told of an error
asks (``alive``) before its next call: its clock at the server tells which pushes were taken, and its memories go back
to where they were before the others. So both halves of a memory agree.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from minips import seeds
from minips.core import saved
from minips.core.codec import Decoder, Encoder, Mark, encode_plainly, envelope, unpack
from minips.core.config import Config
from minips.core.message import Header, Message
from minips.core.partition import Layout, cut, join
from minips.core.sessions import NO_LOCK, Do, Parcel, Receive, Send, Session, Until, nothing
from minips.core.shard import Outcome, Shard, checked
from minips.core.trace import DECODE, ENCODE, UPDATE, Trace
from minips.stage import Frames, Tensors, reason
from minips.stages.aggregators import Contribution

PUSHES, PULLS = ("push", "push_pull"), ("pull", "push_pull")
KINDS = ("hello", "push", "pull", "push_pull", "alive", "status", "state", "bye")
RECEIVING, SENDING = ("transfer", *DECODE), (*ENCODE, "transfer")
"""The spans of a message that comes in, and of one that goes out."""


class ServerLink:
    """One server as a worker sees it: both halves of the codec's link, and what the last answer said."""

    def __init__(self, config: Config, worker: int, index: int, trace: Trace) -> None:
        self.config, self.index, self.trace = config, index, trace
        self.encoder = Encoder(config.push, seeds.push(config.seed, worker, index), trace)
        self.decoder = Decoder(trace)
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

    def encode(self, message: Message) -> Parcel:
        """The frames of a message."""
        return self.encoder.encode(message)

    def decode(self, parcel: Parcel) -> tuple[Message, Header]:
        """The message of an answer's frames, and what its envelope says."""
        packet, stamp = unpack(parcel, self.config.pull, self.trace)
        return self.decoder.decode(packet), stamp


class WorkerSession:
    """One worker's calls. Each method returns a session; its result stands in the docstring.

    ``client`` is the identity under which no other client may be this worker; without one, its number is its own.
    """

    def __init__(self, worker: int, links: Sequence[ServerLink], client: str = "") -> None:
        self.worker, self.links = worker, links
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
        messages = []
        for link in self.links:
            header: Header = {"kind": "push_pull" if pulls else "push", "worker": self.worker, "loss": loss}
            header["clock"] = link.begin_push()
            header["version"] = link.version if versions is None else versions[link.index]
            messages.append(Message(header, whole if link.whole else cut(whole, link.layout)))
        return (yield from self._call(self.links, messages))

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
        return (yield from self._call(self.links, messages))

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

    def _call(self, links: Sequence[ServerLink], messages: Sequence[Message]) -> Session[list[Message]]:
        """One message to each of these servers, and their answers; the first error, once all have answered."""
        kind = messages[0].header["kind"]
        pushes, pulls = kind in PUSHES, kind in PULLS
        clocks = [message.header["clock"] for message in messages] if pushes else []
        parcels: list[Parcel] = []
        try:
            for link, message in zip(links, messages, strict=True):
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
                parcel = yield Receive(link.index)
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
    """The requests to one server. ``answer`` is the session of one of them.

    ``layout`` is this server's part of the parameters. ``updated()`` is called once the time of an update is over, and
    ``changed()`` when sessions that wait may go on. ``encoding`` is held around the encoding of an
    answer that several workers share.
    """

    keeps_parameters = False
    """True where all versions' parameters are kept anyway, so that frames which are their memory may be, too."""

    def __init__(
        self,
        shard: Shard,
        config: Config,
        index: int,
        layout: dict[str, Layout],
        trace: Trace,
        changed: Callable[[], None],
        updated: Callable[[], None],
        silence_s: float,
        encoding: AbstractContextManager[Any] = NO_LOCK,
    ) -> None:
        self.shard, self.config, self.layout, self._changed, self._encoding = shard, config, layout, changed, encoding
        self._updated = updated
        self.values: float = sum(part.stop - part.start for part in layout.values())
        """Values of this server's parameters: what the time of a step of the way depends on."""
        self.links = [WorkerLink(config, index, worker, trace) for worker in range(config.workers)]
        self._hello = {
            "layout": {name: list(part) for name, part in layout.items()},
            "index": index,
            "servers": config.servers,
            "silence_s": silence_s,
        }
        self._applied = 0
        """Pushes that were applied before this server began."""
        self.anew: list[int] = []
        """Workers that have gone on in a saved run without what they had left."""
        self._encoder = Encoder(config.pull, seeds.shared_pull(config.seed, index), trace)
        self._encoded: tuple[tuple[Any, ...], Frames] = (), []
        self._last_encoded = -1

    def state(self) -> dict[str, Any]:
        """The server's state for a run that is saved, for `restore`; the parameters are apart."""
        links = [link.state() for link in self.links]
        return {"shard": self.shard.state(), "links": links, "encoder": self._encoder.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a saved run, which has None for a worker that was lost; under ``left`` what each
        worker has left, unless an engine gives it them.
        """
        self.shard.restore(state["shard"])
        self._applied = self.shard.applied
        self._encoder.restore(state["encoder"])
        left = state.get("left") or [None] * len(self.links)
        for link, kept, own in zip(self.links, state["links"], left, strict=True):
            if kept is not None:
                link.restore(kept, own)

    def answer(self, header: Header, parcel: Parcel) -> Session[tuple[Header, Parcel]]:
        """One request, in the words of PROTOCOL.md. Returns what the envelope tells this worker alone, and the answer's
        other frames.
        """
        kind, worker = header.get("kind"), self.shard.validate_worker(header.get("worker"))
        link, shard = self.links[worker], self.shard
        outcome: Outcome | None = None
        says: Header = {}
        if kind == "hello":
            shard.join(worker)
            link.meet(bool(header.get("again")))
            says = {**self._hello, "worker": worker} if header.get("client") else self._hello
        elif kind == "state":
            link.asked = True
            says = {"leave": shard.updates is not None, "applied": self._applied}
        elif kind == "bye":
            if reason := header.get("diverged"):
                shard.diverge(str(reason))
            self.leave(worker)
            if header.get("state"):
                link.kept = yield Do(RECEIVING, self.values, partial(self._left, parcel))
        elif kind not in KINDS:
            raise ValueError(
                f"There is no message of kind {kind!r}; there are {', '.join(KINDS[:-1])} and {KINDS[-1]}."
            )
        if link.goes_on and (kind in PUSHES or kind in PULLS) and not link.go_on():
            self.anew.append(worker)
        encoder = link.encoder  # this connection's: a request over an earlier one does not change what is remembered
        if kind in PUSHES:
            outcome = yield from self._push(worker, header, parcel)
        version, fresh = shard.version, False
        params: Tensors = {}
        if kind in PULLS:
            if kind == "pull":
                yield Do(RECEIVING[:1], self.values, nothing)
            try:
                yield Until(partial(shard.may_pull, worker), worker)
            except (TimeoutError, RuntimeError) as error:
                if outcome is None:
                    raise
                raise type(error)(
                    f"{error} The push was taken, with the outcome {outcome!r}: do not push it again."
                ) from None
            version, params = self.read(worker)
            if "names" in header or "rows" in header:
                params = self._chosen(header, params)
            fresh = self._last_encoded != version or not self.config.pull.memory.stateless
            self._last_encoded = version
        message = Message({"kind": "reply", "version": version, **says}, params)
        stamp = {"clock": shard.clocks[worker], "done": shard.done, "outcome": outcome}
        spans = SENDING if fresh else SENDING[-1:]
        encode = partial(self.encode, message, encoder, bool(params) and not header.get("rows"))
        if kind == "state" and link.kept is not None:
            message.tensors = saved.to_arrays(link.kept)
            encode = partial(self._plain, message)
        return stamp, (yield Do(spans, self.values, encode))

    def request(self, frames: Frames) -> Session[Frames]:
        """One request by its frames, where the clock on the wall says nothing. Returns the frames of the answer."""
        packet, _ = unpack(frames, self.config.push, Trace(limit=0))
        stamp, answer = yield from self.answer(packet.header, packet)
        return [envelope(self.config.pull, {**stamp, "busy": 0.0, "waited": 0.0}), *answer]

    def leave(self, worker: int) -> None:
        """A worker is gone, with or without a goodbye."""
        self.shard.leave(worker)
        self._changed()

    def read(self, worker: int) -> tuple[int, Tensors]:
        """The version and the parameters that a pull is answered with."""
        return self.shard.version, self.shard.pull(worker)

    def _push(self, worker: int, header: Header, parcel: Parcel) -> Session[Outcome]:
        """Take a push, once. An earlier connection may have brought the same one and still be at it."""
        shard, link = self.shard, self.links[worker]
        clock, version = _integer(header, "clock"), _integer(header, "version")
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
            return shard.repeated(worker, clock)
        link.pushing, decoder = True, link.decoder
        mark, taken = None if header.get("memory") == "none" else decoder.mark(), False
        try:
            if not shard.may_push(clock):
                yield Until(lambda: shard.may_push(clock), worker)
            gradients = yield Do(RECEIVING, self.values, partial(self.decode, parcel, decoder))
            loss = header.get("loss")
            loss = float(loss) if isinstance(loss, int | float) else float("nan")
            before = shard.version
            contribution = Contribution(worker, clock, version, gradients, loss)
            outcome = shard.push(contribution, checked=True)
            taken = outcome != "over"
            if shard.version > before:
                yield Do(UPDATE, self.values, self._updated, alone=True)
        finally:
            if mark is not None and not taken:
                decoder.go_back(mark)
            link.pushing = False
            if link.queued:
                self._changed()
        if outcome != "held":  # which changes nothing for those that wait
            self._changed()
        return outcome

    def decode(self, packet: Any, decoder: Decoder) -> Tensors:
        """The gradients of a push. ValueError where they are none of these parameters, or not finite."""
        return checked(decoder.decode(packet).tensors, self.shard.parameters.arrays)

    def encode(self, message: Message, encoder: Encoder, shared: bool) -> Parcel:
        """The frames of an answer, without an envelope: ``shared`` by all that ask for one version of the same whole
        tensors, where the codec remembers nothing.

        Frames that are the parameters' own memory are not kept: while they are, an update goes to new arrays.
        """
        if not shared or not self.config.pull.memory.stateless:
            return encoder.encode(message)[1:]
        with self._encoding:
            asked = message.header["version"], *message.tensors
            if asked == self._encoded[0]:
                return self._encoded[1]
            frames = self._encoder.encode(message)[1:]
            self._encoded = asked, frames
            for frame in frames:
                if isinstance(frame, memoryview) and frame.readonly and not self.keeps_parameters:
                    self._encoded = (), []
            return frames

    def _plain(self, message: Message) -> Parcel:
        return encode_plainly(message, self.config.pull)[1:]

    def _left(self, packet: Any) -> Mapping[str, Any]:
        """The part that a worker leaves with its goodbye. ValueError where it could not go on from that."""
        words = "What this worker leaves"
        part = saved.from_arrays(Decoder(Trace(limit=0)).decode(packet).tensors, words)
        try:
            ServerLink(self.config, 0, 0, Trace(limit=0)).restore(part["link"])
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


def _integer(header: Header, key: str) -> int:
    value = header.get(key)
    if not isinstance(value, int):
        raise ValueError(f"The header of a push needs a whole number under {key!r}; got {value!r}.")
    return value
