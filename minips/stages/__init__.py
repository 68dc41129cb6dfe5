"""The swappable stages. Importing this package registers all of them. The contract of a kind is its base class."""

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

for _name in __all__:  # so that completion shows only their public names
    globals()[_name].__dir__ = globals()[_name].__all__.copy
