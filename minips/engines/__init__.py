"""Engines: where servers and workers run. The same call trains on threads or on processes."""

from minips.engines.base import Engine
from minips.engines.processes import Processes
from minips.engines.threads import Threads

__all__ = ["Engine", "Processes", "Threads"]
