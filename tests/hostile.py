"""Hostile inputs from a seeded generator, over a transport, to a server in a process of its own.

`python tests/hostile.py TRANSPORT` is that server: 1,000 values, served until its stdin closes.
"""

import contextlib
import json
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgpack
import numpy as np

import minips as ps
from minips.core.codec import unpack
from minips.core.fields import REQUESTS
from minips.stages.transports.auth import authenticate

TOKEN, VALUES, WORKERS, WAIT_S = "hostile", 1000, 4, 30.0
START = np.arange(VALUES, dtype="f4")
ZEROS = np.zeros(VALUES, "f4")
GOOD = 3
"""The worker of the well-behaved client; the hostile one is worker 0."""
FOREIGN = re.compile(
    r"Traceback|object (is not|has no|of type)|'NoneType'|not subscriptable|unhashable|not iterable|not callable|"
    r"invalid literal|unpack\(|to unpack|Unpack failed|extra data|cannot reshape|inhomogeneous|could not convert|"
    r"codec can't|must be (str|int|real number|a str)|got an unexpected|positional argument|list index|out of range|"
    r"division by zero|recursion|KeyError|TypeError|AttributeError|IndexError|OverflowError|struct\.error|0x[0-9a-f]{8}"
)
MOST_CHARACTERS = 2000
ENVELOPE = {"v": 3, "s": "msgpack", "c": "none"}
ODD = [None, True, False, -1, 0, 1, 7, 2**31, 2**63 - 1, 2**63, -(2**63), 1.5, -0.0, float("nan"), float("inf"), "",
       "x", "0", "none", "delta", "x" * 3000, b"x", [], [1], ["w"], [None], [[]], {}, {"w": 1}, {"w": [0]}, {"w": [-1]},
       {"w": [True]}, {"w": ["0"]}, {"w": [2**63]}, {"v": []}, {"": []}, "\udc80é", [[[[[[]]]]]]]  # fmt: skip
TRANSPORTS = {"tcp": ps.Tcp, "shm": ps.SharedMemory, "http": ps.Http, "zmq": ps.Zmq, "grpc": ps.Grpc}


def fault(text):
    """What is wrong with a refusal; an empty text where it is one sentence in the words of minips."""
    if not text:
        return "it is empty"
    if len(text) > MOST_CHARACTERS:
        return f"it has {len(text)} characters"
    if found := FOREIGN.search(text):
        return f"it has the interpreter's {found[0]!r}"
    return "" if text.rstrip().endswith((".", "?")) else "it does not end like a sentence"


# The server, in a process of its own


def serve(transport):
    config = ps.Config(transport=transport, consistency="asp", workers=WORKERS)
    with ps.Server({"w": START.copy()}, config).serve(token=TOKEN) as server:
        print(json.dumps(server.address), flush=True)
        sys.stdin.read()


class Process:
    """A fresh server; `high_mb` is the most memory that it has had resident."""

    def __init__(self, transport):
        self.transport = TRANSPORTS[transport]()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, __file__, transport], text=True, **pipes)
        self.address = json.loads(self._process.stdout.readline())

    @property
    def high_mb(self):
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024

    @property
    def lives(self):
        return self._process.poll() is None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, self.stderr = self._process.communicate("", WAIT_S)
        self._process.kill()
        self._process.wait(WAIT_S)


class Good(threading.Thread):
    """A well-behaved client, which pushes zeros and pulls; `longest_s` is its longest wait."""

    def __init__(self, server):
        super().__init__(name="good")
        self._server, self._over, self.longest_s, self.served, self.failed = server, threading.Event(), 0.0, 0, None

    def run(self):
        try:
            with ps.connect(self._server.address, worker=GOOD, token=TOKEN, transport=self._server.transport) as client:
                while not self._over.wait(0.01):
                    began = time.monotonic()
                    self.params = client.push_pull({"w": ZEROS}).result(WAIT_S)["w"].copy()
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                    self.served += 1
        except Exception as error:
            self.failed = error

    def end(self):
        self._over.set()
        self.join(WAIT_S)


# Calls, whose framing is whole


def header(rng):
    """A valid header of a random kind."""
    kind = rng.choice([*REQUESTS])
    said = {"kind": kind, "worker": 0, "memory": "none"}
    if "push" in kind:
        said |= {"clock": rng.choice([0, 1, 2**40]), "version": 0, "loss": rng.choice([None, 0.5, 3])}
    if "pull" in kind:
        said |= rng.choice([{}, {"names": ["w"]}, {"rows": {"w": [0, 999]}}])
    if kind == "status":
        said |= {"config": rng.random() < 0.5}
    return said


def message(rng):
    """A valid message: header, index and frames. What it pushes is zero."""
    said = header(rng)
    if "push" not in said["kind"]:
        return said, [], []
    return said, [["w", "exact", [["values", "float32", [VALUES]]]]], [ZEROS.tobytes()]


def packed(said, index, values, envelope=None):
    return [msgpack.packb(envelope or ENVELOPE), msgpack.packb([said, index], strict_types=False), *values]


def odd(rng):
    while True:
        value = rng.choice(ODD)
        with contextlib.suppress(UnicodeEncodeError):
            msgpack.packb(value)
            return value


def mutated(rng, data):
    """The bytes, some of them flipped, cut off or added."""
    data = bytearray(data)
    way = rng.randrange(4)
    if way == 0 and data:
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif way == 1:
        del data[rng.randrange(len(data) + 1) :]
    elif way == 2:
        data += rng.randbytes(rng.choice([1, 4, 64]))
    else:
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.randbytes(rng.choice([1, 4, 9]))
    return bytes(data)


def wrong_field(rng):
    said, index, values = message(rng)
    for _ in range(rng.choice([1, 1, 2])):
        names = (
            [*REQUESTS[said["kind"]]] if isinstance(said.get("kind"), str) and said["kind"] in REQUESTS else ["worker"]
        )
        name = rng.choice([*names, "unknown", "clock", "of", "rows"])
        if name != "diverged":  # which is a word that ends the run
            said[name] = odd(rng)
    if rng.random() < 0.1:
        said.pop(rng.choice([*said]))
    return packed(said, index, values)


def wrong_envelope(rng):
    said, index, values = message(rng)
    envelope = {**ENVELOPE, rng.choice(["v", "s", "c", "clock", "busy", "new"]): odd(rng)}
    if rng.random() < 0.2:
        envelope.pop(rng.choice("vsc"))
    return packed(said, index, values, envelope)


def other_stage(rng):
    said, index, values = message(rng)
    kinds = {"s": ps.names("serializer"), "c": ps.names("compressor")}
    envelope = {**ENVELOPE, **{key: rng.choice(known) for key, known in kinds.items()}}
    return packed(said, index, values, envelope)


def mutated_head(rng):
    frames = packed(*message(rng))
    which = rng.randrange(2)
    frames[which] = mutated(rng, frames[which])
    return frames


def wrong_frames(rng):
    """Too many frames, too few, or ones of another length."""
    frames = packed(*message(rng))
    way = rng.randrange(4)
    if way == 0:
        return frames + [b"x" * rng.choice([0, 1, 64])] * rng.choice([1, 3, 500])
    if way == 1:
        return frames[: rng.randrange(len(frames))]
    if way == 2:
        return [rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(4))]
    return [*frames[:-1], frames[-1] + bytes(rng.choice([1, 4, 400]))]


def nested(rng):
    opening, closing = rng.choice([(b"\x91", b"\xc0"), (b"\x81\xa1w", b"\xc0"), (b"[", b"]"), (b'{"w":', b"1")])
    deep = opening * rng.choice([50, 400, 2000, 20_000]) + closing
    envelope = {**ENVELOPE, "s": "json" if opening in (b"[", b'{"w":') else "msgpack"}
    return [msgpack.packb(envelope), deep]


def wrong_parts(rng):
    """A push whose quantizer, dtype, shape or parts are not what they say."""
    said = {"kind": "push", "worker": 0, "memory": "none", "clock": 0, "version": 0, "loss": None}
    quantizer = rng.choice([*ps.names("quantizer"), "", "x" * 200, 3])
    names = rng.sample(
        [
            "values",
            "indices",
            "seed",
            "codes",
            "bits",
            "block",
            "range",
            "levels",
            "unit",
            "scale",
            "threshold",
            "P",
            "R",
        ],
        rng.randrange(5),
    )
    shapes = [[], [0], [1], [3], [VALUES], [-1], [2**40], [2, 500], [0, VALUES], ["x"], 3, None, [1.5]]
    dtypes = ["float32", "float64", "uint8", "uint32", "uint64", "float16", "bool", "object", "U4", "", None, 7]
    parts, values = [], []
    for name in [*names, *rng.choice([[], ["like"]])]:
        shape = [0, VALUES] if name == "like" and rng.random() < 0.7 else rng.choice(shapes)
        dtype = "float32" if name == "like" and rng.random() < 0.7 else rng.choice(dtypes)
        parts.append([name, dtype, shape])
        values.append(bytes(rng.choice([0, 1, 4, 8, 12, 4000])))
    tensor = [rng.choice(["w", "v", "", 5]), quantizer, rng.choice([parts, parts, parts, None, [[]]])]
    return packed(said, rng.choice([[tensor], [tensor], [tensor, tensor], [[]], None, 3, {"w": tensor}]), values)


def wrong_state(rng):
    """A goodbye that leaves what no worker could go on from."""
    memory = {"map": [["w", {"map": [["e", {"array": "e"}]]}]]}
    link = {"encoder": {"map": [["memory", memory], ["draws", odd_json(rng)]]}, "decoder": odd_json(rng), "version": 0}
    tree = {
        "map": [
            ["format", rng.choice([1, 1, 1, 2, "x"])],
            ["link", rng.choice([odd_json(rng), {"map": [*link.items()]}])],
        ]
    }
    text = json.dumps(rng.choice([tree, tree, odd_json(rng)])).encode()
    text = mutated(rng, text) if rng.random() < 0.3 else text
    names = rng.choice([["minips"], ["minips", "e"], ["e"], []])
    index = [[name, "exact", [["values", "uint8", [len(text)]]]] for name in names]
    return packed({"kind": "bye", "worker": 0, "state": True}, index, [text] * len(names))


def odd_json(rng):
    values = [None, 3, "x", [], {"map": []}, {"map": 3}, {"map": [[]]}, {"tuple": []}, {"array": "e"}, {"array": 5}, {}]
    return rng.choice([*values, {"map": [["memory", {"map": [["w", 3]]}]]}, {"map": [[[], 1]]}, {"array": "none"}])


CALLS = [wrong_field] * 6 + [
    wrong_envelope,
    other_stage,
    mutated_head,
    mutated_head,
    wrong_frames,
    nested,
    wrong_parts,
    wrong_state,
]


# Streams, whose framing is not


def body(rng):
    """Bytes that are no message, or not quite: wrong tags, lengths and counts, and nonsense."""
    way = rng.randrange(5)
    if way == 0:
        return rng.randbytes(rng.randrange(200))
    if way == 1:
        return struct.pack(
            "<BxxxI", rng.randrange(256), rng.choice([0, 1, 2**16, 2**16 + 1, 2**27, 2**32 - 1])
        ) + bytes(56)
    if way == 2:
        return struct.pack("<BxxxIQ", 0, 1, rng.choice([2**31 + 1, 2**40, 2**63, 2**64 - 1])) + bytes(48)
    frames = packed(*message(rng))
    return mutated(rng, b"".join(ps.stages.transports.framing.pieces(rng.choice([0, 0, 1, 2, 3]), frames)))


def request(rng):
    """An HTTP request that makes no sense, or has no session."""
    said = body(rng)
    line = rng.choice([b"POST / HTTP/1.1", b"GET / HTTP/1.1", b"PUT /x HTTP/1.1", b"POST / HTTP/9", b"\x16\x03\x01"])
    length = rng.choice([len(said), len(said), 0, 2**40, -1, 3])
    number = rng.choice([b"0", b"-1", b"x", b"9" * 30])
    return b"%s\r\nHost: x\r\nMinips-Session: x\r\nMinips-Call: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        line, number, length, said)  # fmt: skip


def at_stream(rng, server, transport):
    """Send nonsense over a connection of its own, with the token's proof before it or without."""
    if transport in ("http", "zmq", "grpc"):
        host, _, port = server.address.partition("://")[2].rpartition(":")
        with socket.create_connection((host, int(port)), WAIT_S) as sock, contextlib.suppress(OSError):
            sock.sendall(request(rng) if transport == "http" else body(rng))
            sock.settimeout(0.005)
            return sock.recv(2**16)
        return b""
    wire = server.transport.dial(server.address, WAIT_S)
    try:
        if rng.random() < 0.6:
            authenticate(wire, TOKEN, server.address, WAIT_S)
        elif rng.random() < 0.5:  # a proof that proves nothing
            wire.receive(WAIT_S)
            wire.send(2, [rng.randbytes(rng.choice([0, 31, 32, 33])) for _ in range(rng.choice([1, 2, 3]))])
        wire.write([body(rng)])
        tag, frames = wire.receive(0.02)
        return bytes(frames[1]) if tag == 1 and len(frames) == 2 else b""
    except (OSError, EOFError, ValueError):
        return b""
    finally:
        wire.close()


class Hostile:
    """One hostile member: it keeps its connection, and makes another where the server has hung up."""

    def __init__(self, server, transport, seed):
        self.server, self.transport, self.rng = server, transport, random.Random(seed)
        self.refused = self.taken = self.hung_up = 0
        self.faults, self._channel, self._secret = [], None, {}

    def attack(self, count, streams):
        """So many hostile calls, and besides so many hostile streams."""
        for number in range(count):
            make = self.rng.choice(CALLS)
            self._call(make.__name__, make(self.rng))
            if number * streams // count != (number + 1) * streams // count:
                said = at_stream(self.rng, self.server, self.transport)
                if self.transport in ("tcp", "shm") and said and (wrong := fault(said.decode(errors="replace"))):
                    self.faults.append(("stream", wrong, said))
        if self._channel:
            self._channel.close()

    def _call(self, what, frames):
        try:
            channel = self._channel or self._connected()
            channel.call(frames).result(WAIT_S)
            self.taken += 1
        except ConnectionError:  # the server has hung up
            if self._channel:
                self._channel.close()
            self._channel, self.hung_up = None, self.hung_up + 1
        except Exception as error:
            self.refused += 1
            if wrong := fault(str(error)):
                self.faults.append((what, wrong, f"{type(error).__name__}: {error}"[:300]))

    def _connected(self):
        self._channel = self.server.transport.connect(self.server.address, TOKEN, WAIT_S)
        hello = {"kind": "hello", "worker": 0, "memory": "none", **self._secret}
        packet, *_ = unpack(self._channel.call(packed(hello, [], [])).result(WAIT_S), ps.Codec(), ps.Trace())
        self._secret |= {name: told for name, told in packet.header.items() if name == "secret"}
        return self._channel


if __name__ == "__main__":
    serve(sys.argv[1])
