"""Quantizers: fewer bits for an array, and back.

The contract is `Quantizer`. The schemes stand by family: `casts` (a smaller float), `integers` (levels between two
ends), `signs` (one bit), `sparse` (few of the values), `lowrank` (two thin factors), `adaptive` (whichever is enough).
`packing` puts small codes into bytes.
"""

from minips.stages.quantizers.adaptive import Adaptive as Adaptive
from minips.stages.quantizers.base import Parts as Parts
from minips.stages.quantizers.base import Quantizer as Quantizer
from minips.stages.quantizers.base import contractive as contractive
from minips.stages.quantizers.casts import BFloat16 as BFloat16
from minips.stages.quantizers.casts import Exact as Exact
from minips.stages.quantizers.casts import Float16 as Float16
from minips.stages.quantizers.integers import QSGD as QSGD
from minips.stages.quantizers.integers import Ternary as Ternary
from minips.stages.quantizers.integers import TwoBit as TwoBit
from minips.stages.quantizers.integers import Uniform as Uniform
from minips.stages.quantizers.lowrank import PowerSGD as PowerSGD
from minips.stages.quantizers.signs import Sign as Sign
from minips.stages.quantizers.sparse import RandomK as RandomK
from minips.stages.quantizers.sparse import Threshold as Threshold
from minips.stages.quantizers.sparse import TopK as TopK
