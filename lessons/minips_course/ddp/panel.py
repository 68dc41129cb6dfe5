"""How large a bucket: a slider, and the timeline of a step in virtual time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minips.lab.charts import LINE, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.stage import Value, option

EXAMPLE = {"values": [10, 640, 64, 32768, 32, 4608, 16, 144], "ready_ms": [8.0, 14, 20, 27, 33, 39, 45, 52]}
"""The gradients of the lesson's net in the order in which they are ready, for a panel that gets no measured times."""


@dataclass(frozen=True)
class Link(Value):
    """The buckets, and the link between the ranks."""

    kilobytes: float = option(0.0, "a bucket is sent at this size", minimum=0, maximum=160, step=1, unit="kB")
    milliseconds: float = option(12.0, "latency of each message", minimum=0, maximum=20, step=0.5, unit="ms")
    megabytes: float = option(10.0, "bandwidth", minimum=1, maximum=1000, unit="MB/s")


class Step(NamedTuple):
    """A step in virtual time, in milliseconds."""

    ready: Sequence[float]
    """When each gradient is ready."""
    sent: list[tuple[float, float]]
    """The start and the end of each message."""
    kilobytes: list[float]
    """The size of each message."""

    @property
    def end(self) -> float:
        """The end of the last message."""
        return self.sent[-1][1]

    @property
    def busy(self) -> float:
        """How long the link is busy."""
        return sum(end - start for start, end in self.sent)


def step(backward: Mapping[str, Any], link: Link, waits: bool = False) -> Step:
    """Return a step in which a bucket is sent when it is full, or after backward if it ``waits``."""
    ready, sent, sizes, held, free = backward["ready_ms"], list[tuple[float, float]](), list[float](), 0.0, 0.0
    for number, (values, at) in enumerate(zip(backward["values"], ready, strict=True), 1):
        held += 4e-3 * values
        if held >= link.kilobytes or number == len(ready):
            start = max(free, ready[-1] if waits else at)
            free = start + link.milliseconds + held / link.megabytes
            sent.append((start, free))
            sizes.append(held)
            held = 0.0
    return Step(ready, sent, sizes)


def ends(backward: Mapping[str, Any], **link: float) -> dict[str, float]:
    """Return the ends of steps over this link, in milliseconds: naive, with a message for each tensor, with one for
    all, and with the best bucket; its size in kilobytes and its messages; how long backward and its messages take; and
    how much of this overlap hides.
    """
    steps = {size: step(backward, Link(kilobytes=size, **link)) for size in range(161)}
    size = min(steps, key=lambda size: steps[size].end)
    best, naive = steps[size], step(backward, Link(kilobytes=0, **link), waits=True)
    found = {"naive": naive.end, "each": steps[0].end, "one": steps[160].end, "best": best.end, "size": size}
    found |= {"messages": len(best.sent), "busy": best.busy, "backward": best.ready[-1]}
    return {**found, "hidden": best.busy + best.ready[-1] - best.end}


class BucketSize(Panel[Link, Step]):
    """Draws when gradients are ready, when messages travel, and when the step ends.

    >>> panel = BucketSize()
    >>> [len(panel.find(Link(kilobytes=size)).sent) for size in (0, 19, 160)]
    [8, 2, 1]
    """

    title = "Bucket size"
    asks = Link
    labels = {"kilobytes": "bucket", "milliseconds": "latency", "megabytes": "bandwidth"}
    repeats = True

    def __init__(self, backward: Mapping[str, Any] = EXAMPLE, **asked: Any) -> None:
        self.backward = backward
        super().__init__(**asked)

    def find(self, asked: Link) -> Step:
        return step(self.backward, asked)

    def chart(self, found: Step, width: float) -> Drawing:
        last = found.end
        x = Scale("ms from the start of the step", 0, 1.1 * last)
        chart = Chart(width, 190, x, Scale("", -0.5, 1.5, places=["messages", "backward"]))
        edges = np.array([0.0, *found.ready])
        chart.areas((edges[:-1], edges[1:] - last / 300), (0.7, 1.3), "dim", "backward, up to each gradient", pale=True)
        starts, ends = np.array(found.sent).T
        chart.areas((starts, ends - last / 300), (-0.3, 0.3), "b", "a message travels")
        chart.line([last, last], [-0.5, 1.5], LINE, "the step ends")
        return chart.drawing()

    def words(self, found: Step) -> str:
        one = len(found.sent) == 1
        sizes = ", ".join(f"{size:.3g}" for size in found.kilobytes)
        return (
            f"{len(found.sent)} message{'' if one else 's'} of {sizes} kB. In milliseconds, backward ends at "
            f"{found.ready[-1]:.0f}, and the step at {found.end:.0f}."
        )
