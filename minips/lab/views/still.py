"""The still picture of a replay, as SVG: lanes, spans, messages and waits between two times.

Its texts and lines have the colour of the page's text. Groups of spans differ in height and hatch as well as in colour.
"""

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from minips.lab.plots import GROUPS, LOOKS
from minips.lab.views.base import format_seconds
from minips.lab.views.recording import Recording, Window, axis_of, by_party, fold, shares_of, times_of, windows

WIDTH, LEFT, RIGHT = 960, 110, 12
"""The picture's width, and the margins beside its lanes."""
LANE, HEAD, FOOT = 24, 26, 46
"""The heights of a lane, of a run's title, and of the axis with the legend."""
COLUMNS = 240
"""The bins of a lane with more spans than can be told apart."""
STUB = 8
"""The width of a line that breaks off."""
KILL = LOOKS[1].colour
"""The colour of a kill's mark."""
COLOURS = {group: look.colour for group, look in zip(GROUPS, LOOKS, strict=True)}
HEIGHTS = {"compute": 14, "encode": 10, "transfer": 4, "wait": 6, "decode": 10, "update": 14}
"""The heights of the bars of each group."""
SENT, ANSWERED = LOOKS[2].colour, LOOKS[0].colour
"""The colours of the messages of workers and of servers."""

Mark = tuple[str, float]
"""A party and a time, at which it is to be killed."""


def draw_still(recordings: Sequence[Recording], which: str = "eight", marks: Sequence[Mark] = ()) -> str:
    """Return the picture of eight steps in the middle of the first run or, without steps or for ``"all"``, of all of
    it. ``marks`` are on the lanes of the first run.
    """
    shown = windows(recordings)
    window = shown.get(which, shown["all"])
    parts: list[str] = []
    top = 0.0
    for recording in recordings:
        lanes = fold(recording.parties) if recording.folded else {party: [party] for party in recording.parties}
        parts += draw_run(recording, lanes, window, top, marks if recording is recordings[0] else ())
        top += HEAD + LANE * len(lanes)
    origin = axis_of(recordings).start
    parts += [*draw_axis(window, origin, top), *draw_legend(top + 34)]
    words = escape(", ".join(one.title for one in recordings))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + FOOT:g}" role="img" aria-label="{words}" '
        f'style="max-width: 100%; font: 12px system-ui, sans-serif" fill="currentColor">{"".join(parts)}</svg>'
    )


def draw_run(
    recording: Recording, lanes: dict[str, list[str]], window: Window, top: float, marks: Sequence[Mark]
) -> Iterator[str]:
    """Yield a run's title, lanes, spans, messages, and the times in which a party was down."""
    yield text(4, top + 17, recording.title, 'font-weight="600"')
    middle: dict[str, float] = {}
    for number, (title, parties) in enumerate(lanes.items()):
        y = top + HEAD + LANE * (number + 0.5)
        middle |= dict.fromkeys(parties, y)
        yield text(LEFT - 10, y + 4, title, 'text-anchor="end"')
        yield f'<path d="M{LEFT} {y:g}H{WIDTH - RIGHT}" stroke="currentColor" opacity=".2"/>'
        yield from draw_lane(recording, parties, window, y)
    if not recording.folded:
        yield from draw_messages(recording, middle, window)
        for down in recording.downs:
            stop = down.stop if down.back else window[1]
            yield from draw_down(place(down.start, window), place(stop, window), middle[down.who])
        for who, at in marks:
            cross = f"M{place(at, window) - 5:.1f} {middle[who] - 5:g}l10 10m0 -10l-10 10"
            yield f'<path stroke="{KILL}" stroke-width="2.5" fill="none" d="{cross}"/>'


def draw_lane(recording: Recording, parties: list[str], window: Window, y: float) -> Iterator[str]:
    """Yield the bars of a lane as thick lines, one path for each group of spans."""
    spans = [span for party in by_party(recording.spans, parties) for span in party]
    spans = [span for span in spans if span.start + span.seconds > window[0] and span.start < window[1]]
    dense = recording.folded or len(spans) > COLUMNS
    base = np.full(COLUMNS, y + LANE / 2 - 2)
    for group, names in GROUPS.items():
        mine = [span for span in spans if span.name in names]
        if not mine or (group == "transfer" and not dense and recording.messages):
            continue
        if dense:
            share = shares_of(mine, np.linspace(*window, COLUMNS + 1)) / len(parties)
            high = np.maximum(base - share * (LANE - 4), y - LANE / 2 + 2)
            wide = (WIDTH - RIGHT - LEFT) / COLUMNS
            bars = [
                f"M{LEFT + (i + 0.5) * wide:.1f} {base[i]:.1f}V{high[i]:.1f}" for i in np.flatnonzero(base - high > 0.2)
            ]
            base, thick = high, wide
        else:
            ends = [(place(span.start, window), place(span.start + span.seconds, window)) for span in mine]
            bars, thick = [f"M{x:.1f} {y:g}h{max(to - x, 1):.1f}" for x, to in ends], HEIGHTS[group]
        yield bar(group, "".join(bars), thick, dashed=not dense)


def draw_messages(recording: Recording, middle: dict[str, float], window: Window) -> Iterator[str]:
    """Yield the lines of the messages. That of a message of which one half is not known ends half way, dashed."""
    lines: dict[tuple[str, bool], list[str]] = {}
    for message in recording.messages:
        left, arrived = times_of(message)
        if arrived < window[0] or left > window[1]:
            continue
        colour = ANSWERED if message.sender.startswith("server") else SENT
        start, stop = place(left, window), place(arrived, window)
        y, to = middle[message.sender], middle[message.receiver]
        if message.end is None:
            stop, to = start + STUB, (y + to) / 2
        elif message.start is None:
            start, y = stop - STUB, (y + to) / 2
        lost = message.start is None or message.end is None
        lines.setdefault((colour, lost), []).append(f"M{start:.1f} {y:g}L{stop:.1f} {to:g}")
    for (colour, lost), paths in lines.items():
        dashes = ' stroke-dasharray="3 2"' if lost else ""
        yield f'<path fill="none" stroke="{colour}" stroke-width="1.2"{dashes} d="{"".join(paths)}"/>'


def draw_down(start: float, stop: float, y: float) -> Iterator[str]:
    """Yield a hatched stretch, with its name if there is room."""
    middle, room = (start + stop) / 2, 20 if stop - start > 60 else -6
    lines = "".join(f"M{x:.1f} {y + 8:g}l6 -16" for x in np.arange(start, stop - 6, 6) if abs(x + 3 - middle) > room)
    box = f"M{start:.1f} {y - 8:g}H{stop:.1f}V{y + 8:g}H{start:.1f}z"
    yield f'<path stroke="currentColor" stroke-opacity=".5" fill="none" d="{box}{lines}"/>'
    if room > 0:
        yield text(middle, y + 4, "down", 'text-anchor="middle"')


def draw_axis(window: Window, origin: float, y: float) -> Iterator[str]:
    """Yield the axis: times since the start of the replay, at round distances."""
    yield f'<path d="M{LEFT} {y + 2:g}H{WIDTH - RIGHT}" stroke="currentColor" opacity=".5"/>'
    for moment in ticks(window[0] - origin, window[1] - origin):
        x = place(moment + origin, window)
        anchor = "end" if x + 24 > WIDTH else "middle"
        yield text(x, y + 17, format_seconds(moment), f'text-anchor="{anchor}"')


def draw_legend(y: float) -> Iterator[str]:
    """Yield a mark and a name for each group of spans, and for the messages."""
    x = float(LEFT)
    for name in GROUPS:
        if name != "transfer":
            yield bar(name, f"M{x:g} {y:g}h14", HEIGHTS[name]) + text(x + 20, y + 4, name)
            x += 44 + 7 * len(name)
    for name, colour in ("transfer from a worker", SENT), ("from a server", ANSWERED):
        yield f'<path stroke="{colour}" stroke-width="1.5" d="M{x:g} {y:g}h14"/>' + text(x + 20, y + 4, name)
        x += 44 + 7 * len(name)


def ticks(start: float, stop: float) -> list[float]:
    """Return at most seven round moments between two.

    >>> ticks(0.0, 0.25)
    [0.05, 0.1, 0.15, 0.2]
    """
    rough = (stop - start) / 7
    power = 10.0 ** np.floor(np.log10(rough))
    every = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [float(f"{every * i:.6g}") for i in range(int(start // every) + 1, int(np.ceil(stop / every)))]


def place(moment: float, window: Window) -> float:
    """Return the x of a moment; moments outside of the window are at its edges."""
    share = (moment - window[0]) / (window[1] - window[0])
    return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - RIGHT - LEFT)


def bar(group: str, path: str, thick: float, dashed: bool = True) -> str:
    """Return the bars of a group of spans. Those of waits are dashed."""
    dashes = ' stroke-dasharray="2 2"' if group == "wait" and dashed else ""
    return f'<path stroke="{COLOURS[group]}" stroke-width="{thick:g}"{dashes} d="{path}"/>'


def text(x: float, y: float, words: str, more: str = "") -> str:
    """Return a text."""
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{escape(words)}</text>'
