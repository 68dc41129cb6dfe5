"""Measuring: turns of contenders, races of messages over transports, and a parameter server on torch.distributed.rpc.

`turns` and `pairs` run in the process that measures; `trips`, `rounds` and `with_torch` in those that it starts. None
of them imports another module of the lab: those processes need nothing that draws or shows.
"""
