"""A server and a client over each transport, at a fresh address and at others; prints where each was, or why not.

It runs in networks of its own, which have one loopback of the two, or none: ``python tests/loopbacks.py HOST…``. With
``train`` as the host it trains over the transports.
"""

import sys

import minips as ps
from minips.stage import missing, stage_class

TRANSPORTS = [name for name in ps.names("transport") if not missing(stage_class("transport", name))]
NETWORK = [name for name in TRANSPORTS if stage_class("transport", name).reach == "network"]


def asked(transport, address):
    """The address that was served, without its port, once a client has had an answer."""
    with transport.serve(lambda frames: frames, address, "token") as endpoint:
        head, _, port = endpoint.address.rpartition(":")
        where = address.removesuffix("0") + port if address else endpoint.address
        with transport.connect(where, "token", timeout=5.0) as channel:
            assert [bytes(frame) for frame in channel.call([b"hello"]).result(10)] == [b"hello"]
        return head


def said(name, host):
    transport = ps.build("transport", name)
    try:
        return asked(transport, f"{name}://{host}:0" if host else None)
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def trained(name):
    problem = ps.LinearRegression([[0.0], [1.0], [2.0], [3.0]], [1.0, 2.0, 3.0, 4.0])
    config = ps.Config(transport=name, workers=2, servers=2, steps=3)
    ring = ps.Config(transport=name, workers=2, steps=3, exchange="ring")
    engine = "threads" if name == "inproc" else "processes"
    return [ps.train(problem, one, engine=engine).updates for one in (config, ring)]


if __name__ == "__main__":
    for name in TRANSPORTS:
        for host in [None, *(sys.argv[1:] if name in NETWORK else [])]:
            print(name, host, trained(name) if host == "train" else said(name, host), sep="|", flush=True)
