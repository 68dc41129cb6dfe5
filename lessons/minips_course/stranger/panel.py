"""Damage a message: replaces one byte, at a place of the learner's choice, and shows what three readers make of it."""

import io
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minips.lab.charts import LINE, PENS, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.stage import Value, option
from minips.stages.serializers import MsgPack, Packet
from minips_course.given_server import Server

READERS = ("minips", "np.load", "your own")
LONGEST = 176
"""The bytes of the longest of the three messages."""
VALUE_BYTES = 48
"""The bytes of the array's values, with which each message ends."""
OUTCOMES = ("ValueError", "another error", "loaded")


class Message(NamedTuple):
    """A message with an array, and the function that reads such a message."""

    data: bytes
    read: Callable[[bytes], Any]

    def part(self, place: int) -> str:
        """Return the part that this byte belongs to."""
        return "header" if place < len(self.data) - VALUE_BYTES else "values"

    def told(self, place: int, new: int) -> tuple[str, str]:
        """Read the message with a new byte at a place. Return one of `OUTCOMES`, and the error's text."""
        damaged = self.data[:place] + bytes([new]) + self.data[place + 1 :]
        try:
            with warnings.catch_warnings(action="ignore"):  # NumPy warns of an odd header
                self.read(damaged)
        except Exception as error:
            known = "ValueError" if isinstance(error, ValueError) else "another error"
            return known, " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        return "loaded", ""

    def outcome(self, place: int, new: int) -> str:
        """Return what the reader does with a new byte at a place, one of `OUTCOMES`."""
        return self.told(place, new)[0]


def messages(server: Any) -> dict[str, Message]:
    """Return a message of twelve float32 values for each of `READERS`; ``server`` has ``pack`` and ``unpack``."""
    x = np.random.default_rng(0).normal(size=VALUE_BYTES // 4).astype("f4")
    frames = [bytes(frame) for frame in MsgPack().dumps(Packet({"kind": "push"}, {"W": ("exact", {"values": x})}))]
    cut = len(frames[0])
    np.save(file := io.BytesIO(), x)
    made = (
        Message(b"".join(frames), lambda data: MsgPack().loads([data[:cut], data[cut:]])),
        Message(file.getvalue(), lambda data: np.load(io.BytesIO(data))),
        Message(bytes(server.pack({"W": x})), server.unpack),
    )
    return dict(zip(READERS, made, strict=True))


@dataclass(frozen=True)
class Damaged(Value):
    """The reader, and the damage."""

    reader: str = option(READERS[0], "the format of the message, and its reader", choices=READERS)
    place: int = option(3, "place of the damaged byte", minimum=0, maximum=LONGEST - 1, step=1)
    new: int = option(255, "the byte that is written there", minimum=0, maximum=255, step=1)


class Read(NamedTuple):
    """What the readers make of the new byte at each place."""

    asked: Damaged
    place: int
    """The damaged place; the last one, if the message is shorter."""
    old: int
    length: int
    part: str
    told: tuple[str, str]
    """The outcome at this place, and the error's text."""
    rows: Mapping[str, list[str]]
    """Maps each reader to the outcomes at all places of its message."""


class Damage(Panel[Damaged, Read]):
    """Writes a byte over one of a message: draws what three readers make of it, here and at all other places. Without
    a ``server`` of the learner's, it is the given one.

    >>> Damage().find(Damaged("np.load", place=0, new=0)).told[0]
    'ValueError'
    """

    title = "A damaged byte"
    asks = Damaged
    labels = {"new": "new byte"}
    repeats = True

    def __init__(self, server: Any = Server, **asked: Any) -> None:
        self.messages = messages(server)
        super().__init__(**asked)

    def find(self, asked: Damaged) -> Read:
        data = self.messages[asked.reader].data
        place = min(asked.place, len(data) - 1)
        rows = {
            name: [message.outcome(at, asked.new) for at in range(len(message.data))]
            for name, message in self.messages.items()
        }
        part, told = self.messages[asked.reader].part(place), self.messages[asked.reader].told(place, asked.new)
        return Read(asked, place, data[place], len(data), part, told, rows)

    def chart(self, found: Read, width: float) -> Drawing:
        longest = max(map(len, found.rows.values()))
        y = Scale("", len(READERS) - 0.4, -0.6, places=READERS)
        chart = Chart(width, 200, Scale("place in the message", 0, longest), y)
        for outcome, ink, low, high in zip(
            OUTCOMES, ("a", "b", "dim"), (-0.3, -0.3, 0.1), (0.1, 0.3, 0.3), strict=True
        ):
            places = [
                (at, row)
                for row, name in enumerate(found.rows)
                for at, did in enumerate(found.rows[name])
                if did == outcome
            ]
            at, row = np.array(places).reshape(-1, 2).T
            chart.areas((at, at + 1), (row + low, row + high), ink, outcome)
        for count, outcomes in enumerate(found.rows.values()):
            end = len(outcomes) - VALUE_BYTES
            chart.line([end, end], [count - 0.42, count + 0.42], LINE, "" if count else "from here on: values", 2)
        chosen = [(found.place + 0.5, READERS.index(found.asked.reader) - 0.42)]
        chart.marks(chosen, PENS[2]._replace(ink="text"), "the damaged byte", 6)
        return chart.drawing()

    def words(self, found: Read) -> str:
        text = found.told[1]
        which = f"{found.asked.reader}, byte {found.place} of {found.length}, in the {found.part}"
        said = f"{text:.120}" if text else "loaded, as if nothing had happened"
        if found.old == found.asked.new:
            said = "this is the byte that was there before"
        counts = Counter(found.rows[found.asked.reader])
        listed = ", ".join(f"{counts[kind]} times {kind}" for kind in OUTCOMES)
        here = f"{which}: {found.asked.new} in place of {found.old}. The reader: {said}."
        return f"{here} At all {found.length} places: {listed}."


def table(found: Mapping[tuple[str, str], Mapping[str, int]]) -> str:
    """Return a table of how often each outcome followed, with a line for each reader and part."""
    lines = [f"{'reader':10}{'part':>8}{'damages':>13}" + "".join(f"{kind:>15}" for kind in OUTCOMES)]
    for (name, part), counts in found.items():
        total = sum(counts.values())
        lines.append(f"{name:10}{part:>8}{total:13,}" + "".join(f"{counts[kind]:15,}" for kind in OUTCOMES))
    return "\n".join(lines)
