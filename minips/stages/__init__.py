"""The stages to swap: quantizers, memories, serializers, compressors, transports, aggregators, consistency models and
optimizers.

Importing this package registers all of them. Each module starts with its kind's contract.
"""

from minips.stages import (
    aggregators,
    compressors,
    consistency,
    memories,
    optimizers,
    quantizers,
    serializers,
    transports,
)

__all__ = [
    "aggregators",
    "compressors",
    "consistency",
    "memories",
    "optimizers",
    "quantizers",
    "serializers",
    "transports",
]
