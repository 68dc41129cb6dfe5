"""Protocol sessions: what is said to whom, and in which order, told once.

A session is a generator without thread, socket, lock or clock. It yields what it needs next, and is given it: `Do`, a
piece of work, for its result; `Send`, a message to another party; `Receive`, for the next message of one. A driver
carries it out, and decides how and in which time: a worker with its sockets and the wall clock; a simulated cluster
with the real arrays; a prediction, where sizes stand in for arrays and nothing is computed.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from minips.runtime.collectives import Hop
from minips.runtime.trace import DECODE, ENCODE, UPDATE

Parcel = Any
"""What travels: frames or, where nothing is computed, their number of bytes."""
Result = TypeVar("Result")


class Do(NamedTuple):
    """Work under these spans on so many values; the session goes on with what ``call`` returns."""

    spans: tuple[str, ...]
    values: float
    call: Callable[[], Any]


class Send(NamedTuple):
    """A message of so many values to another party: that of hop ``number``."""

    to: int
    number: int
    parcel: Parcel
    values: float


class Receive(NamedTuple):
    """The next message of another party: of hop ``number``."""

    source: int
    number: int


Session = Generator[Do | Send | Receive, Any, Result]


class Part(Protocol):
    """One rank's part of an all-reduce: what it sends at each hop, and what becomes of what comes in."""

    @property
    def hops(self) -> Sequence[Hop]: ...
    @property
    def sizes(self) -> Sequence[float]:
        """Values of each piece."""

    def outgoing(self, number: int) -> Parcel:
        """What is sent at hop ``number``."""

    def incoming(self, number: int, parcel: Parcel) -> None:
        """Take what came in at hop ``number``."""

    def mean(self) -> Any:
        """What the last hop leaves."""


def all_reduce(part: Part) -> Session[Any]:
    """One rank's way through an all-reduce; returns the mean."""

    def values(pieces: range) -> float:
        return sum(part.sizes[piece] for piece in pieces)

    complete = set[int]()
    for number, hop in enumerate(part.hops):
        if hop.to is not None:
            spans: tuple[str, ...] = ENCODE
            if not hop.adds:
                # A sum that came in complete is handed on as it came; its owner goes on with what the others decode.
                spans = ("serialize", "compress") if complete.issuperset(hop.sends) else (*ENCODE, "dequantize")
                complete.update(hop.sends)
            parcel = yield Do(spans, values(hop.sends), partial(part.outgoing, number))
            yield Send(hop.to, number, parcel, values(hop.sends))
        if hop.source is not None:
            parcel = yield Receive(hop.source, number)
            complete.update(() if hop.adds else hop.receives)
            spans = (*DECODE, "aggregate") if hop.adds else DECODE
            yield Do(spans, values(hop.receives), partial(part.incoming, number, parcel))
    return (yield Do(UPDATE, sum(part.sizes), part.mean))


def carry_out(session: Session[Result], send: Callable[[Send], None], receive: Callable[[Receive], Parcel]) -> Result:
    """Carry a session out here and now, in this thread; what it returns."""
    answer: Any = None
    while True:
        try:
            need = session.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        match need:
            case Do():
                answer = need.call()
            case Send():
                send(need)
            case Receive():
                answer = receive(need)


def script(session: Session[Any]) -> list[Do | Send | Receive]:
    """All that a session of sizes alone asks for, in order; what it receives makes no difference to it."""
    needs: list[Do | Send | Receive] = []
    answer: Any = None
    with suppress(StopIteration):
        while True:
            need = session.send(answer)
            needs.append(need)
            answer = need.call() if isinstance(need, Do) else None
    return needs


def carry_out_together(sessions: Sequence[Session[Result]]) -> list[Result]:
    """Carry out the sessions of all the ranks in this thread, by turns; what each returns."""
    boxes: dict[tuple[int, int], deque[Parcel]] = defaultdict(deque)
    needs: list[Any] = [next(session) for session in sessions]
    results: dict[int, Result] = {}

    def ends(rank: int) -> bool:
        """Go on as far as it goes without a message that has not come; True at the session's end."""
        while True:
            match needs[rank]:
                case Do(call=call):
                    answer = call()
                case Send(to, _, parcel):
                    boxes[rank, to].append(parcel)
                    answer = None
                case Receive(source):
                    if not boxes[source, rank]:
                        return False
                    answer = boxes[source, rank].popleft()
            try:
                needs[rank] = sessions[rank].send(answer)
            except StopIteration as end:
                results[rank] = end.value
                return True

    left = list(range(len(sessions)))
    while left:
        left = [rank for rank in left if not ends(rank)]
    return [results[rank] for rank in range(len(sessions))]
