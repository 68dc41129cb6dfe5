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
    },
    "ddp.2": {
        "no memory": (" + self.held.get(group.bucket, np.float32(0))", ""),
        "one for all buckets": ("self.held[group.bucket] = p - sent", "self.held = {0: p - sent}"),
        "what was sent": ("= p - sent", "= sent"),
        "all of it": ("= p - sent", "= p"),
        "the gradient's rest": ("= p - sent", "= gradient - sent"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the codec hook makes its sender anew for each bucket, so that its memory is empty",
    "minips/torch.py",
    "if self._sender is None:",
    "if True:",
)
"""A hook that loses its memory after each bucket."""
