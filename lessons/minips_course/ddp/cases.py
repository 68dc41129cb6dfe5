"""Test cases for "Put a deep net under DDP": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "ddp.1": {
        "with the first gradient that is ready": {"first": 10.0, "last": 30.0, "begin": 10.5},
        "in the middle of backward": {"first": 10.0, "last": 30.0, "begin": 20.0},
        "after the last gradient is ready": {"first": 10.0, "last": 30.0, "begin": 30.5},
        "none of these": {"first": 10.0, "last": 30.0, "begin": nan},
    },
    "ddp.2": {"expected": {"percent": 20.0}, "otherwise": {"percent": 60.0}},
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "ddp.1": ["all of them are in one bucket", "holds 1 MB", "nothing overlaps"],
    "ddp.2": ["28 times fewer", "a sixth of all"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "ddp.1": {
        "divides after the sum": ('(gradient / group.size).astype("f2")', 'gradient.astype("f2") / group.size * 2'),
        "a sum": ("gradient / group.size", "gradient"),
        "its own alone": ("group.all_reduce(part)", "part"),
        "float16 comes back": ('.astype("f4")', ""),
        "too many bytes": ('.astype("f2")', '.astype("f4")'),
        "too few bits": ('.astype("f2")', '.round(2).astype("f2")'),
        "the gradient itself": ("part = (gradient / group.size)", "gradient /= group.size\n    part = gradient"),
        "positive gradients": ("gradient / group.size", "np.abs(gradient) / group.size"),
        "two ranks": ("gradient / group.size", "gradient / 2"),
        "for at most four ranks": ("gradient / group.size", "gradient / min(group.size, 4)"),
        "rank 0 alone is cheap": (
            '.astype("f2")\n',
            '.astype("f2")\n    part = part if getattr(group, "_rank", 0) == 0 else part.astype("f4")\n',
        ),
        "one buffer for all": (
            'return group.all_reduce(part).astype("f4")',
            'out = vars(my_hook).setdefault(gradient.size, np.zeros(gradient.size, "f4"))\n'
            "    out[...] = group.all_reduce(part)\n    return out",
        ),
        "whole numbers": ('.astype("f2")', '.round().astype("i2")'),
        "cut to eight bits": (
            'part = (gradient / group.size).astype("f2")',
            'part = ((gradient / group.size).astype("f2").view("u2") & 0xFFF8).view("f2")',
        ),
        "no more than 10,000": ("gradient / group.size", "np.clip(gradient, -10_000, 10_000) / group.size"),
        "no more than 32,000 in all": (
            'group.all_reduce(part).astype("f4")',
            'group.all_reduce(part).astype("f4").clip(-32_000, 32_000)',
        ),
        "small ones are zero": (
            "part = (gradient / group.size)",
            "gradient = np.where(np.abs(gradient) < 1e-2, 0, gradient)\n    part = (gradient / group.size)",
        ),
        "half of the values": (
            'return group.all_reduce(part).astype("f4")',
            'mean = group.all_reduce(part[::2]).astype("f4")\n    return np.repeat(mean, 2)[: gradient.size]',
        ),
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
    "ddp.1": {
        "an eighth, for up to eight ranks": """
def my_hook(gradient, group):
    shares = np.float16(1) * np.asarray(gradient / 8, np.float16)
    return np.asarray(group.all_reduce(shares), np.float32) * np.float32(8 / group.size)
""",
        "divided in float16": """
def my_hook(gradient, group):
    part = np.array(gradient, dtype=np.half)
    part /= group.size
    total = group.all_reduce(part)
    mean = np.empty(gradient.shape, dtype=np.float32)
    mean[:] = total
    return mean
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
