"""Charts: their axes, their SVG, and the same picture by matplotlib."""

from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from minips.lab import charts
from minips.lab.charts import MARKS, PENS, Chart, Drawing, Scale, Text, beside, half, paint, svg
from minips.lab.style import INKS

GROUNDS = {"light": "#ffffff", "dark": "#111111"}
"""JupyterLab's grounds under a cell's output."""


def chart(width: float = 300) -> Chart:
    return Chart(width, 200, Scale("size (kB)", 1, 1000, log=True), Scale("time (ms)", 0, 8))


def tags(drawing: Drawing, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg(drawing, "words")).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


@pytest.mark.parametrize(
    ("axis", "most", "ticks"),
    [
        (Scale("", 0, 1), 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Scale("", -0.28, 0.28), 4, [-0.2, 0, 0.2]),
        (Scale("", 1, 1000, log=True), 4, [1, 10, 100, 1000]),
        (Scale("", 1, 1000, log=True), 9, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]),
        (Scale("", 1e3, 1e7, log=True), 2, [1e3, 1e5, 1e7]),
        (Scale("", -0.5, 1.5, places=("a", "b")), 9, [0, 1]),
        (Scale("", 1.5, -0.5, places=("a", "b")), 9, [0, 1]),
    ],
)
def test_ticks_are_round(axis: Scale, most: float, ticks: list[float]) -> None:
    assert axis.ticks(most) == pytest.approx(ticks)


def test_a_value_lies_where_its_axes_say() -> None:
    one = chart()
    ((left, bottom), (right, top)) = one.points([1, 1000], [0, 8])
    assert (left, right, top, bottom) == (one.left, one.right, one.top, one.bottom)
    ((x, y),) = one.points(10, 4)
    assert x == pytest.approx(left + (right - left) / 3)
    assert y == pytest.approx((top + bottom) / 2)
    assert one.points([0.1, 1e9], [-3, 99]).tolist() == [[left, bottom], [right, top]]


def test_areas_and_marks_have_their_corners() -> None:
    one = chart()
    one.areas(([1, 10], [10, 100]), (0, [4, 8]), "a", "bars")
    one.marks([(10, 4), (10, 4), (1000, 8)], PENS[2], "marks")
    areas, marks = (part for part in one.parts[-2:] if not isinstance(part, Text))
    assert [line.tolist()[0] for line in areas.lines] == one.points([1, 10], [0, 0]).tolist()
    assert [line.tolist()[2] for line in areas.lines] == one.points([10, 100], [4, 8]).tolist()
    assert len(marks.lines) == 2, "two marks at the same place are one"


def test_a_series_without_values_has_a_legend_all_the_same() -> None:
    one = chart()
    one.marks(np.empty((0, 2)), PENS[0], "nothing")
    one.line([], [], PENS[0])
    assert "nothing" in svg(one.drawing(), "words")
    paint(one.drawing(), Figure())


def test_the_legend_has_as_many_rows_as_it_needs() -> None:
    heights = []
    for width in (600, 300):
        one = chart(width)
        for pen in PENS:
            one.line([1, 10], [1, 2], pen, "a series")
        heights.append(one.drawing().height)
    assert heights[1] == heights[0] + charts.ROW


def test_charts_stand_side_by_side_where_there_is_room() -> None:
    for width, at_once in ((charts.WIDE_PX, 2), (charts.NARROW_PX, 1)):
        one = chart(half(width)).drawing()
        both = beside(width, one, one)
        assert both.width == width
        assert (both.height == one.height) == (at_once == 2)
        assert max(part.x for part in both.parts if isinstance(part, Text)) <= width


def test_the_svg_says_what_it_shows_and_escapes_it() -> None:
    drawing = Drawing(10, 20, [Text(1, 2, "<&>"), Text(1, 2, 'a  "b"', mono=True)])
    root = ElementTree.fromstring(svg(drawing, 'It\'s <5> & "more".'))
    assert root.attrib["aria-label"] == 'It\'s <5> & "more".'
    assert [text.text for text in tags(drawing, "text")] == ["<&>", 'a  "b"']


def test_matplotlib_draws_the_same_texts_and_shapes() -> None:
    one = chart()
    one.line([1, 10], [1, 2], PENS[1], "dashed")
    one.areas((1, 10), (0, 4), "dim", "pale", pale=True)
    one.text(10, 4, "$1 $2")
    figure, drawing = Figure(), one.drawing()
    paint(drawing, figure)
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == [text.text for text in tags(drawing, "text")]
    assert len(ax.patches) == len(tags(drawing, "path"))
    assert figure.get_size_inches() * charts.PX_PER_IN == pytest.approx(drawing[:2])


def test_series_differ_without_their_inks() -> None:
    assert len({pen.mark for pen in PENS}) == len(PENS)
    for one, other in combinations(MARKS.values(), 2):
        assert one.shape != other.shape or not np.allclose(one, other, atol=0.2)


def luminance(colour: str) -> float:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("ink", [ink for ink in INKS if ink != "paper"])
def test_inks_can_be_seen_in_both_themes(ink: str) -> None:
    for colour, ground in zip(INKS[ink], GROUNDS.values(), strict=True):
        lights = sorted([luminance(colour), luminance(ground)])
        assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5
