"""One rank's way through an all-reduce: which hop is sent when, and what becomes of what comes in."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from minips.core.collectives import Hop
from minips.core.sessions import Do, Parcel, Receive, Send, Session
from minips.spans import DECODE, ENCODE, UPDATE


class Part(Protocol):
    """One rank's part of an all-reduce: what it sends at each hop, and what becomes of what comes in."""

    @property
    def hops(self) -> Sequence[Hop]: ...
    @property
    def sizes(self) -> Sequence[float]:
        """Values of each piece."""

    def outgoing(self, number: int) -> Parcel:
        """The message that is sent at hop ``number``."""

    def incoming(self, number: int, parcel: Parcel) -> None:
        """Take what came in at hop ``number``."""

    def mean(self) -> Any:
        """The result, after the last hop."""


def all_reduce(part: Part) -> Session[Any]:
    """One rank's way through an all-reduce; returns the mean."""

    def values(pieces: range) -> float:
        return sum(part.sizes[piece] for piece in pieces)

    complete = set[int]()
    for number, hop in enumerate(part.hops):
        if hop.to is not None:
            spans: tuple[str, ...] = ENCODE
            if not hop.adds:
                # A sum that came in complete is passed on as it came; its owner goes on with what the others decode.
                spans = ("serialize", "compress") if complete.issuperset(hop.sends) else (*ENCODE, "dequantize")
                complete.update(hop.sends)
            parcel = yield Do(spans, values(hop.sends), partial(part.outgoing, number))
            yield Send(hop.to, parcel, values(hop.sends), number)
        if hop.source is not None:
            parcel = yield Receive(hop.source, number)
            complete.update(() if hop.adds else hop.receives)
            spans = (*DECODE, "aggregate") if hop.adds else DECODE
            yield Do(spans, values(hop.receives), partial(part.incoming, number, parcel))
    return (yield Do(UPDATE, sum(part.sizes), part.mean))
