"""The simulated engine: its value in `engine`, a comparison with real runs in `measured`. The rest needs SimPy, and is
imported when a run begins.
"""

from minips.cost.simulate.engine import Simulated
from minips.cost.simulate.measured import Row, against_measured

__all__ = ["Row", "Simulated", "against_measured"]
