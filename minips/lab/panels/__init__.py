"""Small interactive panels, one per file; their common parts are in ``base``."""

from minips.lab.panels.alpha_beta import AlphaBeta
from minips.lab.panels.base import Panel
from minips.lab.panels.codec_explorer import CodecExplorer
from minips.lab.panels.collectives import Collectives
from minips.lab.panels.compressor_explorer import CompressorExplorer
from minips.lab.panels.frame_viewer import FrameViewer
from minips.lab.panels.gradient_shards import GradientShards
from minips.lab.panels.robust_aggregation import RobustAggregation
from minips.lab.panels.stragglers import Stragglers
from minips.lab.panels.transport_ladder import TransportLadder

__all__ = ["AlphaBeta", "CodecExplorer", "Collectives", "CompressorExplorer", "FrameViewer", "GradientShards"]
__all__ += ["Panel", "RobustAggregation", "Stragglers", "TransportLadder"]
