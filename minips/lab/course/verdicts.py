"""Pictures of predictions: the guess, drawn into what was measured, as HTML with SVG.

A number is a bar with a line for the guess. Options are rows, with a mark at the predicted and at the measured one. If
a rule asks for one number, each option's row shows the range in which it is true, and a line through all rows shows the
measured number. Several numbers in the same unit are bars. A mark has a word beside it. Places are percentages: letters
keep their size on a page of any width.
"""

import html
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator

from minips.lab.course.intervals import Interval
from minips.lab.course.questions import RIGHT, Estimate, Question, Wording
from minips.lab.texts import as_html

WIDE = 25
"""The ratio of the largest number to the smallest above which an axis is logarithmic."""
GRID = np.geomspace(1e-18, 1e9, 541).tolist()
"""Numbers for which rules are tried, 20 in each power of ten; their negatives and zero are tried, too."""
HUGE = 1e99
"""Numbers beyond this, and positive ones below 1 over this, are at an end of an axis."""
MARKS = {
    "right": "M2 8.500 L6 13 L14 3.500",
    "near": "M2 6 Q5 2 8 6 T14 6 M2 12 Q5 8 8 12 T14 12",
    "wrong": "M3 3 L13 13 M13 3 L3 13",
}
CSS = """
.minips-result {
    --right: light-dark(#00704f, #4cc9a4); --wrong: light-dark(#b04400, #eba56a); --guess: light-dark(#0068a3, #56b4e9);
    container-type: inline-size; max-width: 760px; break-inside: avoid;
    font: 14px/1.4 var(--jp-ui-font-family, system-ui, sans-serif)}
[data-jp-theme-light='true'] .minips-result {color-scheme: light}
[data-jp-theme-light='false'] .minips-result {color-scheme: dark}
.minips-result p {margin: 0 0 6px}
.minips-result .rows {display: grid; grid-template-columns: minmax(130px, 2fr) minmax(0, 3fr); margin: 8px 0}
.minips-result .rows > div {position: relative}
.minips-result .words {padding: 4px 12px 4px 22px; align-self: center; overflow-wrap: anywhere}
.minips-result .alone {grid-column: 1 / 3}
.minips-result .rows b {display: block}
.minips-result .words > .mark {position: absolute; left: 0; top: 6px}
.minips-result .shapes > svg {overflow: visible; position: absolute; width: 100%; height: 100%; max-width: none}
.minips-result svg {fill: currentColor; font-size: 12px}
.minips-result .is {font-weight: 600}
.minips-result .mark {fill: none; stroke: currentColor; stroke-width: 2.5; vertical-align: -2px}
.minips-result .right {color: var(--right)}
.minips-result :is(.near, .wrong) {color: var(--wrong)}
.minips-result .guess {color: var(--guess)}
.minips-result .band {fill-opacity: .12; stroke: currentColor; stroke-opacity: .5}
.minips-result .guess .band {fill-opacity: .35; stroke-opacity: 1; stroke-width: 2}
.minips-result .line {stroke: currentColor; stroke-width: 2}
.minips-result .guess .line {stroke-width: 3; stroke-dasharray: 5 3}
.minips-result .axis {stroke: currentColor; stroke-opacity: .6}
@container (max-width: 560px) {
    .minips-result .rows {grid-template-columns: minmax(0, 1fr)}
    .minips-result .rows > .alone {grid-column: auto}
    .minips-result .words:empty {display: none}
}
@media print {.minips-result {color-scheme: light; print-color-adjust: exact}}
"""
"""The style of the pictures, in a notebook and in the report."""


class Measured(NamedTuple):
    """A measured value, and half of its 95 % interval if it has one."""

    value: Any
    half: float = 0.0

    @classmethod
    def of(cls, value: Any) -> "Measured":
        """Return a value, or the mean and half of a `minips.lab.interval`."""
        return cls(value.mean, float(value.half)) if isinstance(value, Interval) else cls(value)

    def __str__(self) -> str:
        text = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return f"{text} ± {self.half:.2g}" if self.half else text

    @property
    def number(self) -> float:
        """The value as a number; NaN for a text or a truth value."""
        if isinstance(self.value, bool | np.bool_):
            return np.nan
        with suppress(TypeError, ValueError):
            return float(self.value)
        return np.nan


def to_note(values: Mapping[str, Measured]) -> str:
    """Return values as the text of a note.

    >>> to_note({"share": Measured(0.25, 0.01), "stopped": Measured(True)})
    'share = 0.25 ± 0.01; stopped = True'
    """
    return "; ".join(f"{name} = {value}" for name, value in values.items())


def from_note(text: str) -> dict[str, Measured]:
    """Return the values in the text of a note. What is neither a number nor a truth value stays a text.

    >>> from_note("share = 0.25 ± 0.01; stopped = True")
    {'share': Measured(value=0.25, half=0.01), 'stopped': Measured(value=True, half=0.0)}
    >>> from_note("error = ; late = no")
    {'error': Measured(value='', half=0.0), 'late': Measured(value='no', half=0.0)}
    """
    parts = re.findall(r"(\w+) = ([^;±]*?)(?: ± ([^;]*))?(?=; |$)", text)
    return {name: Measured(_parse(value), float(half or 0)) for name, value, half in parts}


def _parse(text: str) -> Any:
    with suppress(ValueError):
        return float(text)
    return {"True": True, "False": False}.get(text, text)


class Ruler(NamedTuple):
    """A numeric axis from ``low`` to ``high``."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Sequence[float], closed: bool = False) -> "Ruler":
        """Return an axis for all these numbers, with room beyond the largest unless it is ``closed``. It is logarithmic
        if all are positive and span more than `WIDE`; else it begins with zero, or a negative number.
        """
        known = sorted(value for value in map(float, values) if -HUGE < value < HUGE and not 0 < value < 1 / HUGE)
        if known and known[0] > 0 and known[-1] > WIDE * known[0]:
            room = max((known[-1] / known[0]) ** 0.1, 1.5)
            return cls(known[0] / room, known[-1] * (1 if closed else room), log=True)
        low, high = min([0.0, *known]), max([0.0, *known])
        room = 0.15 * (high - low)
        return cls(low - room * (low < 0), high + (0 if closed else room) * (high > 0) or 1.0 * (low == 0))

    def place(self, value: float) -> float:
        """Return a number's place in percent. A number beyond an end of the axis is at this end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        share = np.log(at / low) / np.log(high / low) if self.log else (at - low) / (high - low)
        return round(98 * float(share) + 1, 2)

    def ticks(self) -> list[float]:
        """Return a few round numbers on the axis."""
        fine = (1.0, 2.0, 5.0) if self.high < 100 * self.low else (1.0,)
        every = LogLocator(subs=fine, numticks=5) if self.log else MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
        return [float(tick) for tick in every.tick_values(self.low, self.high) if self.low <= tick <= self.high]


class Row(NamedTuple):
    """A row of a picture: words as HTML on the left, and shapes on the right, so many pixels high or higher. None for
    no shapes.
    """

    words: str
    shapes: str | None = None
    high: int = 24

    def __str__(self) -> str:
        if self.shapes is None:
            return f"<div class='words alone'>{self.words}</div>"
        shapes = f"<div class='shapes' style='min-height:{self.high}px'><svg>{self.shapes}</svg></div>"
        return f"<div class='words'>{self.words}</div>{shapes}"


def result(
    asked: Question | Estimate,
    predicted: str,
    measured: str,
    values: Mapping[str, Measured],
    words: str = "",
    reasons: Sequence[str] = (),
) -> str:
    """Return a prediction and what was measured: the question, the picture, the verdict in words, and the reasons. An
    empty text stands for what was not ``measured`` yet. ``words`` can replace it in the verdict.
    """
    said = [f"You predicted: {predicted} {asked.unit}".strip(), f"Measured: {words or measured or 'not yet'}"]
    verdict = asked.judge(predicted, measured) if measured else ""
    judged = f"{mark(verdict)} <b class='{verdict}'>{verdict.capitalize()}.</b> " if verdict in MARKS else ""
    score = f" {asked.score(predicted, measured)}" if measured and isinstance(asked, Estimate) else ""
    told = as_html(f"{'. '.join(said)}.{score}")
    return (
        f"<div class='minips-result'><p><b>{as_html(asked.text)}</b></p>"
        f"{_picture(asked, predicted, measured, values)}"
        f"<p role='status'>{judged}{told}</p>{''.join(f'<p>{as_html(reason)}</p>' for reason in reasons)}</div>"
    )


def _picture(asked: Question | Estimate, predicted: str, measured: str, values: Mapping[str, Measured]) -> str:
    if not asked.fits(predicted):
        return ""  # of an edition with other options
    draw: Any = _number if isinstance(asked, Estimate) else _options
    words = html.escape(in_words(asked, predicted, measured, values), quote=True)
    rows = "".join(map(str, draw(asked, predicted, measured, values)))
    return f"<div class='rows' role='img' aria-label='{words}'>{rows}</div>"


def in_words(asked: Question | Estimate, predicted: str, measured: str, values: Mapping[str, Measured]) -> str:
    """Describe the picture, for readers who cannot see it."""
    guess = f"You predicted: {predicted} {asked.unit}".strip()
    if not measured:
        return f"{guess}."
    known = [] if isinstance(asked, Estimate) else [f"{_value_words(asked, *value)}." for value in values.items()]
    return " ".join([f"{guess}, which is {asked.judge(predicted, measured)}. Measured: {measured}.", *known])


def mark(verdict: str) -> str:
    """Return the mark of a verdict, such as right; an empty text for one that has no mark."""
    look = f"class='mark {verdict}' viewBox='0 0 16 16' width='15' height='15' aria-hidden='true'"
    return f"<svg {look}><path d='{MARKS[verdict]}'/></svg>" if verdict in MARKS else ""


def _number(asked: Estimate, predicted: str, measured: str, values: Mapping[str, Measured]) -> Iterator[Row]:
    """Yield the rows of a number: the measured one, its bar with the guess and the range that is right, the axis."""
    value = next(iter(values.values()), Measured(np.nan))
    guess, number, form = float(predicted), value.number, asked.form("")
    near = (number / RIGHT, number * RIGHT)
    axis = Ruler.around([guess, *near, number - value.half, number + value.half])
    line, verdict = _group("guess", _line(axis, guess)), asked.judge(predicted, measured) if measured else ""
    if 0 < number < np.inf:
        yield Row("<b class='right'>measured</b>", _label(axis, number, form.text(*value), "right"))
        yield Row("pale: counts as right", _bar(axis, value) + _group("right", _band(axis, *near)) + line)
    else:
        yield Row("", line)
    said = ", ".join(filter(None, ["your guess", verdict]))
    words = f"{mark(verdict)}<b class='{verdict}'>{said}</b>"
    yield Row(words, _label(axis, guess, f"{guess:,.10g}{form.unit}", "guess"))
    yield _ticks(axis, form._replace(label=""))


def _options(asked: Question, predicted: str, measured: str, values: Mapping[str, Measured]) -> Iterator[Row]:
    """Yield a row for each option, and rows for measured values that no option's row shows."""
    forms = {name: asked.form(name) for name in [*asked.shown, *values] if name in values}
    alike = len({form[1:] for form in forms.values()}) == 1 and {*values} <= {*asked.shown}
    first = next(iter(forms), "")
    plots: dict[str, str] = {}
    axis = None
    if len(forms) > 1 and alike and np.isfinite([value.number for value in values.values()]).all():
        axis = Ruler.around([0.0, *(value.number for value in values.values())])
        plots = {form.label: _named_bar(axis, values[name], form) for name, form in forms.items()}
        foot, forms = forms[first]._replace(label=""), {}
    elif forms and not np.isnan(values[first].number):
        ranges = _ranges(asked, first, values)
        if sum(map(bool, ranges.values())) > 1:
            foot, value = forms.pop(first), values[first]
            axis = _axis(ranges, value)
            yield Row("<b class='right'>measured</b>", _label(axis, value.number, foot.text(*value), "right"))
            for option, bands in ranges.items():
                shapes = "".join(_band(axis, *band) for band in bands)
                look = "guess" if option == predicted else ""
                plots[option] = _group(look, shapes) + _group("right", _line(axis, value.number))
    for option in asked.options:
        yield Row(_option(asked, option, predicted, measured), plots.pop(option, "" if axis else None))
    yield from (Row(html.escape(name), shapes) for name, shapes in plots.items())
    if axis:
        yield _ticks(axis, foot)
    yield from (Row(html.escape(_value_words(asked, name, values[name]))) for name in forms)


def _option(asked: Question, option: str, predicted: str, measured: str) -> str:
    """Return an option with its mark and, in words, whether it was predicted and measured."""
    words = html.escape(option)
    if option != predicted:
        return f"{mark('right')}{words}<b class='right'>came true</b>" if option == measured else words
    if not measured:
        return f"{words}<b class='guess'>your guess</b>"
    verdict = asked.judge(predicted, measured)
    return f"{mark(verdict)}{words}<b class='{verdict}'>your guess, {verdict}</b>"


def _ranges(asked: Question, name: str, values: Mapping[str, Measured]) -> dict[str, list[tuple[float, float]]]:
    """Return the ranges of the number ``name`` in which each option is true, the other values being as measured."""
    fixed = {other: value.value for other, value in values.items()}

    def true_of(number: float) -> str:
        with suppress(Exception):  # a rule may know only possible numbers
            return next((choice.text for choice in asked.choices if choice.rule(**fixed | {name: number})), "")
        return ""

    points = [-np.inf, *(-size for size in reversed(GRID)), 0.0, *GRID, np.inf]
    with warnings.catch_warnings(action="ignore"):
        outcomes = [true_of(point) for point in points]
        changes = [number for number in range(2, len(points) - 1) if outcomes[number - 1] != outcomes[number]]
        borders = [_border(true_of, points[number - 1], points[number]) for number in changes]
    ranges: dict[str, list[tuple[float, float]]] = {option: [] for option in ("", *asked.options)}
    for number, ends in zip([1, *changes], pairwise([-np.inf, *borders, np.inf]), strict=True):
        ranges[outcomes[number]].append(ends)
    del ranges[""]
    return ranges


def _axis(ranges: Mapping[str, list[tuple[float, float]]], measured: Measured) -> Ruler:
    """Return an axis for the borders of the ranges and for the measured value."""
    ends = {end for bands in ranges.values() for band in bands for end in band}
    low, high = measured.number - measured.half, measured.number + measured.half
    near = [end for end in ends if abs(end) > GRID[0]]
    return Ruler.around([*near, low, high], closed=high <= max(ends) < np.inf)


def _border(true_of: Callable[[float], str], low: float, high: float) -> float:
    """Return the number between two at which another option becomes true."""
    before = true_of(low)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if true_of(middle) == before else (low, middle)
    return high


def _value_words(asked: Question | Estimate, name: str, value: Measured) -> str:
    """Return a value with the words and the unit that its question has for it."""
    form = asked.form(name)
    words = {"True": "yes", "False": "no"}.get(str(value.value), str(value.value))
    return f"{form.label}: {words if np.isnan(value.number) else form.text(*value)}"


def _group(look: str, shapes: str) -> str:
    return f"<g class='{look}'>{shapes}</g>"


def _band(axis: Ruler, low: float, high: float) -> str:
    start, stop = axis.place(low), axis.place(high)
    return f"<rect class='band' x='{start}%' width='{stop - start:.2f}%' y='10%' height='80%'/>"


def _bar(axis: Ruler, measured: Measured) -> str:
    """Return a bar from zero or, on a logarithmic axis, from its low end. A line across its end is the interval."""
    value, half = measured.number, measured.half
    start, stop = sorted(axis.place(end) for end in (0.0, value))
    low, high = axis.place(value - half), axis.place(value + half)
    bar = f"<rect x='{start}%' width='{stop - start:.2f}%' y='25%' height='50%' fill-opacity='.4'/>"
    across = f"<line class='line' x1='{low}%' x2='{high}%' y1='50%' y2='50%'/>" if half else ""
    return _group("right", bar) + across


def _named_bar(axis: Ruler, measured: Measured, form: Wording) -> str:
    """Return a bar with its value at its end, without the unit, which the axis has."""
    at, words = axis.place(measured.number), html.escape(form._replace(unit="").text(*measured))
    aside = "dx='-6' text-anchor='end'" if at > 60 else "dx='6'"
    return f"{_bar(axis, measured)}<text x='{at}%' y='50%' dy='.35em' {aside}>{words}</text>"


def _line(axis: Ruler, value: float) -> str:
    x = axis.place(value)
    return f"<line class='line' x1='{x}%' x2='{x}%' y1='-1' y2='100%'/>"


def _label(axis: Ruler, value: float, words: str, look: str) -> str:
    at = axis.place(value)
    anchor = "end" if at > 70 else "start" if at < 30 else "middle"
    return f"<text class='{look} is' x='{at}%' y='16' text-anchor='{anchor}'>{html.escape(words)}</text>"


def _tick(tick: float, form: Wording) -> str:
    sign = "+" if "+" in form.figure and tick else ""
    return f"{100 * tick:{sign},g}%" if form.figure.endswith("%}") else f"{tick:{sign},g}"


def _ticks(axis: Ruler, form: Wording) -> Row:
    """Return the row of the axis, with its numbers, and the words for it below."""
    shapes = "<line class='axis' x1='1%' x2='99%' y1='1' y2='1'/>"
    for tick in axis.ticks():
        x = axis.place(tick)
        anchor = "start" if x < 4 else "end" if x > 93 else "middle"
        shapes += f"<line class='axis' x1='{x}%' x2='{x}%' y1='1' y2='6'/>"
        shapes += f"<text x='{x}%' y='19' text-anchor='{anchor}'>{_tick(tick, form)}</text>"
    label, unit = html.escape(form.label), html.escape(form.unit.strip())
    words = f"{label} ({unit})" if label and unit else label or unit
    middle = f"<text x='50%' y='35' text-anchor='middle'>{words}</text>" if words else ""
    return Row("", shapes + middle, 40 if words else 24)
