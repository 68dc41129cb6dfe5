"""Exchanges of gradients: through parameter servers, or among the workers themselves, by an all-reduce.

An all-reduce is a schedule without thread, socket or clock; real workers, simulations and tests all follow it. The
values of all tensors, one after the other, are cut into ``pieces`` near-equal pieces. All ranks have equally long lists
of hops: a message leaves at its sender's hop k, and arrives at its receiver's hop k. In the first half of the
hops, the receiver adds the message to its values; in the second half, the message replaces them. A piece's owner is the
rank that first sends it in the second half: it then holds the piece's complete sum.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from minips.stage import Stage, register

NOTHING = range(0)


class Hop(NamedTuple):
    """One rank's part of one step of the schedule: it sends to a rank, receives from a rank, both, or neither.

    ``sends`` and ``receives`` are contiguous ranges of pieces, empty if there is no such rank. With ``adds``, messages
    are partial sums to add; otherwise they are complete sums that replace values. Both ends of a message agree on that.
    """

    to: int | None = None
    sends: range = NOTHING
    source: int | None = None
    receives: range = NOTHING
    adds: bool = True


class Exchange(Stage):
    """An exchange of gradients: through parameter servers, or among the workers."""

    kind: ClassVar[str] = "exchange"


@register
@dataclass(frozen=True)
class PS(Exchange):
    """Workers push to servers and pull from them."""

    name = "ps"


class AllReduce(Exchange):
    """The workers add up their gradients among themselves, and each steps its own replica of the parameters.

    With one worker there are no hops.
    """

    direct: ClassVar[bool] = False
    """True if a rank sends all messages of a half before it waits for any; it adds up arrivals in rank order."""

    def pieces(self, workers: int) -> int:
        """The number of near-equal pieces into which the values are cut."""
        return workers

    @abstractmethod
    def schedule(self, rank: int, workers: int) -> list[Hop]:
        """This rank's hops, in order. ValueError for an impossible number of workers or an impossible rank."""
