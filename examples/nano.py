"""A whole parameter server in one file: workers push gradients, a server applies them, workers pull the parameters.

    python examples/nano.py                                           a server and four workers, each a process
    python examples/nano.py serve --bind tcp://127.0.0.1:5000 --token-file token
    python examples/nano.py work --connect tcp://127.0.0.1:5000 --token-file token            four times

Read it from top to bottom: the problem, the worker's loop, and the shard, which decides who waits for whom; then how
arrays become bits, messages and bytes, who may connect, the server's threads, and the command line. Both halves speak
version 3 of minips/core/PROTOCOL.md: `minips work` trains with this server, and these workers with `minips serve`,
under BSP to the same bits. Pulls by names and rows, saved runs, other codecs, reconnecting, several servers and TLS are
left out.
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

WORKERS, STEPS, BATCH, LR, SEED = 4, 200, 32, 0.1, 0  # WORKERS × STEPS applied pushes end the run
CODEC, CONSISTENCY = "exact", "bsp"  # or "sign", one bit a value, with error feedback; or "asp", where nobody waits
# The longest waits for other workers, for a word, for a proof, for all to come; and the time between two looks.
TIMEOUT_S, SILENCE_S, PROOF_S, MEET_S, LOOK_S = 60.0, 30.0, 5.0, 600.0, 0.2
MEMORY = {"exact": "none", "sign": "errorfeedback"}  # what a sender remembers, by codec
# These workers would compute something else where a config says otherwise.
PLAIN = {"servers": 1, "sampling": "batch", "accumulate": 1, "overlap": False, "link": None, "delays": None}
CALL, ERROR, AUTH, POOL = range(4)  # the tags of messages
KINDS = "hello", "push", "push_pull", "pull", "alive", "bye"  # what a worker says

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
Header = dict[str, Any]
Packet = list[tuple[str, str, Tensors]]  # of each tensor its name, its quantizer, and what that leaves of it


def loss_and_gradient(params: Tensors, X: Array, y: Array) -> tuple[float, Tensors]:
    """Softmax regression: the mean of −log P[y] with P = softmax(XW + b), and its gradient, XᵀR for W and ΣR for b with
    R = (P − onehot(y)) / n. X is (n, 64), W (64, 10), b (10,), P and R (n, 10).
    """
    scores = X @ params["W"] + params["b"]
    P = np.exp(scores - scores.max(axis=1, keepdims=True))  # less the largest: exp stays in range
    P /= P.sum(axis=1, keepdims=True)
    R = (P - np.eye(10, dtype=P.dtype)[y]) / len(y)
    return float(-np.log(P[np.arange(len(y)), y]).mean()), {"W": X.T @ R, "b": R.sum(axis=0)}


def report(who: str, params: Tensors) -> None:
    """Print the share of held-out digits that are read rightly, and the digest of the parameters."""
    _, _, X, y = digits()
    accuracy = np.mean((X @ params["W"] + params["b"]).argmax(axis=1) == y)
    digest = hashlib.sha256(b"".join(params[name].tobytes() for name in sorted(params))).hexdigest()
    print(f"{who}: accuracy {accuracy:.4f}, SHA-256 {digest}", flush=True)


def work(address: tuple[str, int], token: bytes) -> None:
    """Be one worker: gradient, push, pull, again, until the server says that the run is over."""
    with socket.create_connection(address, 2 * TIMEOUT_S) as sock, sock.makefile("rwb") as server:
        prove(server, token)
        told, deadline = ask(server, "status", config=True)[0], time.monotonic() + MEET_S
        config = told["config"]
        codec, memory = (config["push"][stage].get("name") for stage in ("quantizer", "memory"))
        if MEMORY.get(codec) != memory or not PLAIN.items() <= (PLAIN | config).items():
            raise ValueError(f"Expected codecs of {MEMORY} and {PLAIN}; the server has {config}. Use minips work.")
        worker = ask(server, "hello", worker=-1)[0]["worker"]  # its secret is for who connects again
        X, y = (np.array_split(rows, config["workers"])[worker] for rows in digits()[:2])
        while not (told["applied"] or all(one["connected"] for one in told["workers"])) and time.monotonic() < deadline:
            ask(server, "alive", worker=worker)  # begin together: under ASP the first to come would do all the work
            time.sleep(LOOK_S)
            told, _ = ask(server, "status")
        key, size, errors = (config["seed"], worker), min(config["batch_size"] or len(X), len(X)), Tensors()
        said, params = ask(server, "pull", worker=worker)
        while not said["done"]:
            # The draw follows from seed, worker and clock alone, so that whoever works has the same batches.
            rows = np.random.default_rng([*key, said["clock"], 0, 0]).choice(len(X), size, replace=False, shuffle=False)
            loss, gradients = loss_and_gradient(params, X[rows], y[rows])
            pushed = {"worker": worker, "clock": said["clock"], "version": said["version"], "loss": loss}
            said, params = ask(server, "push_pull", packed(gradients, codec, errors), memory=memory, **pushed)
        ask(server, "bye", worker=worker)
    report(f"Worker {worker}, after {said['clock']} pushes", params)


class Shard:
    """The parameters, and who may push and pull when: all that a parameter server decides.

    A worker's clock counts its pushes, the version counts the updates. Under BSP the pushes of one clock, one from each
    live worker, are a round, and make one update with their mean. Under ASP each push makes one, divided by the number
    of workers, so that one clock of all of them moves the parameters as far. Both have one rule: what a worker asks at
    its clock c, to push or to pull, waits until the version is at least c. Under ASP it always is.

    The lock of ``changed`` is held around every call; a call that waits lets it go meanwhile.
    """

    def __init__(self, codec: str, consistency: str) -> None:
        push = {"quantizer": {"name": codec}, "memory": {"name": MEMORY[codec]}}
        self.config = {"workers": WORKERS, "steps": STEPS, "batch_size": BATCH, "seed": SEED, "push": push}
        self.config |= {"consistency": {"name": consistency}, "optimizer": {"name": "sgd", "lr": LR}}
        self.params: Tensors = {"W": np.zeros((64, 10), np.float32), "b": np.zeros(10, np.float32)}
        self.rounds, self.done, self.diverged, self.changed = consistency == "bsp", False, "", threading.Condition()
        self.version, self.applied, self.duplicates, self.loss, self.began = 0, 0, 0, 0.0, time.monotonic()
        self.held, self.connections = dict[int, Tensors](), dict[Any, int]()  # gradients by worker; over each, who
        self.clocks, self.live, self.secrets = [0] * WORKERS, {*range(WORKERS)}, [""] * WORKERS
        self.heard, self.traffic = [self.began] * WORKERS, np.zeros((WORKERS, 2), int)  # bytes that came and went

    def push(self, worker: int, clock: int, gradients: Tensors, loss: float) -> str:
        """Take a push, once; its outcome. A push of the next clock waits until its round can begin."""
        like, got = ({name: (x.shape, x.dtype.name) for name, x in some.items()} for some in (self.params, gradients))
        if like != got or clock > self.clocks[worker] or not all(np.isfinite(g).all() for g in gradients.values()):
            raise ValueError(f"Expected push {self.clocks[worker]}, finite, of {like}; got push {clock} of {got}.")
        self.wait(worker, clock)
        if self.done or clock < self.clocks[worker]:
            self.duplicates += clock < self.clocks[worker]
            return "over" if clock == self.clocks[worker] else "duplicate"
        self.held[worker], self.clocks[worker], self.loss = gradients, clock + 1, loss
        self.update()
        return "held" if worker in self.held else "over" if self.diverged else "applied"

    def wait(self, worker: int, clock: int) -> Tensors:
        """The parameters, once the version is at least ``clock``, or the run is over."""
        if not self.changed.wait_for(lambda: self.done or clock <= self.version, TIMEOUT_S):
            raise TimeoutError(f"Worker {worker} waited {TIMEOUT_S:g} s for {self.live - {*self.held}}. Do they run?")
        return self.params

    def update(self) -> None:
        """Make the update that is due, if one is: p ← p − lr·mean, the mean in worker order."""
        if self.held and not self.done and not (self.rounds and self.live - self.held.keys()):
            pushed, share = [self.held[one] for one in sorted(self.held)], len(self.held) if self.rounds else WORKERS
            params = {name: p - LR * (sum(g[name] for g in pushed) / share) for name, p in self.params.items()}
            if all(np.isfinite(p).all() for p in params.values()):
                self.params, self.version, self.applied = params, self.version + 1, self.applied + len(pushed)
            else:
                self.diverged = f"(update {self.version + 1} would make a parameter NaN or infinite)"
            self.held = {}
        self.done = bool(self.diverged) or self.version >= (STEPS if self.rounds else WORKERS * STEPS)
        self.changed.notify_all()

    def join(self, connection: Any, worker: int, secret: str) -> Header:
        """Let a session be this worker or (−1) the first that nobody is, from this round on; the answer to its hello.

        A worker that has a connection is taken but for who knows the secret that its first hello was answered with.
        """
        mine, known = self.connections.get(connection), [one.encode() for one in self.secrets]
        held = {one for one in self.connections.values() if not hmac.compare_digest(known[one], secret.encode())}
        free = [one for one in range(WORKERS) if one not in held and worker in (-1, one)] if mine is None else [mine]
        if not free or worker not in (-1, free[0]):
            raise ValueError(f"Worker {worker} (-1: any of {WORKERS}) is held by another session. Try later.")
        worker = self.connections[connection] = free[0]
        self.secrets[worker] = self.secrets[worker] if mine == worker else secret or secrets.token_hex(16)
        self.clocks[worker] = max(self.clocks[worker], self.version if self.rounds else 0)
        self.live.add(worker)
        layout = {name: [p.shape, p.dtype.name, 0, p.size] for name, p in self.params.items()}
        told = {"layout": layout, "index": 0, "servers": 1, "silence_s": SILENCE_S}
        return told | {"rejoin_s": 0.0, "worker": worker, "secret": self.secrets[worker]}

    def leave(self, connection: Any) -> None:
        """Take leave of a connection that has ended: nobody waits any longer for a worker that has no other one."""
        self.live -= {self.connections.pop(connection, None)} - {*self.connections.values()}
        self.update()

    def status(self) -> Header:
        """The progress of the run and the presence of its workers, in the protocol's words."""
        workers, missing, now = [], sorted(self.live - self.held.keys()), time.monotonic()
        for one, clock in enumerate(self.clocks):
            row: Header = {"worker": one, "connected": one in self.connections.values(), "counts": one in self.live}
            row |= {"clock": clock, "heard_s": now - self.heard[one], "waits_for": missing if one in self.held else []}
            workers.append(row | {"received": int(self.traffic[one, 0]), "sent": int(self.traffic[one, 1])})
        told = {"index": 0, "servers": 1, "workers": workers, "applied": self.applied, "updates": WORKERS * STEPS}
        told |= {"late": 0, "duplicates": self.duplicates, "version": self.version, "loss": self.loss or None}
        return told | {"stuck": "", "seconds": now - self.began, "done": self.done, "diverged": self.diverged or None}


def packed(tensors: Tensors, codec: str, errors: Tensors) -> Packet:
    """The packet of tensors, with error feedback: C(p) is sent of p = x + e, and the rest is the next e. So what a bit
    cannot hold is not lost, it comes later (Karimireddy et al. 2019).
    """
    wanted = {name: x + errors.get(name, 0) for name, x in tensors.items()}
    packet = [(name, codec, quantized(p, codec)) for name, p in wanted.items()]
    errors |= {name: wanted[name] - dequantized(parts, codec) for name, _, parts in packet}
    return packet


def quantized(x: Array, codec: str) -> Tensors:
    """The parts of an array: itself or, by ``sign``, a bit for each value and the mean magnitude."""
    if codec == "exact":
        return {"values": x}
    scale = np.dot(np.abs(x).reshape(-1), np.ones(x.size, x.dtype)) / np.float64(x.size)
    return {"bits": np.packbits(x >= 0), "scale": np.array([scale]), "like": np.empty((0, *x.shape), x.dtype)}


def dequantized(parts: Tensors, codec: str) -> Array:
    """The array that these parts stand for."""
    if codec == "exact":
        return parts["values"]
    x = np.empty(parts["like"].shape[1:], parts["like"].dtype)
    x[...] = parts["scale"] * (2.0 * np.unpackbits(parts["bits"], count=x.size) - 1).reshape(x.shape)
    return x


def encode(header: Header, packet: Packet, **stamp: Any) -> list[bytes]:
    """The frames of a message: the envelope, the header with an index of the arrays, the arrays."""
    index = [[name, how, [[part, x.dtype.name, x.shape] for part, x in parts.items()]] for name, how, parts in packet]
    data = [x.tobytes() for _, _, parts in packet for x in parts.values()]
    return [packb({"v": 3, "s": "msgpack", "c": "none", **stamp}), packb([{"memory": "none", **header}, index]), *data]


def decode(frames: list[bytes]) -> tuple[Header, Tensors]:
    """The words of envelope and header, in one, and the tensors."""
    envelope = unpackb(frames[0])
    plain = [envelope[word] for word in "vsc"] == [3, "msgpack", "none"]
    header, index = unpackb(frames[1]) if plain else ({"memory": ""}, [])
    if not {header["memory"], *(how for _, how, _ in index)} <= {*MEMORY, *MEMORY.values()}:
        raise ValueError(f"Nano speaks version 3, msgpack, {MEMORY}; got {envelope}, {header}. Use minips.")
    arrays, tensors = iter(frames[2:]), {}
    for name, how, described in index:
        parts = {part: np.frombuffer(next(arrays), dtype).reshape(shape) for part, dtype, shape in described}
        tensors[name] = dequantized(parts, how)
    return envelope | header, tensors


def send(stream: BufferedRWPair, tag: int, frames: list[bytes]) -> None:
    """Write a message: tag, number and lengths of the frames, then the frames, all padded to multiples of 64 bytes."""
    head = np.array([tag, len(frames)], "<u4").tobytes() + np.array([*map(len, frames)], "<u8").tobytes()
    stream.write(b"".join(part + bytes(-len(part) % 64) for part in (head, *frames)))
    stream.flush()


def receive(stream: BufferedRWPair, limit: int = 2**31) -> tuple[int, list[bytes]]:
    """Read a message: its tag and its frames. ConnectionError where none comes, RuntimeError for an error."""

    def read(nbytes: int) -> bytes:
        if nbytes > limit or len(data := stream.read(nbytes)) < nbytes:
            raise ConnectionError("The other side has hung up, or does not speak this protocol.")
        return data

    tag, count = np.frombuffer(read(8), "<u4").tolist()
    sizes = np.frombuffer(read(8 * count + -(8 + 8 * count) % 64), "<u8", count).tolist()
    frames = [read(size + -size % 64)[:size] for size in sizes]
    if tag == ERROR:
        raise RuntimeError(b": ".join(frames).decode())
    return tag, frames


def prove(stream: BufferedRWPair, token: bytes) -> None:
    """The worker's side of the proof that both know the token. The nonces are new in each connection."""
    _, (_, theirs) = receive(stream, 1024)
    ours = secrets.token_bytes(32)
    send(stream, AUTH, [ours, hmac.digest(token, b"client" + theirs + ours, "sha256")])
    if not hmac.compare_digest(receive(stream, 1024)[1][0], hmac.digest(token, b"server" + ours + theirs, "sha256")):
        raise PermissionError("The server could not prove that it knows the token. Whose address is this?")


def ask(stream: BufferedRWPair, kind: str, packet: Packet | None = None, **header: Any) -> tuple[Header, Tensors]:
    """Call the server; the words and the tensors of its answer."""
    send(stream, CALL, encode({"kind": kind, **header}, packet or []))
    return decode(receive(stream)[1])


def attend(sock: socket.socket, token: bytes, shard: Shard) -> None:
    """The server's side of one connection, to its end. It has a thread of its own, so that a call may wait."""
    with suppress(Exception), sock, sock.makefile("rwb") as stream:
        sock.settimeout(PROOF_S)
        ours = secrets.token_bytes(32)
        send(stream, AUTH, [b"minips/1", ours])
        _, (theirs, proof) = receive(stream, 1024)
        if not hmac.compare_digest(proof, hmac.digest(token, b"client" + ours + theirs, "sha256")):
            return send(stream, ERROR, [b"PermissionError", b"The server does not know this token. Pass its own."])
        send(stream, AUTH, [hmac.digest(token, b"server" + theirs + ours, "sha256")])
        sock.settimeout(SILENCE_S)
        while True:
            tag, frames = receive(stream)
            try:
                if tag != POOL:  # a word about connections for large messages, of which there are none: no answer
                    send(stream, CALL, answer(frames, sock, shard))
            except Exception as error:  # whatever is wrong with this call, the next one may be right
                send(stream, ERROR, [type(error).__name__.encode(), str(error).encode()])
    with shard.changed:
        shard.leave(sock)


def answer(frames: list[bytes], connection: Any, shard: Shard) -> list[bytes]:
    """The answer to a call, in the protocol's words. RuntimeError at the client for whatever is raised here."""
    said, gradients = decode(frames)
    kind = said["kind"]
    with shard.changed:
        if kind == "status":
            return encode({"kind": "reply", "config": shard.config, **shard.status()}, [])
        reply = shard.join(connection, said["worker"], str(said.get("secret", ""))) if kind == "hello" else {}
        worker = shard.connections.get(connection)
        if worker is None or said["worker"] not in (worker, -1) or kind not in KINDS:
            raise ValueError(f"Expected status or, as one worker, of {', '.join(KINDS)}; got {kind!r}.")
        shard.heard[worker] = time.monotonic()
        outcome = shard.push(worker, said["clock"], gradients, said["loss"]) if "push" in kind else None
        params = shard.wait(worker, shard.clocks[worker]) if "pull" in kind else {}
        shard.diverged = said.get("diverged", shard.diverged)  # a goodbye's; its connection's end says the rest
        reply |= {"kind": "reply", "version": shard.version}
        out = encode(reply, packed(params, "exact", {}), clock=shard.clocks[worker], done=shard.done, outcome=outcome)
        shard.traffic[worker] += sum(map(len, frames)), sum(map(len, out))
        return out


def serve(listener: socket.socket, token: bytes, shard: Shard) -> None:
    """Serve one run, until its workers have gone."""
    listener.settimeout(LOOK_S)
    while shard.connections or not (shard.applied or shard.done or time.monotonic() > shard.began + MEET_S):
        with suppress(TimeoutError):
            sock, _ = listener.accept()
            threading.Thread(target=attend, args=(sock, token, shard), daemon=True).start()
    report(f"Server, after {shard.applied} of {WORKERS * STEPS} pushes {shard.diverged}".rstrip(), shard.params)


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of tcp://HOST:PORT."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A whole parameter server in one file.")
    parser.add_argument("role", nargs="?", choices=["train", "serve", "work"], default="train")
    parser.add_argument("--bind", "--connect", type=endpoint, default="tcp://127.0.0.1:0", dest="address")
    parser.add_argument("--token-file", type=Path, default="token", metavar="FILE")
    parser.add_argument("--codec", choices=MEMORY, default=CODEC)
    parser.add_argument("--consistency", choices=["bsp", "asp"], default=CONSISTENCY)
    options = parser.parse_args()
    if options.role == "serve":
        options.token_file.touch(0o600)  # for its owner alone
        options.token_file.write_text(options.token_file.read_text().strip() or secrets.token_hex(16))
    token = secrets.token_bytes(32) if options.role == "train" else options.token_file.read_bytes().strip()
    if options.role == "work":
        work(options.address, token)
    else:
        with socket.create_server(options.address) as listener:
            print("The server is at tcp://{}:{}".format(*listener.getsockname()), flush=True)
            for _ in range(WORKERS if options.role == "train" else 0):
                multiprocessing.get_context("spawn").Process(target=work, args=(listener.getsockname(), token)).start()
            serve(listener, token, Shard(options.codec, options.consistency))
