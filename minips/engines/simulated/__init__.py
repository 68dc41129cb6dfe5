"""The simulated engine: its value in `engine`. The rest needs SimPy, and is imported when a run begins."""

from minips.engines.simulated.engine import Simulated

__all__ = ["Simulated"]
