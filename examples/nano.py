"""A whole parameter server in one file: workers push gradients, a server applies them, workers pull the parameters.

    python nano.py                                                     a server and four workers, each a process
    python nano.py serve --bind tcp://127.0.0.1:5000 --token-file token
    python nano.py work --connect tcp://127.0.0.1:5000 --token-file token              in four other terminals

Read it from top to bottom: the problem, the worker's loop, and the shard, which decides who waits for whom; then how
arrays become bits, messages and bytes, who may connect, the server's threads, and the command line. Both halves speak
version 3 of minips/core/PROTOCOL.md: `minips work` trains with this server, and these workers with `minips serve`,
under BSP to the same bits. Pulls by names and rows, reconnecting, several servers and TLS are left out.
"""

import argparse
import hashlib
import hmac
import multiprocessing
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from minips.datasets import digits

Array = NDArray[Any]
Tensors = dict[str, Array]
Header = dict[str, Any]
Packet = list[tuple[str, str, Tensors]]  # of each tensor its name, its quantizer, and the parts that this leaves of it
Frames = list[bytes]

WORKERS, STEPS = 4, 200  # WORKERS × STEPS pushes are a run
BATCH, LR, SEED = 32, 0.1, 0
CODEC = "exact"  # of gradients; or "sign", one bit for each value, with error feedback
CONSISTENCY = "bsp"  # rounds, in which all wait for all; or "asp", in which nobody waits
TIMEOUT_S, SILENCE_S = 60.0, 30.0  # the longest that a call waits for other workers, and a server for a call
MEET_S, LOOK_S, PROOF_S = 600.0, 0.2, 5.0  # for all workers to come; between two looks; for the proof of the token
MEMORY = {"exact": "none", "sign": "errorfeedback"}  # what a sender remembers, by codec
PLAIN = {"servers": 1, "sampling": "batch", "accumulate": 1, "overlap": False, "link": None, "delays": None}
CALL, ERROR, AUTH, POOL = range(4)  # what a message is


def loss_and_gradient(params: Tensors, X: Array, y: Array) -> tuple[float, Tensors]:
    """Softmax regression: the mean of −log P[y] with P = softmax(XW + b), and its gradient, XᵀR for W and ΣR for b with
    R = (P − onehot(y)) / n. X is (n, 64), W (64, 10), b (10,), P and R (n, 10).
    """
    scores = X @ params["W"] + params["b"]
    scores -= scores.max(axis=1, keepdims=True)  # which changes nothing but the range of exp
    P = np.exp(scores)
    total = P.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) - scores[np.arange(len(y)), y]
    R = (P / total - np.eye(10, dtype=X.dtype)[y]) / len(y)
    return float(losses.mean()), {"W": X.T @ R, "b": R.sum(axis=0)}


def report(who: str, params: Tensors) -> None:
    """Print the share of held-out digits that are read rightly, and the digest of the parameters."""
    _, _, X, y = digits()
    accuracy = np.mean((X @ params["W"] + params["b"]).argmax(axis=1) == y)
    digest = hashlib.sha256(b"".join(params[name].tobytes() for name in sorted(params))).hexdigest()
    print(f"{who}: accuracy {accuracy:.4f}, SHA-256 {digest}", flush=True)


def work(address: tuple[str, int], token: str) -> None:
    """Be one worker: gradient, push, pull, again, until the server says that the run is over."""
    with connected(address, token) as call:
        config = call("status", config=True)[0]["config"]
        codec, memory = (config["push"][stage].get("name") for stage in ("quantizer", "memory"))
        if MEMORY.get(codec) != memory or not PLAIN.items() <= (PLAIN | config).items():
            raise ValueError(f"Nano knows {MEMORY} and {PLAIN}; the server's config is {config}. Use minips work.")
        worker = call("hello", worker=-1, client=secrets.token_hex(16))[0]["worker"]
        X, y = (np.array_split(rows, config["workers"])[worker] for rows in digits()[:2])
        for _ in range(round(MEET_S / LOOK_S)):  # begin together, or the first to come does all of the work under ASP
            told, _ = call("status")
            if told["done"] or told["applied"] or all(one["connected"] for one in told["workers"]):
                break
            call("alive", worker=worker)
            time.sleep(LOOK_S)
        seed, size, errors = config["seed"], config["batch_size"], dict[str, Array]()
        said, params = call("pull", worker=worker)
        while not said["done"]:
            draw = np.random.default_rng([seed, worker, said["clock"], 0, 0])
            rows = draw.choice(len(X), size, replace=False, shuffle=False)
            loss, gradients = loss_and_gradient(params, X[rows], y[rows])
            header = {"worker": worker, "clock": said["clock"], "version": said["version"], "loss": loss}
            said, params = call("push_pull", compress(gradients, codec, errors), memory=memory, **header)
        call("bye", worker=worker)
    report(f"Worker {worker}, after {said['clock']} pushes", params)


class Shard:
    """The parameters, and who may push and pull when: all that a parameter server decides.

    A worker's clock counts its pushes, the version counts the updates. Under BSP the pushes of one clock, one from each
    live worker, are a round, and make one update with their mean. Under ASP each push makes one, divided by the number
    of workers, so that one clock of all of them moves the parameters as far. Both have one rule: what a worker asks at
    its clock c, to push or to pull, waits until the version is at least c. Under ASP it always is.

    Parameters are replaced, never written into: what was pulled stays as it was while it travels.
    """

    def __init__(self, consistency: str) -> None:
        self.params: Tensors = {"W": np.zeros((64, 10), np.float32), "b": np.zeros(10, np.float32)}
        self.rounds, self.version, self.applied, self.duplicates = consistency == "bsp", 0, 0, 0
        self.held: dict[int, Tensors] = {}  # by worker, the gradients that the next update is made of
        self.clocks, self.live, self.clients = [0] * WORKERS, {*range(WORKERS)}, [""] * WORKERS
        self.connections: dict[Any, int] = {}  # the worker that speaks over each
        self.loss, self.done, self.diverged = 0.0, False, ""
        self.began = time.monotonic()
        self.heard, self.received, self.sent = [self.began] * WORKERS, [0] * WORKERS, [0] * WORKERS
        self.changed = threading.Condition()  # its lock is held wherever something of this changes

    def push(self, worker: int, clock: int, gradients: Tensors, loss: float) -> str:
        """Take a push, once; what has become of it."""
        like, got = ({name: (x.shape, x.dtype.name) for name, x in some.items()} for some in (self.params, gradients))
        if like != got or clock > self.clocks[worker] or not all(np.isfinite(g).all() for g in gradients.values()):
            raise ValueError(f"Push {self.clocks[worker]} is to be finite, of {like}; got push {clock} of {got}.")
        with self.changed:
            self.wait(worker, clock)
            if self.done or clock < self.clocks[worker]:
                self.duplicates += clock < self.clocks[worker]
                return "over" if clock == self.clocks[worker] else "duplicate"
            self.held[worker], self.clocks[worker], self.loss = gradients, clock + 1, loss
            self.update()
            return "held" if worker in self.held else "over" if self.diverged else "applied"

    def pull(self, worker: int) -> tuple[int, Tensors]:
        """The version and the parameters, once this worker may have them."""
        with self.changed:
            self.wait(worker, self.clocks[worker])
            return self.version, self.params

    def wait(self, worker: int, clock: int) -> None:
        """Wait, with the lock held, until the version is at least ``clock``, or the run is over."""
        if not self.changed.wait_for(lambda: self.done or clock <= self.version, TIMEOUT_S):
            missing = sorted(self.live - self.held.keys())
            raise TimeoutError(f"Worker {worker} waited {TIMEOUT_S:g} s for pushes of {missing}. Are they running?")

    def update(self) -> None:
        """Make the update that is due, if one is: p ← p − lr·mean, the mean in worker order."""
        if self.held and not self.done and not (self.rounds and self.live - self.held.keys()):
            pushed = [self.held[worker] for worker in sorted(self.held)]
            share = len(pushed) if self.rounds else WORKERS
            params = {name: p - LR * (sum(g[name] for g in pushed) / share) for name, p in self.params.items()}
            if all(np.isfinite(p).all() for p in params.values()):
                self.params, self.version, self.applied = params, self.version + 1, self.applied + len(pushed)
            else:
                self.diverged = f"Update {self.version + 1} would make a parameter NaN or infinite."
            self.held = {}
        self.done = bool(self.diverged) or self.applied >= WORKERS * STEPS
        self.changed.notify_all()

    def join(self, worker: int, client: str, connection: Any) -> int:
        """Let a client that says hello be this worker or (−1) the first that nobody is, from the round under way on."""
        with self.changed:
            taken = {one for one in self.connections.values() if self.clients[one] != client}
            free = [one for one in range(WORKERS) if one not in taken and worker in (-1, one)]
            if not free:
                raise ValueError(f"Worker {worker} (-1: any of {WORKERS}) is another client now. Try later.")
            one = self.connections[connection] = free[0]
            if self.rounds and one not in self.live:
                self.clocks[one] = max(self.clocks[one], self.version)
            self.live.add(one)
            self.clients[one] = client
            return one

    def leave(self, connection: Any, diverged: str = "") -> None:
        """A goodbye, or the end of a connection: nobody waits any longer for a worker that has no other one."""
        with self.changed:
            self.live.discard(self.connections.pop(connection, -1))
            self.live |= {*self.connections.values()}
            self.diverged = self.diverged or diverged
            self.update()

    def status(self) -> Header:
        """How the run stands, in the protocol's words."""
        with self.changed:
            now, here, missing = time.monotonic(), {*self.connections.values()}, sorted(self.live - self.held.keys())
            workers = []
            for one, clock in enumerate(self.clocks):
                row = {"worker": one, "connected": one in here, "counts": one in self.live, "clock": clock}
                row |= {"heard_s": now - self.heard[one], "waits_for": missing if one in self.held else []}
                workers.append(row | {"received": self.received[one], "sent": self.sent[one]})
            told = {"index": 0, "servers": 1, "workers": workers, "applied": self.applied, "updates": WORKERS * STEPS}
            told |= {"late": 0, "duplicates": self.duplicates, "version": self.version, "loss": self.loss, "stuck": ""}
            return told | {"seconds": now - self.began, "done": self.done, "diverged": self.diverged or None}


def compress(tensors: Tensors, codec: str, errors: Tensors) -> Packet:
    """Tensors as they are or, by ``sign``, as a bit for each value and the mean magnitude. Error feedback adds to a
    gradient what was lost of those before, so that it only comes later (Karimireddy et al. 2019).
    """
    if codec == "exact":
        return [(name, codec, {"values": x}) for name, x in tensors.items()]
    packet = []
    for name, x in tensors.items():
        p = x + errors.get(name, 0)
        scale = np.dot(np.abs(p).reshape(-1), np.ones(p.size, p.dtype)) / np.float64(p.size)
        parts = {"bits": np.packbits(p >= 0), "scale": np.array([scale]), "like": np.empty((0, *p.shape), p.dtype)}
        packet.append((name, codec, parts))
        errors[name] = p - restored(codec, parts)
    return packet


def restored(quantizer: str, parts: Tensors) -> Array:
    """The tensor that these parts stand for."""
    if quantizer == "exact":
        return parts["values"]
    like, scale = np.empty(parts["like"].shape[1:], parts["like"].dtype), parts["scale"][0]
    positive = np.unpackbits(parts["bits"], count=like.size).reshape(like.shape)
    return np.where(positive, scale, -scale).astype(like.dtype)


def encode(header: Header, packet: Packet, **stamp: Any) -> Frames:
    """The frames of a message: the envelope, the header with an index of the arrays, the arrays."""
    index = [[name, how, [[part, x.dtype.name, x.shape] for part, x in parts.items()]] for name, how, parts in packet]
    arrays = [x.tobytes() for _, _, parts in packet for x in parts.values()]
    envelope = {"v": 3, "s": "msgpack", "c": "none", **stamp}
    return [msgpack.packb(envelope), msgpack.packb([{"memory": "none", **header}, index]), *arrays]


def decode(frames: Frames) -> tuple[Header, Tensors]:
    """What the envelope and the header say, in one, and the tensors."""
    envelope, (header, index) = map(msgpack.unpackb, frames[:2])
    names = {envelope["s"], envelope["c"], header["memory"], *(how for _, how, _ in index)}
    if envelope["v"] != 3 or not names <= {"msgpack", "none", *MEMORY, *MEMORY.values()}:
        raise ValueError(f"Nano speaks version 3, msgpack, {MEMORY}; got version {envelope['v']}, {names}.")
    arrays, tensors = iter(frames[2:]), {}
    for name, how, described in index:
        parts = {part: np.frombuffer(next(arrays), dtype).reshape(shape) for part, dtype, shape in described}
        tensors[name] = restored(how, parts)
    return envelope | header, tensors


def send(stream: BufferedRWPair, tag: int, frames: Frames) -> None:
    """Write a message: tag, number and lengths of the frames, then the frames, all padded to multiples of 64 bytes."""
    head = struct.pack(f"<BxxxI{len(frames)}Q", tag, len(frames), *map(len, frames))
    stream.write(b"".join(part + bytes(-len(part) % 64) for part in (head, *frames)))
    stream.flush()


def receive(stream: BufferedRWPair, limit: int = 2**31) -> tuple[int, Frames]:
    """Read a message: its tag and its frames. ConnectionError where none comes, RuntimeError for an error."""

    def read(nbytes: int) -> bytes:
        if nbytes > limit or len(data := stream.read(nbytes)) < nbytes:
            raise ConnectionError("The other side has hung up, or does not speak this protocol.")
        return data

    tag, count = struct.unpack("<BxxxI", read(8))
    sizes = struct.unpack(f"<{count}Q", read(8 * count))
    read(-(8 + 8 * count) % 64)
    frames = [read(size + -size % 64)[:size] for size in sizes]
    if tag == ERROR:
        raise RuntimeError(b": ".join(frames).decode())
    return tag, frames


def proof(token: str, *words: bytes) -> bytes:
    """What only a side that knows the token can say. The nonces among the words are new in each connection."""
    return hmac.digest(token.encode(), b"".join(words), "sha256")


@contextmanager
def connected(address: tuple[str, int], token: str) -> Iterator[Callable[..., tuple[Header, Tensors]]]:
    """The worker's side of a connection: ``call(kind, packet, **header)`` is what the server answers."""
    with socket.create_connection(address, PROOF_S) as sock, sock.makefile("rwb") as stream:
        _, (_, theirs) = receive(stream, 1024)
        ours = secrets.token_bytes(32)
        send(stream, AUTH, [ours, proof(token, b"client", theirs, ours)])
        if not hmac.compare_digest(receive(stream, 1024)[1][0], proof(token, b"server", ours, theirs)):
            raise PermissionError("The server could not prove that it knows the token. Whose address is this?")
        sock.settimeout(2 * TIMEOUT_S)

        def call(kind: str, packet: Packet | tuple[()] = (), **header: Any) -> tuple[Header, Tensors]:
            send(stream, CALL, encode({"kind": kind, **header}, [*packet]))
            return decode(receive(stream)[1])

        yield call


def attend(sock: socket.socket, token: str, shard: Shard, config: Header) -> None:
    """The server's side: one connection to its end, in a thread of its own, so that a call may wait in it."""
    with suppress(OSError, ValueError, RuntimeError), sock, sock.makefile("rwb") as stream:
        try:
            sock.settimeout(PROOF_S)
            ours = secrets.token_bytes(32)
            send(stream, AUTH, [b"minips/1", ours])
            _, (theirs, proved) = receive(stream, 1024)
            if not hmac.compare_digest(proved, proof(token, b"client", ours, theirs)):
                return send(stream, ERROR, [b"PermissionError", b"The server does not know this token. Pass its own."])
            send(stream, AUTH, [proof(token, b"server", theirs, ours)])
            sock.settimeout(SILENCE_S)
            while True:
                tag, frames = receive(stream)
                if tag == POOL:  # a word about connections for large messages, of which there are none: no answer
                    continue
                try:
                    send(stream, CALL, answer(frames, sock, shard, config))
                except Exception as error:  # whatever is wrong with this call, the next one may be right
                    send(stream, ERROR, [type(error).__name__.encode(), str(error).encode()])
        finally:
            shard.leave(sock)


def answer(frames: Frames, connection: Any, shard: Shard, config: Header) -> Frames:
    """The answer to a call."""
    said, gradients = decode(frames)
    kind, outcome, params = said["kind"], None, dict[str, Array]()
    reply: Header = {"kind": "reply"}
    if kind == "status":
        return encode(reply | shard.status() | ({"config": config} if said.get("config") else {}), [])
    if kind == "hello":
        layout = {name: [p.shape, p.dtype.name, 0, p.size] for name, p in shard.params.items()}
        worker = shard.join(said["worker"], said.get("client", ""), connection)
        reply |= {"layout": layout, "index": 0, "servers": 1, "silence_s": SILENCE_S, "worker": worker}
    elif kind not in ("push", "push_pull", "pull", "alive", "bye") or connection not in shard.connections:
        raise ValueError(f"Expected status or hello, then push, push_pull, pull, alive and bye; got {kind!r}.")
    worker = shard.connections[connection]
    shard.heard[worker] = time.monotonic()
    shard.received[worker] += sum(map(len, frames))
    if kind == "bye":
        shard.leave(connection, said.get("diverged", ""))
    if "push" in kind:
        outcome = shard.push(worker, said["clock"], gradients, said["loss"])
    if "pull" in kind:
        reply["version"], params = shard.pull(worker)
    stamp = {"clock": shard.clocks[worker], "done": shard.done, "outcome": outcome}
    told = encode(reply, compress(params, "exact", {}), **stamp)
    shard.sent[worker] += sum(map(len, told))
    return told


def serve(listener: socket.socket, token: str, codec: str, consistency: str, workers: list[Any]) -> None:
    """Serve one run, until it is over or all workers are gone; ``workers`` are its processes, if they are ours."""
    push = {"quantizer": {"name": codec}, "memory": {"name": MEMORY[codec]}}
    config = {"workers": WORKERS, "steps": STEPS, "batch_size": BATCH, "seed": SEED, "push": push}
    config |= {"consistency": {"name": consistency}, "optimizer": {"name": "sgd", "lr": LR}}
    shard = Shard(consistency)
    listener.settimeout(LOOK_S)
    while not shard.done and (shard.connections or not shard.applied):
        with suppress(TimeoutError):
            sock, _ = listener.accept()
            threading.Thread(target=attend, args=(sock, token, shard, config), daemon=True).start()
    with shard.changed:
        shard.changed.wait_for(lambda: not shard.connections, TIMEOUT_S)
    report(f"Server, after {shard.applied} updates", shard.params)


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of tcp://HOST:PORT."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="A whole parameter server in one file.")
    parser.add_argument("role", nargs="?", choices=["train", "serve", "work"], default="train")
    parser.add_argument("--bind", "--connect", type=endpoint, default="tcp://127.0.0.1:0", dest="address")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--codec", choices=MEMORY, default=CODEC)
    parser.add_argument("--consistency", choices=["bsp", "asp"], default=CONSISTENCY)
    options = parser.parse_args()
    token = secrets.token_hex(16)
    if file := options.token_file:
        if options.role == "serve" and not file.exists():
            file.touch(0o600)
            file.write_text(token)
        token = file.read_text().strip() or parser.error(f"The token file {file} is empty. Delete it to get a new one.")
    if options.role == "work":
        return work(options.address, token)
    spawn = multiprocessing.get_context("spawn")
    with socket.create_server(options.address) as listener:
        host, port = listener.getsockname()
        print(f"nano.py work --connect tcp://{host}:{port} --token-file {file}", flush=True)
        workers = [
            spawn.Process(target=work, args=((host, port), token), daemon=True)
            for _ in range(WORKERS if options.role == "train" else 0)
        ]
        for worker in workers:
            worker.start()
        serve(listener, token, options.codec, options.consistency, workers)
        for worker in workers:
            worker.join(TIMEOUT_S)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, RuntimeError) as error:
        raise SystemExit(f"nano: {error}") from None
