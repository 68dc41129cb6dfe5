"""Test cases for "Do without a server": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "allreduce.1": {
        "clearly less": {"share": 0.4},
        "about the same": {"share": 1.0},
        "clearly more": {"share": 2.0},
        "none of these": {"share": nan},
    },
    "allreduce.2": {
        "the way over a server": {"server": 0.2, "tree": 0.08, "ring": 0.12},
        "the way up and down the tree": {"server": 0.04, "tree": 0.15, "ring": 0.12},
        "the way round the ring": {"server": 0.04, "tree": 0.08, "ring": 0.12},
        "none of these": {"server": 0.04, "tree": 0.12, "ring": 0.12},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "allreduce.1": ["1.5 gradients", "all links work"],
    "allreduce.2": ["only the latencies count", "six latencies"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "allreduce.1": {
        "four workers": ("2 * (workers - 1), 2 * (workers - 1) / workers", "6, 1.5"),
        "one level more": ("(workers - 1).bit_length()", "workers.bit_length()"),
        "rounded down": ("(workers - 1).bit_length()", "(workers.bit_length() - 1)"),
        "once round": ("2 * (workers - 1), 2", "workers - 1, 2"),
        "in vain for few workers": ("latency * bandwidth", "1 + latency * bandwidth"),
        "the tree has no bytes": ("(tree_copies - ring_copies)", "ring_copies"),
        "bits": ("latency * bandwidth", "8 * latency * bandwidth"),
    },
    "allreduce.2": {
        "one piece": ("return workers\n", "return 1\n"),
        "two pieces": ("return workers\n", "return 2\n"),
        "a turn too few": ("(self.pieces(workers) - 1)", "(self.pieces(workers) - 2)"),
        "no more turns than for one piece": ("(workers - 1) + (self.pieces(workers) - 1)", "workers - 1"),
        "a turn late": ("t - place + 1, t - place", "t - place, t - place - 1"),
        "sent before it came": ("t - place + 1, t - place", "t - place + 1, t - place + 1"),
        "the wrong way round": ("t - place + 1, t - place", "t - place, t - place + 1"),
        "all places at once": ("t - place + 1, t - place", "t, t"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the ring's formula pays one latency, however many hops there are",
    "minips/cost/formulas.py",
    "return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s",
    "return latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s",
)
"""The ring's formula with only one latency, as in a lecture."""
