"""The files that servers and workers keep in the folder of a checkpoint, so that new processes go on after a crash.

A server appends each record to its journal before it applies it (`minips.core.journal`). Snapshots bound the journal:
one is taken between two updates when it is due, and written in a thread of its own while the run goes on. Once it is
written, the journal's file that it covers may be overwritten.

A worker keeps its last push, with its codec's state, before it sends it (`minips.core.protocol.KeptPush`).
"""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minips.core import recovery
from minips.core.codec import Codec, Decoder, encode_plainly, unpack
from minips.core.config import Config
from minips.core.journal import JournalRecord, from_frames, to_frames
from minips.core.limits import of_anything
from minips.core.message import Message
from minips.core.protocol import KeptPush, ServerProtocol
from minips.core.tables import rows_pushed
from minips.drivers.journal import HEAD, Journal, journal_paths, size
from minips.results import saved
from minips.results.checkpoints import Checkpoint, check_config, read_snapshot
from minips.results.state import LinkState, ServerState, WorkerState, check_state
from minips.results.trace import UNTIMED
from minips.stage import Frames, Tensors
from minips.stages.transports.base import Closable
from minips.stages.transports.futures import CallFuture
from minips.words import message_of

JOURNAL_BYTES, ROUNDS = 2**26, 4
"""The least size of a journal's file, and the rounds of exact pushes for which it has room."""
SLACK = 16
"""Each round leaves this part of a file free for hellos, goodbyes and a longer round."""
PUSH_BYTES, PUSHES = 2**20, 4
"""The least size of the files with a worker's last pushes, and the pushes for which each has room."""
SNAPSHOT_S = 600.0
"""The longest wait for a snapshot that is being written, in seconds."""


class ServerFiles(Closable):
    """A server's files in a checkpoint's folder. Times in them are those of the wall clock, which outlive a process.

    `params` and `attach` come first, in this order; then the server calls `append` for each record and `updated` after
    each update, with its lock held, and `close` at its end.
    """

    def __init__(self, checkpoint: Checkpoint, config: Config, index: int) -> None:
        self.checkpoint, self.config, self.who = checkpoint, config, f"server {index}"
        checkpoint.path.mkdir(parents=True, exist_ok=True)
        self._kept: dict[str, Any] | None = None
        clocks = checkpoint.clocks(self.who)
        if clocks:
            path = checkpoint.snapshot(self.who, clocks[-1])
            self._kept = read_snapshot(path, self.who)
            with saved.restoring(str(path)):
                check_config(self._kept["config"], config.to_dict(), checkpoint.folder)
                self._run = bytes.fromhex(self._kept["run"])
        else:
            self._run = secrets.token_bytes(16)
            if not _drop_unused(checkpoint.stem(self.who)):
                raise ValueError(
                    f"The folder {checkpoint.folder} holds a journal of {self.who} without its snapshot. Restore the "
                    "snapshot from a backup, or choose another folder."
                )
        self._clock_offset = time.time() - time.monotonic()
        """The wall clock's lead over the shard's clock, in seconds."""
        self._journal: Journal | None = None
        self._writer: threading.Thread | None = None
        self._covered = 0
        """All records with smaller numbers are in a snapshot."""
        self._clock = 0
        """The clock of the last snapshot."""
        self._round_bytes = 0
        self.lost_at: float | None = None
        """After a restart, the time since which all workers count as lost."""
        self._failed = ""
        """The event of the last snapshot that could not be written."""

    @property
    def goes_on(self) -> bool:
        """True if the folder held a run of this server, which goes on."""
        return self._kept is not None

    def params(self, fresh: Tensors) -> Tensors:
        """The snapshot's parameters, or ``fresh`` ones. ValueError if their names, shapes or dtypes differ."""
        if self._kept is None:
            return fresh
        with saved.restoring(f"The snapshot of {self.who}"):
            kept: Tensors = self._kept["params"]
            forms = [{name: (x.shape, x.dtype) for name, x in tensors.items()} for tensors in (kept, fresh)]
        if forms[0] != forms[1]:
            raise ValueError(
                f"The folder {self.checkpoint.folder} holds a run with other parameters: {forms[0]}, and here "
                f"{forms[1]}. Choose another folder."
            )
        return kept

    def attach(self, protocol: ServerProtocol) -> None:
        """Bring the protocol to where the run was, or begin a run; from then on its journal is kept here. ValueError if
        a file is damaged.
        """
        self._protocol, fresh = protocol, self._kept is None
        stem, sync = self.checkpoint.stem(self.who), self.checkpoint.sync
        if not fresh:
            self._restore()
            if not any(path.exists() for path in journal_paths(stem)):
                raise ValueError(f"{stem}.journal-a and -b are missing. Restore them, or choose another folder.")
        journal = Journal(stem, self._run, self._journal_bytes(), sync)
        try:
            journal.lock()
            if fresh:
                self._write(*self._capture(0))
            replayed = 0
            for _, frames in journal.read(self._covered):
                record = from_frames(frames)
                recovery.replay(protocol, record._replace(at=record.at - self._clock_offset))
                replayed += record.kind == "push"
        except BaseException:
            journal.close()
            raise
        self._journal = journal
        protocol.trace.forget()
        self._kept = self._kept and {}
        words = f"the run is kept in {self.checkpoint.folder}, with up to {self._most_bytes() / 1e6:.0f} MB"
        if not fresh:
            words = f"the run goes on from {self.checkpoint.folder}, with {replayed} pushes from its journal"
        protocol.events.append((protocol.shard.now(), words))
        if replayed and protocol.shard.at_border:
            self._clock = protocol.shard.made // protocol.shard.workers
            self._write(*self._capture(self._clock))
        protocol.journal = self.append
        self.lost_at = None if fresh else protocol.membership.restarted()

    def append(self, record: JournalRecord) -> None:
        """Append a record to the journal. OSError if there is no room for it; then nothing has changed."""
        frames = to_frames(record._replace(at=record.at + self._clock_offset))
        nbytes, journal = size(frames), self._journal
        assert journal
        if not journal.room(nbytes):
            self._turn(journal)
        journal.append(frames)
        self._round_bytes += nbytes

    def updated(self) -> None:
        """Take a snapshot if one is due. Called between two updates, with the server's lock held."""
        shard, journal = self._protocol.shard, self._journal
        if journal is None:  # the server replays
            return
        clock = shard.made // shard.workers
        needed, self._round_bytes = self._round_bytes + journal.nbytes // SLACK, 0
        due = clock // self.checkpoint.every > self._clock // self.checkpoint.every or journal.first > self._covered
        full = not journal.room(needed)
        if full:
            self._finish_snapshot()
        if due and shard.at_border and not (self._writer and self._writer.is_alive()):
            self._clock = clock
            captured = self._capture(clock)
            self._writer = threading.Thread(target=self._write, args=captured, name="minips-snapshot", daemon=True)
            self._writer.start()
        if full:  # a round that has begun needs room even after a crash
            self._turn(journal)

    def _turn(self, journal: Journal) -> None:
        """Go on in the journal's other file, once a snapshot covers its records."""
        if journal.first > self._covered:
            self._finish_snapshot()
        if journal.first <= self._covered:
            journal.turn()

    def close(self) -> None:
        """Write a last snapshot, unless a push waits for its round, and close the journal."""
        self._finish_snapshot()
        if self._journal:
            shard, self._protocol.journal = self._protocol.shard, None
            if shard.at_border and self._journal.number > self._covered:
                self._write(*self._capture(shard.made // shard.workers))
            self._journal.close()
            self._journal = None

    def _capture(self, clock: int) -> tuple[int, int, dict[str, Any]]:
        """The content of a snapshot, as values that later updates do not change."""
        protocol = self._protocol
        state = recovery.snapshot(protocol)
        state["shard"]["optimizer"] = _copied(state["shard"]["optimizer"])
        number = self._journal.number if self._journal else 0
        values = {
            "who": self.who,
            "run": self._run.hex(),
            "clock": clock,
            "next": number,
            "config": self.config.to_dict(),
            "layout": {name: [list(shape), *rest] for name, (shape, *rest) in protocol.layout.items()},
            "params": protocol.shard.params,
            "state": state,
            "clock_offset": self._clock_offset,
            "began_at": protocol.membership.resumed_at or protocol.membership.began_at,
            "changed_at": protocol.changed_at,
            "rows": rows_pushed(protocol.shard),
            "losses": np.array(protocol.losses, float).reshape(-1, 3),
            "events": [*protocol.events],
        }
        return clock, number, values

    def _write(self, clock: int, number: int, values: Mapping[str, Any]) -> None:
        """Write a snapshot; from then on, the journal's older records are not needed."""
        try:
            saved.write(self.checkpoint.snapshot(self.who, clock), values, 0o600)  # it holds the sessions' secrets
            self.checkpoint.prune(self.who)
        except (OSError, TypeError) as error:
            if number == 0:  # nothing has begun
                raise
            words = f"a snapshot could not be written: {message_of(error)}"
            if words != self._failed:
                self._protocol.events.append((self._protocol.shard.now(), words))
            self._failed = words
            return
        self._covered, self._failed = number, ""

    def _finish_snapshot(self) -> None:
        if self._writer:
            self._writer.join(SNAPSHOT_S)

    def _restore(self) -> None:
        """Restore the protocol from the snapshot."""
        protocol, kept = self._protocol, self._kept
        assert kept
        with saved.restoring(f"The snapshot of {self.who}"):
            recovery.restore(protocol, check_state(ServerState, kept["state"], "the server"))
            ahead = kept["clock_offset"] - self._clock_offset
            protocol.losses += [(at + ahead, int(step), loss) for at, step, loss in kept["losses"].tolist()]
            protocol.events += [(at + ahead, text) for at, text in kept["events"]]
            protocol.changed_at = kept["changed_at"] + ahead
            protocol.membership.resumed_at = kept["began_at"] and kept["began_at"] + ahead
            self._covered, self._clock = kept["next"], kept["clock"]

    def _journal_bytes(self) -> int:
        if self.checkpoint.journal_bytes:
            return self.checkpoint.journal_bytes
        sample = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
        codec = Codec(serializer=self.config.push.serializer)
        grown = size(encode_plainly(Message({"kind": "push"}, {"w": sample}), codec)) / sample.nbytes
        push = math.ceil(sum(x.nbytes for x in self._protocol.shard.params.values()) * grown) + 2**12
        return max(JOURNAL_BYTES, ROUNDS * self.config.workers * push)

    def _most_bytes(self) -> int:
        held = sum(x.nbytes for x in self._protocol.shard.params.values())
        return 2 * self._journal_bytes() + self.checkpoint.keep * 3 * held


class WorkerFiles(Closable):
    """The files of a worker: its last pushes, each kept before it is sent, in two files whose paths begin with
    ``stem``. The ``secret`` of the worker's session identifies them. ``inner`` returns its inner optimizer's state, if
    it makes local steps. In the folder of a ``checkpoint``, the worker's snapshots have the clocks of the servers'.
    """

    def __init__(self, stem: Path, secret: str, checkpoint: Checkpoint | None = None) -> None:
        self._stem, self._run, self._checkpoint = stem, bytes.fromhex(secret), checkpoint
        self._sync, self._before = checkpoint is not None and checkpoint.sync, list[LinkState]()
        self.inner: Callable[[], Any] = lambda: None
        self._journal: Journal | None = None
        self._finishing: CallFuture[None] | None = None
        self.last = self._read()
        """The push that was kept last, with the inner optimizer's state; None if there is none."""

    def _read(self) -> tuple[KeptPush, Any] | None:
        paths = journal_paths(self._stem)
        if not any(path.exists() for path in paths):
            return None
        self._journal = Journal(self._stem, self._run, paths[0].stat().st_size, self._sync)
        records = [frames for _, frames in self._journal.read(None)]
        return _from_frames(records[-1]) if records else None

    def take_over(self, client: Any) -> Any:
        """Begin to finish the last push, in the place of the process that kept it; from then on, keep the client's
        pushes. Call it once the client has said hello, and `finish` before its first own push. Returns the inner
        optimizer's state. If the servers are at other clocks, the memories begin anew at both ends.
        """
        push, inner = self.last or (None, None)
        protocol = client.protocol
        clocks = [server.clock for server in protocol.servers]
        if push and not {now - then for now, then in zip(clocks, push.clocks, strict=True)} <= {0, 1}:
            logging.getLogger("minips").warning(
                f"Worker {client.worker} has kept its push at clock {push.clocks[0]}, and its servers are at {clocks}: "
                "it was left out meanwhile, or this is another run. Its memories begin anew."
            )
            client.begin(protocol.hello(), timed=False).result(client.config.timeout_s)
            self.last = push = inner = None
        if push:
            self._before = _with_inner(push, inner)
            self._finishing = client.begin(protocol.finish_push(push), timed=False)
        protocol.keep = self.keep
        return inner

    def finish(self, timeout: float) -> None:
        """Wait until the last push has its answer, which may need the pushes of others."""
        if self._finishing:
            self._finishing.result(timeout)
            self._finishing = None

    def keep(self, push: KeptPush) -> None:
        """Keep a push that is about to be sent. OSError if there is no room."""
        inner = self.inner()
        frames = _to_frames(push, inner)
        if self._checkpoint and self._before and push.clocks[0] % self._checkpoint.every == 0:
            self._write_snapshot(self._checkpoint, push.clocks[0])
        self._before = _with_inner(push, inner)
        nbytes = size(frames)
        if self._journal is None:
            self._journal = Journal(self._stem, self._run, max(PUSH_BYTES, PUSHES * nbytes), self._sync)
            self._journal.read(0)
        if not self._journal.room(nbytes):
            self._journal.turn()
        self._journal.append(frames)

    def forget(self) -> None:
        """Delete the files."""
        self.close()
        for path in journal_paths(self._stem):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._journal:
            self._journal.close()
            self._journal = None

    def _write_snapshot(self, checkpoint: Checkpoint, clock: int) -> None:
        """Write the state before this clock, from which a run goes on that resumes from the servers' snapshots."""
        who = self._stem.name.replace("-", " ")
        saved.write(
            checkpoint.snapshot(who, clock),
            {"who": who, "clock": clock, "state": WorkerState(links=self._before, seen=None)},
        )
        checkpoint.prune(who)


def _with_inner(push: KeptPush, inner: Any) -> list[LinkState]:
    """The links' states after a push; the first also has the inner optimizer's."""
    return push.links if inner is None else [{**push.links[0], "inner": inner}, *push.links[1:]]


def _drop_unused(stem: Path) -> bool:
    """Delete the files of a journal in which there never was a record, as after a crash just before its first snapshot.
    Returns False if there was one.
    """
    paths = [path for path in journal_paths(stem) if path.exists()]
    if paths:
        _, _, run = HEAD.unpack(paths[0].read_bytes()[: HEAD.size].ljust(HEAD.size))
        try:
            with Journal(stem, run, paths[0].stat().st_size) as journal:
                journal.read(0)
                if journal.number:
                    return False
        except ValueError:
            return False
        for path in journal_paths(stem):
            path.unlink()
    return True


def _to_frames(push: KeptPush, inner: Any) -> Frames:
    values = {"clocks": push.clocks, "links": push.links, "inner": inner, "lengths": [*map(len, push.parcels)]}
    frames = encode_plainly(Message({"kind": "kept"}, saved.to_arrays(values)), Codec())
    return [len(frames).to_bytes(4, "little"), *frames, *(frame for parcel in push.parcels for frame in parcel)]


def _from_frames(frames: Frames) -> tuple[KeptPush, Any]:
    """The push and the inner optimizer's state that `_to_frames` converted. ValueError for other frames."""
    count = int.from_bytes(frames[0], "little")
    packet, *_ = unpack(frames[1 : 1 + count], Codec(), UNTIMED, limits=of_anything())
    values = saved.from_arrays(Decoder(UNTIMED).decode(packet).tensors, "A kept push")
    rest = iter(frames[1 + count :])
    with saved.restoring("A kept push"):
        parcels = [[next(rest) for _ in range(length)] for length in values["lengths"]]
        return KeptPush(values["clocks"], values["links"], parcels), values["inner"]


def _copied(value: Any) -> Any:
    """A deep copy of dicts, lists and arrays."""
    if isinstance(value, dict):
        return {key: _copied(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_copied(x) for x in value]
    return value.copy() if isinstance(value, np.ndarray) else value
