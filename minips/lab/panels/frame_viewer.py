"""Look at the bytes: shows the frames that a serializer makes from one array, as they would be sent."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minips.lab.charts import MONO, NARROW_PX, ROW, Drawing, Lines, Text
from minips.lab.panels.base import Panel
from minips.lab.source import code
from minips.stage import Value, option
from minips.stages.serializers import MsgPack, Packet, Serializer

PER_LINE, PER_NARROW_LINE, LINES = 24, 12, 4
"""The bytes in a wide line and in a narrow line, and the number of lines shown for each frame."""


@dataclass(frozen=True)
class OneArray(Value):
    """An array, and the serializer that makes frames from it."""

    serializer: Serializer = option(MsgPack(), "how arrays become frames")
    dtype: str = option("float32", "type of a value", choices=("float16", "float32", "float64", "uint8", "int64"))
    rows: int = option(64, "rows of the array", minimum=0, maximum=2000, step=1)
    columns: int = option(10, "columns of the array", minimum=0, maximum=100, step=1)


class Frames(NamedTuple):
    """The frames of one message."""

    asked: OneArray
    raw: int
    """Bytes of the array itself."""
    frames: list[bytes]
    views: list[bool]
    """For each frame, whether it is the array's own memory, without a copy."""

    @property
    def total(self) -> int:
        """Bytes of all frames."""
        return sum(map(len, self.frames))


class FrameViewer(Panel[OneArray, Frames]):
    """Serializes one array: shows its frames byte by byte, their sizes, and whether the array was copied.

    >>> FrameViewer().find(OneArray(rows=3, columns=2)).total
    73
    """

    title = "Bytes of a message"
    asks = OneArray
    labels = {"dtype": "type of a value"}
    repeats = True

    def find(self, asked: OneArray) -> Frames:
        x = (100 * np.random.default_rng(0).random((asked.rows, asked.columns))).astype(asked.dtype)
        frames = asked.serializer.dumps(Packet({"kind": "push", "clock": 7}, {"W": ("exact", {"values": x})}))
        views = [len(frame) > 0 and np.shares_memory(np.frombuffer(frame, np.uint8), x) for frame in frames]
        return Frames(asked, x.nbytes, [bytes(frame) for frame in frames], views)

    def chart(self, found: Frames, width: float) -> Drawing:
        per_line = PER_LINE if width > NARROW_PX else PER_NARROW_LINE
        parts: list[Lines | Text] = []
        y = ROW
        for number, (frame, view) in enumerate(zip(found.frames, found.views, strict=True)):
            ink = "a" if view else "b"
            words = f"frame {number}: {_bytes(len(frame))}" + (", the array's own memory" if view else "")
            parts.append(Text(0, y, words, ink=ink, bold=True))
            lines = [frame[start : start + per_line] for start in range(0, len(frame), per_line)]
            for line in lines[:LINES]:
                y += ROW
                hexed = " ".join(f"{byte:02x}" for byte in line)
                text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in line)
                parts.append(Text(0, y, hexed, ink=ink, mono=True))
                parts.append(Text(3 * MONO * per_line + 4, y, text, ink=ink, mono=True))
            if len(lines) > LINES:
                y += ROW
                parts.append(Text(0, y, f"… {_bytes(len(frame) - LINES * per_line)} more"))
            y += 1.5 * ROW
        return Drawing(width, y - ROW, parts)

    def words(self, found: Frames) -> str:
        made = code(found.asked.serializer, package=False)
        frames = "one frame" if len(found.frames) == 1 else f"{len(found.frames)} frames"
        ratio = f", {found.total / found.raw:.2f} × the array" if found.raw else ""
        copied = f" It was {'not ' if any(found.views) else ''}copied." if found.raw else ""
        what = f"{_bytes(found.raw)} of {found.asked.dtype} became {frames}, {_bytes(found.total)} in all"
        return f"{made}: {what}{ratio}.{copied} Each frame in hexadecimal and as text."


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"
