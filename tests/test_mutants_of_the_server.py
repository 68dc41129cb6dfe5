"""What the state machine finds: one line of a server's decisions is changed, and the machine has to notice it.

By hand, ``python tests/test_mutants_of_the_server.py FILE…`` prints for each mutant which tests of these files, and
whether the machine, find it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHARD, MEMBERS, PROTOCOL, RECOVERY = (f"minips/core/{x}.py" for x in ("shard", "membership", "protocol", "recovery"))
MUTANTS = [
    (SHARD, "return clock == at or clock in self._missed[worker]", "return clock == at"),
    (SHARD, "return clock == at or clock in self._missed[worker]", "return clock >= at - 1"),
    (SHARD, "        if clock > at:\n", "        if clock > at + 1:\n"),
    (SHARD, 'return "late" if clock in self._dropped[worker] else "duplicate"', 'return "duplicate"'),
    (SHARD, "self._dropped[worker].append(clock)", "pass"),
    (SHARD, "(self.quorum is None or clock <= self.rounds))", "(self.quorum is None or clock <= self.rounds + 1))"),
    (SHARD, "(run is not _PAUSED and (self.quorum", "((self.quorum"),
    (SHARD, "        if clock < self.rounds:\n", "        if clock + 1 < self.rounds:\n"),
    (SHARD, 'self.rounds if outcome == "late" else 0)', "0)"),
    (SHARD, "            self._missed[worker] = range(clock + 1, self._missed[worker].stop)", "            pass"),
    (
        SHARD,
        "        self.clocks[worker] = max(self.clocks[worker], clock + 1,",
        "        self.clocks[worker] = max(clock + 1,",
    ),
    (SHARD, "            self.clocks[worker] = max(at, self.slowest())", "            self.clocks[worker] = at"),
    (
        SHARD,
        "            self.clocks[worker] = max(at, self.slowest())",
        "            self.clocks[worker] = self.slowest()",
    ),
    (SHARD, "missed.start if missed and missed.stop == at else at", "at"),
    (SHARD, "missed.start if missed and missed.stop == at else at", "missed.start if missed else at"),
    (SHARD, "            self.join(worker)\n        if self.run.final", "            pass\n        if self.run.final"),
    (SHARD, "1.0 if in_rounds else 1 / self.workers", "1.0"),
    (SHARD, "staleness = self.version - contribution.version", "staleness = 0"),
    (SHARD, "arrived < self.quorum and not self.live <= self._held.keys()", "arrived < self.quorum"),
    (SHARD, "arrived < self.quorum and not self.live <= self._held.keys()", "arrived < len(self.live)"),
    (SHARD, "map(self._held.__getitem__, sorted(self._held))", "self._held.values()"),
    (
        SHARD,
        "self.updates is not None and self.made >= self.updates:\n            self.end()\n        elif",
        "self.updates is not None and self.applied >= self.updates:\n            self.end()\n        elif",
    ),
    (SHARD, "                self.made += lacking\n", "                pass\n"),
    (
        SHARD,
        "self._counted = self.rounds * self.workers\n            if",
        "self._counted = self.applied\n            if",
    ),
    (
        SHARD,
        'return self._record(last, "over") if last else "over"',
        'return self._record(last, "applied") if last else "over"',
    ),
    (SHARD, "self.live.discard(self.validate_worker(worker))", "self.validate_worker(worker)"),
    (SHARD, "min(live, default=max(self.clocks))", "min(live, default=0)"),
    (SHARD, "            self._over[worker] += max(clock + 1 - self.clocks[worker], 0)\n", "            pass\n"),
    (
        SHARD,
        "        if self.run.final or (self.quorum is not None and self.run is _PAUSED):",
        "        if self.run.final or self.run is _PAUSED:",
    ),
    (SHARD, "live=sorted(self.live)", "live=[*range(self.workers)]"),
    (
        SHARD,
        "                dropped=[[*clocks] for clocks in self._dropped],",
        "                dropped=[[] for clocks in self._dropped],",
    ),
    (SHARD, '        for contribution in state.get("held", ()):\n', "        for contribution in ():\n"),
    (SHARD, "self.recent_losses.append(contribution.loss)", "self.recent_losses.append(0.0)"),
    (SHARD, "self.losses.append((self.made // self.workers, mean))", "self.losses.append((self.version, mean))"),
    (SHARD, "        if not arrived or (arrived", "        if (arrived"),
    (SHARD, "            self.live.add(worker)\n", ""),
    (SHARD, "        if self.validate_worker(worker) not in self.live:", "        if True:"),
    (
        SHARD,
        "self.made >= self.updates:\n            self.end()\n        elif",
        "self.made > self.updates:\n            self.end()\n        elif",
    ),
    (
        SHARD,
        "            return self.run.final\n        if not self.sees_time",
        "            return False\n        if not self.sees_time",
    ),
    (SHARD, "self.staleness[contribution.staleness] += 1", "self.staleness[0] += 1"),
    (SHARD, "        return run.final or (run is not", "        return (run is not"),
    (SHARD, "            self._held = {}\n            self.rounds += 1", "            self.rounds += 1"),
    (MEMBERS, "        if not mine and self._is_held(worker):", "        if False:"),
    (MEMBERS, "return connection in member.connections if secret is None else", "return True if secret is None else"),
    (MEMBERS, "        if other != worker and connection in", "        if False and connection in"),
    (MEMBERS, "            member.connections.clear()  # of another session", "            pass  # of another session"),
    (MEMBERS, "member.secret, member.rows, member.leaves = secret or", "_, member.rows, member.leaves = secret or"),
    (MEMBERS, 'member.state.after("hello"), None', 'member.state.after("hello"), member.lost_at'),
    (MEMBERS, '        elif member.state is MemberState.PARTED and header.get("again"):', "        elif False:"),
    (MEMBERS, "        last = member.connections == {connection}", "        last = True"),
    (MEMBERS, "and not member.busy and silent", "and silent"),
    (MEMBERS, "now if late > quarter else min", "min"),
    (MEMBERS, "self.shard.now() - member.lost_at < self.rejoin_s", "True"),
    (MEMBERS, "            return bool(member.secret)  # a reserved rank", "            return False"),
    (MEMBERS, "key=lambda pair: pair[1].state is MemberState.LOST", "key=lambda pair: 0"),
    (MEMBERS, "if any(self._is(self.members[rank], connection, secret) or not", "if any(not"),
    (MEMBERS, "return (mine or free)[0]", "return (free or mine)[0]"),
    (MEMBERS, "if not self._is_taken(worker)]", "if not self._is_held(worker)]"),
    (
        MEMBERS,
        "            if member.state is not MemberState.NEW:\n                member.state, member.lost_at",
        "            if member.connections:\n                member.state, member.lost_at",
    ),
    (PROTOCOL, "if connection not in claimed.connections or claimed.state is _PARTED:", "if claimed.state is _PARTED:"),
    (PROTOCOL, "        if not shard.is_new(worker, clock):\n", "        if False:\n"),
    (PROTOCOL, "        if record.pushing:\n", "        if False:\n"),
    (PROTOCOL, "                if member.secret != secret:\n", "                if False:\n"),
    (PROTOCOL, '                if "push" not in member.state.row:\n', "                if False:\n"),
    (PROTOCOL, "            if not shard.may_push(clock):\n", "            if False:\n"),
    (PROTOCOL, "            if not shard.may_pull(worker):\n", "            if False:\n"),
    (PROTOCOL, "        if version > shard.version:\n", "        if False:\n"),
    (
        PROTOCOL,
        "if member.state is MemberState.PRESENT or member.lost_at != lost_at:",
        "if member.state is MemberState.PRESENT:",
    ),
    (PROTOCOL, "if member.state is MemberState.PRESENT or member.lost_at != lost_at:", "if member.lost_at != lost_at:"),
    (PROTOCOL, "                    member.disconnect()\n", "                    pass\n"),
    (PROTOCOL, "            record.pushing = False\n", "            pass\n"),
    (PROTOCOL, '                self._keep("push", worker, frames, rows=rows)\n', "                pass\n"),
    (PROTOCOL, 'self._keep("hello", worker,', 'again or self._keep("hello", worker,'),
    (PROTOCOL, '                self._keep("leave", worker)\n', "                pass\n"),
    (RECOVERY, "    protocol.shard.join(record.worker)\n", ""),
    (RECOVERY, '    protocol.membership.restore(state["members"])\n', ""),
]
"""Each: the file, what stands there, and what instead."""
MACHINE = (
    "import sys; sys.path.insert(0, 'tests'); import test_state_machine as machine; from hypothesis import Phase; "
)
MACHINE += "machine.run(200, 50, phases=[Phase.generate])"


def in_a_copy(mutant, command, seconds):
    """Run a command of Python's in a copy of minips and its tests with this mutant. Returns its code and its output."""
    file, old, new = mutant
    with tempfile.TemporaryDirectory() as folder:
        for part in ("minips", "tests"):
            shutil.copytree(HERE.parent / part, f"{folder}/{part}", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HERE.parent / "pyproject.toml", folder)
        broken = Path(folder, file)
        broken.write_text(broken.read_text().replace(old, new))
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        run = partial(subprocess.run, capture_output=True, text=True, cwd=folder, env=environment)
        try:
            done = run([sys.executable, *command], timeout=seconds)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr


def found_by_the_machine(mutant):
    code, output = in_a_copy(mutant, ["-c", MACHINE], 120)
    return code != 0 and (code is None or "state = Server()" in output)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{Path(mutant[0]).stem}-{mutant[2].strip()[:40]}")
def test_what_a_mutant_changes_stands_there_once(mutant):
    file, old, new = mutant
    assert old != new
    assert (HERE.parent / file).read_text().count(old) == 1


@pytest.mark.campaign
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{Path(mutant[0]).stem}-{mutant[2].strip()[:40]}")
def test_the_machine_notices(mutant):
    assert found_by_the_machine(mutant)


def main(files):
    def row(mutant):
        options = ["-m", "pytest", "-n0", "-q", "-rfE", "--tb=no", "--timeout=20", "-p", "no:cacheprovider"]
        code, output = in_a_copy(mutant, [*options, *files], 400) if files else (0, "")
        failed = sorted({*re.findall(r"(?:FAILED|ERROR) tests/\w+\.py::(\w+)", output)}) or ["(hangs)"] * (code is None)
        return mutant, found_by_the_machine(mutant), failed

    with ThreadPoolExecutor(2) as pool:
        for (file, old, new), machine, failed in pool.map(row, MUTANTS):
            change = f"{Path(file).stem} | {old.strip()!r} → {new.strip()!r}"
            print(f"{change} | machine: {machine} | {' '.join(failed) or '-'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
