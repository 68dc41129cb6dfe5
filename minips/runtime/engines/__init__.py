"""Engines: where servers and workers run. The same call trains on threads or on processes."""

from minips.runtime.engines.base import Engine, Outcome, Progress
from minips.runtime.engines.processes import Processes
from minips.runtime.engines.threads import Threads

__all__ = ["Engine", "Outcome", "Processes", "Progress", "Threads"]
