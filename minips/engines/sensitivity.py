"""The sensitivity of each tensor to few bits: train again and again, with one tensor at a time quantized."""

from dataclasses import replace
from glob import escape

from minips import seeds
from minips.core.config import Config
from minips.core.run import Run
from minips.engines import Engine, Threads
from minips.engines.train import train
from minips.problems import Problem
from minips.stages.quantizers import Exact, Quantizer
from minips.stages.transports import InProc


def sensitivity(problem: Problem, config: Config, *, engine: Engine | None = None) -> dict[str, Run]:
    """A run for each tensor in which only its gradient goes through ``config.push.quantizer``, the others exactly.

    Two more stand beside them: ``none``, all exact, and ``all``. Compare their ``validation_loss``. Nothing but the
    loss is asked, so the runs are threads without a network unless an ``engine`` is given; under BSP they repeat to the
    bit. ValueError where a tensor has the name of one of the two.
    """
    names = list(problem.init(seeds.init(config.seed)))
    quantizer = config.push.quantizer
    choices: dict[str, Quantizer | dict[str, Quantizer]] = {"none": Exact(), "all": quantizer}
    if taken := choices.keys() & names:
        raise ValueError(
            f"A tensor is called {min(taken)!r}, which is the name of a run to compare with. Rename the tensor."
        )
    for name in names:
        one = config.push.quantizer_of(name)
        choices[name] = {escape(name): one, "*": Exact()}
    if engine is None:
        engine, config = Threads(), replace(config, transport=InProc(), link=None, delays=None)
    return {
        name: train(problem, replace(config, push=replace(config.push, quantizer=choice)), engine=engine)
        for name, choice in choices.items()
    }
