"""Calls over several contenders in one serving process: turns, bursts, and those that cannot take part."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import numpy as np
import pytest

import minips as ps
from minips.lab.measure.pairs import Contender, frames, frames_server
from minips.machines.fit import Line
from minips_course.move import crowd

TCP = Contender("tcp", frames, frames_server, {"transport": ps.Tcp()}, applies=False)


@contextmanager
def no_server(*, values: int) -> Iterator[str]:
    raise RuntimeError("it does not start")
    yield ""


@contextmanager
def server(*, values: int) -> Iterator[str]:
    yield "nowhere"


@contextmanager
def wrong(address: str, *, values: int) -> Iterator[Any]:
    yield lambda: np.zeros(values, np.float32)


@contextmanager
def no_way(address: str, *, values: int) -> Iterator[Any]:
    raise ConnectionError("nobody is there")
    yield


OTHERS = [
    Contender("missing", frames, frames_server, skipped="skipped: install it"),
    Contender("no server", wrong, no_server),
    Contender("no way", no_way, server),
    Contender("wrong", wrong, server),
]


def test_the_others_are_measured_and_each_that_cannot_take_part_says_why() -> None:
    calls, skipped = crowd.alone([TCP, *OTHERS], {1_000: 4, 4_000: 3})
    assert {size: {name: len(seconds) for name, seconds in row.items()} for size, row in calls.items()} == {
        1_000: {"tcp": 4},
        4_000: {"tcp": 3},
    }
    assert all(0 < second < 10 for row in calls.values() for second in row["tcp"].values())
    assert skipped["missing"] == "skipped: install it"
    assert "it does not start" in skipped["no server"]
    assert "nobody is there" in skipped["no way"]
    assert "not what was sent" in skipped["wrong"]


def test_bursts_of_several_callers_in_several_processes() -> None:
    rates, skipped = crowd.together([TCP, *OTHERS], 1_000, (1, 5), rounds=2, seconds=0.05)
    assert {count: {name: sorted(row) for name, row in of.items()} for count, of in rates.items()} == {
        1: {"tcp": [0, 1]},
        5: {"tcp": [0, 1]},
    }
    assert all(rate > 10 for of in rates.values() for rate in of["tcp"].values())
    assert set(skipped) == {"missing", "no server", "no way", "wrong"}


def test_a_caller_that_starts_late_makes_one_call() -> None:
    rates, _ = crowd.together([TCP], 1_000, (3,), rounds=1, seconds=0.0)
    assert rates[3]["tcp"][0] > 0


def test_a_line_is_fitted_to_halves_of_calls_and_tested_where_it_has_not_looked() -> None:
    sizes = (1_000, 10_000, *crowd.HELD_OUT, 1_000_000)
    calls = {size: {"tcp": {turn: 2 * (1e-4 + 1e-9 * size) for turn in range(3)}} for size in sizes}
    calls[crowd.HELD_OUT[0]]["tcp"] = {0: 1.0}
    lines = crowd.fitted(calls)
    assert lines["tcp"].fixed_s == pytest.approx(1e-4)
    assert lines["tcp"].each_s == pytest.approx(1e-9)
    found = crowd.held_out(lines, calls)
    assert found["between"].median < 0.001
    assert found["beyond"].median == found["least"] == pytest.approx(1)
    rates = {1: {"tcp": {0: 10_000.0}}, 16: {"tcp": {0: 12_000.0}}}
    assert crowd.gains(rates)["times"].median == pytest.approx(1.2)
    assert crowd.in_turns(lines, rates)["times"] == pytest.approx(2 * 1.01e-4 * 10_000)
    assert crowd.yours(lines, rates) == pytest.approx({"twice": 100, "times": 1.2})
    assert crowd.order({"b": Line(1, 2), "a": Line(2, 1)}) == {"by_alpha": "b, a", "by_beta": "a, b"}


@pytest.mark.parametrize("serializer", ["serpent", "msgpack"])
def test_pyro_without_minips(serializer: str) -> None:
    pytest.importorskip("Pyro5")
    calls, skipped = crowd.alone([crowd.bare_pyro(serializer)], {1_000: 2})
    assert [*calls[1_000][f"pyro-{serializer}"]] == [0, 1]
    assert skipped == {}


def test_a_proxy_that_another_thread_has_called_closes() -> None:
    pytest.importorskip("Pyro5")
    parts = {"serializer": "msgpack", "values": 4}
    with crowd._pyro_server(**parts) as address, crowd._pyro(address, **parts) as call:
        thread = Thread(target=call)
        thread.start()
        thread.join()
