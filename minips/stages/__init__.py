"""The swappable stages. Importing this package registers all of them. Each kind's contract opens its module."""

from minips.stages import (
    aggregators,
    compressors,
    consistency,
    memories,
    optimizers,
    quantizers,
    schedules,
    serializers,
    shards,
    transports,
)

__all__ = ["aggregators", "compressors", "consistency", "memories", "optimizers", "quantizers", "schedules"]
__all__ += ["serializers", "shards", "transports"]

for _name in __all__:  # completion shows their public names alone
    globals()[_name].__dir__ = globals()[_name].__all__.copy
