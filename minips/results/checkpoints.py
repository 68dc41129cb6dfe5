"""The folder of a checkpoint: which files it holds, and the snapshots in it.

    server-0-50.npz            a snapshot of server 0, after 50 clocks of all the workers
    server-0.journal-a, -b     what has changed server 0 since then (`minips.drivers.journal`)
    worker-1-50.npz            what only worker 1 knows, after 50 clocks; only if it knows anything
    worker-1.journal-a, -b     its last push, kept before it was sent
    run.npz                    the whole run, once it is over (`Run.save`)
    problem.npz                the problem without its rows (`minips.results.origin`)
    sessions.json              the workers' secrets, for an engine that goes on

A snapshot is written as a saved run is: whole or not at all. The servers of a run may have folders of their own.
"""

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minips import files
from minips.core.config import Config
from minips.core.partition import cut_state
from minips.core.tables import layout_of
from minips.results import saved
from minips.results.origin import Origin, check_same
from minips.results.state import WorkerState
from minips.results.trace import Trace
from minips.stage import Value, option
from minips.words import join_names

RUN, PROBLEM, SESSIONS = "run.npz", "problem.npz", "sessions.json"
_SNAPSHOT = re.compile(r"(server|worker)-(\d+)-(\d+)\.npz")
_JOURNAL = re.compile(r"(server|worker)-(\d+)\.journal-[ab]")


def keeps_worker(config: Config) -> bool:
    """True if a new process cannot make a worker's pushes again from the parameters alone."""
    return config.servers > 1 or not config.push.lossless or config.local is not None


@dataclass(frozen=True, repr=False)
class Checkpoint(Value):
    """A folder in which servers and workers keep a run, so that it goes on after any of them has died.

    What a server has acknowledged is in its journal, and survives the end of its process at any instant. A power loss
    may take the last pushes, unless ``sync`` is set: then every push waits for the disk, which takes a millisecond or
    several of them. The journal begins anew after each snapshot.

    >>> Checkpoint("digits", every=100)
    Checkpoint(folder='digits', every=100)
    """

    folder: str = option("", "the folder; made if it is missing")
    every: int = option(50, "clocks of all the workers between two snapshots", minimum=1, step=1)
    sync: bool = option(False, "acknowledge a push only once it is on the disk, so that it survives a power loss")
    keep: int = option(2, "snapshots that remain of each server and worker", minimum=1, step=1)
    journal_bytes: int | None = option(
        None, "size of each of a journal's two files; None: 64 MB, or room for four rounds if they need more", above=0
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", str(self.folder))
        super().__post_init__()
        if not self.folder:
            raise ValueError('Checkpoint takes the path of a folder, such as "my-run".')

    @classmethod
    def of(cls, given: "Checkpoint | str | Path | None") -> "Checkpoint | None":
        """The checkpoint, or one in the folder with this path. TypeError for anything else."""
        if given is None or isinstance(given, Checkpoint):
            return given
        if isinstance(given, str | Path):
            return cls(str(given))
        raise TypeError(f"checkpoint takes a ps.Checkpoint, or the path of its folder; got {given!r}.")

    @property
    def path(self) -> Path:
        """The folder's path."""
        return Path(self.folder)

    def stem(self, who: str) -> Path:
        """The path of a party's journals, without their endings; ``who`` is such as ``server 0``."""
        return self.path / who.replace(" ", "-")

    def snapshot(self, who: str, clock: int) -> Path:
        """The path of a party's snapshot at a clock."""
        return self.path / f"{who.replace(' ', '-')}-{clock}.npz"

    def clocks(self, who: str) -> list[int]:
        """The clocks of a party's snapshots, in order."""
        return sorted(clock for name, clock in _snapshots(self.path) if name == who)

    def prune(self, who: str, least: int = 1) -> None:
        """Delete a party's oldest snapshots: those before the last ``keep``, or the last ``least``."""
        for clock in self.clocks(who)[: -max(self.keep, least)]:
            self.snapshot(who, clock).unlink(missing_ok=True)

    def write_rank(self, rank: int, clock: int, values: Mapping[str, Any]) -> None:
        """Write a rank's snapshot in an all-reduce. The one before stays, since other ranks may not have this one."""
        who = f"worker {rank}"
        saved.write(self.snapshot(who, clock), {"who": who, "clock": clock, **values})
        self.prune(who, least=2)

    def ranks(self, count: int) -> list[dict[str, Any]]:
        """The snapshots of all ranks of an all-reduce at the last clock that all of them have; empty without one."""
        whose = [f"worker {rank}" for rank in range(count)]
        common = set.intersection(*({*self.clocks(who)} for who in whose))
        return [read_snapshot(self.snapshot(who, max(common)), who) for who in whose] if common else []

    @property
    def run(self) -> Path:
        """The path of the whole run, which is written once it is over."""
        return self.path / RUN

    def check(self, goes_on: bool) -> None:
        """ValueError if the folder holds a run that should not go on, or none that should."""
        if self.holds_run() and not goes_on:
            raise ValueError(
                f"The folder {self.folder} holds a run. Go on with it by resume={self.folder!r}, or choose another."
            )
        if goes_on and not self.holds_run():
            raise ValueError(f"The folder {self.folder} holds no run to go on with. Leave out resume.")

    def keep_origin(self, origin: Origin) -> None:
        """Make the folder, and keep the problem of the run. ValueError if it holds a run of another problem."""
        path = self.path / PROBLEM
        if path.exists() and self.holds_run():
            check_same(origin, saved.read(path), "the checkpoint's")
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            saved.write(path, origin)

    def reports(self) -> tuple[Config, list[dict[str, Any]], Origin | None]:
        """The reports of all servers at the last clock of which all of them have a snapshot, as `gather_run` takes
        them; the config, and the origin of the problem. ValueError if there is no such clock.
        """
        whose = sorted({who for who, _ in _snapshots(self.path) if who.startswith("server")})
        common = set.intersection(*({*self.clocks(who)} for who in whose)) if whose else set[int]()
        workers = {who for who, _ in _snapshots(self.path) if who.startswith("worker")}
        whole = common.intersection(*({*self.clocks(who)} for who in workers))
        if not common:
            raise ValueError(f"The folder {self.folder} holds no snapshot that all of its servers have.")
        clock = max(whole or common)
        snapshots = [read_snapshot(self.snapshot(who, clock), who) for who in whose]
        with saved.restoring(f"What the folder {self.folder} holds"):
            config = Config.from_dict(snapshots[0]["config"])
            if len(whose) not in (1, config.servers):
                raise ValueError(f"The folder {self.folder} holds {len(whose)} of {config.servers} servers.")
            states = [self._worker_state(worker, clock) for worker in range(config.workers)]
            path = self.path / PROBLEM
            origin = saved.read(path) if path.exists() else None
            return config, [_report(values, states) for values in snapshots], origin

    def _worker_state(self, worker: int, clock: int) -> WorkerState | None:
        path = self.snapshot(f"worker {worker}", clock)
        return read_snapshot(path, f"worker {worker}")["state"] if path.exists() else None

    def secrets(self, count: int) -> list[str]:
        """The secrets of the workers' sessions, which the folder keeps for the next process that goes on."""
        path = self.path / SESSIONS
        if path.exists() and self.holds_run():
            with suppress(ValueError, TypeError):
                kept = json.loads(path.read_text())
                if len(kept) == count and all(len(bytes.fromhex(secret)) == 16 for secret in kept):
                    return [*kept]
            raise ValueError(f"{path} is not a list of {count} workers' secrets. Restore it, or choose another folder.")
        fresh = [secrets.token_hex(16) for _ in range(count)]
        files.write(path, json.dumps(fresh), 0o600)
        return fresh

    def config(self) -> Config:
        """The config of the run in the folder. ValueError if it holds none."""
        if config := self.find_config():
            return config
        raise ValueError(f"The folder {self.folder} holds no snapshot of a server or a rank, so no run can go on here.")

    def find_config(self) -> Config | None:
        """The config of the run in the folder; None if no snapshot has it, as just before a server's first one."""
        for who, clock in sorted(_snapshots(self.path), key=lambda one: (one[0], -one[1])):
            with suppress(FileNotFoundError):  # another server may delete its older snapshots meanwhile
                if config := read_snapshot(self.snapshot(who, clock), who).get("config"):  # a worker's has none
                    return Config.from_dict(config)
        return None

    def holds_run(self) -> bool:
        """True if the folder holds a part of a run."""
        if not self.path.is_dir():
            return False
        names = [path.name for path in self.path.iterdir()]
        return RUN in names or any(_SNAPSHOT.fullmatch(name) or _JOURNAL.fullmatch(name) for name in names)


def _snapshots(folder: Path) -> Iterator[tuple[str, int]]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _SNAPSHOT.fullmatch(path.name):
            yield f"{match[1]} {match[2]}", int(match[3])


def _report(values: Mapping[str, Any], workers: Sequence[WorkerState | None]) -> dict[str, Any]:
    """A server's report, made from its snapshot, and the workers' states."""
    state, index = values["state"], int(values["who"].split()[1])
    place = state["shard"].pop("exact")
    layout, began_at = layout_of(values["layout"]), values["began_at"]
    members, _ = state.pop("members"), state.pop("resumptions")
    return {
        "index": index,
        "params": values["params"],
        "layout": layout,
        "rows": values["rows"],
        "left": [worker and cut_state(worker, index, layout) for worker in workers],
        "state": state,
        "applied": state["shard"]["applied"],
        "missing": state["shard"]["made"] - state["shard"]["applied"],
        "late": place["late"],
        "staleness": Counter(place["staleness"]),
        "grants": [],
        "trace": Trace(),
        "losses": [(at, int(step), loss) for at, step, loss in values["losses"].tolist()],
        "events": values["events"],
        "changed_at": values["changed_at"],
        "began_at": values["changed_at"] if began_at is None else began_at,
        "bytes_sent": sum(member["received"] for member in members),  # as the workers count them
        "bytes_received": sum(member["sent"] for member in members),
        "stopped": True,
        "diverged": place["diverged"],
    }


def read_snapshot(path: Path, who: str) -> dict[str, Any]:
    """The values of a party's snapshot. ValueError, with a sentence, for a torn, foreign or newer file."""
    values = saved.read(path)
    if values.get("who") != who:
        raise ValueError(f"{path} is not a snapshot of {who}: it is of {values.get('who')!r:.99}.")
    return values


def check_config(kept: Mapping[str, Any], mine: Mapping[str, Any], folder: str) -> None:
    """ValueError, with the fields' names, if a run in a folder has another config, other than in its length."""
    free = ("steps", "epochs", "timeout_s", "transport", "link", "delays")  # none of them decides what an update does
    names = [name for name in {**kept, **mine} if name not in free and kept.get(name) != mine.get(name)]
    if names:
        raise ValueError(
            f"The folder {folder} holds a run with another config: it differs in {join_names(names)}. Go on with the "
            "same config, or choose another folder."
        )
