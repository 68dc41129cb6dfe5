"""Aggregators: one gradient from the gradients of several workers.

The contract is `Aggregator`. Under BSP it sees a whole round at once, under SSP and ASP each push alone. Those in
`robust` tolerate some bad workers, old gradients, or shards of unequal size.
"""

from minips.stages.aggregators.base import Aggregator, Contribution, Mean
from minips.stages.aggregators.robust import Krum, MajorityVote, Median, StalenessWeighted, TrimmedMean, WeightedMean

__all__ = ["Aggregator", "Contribution", "Krum", "MajorityVote", "Mean", "Median", "StalenessWeighted", "TrimmedMean"]
__all__ += ["WeightedMean"]
