"""The pipelines of two configs as one row of boxes: the stages of A and B, the funnel of a push's bytes and, once they
have run, messages on their way. It is HTML that a style sheet moves, and needs no module in the page.
"""

import html
from collections.abc import Iterable, Iterator, Mapping

from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.lab.columns import STAGES
from minips.lab.plots import steps_in_words, timeline_window
from minips.lab.source import code
from minips.lab.views.base import format_bytes, format_seconds, style_text
from minips.lab.views.drawings import BAND, ENCODING, strips
from minips.lab.views.outcomes import ANSWERED, movement_of
from minips.lab.views.pipeline import FIELDS, SERVER, controls, differences, ends, stage_at
from minips.results.run import Run
from minips.words import join_names

PLAY_S = 4.5
"""The seconds for which the messages of the window move."""
LEAST_S = 0.25
"""The least time for which a message moves, so that the shortest one can be seen."""
MOST_DOTS = 160
"""The most messages of a run that move; of more, those of the first workers."""
DOTS = (5.0, 10.0)
"""The diameters of the smallest and of the largest message, in pixels."""
CAPTION = "The band is a worker's push: its bytes after each stage, filled for A, dashed for B."

Sizes = Mapping[str, Mapping[str, int]]
"""The bytes of each side's push after each box."""


def flow_html(configs: Mapping[str, Config], sizes: Sizes, runs: Mapping[str, Run] | None = None) -> str:
    """Return the pipelines as HTML. With ``runs``, the messages of `timeline_window` move once, on one time axis."""
    moving = movement(runs) if runs else {}
    differ, pieces = differences(configs), strips(sizes, "A")
    boxes = [box_html(box, configs, box in differ, sizes, pieces[box]) for box in ENCODING]
    lanes = "".join(lane_html(side, config, moving.get(side, [])) for side, config in configs.items())
    served = "".join(box_html(box, configs, box in differ, {}, "") for box in SERVER)
    right = join_names(list(dict.fromkeys(ends(config)["right"] for config in configs.values())))
    return (
        f"<style>{style_text('flow')}</style>"
        f"<div class='minips-view minips-flow' role='group' aria-label='the pipelines of A and B'>"
        f"<div class='flow-row'>{''.join(boxes)}"
        f"<div class='flow-box flow-link'>{stage_html('transport', configs, 'transport' in differ)}{lanes}</div>"
        f"<div class='flow-box flow-server'><b class='flow-title'>{html.escape(right)}</b>{served}</div></div></div>"
    )


def box_html(box: str, configs: Mapping[str, Config], differs: bool, sizes: Sizes, strip: str) -> str:
    """Return a box: its stage, its piece of the funnel, and the bytes after it."""
    known = {side: format_bytes(found[box]) for side, found in sizes.items() if box in found}
    picture = f"<svg viewBox='0 0 100 {BAND:g}' preserveAspectRatio='none' aria-hidden='true'>{strip}</svg>" * bool(
        strip
    )
    after = f"<div class='flow-size'>{by_side(known)}</div>" if known else ""
    return f"<div class='flow-box'>{stage_html(box, configs, differs)}{picture}{after}</div>"


def stage_html(box: str, configs: Mapping[str, Config], differs: bool) -> str:
    """Return a box's name and what A and B have in it. The whole code of a stage is its tooltip."""
    words = {side: " ".join(words_of(box, config, configs.values())) for side, config in configs.items()}
    codes = {side: code(stage_at(config, STAGES[box])) if box in STAGES else "" for side, config in configs.items()}
    title = html.escape("\n".join(f"{side}: {text}" for side, text in codes.items() if text), quote=True)
    mark = "<span aria-hidden='true'>≠ </span>" if differs else ""
    return f"<div class='flow-stage' title='{title}'><b>{mark}{box}</b>{by_side(words)}</div>"


def words_of(box: str, config: Config, others: Iterable[Config]) -> Iterator[str]:
    """Yield a config's choice in a box, and the values of fields in which the configs differ, or that slow a run."""
    if box == "workers":
        yield str(config.workers)
    for mine, *same in zip(*(controls(one, box, "") for one in (config, *others)), strict=False):
        if mine["name"] == "latency" and config.link is None:
            continue
        if mine["type"] == "select":
            yield mine["value"]
        elif mine["name"] != "workers":
            value, *values = (one["stops"][one["at"]] for one in (mine, *same))
            if {*values} != {value} or (box in FIELDS and not is_usual(value)):
                yield f"{mine['name']} {value}"


def is_usual(value: str) -> bool:
    """Return True for a network's or a straggler's value that slows nothing."""
    return value in ("no limit", "as fast") or value.startswith("0 ")


def by_side(words: Mapping[str, str]) -> str:
    """Return a line if the sides have the same words, or else a line for each side, with its letter."""
    if len({*words.values()}) == 1:
        return f"<span>{html.escape(next(iter(words.values())))}</span>"
    return "".join(
        f"<span class='flow-{side}'><b>{side}</b> {html.escape(text)}</span>" for side, text in words.items()
    )


# ---- messages on their way ----


def movement(runs: Mapping[str, Run]) -> dict[str, list[str]]:
    """Return the dots of each run, as HTML: its messages in the window, which take the same time for all runs."""
    start, stop = timeline_window(runs)
    slower = PLAY_S / ((stop - start) or 1.0)
    found = {side: movement_of(run) for side, run in runs.items()}
    most = max((each for moves in found.values() for each in moves["bytes"]), default=1)
    dots: dict[str, list[str]] = {}
    for side, moves in found.items():
        rows = zip(*(moves[name] for name in ("worker", "start", "end", "bytes", "way")), strict=True)
        seen = sorted(row for row in rows if start <= row[1] < stop)[:MOST_DOTS]
        dots[side] = [
            dot_html((left - start) * slower, (arrived - left) * slower, nbytes / most, way == ANSWERED)
            for _, left, arrived, nbytes, way in seen
        ]
    return dots


def dot_html(after_s: float, seconds: float, share: float, back: bool) -> str:
    """Return a dot that moves once. Its area is the ``share`` of the largest message's bytes."""
    wide = DOTS[0] + (DOTS[1] - DOTS[0]) * share**0.5
    move = f"flow-{'back' if back else 'push'} {max(seconds, LEAST_S):.2f}s linear {after_s:.2f}s"
    return f"<i class='flow-{'pull' if back else 'sent'}' style='--wide: {wide:.1f}px; animation: {move}'></i>"


def lane_html(side: str, config: Config, dots: list[str]) -> str:
    """Return a side's lane for its messages: pushes above, answers below."""
    back = "" if isinstance(config.exchange, AllReduce) else "<span class='flow-way flow-pull'></span>"
    way = f"<span class='flow-way flow-sent'></span>{back}"
    letter = f"<b class='flow-{side}'>{side}</b>"
    return f"<div class='flow-lane' aria-hidden='true'>{letter}<div class='flow-road'>{way}{''.join(dots)}</div></div>"


def played_words(runs: Mapping[str, Run]) -> str:
    """Return a sentence about what moves: how much of each run, and how slowly."""
    start, stop = timeline_window(runs)
    steps = steps_in_words(runs, (start, stop))
    return f"The dots are the messages of {steps}: {format_seconds(stop - start)}, played in {PLAY_S:g} s."
