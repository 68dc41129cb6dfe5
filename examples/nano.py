"""A whole parameter server in one file: workers push gradients, a server applies them, workers pull the parameters.

    python examples/nano.py                                           a server and four workers, each a process
    python examples/nano.py serve --bind tcp://127.0.0.1:5000 --token-file token
    python examples/nano.py work --connect tcp://127.0.0.1:5000 --token-file token            four times

Read it from top to bottom: the problem, a worker's loop, and the shard, which decides who waits for whom. Then come the
layers between them: arrays become parts, parts become frames, and frames become bytes. The server is last: the proof
that a peer knows the token, a thread for each connection, and the command line.

Both sides use version 3 of minips/core/PROTOCOL.md, so they can train with `minips work` and `minips serve`; under BSP,
the bits are the same. Omitted: pulls by names and rows, saved runs, other codecs, reconnecting, several servers, TLS.
"""

import argparse
import hashlib
import hmac
import multiprocessing
import secrets
import socket
import threading
import time
from contextlib import suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any

import numpy as np
from msgpack import packb, unpackb

from minips.datasets import digits

WORKERS, STEPS = 4, 200  # the run is over once WORKERS × STEPS pushes have been applied
BATCH, LR, SEED = 32, 0.1, 0  # rows of one gradient, learning rate, seed of the batches
TIMEOUT_S = 60.0  # the longest time that a call waits for other workers
SILENCE_S = 30.0  # the longest silence after which a worker still counts
PROOF_S = 5.0  # the longest time that the server waits for a peer's proof that it knows the token
MEET_S = 600.0  # the longest wait for all workers to connect
LOOK_S = 0.2  # the time between two checks for changes
MEMORY = {"exact": "none", "sign": "errorfeedback"}  # each codec's memory at the sender; sign sends one bit per value
# The settings that these workers can follow. They refuse a config that says otherwise.
SUPPORTED = {"servers": 1, "sampling": "batch", "accumulate": 1, "overlap": False, "link": None, "delays": None}
CALL, ERROR, AUTH, POOL = range(4)  # the tags of messages
KINDS = ("hello", "push", "push_pull", "pull", "alive", "bye")  # the calls of a worker

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]  # parameters or gradients
Header = dict[str, Any]
Packet = list[tuple[str, str, Tensors]]  # for each tensor: its name, its codec, and the parts that the codec made


def loss_and_gradient(params: Tensors, X: Array, y: Array) -> tuple[float, Tensors]:
    """Softmax regression: the mean of −log P[y] with P = softmax(XW + b), and its gradient, XᵀR for W and ΣR for b with
    R = (P − onehot(y)) / n. X is (n, 64), W (64, 10), b (10,), P and R (n, 10).
    """
    scores = X @ params["W"] + params["b"]
    P = np.exp(scores - scores.max(axis=1, keepdims=True))  # the largest score becomes 0, so that exp stays in range
    P /= P.sum(axis=1, keepdims=True)
    loss = float(-np.log(P[np.arange(len(y)), y]).mean())
    R = (P - np.eye(10, dtype=P.dtype)[y]) / len(y)
    return loss, {"W": X.T @ R, "b": R.sum(axis=0)}


def report(title: str, params: Tensors) -> None:
    """Print the accuracy on held-out digits, and a digest of the parameters, which is equal if all their bits are."""
    _, _, X, y = digits()
    accuracy = np.mean((X @ params["W"] + params["b"]).argmax(axis=1) == y)
    digest = hashlib.sha256(b"".join(params[name].tobytes() for name in sorted(params))).hexdigest()
    print(f"{title}: accuracy {accuracy:.4f}, SHA-256 {digest}", flush=True)


def work(address: tuple[str, int], token: bytes) -> None:
    """Run one worker: until the run is over, compute a gradient, push it, and pull the parameters."""
    with socket.create_connection(address, 2 * TIMEOUT_S) as sock, sock.makefile("rwb") as server:
        prove(server, token)
        config = ask(server, "status", config=True)[0]["config"]
        codec = codec_of(config)
        worker = ask(server, "hello", worker=-1)[0]["worker"]  # −1: the first free number
        X, y = (np.array_split(rows, config["workers"])[worker] for rows in digits()[:2])  # this worker's part
        size = min(config["batch_size"] or len(X), len(X))
        meet(server, worker)
        errors: Tensors = {}  # what the codec has left out so far
        reply, params = ask(server, "pull", worker=worker)
        while not reply["done"]:
            clock = reply["clock"]
            rng = np.random.default_rng([config["seed"], worker, clock, 0, 0])  # the same rows in every program
            batch = rng.choice(len(X), size, replace=False, shuffle=False)
            loss, gradients = loss_and_gradient(params, X[batch], y[batch])
            push: Header = {"worker": worker, "clock": clock, "version": reply["version"], "loss": loss}
            reply, params = ask(server, "push_pull", pack(gradients, codec, errors), memory=MEMORY[codec], **push)
        ask(server, "bye", worker=worker)
    report(f"Worker {worker}, after {reply['clock']} pushes", params)


def codec_of(config: Header) -> str:
    """The codec of the gradients. Raises ValueError for a config that these workers cannot follow."""
    codec, memory = (config["push"][stage].get("name") for stage in ("quantizer", "memory"))
    if (codec, memory) not in MEMORY.items() or any(config.get(key, only) != only for key, only in SUPPORTED.items()):
        raise ValueError(f"Expected codecs of {MEMORY} and {SUPPORTED}; the server has {config}. Use minips work.")
    return str(codec)


def meet(server: BufferedRWPair, worker: int) -> None:
    """Wait until all workers are connected. Otherwise, under ASP, the first to connect would do all the work."""
    deadline = time.monotonic() + MEET_S
    while time.monotonic() < deadline:
        status, _ = ask(server, "status")
        if status["applied"] or all(row["connected"] for row in status["workers"]):
            return
        ask(server, "alive", worker=worker)
        time.sleep(LOOK_S)


class Shard:
    """The parameters, and who may push and pull when: all that a parameter server decides.

    A worker's clock counts its pushes; the version counts the updates. Under BSP (bulk synchronous parallel), the
    pushes of one clock, one from each live worker, form a round; their mean makes one update. Under ASP (asynchronous
    parallel), each push makes an update, divided by the number of workers: one push of each moves as far as a round.
    Both follow one rule: a worker at clock c pushes or pulls once the version is at least c. Under ASP it always is.

    The lock of ``changed`` must be held when a method is called. While a call waits, it releases the lock to others.
    """

    def __init__(self, codec: str, consistency: str) -> None:
        self.config: Header = {"workers": WORKERS, "steps": STEPS, "batch_size": BATCH, "seed": SEED}
        self.config["push"] = {"quantizer": {"name": codec}, "memory": {"name": MEMORY[codec]}}
        self.config |= {"consistency": {"name": consistency}, "optimizer": {"name": "sgd", "lr": LR}}
        self.changed = threading.Condition()
        self.params: Tensors = {"W": np.zeros((64, 10), np.float32), "b": np.zeros(10, np.float32)}
        self.rounds = consistency == "bsp"
        self.version = 0
        self.held: dict[int, Tensors] = {}  # the gradients that wait for their update, by worker
        self.applied, self.duplicates = 0, 0  # the pushes that are in an update, and those that were repeated
        self.loss = 0.0  # of the last push
        self.done, self.diverged = False, ""  # and the reason for an early end
        self.began = time.monotonic()

        self.clocks = [0] * WORKERS
        self.live = set(range(WORKERS))  # the workers whose pushes a round needs
        self.connections: dict[Any, int] = {}  # the worker behind each connection
        self.secrets = [""] * WORKERS  # each session's secret, for further connections of that session
        self.heard = [self.began] * WORKERS  # when each worker last said something
        self.traffic = np.zeros((WORKERS, 2), int)  # bytes received and sent, by worker

    def push(self, worker: int, clock: int, gradients: Tensors, loss: float) -> str:
        """Accept the gradients of a worker's clock, once, and return the outcome. Early ones wait for their round."""
        due = self.clocks[worker]
        expected = {name: (p.shape, p.dtype.name) for name, p in self.params.items()}
        got = {name: (g.shape, g.dtype.name) for name, g in gradients.items()}
        if got != expected or clock > due or not all(np.isfinite(g).all() for g in gradients.values()):
            raise ValueError(f"Expected push {due}, finite, of {expected}; got push {clock} of {got}.")
        self.wait(worker, clock)
        if clock < self.clocks[worker]:  # they were sent again
            self.duplicates += 1
            return "duplicate"
        if self.done:
            return "over"
        self.held[worker] = gradients
        self.clocks[worker] = clock + 1
        self.loss = loss
        self.update()
        if worker in self.held:
            return "held"
        return "over" if self.diverged else "applied"

    def wait(self, worker: int, clock: int) -> Tensors:
        """The parameters, once the version is at least ``clock`` or the run is over."""
        if not self.changed.wait_for(lambda: self.done or self.version >= clock, TIMEOUT_S):
            raise TimeoutError(f"Worker {worker} waited {TIMEOUT_S:g} s for {self.missing()}. Do they run?")
        return self.params

    def missing(self) -> set[int]:
        """The live workers that have not pushed in this round."""
        return self.live - self.held.keys()

    def update(self) -> None:
        """If an update is due, make it: p ← p − lr·mean, the mean in worker order. Then wake all waiting calls."""
        if self.held and not self.done and not (self.rounds and self.missing()):
            pushes = [self.held[worker] for worker in sorted(self.held)]
            divisor = len(pushes) if self.rounds else WORKERS
            params = {name: p - LR * (sum(push[name] for push in pushes) / divisor) for name, p in self.params.items()}
            if all(np.isfinite(p).all() for p in params.values()):
                self.params = params
                self.version += 1
                self.applied += len(pushes)
            else:
                self.diverged = f"(update {self.version + 1} would make a parameter NaN or infinite)"
            self.held = {}
        updates = STEPS if self.rounds else WORKERS * STEPS
        self.done = bool(self.diverged) or self.version >= updates
        self.changed.notify_all()

    def join(self, connection: Any, worker: int, secret: str) -> Header:
        """Give a connection this worker's number, or the first free one for −1. Returns the answer to the hello."""
        before = self.connections.get(connection)  # the worker that it is already, if it is one
        ours = {rank for rank in range(WORKERS) if hmac.compare_digest(self.secrets[rank].encode(), secret.encode())}
        taken = {*self.connections.values()} - ours  # further connections of a session know its secret
        free = [rank for rank in range(WORKERS) if rank not in taken] if before is None else [before]
        found = [rank for rank in free if worker in (-1, rank)]
        if not found:
            raise ValueError(f"Worker {worker} (-1: any of {WORKERS}) is held by another session. Try later.")
        worker = found[0]
        if before is None:
            self.connections[connection] = worker
            self.secrets[worker] = secret or secrets.token_hex(16)
        if self.rounds:
            self.clocks[worker] = max(self.clocks[worker], self.version)  # a newcomer begins with this round
        self.live.add(worker)
        tensors = {name: [p.shape, p.dtype.name, 0, p.size] for name, p in self.params.items()}  # with all their values
        reply = {"layout": tensors, "index": 0, "servers": 1, "silence_s": SILENCE_S, "rejoin_s": 0.0}
        return reply | {"worker": worker, "secret": self.secrets[worker]}

    def leave(self, connection: Any) -> None:
        """Forget a connection that has ended. If it was the worker's last one, no round needs that worker any more."""
        worker = self.connections.pop(connection, -1)  # −1: it never said hello
        if worker not in self.connections.values():
            self.live.discard(worker)
        self.update()

    def status(self) -> Header:
        """The progress of the run and the state of each worker, under the protocol's names."""
        now = time.monotonic()
        workers = []
        for worker, clock in enumerate(self.clocks):
            row: Header = {"worker": worker, "connected": worker in self.connections.values()}
            row |= {"counts": worker in self.live, "clock": clock, "heard_s": now - self.heard[worker]}
            row["waits_for"] = sorted(self.missing()) if worker in self.held else []
            row["received"], row["sent"] = self.traffic[worker].tolist()
            workers.append(row)
        reply = {"index": 0, "servers": 1, "workers": workers, "applied": self.applied, "updates": WORKERS * STEPS}
        reply |= {"late": 0, "duplicates": self.duplicates, "version": self.version, "loss": self.loss or None}
        reply |= {"stuck": "", "seconds": now - self.began, "done": self.done, "diverged": self.diverged or None}
        return reply


def pack(tensors: Tensors, codec: str, errors: Tensors) -> Packet:
    """The packet of tensors, with error feedback: for p = x + e, the codec's C(p) is sent, and p − C(p) is the next e.
    So the part that one bit cannot hold is not lost, only sent later (Karimireddy et al. 2019).
    """
    packet = []
    for name, x in tensors.items():
        p = x + errors.get(name, 0)
        parts = quantize(p, codec)
        errors[name] = p - dequantize(parts, codec)
        packet.append((name, codec, parts))
    return packet


def quantize(x: Array, codec: str) -> Tensors:
    """The parts of an array: the array itself or, with ``sign``, a bit for each value and the mean magnitude."""
    if codec == "exact":
        return {"values": x}
    total = np.abs(x).reshape(-1).sum(dtype=x.dtype)
    like = np.empty((0, *x.shape), x.dtype)  # no bytes: it sends only its shape and dtype
    return {"bits": np.packbits(x >= 0), "scale": np.array([total / np.float64(x.size)]), "like": like}


def dequantize(parts: Tensors, codec: str) -> Array:
    """The array that these parts encode."""
    if codec == "exact":
        return parts["values"]
    x = np.empty(parts["like"].shape[1:], parts["like"].dtype)
    signs = 2.0 * np.unpackbits(parts["bits"], count=x.size) - 1
    x[...] = parts["scale"] * signs.reshape(x.shape)
    return x


def encode(header: Header, packet: Packet, **stamp: Any) -> list[bytes]:
    """The frames of a message: the envelope (with a stamp in an answer), the header with an index, and the arrays."""
    index = [[name, codec, [[key, x.dtype.name, x.shape] for key, x in parts.items()]] for name, codec, parts in packet]
    arrays = [x.tobytes() for _, _, parts in packet for x in parts.values()]
    envelope = {"v": 3, "s": "msgpack", "c": "none", **stamp}
    return [packb(envelope), packb([{"memory": "none", **header}, index]), *arrays]


def decode(frames: list[bytes]) -> tuple[Header, Tensors]:
    """A message's header, merged with its envelope, and its tensors. ValueError for another version or codec."""
    envelope = unpackb(frames[0])
    if (envelope["v"], envelope["s"], envelope["c"]) != (3, "msgpack", "none"):
        raise ValueError(f"Expected version 3, msgpack, and no compressor; got {envelope}. Use minips.")
    header, index = unpackb(frames[1])
    codecs = {codec for _, codec, _ in index}
    if not codecs <= MEMORY.keys() or header["memory"] not in MEMORY.values():
        raise ValueError(f"Expected codecs of {MEMORY}; got {codecs} in {header}. Use minips.")
    arrays = iter(frames[2:])
    tensors = {}
    for name, codec, entries in index:
        parts = {part: np.frombuffer(next(arrays), dtype).reshape(shape) for part, dtype, shape in entries}
        tensors[name] = dequantize(parts, codec)
    return envelope | header, tensors


def send(stream: BufferedRWPair, tag: int, frames: list[bytes]) -> None:
    """Write a message: tag, number of frames, their lengths, and the frames, all padded to multiples of 64 bytes."""
    lengths = np.array([len(frame) for frame in frames], "<u8")
    head = np.array([tag, len(frames)], "<u4").tobytes() + lengths.tobytes()
    stream.write(b"".join(part + bytes(-len(part) % 64) for part in (head, *frames)))
    stream.flush()


def receive(stream: BufferedRWPair, limit: int = 2**31) -> tuple[int, list[bytes]]:
    """Read a message: its tag and frames. Raises ConnectionError if none comes, RuntimeError for an error message."""

    def read(nbytes: int) -> bytes:
        data = stream.read(nbytes) if nbytes <= limit else b""
        if len(data) < nbytes:
            raise ConnectionError("The other side has hung up, or does not speak this protocol.")
        return data

    tag, count = np.frombuffer(read(8), "<u4").tolist()
    lengths = read(8 * count + -(8 + 8 * count) % 64)
    frames = [read(length + -length % 64)[:length] for length in np.frombuffer(lengths, "<u8", count).tolist()]
    if tag == ERROR:
        raise RuntimeError(b": ".join(frames).decode())
    return tag, frames


def ask(stream: BufferedRWPair, kind: str, packet: Packet | None = None, **header: Any) -> tuple[Header, Tensors]:
    """Call the server and return the header and the tensors of its answer."""
    send(stream, CALL, encode({"kind": kind, **header}, packet or []))
    return decode(receive(stream)[1])


def prove(stream: BufferedRWPair, token: bytes) -> None:
    """The worker's side of the proof that both know the token. It is never sent; random bytes make each proof new."""
    _, (_, theirs) = receive(stream, 1024)  # its first frame names the protocol
    ours = secrets.token_bytes(32)
    send(stream, AUTH, [ours, hmac.digest(token, b"client" + theirs + ours, "sha256")])
    _, (proof,) = receive(stream, 1024)
    if not hmac.compare_digest(proof, hmac.digest(token, b"server" + ours + theirs, "sha256")):
        raise PermissionError("The server could not prove that it knows the token. Whose address is this?")


def admit(stream: BufferedRWPair, token: bytes) -> None:
    """The server's side of the proof. If the peer does not know the token, tell the peer and raise PermissionError."""
    ours = secrets.token_bytes(32)
    send(stream, AUTH, [b"minips/1", ours])
    _, (theirs, proof) = receive(stream, 1024)
    if not hmac.compare_digest(proof, hmac.digest(token, b"client" + ours + theirs, "sha256")):
        send(stream, ERROR, [b"PermissionError", b"The server does not know this token. Pass its own."])
        raise PermissionError
    send(stream, AUTH, [hmac.digest(token, b"server" + theirs + ours, "sha256")])


def serve_connection(sock: socket.socket, token: bytes, shard: Shard) -> None:
    """Answer the calls of one connection until it ends. It runs in its own thread, so that a call may wait."""
    with suppress(Exception), sock, sock.makefile("rwb") as stream:  # if one breaks, the others continue
        sock.settimeout(PROOF_S)
        admit(stream, token)
        sock.settimeout(SILENCE_S)
        while True:
            tag, frames = receive(stream)
            try:
                if tag != POOL:  # POOL is about further connections for large messages; it needs no answer
                    send(stream, CALL, answer(frames, sock, shard))
            except Exception as error:  # whatever is wrong with this call, the next may be valid
                send(stream, ERROR, [type(error).__name__.encode(), str(error).encode()])
    with shard.changed:
        shard.leave(sock)


def answer(frames: list[bytes], connection: Any, shard: Shard) -> list[bytes]:
    """The answer to a call. An error raised here becomes a RuntimeError at the client."""
    request, gradients = decode(frames)
    kind = request["kind"]
    with shard.changed:
        if kind == "status":
            return encode({"kind": "reply", "config": shard.config, **shard.status()}, [])
        reply = shard.join(connection, request["worker"], str(request.get("secret", ""))) if kind == "hello" else {}
        worker = shard.connections.get(connection)
        if worker is None or request["worker"] not in (worker, -1) or kind not in KINDS:
            raise ValueError(f"Expected status or, as one worker, of {', '.join(KINDS)}; got {kind!r}.")
        shard.heard[worker] = time.monotonic()
        outcome = shard.push(worker, request["clock"], gradients, request["loss"]) if "push" in kind else None
        params = shard.wait(worker, shard.clocks[worker]) if "pull" in kind else {}  # push_pull is both
        shard.diverged = request.get("diverged", shard.diverged)  # sent with a bye; the connection's end does the rest
        reply |= {"kind": "reply", "version": shard.version}
        out = encode(reply, pack(params, "exact", {}), clock=shard.clocks[worker], done=shard.done, outcome=outcome)
        shard.traffic[worker] += sum(map(len, frames)), sum(map(len, out))
        return out


def serve(listener: socket.socket, token: bytes, shard: Shard) -> None:
    """Serve one run until all workers have gone, or until none has come in time."""
    listener.settimeout(LOOK_S)
    while shard.connections or not (shard.applied or shard.done or time.monotonic() > shard.began + MEET_S):
        with suppress(TimeoutError):
            sock, _ = listener.accept()
            threading.Thread(target=serve_connection, args=(sock, token, shard), daemon=True).start()
    report(f"Server, after {shard.applied} of {WORKERS * STEPS} pushes {shard.diverged}".rstrip(), shard.params)


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of tcp://HOST:PORT."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A whole parameter server in one file.")
    parser.add_argument("role", nargs="?", choices=["train", "serve", "work"], default="train")
    parser.add_argument("--bind", "--connect", type=host_and_port, default="tcp://127.0.0.1:0", dest="address")
    parser.add_argument("--token-file", type=Path, default="token", metavar="FILE")
    parser.add_argument("--codec", choices=MEMORY, default="exact")
    parser.add_argument("--consistency", choices=["bsp", "asp"], default="bsp")
    options = parser.parse_args()
    if options.role == "serve":
        options.token_file.touch(0o600)  # for its owner only
        options.token_file.write_text(options.token_file.read_text().strip() or secrets.token_hex(16))
    token = secrets.token_bytes(32) if options.role == "train" else options.token_file.read_bytes().strip()
    if options.role == "work":
        work(options.address, token)
    else:
        with socket.create_server(options.address) as listener:
            address = listener.getsockname()
            print("The server is at tcp://{}:{}".format(*address), flush=True)
            for _ in range(WORKERS if options.role == "train" else 0):
                multiprocessing.get_context("spawn").Process(target=work, args=(address, token)).start()
            serve(listener, token, Shard(options.codec, options.consistency))
