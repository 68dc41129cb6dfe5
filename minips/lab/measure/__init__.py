"""Measuring: turns of contenders, races of messages over transports, and a parameter server on torch.distributed.rpc.

`turns` and `pairs` run in the process that measures; `trips`, `rounds` and `with_torch` in those that it starts. These
import nothing that draws or shows, so nothing here imports another module of the lab.
"""
