"""Count the steps that a config needs to reach an accuracy, by simulation without a network.

Under BSP the parameters equal a real run's to the bit.
"""

from collections.abc import Iterator
from dataclasses import replace

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.core.config import Config
from minips.core.message import NonFiniteError
from minips.engines.base import TrainingJob
from minips.engines.evaluation import Evaluation
from minips.engines.simulated.engine import Simulated
from minips.problems import Problem
from minips.results.run import Rows
from minips.stage import Tensors
from minips.stages.consistency import BSP


class _EachRound(Evaluation):
    """Pauses a run after each round, and keeps the round's parameters."""

    def __init__(self) -> None:
        self.every = 1
        self.params: list[Tensors] = []

    def call(self, clock: int, params: Tensors, losses: Rows, seconds: float) -> bool:
        self.params.append(params)
        return False


def rounds(problem: Problem, config: Config) -> Iterator[Tensors]:
    """Yield the parameters after each BSP round while they are finite. The config's consistency is ignored."""
    config = replace(config.for_rows(problem.rows), link=None, delays=None, overlap=False, consistency=BSP())
    one_more = replace(config, steps=config.steps + config.local_steps)  # a run does not pause after its last step
    look, params = _EachRound(), problem.init(seeds.init(config.seed))
    job = TrainingJob(problem, one_more, params, lambda progress: None, lambda: False, look, None)
    prepare = one_blas_thread(Simulated(compute_s=1.0).prepare)  # computed as in a run
    run = one_blas_thread(prepare(job).simulation.run)
    for _ in range(config.clocks):
        try:
            run(lambda: bool(look.params))
        except RuntimeError as error:
            if isinstance(error.__cause__, NonFiniteError):
                return
            raise
        if not look.params:
            return
        yield look.params.pop()


@one_blas_thread
def steps_to(problem: Problem, config: Config, target_accuracy: float, *, every: int = 5) -> int | None:
    """Return the first step after which the accuracy on held-out rows reaches ``target_accuracy``; None if the config
    has too few steps. The accuracy is computed once every ``every`` steps, since it may take longer than a step.
    """
    held_out, config = problem.held_out(), config.for_rows(problem.rows)
    each = config.local_steps
    for clock, params in enumerate(rounds(problem, config), 1):
        step = clock * each
        if step % every < each or step == config.steps:
            accuracy = None if held_out is None else held_out.accuracy(params)
            if accuracy is None:
                raise ValueError(
                    f"{type(problem).__name__} has no accuracy on held-out rows. Give it classes, and validation rows."
                )
            if accuracy >= target_accuracy:
                return step
    return None
