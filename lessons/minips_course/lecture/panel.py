"""Copy or call: what travels if an object's method is called on a copy, or through a reference."""

import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minips.lab.charts import PENS, Chart, Drawing, Scale
from minips.lab.panels.base import Panel
from minips.stage import Array, Value, option
from minips_course.lecture import rpc

WAYS = ("one copy", "a copy for each call", "through a reference")
ANSWERS = ("one number", "all values")


class Counts:
    """The object: so many numbers, and a method that adds to one of them and returns it, or all of them."""

    def __init__(self, values: int, answers: str) -> None:
        self.values, self.answers = np.zeros(values), answers

    def add(self, place: int, amount: float) -> Any:
        """Add to a number."""
        self.values[place] += amount
        return self.values if self.answers == "all values" else self.values[place]


@dataclass(frozen=True)
class Passing(Value):
    """How a caller uses an object of another process."""

    way: str = option(WAYS[2], "what the caller works with", choices=WAYS)
    calls: int = option(20, "calls of the object's method add(place, 1)", minimum=1, maximum=60, step=1)
    values: int = option(100, "float64 numbers in the object", minimum=1, maximum=1000, step=1)
    answers: str = option(ANSWERS[0], "what add returns", choices=ANSWERS)


class Passed(NamedTuple):
    """What has travelled after each call, by way, and what the object's numbers sum to after the last call."""

    asked: Passing
    sent: dict[str, Array]
    owner: dict[str, float]
    """The sum at the owner."""
    last: dict[str, float]
    """The number that the last call changed, as the caller sees it."""


class CopyOrCall(Panel[Passing, Passed]):
    """Calls a method of an object in one of three ways, and draws the bytes that have travelled after each call.

    >>> found = CopyOrCall().find(Passing(calls=5))
    >>> found.owner
    {'one copy': 0.0, 'a copy for each call': 0.0, 'through a reference': 5.0}
    """

    title = "Copy or call"
    asks = Passing
    repeats = True

    def find(self, asked: Passing) -> Passed:
        sent, owner, last = dict[str, Array](), dict[str, float](), dict[str, float]()
        for way in WAYS:
            owned, sizes = Counts(asked.values, asked.answers), list[int]()
            copied, answer = owned, np.zeros(1)
            for number in range(asked.calls):
                size = 0
                if way == WAYS[2]:
                    size, answer = _travel((rpc.call, (0, "add", (0, 1.0))), owned.add(0, 1.0))
                else:
                    if way == WAYS[1] or not number:
                        size, copied = _travel((rpc.fetch, (0,)), owned)
                    answer = copied.add(0, 1.0)
                sizes.append(size)
            sent[way], owner[way] = np.cumsum(sizes), float(owned.values.sum())
            last[way] = float(np.ravel(answer)[0])
        return Passed(asked, sent, owner, last)

    def chart(self, found: Passed, width: float) -> Drawing:
        calls = np.arange(1, found.asked.calls + 1)
        high = 1.08 * max(sent[-1] for sent in found.sent.values())
        x = Scale("calls", 0, found.asked.calls + 1)
        chart = Chart(width, 280, x, Scale("bytes that have travelled", 0, high, words="{:,.0f}".format))
        for pen, (way, sent) in zip(PENS, found.sent.items(), strict=False):
            chosen = way == found.asked.way
            chart.line(calls, sent, pen, way + (" (chosen)" if chosen else ""), 4 if chosen else 1.5)
            chart.marks([(calls[-1], sent[-1])], pen)
        return chart.drawing()

    def words(self, found: Passed) -> str:
        way, asked = found.asked.way, found.asked
        return (
            f"{asked.calls} calls, {way}: {found.sent[way][-1]:,} bytes. The last answer says {found.last[way]:g}; "
            f"at the owner the number is {found.owner[way]:g}."
        )

    @property
    def ratio(self) -> float:
        """The bytes of the calls through a reference, as a share of those of one copy."""
        sent = (self.found or self.find(Passing())).sent
        return float(sent[WAYS[2]][-1] / sent[WAYS[0]][-1])

    def table(self) -> str:
        """The bytes and the owner's number after the last call, a row for each way."""
        found = self.found or self.find(Passing())
        head = f"{found.asked.calls} calls, {found.asked.values} numbers | bytes | at the owner"
        rows = [f"{way} | {found.sent[way][-1]} | {found.owner[way]:g}" for way in WAYS]
        return "\n".join([head, *rows])


def _travel(request: Any, answer: Any) -> tuple[int, Any]:
    """Return the bytes of a request and its answer, as `rpc` pickles them, and a copy of the answer."""
    packed = pickle.dumps((True, answer))
    return len(pickle.dumps(request)) + len(packed), pickle.loads(packed)[1]
