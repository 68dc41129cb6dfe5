"""The pictures of the puzzles, drawn as the lab's charts are. Imported when a picture is first drawn."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from minips.lab.charts import (
    GAP,
    LETTER,
    MARKS,
    PENS,
    ROW,
    Chart,
    Drawing,
    Lines,
    Points,
    Scale,
    Text,
    beside,
    half,
    legend,
    translate,
)
from minips.lab.views.race import HEIGHT, THICK, THIN, WIDTH, pixel, places, role

CELL = 9.0
"""Pixels of a piece in a grid."""
PALE = 0.13
"""The opacity of a cell beside that of its gradients."""
MOST_GRIDS = 21
"""After more steps, grids are left out."""
LINE_PX, MOST_LINES = 12.0, 3
"""The height of a line in a box, and the most lines of one. A name that does not fit is left out."""

Goals = tuple[float, float]
"""Par, and the best known value."""


def draw_all_reduce(
    links: Iterable[tuple[str, str]],
    busy: Mapping[tuple[str, str], float],
    steps: Sequence[tuple[float, float]],
    looks: Sequence[Sequence[Sequence[int]]],
    goals: Goals,
    width: float,
) -> Drawing:
    """Draw the network and each link's ``busy`` ticks, the latency and the traffic of all steps, and what every rank
    has after each of them.
    """
    above = beside(width, _network(links, busy, steps, half(width)), _ticks(steps, goals, half(width)))
    below = _grids(looks, width)
    return Drawing(
        width, above.height + GAP + below.height, [*above.parts, *translate(below.parts, 0, above.height + GAP)]
    )


def _network(
    links: Iterable[tuple[str, str]],
    busy: Mapping[tuple[str, str], float],
    steps: Sequence[tuple[float, float]],
    width: float,
) -> Drawing:
    """Draw each link as wide and as orange as it was long busy, in the direction that carried more."""
    import networkx as nx

    graph, whole = nx.Graph([*links]), sum(map(sum, steps)) or 1
    at = {node: np.array(pixel(*xy)) * (width / WIDTH) for node, xy in places(graph).items()}
    parts: list[Lines | Text] = []
    for ends in graph.edges:
        share = max(busy.get(ends, 0), busy.get(ends[::-1], 0)) / whole
        line = Lines([np.array([at[end] for end in ends])], "dim", THIN + THICK * share)
        parts += [line, line._replace(ink="b", opacity=share)]
    for node, place in at.items():
        switch = role(node) == "switch"
        shape = 6 * MARKS["diamond"] if switch else 10 * MARKS["circle"]
        parts.append(Lines([place + shape], "text" if switch else "a"))
        if not switch:
            parts.append(Text(place[0], place[1] + 4, str(node).split()[-1], "middle", "paper", bold=True))
    high = HEIGHT * width / WIDTH + 8
    samples = [
        (Lines([np.array([(0, 0), (22, 0)], float)], "b", THICK), "busy throughout"),
        (Lines([np.array([(0, 0), (22, 0)], float)], "dim", THIN), "idle"),
    ]
    names, below = legend(samples, width)
    return Drawing(width, high + below, parts + translate(names, 0, high))


def _ticks(steps: Sequence[tuple[float, float]], goals: Goals, width: float) -> Drawing:
    """Draw the steps one after another: their latency and their traffic."""
    count, ends = len(steps), np.cumsum([0.0, *(tick for step in steps for tick in step)])
    chart = Chart(
        width,
        250,
        Scale("ticks", 0, 1.04 * max(*goals, ends[-1])),
        Scale("step", count - 0.5, -0.5, words=lambda row: f"{row + 1:g}" if row % 1 == 0 else ""),
    )
    begins, waits = ends[:-1:2], ends[1::2]
    rows = np.arange(count)
    chart.areas((begins, waits), (rows - 0.3, rows + 0.3), "dim", "latency", pale=True)
    chart.areas((waits, ends[2::2]), (rows - 0.3, rows + 0.3), "b", "the busiest link")
    draw_goals(chart, goals, (-0.5, count - 0.5))
    return chart.drawing()


def draw_lanes(
    lanes: Mapping[str, Sequence[tuple[float, float, str]]], unit: str, goals: Goals, width: float
) -> Drawing:
    """Draw boxes with a begin, an end and a name, in a lane for each kind of work."""
    last = max(end for boxes in lanes.values() for _, end, _ in boxes)
    rows = Scale("", len(lanes) - 0.5, -0.5, places=tuple(lanes))
    across = Scale(f"{unit} (in a box: its layers)", 0, 1.04 * max(*goals, last))
    chart = Chart(width, 70 + 60 * len(lanes), across, rows)
    draw_goals(chart, goals, (-0.5, len(lanes) - 0.5))
    for row, (boxes, ink) in enumerate(zip(lanes.values(), "abd", strict=False)):
        for begin, end, name in boxes:
            chart.areas((begin, end), (row - 0.32, row + 0.32), ink, pale=True)
            ((left, _), (right, _)) = chart.points((begin, end), row)
            letters = int((right - left) / LETTER)
            lines = textwrap.wrap(name, letters, break_long_words=False) if letters else []
            if len(lines) <= MOST_LINES and max(map(len, lines), default=0) <= letters:
                ((x, y),) = chart.points((begin + end) / 2, row)
                y += 4 - LINE_PX * (len(lines) - 1) / 2
                chart.parts += [Text(x, y + LINE_PX * place, line, "middle") for place, line in enumerate(lines)]
    return chart.drawing()


def draw_loads(loads: Sequence[Sequence[float]], width: float) -> Drawing:
    """Draw a group of bars for each hour, one for each server, and the level of an even spread."""
    hours = Scale("hour (in a bar: its server)", -0.5, len(loads) - 0.5, places=tuple(map(str, range(len(loads)))))
    chart = Chart(width, 300, hours, Scale("clicks", 0, 1.05 * max(map(max, loads))))
    each, high = 0.8 / len(loads[0]), np.array(loads)
    busiest = high == high.max(axis=1, keepdims=True)
    for bars, ink, label in (busiest, "b", "the busiest server"), (~busiest, "a", "another server"):
        hour, server = np.nonzero(bars)
        left = hour - 0.4 + each * server
        chart.areas((left + 0.02, left + each - 0.02), (0, high[bars]), ink, label)
        for one, (x, y) in zip(server, chart.points(left + each / 2, 0), strict=True):
            chart.parts.append(Text(x, y - 6, str(one), "middle", "paper", bold=True))
    for number, level in enumerate(high.mean(axis=1)):
        chart.line([number - 0.45, number + 0.45], [level, level], PENS[2], "" if number else "even spread")
    return chart.drawing()


def draw_waiting(
    curves: Sequence[Sequence[tuple[float, float]]], reads: Sequence[tuple[float, int]], loss: float, width: float
) -> Drawing:
    """Draw the held-out loss of each run against seconds, and when each worker reads in the first run."""
    last, most = max(curve[-1][0] for curve in curves), max(row[1] for curve in curves for row in curve)
    losses = Chart(half(width), 300, Scale("virtual seconds", 0, 1.03 * last), Scale("held-out loss", 0, most))
    for number, (curve, pen) in enumerate(zip(curves, PENS, strict=False)):
        losses.line([row[0] for row in curve], [row[1] for row in curve], pen, f"seed {number}")
    losses.line([0, last], [loss, loss], PENS[4]._replace(dash="2 3"), "to reach")
    workers = 1 + max(worker for _, worker in reads)
    rows = Scale("worker", workers - 0.5, -0.5, places=tuple(map(str, range(workers))))
    first = curves[0][-1][0]
    seen = Chart(half(width), 300, Scale("virtual seconds of seed 0", -0.03 * first, 1.03 * first), rows)
    seen.marks(reads, PENS[0], "a worker reads")
    return beside(width, losses.drawing(), seen.drawing())


def draw_goals(chart: Chart, goals: Goals, ys: tuple[float, float]) -> None:
    """Draw par and the best known value as lines across a chart of time."""
    for value, pen, name in (goals[0], PENS[0], "par"), (goals[1], PENS[2], "best known"):
        chart.line([value, value], ys, pen._replace(dash="6 3" if name == "par" else "2 3"), name)


def _grids(looks: Sequence[Sequence[Sequence[int]]], width: float) -> Drawing:
    """Draw a grid for the start and one after each step: a row for each rank, a column for each piece."""
    size = 8 * CELL
    across = max(int((width - 30) // (size + GAP)), 1)
    parts: list[Lines | Text] = []
    shown = np.unique(np.linspace(0, len(looks) - 1, min(len(looks), MOST_GRIDS)).round().astype(int))
    for place, number in enumerate(shown):
        look = looks[number]
        x, y = 30 + place % across * (size + GAP), (place // across) * (size + 2 * ROW) + ROW
        parts.append(Text(x, y - 5, f"after step {number}" if number else "start"))
        if place % across == 0:
            parts += [Text(x - 5, y + CELL * (rank + 1) - 1, str(rank), "end", "dim") for rank in (0, 7)]
        frame = np.array([(x, y), (x + size, y), (x + size, y + size), (x, y + size), (x, y)])
        for count in range(1, 9):
            cells = [
                _square(x + CELL * piece, y + CELL * rank)
                for rank in range(8)
                for piece in range(8)
                if look[rank][piece] == count
            ]
            if cells:
                parts.append(Lines(cells, "c" if count == 8 else "a", opacity=1 if count == 8 else PALE + 0.09 * count))
        parts.append(Lines([frame], "dim", 1))
    rows = -(-len(shown) // across)
    high = rows * (size + 2 * ROW) + 4
    samples = [
        (Lines([_square(6, -5)], "a", opacity=PALE + 0.09), "one gradient"),
        (Lines([_square(6, -5)], "a", opacity=PALE + 0.63), "seven gradients"),
        (Lines([_square(6, -5)], "c"), "the whole sum"),
    ]
    names, below = legend(samples, width - 30)
    note = "A row for each rank, a column for each piece: the largest sum that the rank has."
    lines = textwrap.wrap(note, int((width - 30) / LETTER))
    notes = [Text(30, high + below + 12 + ROW * row, line) for row, line in enumerate(lines)]
    return Drawing(width, high + below + ROW * len(lines), [*parts, *translate(names, 30, high), *notes])


def _square(x: float, y: float) -> Points:
    return np.array([(x, y), (x + CELL, y), (x + CELL, y + CELL), (x, y + CELL)])
