"""A run's trace, played back: a lane for each process, its spans, and messages that travel between the lanes.

The page's data are columns of small integers: times are counted in ticks, and successive values as differences, so that
thousands of spans take some ten kB. A run of very many processes or rows is a density: shares of time, not spans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from minips import files
from minips.lab.plots import GROUPS
from minips.lab.source import code
from minips.lab.views.base import View, format_bytes, format_seconds
from minips.lab.views.recording import BINS, Axis, Recording, Window
from minips.lab.views.recording import axis_of, by_party, fold, known, rank, shares_of, windows
from minips.lab.views.still import draw_still
from minips.results.run import Run
from minips.results.trace import SPANS, Span
from minips.words import check_type, join_names


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
        check_type("replay", one, Run, "a Run, such as the result of ps.train")
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
    """Return a title for each run: its name, and the fields in which the configs differ.

    >>> import minips as ps
    >>> titles([Run(ps.Config(consistency=rule), {}, [], 1.0, 1) for rule in ("bsp", "asp")])
    ['A: BSP()', 'B: ASP()']
    """
    configs = [run.config for run in runs]
    names = [field.name for field in fields(configs[0])]
    differ = [name for name in names if len({repr(getattr(config, name)) for config in configs}) > 1]
    shown = []
    for letter, run in zip("AB", runs, strict=False):
        values = [code(getattr(run.config, name), package=False) for name in differ or ["consistency"]]
        plain = [value if "(" in value else f"{name}={value}" for name, value in zip(differ, values, strict=False)]
        words = run.name or ", ".join(plain or values)
        shown.append(f"{letter}: {words}" if len(runs) > 1 else words)
    return shown


# ---- what the page draws ----


def pack(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return the data of a page that plays these runs on one clock."""
    axis = axis_of(recordings)
    kinds = sorted({message.kind for one in recordings for message in one.messages})
    return {
        "tick": axis.tick,
        "total": axis.ticks([axis.stop])[0].item(),
        "groups": {group: [SPANS.index(name) for name in names] for group, names in GROUPS.items()},
        "kinds": kinds,
        "windows": {name: axis.ticks(window).tolist() for name, window in windows(recordings).items()},
        "runs": [pack_run(one, axis, kinds) for one in recordings],
    }


def pack_run(recording: Recording, axis: Axis, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the lanes of a run, the starts of its steps, and its rows or, if there are too many, its density."""
    folded = recording.folded
    lanes = fold(recording.parties) if folded else {party: [party] for party in recording.parties}
    rows = pack_density(recording, axis, lanes) if folded else pack_rows(recording, axis, kinds)
    steps = deltas(axis.ticks([*recording.steps, recording.stop] if recording.steps else []))
    return {"title": recording.title, "lanes": [*lanes], "folded": folded, "steps": steps, **rows}


def pack_rows(recording: Recording, axis: Axis, kinds: Sequence[str]) -> dict[str, Any]:
    """Return each span by lane, each message once, and each wait with the chain that ended it. In a message's ``took``,
    -1 says that it was never seen to arrive, and -2 that it was never seen to leave.
    """
    lane = {party: number for number, party in enumerate(recording.parties)}
    messages, waits, chains = recording.messages, recording.waits, recording.chains
    left, arrived = (axis.ticks(known(one)[end] for one in messages) for end in (0, 1))
    lost = np.array([-1 if one.end is None else -2 if one.start is None else 0 for one in messages], np.int64)
    starts, stops = axis.ticks(one.start for one in waits), axis.ticks(one.start + one.seconds for one in waits)
    return {
        "spans": [pack_spans(spans, axis) for spans in by_party(recording.spans, recording.parties)],
        "messages": {
            "kind": [kinds.index(one.kind) for one in messages],
            "from": [lane[one.sender] for one in messages],
            "to": [lane[one.receiver] for one in messages],
            "clock": deltas(-1 if one.clock is None else one.clock for one in messages),
            "nbytes": [one.nbytes for one in messages],
            "start": deltas(left),
            "took": np.where(lost, lost, arrived - left).tolist(),
        },
        "waits": {
            "who": [lane[wait.who] for wait in waits],
            "step": deltas(wait.step for wait in waits),
            "start": deltas(starts),
            "took": (stops - starts).tolist(),
            "partners": [[lane[partner] for partner in wait.partners] for wait in waits],
            "since": (starts - axis.ticks(chain.since for chain in chains)).tolist(),
            "chain": [deltas(chain.messages) for chain in chains],
        },
    }


def pack_spans(spans: Sequence[Span], axis: Axis) -> dict[str, list[int]]:
    """Return the spans of a lane: each one's distance from the end of the span before, its length and its name."""
    starts, stops = axis.ticks(span.start for span in spans), axis.ticks(span.start + span.seconds for span in spans)
    before = np.concatenate([np.zeros(1, np.int64), stops])[: len(spans)]
    names = [SPANS.index(span.name) for span in spans]
    return {"gap": (starts - before).tolist(), "took": (stops - starts).tolist(), "name": names}


def pack_density(recording: Recording, axis: Axis, lanes: dict[str, list[str]]) -> dict[str, Any]:
    """Return, for each bin of the axis, the share of its time (in thousandths) that a lane's processes spend in each
    group of spans; and the number and the bytes of the messages that begin there, from workers and from servers.
    """
    edges = np.linspace(axis.start, axis.stop, BINS + 1)
    spans = dict(zip(recording.parties, by_party(recording.spans, recording.parties), strict=True))
    shares = []
    for parties in lanes.values():
        mine = [span for party in parties for span in spans[party]]
        groups = (shares_of([span for span in mine if span.name in names], edges) for names in GROUPS.values())
        shares.append([np.rint(1000 * share / len(parties)).astype(int).tolist() for share in groups])
    traffic = []
    for role in "worker", "server":
        sent = [(known(one)[0], one.nbytes) for one in recording.messages if one.sender.startswith(role)]
        moments, nbytes = np.array(sent, float).reshape(-1, 2).T
        bins = np.clip(np.searchsorted(edges, moments, "right") - 1, 0, BINS - 1)
        counted = np.bincount(bins, minlength=BINS), np.bincount(bins, nbytes, BINS)
        traffic.append([column.astype(np.int64).tolist() for column in counted])
    return {"shares": shares, "traffic": traffic}


def deltas(values: Iterable[int]) -> list[int]:
    """Return the first value, and then each value's difference from the one before.

    >>> deltas([1000, 1010, 1013])
    [1000, 10, 3]
    """
    column: list[int] = np.diff(np.array([*values], np.int64), prepend=0).tolist()
    return column


# ---- words ----


def describe(recordings: Sequence[Recording]) -> str:
    """Return the picture in words."""
    sentences = []
    for one in recordings:
        sentences += [f"{one.title}." if len(recordings) > 1 else "", *sentences_of(one, axis_of(recordings))]
    if len(recordings) > 1:
        a, b = (one.run for one in recordings)
        if a.seconds and a.bytes_sent:
            ratios = b.seconds / a.seconds, b.bytes_sent / a.bytes_sent
            sentences.append("B takes {:.2g} × A's time and sends {:.2g} × A's bytes.".format(*ratios))
    return " ".join(filter(None, sentences))


def sentences_of(recording: Recording, axis: Axis) -> list[str]:
    """Return sentences about one run: its parties, messages and waits, and what the picture lacks."""
    run, messages = recording.run, recording.messages
    roles = [rank(party)[1] for party in recording.parties]
    counts = [(roles.count(role), role) for role in dict.fromkeys(reversed(roles))]
    who = join_names([f"{count:,} {role}{'s' * (count > 1)}" for count, role in counts])
    nbytes = format_bytes(sum(message.nbytes for message in messages))
    sent = f" {len(messages):,} messages, {nbytes} in all." if messages else ""
    found = [f"{who}, {run.clocks:,} steps in {format_seconds(run.seconds)}.{sent}"]
    if wait := recording.longest:
        party = f" for {wait.partners[0]}" if wait.partners else ""
        at = format_seconds(wait.start + wait.seconds - axis.start)
        found.append(
            f"The longest of {len(recording.waits):,} waits takes {format_seconds(wait.seconds)} and ends at {at}: "
            f"{wait.who} waits{party} in step {wait.step}."
        )
    lost = sum(message.start is None or message.end is None for message in messages)
    if lost:
        found.append(f"Of {lost:,} messages only one half is known; their lines are broken.")
    if recording.folded:
        found.append("It is drawn as shares of time: lab.replay(run, seconds=(start, stop)) shows a part one by one.")
    if run.trace.until < recording.stop:
        found.append(f"From {format_seconds(run.trace.until - axis.start)} on, spans were not kept.")
    return found
