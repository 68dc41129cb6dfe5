"""Draw the path through the course: `python tests/course_path.py` writes lessons/path.svg, after lessons have changed.

A row for each part, a box for each lesson, and an arrow to each lesson from the one before; a dot for each way that
leads through the lesson.
"""

import html
import textwrap
from collections.abc import Iterator

from minutes import LESSONS

from minips.lab.course import start
from minips_course import course

PICTURE = LESSONS / "path.svg"
WIDE, HIGH, GAP, LEFT, TOP, ROW = 118, 62, 14, 14, 62, 112
DOTS = {"an afternoon": "#d55e00", "a week": "#0072b2", "all of it": "#999999"}
"""The colour of each way; the legend also names their order."""


def drawn() -> str:
    """The picture as SVG."""
    most = max(map(len, course.parts.values()))
    wide, high = LEFT + most * (WIDE + GAP), TOP + len(course.parts) * ROW
    words = "The path through the course: " + "; ".join(
        f"part {part}: " + ", ".join(start.name_of(one.lesson) for one in standings) for part, standings in parts()
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
            'font-family="sans-serif" role="img">',
            f"<title>{html.escape(words)}</title>",
            f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
            *legend(),
            *(line for row, (part, standings) in enumerate(parts()) for line in band(row, part, standings)),
            "</svg>\n",
        ]
    )


def parts() -> Iterator[tuple[str, list[start.Standing]]]:
    """Each part of the course with its lessons."""
    standings = start.path().standings
    for part, words in course.parts.items():
        yield part, [standings[word] for word in words]


def legend() -> Iterator[str]:
    """The line that tells what the dots mean."""
    x = LEFT
    for way in start.path().ways():
        said = f"{way.name}: {way.hours:.1f} hours"
        yield f'<circle cx="{x + 6}" cy="20" r="6" fill="{DOTS[way.name]}"/>'
        yield f'<text x="{x + 18}" y="25" font-size="14" fill="#222222">{said}</text>'
        x += 190


def band(row: int, part: str, standings: list[start.Standing]) -> Iterator[str]:
    """A part's title and its lessons."""
    y = TOP + row * ROW
    yield f'<text x="{LEFT}" y="{y}" font-size="15" font-weight="bold" fill="#222222">{html.escape(part)}</text>'
    for place, one in enumerate(standings):
        x = LEFT + place * (WIDE + GAP)
        if place:
            yield f'<path d="M{x - GAP} {y + 10 + HIGH / 2:g}h{GAP}" stroke="#666666" stroke-width="2"/>'
        yield f'<rect x="{x}" y="{y + 10}" width="{WIDE}" height="{HIGH}" rx="6" fill="#f4f4f4" stroke="#666666"/>'
        for number, line in enumerate(textwrap.wrap(start.name_of(one.lesson), 16)[:3]):
            at = f'x="{x + 8}" y="{y + 27 + 14 * number}"'
            yield f'<text {at} font-size="12" fill="#222222">{html.escape(line)}</text>'
        word = one.lesson.word
        for dot, way in enumerate(way for way, words in course.ways.items() if word in words):
            yield f'<circle cx="{x + 12 + 14 * dot}" cy="{y + 10 + HIGH + 9}" r="5" fill="{DOTS[way]}"/>'


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
