"""A consistency model of your own: SSP with a bound that follows the workers' speeds, in ten lines.

On the command line: ``minips --load own_consistency.py train --consistency dynssp``.
"""

from dataclasses import dataclass

import minips as ps


@ps.register
@dataclass(frozen=True)
class DynSSP(ps.Consistency):
    """A worker more than ``least`` clocks ahead continues, up to ``most``, if waiting would take longer than its next
    step. After Zhao et al. 2019, whose rule looks several steps ahead.
    """

    name = "dynssp"
    least: int = ps.option(1, "clocks that a worker may always be ahead", minimum=0, step=1)
    most: int = ps.option(6, "the most clocks that it may be ahead", minimum=0, step=1)

    def quorum(self, workers: int) -> None:
        return None  # no rounds: each push is applied as it arrives

    def may_pull(self, view: ps.PullView) -> bool:
        began = view.state.setdefault("began", min(view.pushed_at))
        pace = [(at - began) / max(clock, 1) for at, clock in zip(view.pushed_at, view.clocks, strict=True)]
        last, ahead = view.clocks.index(view.slowest), view.clocks[view.worker] - view.slowest
        wait = view.pushed_at[last] + pace[last] - view.now
        return ahead <= self.least or (ahead <= self.most and wait > pace[view.worker])


if __name__ == "__main__":
    ps.testing.check(DynSSP())
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    engine = ps.Simulated(compute_s=0.02, exponential=True)  # steps of random lengths, in virtual seconds
    for rule in ps.SSP(staleness=1), DynSSP(), ps.SSP(staleness=6):
        run = ps.train(problem, ps.Config(steps=100, consistency=rule), engine=engine)
        stale = sum(versions * count for versions, count in run.staleness.items()) / run.updates
        print(f"{run.seconds:.2f} s, gradients {stale:.2f} versions old: {rule}")
