"""Closed forms, in SI units: bytes, seconds, bytes per second. Each says what it assumes and where it comes from."""

from minips.cost.formulas.exchange import (
    halving_doubling_s,
    parameter_server_s,
    parameter_server_step_s,
    pipelined_s,
    ring_allreduce_s,
    tree_allreduce_s,
)
from minips.cost.formulas.stragglers import (
    asynchronous_lr_limit,
    asynchronous_update_s,
    exponential_round_s,
    exponential_update_s,
    synchronous_round_s,
)
from minips.cost.formulas.tradeoffs import best_chunks, break_even_bandwidth, crossover_nbytes

__all__ = [
    "asynchronous_lr_limit",
    "asynchronous_update_s",
    "best_chunks",
    "break_even_bandwidth",
    "crossover_nbytes",
    "exponential_round_s",
    "exponential_update_s",
    "halving_doubling_s",
    "parameter_server_s",
    "parameter_server_step_s",
    "pipelined_s",
    "ring_allreduce_s",
    "synchronous_round_s",
    "tree_allreduce_s",
]
