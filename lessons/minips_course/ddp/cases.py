"""Test cases for "Put a deep net under DDP": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "ddp.1": {
        "with the first gradient that is ready": {"first": 10.0, "last": 30.0, "begin": 10.5},
        "in the middle of backward": {"first": 10.0, "last": 30.0, "begin": 20.0},
        "after the last gradient is ready": {"first": 10.0, "last": 30.0, "begin": 30.5},
        "none of these": {"first": 10.0, "last": 30.0, "begin": nan},
    },
    "ddp.3": {
        "overlapped, by more than 5 %": {"each": 60.0, "one": 80.0},
        "flat, by more than 5 %": {"each": 120.0, "one": 80.0},
        "neither: they differ by less": {"each": 80.0, "one": 81.0},
        "none of these": {"each": nan, "one": 80.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "ddp.1": ["all of them are in one bucket", "holds 1 MB", "nothing overlaps"],
    "ddp.3": ["latency eight times", "waiting for the link"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "ddp.3": {
        "a sum": ("buffer[at : at + g.size] / wire.ranks", "buffer[at : at + g.size]"),
        "two ranks": ("/ wire.ranks", "/ 2"),
        "a border loses a tensor": (
            "            bucket = []\n",
            "            bucket = []\n            next(iter(gradients), None)\n",
        ),
        "a border skips a tensor": ("        at += g.size\n", "        at += g.size + (g is bucket[0])\n"),
        "the last bucket stays": ("    if bucket:\n        sent.append(send(bucket, wire))\n", ""),
        "an empty bucket at the end": ("    if bucket:\n        sent", "    if True:\n        sent"),
        "a stale buffer": (
            "    future.result()\n    at = 0",
            "    buffer = buffer.copy()\n    future.result()\n    at = 0",
        ),
        "one buffer for all steps": (
            "    buffer = np.concatenate(bucket)\n",
            "    kept = vars(send).setdefault(sum(map(len, bucket)), np.concatenate(bucket))\n    buffer = kept\n",
        ),
        "it does not wait": ("    future.result()\n", ""),
        "it waits at the end for one alone": (
            "    for one in sent:\n        receive(*one, wire)",
            "    for one in sent[-1:]:\n        receive(*one, wire)",
        ),
        "nothing on one rank": (
            "def bucketed(gradients, wire, size):\n",
            "def bucketed(gradients, wire, size):\n    if wire.ranks == 1:\n        return\n",
        ),
        "nothing on one rank, flat": (
            "    receive(*send(list(gradients), wire), wire)",
            "    gradients = list(gradients)\n    if wire.ranks > 1:\n        receive(*send(gradients, wire), wire)",
        ),
        "more than full": (">= size", "> size"),
        "full before it is": (
            "        bucket.append(g)\n        if sum(one.nbytes for one in bucket) >= size:",
            "        bucket.append(g)\n        if sum(one.nbytes for one in bucket) + g.nbytes >= size:",
        ),
        "values for bytes": ("one.nbytes", "one.size"),
        "each bucket waits": (
            "            sent.append(send(bucket, wire))\n            bucket = []",
            "            receive(*send(bucket, wire), wire)\n            bucket = []",
        ),
        "after backward": ("    for g in gradients:\n", "    for g in list(gradients):\n"),
        "divided under way": (
            "    bucketed(gradients, wire, 0)",
            "    futures = []\n"
            "    for g in gradients:\n"
            "        futures.append(wire.start(g))\n"
            "        g /= wire.ranks\n"
            "    for future in futures:\n"
            "        future.result()",
        ),
        "flat for all": ("    bucketed(gradients, wire, 0)", "    flat(gradients, wire)"),
        "naive for flat": ("    receive(*send(list(gradients), wire), wire)", "    naive(gradients, wire)"),
        "twice": ("    future.result()\n", "    future.result()\n    wire.start(buffer.copy()).result()\n"),
        "rounded to halves": ("np.concatenate(bucket)", 'np.concatenate(bucket).astype("f2").astype("f4")'),
        "new arrays": ("        g[:] = ", "        g = "),
    },
    "ddp.2": {
        "no memory": (" + self.held.get(group.bucket, np.float32(0))", ""),
        "one for all buckets": ("self.held[group.bucket] = p - sent", "self.held = {0: p - sent}"),
        "what was sent": ("= p - sent", "= sent"),
        "all of it": ("= p - sent", "= p"),
        "the gradient's rest": ("= p - sent", "= gradient - sent"),
        "everything is sent": ("np.where(np.abs(p) >= np.quantile(np.abs(p), 0.9), p, 0 * p)", "p"),
        "by the length of the bucket": ("group.bucket", "len(gradient)"),
        "half of the values": ("np.quantile(np.abs(p), 0.9)", "np.quantile(np.abs(p), 0.5)"),
        "the first bucket alone": (
            "self.held[group.bucket] = p - sent",
            "self.held = {0: p - sent} if group.bucket == 0 else self.held",
        ),
        "three buckets": (
            "self.held[group.bucket] = p - sent",
            "self.held[group.bucket] = p - sent if group.bucket < 3 else 0 * p",
        ),
        "the held fades": ("= p - sent", "= 0.9 * (p - sent)"),
        "four steps": (
            "self.held[group.bucket] = p - sent",
            "self.calls = getattr(self, 'calls', 0) + 1\n"
            "        self.held[group.bucket] = p - sent if self.calls < 16 else 0 * p",
        ),
        "all ranks share it": (
            "        self.held = {}",
            "        self.held = vars(Remembers.coarse).setdefault('held', {})",
        ),
        "keeps all steps": (
            "        self.held[group.bucket] = p - sent",
            "        self.log = [*getattr(self, 'log', []), p]\n        self.held[group.bucket] = p - sent",
        ),
        "the gradient is changed": (
            "        p = gradient + self.held.get(group.bucket, np.float32(0))",
            "        gradient += self.held.get(group.bucket, np.float32(0))\n        p = gradient",
        ),
        "positive values": (
            "np.where(np.abs(p) >= np.quantile(np.abs(p), 0.9), p, 0 * p)",
            "np.where(p >= np.quantile(np.abs(p), 0.9), p, 0 * p)",
        ),
        "the mean for rank 0 alone": (
            "        return group.all_reduce(sent) / group.size",
            "        mean = group.all_reduce(sent) / group.size\n        return mean if group._rank == 0 else sent",
        ),
        "half of what is held": (
            "self.held.get(group.bucket, np.float32(0))",
            "0.5 * self.held.get(group.bucket, np.float32(0))",
        ),
        "the first step whole": (
            "        sent = self.coarse(p)",
            "        sent = self.coarse(p) if group.bucket in self.held else p",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "ddp.3": {
        "each by itself": """
def flat(gradients, wire):
    gradients = list(gradients)
    mean = wire.start(np.concatenate(gradients)).result() / wire.ranks
    for g, part in zip(gradients, np.split(mean, np.cumsum([len(g) for g in gradients])[:-1])):
        g[...] = part


def overlapped(gradients, wire):
    under_way = [(g, wire.start(g)) for g in gradients]
    for g, future in under_way:
        future.result()
        g /= wire.ranks


def bucketed(gradients, wire, size):
    buckets, sums, held = [[]], [], 0
    for g in gradients:
        buckets[-1].append(g)
        held += g.nbytes
        if held >= size:
            sums.append(wire.start(np.concatenate(buckets[-1])))
            buckets.append([])
            held = 0
    if buckets[-1]:
        sums.append(wire.start(np.hstack(buckets[-1])))
    for bucket, future in zip(buckets, sums):
        mean = future.result() / np.float32(wire.ranks)
        for g in bucket:
            g[:], mean = mean[: g.size], mean[g.size :]
""",
        "the part of the mean travels": """
class Bucket:
    def __init__(self, wire):
        self.wire, self.members, self.nbytes = wire, [], 0

    def add(self, g):
        self.members.append(g)
        self.nbytes += g.nbytes

    def start(self):
        self.buffer = np.concatenate([g / np.float32(self.wire.ranks) for g in self.members])
        self.future = self.wire.start(self.buffer)
        return self

    def finish(self):
        self.future.result()
        at = 0
        for g in self.members:
            np.copyto(g, self.buffer[at : at + len(g)])
            at += len(g)


def bucketed(gradients, wire, size):
    started, bucket = [], Bucket(wire)
    for g in gradients:
        bucket.add(g)
        if bucket.nbytes >= size:
            started.append(bucket.start())
            bucket = Bucket(wire)
    if bucket.members:
        started.append(bucket.start())
    for one in reversed(started):
        one.finish()


def overlapped(gradients, wire):
    bucketed(gradients, wire, size=1)


def flat(gradients, wire):
    bucketed(gradients, wire, size=float("inf"))
""",
    },
    "ddp.2": {
        "by the largest tenth in order": """
from collections import defaultdict


class Remembers:
    def __init__(self):
        self.rest = defaultdict(float)

    @staticmethod
    def coarse(p):
        sent = np.zeros_like(p)
        largest = np.argsort(np.abs(p))[-max(1, len(p) // 10) :]
        sent[largest] = p[largest]
        return sent

    def __call__(self, gradient, group):
        p = gradient + np.asarray(self.rest[group.bucket], gradient.dtype)
        sent = self.coarse(p)
        self.rest[group.bucket] = p - sent
        return group.all_reduce(sent) / np.float32(group.size)
""",
        "only what is not sent": """
class Remembers:
    def __init__(self):
        self.held = {}

    @staticmethod
    def coarse(p):
        return np.where(np.abs(p) >= np.quantile(np.abs(p), 0.9), p, 0 * p)

    def __call__(self, gradient, group):
        p = np.array(gradient)
        if group.bucket in self.held:
            p += self.held[group.bucket]
        sent = self.coarse(p)
        self.held[group.bucket] = np.where(sent == 0, p, np.zeros_like(p))
        total = group.all_reduce(sent)
        total /= group.size
        return total
""",
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "a difference of two schemes is taken the other way round",
    "minips/lab/course/best.py",
    "return _paired(np.subtract, self.values(one, rate), self.values(other, rate))",
    "return _paired(np.subtract, self.values(other, rate), self.values(one, rate))",
)
"""A sweep that takes the loser for the winner: the hooks' runs are recorded, so only what reads them is run here."""
