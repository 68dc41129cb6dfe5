"""What an acknowledgement costs: calls to servers without a journal, with one, and with one that waits for the disk."""

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.lab.measure.turns import Spread, over, take_turns

ROUNDS = 40


class Price(NamedTuple):
    """The seconds of a push_pull of so many values, and how many times as long it takes with a journal, and synced."""

    values: int
    none_s: float
    journal: Spread
    synced: Spread


def measure(values: int, rounds: int = ROUNDS) -> Price:
    """Call servers that keep nothing, that keep a journal, and that wait for the disk, over tcp and in turns."""
    config = ps.Config(workers=1, consistency=ps.ASP(), transport=ps.Tcp())
    params, gradients = {"w": np.zeros(values, "f4")}, {"w": np.full(values, 1e-3, "f4")}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        kept: dict[str, ps.Checkpoint | None] = {"none": None, "journal": ps.Checkpoint(str(folder / "a"))}
        kept["synced"] = ps.Checkpoint(str(folder / "b"), sync=True)
        clients = {}
        for name, checkpoint in kept.items():
            server = stack.enter_context(ps.Server(params, config, checkpoint=checkpoint).serve())
            clients[name] = stack.enter_context(ps.connect(server.address, config, token=server.token))

        def called(name: str) -> float:
            began = time.perf_counter()
            clients[name].push_pull(gradients).result(timeout=60)
            return time.perf_counter() - began

        calls = {name: partial(called, name) for name in kept}
        seconds = take_turns(calls, {name: call() for name, call in calls.items()}, rounds, lambda text, share: None)
    journal, synced = over(seconds, "journal", "none"), over(seconds, "synced", "none")
    assert journal is not None
    assert synced is not None
    return Price(values, Spread.of(seconds["none"].values()).median, journal, synced)
