"""Races for the lesson: entries on the office's track, as it is and with one worker that sends garbage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

import minips as ps
from minips.racing import TRACKS, Track, Verdict, judge
from minips.racing.tracks import ExactMLP, problem_of
from minips.racing.verdicts import SEEDS, Lap, run, seeds_of
from minips.stage import Tensors

__all__ = ["GARBAGE", "KB", "OFFICE", "SECONDS", "Trial", "broken", "enter", "hopeless", "race", "seeds_of", "table"]

SECONDS, KB = 0.1, 160.0
"""The limits of the lesson: virtual seconds, and kB of all messages."""
MOST_STEPS, SIZE = 100, 100.0
"""The most steps of a worker beside garbage, and the size of that noise."""


class Spoiled(ExactMLP):
    """The race's digits, with one worker that sends noise instead of its gradient."""

    liar = 0
    noise: np.random.Generator | None = None

    def shard(self, worker: int, workers: int) -> Any:
        part: Any = super().shard(worker, workers)
        if worker == self.liar:
            part.noise = np.random.default_rng(worker)
        return part

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        loss, gradient = super().loss_and_gradient(params, rows)
        if self.noise:
            gradient = {name: SIZE * self.noise.normal(size=g.shape).astype(g.dtype) for name, g in gradient.items()}
        return loss, gradient


@dataclass(frozen=True)
class Capped(Track):
    """A track on which a worker makes at most ``most`` steps."""

    most: int = MOST_STEPS

    def config_for(self, config: ps.Config, seed: int) -> ps.Config:
        config = super().config_for(config, seed)
        return replace(config, steps=min(config.steps, self.most - self.most % config.local_steps))


@dataclass(frozen=True)
class SpoiledTrack(Capped):
    """A track on which one worker, another for each seed, sends garbage."""

    def problem(self, seed: int) -> ExactMLP:
        problem = problem_of(seed, Spoiled)
        assert isinstance(problem, Spoiled)
        problem.liar = seed % self.workers
        return problem


OFFICE = TRACKS["office"]
_given = {field.name: getattr(OFFICE, field.name) for field in fields(OFFICE)}
GARBAGE = SpoiledTrack(**_given)
QUICK = {"with honest workers": Capped(**_given), "beside garbage": SpoiledTrack(**_given, most=64)}
"""The tracks of the exercise: what keeps its limits makes fewer steps."""


def hopeless(laps: Sequence[Lap]) -> bool:
    """True if the first runs break a limit, whatever the other ones will do."""
    means = (sum(lap.seconds for lap in laps) / SEEDS, sum(lap.nbytes for lap in laps) / SEEDS)
    return not laps[-1].reached or means[0] > SECONDS or means[1] > 1e3 * KB


def broken(verdict: Verdict, where: str) -> list[str]:
    """Return a sentence for each limit that a verdict does not keep."""
    missed = [lap for lap in verdict.laps if not lap.reached]
    if missed:
        return [f"{where}, a run is at {100 * missed[0].accuracy:.1f} % after {missed[0].steps} steps."]
    found = []
    if verdict.seconds > SECONDS:
        found.append(f"{where} it takes {verdict.seconds:.3f} virtual s; the limit is {SECONDS:g} s.")
    if verdict.nbytes > 1e3 * KB:
        found.append(f"{where} it sends {verdict.nbytes / 1e3:.0f} kB; the limit is {KB:.0f} kB.")
    return found


class Trial(NamedTuple):
    """What an entry did on the office's track, and beside one worker that sends garbage: means over five seeds."""

    honest: Verdict
    spoiled: Verdict

    @property
    def seconds(self) -> float:
        """To 90 %, with honest workers."""
        return _seconds(self.honest)

    @property
    def kb(self) -> float:
        """The kB of all messages, with honest workers."""
        return self.honest.nbytes / 1e3

    @property
    def beside_s(self) -> float:
        """The seconds beside garbage; infinite if a seed did not get to 90 %."""
        return _seconds(self.spoiled)

    @property
    def missed(self) -> int:
        """The runs beside garbage that do not get to 90 %."""
        return sum(not lap.reached for lap in self.spoiled.laps)

    @property
    def beside_kb(self) -> float:
        """The kB beside garbage."""
        return self.spoiled.nbytes / 1e3

    @property
    def faults(self) -> list[str]:
        """A sentence for each limit that the entry does not keep."""
        return broken(self.honest, "with honest workers") + broken(self.spoiled, "beside garbage")


def _seconds(verdict: Verdict) -> float:
    return verdict.seconds if verdict.placed else float("inf")


def enter(entry: str) -> Trial:
    """Race an entry's text, in the judge's sandbox."""
    return Trial(*(judge(track, entry) for track in (OFFICE, GARBAGE)))


def race(config: ps.Config) -> Trial:
    """Race a config, without a sandbox."""
    return Trial(*(run(track, config, range(SEEDS)) for track in (OFFICE, GARBAGE)))


def table(trials: Mapping[str, Trial]) -> str:
    """Return a line for each entry: what it needs, and which limits it keeps."""
    head = f"{'entry':>18} |       s |    kB | garbage: s |    kB | keeps the limits"
    lines = [f"{'limits':>18} | {SECONDS:7.3f} | {KB:5.0f} | {SECONDS:10.3f} | {KB:5.0f} |"]
    for name, one in trials.items():
        beside = "never" if np.isinf(one.beside_s) else f"{one.beside_s:.3f}"
        kb = "" if np.isinf(one.beside_s) else f"{one.beside_kb:.0f}"
        keeps = "no" if one.faults else "yes"
        lines.append(f"{name:>18} | {one.seconds:7.3f} | {one.kb:5.0f} | {beside:>10} | {kb:>5} | {keeps}")
    return "\n".join([head, *lines])
