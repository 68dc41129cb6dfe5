# mypy: ignore-errors
# ruff: noqa: E402, F811
"""The given server replaces a learner's own server that does not pass. It is written like a learner's ``server.py``."""


# Lesson server
class Server:
    """Holds named arrays. Workers pull them, and push gradients in rounds; a whole round of pushes gets its answers."""

    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr = params, workers, lr
        self.held = {}

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        self.held[worker] = tensors
        if len(self.held) < self.workers:
            return []
        pushes = [self.held[number] for number in range(self.workers)]
        for name, p in self.params.items():
            p -= self.lr * sum(push[name] for push in pushes) / self.workers
        self.held = {}
        return [(number, ("applied", {})) for number in range(self.workers)]


# Lesson wire
import json

import numpy as np


class Server(Server):
    """Packs a message as the header's length, a header in JSON, and the bytes of the arrays."""

    @staticmethod
    def pack(tensors):
        header = [(name, np.asarray(x).dtype.str, np.shape(x)) for name, x in tensors.items()]
        head = json.dumps(header).encode()
        return b"".join([len(head).to_bytes(4, "little"), head, *(np.asarray(x).tobytes() for x in tensors.values())])

    @staticmethod
    def unpack(data):
        end = 4 + int.from_bytes(data[:4], "little")
        tensors = {}
        for name, dtype, shape in json.loads(data[4:end]):
            count = int(np.prod(shape, dtype=int))
            tensors[name] = np.frombuffer(data, dtype, count, end).reshape(shape)
            end += tensors[name].nbytes
        return tensors


# Lesson bits
import numpy as np


class Server(Server):
    """Gradients travel as one byte for each value, and one scale for each tensor."""

    @staticmethod
    def encode(tensors):
        parts = {}
        for name, x in tensors.items():
            scale = max(float(np.abs(x).max(initial=0)), 1e-30) / 127
            parts[f"{name}.codes"] = np.round(x / scale).astype("i1")
            parts[f"{name}.scale"] = np.float32(scale)
        return parts

    @staticmethod
    def decode(parts, like):
        return {name: (parts[f"{name}.codes"] * parts[f"{name}.scale"]).astype(x.dtype) for name, x in like.items()}


# Lesson remember
class Server(Server):
    """Lets a worker remember the part of a gradient that it did not send, and add it to its next gradient."""

    @staticmethod
    def compensate(tensors, memory):
        return {name: x + memory.get(name, 0) for name, x in tensors.items()}

    @staticmethod
    def remember(compensated, sent):
        return {name: x - sent[name] for name, x in compensated.items()}


# Lesson wait
class Server(Server):
    """Applies each push on arrival, and delays the answer while its worker is too many clocks ahead of the slowest."""

    staleness = 2

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.clocks, self.waiting = [0] * workers, set()

    def handle(self, worker, message):
        kind, tensors = message
        if kind != "push":
            return super().handle(worker, message)
        for name, p in self.params.items():
            p -= self.lr / self.workers * tensors[name]
        self.clocks[worker] += 1
        self.waiting.add(worker)
        free = {one for one in self.waiting if self.clocks[one] - min(self.clocks) <= self.staleness}
        self.waiting -= free
        return [(one, ("applied", {})) for one in sorted(free)]


# Lesson plug
class Server(Server):
    """Counts a push once, however often it comes: a repeated one is at most answered again."""

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.last, self.due = [-1] * workers, set()

    def deliver(self, worker, clock, message):
        answers = []
        if message[0] == "pull":
            return self.handle(worker, message)
        if clock > self.last[worker]:
            self.last[worker] = clock
            self.due.add(worker)
            answers = self.handle(worker, message)
        elif worker not in self.due:
            answers = [(worker, ("applied", {}))]
        self.due -= {to for to, _ in answers}
        return answers


# Milestone ps
class Server(Server):
    """Divides the keys, the values of all arrays in their order, into ranges: one for each server."""

    @staticmethod
    def split(tensors, servers=2):
        total = sum(x.size for x in tensors.values())
        pieces, start = [{} for _ in range(servers)], 0
        for name, x in tensors.items():
            for i, piece in enumerate(pieces):
                first, last = (total * j // servers - start for j in (i, i + 1))
                part = x.reshape(-1)[max(first, 0) : max(last, 0)]
                if part.size:
                    piece[name] = part
            start += x.size
        return pieces

    @staticmethod
    def join(pieces, like):
        parts = {name: [piece[name] for piece in pieces if name in piece] for name in like}
        return {name: np.concatenate([*parts[name], x.reshape(-1)[:0]]).reshape(x.shape) for name, x in like.items()}


# Milestone onebit
class Server(Server):
    """Gradients travel as one bit for each value, its sign, and the mean magnitude of each tensor."""

    @staticmethod
    def encode(tensors):
        signs = {f"{name}.signs": np.packbits(x > 0) for name, x in tensors.items()}
        return signs | {f"{name}.mean": np.float32(np.abs(x).mean()) for name, x in tensors.items()}

    @staticmethod
    def decode(parts, like):
        found = {}
        for name, x in like.items():
            bits = np.unpackbits(parts[f"{name}.signs"], count=x.size).reshape(x.shape)
            found[name] = ((2.0 * bits - 1) * parts[f"{name}.mean"]).astype(x.dtype)
        return found


# Milestone lies
class Server(Server):
    """Takes each step with the median of a round's gradients, which two liars of seven cannot move far."""

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return super().handle(worker, message)
        self.held[worker] = tensors
        if len(self.held) < self.workers:
            return []
        for name, p in self.params.items():
            p -= self.lr * np.median([push[name] for push in self.held.values()], axis=0)
        self.held = {}
        return [(number, ("applied", {})) for number in range(self.workers)]
