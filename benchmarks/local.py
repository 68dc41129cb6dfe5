"""``python -m benchmarks local``: seconds per gradient step with local steps, predicted and measured behind a link.

BSP, 30 local steps with SGD and with Adam inside, and 120, on softmax regression of the digits: four worker processes
over TCP, behind links of 10 Mbit/s and 1 ms. Without delays a gradient takes a few tenths of a millisecond, and other
work on the machine as much. With 5 ms of computing in each step the prediction must be closer.
"""

from collections.abc import Iterator

from benchmarks import cost
from benchmarks.cost import Row, chart
from minips import datasets
from minips.core.config import Config
from minips.core.local import Delays, LocalSteps
from minips.lab.measure.turns import Watch
from minips.problems import SoftmaxRegression
from minips.stages.optimizers import SGD, Adam
from minips.stages.transports import Link

__all__ = ["chart", "configs", "measure", "table"]
ROUNDS, STEPS = 5, 480
LINK, DELAYS = Link(10e6, 1e-3), Delays(seconds=0.005)
LOCAL = {
    "every step": None,
    "30 local steps": LocalSteps(30, SGD(lr=0.3)),
    "30, Adam inside": LocalSteps(30, Adam()),
    "120 local steps": LocalSteps(120, SGD(lr=0.3)),
}
table = cost.table


def measure(rounds: int = ROUNDS, watch: Watch = lambda text, share: None) -> Iterator[Row]:
    """A row for each config, those with a delay first."""
    return cost.compare_runs(SoftmaxRegression(*datasets.digits()), list(configs()), rounds, watch)


def configs() -> Iterator[tuple[str, Config]]:
    """The configs by name."""
    start = Config(workers=4, steps=STEPS, link=LINK, optimizer=SGD(lr=1.0))
    for delays, words in (DELAYS, "5 ms"), (None, "no delay"):
        for name, local in LOCAL.items():
            yield f"{name}, {words}", start.with_({"local": local, "delays": delays})
