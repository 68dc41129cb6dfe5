"""Aggregators: they combine the gradients of several workers into one.

The contract is `Aggregator`. Under BSP it combines all pushes of a round; under SSP and ASP it gets one push at a time.
The aggregators in `robust` tolerate some bad workers, old gradients, or shards of unequal size.
"""

from minips.stages.aggregators.base import Aggregator, Contribution, Mean
from minips.stages.aggregators.robust import Krum, MajorityVote, Median, StalenessWeighted, TrimmedMean, WeightedMean

__all__ = ["Aggregator", "Contribution", "Krum", "MajorityVote", "Mean", "Median", "StalenessWeighted", "TrimmedMean"]
__all__ += ["WeightedMean"]
