"""Charts that are drawn in a few milliseconds: as SVG for the page, and by matplotlib for a still picture.

A chart consists of lines and texts in pixels. As SVG, it takes the page's text colour, and the style sheet changes its
inks with the theme. Series differ in their marks and dashes as well as in their inks.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import ArrayLike, NDArray

from minips.lab.style import INKS

WIDE_PX, NARROW_PX = 720.0, 352.0
"""The widths of a picture for wide pages and for narrow ones."""
GAP = 16.0
"""The distance between charts side by side."""
PX_PER_IN = 95.0
"""Pixels of a chart per inch of a figure."""
SIZE, LETTER, MONO = 12, 7.4, 7.2
"""The size of letters, and their widths: a high estimate, and the width in a monospaced font."""
ROW = 18.0
"""The height of a row of text."""

Points = NDArray[np.float64]


class Pen(NamedTuple):
    """The ink, the mark and the dashes of a series."""

    ink: str
    mark: str
    dash: str = ""


PENS = (
    Pen("a", "circle"),
    Pen("b", "square", "7 4"),
    Pen("c", "triangle", "8 3 2 3"),
    Pen("d", "diamond", "2 3"),
    Pen("dim", "cross"),
    Pen("text", "plus", "7 4"),
)
LINE = Pen("text", "circle")
"""The pen of a line to compare with."""


def _polygon(corners: int, start: float = -0.5, inner: float = 1.0) -> Points:
    """Return a regular polygon, or a star whose every second corner is nearer. ``start`` is an angle, in units of π."""
    angles = np.pi * (start + 2 * np.arange(corners) / corners)
    radius = np.where(np.arange(corners) % 2, inner, 1.0)
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)


_QUARTER = np.array([(-1, -1), (-1, -3), (1, -3)], float)
_PLUS = np.concatenate([_QUARTER @ np.array(turn, float) for turn in ([[1, 0], [0, 1]], [[0, 1], [-1, 0]])])
_PLUS = np.concatenate([_PLUS, -_PLUS])
MARKS = {
    "circle": _polygon(12),
    "square": 1.2 * _polygon(4, 0.25),
    "triangle": 1.3 * _polygon(3),
    "diamond": 1.3 * _polygon(4),
    "plus": 0.42 * _PLUS,
    "cross": 0.3 * _PLUS @ np.array([[1.0, 1.0], [-1.0, 1.0]]),
    "star": 1.9 * _polygon(10, inner=0.45),
}
"""Maps a mark to its outline, about one pixel from the origin."""


class Lines(NamedTuple):
    """Lines of one ink or, without a ``width``, areas."""

    lines: Sequence[Points]
    ink: str
    width: float = 0.0
    dash: str = ""
    opacity: float = 1.0


class Text(NamedTuple):
    """A line of text. ``anchor`` tells what is at ``x``: its start, middle or end."""

    x: float
    y: float
    words: str
    anchor: str = "start"
    ink: str = "text"
    bold: bool = False
    mono: bool = False


class Drawing(NamedTuple):
    """A picture: its size in pixels, and its parts, the lowest first."""

    width: float
    height: float
    parts: list[Lines | Text]


def svg(drawing: Drawing, words: str) -> str:
    """Return the drawing as SVG. ``words`` describe it for screen readers."""
    wide, high = (f"{length:g}" for length in drawing[:2])
    whole = {
        "xmlns": "http://www.w3.org/2000/svg",
        **{"width": wide, "height": high, "viewBox": f"0 0 {wide} {high}"},
        **{"role": "img", "aria-label": words},
        **{"fill": "currentColor", "style": f"font: {SIZE}px system-ui, sans-serif"},
    }
    return _element("svg", whole, "".join(map(_svg_part, drawing.parts)))


def _svg_part(part: Lines | Text) -> str:
    ink = {} if part.ink == "text" else {"class": f"minips-ink-{part.ink}", "color": INKS[part.ink][0]}
    if isinstance(part, Lines):
        end = "" if part.width else "Z"
        path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line.tolist()) + end for line in part.lines)
        stroke = {"fill": "none", "stroke": "currentColor", "stroke-width": f"{part.width:g}"} if part.width else {}
        dash = {"stroke-dasharray": part.dash} if part.dash else {}
        pale = {"opacity": f"{part.opacity:g}"} if part.opacity < 1 else {}
        return _element("path", {**ink, **({} if part.width else _FILLED), **stroke, **dash, **pale, "d": path})
    bold = {"font-weight": "bold"} if part.bold else {}
    mono = {"font-family": "monospace", "textLength": f"{MONO * len(part.words):.0f}", "xml:space": "preserve"}
    place = {"x": f"{part.x:.1f}", "y": f"{part.y:.1f}", "text-anchor": part.anchor}
    return _element("text", {**ink, **_FILLED, **place, **bold, **(mono if part.mono else {})}, html.escape(part.words))


_FILLED = {"fill": "currentColor"}


def _element(name: str, attributes: Mapping[str, str], content: str = "") -> str:
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>"


def paint(drawing: Drawing, figure: Figure) -> None:
    """Draw the drawing in an empty figure, which takes its size."""
    figure.set_layout_engine("none")
    figure.set_size_inches(drawing.width / PX_PER_IN, drawing.height / PX_PER_IN)
    ax = figure.add_axes((0, 0, 1, 1), xlim=(0, drawing.width), ylim=(drawing.height, 0))
    ax.axis("off")
    points = 72 / PX_PER_IN
    for part in drawing.parts:
        colour = INKS[part.ink][0]
        if isinstance(part, Text):
            style: dict[str, Any] = {"family": "monospace"} if part.mono else {}
            style |= {"ha": {"start": "left", "middle": "center", "end": "right"}[part.anchor], "va": "baseline"}
            style |= {"weight": "bold"} if part.bold else {}
            ax.text(part.x, part.y, part.words, color=colour, fontsize=SIZE * points, parse_math=False, **style)
        elif part.lines:
            shape = Path.make_compound_path(*(Path(line, closed=False) for line in part.lines))
            dash = (0, [float(length) / part.width for length in part.dash.split()]) if part.dash else "-"
            stroke = {"fill": False, "edgecolor": colour, "linewidth": part.width * points, "linestyle": dash}
            ax.add_patch(PathPatch(shape, alpha=part.opacity, **(stroke if part.width else {"fc": colour, "lw": 0})))


class Scale(NamedTuple):
    """An axis from ``low`` to ``high``; its ``name`` includes the unit. ``words`` writes the value of a tick."""

    name: str
    low: float
    high: float
    log: bool = False
    words: Callable[[float], str] = "{:g}".format
    places: Sequence[str] = ()
    """Names of 0, 1, 2, …, for an axis without numbers."""

    def share(self, values: ArrayLike) -> Points:
        """Return where values lie, from 0 for ``low`` to 1 for ``high``; values outside lie at the ends."""
        low, high, found = self.low, self.high, np.asarray(values, float)
        if self.log:
            low, high, found = np.log(low), np.log(high), np.log(np.maximum(found, low))
        return np.clip((found - low) / (high - low), 0.0, 1.0)

    def ticks(self, most: float) -> list[float]:
        """Return at most about ``most`` round values."""
        if self.places:
            return [float(place) for place in range(len(self.places))]
        if self.log:
            low, high = np.log10(self.low), np.log10(self.high)
            powers = np.arange(np.floor(low), np.ceil(high) + 1)
            every = max(int(np.ceil((high - low) / most)), 1)
            factors = (1, 2, 5) if 3 * (high - low) <= most else (1,)
            found = [factor * 10.0**power for power in powers[::every] for factor in factors]
        else:
            rough = abs(self.high - self.low) / most
            power = 10.0 ** np.floor(np.log10(rough))
            each = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
            first, last = sorted((self.low / each, self.high / each))
            found = [float(f"{each * i:.9g}") for i in range(int(np.ceil(first)), int(np.floor(last)) + 1)]
        low, high = sorted((self.low, self.high))
        return [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9) or low <= tick <= high]

    def label(self, tick: float) -> str:
        """Return a tick in words."""
        return self.places[int(tick)] if self.places else self.words(tick)


class Chart:
    """A picture with two axes. Its methods take values in the axes' units; series with a ``label`` have a legend."""

    def __init__(self, width: float, height: float, x: Scale, y: Scale) -> None:
        self.width, self.x, self.y = width, x, y
        y_ticks = y.ticks(max(height / 40, 2))
        x_ticks = x.ticks(max(width / 64, 3))
        self.left = 12 + LETTER * max((len(y.label(tick)) for tick in y_ticks), default=0)
        self.right = width - 8 - LETTER / 2 * len(x.label(x_ticks[-1]) if x_ticks else "")
        self.top, self.bottom = ROW if y.name else 6.0, height - (2 * ROW if x.name else ROW)
        self.parts: list[Lines | Text] = []
        self._legend: list[tuple[Lines, str]] = []
        across = [np.array([(self.left, at), (self.right, at)]) for _, at in self.points(x.low, y_ticks)]
        down = [np.array([(at, self.top), (at, self.bottom)]) for at, _ in self.points(x_ticks, y.low)]
        lines = (across if not y.places else []) + (down if not x.places else [])
        self.parts.append(Lines(lines, "text", 1, opacity=0.15))
        corner = [(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)]
        self.parts.append(Lines([np.array(corner)], "text", 1, opacity=0.6))
        for tick, (_, at) in zip(y_ticks, self.points(x.low, y_ticks), strict=True):
            self.parts.append(Text(self.left - 5, at + 4, y.label(tick), "end"))
        for tick, (at, _) in zip(x_ticks, self.points(x_ticks, y.low), strict=True):
            self.parts.append(Text(at, self.bottom + 15, x.label(tick), "middle"))
        self.parts += [Text(0, 11, y.name)] if y.name else []
        self.parts += [Text(self.right, self.bottom + 15 + ROW, x.name, "end")] if x.name else []

    def points(self, xs: ArrayLike, ys: ArrayLike) -> Points:
        """Return the pixels of values, shape (n, 2)."""
        across = self.left + (self.right - self.left) * self.x.share(xs)
        down = self.bottom - (self.bottom - self.top) * self.y.share(ys)
        return np.stack(np.broadcast_arrays(np.atleast_1d(across), np.atleast_1d(down)), axis=1)

    def line(self, xs: ArrayLike, ys: ArrayLike, pen: Pen, label: str = "", width: float = 2.0) -> None:
        """Draw a line through values."""
        sample = Lines([np.array([(0, 0), (22, 0)], float)], pen.ink, width, pen.dash)
        self._add(sample._replace(lines=[self.points(xs, ys)]), sample, label)

    def marks(self, values: ArrayLike, pen: Pen, label: str = "", size: float = 4.0) -> None:
        """Draw a mark at each of the values, shape (n, 2), and one mark where several are at the same pixel."""
        places = np.unique(np.round(self.points(*np.reshape(values, (-1, 2)).T)), axis=0)
        shape = size * MARKS[pen.mark]
        sample = Lines([shape + np.array((11, 0))], pen.ink)
        self._add(sample._replace(lines=[shape + place for place in places]), sample, label)

    def areas(
        self,
        x: tuple[ArrayLike, ArrayLike],
        y: tuple[ArrayLike, ArrayLike],
        ink: str,
        label: str = "",
        pale: bool = False,
    ) -> None:
        """Draw rectangles between values, each of which may be one or many. ``pale`` ones have an outline."""
        ends = np.hstack([self.points(x[0], y[0]), self.points(x[1], y[1])])
        corners = ends[:, [0, 1, 2, 1, 2, 3, 0, 3, 0, 1]].reshape(-1, 5, 2)
        sample = Lines(
            [np.array([(4, -5), (18, -5), (18, 5), (4, 5), (4, -5)], float)], ink, opacity=0.3 if pale else 1
        )
        self._add(sample._replace(lines=list(corners)), sample, label)
        if pale:
            self.parts.append(Lines(list(corners), ink, 1))

    def text(self, x: float, y: float, words: str, anchor: str = "start", aside: float = 5.0) -> None:
        """Write beside a value."""
        ((across, down),) = self.points(x, y)
        self.parts.append(Text(across + aside, down + 4, words, anchor))

    def drawing(self) -> Drawing:
        """Return the picture, with the legend under it."""
        parts, high = legend(self._legend, self.width)
        below = self.bottom + (2 * ROW if self.x.name else ROW) + 4
        return Drawing(self.width, below + high, self.parts + translate(parts, 0, below))

    def _add(self, part: Lines, sample: Lines, label: str) -> None:
        self.parts.append(part._replace(lines=[line for line in part.lines if len(line)]))
        if label:
            self._legend.append((sample, label))


def legend(entries: Iterable[tuple[Lines, str]], width: float) -> tuple[list[Lines | Text], float]:
    """Return samples with their names, in as many rows as they need, and the rows' height."""
    x, y = 0.0, ROW / 2
    parts: list[Lines | Text] = []
    for sample, label in entries:
        wide = 28 + LETTER * len(label)
        if x and x + wide > width:
            x, y = 0.0, y + ROW
        parts += [*translate([sample], x, y), Text(x + 28, y + 4, label)]
        x += wide + 10
    return parts, y + ROW / 2 if parts else 0.0


def translate(parts: Iterable[Lines | Text], x: float, y: float) -> list[Lines | Text]:
    """Return the parts, shifted by ``x`` and ``y`` pixels."""
    return [
        part._replace(lines=[line + np.array((x, y)) for line in part.lines])
        if isinstance(part, Lines)
        else part._replace(x=part.x + x, y=part.y + y)
        for part in parts
    ]


def half(width: float) -> float:
    """Return the width of one of two charts, which stand side by side if both have the width of a narrow picture."""
    return (width - GAP) / 2 if width > 2 * NARROW_PX else width


def beside(width: float, *drawings: Drawing) -> Drawing:
    """Return drawings side by side or, where the width does not suffice, one below another."""
    x, y, high = 0.0, 0.0, 0.0
    parts: list[Lines | Text] = []
    for one in drawings:
        if x and x + one.width > width:
            x, y, high = 0.0, y + high + ROW, 0.0
        parts += translate(one.parts, x, y)
        x, high = x + one.width + GAP, max(high, one.height)
    return Drawing(width, y + high, parts)
