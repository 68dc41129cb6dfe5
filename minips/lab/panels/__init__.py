"""Small panels to touch, a file for each; what they share is in ``base``."""

from minips.lab.panels.base import Panel
from minips.lab.panels.frame_viewer import FrameViewer
from minips.lab.panels.gradient_shards import GradientShards

__all__ = ["FrameViewer", "GradientShards", "Panel"]
