"""What minips promises when something dies, under thousands of schedules of faults in virtual time."""

import itertools
import os
import subprocess
import sys
from functools import partial

import pytest

import minips as ps
from minips.core import recovery
from minips.core.membership import Membership
from minips.core.protocol import WorkerProtocol
from minips.testing import schedules
from minips.testing.schedules import Disk, Rehearsal, ServerProcess

RULES = ps.BSP(), ps.SSP(1), ps.ASP()
CODECS = {
    "exact": ps.Codec(),
    "qsgd": ps.Codec(ps.QSGD()),
    "errorfeedback": ps.Codec(ps.TopK(0.5), ps.ErrorFeedback()),
    "delta": ps.Codec(ps.TopK(0.5), ps.Delta()),
    "momentumcorrection": ps.Codec(ps.TopK(0.5), ps.MomentumCorrection(momentum=0.5)),
}


def config(codec: str = "delta", servers: int = 1, rule: ps.Consistency = RULES[0], steps: int = 5) -> ps.Config:
    momentum = 0.0 if codec == "momentumcorrection" else 0.9
    return ps.Config(
        workers=2, servers=servers, steps=steps, push=CODECS[codec], consistency=rule, optimizer=ps.SGD(0.1, momentum)
    )


def nothing():
    """A session without a need."""
    yield from ()


def acknowledge_first(patch):
    """`ServerProtocol._push`: the record is kept after the answer was sent (or before a snapshot that contains it)."""
    keep, reply, snapshot = ServerProcess.keep, ServerProcess.reply, recovery.snapshot

    def keep_later(self, record):
        self.protocol.__dict__.setdefault("unkept", []).append(record)

    def keep_now(self):
        unkept = self.protocol.__dict__.get("unkept", [])
        while unkept:
            keep(self, unkept.pop(0))

    def reply_first(self, wire, answer, error):
        reply(self, wire, answer, error)
        keep_now(self)

    def snapshot_after(protocol):
        keep_now(protocol.journal.__self__)
        return snapshot(protocol)

    patch.setattr(ServerProcess, "keep", keep_later)
    patch.setattr(ServerProcess, "reply", reply_first)
    patch.setattr(recovery, "snapshot", snapshot_after)


def forget_identities(patch):
    """`recovery._hello` and `Membership.restore`: they do not set the secret."""
    hello, restore = recovery._REPLAYS["hello"], Membership.restore

    def replay_hello(protocol, record):
        hello(protocol, record)
        protocol.membership.members[record.worker].secret = ""

    def restore_states(self, sessions):
        restore(self, [{**session, "secret": ""} for session in sessions])

    patch.setitem(recovery._REPLAYS, "hello", replay_hello)
    patch.setattr(Membership, "restore", restore_states)


def restore_twice(patch):
    """`Disk.records`: it begins one record too early; `recovery._push`: it looks for a repetition after decoding."""
    push = recovery._REPLAYS["push"]

    def records(self):
        return [frames for number, frames in sorted(self.files[0] + self.files[1]) if number >= self.covered - 1]

    def replay_push(protocol, record):
        packet, *_ = protocol.unpack(record.frames)
        if protocol.shard.is_new(record.worker, packet.header["clock"]):
            push(protocol, record)
        else:
            protocol.decode(packet, protocol.records[record.worker].decoder)

    patch.setattr(Disk, "records", records)
    patch.setitem(recovery._REPLAYS, "push", replay_push)


def ignore_numbers(patch):
    """`Disk.records`: after a snapshot, and before the lap ends, older records are still there, and are read."""
    patch.setattr(Disk, "records", lambda self: [frames for _, frames in self.files[1] + self.files[0]])


def resend_without_hello(patch):
    """`Resending.reconnect`: it does not say hello."""
    patch.setattr(schedules, "hello_again", lambda worker, index: nothing())


def keep_no_frames(patch):
    """`WorkerProtocol.finish_push`: it restores the state, and has no frames to send."""

    def restore_only(self, kept):
        for server, link in zip(self.servers, kept.links, strict=True):
            server.restore(link)
        return nothing()

    patch.setattr(WorkerProtocol, "finish_push", restore_only)


def turn_too_early(patch):
    """`ServerProcess.turn`: it does not ask if a snapshot contains the records that are overwritten."""
    patch.setattr(ServerProcess, "turn", lambda self: self.disk.turn())


PLANTED = [
    acknowledge_first,
    forget_identities,
    restore_twice,
    ignore_numbers,
    resend_without_hello,
    keep_no_frames,
    turn_too_early,
]
