"""What a death costs: runs in virtual time and in processes, in which a worker or a server is killed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.testing.schedules import Outcome, Rehearsal

WORKERS, STEPS, COMPUTE_S = 4, 40, 0.02
KILLED = ps.Faults(kill={"worker 3": STEPS // 2})
"""The last worker dies before the push of its middle step."""


@dataclass(frozen=True)
class Death:
    """A run in which somebody was killed."""

    seconds: float
    """Of virtual time; NaN if the run ended with its error."""
    made: int
    """The gradients in what is left: none if nothing is left."""
    same: bool
    """Whether the parameters are those of the run without faults, to the bit."""

    @property
    def lost(self) -> int:
        """The gradients that are missing."""
        return WORKERS * STEPS - self.made


def of_worker(problem: ps.Problem, config: ps.Config, restart: int = 0) -> Death:
    """Kill a worker in virtual time, in the middle of a run; with ``restart``, it is started again."""
    engine = ps.Simulated(compute_s=COMPUTE_S, restart=restart)
    try:
        run = ps.train(problem, config, engine=engine, faults=KILLED, progress=False)
    except RuntimeError as error:
        left = vars(error).get("run")
        return Death(float("nan"), left.updates if left else 0, same=False)
    return Death(run.seconds, run.updates, alike(run, ps.train(problem, config, engine=engine, progress=False)))


def alike(run: ps.Run, other: ps.Run) -> bool:
    """Return whether two runs ended with the same parameters, to the bit."""
    return all(np.array_equal(x, other.params[name]) for name, x in run.params.items())


def computed(run: ps.Run) -> int:
    """Return how many gradients the workers of a run computed."""
    return sum(span.name == "compute" for span in run.trace)


def replayed(run: ps.Run) -> int:
    """Return how many pushes of its journal a server that was started again has applied, as the run's events say."""
    told = [re.search(r"with (\d+) pushes from its journal", text) for _, text in run.events]
    return sum(int(one[1]) for one in told if one)


def ends(problem: ps.Problem, config: ps.Config, faults: ps.Faults) -> str:
    """Train with processes that are not started again. Return the error with which the run ends, or nothing."""
    try:
        ps.train(problem, config, faults=faults, progress=False)
    except RuntimeError as error:
        return str(error)
    return ""


def table(found: Mapping[str, Death]) -> str:
    """Return a line for each death."""
    lines = [f"{'killed: worker 3':>24} | virtual s | missing gradients | same bits"]
    for name, one in found.items():
        seconds = "ended" if np.isnan(one.seconds) else f"{one.seconds:.2f}"
        lines.append(f"{name:>24} | {seconds:>9} | {one.lost:>17} | {'yes' if one.same else 'no'}")
    return "\n".join(lines)


class Between(NamedTuple):
    """What came of a worker's deaths, one at each of its steps."""

    kills: int
    between: int
    """Those after which only one of two servers had the worker's last push."""
    wrong: int
    """The promises that were broken."""


def between_servers() -> Between:
    """Kill a worker of two servers at each of its steps, in schedules of minips' own protocol with a lossy codec."""
    config = ps.Config(workers=2, servers=2, steps=5, push=ps.Codec(ps.TopK(0.5), ps.ErrorFeedback()))
    rehearsal = Rehearsal(config)
    kills = [kill for kill in rehearsal.kills() if kill.party == "worker 0"]
    outcomes = [rehearsal.run(0, [kill], log=True) for kill in kills]
    between = sum(map(_between, outcomes))
    return Between(len(kills), between, sum(len(one.violations) for one in outcomes))


def _between(outcome: Outcome) -> bool:
    """Return whether worker 0 was killed after it had sent a push to one of its two servers."""
    did = [what for _, party, what in outcome.log if party == "worker 0"]
    if "is killed" not in did or "starts" not in did[did.index("is killed") :]:  # it was leaving
        return False
    before = did[: did.index("is killed")]
    return before.count("has sent it") % 2 == 1 and "has written it" in before
