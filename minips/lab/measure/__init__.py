"""Measuring: turns of contenders, races of messages over transports, and a parameter server on torch.distributed.rpc.

`turns` run in the process that measures, `rounds` and `with_torch` in those that it starts, and `pairs` in both. None
of them imports another module of the lab: those processes need nothing that draws or shows.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minips.lab.measure import pairs, turns, with_torch
else:

    def __getattr__(name):
        if name in __all__:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"minips.lab.measure has no {name!r}")


__all__ = ["pairs", "turns", "with_torch"]
