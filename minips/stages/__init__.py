"""The swappable stages. Importing this package registers all of them. Each kind's contract opens its module."""

from minips.stages import aggregators as aggregators
from minips.stages import compressors as compressors
from minips.stages import consistency as consistency
from minips.stages import memories as memories
from minips.stages import optimizers as optimizers
from minips.stages import quantizers as quantizers
from minips.stages import schedules as schedules
from minips.stages import serializers as serializers
from minips.stages import shards as shards
from minips.stages import transports as transports
