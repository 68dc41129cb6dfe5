"""The judge runs a config on a track with five seeds, and says after how many seconds and bytes the digits are learned.

The seeds follow from the entry's text. The same text has the same seeds on every machine; a text that is changed, to
hold what a run has taught, has others. A keeper of the table who suspects a lucky text gives another ``salt``.
"""

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.limits import check_run
from minips.core.partition import join
from minips.engines.base import TrainingJob
from minips.racing.borrowed import Parties, lend
from minips.racing.rules import check
from minips.racing.tracks import Track
from minips.sandbox import Limits
from minips.stage import Tensors

SEEDS, TARGET = 5, 0.9
MOST_S = 600.0
"""The most wall-clock seconds for all seeds."""


class Lap(NamedTuple):
    """One seed's run, up to the clock at which it reached the target, or to its end."""

    reached: bool
    steps: int
    seconds: float
    nbytes: int
    right: tuple[int, ...]
    """The number of right held-out rows after each clock of all the workers."""
    rows: int

    @property
    def accuracy(self) -> float:
        """The share of the held-out rows that are right at the end; 0 if no clock was complete."""
        return self.right[-1] / self.rows if self.right else 0.0


@dataclass(frozen=True)
class Verdict:
    """What an entry did on a track. ``str`` gives the lines that `minips race` prints."""

    track: str
    config: Config
    laps: tuple[Lap, ...]

    @property
    def placed(self) -> bool:
        """True if every seed's run reached the target."""
        return all(lap.reached for lap in self.laps)

    @property
    def seconds(self) -> float:
        """The virtual seconds to the target: the mean over the seeds."""
        return statistics.fmean(lap.seconds for lap in self.laps)

    @property
    def nbytes(self) -> float:
        """The bytes to the target: the mean over the seeds."""
        return statistics.fmean(lap.nbytes for lap in self.laps)

    @property
    def digest(self) -> str:
        """A digest over track, config, steps, virtual times, bytes and counts of right rows: no bits of floats."""
        laps = [[lap.steps, f"{lap.seconds:.9f}", lap.nbytes, lap.right] for lap in self.laps]
        text = json.dumps([self.track, self.config.to_dict(), laps], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain values, for JSON."""
        figures = {"seconds": self.seconds, "bytes": self.nbytes, "digest": self.digest, "placed": self.placed}
        return {
            "track": self.track,
            **figures,
            "config": self.config.to_dict(),
            "laps": [lap._asdict() for lap in self.laps],
        }

    def __str__(self) -> str:
        rows: list[tuple[str, Sequence[float], str]] = [
            ("accuracy", [lap.accuracy for lap in self.laps], "{:.3f}"),
            ("steps", [lap.steps for lap in self.laps], "{:.0f}"),
            ("seconds", [lap.seconds for lap in self.laps], "{:.4f}"),
            ("bytes", [lap.nbytes for lap in self.laps], "{:.0f}"),
        ]
        lines = [f"{'':10}{'mean':>12}{'least':>12}{'most':>12}"]
        for name, values, form in rows:
            three = statistics.fmean(values), min(values), max(values)
            lines.append(f"{name:10}" + "".join(f"{form.format(value):>12}" for value in three))
        missed = sum(not lap.reached for lap in self.laps)
        if missed:
            lines.append(
                f"No place: {missed} of {len(self.laps)} runs ended below {TARGET:.0%} of the held-out digits."
            )
        return "\n".join([*lines, f"digest    {self.digest}"])


def seeds_of(text: str, salt: str = "") -> list[int]:
    """The seeds for an entry's text."""
    digests = (hashlib.sha256(f"{salt}/{number}/{text}".encode()).digest() for number in range(SEEDS))
    return [int.from_bytes(digest[:4], "big") for digest in digests]


def judge(
    track: Track,
    text: str,
    file: str = "entry.py",
    salt: str = "",
    *,
    limits: Limits | None = None,
    hopeless: Callable[[Sequence[Lap]], bool] = lambda laps: False,
) -> Verdict:
    """Race the entry with this ``text`` on a track, once for each of its seeds, or until the runs so far are
    ``hopeless``.

    ValueError if the text is not an entry, or does what the track forbids; RuntimeError if its code fails or exceeds a
    limit; TimeoutError if the race takes more than `MOST_S` seconds.
    """
    check(text, file)
    deadline = time.monotonic() + MOST_S
    with Parties(text, file, limits) as parties, lend(parties) as config:
        laps = []
        for seed in seeds_of(text, salt):
            try:
                laps.append(_lap(track, config, seed, deadline, parties))
            except (RuntimeError, ValueError) as error:
                raise parties.error or error from None
            if hopeless(laps):
                break
        return Verdict(track.name, track.config_for(config, 0), tuple(laps))


def run(track: Track, config: Config, seeds: Sequence[int]) -> Verdict:
    """Race a config once for each seed, in this process: without a sandbox, so its stages must be trusted."""
    with Parties("", "") as nobody:
        laps = tuple(_lap(track, config, seed, time.monotonic() + MOST_S, nobody) for seed in seeds)
    return Verdict(track.name, track.config_for(config, 0), laps)


@one_blas_thread
def _lap(track: Track, config: Config, seed: int, deadline: float, parties: Parties) -> Lap:
    problem = track.problem(seed)
    config = track.config_for(config, seed)
    held_out: Any = problem.held_out()
    rows, engine = held_out.rows, track.engine(config)
    engine.check(config)
    faults = track.faults
    if faults:
        engine.check_faults(faults, config)
    parties.begin()
    params = check_run(config, problem.init(seeds.init(seed)), problem.tables)
    job = TrainingJob(problem, config, params, lambda progress: None, lambda: False, None, None, faults=faults)
    team = engine.prepare(job)
    parties.begin(team.simulation)
    right: list[int] = []

    def learned() -> bool:
        """Count the right rows after each clock of all the workers. Return True once there are enough."""
        clock, read = _progress(team)
        if clock > len(right):
            if time.monotonic() > deadline:
                raise TimeoutError("The race took too long by the wall clock. Use fewer steps, or quicker stages.")
            right.extend([held_out.right(read())] * (clock - len(right)))
        return bool(right) and right[-1] >= TARGET * rows

    team.simulation.run(learned)
    reached = learned()
    everyone = [*team.workers, *getattr(team, "dead", ())]
    nbytes = sum(worker.bytes_sent + worker.bytes_received for worker in everyone)
    steps = len(right) * config.local_steps
    return Lap(reached, steps, team.simulation.events.now, nbytes, tuple(right), rows)


def _progress(team: Any) -> tuple[int, Any]:
    """The clock, in complete rounds or else in pushes for each worker, and a function that reads the parameters."""
    if isinstance(team.simulation.config.exchange, AllReduce):
        replica = min((worker.replica for worker in team.workers), key=lambda one: one.shard.version)
        return replica.shard.version, lambda: replica.shard.params
    servers = team.servers

    def read() -> Tensors:
        return join([dict(server.shard.params) for server in servers], [server.layout for server in servers])

    shards, workers = [server.shard for server in servers], team.simulation.config.workers
    return min(one.applied // workers if one.quorum is None else one.rounds for one in shards), read
