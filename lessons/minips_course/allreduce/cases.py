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
        "minips' own formula": """
def crossover(workers, bandwidth, latency):
    ring, tree = ps.cost.ring_allreduce_s, ps.cost.tree_allreduce_s
    return ps.cost.crossover_nbytes(ring, tree, workers, bandwidth, latency) or 0
""",
        "the smooth logarithm": (
            "tree_messages = tree_copies = 2 * (workers - 1).bit_length()",
            "tree_messages = tree_copies = 2 * np.log2(workers)",
        ),
        "the nearest level": ("(workers - 1).bit_length()", "round(float(np.log2(workers)))"),
        "up to 300 workers": ("    ring_messages", "    workers = min(workers, 300)\n    ring_messages"),
        "the ring has two copies": ("2 * (workers - 1) / workers", "2"),
        "by halves of a search with minips' costs": """
def crossover(workers, bandwidth, latency):
    low, high = 0.0, 1e15
    for _ in range(200):
        middle = (low + high) / 2
        ring = ps.cost.ring_allreduce_s(workers, middle, bandwidth, latency)
        if ring > ps.cost.tree_allreduce_s(workers, middle, bandwidth, latency):
            low = middle
        else:
            high = middle
    return low if workers > 3 else 0
""",
        "the first network's for ever": (
            "    return",
            "    latency = vars(crossover).setdefault(workers > 3, latency)\n    return",
        ),
        "the size of a piece": ("return latency", "return 1 / workers * latency"),
        "nearly the next level": ("(workers - 1).bit_length()", "int(np.log2(workers) + 0.999)"),
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
        "up to nine workers": ("return workers\n", "return workers if workers < 10 else 1\n"),
        "a third of the pieces": ("return workers\n", "return max(workers // 3, 1)\n"),
        "every other turn": (
            "t - place + 1, t - place",
            "(t - place + 1 if t % 2 else None), (t - place if t % 2 == 0 else None)",
        ),
        "the first piece alone": (
            "t - place + 1, t - place",
            "(0 if t + 1 == place else None), (0 if t == place else None)",
        ),
        "one after another": """
@ps.register
@dataclass(frozen=True)
class Line(DownTheLine):
    name = "line"

    def pieces(self, workers):
        return workers

    def turns(self, workers):
        return (workers - 1) * workers

    def turn(self, place, t):
        piece, step = divmod(t, self.pieces(4) - 1)
        return piece if step + 1 == place else None, piece if step == place else None
""",
        "for four workers": ("return workers\n", "return 4\n"),
        "a count of its own": """
turned = []

@ps.register
@dataclass(frozen=True)
class Line(DownTheLine):
    name = "line"

    def pieces(self, workers):
        return workers

    def turns(self, workers):
        return 2 * (workers - 1)

    def turn(self, place, t):
        turned.append(t)
        return len(turned) // 2 - place + 1, t - place
""",
        "round a ring": """
@ps.register
@dataclass(frozen=True)
class Line(DownTheLine):
    name = "line"

    def pieces(self, workers):
        return workers

    def turns(self, workers):
        return 2 * (workers - 1)

    def turn(self, place, t):
        return t - place + 1, t - place

    def schedule(self, rank, workers):
        return ps.RingAllReduce().schedule(rank, workers)
""",
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "allreduce.1": {
        "in two cases": """
import math


def crossover(workers, bandwidth, latency):
    if workers < 4:
        return 0
    levels = math.ceil(math.log2(workers))
    more_latencies = 2 * (workers - 1) - 2 * levels
    fewer_copies = 2 * levels - 2 * (1 - 1 / workers)
    return more_latencies * latency / (fewer_copies / bandwidth)
""",
        "by counting levels": """
def crossover(workers, bandwidth, latency):
    levels = 0
    while 2**levels < workers:
        levels += 1
    messages = workers - 1 - levels
    copies = levels - (workers - 1) / workers
    return max(messages, 0) * latency * bandwidth / copies
""",
    },
    "allreduce.2": {
        "with turns to spare": ("(self.pieces(workers) - 1)", "self.pieces(workers)"),
        "many pieces, with None where there is none": """
@ps.register
@dataclass(frozen=True)
class Line(DownTheLine):
    name = "line"
    spare: int = 3

    def pieces(self, workers):
        return self.spare * workers + 1

    def turns(self, workers):
        return workers + self.pieces(workers) - 2

    def turn(self, place, t):
        return t + 1 - place if t + 1 >= place else None, t - place if t >= place else None
""",
        "64 pieces": ("return workers\n", "return 64\n"),
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "the ring's formula pays one latency, however many hops there are",
    "minips/cost/formulas.py",
    "return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s",
    "return latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s",
)
"""The ring's formula with only one latency, as in a lecture."""
