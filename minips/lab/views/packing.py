"""The data of a replay's page: columns of small integers.

Times are counted in ticks, and each row of a column begins where the one before ended, so that thousands of spans take
some ten kB. A run of very many processes or rows is a density: shares of time instead of spans.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minips.lab.plots import GROUPS
from minips.lab.views.recording import (
    BINS,
    Axis,
    Recording,
    axis_of,
    by_party,
    fold,
    longest_wait,
    shares_of,
    times_of,
    windows,
)
from minips.results.trace import Span

GROUP_OF = {name: number for number, names in enumerate(GROUPS.values()) for name in names}
"""The group of each span, by its number in the data."""
TRAFFIC = {"sent": "worker", "answer": "server"}
"""The groups of a density's bytes, and who sends them."""


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
    travels = columns(axis, *zip(*map(times_of, messages), strict=True))
    for number, message in enumerate(messages):
        if message.start is None or message.end is None:
            travels["took"][number] = -1 if message.end is None else -2
    return {
        "lanes": recording.parties,
        "spans": [pack_spans(spans, axis) for spans in by_party(recording.bars, recording.parties)],
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
        "down": {
            **columns(
                axis,
                [down.start for down in recording.downs],
                [down.stop if down.back else axis.stop for down in recording.downs],
            ),
            "lane": [lane[down.who] for down in recording.downs],
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
        sent = [(times_of(one)[0], one.nbytes) for one in recording.messages if one.sender.startswith(role)]
        if sent:
            moments, nbytes = np.array(sent, float).T
            bins = np.clip(np.searchsorted(edges, moments, "right") - 1, 0, BINS - 1)
            nothing = [np.zeros(BINS, np.int64)] * (len(GROUPS) + number)
            lanes[f"from {role}s"] = [*nothing, np.bincount(bins, nbytes, BINS).astype(np.int64)]
    packed = [pack_bins(groups, edges, axis) for groups in lanes.values()]
    return {"lanes": [*lanes], "spans": packed, **dict.fromkeys(("messages", "waits", "down"), columns(axis))}


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
