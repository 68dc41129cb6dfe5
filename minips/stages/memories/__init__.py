"""Memories: state that a sender or a receiver keeps for a tensor. The contract is `Memory`."""

from minips.stages.memories.base import Memory, NoMemory, State
from minips.stages.memories.feedback import Delta, ErrorFeedback, MomentumCorrection

__all__ = ["Delta", "ErrorFeedback", "Memory", "MomentumCorrection", "NoMemory", "State"]
