"""Aggregators: one gradient from the gradients of several workers.

The contract is `Aggregator`. Under BSP it sees a whole round at once, under SSP and ASP each push alone. Those of
`robust` stand some bad workers, or gradients that are old; that of `weighted` knows how many rows a worker has.
"""

from minips.stages.aggregators.base import Aggregator, Contribution, Mean
from minips.stages.aggregators.robust import Krum, MajorityVote, Median, StalenessWeighted, TrimmedMean
from minips.stages.aggregators.weighted import WeightedMean

__all__ = ["Aggregator", "Contribution", "Krum", "MajorityVote", "Mean", "Median", "StalenessWeighted", "TrimmedMean"]
__all__ += ["WeightedMean"]
