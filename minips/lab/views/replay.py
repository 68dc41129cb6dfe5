"""A run's trace, played back: a lane for each process, its spans, and messages that travel between the lanes.

The page's data are columns of small integers: times are counted in ticks, and successive values as differences, so that
thousands of spans take some ten kB. A run of very many processes or rows is a density: shares of time, not spans.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minips import files
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.lab.plots import GROUPS
from minips.lab.source import code
from minips.lab.views.base import View, format_bytes, format_seconds
from minips.lab.views.recording import BINS, Axis, Recording, Window
from minips.lab.views.recording import axis_of, by_party, fold, known, longest_wait, rank, shares_of, windows
from minips.lab.views.still import draw_still
from minips.results.run import Run
from minips.results.trace import Span
from minips.stage import Value
from minips.words import check_type, join_names


GROUP_OF = {name: number for number, names in enumerate(GROUPS.values()) for name in names}
"""The group of each span, by its number in a page's data."""
TRAFFIC = {"sent": "worker", "answer": "server"}
"""The groups of a density's bytes, and who sends them."""


def replay(run: Run, other: Run | None = None, *, seconds: Window | None = None) -> "Replay":
    """Play a run's trace back. In a notebook: play and pause, a speed down to 1/1000 of real time, the previous and the
    next event, and windows of eight steps, of the longest wait and of the whole run. A click on a wait shows for whom
    it was, and the chain of events that ended it.

    A lane shows the spans of a process, and a line between two lanes a message, along which a dot travels. ``other`` is
    played below the run, on the same clock. ``seconds`` are two times between which to play; a run with very many rows
    is drawn as shares of time, and such a part of it one by one. `Replay.to_html` writes a page that needs no kernel.

    Raises TypeError if it gets no run, and ValueError if a run has nothing to play.
    """
    runs = [run] if other is None else [run, other]
    for one in runs:
        check_type(
            "replay",
            one,
            Run,
            "a Run, such as the result of ps.train; a predicted one has engine=ps.Simulated(calibration=…)",
        )
    check_window(seconds)
    recordings = [Recording(one, title, seconds) for one, title in zip(runs, titles(runs), strict=True)]
    for one in recordings:
        check_playable(one)
    return Replay(recordings)


class Replay(View):
    """One or two runs, played back."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        super().__init__("replay", pack(recordings), draw_still(recordings), describe(recordings))

    def to_html(self, path: str | Path) -> None:
        """Write a page that plays without a kernel and without a network. Raises OSError if it cannot be written."""
        check_type("to_html", path, str | Path, "the path of a file")
        files.write(path, self.html("A run, played back"))


def check_window(seconds: object) -> None:
    """Raise TypeError or ValueError unless ``seconds`` is None or two times, the first of them earlier."""
    if seconds is None:
        return
    try:
        first, last = (float(moment) for moment in seconds)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise TypeError(f"replay takes seconds=(start, stop), two times of the run; got {seconds!r}.") from None
    if not first < last:
        raise ValueError(f"replay takes seconds=(start, stop), with start before stop; got {seconds!r}.")


def check_playable(recording: Recording) -> None:
    """Raise ValueError if a run has no trace, none in the time that was asked for, or takes no time."""
    run = recording.run
    if not recording.parties and (len(run.trace) or run.messages):
        raise ValueError(
            f"The run has no spans and no messages from {recording.start:g} to {recording.stop:g} s: it took "
            f"{run.seconds:g} s."
        )
    if not recording.parties:
        raise ValueError("The run has no trace: neither spans nor messages. Train again, and replay the new run.")
    if recording.start == recording.stop:
        raise ValueError(
            "Nothing takes time in this simulated run. Give Simulated a compute_s or a calibration, or the config a link."
        )


def titles(runs: Sequence[Run]) -> list[str]:
    """Return a title for each run: its name, or the fields in which the configs differ.

    >>> import minips as ps
    >>> titles([Run(ps.Config(consistency=rule, steps=9), {}, [], 1.0, 1) for rule in ("bsp", "asp")])
    ['A: BSP', 'B: ASP']
    """
    configs = [run.config for run in runs]
    differ = [name for name in vars(configs[0]) if len({repr(getattr(one, name)) for one in configs}) > 1]
    titles = [run.name or ", ".join(words_of(run.config, differ or default_fields(run.config))) for run in runs]
    return [f"{letter}: {title}" for letter, title in zip("AB", titles, strict=True)] if len(runs) > 1 else titles


def default_fields(config: Config) -> list[str]:
    """Return the fields that say how the workers of a config work together."""
    return ["exchange"] if isinstance(config.exchange, AllReduce) else ["consistency"]


def words_of(config: Config, names: Iterable[str]) -> Iterator[str]:
    """Yield the values of a config's fields in words: a stage as code, another value with the field's name."""
    for name in names:
        value = getattr(config, name)
        yield code(value, package=False).removesuffix("()") if isinstance(value, Value) else f"{name}={value!r}"


# ---- what the page draws ----


def pack(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return the data of a page that plays these runs on one clock."""
    axis = axis_of(recordings)
    kinds = sorted({message.kind for one in recordings for message in one.messages})
    return {
        "tick": axis.tick,
        "total": axis.ticks([axis.stop])[0].item(),
        "groups": [*GROUPS, *TRAFFIC],
        "kinds": kinds,
        "longest": longest_wait(recordings) or [],
        "windows": {name: axis.ticks(window).tolist() for name, window in windows(recordings).items()},
        "runs": [pack_run(one, axis, kinds) for one in recordings],
    }


def pack_run(recording: Recording, axis: Axis, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the lanes of a run, the first worker's steps, and all rows or, if there are too many, their density."""
    lanes = pack_density(recording, axis) if recording.folded else pack_rows(recording, axis, kinds)
    steps = axis.ticks([*recording.steps.values(), recording.stop] if recording.steps else [])
    whose = {"worker": recording.worker, "first": min(recording.steps, default=0), "steps": [*map(int, steps)]}
    most = max((one.nbytes for one in recording.messages), default=1)
    return {"title": recording.title, "folded": recording.folded, "most": most, **whose, **lanes}


def pack_rows(recording: Recording, axis: Axis, kinds: Sequence[str]) -> dict[str, Any]:
    """Return each span by lane, each message once, and each wait with the chain that ended it. A message whose end is
    not known took -1, and one whose start is not known -2.
    """
    lane = {party: number for number, party in enumerate(recording.parties)}
    messages, waits, chains = recording.messages, recording.waits, recording.chains
    since = axis.ticks(chain.since for chain in chains)
    travels = columns(axis, *zip(*map(known, messages), strict=True))
    for number, message in enumerate(messages):
        if message.start is None or message.end is None:
            travels["took"][number] = -1 if message.end is None else -2
    return {
        "lanes": recording.parties,
        "spans": [pack_spans(spans, axis) for spans in by_party(recording.shown, recording.parties)],
        "messages": {
            **travels,
            "kind": [kinds.index(one.kind) for one in messages],
            "from": [lane[one.sender] for one in messages],
            "to": [lane[one.receiver] for one in messages],
            "nbytes": [one.nbytes for one in messages],
        },
        "waits": {
            **columns(axis, [one.start for one in waits], [one.start + one.seconds for one in waits]),
            "lane": [lane[wait.who] for wait in waits],
            "step": [wait.step for wait in waits],
            "partners": [[lane[partner] for partner in wait.partners] for wait in waits],
            "since": (axis.ticks(wait.start for wait in waits) - since).tolist(),
            "chain": [chain.messages for chain in chains],
        },
    }


def columns(axis: Axis, starts: Sequence[float] = (), stops: Sequence[float] = ()) -> dict[str, list[int]]:
    """Return the times of rows in ticks: each row's distance from the end of the row before, and its length."""
    first, last = axis.ticks(starts), axis.ticks(stops)
    before = np.concatenate([np.zeros(1, np.int64), last])[: len(first)]
    return {"gap": (first - before).tolist(), "took": (last - first).tolist()}


def pack_spans(spans: Sequence[Span], axis: Axis) -> dict[str, Any]:
    """Return the spans of a lane. Successive spans of the same group are one."""
    rows: list[tuple[float, float, int]] = []
    for span in spans:
        group, stop = GROUP_OF[span.name], span.start + span.seconds
        if rows and rows[-1][2] == group and abs(span.start - rows[-1][1]) < axis.tick:
            rows[-1] = rows[-1][0], stop, group
        else:
            rows.append((span.start, stop, group))
    starts, stops, groups = zip(*rows, strict=True) if rows else ((), (), ())
    return {**columns(axis, starts, stops), "group": digits(groups)}


def digits(groups: Iterable[int]) -> str:
    """Return the numbers of groups, which are below 10, as text: half as long as a list."""
    return "".join(map(str, groups))


def pack_density(recording: Recording, axis: Axis) -> dict[str, Any]:
    """Return lanes of several processes: for each bin of the axis, the share of their time in each group of spans, in
    thousandths. Two more lanes hold the bytes of the messages that workers, and servers, begin to send in each bin.
    """
    edges = np.linspace(axis.start, axis.stop, BINS + 1)
    spans = dict(zip(recording.parties, by_party(recording.spans, recording.parties), strict=True))
    lanes: dict[str, list[NDArray[np.int64]]] = {}
    for title, parties in fold(recording.parties).items():
        mine = [span for party in parties for span in spans[party]]
        shares = (shares_of([span for span in mine if span.name in names], edges) for names in GROUPS.values())
        lanes[title] = [np.rint(1000 * share / len(parties)).astype(np.int64) for share in shares]
    for number, role in enumerate(TRAFFIC.values()):
        sent = [(known(one)[0], one.nbytes) for one in recording.messages if one.sender.startswith(role)]
        if sent:
            moments, nbytes = np.array(sent, float).T
            bins = np.clip(np.searchsorted(edges, moments, "right") - 1, 0, BINS - 1)
            nothing = [np.zeros(BINS, np.int64)] * (len(GROUPS) + number)
            lanes[f"from {role}s"] = [*nothing, np.bincount(bins, nbytes, BINS).astype(np.int64)]
    packed = [pack_bins(groups, edges, axis) for groups in lanes.values()]
    return {"lanes": [*lanes], "spans": packed, "messages": columns(axis), "waits": columns(axis)}


def pack_bins(groups: Sequence[NDArray[np.int64]], edges: NDArray[np.float64], axis: Axis) -> dict[str, Any]:
    """Return a lane of shares as spans: ``part`` of a bin's ``full`` height belongs to a group."""
    rows = [
        (edges[i], edges[i + 1], number, column[i].item())
        for number, column in enumerate(groups)
        for i in np.flatnonzero(column)
    ]
    starts, stops, numbers, parts = zip(*rows, strict=True) if rows else ((), (), (), ())
    full = 1000 if max(numbers, default=0) < len(GROUPS) else max(parts)
    return {**columns(axis, starts, stops), "group": digits(numbers), "part": [*parts], "full": full}


# ---- words ----


def describe(recordings: Sequence[Recording]) -> str:
    """Return the picture in words."""
    origin = axis_of(recordings).start
    sentences = [sentence for one in recordings for sentence in sentences_of(one, origin)]
    if len(recordings) > 1:
        a, b = (one.run for one in recordings)
        if a.seconds and a.bytes_sent:
            took, sent = b.seconds / a.seconds, b.bytes_sent / a.bytes_sent
            sentences.append(f"B takes {took:.2f} × A's time and sends {sent:.2f} × A's bytes.")
    return " ".join(sentences)


def sentences_of(recording: Recording, origin: float) -> Iterator[str]:
    """Yield sentences about one run: its parties, messages and waits, and what the picture lacks."""
    run, messages = recording.run, recording.messages
    roles = [rank(party)[1] for party in reversed(recording.parties)]
    counts = [f"{roles.count(role):,} {role}{'s' * (roles.count(role) > 1)}" for role in dict.fromkeys(roles)]
    nbytes = format_bytes(sum(message.nbytes for message in messages))
    does = "makes" if len(recording.parties) == 1 else "make"
    sent = f", with {len(messages):,} messages of {nbytes}" if messages else ""
    steps = f"{run.clocks:,} steps in {format_seconds(run.seconds)}"
    yield f"{recording.title}. {join_names(counts)} {does} {steps}{sent}."
    if wait := recording.longest:
        whom = f" for {wait.partners[0]}" if wait.partners else ""
        ended = format_seconds(wait.start + wait.seconds - origin)
        yield (
            f"The longest of {len(recording.waits):,} waits, {format_seconds(wait.seconds)} until {ended}, is that of "
            f"{wait.who}{whom} in step {wait.step}."
        )
    else:
        yield "No worker waits."
    if lost := sum(message.start is None or message.end is None for message in messages):
        yield f"Of {lost:,} messages only one end is known: their lines break off."
    if recording.folded:
        yield "Lanes are shares of time: lab.replay(run, seconds=(start, stop)) shows a part of the run in full."
    if run.trace.until < recording.stop:
        yield f"From {format_seconds(run.trace.until - origin)} on, the trace has not kept everything."
