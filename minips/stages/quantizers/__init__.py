"""Quantizers: an array in fewer bits, and back.

The contract is `Quantizer`. Each module contains a family of schemes: `casts` (a smaller float), `integers` (levels
between two limits), `signs` (one bit), `sparse` (a few of the values), `lowrank` (two thin factors), `adaptive` (the
cheapest quantizer that suffices). `packing` packs small codes into bytes.
"""

from minips.stages.quantizers.adaptive import Adaptive
from minips.stages.quantizers.base import Parts, Quantizer, contractive, empty_for, number, part, shape_tag, zeros_for
from minips.stages.quantizers.casts import BFloat16, Exact, Float16
from minips.stages.quantizers.integers import QSGD, Ternary, TwoBit, Uniform
from minips.stages.quantizers.lowrank import PowerSGD
from minips.stages.quantizers.signs import Sign
from minips.stages.quantizers.sparse import RandomK, Threshold, TopK

__all__ = ["QSGD", "Adaptive", "BFloat16", "Exact", "Float16", "Parts", "PowerSGD", "Quantizer", "RandomK"]
__all__ += ["Sign", "Ternary", "Threshold", "TopK", "TwoBit", "Uniform"]
__all__ += ["contractive", "empty_for", "number", "part", "shape_tag", "zeros_for"]
