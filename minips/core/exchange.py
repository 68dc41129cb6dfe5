"""Exchanges of gradients: through parameter servers, or among the workers themselves, by an all-reduce.

An all-reduce is a schedule without thread, socket or clock; real workers, simulations and tests all follow it. The
values of all tensors, one after the other, are cut into ``pieces`` near-equal pieces. Every rank has a list of hops of
the same length: a message leaves at hop k of its sender, and arrives at hop k of its receiver. In the first half of the
hops the receiver adds it to its values, in the second half it replaces them. The rank that first sends a piece in the
second half holds its complete sum: it is the piece's owner.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from minips.stage import Stage, register

NOTHING = range(0)


class Hop(NamedTuple):
    """One rank's part of one step of the schedule: it sends to one rank and receives from one, either, or neither.

    ``sends`` and ``receives`` are contiguous ranges of pieces, empty where there is no such rank. With ``adds`` the
    messages are partial sums to add, otherwise complete sums that replace; both ends of a message agree on that.
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
    """True where a rank sends all messages of a half before it waits for any; it adds up arrivals in rank order."""

    def pieces(self, workers: int) -> int:
        """The number of near-equal pieces of the values."""
        return workers

    @abstractmethod
    def schedule(self, rank: int, workers: int) -> list[Hop]:
        """This rank's hops, in order. ValueError for a number of workers, or a rank, that is impossible."""
