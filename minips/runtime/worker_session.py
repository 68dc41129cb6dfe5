"""What a worker says to its servers: one session for each call, in a real run, a simulation and a prediction alike.

All messages of a call are encoded, then all are sent, then the answers are received in the order of the servers. A push
that a server refuses, or does not answer, may have been taken all the same. So the next call asks that server first
(``alive``): its clock tells which pushes were taken, and the memories go back to where they were before the others.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from minips import seeds
from minips.runtime.codec import Decoder, Encoder, Mark, unpack
from minips.runtime.config import Config
from minips.runtime.message import Header, Message
from minips.runtime.partition import Layout, cut, join
from minips.runtime.server_session import PULLS, PUSHES
from minips.runtime.sessions import Do, Parcel, Receive, Send, Session
from minips.runtime.trace import DECODE, ENCODE, Trace
from minips.stage import Tensors


class ServerLink:
    """One server as a worker sees it: both halves of the codec's link, and what the last answer said."""

    def __init__(self, config: Config, worker: int, index: int, trace: Trace) -> None:
        self.config, self.index, self.trace = config, index, trace
        self.encoder = Encoder(config.push, seeds.push(config.seed, worker, index), trace)
        self.decoder = Decoder(trace)
        self.layout: dict[str, Layout] = {}
        self.values: float = 0
        self.clock, self.known_clock, self.version, self.done = 0, 0, 0, False
        self.unsure = False
        """True where a push has failed that may have been taken."""
        self._marks: deque[tuple[int, Mark]] = deque()

    def begin_push(self) -> None:
        """A push is about to be encoded. What the memories hold now is kept until it has been answered."""
        if not self.encoder.codec.memory.stateless:
            self._marks.append((self.clock, self.encoder.mark()))
        self.clock += 1

    def push_failed(self, message: Message, perhaps_taken: bool = False) -> None:
        """If this message was a push: go on from its clock, with the memories as they were before it, unless
        `agree` finds that it was taken.
        """
        if message.kind in PUSHES:
            self.unsure = self.unsure or perhaps_taken
            self.clock = min(self.clock, message.header["clock"])
            if not perhaps_taken:
                self.undo_pushes()

    def undo_pushes(self) -> None:
        """The pushes from this clock on were not taken: let the memories hold what they held before them."""
        while self._marks and self._marks[-1][0] >= self.clock:
            self.encoder.go_back(self._marks.pop()[1])

    def note(self, asked: Message, answer: Message, stamp: Header) -> None:
        """What an answer tells this worker of its clock, of the parameters and of the run's end."""
        clock = self.known_clock = int(stamp["clock"])
        self.clock, self.done = max(self.clock, clock), bool(stamp["done"])
        while self._marks and self._marks[0][0] < clock:
            self._marks.popleft()
        if asked.kind in PULLS:
            self.version = int(answer.header["version"])

    def meet_again(self) -> None:
        """The connection is a new one: what is pulled is remembered anew, on both sides."""
        self.decoder = Decoder(self.trace)

    def encode(self, message: Message) -> Parcel:
        """The frames of a message."""
        return self.encoder.encode(message)

    def decode(self, parcel: Parcel) -> tuple[Message, Header]:
        """The message of an answer's frames, and what its envelope says."""
        packet, stamp = unpack(parcel, self.config.pull, self.trace)
        return self.decoder.decode(packet), stamp


class WorkerSession:
    """One worker's calls. Each method returns a session; its result stands in the docstring."""

    def __init__(self, worker: int, links: Sequence[ServerLink]) -> None:
        self.worker, self.links = worker, links

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
            answers = yield from self._call([self.links[index]], [self._word("hello", again=True)])
            self.links[index].meet_again()
            return answers
        answers = yield from self.say("hello")
        for link, answer in zip(self.links, answers, strict=True):
            layout = answer.header["layout"].items()
            link.layout = {name: Layout(tuple(shape), *rest) for name, (shape, *rest) in layout}
            link.values = sum(part.stop - part.start for part in link.layout.values())
        return answers

    def say(self, kind: str) -> Session[list[Message]]:
        """A word without tensors to all servers. Returns the answers."""
        return self._call(self.links, [self._word(kind) for _ in self.links])

    def alive(self, link: ServerLink) -> Session[list[Message]]:
        """Say that this worker is still there. Returns the answer."""
        return self._call([link], [self._word("alive")])

    def agree(self) -> Session[None]:
        """Ask the servers of pushes that failed which of them were taken."""
        for link in self.links:
            if link.unsure:
                yield from self.alive(link)
                link.clock, link.unsure = link.known_clock, False
                link.undo_pushes()

    def push(
        self, whole: Tensors, loss: float | None, versions: Sequence[int] | None, pulls: bool
    ) -> Session[list[Message]]:
        """A push of gradients and, in the same message, the pull after it. Returns the answers."""
        header = {"kind": "push_pull" if pulls else "push", "worker": self.worker, "loss": loss}
        messages = [
            Message({**header, "clock": link.clock, "version": version}, cut(whole, link.layout))
            for link, version in zip(self.links, versions or self.versions, strict=True)
        ]
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
        return join([answer.tensors for answer in answers], [link.layout for link in self.links], rows)

    def _word(self, kind: str, **more: Any) -> Message:
        return Message({"kind": kind, "worker": self.worker, **more})

    def _call(self, links: Sequence[ServerLink], messages: Sequence[Message]) -> Session[list[Message]]:
        """One message to each of these servers, and their answers; the first error, once all have answered."""
        pushes = messages[0].kind in PUSHES
        for link in links if pushes else ():
            link.begin_push()
        parcels: list[Parcel] = []
        try:
            for link, message in zip(links, messages, strict=True):
                parcels.append((yield Do(ENCODE if pushes else (), link.values, partial(link.encode, message))))
        except BaseException:
            for link, message in zip(links, messages, strict=True):
                link.push_failed(message)
            raise
        failed: Exception | None = None
        asked = []
        for link, message, parcel in zip(links, messages, parcels, strict=True):
            try:
                yield Send(link.index, parcel, link.values)
                asked.append((link, message))
            except Exception as error:
                link.push_failed(message)
                failed = failed or error
        answers: list[Message] = []
        for link, message in asked:
            try:
                parcel = yield Receive(link.index)
                answer, stamp = yield Do(("transfer", *DECODE), link.values, partial(link.decode, parcel))
            except Exception as error:
                link.push_failed(message, perhaps_taken=True)
                failed = failed or error
            else:
                link.note(message, answer, stamp)
                answers.append(Message({**answer.header, **stamp}, answer.tensors))
        if failed:
            raise failed
        return answers
