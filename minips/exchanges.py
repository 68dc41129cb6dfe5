"""Exchanges of gradients: through parameter servers, or among the workers by an all-reduce."""

from minips.core.collectives import HalvingDoubling, RingAllReduce, TreeAllReduce, TwoShot
from minips.core.exchange import PS, AllReduce, Exchange, Hop

__all__ = ["PS", "AllReduce", "Exchange", "HalvingDoubling", "Hop", "RingAllReduce", "TreeAllReduce", "TwoShot"]


def __dir__() -> list[str]:
    return __all__
