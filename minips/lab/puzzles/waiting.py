"""A puzzle: a rule of waiting that trains to a given loss in the least virtual time, although two workers are slow.

The rule is a consistency model of real runs in the simulated engine: servers ask it whether a worker may read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minips import datasets
from minips.core.config import Config
from minips.core.local import Delays
from minips.engines import Simulated
from minips.lab.puzzles.base import IllegalMoveError, Played, Puzzle
from minips.problems import SoftmaxRegression
from minips.stage import option
from minips.stages.consistency import Consistency, PullView
from minips.stages.optimizers import SGD
from minips.stages.shards import ByLabel
from minips.training.train import train

if TYPE_CHECKING:
    from minips.lab.charts import Drawing

WORKERS, SEEDS, STEPS, BATCH_S, LOSS = 8, (0, 1, 2), 80, 0.1, 0.3
SLOW = {6: 2.0, 7: 4.0}
"""Maps a slow worker to its factor."""


@dataclass(frozen=True)
class LearnersRule(Consistency):
    """Asks the learner's function, and notes each read that it allows."""

    name = "learners"
    rule: object = option(None, "the learner's function")
    reads: object = option(None, "a list that gets the seconds and the worker of each read")

    def quorum(self, workers: int) -> None:
        return None

    def may_pull(self, view: PullView) -> bool:
        seen = view._replace(clocks=tuple(view.clocks), pushed_at=tuple(view.pushed_at))
        answer = self.rule(seen)  # type: ignore[operator]
        if not isinstance(answer, bool):
            raise IllegalMoveError(f"may_read returns True or False; got {answer!r}.")
        if answer:
            self.reads.append((view.now, view.worker))  # type: ignore[attr-defined]
        return answer


class WaitingPuzzle(Puzzle):
    """A rule of waiting under stragglers."""

    name, title, function, unit, par, best = "waiting", "wait for whom?", "may_read", "s", 3.3, 2.0
    task = f"""
    Eight workers train softmax regression on digits; each has the digits of one or two classes only. A batch takes a
    worker {BATCH_S} s; it takes worker 6 twice and worker 7 four times as long. A worker pushes its gradient, which the
    server applies at once, and then reads the parameters again. Your rule decides when.

    Whenever a worker wants to read, and again after each push of another one while it waits, your function gets a view:
    view.worker, its number; view.clocks, how many pushes each worker has made; view.slowest, the least of them;
    view.now, in virtual seconds; view.state, a dict of your own. Return True if the worker may read now, else False.

    The score is the virtual time until the held-out loss is at most {LOSS}, added up over {len(SEEDS)} runs with
    different seeds. A run has at most {STEPS} pushes per worker. If nobody waits, gradients are stale; if all wait for
    the slowest, nothing moves.
    """
    start = """
def may_read(view):
    \"\"\"Everybody waits for everybody: BSP.\"\"\"
    return view.slowest >= view.clocks[view.worker]
"""

    def play(self, function: Callable[..., Any]) -> "Waited":
        problem = SoftmaxRegression(*datasets.digits())
        curves, reads = [], []
        for seed in SEEDS:
            reads.append(list[tuple[float, int]]())
            config = Config(
                workers=WORKERS,
                steps=STEPS,
                batch_size=64,
                shards=ByLabel(),
                optimizer=SGD(lr=1.0, momentum=0.9),
                consistency=LearnersRule(function, reads[-1]),
                delays=Delays(BATCH_S, slow=SLOW),
                seed=seed,
            )
            try:
                run = train(problem, config, engine=Simulated(), every=1, on_eval=_there)
            except RuntimeError as failure:
                if failure.__cause__:  # the learner's function failed
                    raise failure.__cause__ from None
                raise IllegalMoveError(
                    "All workers wait, and the rule lets none of them read: the run would never end. Let at least the "
                    "slowest one read."
                ) from failure
            curve = tuple((seconds, loss) for seconds, _, _, loss in run.evaluations if loss is not None)
            if not curve[-1][1] <= LOSS:
                raise IllegalMoveError(
                    f"With seed {seed}, the run ended at a held-out loss of {curve[-1][1]:.3f}: {LOSS} was not "
                    "reached. Let the workers wait less, or more."
                )
            curves.append(curve)
        total = sum(curve[-1][0] for curve in curves)
        return Waited(self, round(total, 6), tuple(curves), tuple(map(tuple, reads)))


def _there(now: Any) -> bool:
    return bool(now.validation_loss <= LOSS)


@dataclass(frozen=True, repr=False)
class Waited(Played):
    """Runs to the given loss under the learner's rule."""

    curves: tuple[tuple[tuple[float, float], ...], ...]
    """The seconds and the held-out loss at each evaluation, for each seed."""
    reads: tuple[tuple[tuple[float, int], ...], ...]
    """The seconds and the worker of each read, for each seed."""

    @property
    def words(self) -> str:
        each = ", ".join(f"{curve[-1][0]:.1f}" for curve in self.curves)
        return f"The runs take {each} s."

    def text(self) -> str:
        """A row for each worker: the tenths of a second of the first run at which it reads."""
        tenths = round(self.curves[0][-1][0] / BATCH_S) + 1
        rows = [[" "] * tenths for _ in range(WORKERS)]
        for now, worker in self.reads[0]:
            rows[worker][min(round(now / BATCH_S), tenths - 1)] = "●"
        named = [f"worker {worker} {''.join(row)}".rstrip() for worker, row in enumerate(rows)]
        return "\n".join([*named, "A column is 0.1 s of the first run; ● is a read."])

    def drawing(self, width: float) -> "Drawing":
        from minips.lab.puzzles.pictures import draw_waiting

        return draw_waiting(self.curves, self.reads[0], LOSS, width)
