"""Stages as text under an earlier name: `parse_stage` is `minips.stage.build`, which takes all of a stage's forms."""

from minips.stage import build as parse_stage

__all__ = ["parse_stage"]
