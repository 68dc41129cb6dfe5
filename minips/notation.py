"""Keeps an earlier name: `parse_stage` is now `minips.stage.build`, which accepts every form of a stage."""

from minips.stage import build as parse_stage

__all__ = ["parse_stage"]
