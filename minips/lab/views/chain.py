"""The critical path to the end of a wait: the messages that decided when it ended, and the work between them.

The path is found backwards. A server answers a worker once the last push for which it waited has arrived; a worker
sends once it has computed, from the moment at which its own last answer arrived. The path goes back until it reaches
work that began before the wait did.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from minips.results.messages import Message, Wait
from minips.results.trace import Span

ROUNDING_S = 1e-9
"""The most by which two sums of the same times differ."""
NEAR = 64
"""The most messages that are looked at to find the one that ended a wait."""
LONGEST = 200
"""The most messages of a path."""


class Chain(NamedTuple):
    """Messages, each sent because of the one before, of which the last ended a wait: their numbers in `Run.messages`.

    The first one's sender began at ``since``, in seconds, to work on it.
    """

    since: float
    messages: tuple[int, ...]


class History:
    """The messages and the computing of a run, by party, to look back from the end of a wait. Times of different
    parties may be wrong by ``error_s``, which is `Run.clock_error_s`.
    """

    def __init__(self, spans: Iterable[Span], messages: Sequence[Message], error_s: float = 0.0) -> None:
        self._messages, self._slack_s = messages, ROUNDING_S + error_s
        self._arrivals: dict[str, list[tuple[float, int]]] = defaultdict(list)
        """For each receiver, the ends and numbers of the messages that arrived there, in order."""
        self._computed: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """For each worker, the starts and ends of its gradients, in order."""
        for number, (*_, start, end) in enumerate(messages):
            if start is not None and end is not None:
                self._arrivals[messages[number].receiver].append((end, number))
        for span in spans:
            if span.name == "compute":
                self._computed[span.who].append((span.start, span.start + span.seconds))
        for arrived in self._arrivals.values():
            arrived.sort()
        for computed in self._computed.values():
            computed.sort()
        self._waits: dict[int, Wait] = {}
        """The messages that ended waits."""

    def ending(self, wait: Wait) -> int | None:
        """Return the number of the message that ended this wait; None if there is none."""
        end, arrived = wait.start + wait.seconds, self._arrivals[wait.who]
        first = bisect_left(arrived, (end - self._slack_s, 0))
        near = [number for _, number in arrived[first : first + NEAR]]
        return min(near, key=lambda number: min(abs(end - moment) for moment in self._times(number)), default=None)

    def at_server(self, wait: Wait) -> Wait:
        """Return the wait as it was at the server. A worker's trace has it later: up to the arrival of the answer."""
        end, number = wait.start + wait.seconds, self.ending(wait)
        if number is None or not self._messages[number].sender.startswith("server"):
            return wait
        left, arrived = self._times(number)
        return wait._replace(start=wait.start - (arrived - left)) if abs(end - arrived) < abs(end - left) else wait

    def chains(self, waits: Sequence[Wait]) -> list[Chain]:
        """Return the critical path to the end of each of a run's waits."""
        self._waits = {number: wait for wait in waits if (number := self.ending(wait)) is not None}
        return [self._chain(wait) for wait in waits]

    def _chain(self, wait: Wait) -> Chain:
        path: list[int] = []
        number, since = self.ending(wait), wait.start
        while number is not None and number not in path and len(path) < LONGEST:
            path.append(number)
            left, _ = self._times(number)
            cause, since = (None, left) if left <= wait.start else self._cause(number)
            number = cause if since > wait.start else None
        return Chain(since, tuple(reversed(path)))

    def _cause(self, number: int) -> tuple[int | None, float]:
        """Return the message that its sender needed before this one, and when that arrived. If there is none: None, and
        when the sender began.
        """
        message, (left, _) = self._messages[number], self._times(number)
        found = (
            self._deciding_push(number)
            if message.sender.startswith("server")
            else self._awaited_answer(message.sender, left)
        )
        if found is not None:
            return found, self._times(found)[1]
        return None, min([left, *(start for start, _ in self._computed[message.sender][:1])])

    def _deciding_push(self, number: int) -> int | None:
        """Return the message that let a server send its message ``number``: the deciding party's, or the receiver's."""
        message, wait = self._messages[number], self._waits.get(number)
        party = wait.partners[0] if wait and wait.partners else message.receiver
        left, _ = self._times(number)
        before = self._before(message.sender, left)
        return next((one for one in before if self._messages[one].sender == party), None)

    def _awaited_answer(self, worker: str, left: float) -> int | None:
        """Return the last message for which a worker waited, before it sent one."""
        for number in self._before(worker, left):
            start, end = self._times(number)
            hop = not self._messages[number].sender.startswith("server")
            if start < left and (number in self._waits if hop else not self._computes(worker, end)):
                return number
        return None

    def _before(self, party: str, moment: float) -> Iterator[int]:
        """Yield the messages that had arrived at a party by this moment, the last one first."""
        arrived = self._arrivals[party]
        place = bisect_right(arrived, (moment + self._slack_s, len(self._messages)))
        return (arrived[at][1] for at in range(place - 1, -1, -1))

    def _computes(self, worker: str, moment: float) -> bool:
        """Return True if a worker is in the middle of a gradient."""
        computed = self._computed[worker]
        place = bisect_left(computed, (moment, moment)) - 1
        return place >= 0 and computed[place][1] > moment

    def _times(self, number: int) -> tuple[float, float]:
        """Return when a message with both halves left, and when it arrived."""
        message = self._messages[number]
        assert message.start is not None
        assert message.end is not None
        return message.start, message.end
