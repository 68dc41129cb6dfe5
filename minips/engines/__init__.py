"""Engines: where servers and workers run. One call trains on any of them."""

from minips.engines.base import Engine
from minips.engines.processes import Processes
from minips.engines.threads import Threads

__all__ = ["Engine", "Processes", "Threads"]
