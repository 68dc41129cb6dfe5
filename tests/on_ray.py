"""A program for `test_ray`: runs on a Ray cluster, within a network that the test has made. It prints what it found as
JSON, and runs as ``__main__``, as a learner's script does.
"""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np

import minips as ps

DIGITS = ps.SoftmaxRegression(*ps.datasets.digits())
CONFIG = ps.Config(workers=4, servers=2, steps=20)


@ps.register
@dataclass(frozen=True)
class Halves(ps.Quantizer):
    """A learner's own: multiples of one half of a thousandth."""

    name = "halves"

    def encode(self, x, rng):
        return ps.Exact().encode(np.round(x * 2000) / 2000, rng)

    def decode(self, encoded):
        return ps.Exact().decode(encoded)


class Fails(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        raise ArithmeticError("the third law is broken")


def same(one, other):
    return all(np.array_equal(x, other.params[name]) for name, x in one.params.items())


def on_one_machine():
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
    cluster.add_node(num_cpus=3)
    found = {}
    took = time.monotonic()
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        engine = ps.Ray()
        run = ps.train(DIGITS, CONFIG, engine=engine)
        found["started"] = time.monotonic() - took
        found["same"] = same(ps.train(DIGITS, CONFIG), run)
        found["spans"] = sorted({span.who for span in run.trace})
        least = min(span.start for span in run.trace)
        found["spans within the run"] = -1 < least and max(s.start + s.seconds for s in run.trace) < run.seconds + 1
        own = CONFIG.with_({"workers": 2, "servers": 1, "push.quantizer": Halves()})
        found["own stage"] = same(ps.train(DIGITS, own), ps.train(DIGITS, own, engine=engine))
        ring = ps.Config(workers=3, steps=5, exchange="ring")
        found["ring"] = same(ps.train(DIGITS, ring), ps.train(DIGITS, ring, engine=engine))
        stop = threading.Event()
        long = ps.Config(workers=2, steps=10**6)
        stopped = ps.train(DIGITS, long, engine=engine, progress=lambda news: stop.set(), stop=stop)
        found["stopped"] = stopped.stopped and 0 < stopped.updates < 2 * 10**6
        try:
            ps.train(Fails(*ps.datasets.digits()), long, engine=engine)
        except RuntimeError as error:
            found["failed"] = str(error)
            found["traceback"] = "".join(error.__notes__)
        found["still connected"] = ray.is_initialized()
        ray.shutdown()
        paused = []
        run = ps.train(
            DIGITS, CONFIG.with_({"workers": 2}), engine=ps.Ray(cluster.address, tls=False), every=10, on_eval=paused.append
        )
        found["pauses"] = [one.step for one in paused]
        found["disconnected"] = not ray.is_initialized()
        ray.init(address=cluster.address, log_to_driver=False)
        deadline = time.monotonic() + 10
        while ray.available_resources().get("CPU") != 6 and time.monotonic() < deadline:
            time.sleep(0.1)
        found["CPUs free again"] = ray.available_resources().get("CPU")
        found["groups"] = sorted({one["state"] for one in ray.util.placement_group_table().values()})
        found["seconds"] = time.monotonic() - took
    finally:
        ray.shutdown()
        cluster.shutdown()
    return found


if __name__ == "__main__":
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
