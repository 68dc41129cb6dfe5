"""The parts of the playground that stand still, as SVG text: the funnel, the loss curves, a tensor, and the picture for
readers without a kernel.

Shapes have classes, which the playground's style sheet colours in both themes, and a colour of their own for the still.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from minips.lab.views.base import format_seconds
from minips.lab.views.pipeline import CODEC

BAND = 56.0
"""The height of the funnel at its widest, in pixels."""
PLOT = (280.0, 130.0)
"""Width and height of the loss curves' area."""
INK = {"A": "#0072b2", "B": "#c14f00"}
"""The colours of the sides; the dashes of B differ as well."""
WIDE, HIGH = 860, 356
DASHED = "stroke-dasharray='4 3' vector-effect='non-scaling-stroke'"
ENCODING = ("workers", *CODEC)
"""The boxes with a piece of the funnel."""


def strips(funnel: Mapping[str, Mapping[str, float]], shown: str) -> dict[str, str]:
    """Return each box's piece of the funnel, 100 wide and `BAND` high: its heights are the bytes before and after the
    stage. It is filled for the ``shown`` side, and an outline for the other one.
    """
    most = max((size for sizes in funnel.values() for size in sizes.values()), default=1.0) or 1.0
    pieces = dict.fromkeys(ENCODING, "")
    for side, sizes in funnel.items():
        before = sizes.get("workers", 0.0)
        for box in ENCODING:
            after = sizes.get(box, before)
            left, right = (max(BAND * size / most, 2.0) / 2 for size in (before, after))
            middle = BAND / 2
            top = f"M0 {middle - left:.1f}L100 {middle - right:.1f}"
            if side == shown:
                path = f"{top}V{middle + right:.1f}L0 {middle + left:.1f}Z"
                pieces[box] += f"<path class='play-band' d='{path}' fill='#009e73' fill-opacity='0.35'/>"
            else:
                path = f"{top}M0 {middle + left:.1f}L100 {middle + right:.1f}"
                pieces[box] += f"<path class='play-other' d='{path}' fill='none' stroke='currentColor' {DASHED}/>"
            before = after
    return pieces


def chart(curves: Sequence[Mapping[str, Any]], pale: Sequence[Mapping[str, Any]], duration: float) -> str:
    """Return loss curves against seconds. An inner ``svg`` shows the part of the ``curves`` up to a time, by its width;
    earlier runs are ``pale``, and always whole.
    """
    wide, high = PLOT
    last = duration or 1.0
    most = max((loss for one in (*curves, *pale) for loss in one["losses"]), default=0.0) or 1.0

    def line(one: Mapping[str, Any], look: str) -> str:
        points = " ".join(
            f"{wide * seconds / last:.1f},{high * (1 - loss / most):.1f}"
            for seconds, loss in zip(one["seconds"], one["losses"], strict=True)
        )
        return f"<polyline points='{points}' fill='none' {look}/>"

    dashes = {"A": "", "B": " stroke-dasharray='7 4'"}
    looks = {side: f"class='play-curve play-{side}' stroke='{INK[side]}'{dashes[side]}" for side in INK}
    drawn = [line(one, f"{looks[one['side']]} stroke-width='2.2'") for one in curves]
    earlier = [line(one, "class='play-pale' stroke='currentColor' stroke-opacity='0.35'") for one in pale]
    area = f"x='40' y='8' width='{wide:g}' height='{high:g}'"
    words = "seconds; earlier runs are pale" if pale else "seconds"
    return (
        _text(36, 18, f"{most:.2g}", "text-anchor='end'")
        + _text(36, high + 8, "0", "text-anchor='end'")
        + _text(40, high + 26, words)
        + _text(40 + wide, high + 26, f"to {format_seconds(duration)}", "text-anchor='end'")
        + f"<path d='M40 8v{high:g}h{wide:g}' fill='none' stroke='currentColor' stroke-opacity='0.6'/>"
        + f"<svg {area}>{''.join(earlier)}</svg><svg class='play-until' {area}>{''.join(drawn)}</svg>"
    )


def histogram(heights: Sequence[float], ends: Sequence[str], what: str) -> str:
    """Return bars of these heights, from 0 to 1, over an axis with these ends."""
    wide, high = 186.0, 52.0
    each = wide / len(heights)
    width = f"width='{each - 1:.1f}'"
    bars = (
        f"<rect x='{number * each + 0.5:.1f}' y='{high * (1 - tall):.1f}' {width} height='{high * tall:.1f}'/>"
        for number, tall in enumerate(heights)
    )
    axis = _text(0, 65, ends[0]) + _text(wide, 65, ends[1], "text-anchor='end'")
    return _picture(wide, 68, f"histogram of {what}", "".join(bars) + axis)


def heat_map(rows: Sequence[str], what: str, raw: bool) -> str:
    """Return a heat map of rows of digits. The middle digit, 4, is the background, except in ``raw`` bytes."""
    wide, high = len(rows[0]), len(rows)
    paths = []
    for level in range(9):
        cells = (f"M{x} {y}h1v1h-1z" for y, row in enumerate(rows) for x, each in enumerate(row) if each == str(level))
        if level != 4 or raw:
            paths.append(f"<path class='play-level-{level}' d='{''.join(cells)}'/>")
    looks = "play-heat play-bytes" if raw else "play-heat"
    more = f"class='{looks}' viewBox='0 0 {wide} {high}' preserveAspectRatio='none'"
    return _picture(186, max(5 * high, 8), f"heat map of {what}", "".join(paths), more)


def still(data: Mapping[str, Any]) -> str:
    """Return the picture of the playground's data, without movement."""
    curves = f"<g transform='translate(0 188)'>{data['chart']}</g>"
    content = "".join([*_pipeline(data), curves, *_bars(data, 400.0, 204.0)])
    style = "style='max-width:100%;height:auto;font:12px sans-serif'"
    name = f"the pipeline of {data['shown']}, its training loss, bytes and time"
    return _picture(WIDE, HIGH, name, content, f"viewBox='0 0 {WIDE} {HIGH}' fill='currentColor' {style}")


def _picture(wide: float, high: float, name: str, content: str, more: str = "") -> str:
    label = html.escape(name, quote=True)
    size = f"width='{wide:g}' height='{high:g}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-label='{label}' {more}>{content}</svg>"


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f"<text x='{x:g}' y='{y:g}' {more}>{html.escape(words)}</text>"


def _pipeline(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the boxes with their stages, and the funnel of bytes between them."""
    boxes = {box["name"]: box for box in data["boxes"]}
    columns = (*ENCODING, "transport", "aggregator", "optimizer")
    step = (WIDE - 16) / len(columns)
    for number, name in enumerate(columns):
        x = 8 + number * step
        if name in data["strips"]:
            place = f"x='{x:.1f}' y='72' width='{step:.1f}' height='{BAND:g}' viewBox='0 0 100 {BAND:g}'"
            yield f"<svg {place} preserveAspectRatio='none'>{data['strips'][name]}</svg>"
        frame = "height='136' fill='none' stroke='currentColor' stroke-opacity='0.4' rx='5'"
        yield f"<rect x='{x + 2:.1f}' y='14' width='{step - 4:.1f}' {frame}/>"
        chosen = next((one["value"] for one in boxes[name]["controls"] if one["type"] == "select"), "")
        yield _text(x + 8, 34, boxes[name]["title"], "font-weight='bold'")
        yield _text(x + 8, 54, chosen)
        yield _text(x + 8, 144, boxes[name]["text"].removesuffix("–").removesuffix(" · "))
    yield _text(8, 172, data["words"]["way"])


def _bars(data: Mapping[str, Any], x: float, y: float) -> Iterable[str]:
    """Yield the bars of bytes and of time."""
    for group in data["bars"]:
        yield _text(x, y, group["title"], "font-weight='bold'")
        for row in group["rows"]:
            y += 18
            wide = 260 * row["share"]
            yield _text(x, y, row["side"])
            yield f"<rect x='{x + 18:g}' y='{y - 10:g}' width='{wide:.1f}' height='12' fill='{INK[row['side']]}'/>"
            yield _text(x + 26 + wide, y, row["text"])
        y += 28
