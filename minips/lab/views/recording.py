"""The parts of a run that a replay shows, and the times at which to look."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minips.lab.views.chain import Chain, History
from minips.results.messages import Message, Wait
from minips.results.run import Run
from minips.results.trace import SPANS, Span

MOST_LANES, MOST_ROWS = 32, 150_000
"""The most lanes, and the most spans and messages of a run, that are drawn one by one."""
FOLDED_LANES, BINS = 12, 600
"""The most lanes of a density, and its bins of time."""
EIGHT = 8
"""The steps that are shown at first."""

_DIED = re.compile(r"(?:^|: )((?:worker|server) \d+) (?:was killed|ended before its work|was started again:)")
_BACK = re.compile(r"((?:worker|server) \d+)(?: was started again after|: the run goes on)")

Ticks = NDArray[np.int64]
Window = tuple[float, float]
"""Two times, in seconds on the run's clock."""


class Axis(NamedTuple):
    """The one clock of all runs that are played together. It begins at ``start`` and ends at ``stop``, in seconds on
    the runs' own clocks, all of which begin at 0.
    """

    start: float
    stop: float

    @property
    def tick(self) -> float:
        """The unit of the page's times, in seconds: a microsecond, or a nanosecond if all is over within 1 ms."""
        return 1e-6 if self.stop - self.start > 1e-3 else 1e-9

    def ticks(self, moments: Iterable[float]) -> Ticks:
        """Return moments in ticks since the start."""
        return np.rint((np.array([*moments], float) - self.start) / self.tick).astype(np.int64)


class Down(NamedTuple):
    """The time in which a party was dead, in seconds on the run's clock."""

    who: str
    start: float
    stop: float
    """When it did something again, or the run's end."""
    back: bool
    """Whether it came back."""


class Recording:
    """The parts of a run that a replay shows, all of them or those between two times."""

    def __init__(self, run: Run, title: str = "", seconds: Window | None = None) -> None:
        self.run, self.title = run, title
        spans = [span for span in run.trace if span.name in SPANS]
        messages = [one for one in run.messages if one.start is not None or one.end is not None]
        waits = run.waits
        parties = {span.who for span in spans} | {who for one in messages for who in one[1:3]}
        parties |= {who for wait in waits for who in wait.partners}
        seen = [(span.who, span.start) for span in spans] + [(one.sender, times_of(one)[0]) for one in messages]
        downs = downs_of(run, parties, seen)
        self.parties = sorted(parties | {down.who for down in downs}, key=rank)
        """Its processes, in all of the run: servers, then workers, by number."""
        moments = [0.0, run.seconds, *(end for span in spans for end in ends(span))]
        moments += [end for message in messages for end in times_of(message)]
        self.start, self.stop = seconds or (min(moments), max(moments))
        spans = [span for span in spans if self._shows(*ends(span))]
        self.messages = [message for message in messages if self._shows(*times_of(message))]
        self._history = History(spans, self.messages, run.clock_error_s)
        self.waits = [self._history.at_server(wait) for wait in waits if self._shows(*ends(wait))]
        """The waits, each up to the moment at which the message left that ended it."""
        others = [span for span in spans if span.name != "wait" or not span.who.startswith("worker")]
        self.spans = others + [Span("wait", *wait[:4]) for wait in self.waits]
        self.bars = [span for span in others if span.name != "transfer" or not self.messages]
        """The spans that neither a wait nor a message shows."""
        self.downs = [down for down in downs if self._shows(down.start, down.stop)]

    def _shows(self, start: float, stop: float) -> bool:
        return stop >= self.start and start <= self.stop

    @property
    def folded(self) -> bool:
        """True if there is too much to draw one by one."""
        return len(self.parties) > MOST_LANES or len(self.spans) + len(self.messages) > MOST_ROWS

    @cached_property
    def chains(self) -> list[Chain]:
        """The critical path to the end of each wait."""
        return self._history.chains(self.waits)

    @property
    def longest(self) -> Wait | None:
        """The longest wait, if there is one."""
        return max(self.waits, key=lambda wait: wait.seconds, default=None)

    @property
    def worker(self) -> str:
        """The first worker, whose steps are counted; empty if no worker was seen."""
        return next((party for party in self.parties if party.startswith("worker")), "")

    @cached_property
    def steps(self) -> dict[int, float]:
        """The starts of the first worker's steps: of its gradients or, if none took any time, of its messages."""
        sent = (one for one in self.messages if one.sender == self.worker)
        return starts_of_steps(self.spans) or _first(
            (one.clock, times_of(one)[0]) for one in sent if one.clock is not None
        )


def downs_of(run: Run, parties: Iterable[str], seen: Iterable[tuple[str, float]]) -> list[Down]:
    """Return when parties were dead, as the run's events say. ``seen`` holds the times at which each did something: a
    process that is started again is back with the first of them.
    """
    active = defaultdict[str, list[float]](list)
    for who, moment in seen:
        active[who].append(moment)
    found, since = [], dict[str, float]()
    for number, (at, text) in enumerate(run.events):
        died, back = _DIED.search(text), _BACK.search(text)
        dead = [*parties] if text.startswith("all ") else [died[1]] if died else []
        for who in dead:
            since.setdefault(who, at)
            if "started again" in text:
                told = [then for then, other in run.events[number:] if (one := _BACK.search(other)) and one[1] == who]
                if later := [moment for moment in active[who] + told if moment > at]:
                    found.append(Down(who, since.pop(who), min(later), True))
        if not dead and back and back[1] in since:
            found.append(Down(back[1], since.pop(back[1]), at, True))
    return found + [Down(who, start, max(start, run.seconds), False) for who, start in since.items()]


def starts_of_steps(spans: Iterable[Span]) -> dict[int, float]:
    """Return the starts of the steps of the first worker that computes, by the step's number."""
    computes = [span for span in spans if span.name == "compute"]
    worker = min((span.who for span in computes), key=rank, default="")
    return _first((span.step, span.start) for span in computes if span.who == worker)


def _first(begun: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return the first start of each step."""
    first: dict[int, float] = {}
    for step, start in sorted(begun):
        first.setdefault(step, start)
    return first


def ends(row: Span | Wait) -> Window:
    """Return when a span or a wait began and ended."""
    return row.start, row.start + row.seconds


def times_of(message: Message) -> Window:
    """Return when a message left and arrived. One of them replaces the other if that is not known."""
    start, end = message.start, message.end
    moments = [moment for moment in (start, end) if moment is not None]
    return min(moments), max(moments)


def rank(party: str) -> tuple[bool, str, int]:
    """Return a key that sorts servers before workers, and both by their numbers."""
    role, _, number = party.rpartition(" ")
    return not role.startswith("server"), role or party, int(number) if number.isdecimal() else 0


def axis_of(recordings: Sequence[Recording]) -> Axis:
    """Return the clock on which all of these runs can be played."""
    return Axis(min(one.start for one in recordings), max(one.stop for one in recordings))


def shares_of(spans: Sequence[Span], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each bin that these spans cover. Spans at the same time add up."""
    starts = np.array([span.start for span in spans], float)
    stops = starts + np.array([span.seconds for span in spans], float)

    def elapsed(moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up, at each edge, the seconds since every earlier moment."""
        moments = np.sort(moments)
        earlier = np.searchsorted(moments, edges)
        return np.asarray(earlier * edges - np.concatenate([[0.0], np.cumsum(moments)])[earlier])

    return np.asarray(np.diff(elapsed(starts) - elapsed(stops)) / np.diff(edges))


def by_party(spans: Iterable[Span], parties: Sequence[str]) -> list[list[Span]]:
    """Return the spans of each party, in the order of their starts."""
    found = defaultdict[str, list[Span]](list)
    for span in spans:
        found[span.who].append(span)
    return [sorted(found[party], key=lambda span: span.start) for party in parties]


def fold(parties: Sequence[str]) -> dict[str, list[str]]:
    """Divide parties among at most `FOLDED_LANES` lanes, each of one role and of successive numbers.

    >>> [*fold([f"worker {number}" for number in range(1000)])][:2]
    ['workers 0–83', 'workers 84–167']
    """
    roles = defaultdict[str, list[str]](list)
    for party in parties:
        roles[rank(party)[1]].append(party)
    lanes = {}
    for role, members in roles.items():
        for part in np.array_split(members, min(FOLDED_LANES // len(roles), len(members))):
            first, last = part[0].item(), part[-1].item()
            title = first if first == last else f"{role}s {rank(first)[2]}–{rank(last)[2]}"
            lanes[title] = part.tolist()
    return lanes


def windows(recordings: Sequence[Recording]) -> dict[str, Window]:
    """Return the times of all of it, of eight steps of the first run while all runs go on, and of the longest wait,
    with the messages and the work that ended it.
    """
    axis = axis_of(recordings)
    found = {"all": (axis.start, axis.stop)}
    if eight := eight_steps(recordings[0], min(one.run.seconds for one in recordings)):
        found["eight"] = eight
    if longest := longest_wait(recordings):
        one, number = recordings[longest[0]], longest[1]
        wait, chain = one.waits[number], one.chains[number]
        first = min(wait.start, chain.since)
        last = max([wait.start + wait.seconds, *(times_of(one.messages[i])[1] for i in chain.messages)])
        margin = 0.06 * (last - first)
        found["wait"] = (max(axis.start, first - margin), min(axis.stop, last + margin))
    return found


def longest_wait(recordings: Sequence[Recording]) -> tuple[int, int] | None:
    """Return the numbers of the run, and of its wait, that has the longest wait of all that are drawn one by one."""
    waits = [
        (wait.seconds, (run, number))
        for run, one in enumerate(recordings)
        if not one.folded
        for number, wait in enumerate(one.waits)
    ]
    return max(waits, key=lambda wait: wait[0], default=(0.0, None))[1]


def eight_steps(recording: Recording, until: float = np.inf) -> Window | None:
    """Return the times of eight whole steps of the first worker, in the middle of those that began before ``until``, or
    of all that it has.
    """
    return middle_steps([*recording.steps.values(), recording.stop], until)


def middle_steps(starts: Sequence[float], until: float = np.inf) -> Window | None:
    """Return the times of eight whole steps, in the middle of those that began before ``until``, or of all steps if
    there are fewer. ``starts`` are the starts of all steps and, last, the end; None without a step.
    """
    if len(starts) < 2:
        return None
    begun = sum(start < until for start in starts[:-1])
    first = max(0, min((begun - EIGHT) // 2, len(starts) - 1 - EIGHT))
    return starts[first], starts[min(first + EIGHT, len(starts) - 1)]
