"""Engines run servers and workers as threads, processes, hosts or in virtual time; one call trains on any of them."""

from typing import TYPE_CHECKING

from minips.engines.base import Engine
from minips.engines.processes import Processes
from minips.engines.threads import Threads
from minips.stage import announce, stage_class

__all__ = ["Engine", "Hosts", "Processes", "Ray", "Simulated", "Threads"]

announce("engine", "simulated", "minips.engines.simulated.engine:Simulated")
announce("engine", "hosts", "minips.engines.hosts:Hosts")
announce("engine", "ray", "minips.engines.on_ray:Ray")

if TYPE_CHECKING:
    from minips.engines.hosts import Hosts
    from minips.engines.on_ray import Ray
    from minips.engines.simulated.engine import Simulated
else:

    def __getattr__(name):
        if name in ("Hosts", "Ray", "Simulated"):
            return stage_class("engine", name.lower())
        raise AttributeError(f"minips.engines has no {name!r}")


def __dir__() -> list[str]:
    return __all__
