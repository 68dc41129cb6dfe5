"""Measuring: turns of contenders, races of messages over transports, and a parameter server on torch.distributed.rpc.

`turns` runs in the process that measures, `rounds` and `with_torch` run in processes that it starts, and `pairs` runs
in both. None of them imports another module of the lab, since these processes show no widgets and no pictures.
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
