"""The recovery of a server after a crash: from its last snapshot, and the journal's records since then.

A snapshot is the state of a saved run, with the place of each worker. It is taken between two updates, when no push
waits for its round, so waiting pushes are in the journal alone. To replay a record is to apply it again, through the
same decoder and shard as when it came; nothing is answered.
"""

import math
from contextlib import suppress
from typing import Any

from minips.core.journal import JournalRecord
from minips.core.protocol import ServerProtocol
from minips.core.states import MemberState, Resumption
from minips.results.state import ServerState
from minips.stages.aggregators import Contribution


def snapshot(protocol: ServerProtocol) -> ServerState:
    """A server's state between two updates (`Shard.at_border`), for `restore`."""
    state = protocol.state()
    state["shard"] = protocol.shard.state(exact=True)
    state["left"] = [record.kept for record in protocol.records]
    state["members"] = protocol.membership.state()
    state["resumptions"] = [record.resumption.word for record in protocol.records]
    return state


def restore(protocol: ServerProtocol, state: ServerState) -> None:
    """Continue from a snapshot. KeyError or ValueError if the state is not that of a `snapshot`."""
    protocol.restore(state)
    protocol.membership.restore(state["members"])
    words = zip(protocol.records, state["resumptions"], state["left"], strict=True)
    for record, word, kept in words:
        record.resumption, record.kept = Resumption[word.upper()], kept


def replay(protocol: ServerProtocol, record: JournalRecord) -> None:
    """Apply a record of the journal again. ValueError if it does not follow what was applied before."""
    shard, now = protocol.shard, protocol.shard.now
    shard.now = lambda: record.at
    try:
        _REPLAYS[record.kind](protocol, record)
    except (KeyError, TypeError) as error:
        raise ValueError(f"The journal's record of a {record.kind} lacks a field: {error}.") from error
    finally:
        shard.now = now


def _hello(protocol: ServerProtocol, record: JournalRecord) -> None:
    member, fields = protocol.membership.members[record.worker], record.fields
    member.state, member.secret, member.rows = member.state.after("hello"), fields["secret"], fields["rows"]
    protocol.shard.join(record.worker)
    protocol.records[record.worker].accept_hello(fields["again"])


def _resume(protocol: ServerProtocol, record: JournalRecord) -> None:
    resumed = protocol.records[record.worker]
    resumed.resumption = Resumption[record.fields["state"].upper()]
    resumed.resume()


def _push(protocol: ServerProtocol, record: JournalRecord) -> None:
    shard, worker = protocol.shard, record.worker
    packet, *_ = protocol.unpack(record.frames)
    header, pushed = packet.header, protocol.records[worker]
    if header["worker"] != worker or not shard.is_new(worker, header["clock"]):
        raise ValueError(f"The journal has a push of worker {worker} at clock {header['clock']} twice.")
    outcome = None
    pushed.remember()
    try:
        gradients = protocol.decode(packet, pushed.decoder)
        loss = math.nan if header.get("loss") is None else float(header["loss"])
        place = worker, header["clock"], header["version"]
        contribution = Contribution(*place, gradients, loss, rows=record.fields["rows"])
        with suppress(RuntimeError):  # it failed when it came, too
            outcome = shard.take(contribution, checked=True) or shard.apply()
    finally:
        pushed.settle(taken=outcome not in (None, "over"))
    protocol.record_update(worker, header["clock"])


def _bye(protocol: ServerProtocol, record: JournalRecord) -> None:
    member = protocol.membership.members[record.worker]
    member.state = MemberState.PARTED  # a snapshot may have it as lost, and a return leaves no record
    if diverged := record.fields["diverged"]:
        protocol.shard.diverge(str(diverged))
    _leave(protocol, record)
    if record.frames:
        packet, *_ = protocol.unpack(record.frames)
        with suppress(ValueError):  # it was refused when it came, too
            protocol.records[record.worker].kept = protocol.read_part(packet)


def _leave(protocol: ServerProtocol, record: JournalRecord) -> None:
    protocol.shard.leave(record.worker)
    protocol.record_update(record.worker, protocol.shard.rounds - 1)


_REPLAYS: dict[str, Any] = {
    "hello": _hello,
    "resume": _resume,
    "push": _push,
    "bye": _bye,
    "leave": _leave,
    "diverge": lambda protocol, record: protocol.shard.diverge(record.fields["reason"]),
    "end": lambda protocol, record: protocol.shard.end(),
    "go on": lambda protocol, record: protocol.shard.go_on(),
}
