"""Lesson 19: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "19.1": {
        "four workers": ("2 * (workers - 1), 2 * (workers - 1) / workers", "6, 1.5"),
        "one level more": ("(workers - 1).bit_length()", "workers.bit_length()"),
        "rounded down": ("(workers - 1).bit_length()", "(workers.bit_length() - 1)"),
        "once round": ("2 * (workers - 1), 2", "workers - 1, 2"),
        "in vain for few workers": ("latency * bandwidth", "1 + latency * bandwidth"),
        "the tree has no bytes": ("(tree_copies - ring_copies)", "ring_copies"),
        "bits": ("latency * bandwidth", "8 * latency * bandwidth"),
    },
    "19.2": {
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
