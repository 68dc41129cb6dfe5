"""A program for `test_ray`: runs on a Ray cluster, within a network that the test has made. It prints what it found as
JSON, and runs as ``__main__``, as a learner's script does.
"""

import json
import os
import socket
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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


class Known(ps.LinearRegression):
    """Its gradient is known to whoever reads along."""

    def loss_and_gradient(self, params, rows=None):
        value = np.frombuffer(b"min!", np.float32)[0]
        return 0.0, {name: np.full(p.shape, value, np.float32) for name, p in params.items()}


class Fails(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        raise ArithmeticError("the third law is broken")


def same(one, other):
    return all(np.array_equal(x, other.params[name]) for name, x in one.params.items())


def whole(run):
    """Every message has both ends, in this order but for the error of the clocks; the bytes are the run's; it plays."""
    messages, slack = run.messages, 2 * run.clock_error_s
    sent = sum(one.nbytes for one in messages if one.sender.startswith("worker"))
    received = sum(one.nbytes for one in messages if one.receiver.startswith("worker"))
    return {
        "ends": all(None not in (one.start, one.end) and one.start <= one.end + slack for one in messages),
        "bytes": (sent, received) == (run.bytes_sent, run.bytes_received),
        "waits": all(wait.partners for wait in run.waits),
        "played": sum(map(len, ps.lab.replay(run).data["runs"][0]["messages"].values())) > 0,
    }


def on_two_hosts(address):
    """The same bits as on one machine, and the bytes between the two."""
    run = ps.train(DIGITS, CONFIG, engine=ps.Ray())  # finds what was started here
    found = {"same": same(ps.train(DIGITS, CONFIG), run), "events": [text for _, text in run.events]}
    found["spans"] = [min(s.start for s in run.trace), max(s.start + s.seconds for s in run.trace), run.seconds]
    found["messages"], found["clock error"] = whole(run), run.clock_error_s
    million = ps.MLP(*ps.datasets.digits(), hidden=13_500)
    for tls in (True, False):
        before = travelled()
        run = ps.train(million, CONFIG.with_({"optimizer.lr": 0.001}), engine=ps.Ray(address, tls=tls))
        # Of two servers each worker has one on its own host.
        found[f"tls={tls}"] = [travelled() - before, (run.bytes_sent + run.bytes_received) / 2]
        with overheard() as heard:
            ps.train(
                Known(*ps.datasets.synthetic(rows=64, features=5000)),
                ps.Config(workers=2, steps=2, servers=2),
                engine=ps.Ray(address, tls=tls),
            )
        found[f"read, tls={tls}"] = b"min!" * 8 in b"".join(heard)
        found[f"heard, tls={tls}"] = sum(map(len, heard))
    return found


def travelled():
    """Bytes that eth0 has sent and received."""
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("eth0:"))
    numbers = line.split(":")[1].split()
    return int(numbers[0]) + int(numbers[8])


@contextmanager
def overheard():
    """All that passes eth0 meanwhile."""
    heard, over = [], threading.Event()

    def listen():
        while not over.is_set():
            with suppress(TimeoutError):
                heard.append(sock.recv(2**17))

    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**24)
        sock.bind(("eth0", 0))
        sock.settimeout(0.1)
        listening = threading.Thread(target=listen)
        listening.start()
        try:
            yield heard
        finally:
            over.set()
            listening.join()


def at_home():
    """The local addresses of all sockets, but the loopback's, while Ray and torch work on this machine alone."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # which has the benchmarks
    from benchmarks import pushpull

    found, over = set(), threading.Event()

    def look():
        while not over.wait(0.02):
            for family in ("tcp", "tcp6", "udp", "udp6"):
                rows = Path("/proc/net", family).read_text().splitlines()[1:]
                found.update(f"{family} {address}" for address in {row.split()[1].split(":")[0] for row in rows})

    looking = threading.Thread(target=look)
    looking.start()
    try:
        runs = [ps.train(DIGITS, CONFIG, engine=engine) for engine in (ps.Ray(), ps.Processes())]
        there = [name for name in ("ray", "torch") if find_spec(name)]
        rows = [*pushpull.measure([100], transports=["tcp"], references=there, rounds=3)]
    finally:
        over.set()
        looking.join()
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}
    return {
        "same": same(*runs),
        "skipped": [row.skipped for row in rows if row.skipped],
        "loopback": [one for one in found if one.split()[1] in loopback],
        "elsewhere": [one for one in found if one.split()[1] not in loopback],
    }


def until_killed(address, steps):
    """A run in which the test kills somebody: where its processes are, and how it ended."""
    import ray

    from minips.engines import on_ray

    places = {}

    class Noted(on_ray._ActorChild):
        def __init__(self, cluster, who, actor, info, *more):
            super().__init__(cluster, who, actor, info, *more)
            places[who] = (info.host, info.pid)

    on_ray._ActorChild = Noted
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    found = {}

    def going(news):
        if not found and news.applied > 8:
            found["events"] = []
            print(json.dumps(places), flush=True)

    try:
        config = ps.Config(workers=4, servers=2, steps=int(steps), delays=ps.Delays(0.01))
        run = ps.train(DIGITS, config, engine=ps.Ray(), progress=going)
        found["events"], found["updates"] = [text for _, text in run.events], run.updates
    except RuntimeError as error:
        found["error"] = str(error)
    print(json.dumps(found), flush=True)
    groups = {one["state"] for one in ray.util.placement_group_table().values()}
    ray.shutdown()
    return sorted(groups)


def on_one_machine():
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
    cluster.add_node(num_cpus=3)
    found = {}
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        engine = ps.Ray()
        run = ps.train(DIGITS, CONFIG, engine=engine)
        reference = ps.train(DIGITS, CONFIG)
        found["same"], found["bytes"] = same(reference, run), reference.bytes_sent == run.bytes_sent
        found["spans"] = sorted({span.who for span in run.trace})
        least = min(span.start for span in run.trace)
        found["messages"] = whole(run)
        found["spans within the run"] = least > -1 and max(s.start + s.seconds for s in run.trace) < run.seconds + 1
        own = ps.Config(workers=3, steps=5, exchange="ring", push=ps.Codec(Halves()))
        found["own stage"] = same(ps.train(DIGITS, own), ps.train(DIGITS, own, engine=engine))
        long = ps.Config(workers=1, steps=10**6)
        try:
            ps.train(Fails(*ps.datasets.digits()), long, engine=engine)
        except RuntimeError as error:
            found["failed"] = str(error)
            found["traceback"] = "".join(error.__notes__)
        found["still connected"] = ray.is_initialized()
        ray.shutdown()
        paused, stop = [], threading.Event()

        def pause(now):
            paused.append(now.step)
            if now.step == 20:
                stop.set()

        engine = ps.Ray(cluster.address, tls=False)
        run = ps.train(DIGITS, long, engine=engine, every=10, on_eval=pause, stop=stop)
        found["pauses"], found["stopped"] = paused[:2], run.stopped and run.updates < 10**6
        found["disconnected"] = not ray.is_initialized()
        try:
            ps.train(DIGITS, ps.Config(workers=50), engine=engine, stop=stop)
        except RuntimeError as error:
            found["no room"] = str(error)
        ray.init(address=cluster.address, log_to_driver=False)
        deadline = time.monotonic() + 10
        while ray.available_resources().get("CPU") != 6 and time.monotonic() < deadline:
            time.sleep(0.1)
        found["CPUs free again"] = ray.available_resources().get("CPU")
        found["groups"] = sorted({one["state"] for one in ray.util.placement_group_table().values()})
    finally:
        ray.shutdown()
        cluster.shutdown()
    return found


def restarted():
    """Three runs whose server, worker, and both of these are killed by SIGKILL and started again: the same bits?"""
    push = ps.Codec(quantizer=ps.TopK(fraction=0.1), memory=ps.Delta())
    config = ps.Config(workers=2, servers=2, steps=60, push=push, optimizer="adam")
    undisturbed, found = ps.train(DIGITS, config, engine="threads"), {"same": [], "events": []}
    for kill in ({"server 1": 20}, {"worker 0": 25}, {"server 0": 30, "worker 1": 40}):
        with tempfile.TemporaryDirectory() as folder:
            how = {"checkpoint": Path(folder, "run"), "faults": ps.Faults(kill=kill)}
            run = ps.train(DIGITS, config, engine=ps.Ray("local", restart=3), **how)
        found["same"].append(same(run, undisturbed))
        found["events"].append(sum("was started again" in text for _, text in run.events))
    return found


if __name__ == "__main__":
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
