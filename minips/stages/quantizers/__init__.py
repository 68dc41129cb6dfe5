"""Quantizers: fewer bits for an array, and back.

The contract is `Quantizer`. The schemes stand by family: `casts` (a smaller float), `integers` (levels between two
ends), `signs` (one bit), `sparse` (few of the values).
"""

from minips.stages.quantizers.base import Parts, Quantizer
from minips.stages.quantizers.casts import Exact, Float16
from minips.stages.quantizers.integers import Uniform
from minips.stages.quantizers.signs import Sign
from minips.stages.quantizers.sparse import TopK

__all__ = ["Exact", "Float16", "Parts", "Quantizer", "Sign", "TopK", "Uniform"]
