"""Pictures of runs.

Each function takes ``ax`` (None: a new pyplot figure) and returns the axes. Series differ in marker, dash or hatch as
well as in colour, and every axis names its unit.
``runs`` is a run, or several by name: ``{"exact": run, "top 1 %": other}``.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.ticker import LogFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from minips import files
from minips.core.config import Config
from minips.cost import CodecMap, Comparison
from minips.lab.course.intervals import interval
from minips.lab.source import code
from minips.lab.style import NARROW_IN
from minips.lab.views.recording import middle_steps, starts_of_steps
from minips.results.run import Run
from minips.results.trace import DECODE, ENCODE, SPANS, UPDATE
from minips.stage import Array
from minips.training.sweep import FIGURES, RunTable, is_number
from minips.words import join_names

__all__ = ["GROUPS", "LOOKS", "MEASURED", "PREDICTED", "Look", "check_ending", "codec_map", "contenders"]
__all__ += ["legend_above", "loss", "pareto", "predicted", "rates", "save", "spans", "staleness", "steps_in_words"]
__all__ += ["timeline", "timeline_window", "way"]

Rows = Sequence[tuple[float, int, float]]
"""Rows of (seconds, step, training loss), as in `Run.losses` and `Progress.losses`."""


class Look(NamedTuple):
    """The colour, marker, line and hatch of a series."""

    colour: str
    marker: str
    dash: str
    hatch: str

    @property
    def line(self) -> dict[str, Any]:
        """Keywords for ``Axes.plot``."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash}

    @property
    def area(self) -> dict[str, Any]:
        """Keywords for bars and patches."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": "white"}


LOOKS = (
    Look("#0072B2", "o", "-", ""),
    Look("#C14F00", "s", "--", "//"),
    Look("#007A59", "^", "-.", ".."),
    Look("#A8527F", "D", ":", "xx"),
    Look("#6B4E00", "v", "-", "\\\\"),
    Look("#8A3FE0", "P", "--", "++"),
)
"""Colours that colour-blind readers can tell apart. Each has a contrast of at least 4.5 with white and, inverted as
`minips.lab.style` inverts pictures, with a dark page.
"""

SHADES = LinearSegmentedColormap.from_list("shades", ["white", "#8DB9DC"])
"""The colours of a table's fields, on which black text is legible in both themes."""

PREDICTED, MEASURED = LOOKS[3], LOOKS[2]
"""The looks of predicted and measured figures; the first two looks are for two runs, A and B."""

INSTANT_S = 1e-3
"""The width of a timeline of runs in which nothing takes time."""
WIDE = 20
"""The ratio of the largest figure to the smallest above which an axis of `pareto` is logarithmic."""

GROUPS = {
    "compute": ("compute",),
    "encode": ENCODE,
    "transfer": ("transfer",),
    "wait": ("wait",),
    "decode": DECODE,
    "update": UPDATE,
}
"""The groups that a timeline shows, and the spans in each."""


def loss(
    runs: "Run | Rows | Mapping[str, Run | Rows]",
    *,
    against: Literal["seconds", "bytes", "step"] = "seconds",
    step_bytes: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot training loss against seconds, megabytes sent by the workers, or steps. An unfinished run's rows can replace
    the run; ``step_bytes`` then maps its name to the bytes that the workers send per step.
    """
    ax = ax or _new(6.4, 3.6)
    for look, (label, run) in zip(cycle(LOOKS), _by_name(runs).items(), strict=False):
        rows = list(run.losses if isinstance(run, Run) else run)
        if against == "bytes":
            if isinstance(run, Run):
                each = run.bytes_sent / max(rows[-1][1], 1) if rows else 0.0
            elif step_bytes and label in step_bytes:
                each = step_bytes[label]
            else:
                raise ValueError("Loss against bytes needs a whole run, or step_bytes: rows do not contain bytes.")
            x = [each / 1e6 * step for _, step, _ in rows]
        else:
            x = [seconds if against == "seconds" else step for seconds, step, _ in rows]
        every = max(len(rows) // 12, 1)
        ax.plot(x, [value for _, _, value in rows], label=label, markevery=every, markersize=5, **look.line)
    titles = {"seconds": "time (s)", "bytes": "sent by the workers (MB)", "step": "step"}
    ax.set(xlabel=titles[against], ylabel="training loss", xlim=(0, None), ylim=(0, None))
    ax.grid(alpha=0.3)
    _legend(ax)
    return ax


def spans(runs: Run | Mapping[str, Run], *, ax: Axes | None = None) -> Axes:
    """Draw a bar for each span: milliseconds of one push and its pull, of workers and servers together. The legend
    gives the number of planned messages (`minips.Codec`), which are encoded and decoded without calling a stage.
    """
    named = {_and_planned(label, run): run for label, run in _by_name(runs).items()}
    means = {
        label: {name: total / max(run.updates, 1) for name, total in run.trace.seconds().items()}
        for label, run in named.items()
    }
    names = [name for name in SPANS if any(mean.get(name, 0) > 0 for mean in means.values())]
    ax = ax or _new(6.4, 0.8 + len(names) * (0.13 + 0.11 * len(named)))
    _times(ax, names, {label: [mean.get(name, 0) for name in names] for label, mean in means.items()})
    ax.margins(x=0.12)
    _legend(ax, "lower right")
    return ax


def predicted(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Draw predicted and measured bars for each span: milliseconds of one push and its pull. ``total`` is a step of all
    workers. If the prediction or the run does not count a span, a text replaces its bar.
    """
    rows = [row for row in comparison.rows if row[1] or row[2]]
    ax = ax or _new(6.4, 0.8 + 0.35 * len(rows))
    series = {"predicted": [row[1] for row in rows], "measured": [row[2] for row in rows]}
    _times(ax, [row[0] for row in rows], series, (PREDICTED, MEASURED))
    ax.margins(x=0.14)
    legend_above(ax, 2)
    return ax


def timeline(
    runs: Run | Mapping[str, Run], *, seconds: tuple[float, float] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a row of bars for each worker and server, between two times (None: as `timeline_window` finds them). All
    runs are on one time axis, the first one on top. The legend gives the number of planned messages in the whole runs.
    """
    named = _by_name(runs)
    start, stop = seconds or timeline_window(runs)
    rows = [(name, who) for name, run in named.items() for who in sorted({span.who for span in run.trace})][::-1]
    first = [name for name, _ in rows]
    places = {row: i + 0.6 * len({*first[:i]} - {row[0]}) for i, row in enumerate(rows)}  # with gaps between the runs
    ax = ax or _new(9.0, 1.2 + 0.42 * len(rows))
    unit, scale = ("ms", 1e3) if stop - start < 1 else ("s", 1.0)
    bars = defaultdict[tuple[str, str, str], list[tuple[float, float]]](list)
    for name, run in named.items():
        for span in run.trace:
            if span.start + span.seconds > start and span.start < stop:
                bars[name, span.who, span.name].append((span.start * scale, span.seconds * scale))
    present = []
    for look, (group, members) in zip(LOOKS, GROUPS.items(), strict=True):
        for row, place in places.items():
            if mine := [bar for member in members for bar in bars[(*row, member)]]:
                ax.broken_barh(mine, (place - 0.36, 0.72), linewidth=0.3, **look.area)
        if any(found for (*_, member), found in bars.items() if member in members):
            present.append(Patch(label=_encode_label(named) if members is ENCODE else group, **look.area))
    ax.set_yticks([*places.values()], [f"{name} {who}".strip() for name, who in rows])
    ax.set(xlabel=f"time since the start ({unit})", xlim=(start * scale, stop * scale))
    if _figure(ax).get_figwidth() > NARROW_IN:
        legend_above(ax, len(GROUPS) if len(named) == 1 else len(GROUPS) // 2, handles=present)
    else:  # its right edge is that of the axes, so it has the place above the names of the rows, too
        slim = {"ncols": 2, "fontsize": 8, "columnspacing": 1, "handlelength": 1.5}
        ax.legend(handles=present, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, **slim)
    return ax


def timeline_window(runs: Run | Mapping[str, Run]) -> tuple[float, float]:
    """Return the start and the end of eight steps of the first run's first worker, in the middle of those that began
    while all runs went on; without steps that take time, the start and the end of the longest run.
    """
    seconds = [run.seconds for run in _by_name(runs).values()]
    first = next(iter(_by_name(runs).values()))
    window = middle_steps([*starts_of_steps(first.trace).values(), first.seconds], min(seconds))
    return window if window and window[0] < window[1] else (0.0, max(seconds) or INSTANT_S)


def steps_in_words(runs: Mapping[str, Run], window: tuple[float, float]) -> str:
    """Return the number of steps that each run's first worker began between two times: "8 steps of A and 1 of B"."""
    counts = {
        name: sum(window[0] <= start < window[1] for start in starts_of_steps(run.trace).values())
        for name, run in runs.items()
    }
    first = "1 step" if next(iter(counts.values())) == 1 else f"{next(iter(counts.values()))} steps"
    return join_names([f"{count if i else first} of {name}" for i, (name, count) in enumerate(counts.items())])


def staleness(runs: Run | Mapping[str, Run], *, ax: Axes | None = None) -> Axes:
    """Draw a histogram of staleness: the age, in versions, of the parameters that each gradient was computed from."""
    ax = ax or _new(6.4, 3.2)
    named = _by_name(runs)
    for look, label, run, aside, width in _bars(named):
        versions, counts = zip(*sorted(run.staleness.items()), strict=True) if run.staleness else ((), ())
        ax.bar(np.array(versions) + aside, counts, width, label=label, **look.area)
    most = max((version for run in named.values() for version in run.staleness), default=0)
    ax.set(xlabel="staleness (versions)", ylabel="gradients", xlim=(-0.6, max(most, 3) + 0.6))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", alpha=0.3)
    _legend(ax)
    return ax


def contenders(
    series: Mapping[str, Mapping[str, tuple[float, float, float]]], *, label: str, ax: Axes | None = None
) -> Axes:
    """Draw a bar for each contender in each series, on a logarithmic axis named ``label``, which includes the unit.

    A bar is (median, lower quartile, upper quartile): it ends at the median, with a whisker between the quartiles.
    """
    names = list(dict.fromkeys(name for bars in series.values() for name in bars))
    ax = ax or _new(6.4, 0.8 + len(names) * (0.13 + 0.11 * len(series)))
    for look, group, bars, aside, height in _bars(series):
        y = np.array([names.index(name) for name in bars]) + aside
        middle, low, high = np.array(list(bars.values()), float).reshape(-1, 3).T
        whiskers: dict[str, Any] = {"xerr": (middle - low, high - middle), "error_kw": {"lw": 0.8}}
        ax.barh(y, middle, height, label=group, **whiskers, **look.area)
    ax.set(xscale="log", xlabel=label)
    plain_logs(ax)
    _rows(ax, names)
    legend_above(ax, len(series))
    return ax


def pareto(
    table: RunTable | Iterable[Run] | Mapping[str, Run],
    x: str = "bytes_sent",
    y: str | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Plot runs by two columns of a table (None for ``y``: a loss, as in `RunTable.pareto`). A line joins the runs of
    the Pareto front, which have another mark and a label: the name, or the config fields that differ.

    Diverged runs have a third mark, and runs without numbers have none. ``table.pareto(x, y)`` returns the front as a
    text table, and raises the same ValueErrors.
    """
    table = table if isinstance(table, RunTable) else RunTable(table)
    y = y or table.objectives[1]
    front = table.pareto(x, y)
    ax = ax or _new(6.4, 4.0)
    best, diverged = {id(run) for run in front.runs}, LOOKS[1]._replace(marker="x")
    groups: list[tuple[str, Look, list[dict[str, Any]]]] = [
        ("dominated", LOOKS[2], [r for r, run in _pairs(table) if run.diverged is None and id(run) not in best]),
        ("diverged", diverged, [r for r, run in _pairs(table) if run.diverged is not None]),
        ("Pareto front", LOOKS[0], front.rows),
    ]
    for label, look, rows in groups:
        points = [(_scale(x, row[x]), _scale(y, row[y])) for row in rows if is_number(row[x]) and is_number(row[y])]
        if points:
            line: dict[str, Any] = {"linestyle": "-" if rows is front.rows else "", "drawstyle": "steps-post"}
            ax.plot(*zip(*points, strict=True), label=label, markersize=7, **{**look.line, **line})
    for row in front.rows:
        at = _scale(x, row[x]), _scale(y, row[y])
        ax.annotate(_row_name(row), at, (6, 6), textcoords="offset points", fontsize=8)
    ax.set(xlabel=_AXES.get(x, (x, 1))[0], ylabel=_AXES.get(y, (y, 1))[0])
    for axis, column in (("x", x), ("y", y)):
        values = [value for row in table if is_number(value := row[column])]
        if min(values, default=0) > 0 and max(values) > WIDE * min(values):
            ax.set(**{f"{axis}scale": "log"})
    plain_logs(ax)
    ax.margins(0.15)
    ax.grid(alpha=0.3)
    if ax.lines:
        legend_above(ax, len(groups))
    return ax


def rates(
    sweeps: Mapping[str, Mapping[float, Array]],
    best: Mapping[str, float],
    *,
    label: str,
    percent: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Plot each scheme's metric against the learning rate, on a logarithmic axis. ``sweeps`` maps each scheme to the
    values of all seeds at each rate: a point is their mean, with its 95 % interval; rates with infinite values have no
    point. A ring marks each scheme's ``best`` rate. ``label`` names the metric; its axis is logarithmic, or in
    ``percent``.
    """
    ax = ax or _new(6.4, 3.8)
    for number, (look, (name, values)) in enumerate(zip(cycle(LOOKS), sweeps.items(), strict=False)):
        points = {rate: interval(values[rate]) for rate in sorted(values) if np.isfinite(values[rate]).all()}
        hollow: dict[str, Any] = {"markerfacecolor": "white"} if number >= len(LOOKS) else {}
        means, halves = np.array([*points.values()]).reshape(-1, 2).T
        ax.errorbar([*points], means, halves, label=name, markersize=5, elinewidth=0.7, **look.line, **hollow)
        if best[name] in points:
            ax.plot(best[name], points[best[name]].mean, "o", ms=12, mfc="none", mec=look.colour)
    ax.set(xlabel="learning rate", ylabel=label)
    if any(np.size(line.get_xdata()) for line in ax.lines):  # without a point there is nothing to scale
        ax.set(xscale="log", yscale="linear" if percent else "log")
        plain_logs(ax)
    if percent:
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(alpha=0.3)
    legend_above(ax, 3, fontsize=8)
    return ax


class PlainLog(LogFormatter):
    """Labels the ticks of a logarithmic axis with decimals, 0.6 instead of 6×10⁻¹; below two decades, more than the
    powers of ten.
    """

    def __init__(self) -> None:
        super().__init__(minor_thresholds=(2, 0.4))

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not super().__call__(x, pos):
            return ""
        return f"{x:,.0f}" if x >= 1000 else np.format_float_positional(x, precision=6, fractional=False, trim="-")


def plain_logs(ax: Axes) -> None:
    """Label the logarithmic axes with decimals."""
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(PlainLog())
            axis.set_minor_formatter(PlainLog())


_AXES: dict[str, tuple[str, float]] = {
    "bytes_sent": ("sent by the workers (MB)", 1e-6),
    "bytes_received": ("received by the workers (MB)", 1e-6),
    "seconds": ("time (s)", 1),
    "loss": ("training loss", 1),
    "validation_loss": ("validation loss", 1),
    "accuracy": ("accuracy (share of held-out rows)", 1),
}
"""Maps a column to its axis: the name with the unit, and the factor for its figures."""


def _pairs(table: RunTable) -> Iterator[tuple[dict[str, Any], Run]]:
    return zip(table.rows, table.runs, strict=True)


def _scale(column: str, value: float) -> float:
    return value * _AXES.get(column, ("", 1))[1]


def _row_name(row: Mapping[str, Any]) -> str:
    """Return a row's name, or the config fields that differ between rows."""
    fields = {
        name.rpartition(".")[2]: value for name, value in row.items() if name not in FIGURES and value is not None
    }
    shown = (f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in fields.items())
    return str(row.get("name") or ", ".join(shown))


def codec_map(found: CodecMap, *, ax: Axes | None = None) -> Axes:
    """Draw the codec with the fastest step for each link bandwidth and gradient size: areas predicted, marks measured.

    A mark has the look of the fastest measured codec, and a thick edge if that is not the predicted one.
    """
    ax = ax or _new(7.2, 4.6)
    x, y = (_edges(points) for points in (found.bandwidths_bps / 1e6, found.values * 4 / 1e3))
    handles = dict[str, tuple[Any, ...]]()
    for number, (look, name) in enumerate(zip(cycle(LOOKS), found.codecs, strict=False)):
        style = {**look.area, "linewidth": 0, "alpha": 0.55}
        for row, column in np.argwhere(found.winners == number):
            corner, wide, high = (x[column], y[row]), x[column + 1] - x[column], y[row + 1] - y[row]
            ax.add_patch(Rectangle(corner, wide, high, **style))
        mark = {**look.line, "linestyle": "", "markersize": 9}
        mine = [sample for sample in found.samples if sample.winner == name]
        for sample in mine:
            agrees = found.winners[sample.size, sample.bandwidth] == number
            edge: dict[str, Any] = {"mec": "white", "mew": 1} if agrees else {"mec": "black", "mew": 2}
            ax.plot(found.bandwidths_bps[sample.bandwidth] / 1e6, found.values[sample.size] * 4 / 1e3, **mark, **edge)
        handles[name] = (Patch(**style), Line2D([], [], **mark, mec="white")) if mine else (Patch(**style),)
    ax.set(xscale="log", yscale="log", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    plain_logs(ax)
    ax.set(xlabel="link bandwidth (Mbit/s)", ylabel="gradient (kB of float32)")
    entries: dict[str, Any] = {"handles": list(handles.values()), "labels": list(handles), "handlelength": 3}
    legend_above(ax, len(handles), handler_map={tuple: HandlerTuple(ndivide=None)}, **entries)
    return ax


def _edges(points: NDArray[Any]) -> NDArray[Any]:
    """Return the borders between points on a logarithmic axis, and outer borders at the same distance from the ends."""
    logs = np.log10(points)
    half = np.diff(logs) / 2 if len(logs) > 1 else np.array([0.5])
    return np.asarray(10 ** np.concatenate([logs[:1] - half[:1], logs[:-1] + np.diff(logs) / 2, logs[-1:] + half[-1:]]))


def check_ending(file: str) -> None:
    """ValueError if `save` cannot write a file with this ending."""
    known = Figure().canvas.get_supported_filetypes()
    if (ending := Path(file).suffix[1:]) and ending.lower() not in known:
        raise ValueError(f"A picture cannot be written as {ending!r}, for {file}. Known endings: {', '.join(known)}.")


def save(ax: Axes, file: str) -> None:
    """Write the picture to a file, in the format of the file's ending, and close the picture. A file without an ending
    gets the ending of matplotlib's default format. OSError as in `files.write`.
    """
    figure, content = _figure(ax), io.BytesIO()
    usual = figure.canvas.get_default_filetype()
    ending = Path(file).suffix[1:]
    figure.savefig(content, dpi=150, format=ending or usual)
    pyplot.close(figure)
    files.write(file if ending or files.is_stream(file) else f"{file}.{usual}", content.getvalue())


def way(config: Config | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the path of data through a config's stages: down through a worker, up through a server, and back."""
    config = config or Config()
    coding = ("memory", "quantizer", "serializer", "compressor")
    worker = [("problem", "gradients: named arrays"), *((kind, getattr(config.push, kind)) for kind in coding)]
    server = [
        ("parameters", "named arrays"),
        ("optimizer", config.optimizer),
        ("aggregator", config.aggregator),
        ("quantizer⁻¹", "back to arrays"),
        ("serializer⁻¹, compressor⁻¹", "back to parts of arrays"),
    ]
    idle = {name for name, stage in worker if getattr(stage, "name", "") in ("none", "exact")}
    idle |= {f"{name}⁻¹" for name in idle}
    ax = ax or _new(9.0, 5.2)
    ax.set(xlim=(0, 18), ylim=(-1.4, 10.3))
    ax.axis("off")
    for left, title, colour, boxes in (
        (0.2, f"worker ({config.workers} of them)", LOOKS[0].colour, worker),
        (11.8, f"server ({config.servers} of them)" if config.servers > 1 else "server", LOOKS[1].colour, server),
    ):
        ax.add_patch(_box(left, -0.35, 6.0, 9.75, colour, 0.06))
        ax.text(left + 3, 9.72, title, ha="center", va="bottom", fontsize=11, color=colour, weight="bold")
        for i, (name, what) in enumerate(boxes):
            y = 7.7 - 1.93 * i
            look = (0.0, "--") if name in idle else (0.15, "-")
            ax.add_patch(_box(left + 0.4, y, 5.2, 1.4, colour, *look))
            ax.text(left + 3, y + 0.95, name, ha="center", va="center", fontsize=10, weight="bold")
            ax.text(left + 3, y + 0.4, _stage(what), ha="center", va="center", fontsize=8.5)
            if i:
                ends = (left + 3, y + 1.93), (left + 3, y + 1.45)
                _arrow(ax, *(ends if left < 9 else ends[::-1]))
    _arrow(ax, (5.9, 0.68), (12.1, 0.68))
    ax.text(9, 0.95, "push: frames on the wire", ha="center", va="bottom", fontsize=10)
    link = f"transport: {_stage(config.transport)}" + (", behind a link" if config.link else "")
    ax.text(9, 0.42, link, ha="center", va="top", fontsize=8.5)
    _arrow(ax, (12.1, 8.4), (5.9, 8.4))
    ax.text(9, 8.65, "pull: the same way back", ha="center", va="bottom", fontsize=10)
    back = f"quantizer: {_stage(config.pull.quantizer)}\nwho waits: {_stage(config.consistency)}"
    ax.text(9, 8.15, back, ha="center", va="top", fontsize=8.5)
    words = "Swap one stage, and the others stay as they are. A dashed box passes on what it gets."
    ax.text(9, -0.75, words, ha="center", va="top", fontsize=9)
    parts = (
        f"{name}: {_stage(what)}" + ", which changes nothing" * (name in idle) for name, what in worker + server[::-1]
    )
    _figure(ax).set_label(f"the way of a gradient through worker and server. {'; '.join(parts)}")
    return ax


def _box(x: float, y: float, width: float, height: float, colour: str, alpha: float, line: str = "-") -> FancyBboxPatch:
    look: dict[str, Any] = {"facecolor": to_rgba(colour, alpha), "edgecolor": colour, "linewidth": 1, "linestyle": line}
    return FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.25", **look)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": "#444444", "linewidth": 1.2})


def _stage(what: Any) -> str:
    """Return a stage as code, shortened if it does not fit into a box; return a text unchanged."""
    text = what if isinstance(what, str) else code(what, package=False)
    return text if len(text) <= 36 else f"{type(what).__name__}(…)"


def _figure(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def _by_name(runs: Any) -> dict[str, Any]:
    return dict(runs) if isinstance(runs, Mapping) else {"": runs}


def _and_planned(label: str, run: Run) -> str:
    """Return the label with the number of the run's planned messages."""
    planned = run.trace.planned.total()
    return f"{label} ({planned} planned)".lstrip() if planned else label


def _encode_label(runs: Mapping[str, Run]) -> str:
    """Return the name of the group of encoding spans, with the number of each run's planned messages."""
    planned = [f"{name} {run.trace.planned.total()}".strip() for name, run in runs.items() if run.trace.planned]
    return f"encode ({', '.join(planned)} planned)" if planned else "encode"


def _bars(series: Mapping[str, Any], looks: Sequence[Look] = LOOKS) -> Iterator[tuple[Look, str, Any, float, float]]:
    """Yield each series' look, label and content, its bars' offset from their names, and their thickness."""
    thick = 0.8 / max(len(series), 1)
    for i, (look, (label, content)) in enumerate(zip(cycle(looks), series.items(), strict=False)):
        yield look, label, content, (i - (len(series) - 1) / 2) * thick, thick


def _times(
    ax: Axes, names: Sequence[str], series: Mapping[str, Sequence[float | None]], looks: Sequence[Look] = LOOKS
) -> None:
    """Draw a bar of seconds for each name in each series, labelled with milliseconds to two significant digits."""
    for look, label, seconds, aside, height in _bars(series, looks):
        values = [1e3 * (each or 0.0) for each in seconds]
        bars = ax.barh(np.arange(len(names)) + aside, values, height, label=label, **look.area)
        figures = [f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}" for value in values]
        figures = ["not counted" if each is None else figure for each, figure in zip(seconds, figures, strict=True)]
        ax.bar_label(bars, figures, padding=3, fontsize=8)
    ax.set(xlabel="time per push (ms)")
    _rows(ax, names)


def _rows(ax: Axes, names: Sequence[str]) -> None:
    """Label the rows, the first one on top."""
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="x", alpha=0.3)


def legend_above(ax: Axes, columns: int, **entries: Any) -> None:
    """Put the legend above the axes."""
    ax.legend(ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, **entries)


def _legend(ax: Axes, where: Literal["upper right", "lower right"] = "upper right") -> None:
    if any(label for label in ax.get_legend_handles_labels()[1]):
        ax.legend(loc=where)  # finding the best place takes long in a full picture


def _new(width: float, height: float) -> Axes:
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def __dir__() -> list[str]:
    return __all__
