"""The playground's still: its pipeline and its loss curves as SVG text, for readers without a kernel."""

import html
from collections.abc import Iterator, Mapping
from typing import Any

from minips.lab.views.pipeline import CODEC

WIDE, HIGH = 860, 330
BAND, MIDDLE = 64.0, 118.0
"""The height of the funnel at its widest, and the height of its middle line, in pixels."""
INK = {"A": "#0072b2", "B": "#c14f00"}
"""The colours of the sides; the dashes of B differ as well."""


def still(data: Mapping[str, Any]) -> str:
    """Return the picture of the playground's data, without movement."""
    parts = [*_pipeline(data), *_curves(data, 8.0, 216.0, 390.0, 90.0), *_bars(data, 470.0, 220.0)]
    style = "style='max-width:100%;height:auto;font:12px sans-serif'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDE} {HIGH}' width='{WIDE}' {style} "
        f"fill='currentColor' role='img' aria-label='The pipeline of {html.escape(data['shown'])}'>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f"<text x='{x:g}' y='{y:g}' {more}>{html.escape(words)}</text>"


def _pipeline(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the boxes with their stages, and the funnel of bytes between them."""
    boxes = {box["name"]: box for box in data["boxes"]}
    sizes = data["funnel"].get(data["shown"], {})
    most = max(sizes.values(), default=1) or 1
    before = sizes.get("workers", most)
    columns = ("workers", *CODEC, "transport", "aggregator", "optimizer")
    step = (WIDE - 16) / len(columns)
    for number, name in enumerate(columns):
        x = 8 + number * step
        after = sizes.get(name, before)
        ends = [BAND / 2 * max(size / most, 0.02) for size in (before, after)]
        corners = [(x, -ends[0]), (x + step, -ends[1]), (x + step, ends[1]), (x, ends[0])]
        points = " ".join(f"{px:.1f},{MIDDLE + py:.1f}" for px, py in corners)
        yield f"<polygon points='{points}' fill='#009e73' fill-opacity='0.35'/>"
        frame = "fill='none' stroke='currentColor' stroke-opacity='0.4' rx='5'"
        yield f"<rect x='{x + 2:.1f}' y='14' width='{step - 4:.1f}' height='{BAND + 112}' {frame}/>"
        chosen = next((one["value"] for one in boxes[name]["controls"] if one["type"] == "select"), "")
        yield _text(x + 9, 34, data["ends"]["left"] if name == "workers" else name, "font-weight='bold'")
        yield _text(x + 9, 52, chosen)
        yield _text(x + 9, 178, boxes[name]["text"].partition(" · ")[0].replace("–", ""))
        before = after
    yield _text(8, 206, f"Below: {data['words'].get('out', 'push')} each way, {data['words'].get('speed', '')}.")


def _curves(data: Mapping[str, Any], x: float, y: float, wide: float, high: float) -> Iterator[str]:
    """Yield the losses against seconds."""
    curves = [one for one in data["curves"] if one["losses"]]
    last = max((one["seconds"][-1] for one in curves), default=0.0) or 1.0
    most = max((max(one["losses"]) for one in curves), default=0.0) or 1.0
    frame = f"M{x + 40:g} {y:g} v{high:g} h{wide - 40:g}"
    yield f"<path d='{frame}' fill='none' stroke='currentColor' stroke-opacity='0.4'/>"
    for one in curves:
        points = " ".join(
            f"{x + 40 + (wide - 40) * seconds / last:.1f},{y + high * (1 - loss / most):.1f}"
            for seconds, loss in zip(one["seconds"], one["losses"], strict=True)
        )
        dash = "stroke-dasharray='6 4'" if one["side"] == "B" else ""
        yield f"<polyline points='{points}' fill='none' stroke='{INK[one['side']]}' stroke-width='2' {dash}/>"
    yield _text(x, y + 12, f"{most:.3g}")
    yield _text(x + 14, y + high, "0")
    yield _text(x + wide, y + high + 18, f"loss against seconds, to {last:.3g} s", "text-anchor='end'")


def _bars(data: Mapping[str, Any], x: float, y: float) -> Iterator[str]:
    """Yield the bars of bytes and of time."""
    for group in data["bars"]:
        yield _text(x, y + 4, group["title"], "font-weight='bold'")
        for row in group["rows"]:
            y += 18
            yield _text(x, y + 4, row["side"])
            wide = 200 * row["share"]
            yield f"<rect x='{x + 18:g}' y='{y - 7:g}' width='{wide:.1f}' height='12' fill='{INK[row['side']]}'/>"
            yield _text(x + 26 + wide, y + 4, row["text"])
        y += 26
