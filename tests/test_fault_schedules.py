"""What minips promises when something dies, under thousands of schedules of faults in virtual time."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import minips as ps
from minips.core import recovery
from minips.core.membership import Membership
from minips.core.protocol import WorkerProtocol
from minips.testing import nodes
from minips.testing.faults import Kill
from minips.testing.nodes import Disk, ServerNode
from minips.testing.schedules import Rehearsal

ROOT = Path(__file__).parents[1]
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
    keep, reply, snapshot = ServerNode.keep, ServerNode.reply, recovery.snapshot

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

    patch.setattr(ServerNode, "keep", keep_later)
    patch.setattr(ServerNode, "reply", reply_first)
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
    patch.setattr(nodes, "hello_again", lambda worker, index: nothing())


def keep_no_frames(patch):
    """`WorkerProtocol.finish_push`: it restores the state, and has no frames to send."""

    def restore_only(self, kept):
        for server, link in zip(self.servers, kept.links, strict=True):
            server.restore(link)
        return nothing()

    patch.setattr(WorkerProtocol, "finish_push", restore_only)


def turn_too_early(patch):
    """`ServerNode.make_room`: it does not ask if a snapshot covers the records that are overwritten."""
    patch.setattr(ServerNode, "make_room", lambda self: self.disk.turn())


PLANTED = [
    acknowledge_first,
    forget_identities,
    restore_twice,
    ignore_numbers,
    resend_without_hello,
    keep_no_frames,
    turn_too_early,
]


COMBINATIONS = [(codec, servers, rule) for codec in CODECS for servers in (1, 2) for rule in RULES]


@pytest.fixture(scope="module")
def rehearsals() -> list[Rehearsal]:
    """One of each codec, number of servers and consistency."""
    return [Rehearsal(config(*combination)) for combination in COMBINATIONS]


def run_all(rehearsals: list[Rehearsal], seeds: range) -> None:
    for rehearsal, seed in zip(itertools.cycle(rehearsals), seeds):
        outcome = rehearsal.run(seed)
        assert not outcome.violations, rehearsal.shrink(outcome)


def test_300_schedules_keep_all_promises(rehearsals):
    run_all(rehearsals, range(300))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_20000_schedules_keep_all_promises(rehearsals):
    run_all(rehearsals, range(300, 20_300))


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_workers_that_stay_away_too_long_are_left_out(rule):
    for servers in (1, 2):
        rehearsal = Rehearsal(config("errorfeedback", servers, rule), rejoin_s=0.05)
        run_all([rehearsal], range(20))


def test_one_seed_gives_one_schedule_in_every_process():
    program = """
from test_fault_schedules import *
for codec, servers, rule in COMBINATIONS[::5]:
    rehearsal = Rehearsal(config(codec, servers, rule))
    for seed in range(6):
        print(rehearsal.run(seed, log=True).digest)
"""
    digests = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(["tests", *sys.path])}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        digests.append(done.stdout.split())
    assert len({*digests[0]}) == 36
    assert digests[0] == digests[1]


def test_a_kill_at_every_step_of_one_server():
    rehearsal = Rehearsal(config("delta"))
    for kill in rehearsal.kills():
        outcome = rehearsal.run(0, [kill])
        assert not outcome.violations, rehearsal.shrink(outcome)


@pytest.mark.campaign
@pytest.mark.parametrize("codec", ["exact", "delta"])
def test_two_kills_at_every_pair_of_steps_of_one_server(codec):
    rehearsal = Rehearsal(config(codec))
    pairs = [*itertools.combinations(rehearsal.kills(), 2)]
    for pair in pairs:
        outcome = rehearsal.run(0, pair)
        assert not outcome.violations, rehearsal.shrink(outcome)
    print(f"{codec}: {len(pairs)} pairs of kills")


@pytest.mark.soak
@pytest.mark.parametrize("codec", CODECS)
def test_a_kill_at_every_step_of_two_servers(codec):
    rehearsal = Rehearsal(config(codec, servers=2))
    kills = [*rehearsal.kills()]
    for kill in kills:
        outcome = rehearsal.run(0, [kill])
        assert not outcome.violations, rehearsal.shrink(outcome)
    print(f"{codec}: {len(kills)} kills")


@pytest.mark.parametrize("plant", PLANTED[:6])
def test_a_planted_bug_is_found(plant, monkeypatch):
    """A short form of the next test."""
    rehearsal = Rehearsal(config("delta", servers=2))
    plant(monkeypatch)
    assert any(rehearsal.run(seed).violations for seed in range(100)), plant.__doc__


@pytest.mark.campaign
@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found_often(plant, monkeypatch):
    rehearsal = Rehearsal(config("delta", servers=2))
    plant(monkeypatch)
    found = sum(bool(rehearsal.run(seed).violations) for seed in range(1000))
    kills = [*rehearsal.kills()]
    enumerated = sum(bool(rehearsal.run(0, [kill]).violations) for kill in kills)
    print(f"{plant.__doc__} Found by {found} of 1,000 schedules, and by {enumerated} of {len(kills)} single kills.")
    assert found >= 5
    assert enumerated or plant is turn_too_early  # for which a snapshot must be late, too


def test_restoring_twice_is_no_bug_without_a_memory(monkeypatch):
    """So the schedules need `Delta`."""
    rehearsal = Rehearsal(config("exact"))
    restore_twice(monkeypatch)
    run_all([rehearsal], range(30))


def test_a_failing_schedule_is_shrunk_and_told(monkeypatch):
    forget_identities(monkeypatch)
    with pytest.raises(AssertionError) as failed:
        ps.testing.check_recovery(config("delta"), range(10))
    told = str(failed.value)
    faults = [line for line in told.splitlines() if line.startswith(("  kill", "  cut", "  stop"))]
    assert len(faults) == 1
    for words in ("Seed ", "server 0  is killed", "server 0  starts at version", "held by another session"):
        assert words in told


def test_faults_are_dropped_until_each_is_needed():
    tried = []

    def fails(faults):
        tried.append(faults)
        return {2, 5} <= {*faults}

    assert ps.testing.shrink([1, 2, 3, 4, 5, 6], fails) == (2, 5)
    assert len(tried) == 6
    assert ps.testing.shrink([1, 2], lambda faults: False) == (1, 2)
    assert ps.testing.shrink([], lambda faults: True) == ()


def test_a_schedule_can_be_given():
    kill = Kill("server 0", 20, 0.5)
    outcome = ps.testing.run_schedule(config("errorfeedback"), 3, [kill])
    assert outcome.faults == (kill,)
    assert not outcome.violations
    assert [what for _, party, what in outcome.log if party == "server 0" and "kill" in what] == ["is killed"]
    assert ps.testing.run_schedule(config("errorfeedback"), 3, [kill]).digest == outcome.digest
    assert ps.testing.run_schedule(config("errorfeedback"), 4, [kill]).digest != outcome.digest
