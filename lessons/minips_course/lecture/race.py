"""Time calls of torch and of minips alternately, between the same two processes."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps

CONFIG = ps.Config(workers=1, optimizer=ps.SGD(lr=0.5))
TOKEN = "lesson"


def serve(values: int) -> ps.Server:
    """Start a minips server with this many float32 values; it already answers."""
    return ps.Server({"w": np.zeros(values, "f4")}, CONFIG).serve(token=TOKEN)


def race(reference: Any, address: str, gradients: Any, turns: int = 5, calls: int = 40) -> list[float]:
    """Return, for each turn, torch's shortest time of a call divided by that of minips' push_pull. Both push gradients
    and return the new parameters. It compares shortest times, since other programs can only add to a time.
    """
    ratios, arrays = [], {"w": np.asarray(gradients)}
    with ps.connect(address, CONFIG, worker=0, token=TOKEN) as client:
        for _ in range(turns):
            theirs, ours = [], []
            for _ in range(calls):
                theirs.append(seconds(lambda: reference.rpc_sync().apply_gradients(gradients)))
                ours.append(seconds(lambda: client.push_pull(arrays).result(60)))
            ratios.append(min(theirs) / min(ours))
    return ratios


def seconds(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
