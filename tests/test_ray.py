"""Runs on Ray clusters: on the loopback of a network of their own, and on two hosts that the test makes."""

import dataclasses
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import hosts
import pytest

import minips as ps

PROGRAM = Path(__file__).with_name("on_ray.py")
needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed")
needs_hosts = pytest.mark.skipif(
    bool(sys.platform != "linux" or hosts.lacking()), reason="no namespaces can be made here"
)


@needs_ray
@needs_hosts
def test_a_cluster_on_one_machine():
    found = json.loads(hosts.on_loopback(str(PROGRAM), "on_one_machine", timeout=280))
    assert found["same"], "not the parameters of Processes"
    assert found["spans"] == ["server 0", "server 1", *(f"worker {worker}" for worker in range(4))]
    assert found["spans within the run"]
    assert found["own stage"]
    assert found["ring"]
    assert found["stopped"]
    assert found["failed"].endswith("ArithmeticError: the third law is broken")
    assert 'raise ArithmeticError("the third law is broken")' in found["traceback"]
    assert found["pauses"] == [10, 20]
    assert found["still connected"], "what was there was not left as it was"
    assert found["disconnected"]
    assert found["CPUs free again"] == 6
    assert found["groups"] == ["REMOVED"]
