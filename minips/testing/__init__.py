"""Conformance checks for every stage and every problem, whether part of minips or written by a learner.

    >>> import minips as ps
    >>> ps.testing.check(ps.TopK(fraction=0.5))

A check returns None if all is well. Otherwise it raises AssertionError with a sentence that names the input that
failed. `check` selects the check by the stage's kind. Each kind's check has its own module, which contains a table
of inputs and a few short functions.
"""

from minips.problems import Problem
from minips.stage import Stage
from minips.testing.base import require
from minips.testing.codecs import check_compressor, check_memory, check_serializer
from minips.testing.exchanges import check_exchange
from minips.testing.policies import check_aggregator, check_consistency, check_optimizer, check_schedule
from minips.testing.problems import check_problem
from minips.testing.quantizers import check_quantizer
from minips.testing.schedules import check_recovery, run_schedule, shrink
from minips.testing.shards import check_shards
from minips.testing.stages import check_stage
from minips.testing.transports import check_transport

__all__ = ["check", "check_problem", "check_stage"]
__all__ += ["check_compressor", "check_memory", "check_quantizer", "check_serializer", "check_transport"]
__all__ += ["check_aggregator", "check_consistency", "check_exchange", "check_optimizer", "check_schedule"]
__all__ += ["check_recovery", "check_shards", "run_schedule", "shrink"]


def check(stage: Stage | Problem) -> None:
    """Check a problem, or a stage against its kind's contract (if its kind has none: against that of all stages)."""
    if isinstance(stage, Problem):
        return check_problem(stage)
    given = (
        f"{stage.__name__} is a class; check an instance, such as {stage.__name__}()" if isinstance(stage, type) else ""
    )
    require(isinstance(stage, Stage), given or f"check takes a stage or a problem; got {stage!r}.")
    contract = globals().get(f"check_{stage.kind}", check_stage)
    contract(stage)


def __dir__() -> list[str]:
    return __all__
