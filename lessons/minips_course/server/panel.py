"""A server's rules, switched by a click: four workers in virtual time, one of them slow, played back."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

import minips as ps
from minips import lab
from minips.lab import plots
from minips.lab.controls import close
from minips.lab.panels import Panel
from minips.lab.views import View
from minips.stage import Value, option

WORKERS, STEPS, COMPUTE_S = 4, 20, 0.02
SLOW = f"worker {WORKERS - 1}"
SHOWN_S = 0.4
"""The seconds of the run that the still picture shows."""
RULES = {"BSP": ps.BSP(), "SSP": ps.SSP(staleness=2), "ASP": ps.ASP()}


@dataclass(frozen=True)
class Asked(Value):
    """The rule, and the slowness of worker 3."""

    rule: str = option("BSP", "when the server answers a push", choices=RULES)
    slower: float = option(
        4.0, "how many times as long as the others worker 3 takes for a step", minimum=1, maximum=8, step=1
    )


@dataclass(frozen=True)
class Outcome:
    """A run under a rule, until the server has applied ``WORKERS * STEPS`` pushes."""

    rule: str
    run: ps.Run

    @property
    def slow(self) -> int:
        """The number of applied pushes that came from the slow worker."""
        arrived = sorted((one.end, one.sender) for one in self.run.messages if one.kind == "push_pull" and one.end)
        return sum(sender == SLOW for _, sender in arrived[: self.run.updates])

    @property
    def versions(self) -> int:
        """The number of times that the server changed the parameters."""
        return self.run.updates // WORKERS if self.rule == "BSP" else self.run.updates

    @property
    def waited(self) -> float:
        """The share of the workers' time in which they waited for other workers."""
        return sum(span.seconds for span in self.run.trace if span.name == "wait") / (WORKERS * self.run.seconds)

    @property
    def stale(self) -> float:
        """The mean staleness of a gradient, in versions."""
        ages = self.run.staleness
        return sum(age * count for age, count in ages.items()) / sum(ages.values())

    @property
    def stalest(self) -> int:
        """The largest staleness of a gradient, in versions."""
        return max(self.run.staleness)


def simulate(rule: str, slower: float = 4.0) -> Outcome:
    """Simulate four workers, the last of which is slower, with links of 100 Mbit/s and a latency of 1 ms."""
    delays = ps.Delays(COMPUTE_S, slow={WORKERS - 1: slower})
    link = ps.Link(bandwidth_bps=1e8, latency_s=1e-3)
    config = ps.Config(workers=WORKERS, steps=STEPS, consistency=RULES[rule], delays=delays, link=link)
    return Outcome(rule, ps.train(ps.SoftmaxRegression(*ps.datasets.digits()), config, engine=ps.Simulated()))


def table(found: Iterable[Outcome]) -> str:
    """Return a line for each run: its seconds, its waits, the slow worker's pushes, versions, and old gradients."""
    lines = ["rule | virtual s | waited (%) | pushes of worker 3 | versions | mean staleness | largest"]
    for one in found:
        waited = f"{100 * one.waited:10.0f} | {one.slow:18} | {one.versions:8} | {one.stale:14.1f} | {one.stalest:7}"
        lines.append(f"{one.rule}  | {one.run.seconds:9.2f} | {waited}")
    return "\n".join(lines)


class ServerRules(Panel[Asked, Outcome]):
    """Plays a run under BSP, SSP or ASP back, and counts its pushes, versions, waits and old gradients.

    >>> panel = ServerRules(rule="ASP")
    >>> panel.find(Asked(rule="ASP")).waited
    0.0
    """

    title = "Who waits for whom"
    asks = Asked
    labels = {"slower": "worker 3 slower by"}
    repeats = True
    heights = (3.0, 3.0)

    def __init__(self, **asked: Any) -> None:
        self.view = View("replay", {}, "", "")
        super().__init__(**asked)
        self.panel.children = [self.view.panel if c is self.picture.panel else c for c in self.panel.children]

    def find(self, asked: Asked) -> Outcome:
        return simulate(asked.rule, asked.slower)

    def draw(self, found: Outcome, figure: Figure) -> None:
        plots.timeline({found.rule: found.run}, seconds=(0.0, SHOWN_S), ax=figure.add_subplot())

    def words(self, found: Outcome) -> str:
        run = found.run
        return (
            f"{found.rule}: {run.updates} pushes in {run.seconds:.2f} virtual s, {found.slow} of them from {SLOW}. "
            f"They made {found.versions} versions. The workers waited {found.waited:.0%} of their time. A gradient was "
            f"{found.stale:.1f} versions stale on average, {found.stalest} at most."
        )

    def _show(self, found: Outcome) -> None:
        played = lab.replay(found.run)
        self.view.show(played.data, played.still, self.words(found))
        close(played.panel)
