"""Test cases for "Add up without a server": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "allreduce.3": {
        "about S": {"sent": 1.0},
        "about 2 S": {"sent": 1.75},
        "about 7 S": {"sent": 7.0},
        "none of these": {"sent": nan},
    },
    "allreduce.4": {
        "up to 2 times": {"times": 1.0},
        "2 to 5 times": {"times": 3.0},
        "more than 5 times": {"times": 10.5},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "allreduce.3": ["7/8", "fewest bytes", "2(*n* − 1)"],
    "allreduce.4": ["126", "log"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "allreduce.3": {
        "all over rank 0, as given": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def rounds(self, workers):
        everything = range(workers)
        there = [[(rank, 0, everything, True)] for rank in range(1, workers)]
        back = [[(0, rank, everything, False)] for rank in range(1, workers)]
        return there + back
""",
        "a ring": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def rounds(self, workers):
        ring = []
        for turn in range(2 * (workers - 1)):
            messages = []
            for rank in range(workers):
                piece = (rank - turn + (turn >= workers - 1) * workers) % workers
                messages.append((rank, (rank + 1) % workers, range(piece, piece + 1), turn < workers - 1))
            ring.append(messages)
        return ring
""",
        "a tree": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def rounds(self, workers):
        up, far = [], 1
        while far < workers:
            up.append([(rank, rank - far, range(workers), True) for rank in range(far, workers, 2 * far)])
            far *= 2
        return up + [[(to, rank, some, False) for rank, to, some, _ in messages] for messages in reversed(up)]
""",
        "partners swap everything": ("self.block(rank ^ size, size), True", "range(workers), True"),
        "its own block": ("self.block(rank ^ size, size), True", "self.block(rank, size), True"),
        "added on the way back": ("some, False", "some, True"),
        "back in the same order": ("reversed(halving)", "halving"),
        "back in the same direction": ("(to, rank, some, False)", "(rank, to, some, False)"),
        "without the way back": ("return halving + doubling", "return halving"),
        "up to eight workers": ("size = workers // 2", "size = min(workers, 8) // 2"),
        "a round too few": ("while size:", "while size > 1:"),
        "minips' own": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def rounds(self, workers):
        return exchanges.rounds(ps.HalvingDoubling(), workers)
""",
        "more rounds at each look": (
            "return halving + doubling",
            "looks = vars(type(self)).get('looks', 0)\n        type(self).looks = looks + 1\n"
            "        return halving + doubling + [[]] * (2 * (looks > 0))",
        ),
        "rounds that idle": ("return halving + doubling", "return halving + [[], []] + doubling"),
        "halves once, then everything": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def rounds(self, workers):
        half, everything = workers // 2, range(workers)
        there = []
        size = half
        while size:
            low = [(rank, rank ^ size, everything, True) for rank in range(workers) if rank & size]
            there.append([one for one in low if one[0] < 2 * size])
            size //= 2
        return there + [[(to, rank, some, False) for rank, to, some, _ in one] for one in reversed(there)]
""",
        "lists of pieces": ("self.block(rank ^ size, size), True", "[*self.block(rank ^ size, size)], True"),
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
    "allreduce.3": {
        "near partners first, with what each rank still keeps": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def rounds(self, workers):
        kept, halving, far = [range(workers)] * workers, [], 1
        while far < workers:
            messages = []
            for rank in range(workers):
                own, half = kept[rank], len(kept[rank]) // 2
                lower, upper = own[:half], own[half:]
                goes, kept[rank] = (lower, upper) if rank & far else (upper, lower)
                messages.append((rank, rank ^ far, goes, True))
            halving.append(messages)
            far *= 2
        back = []
        for messages in halving[::-1]:
            back.append([(to, rank, some, False) for rank, to, some, _ in messages])
        return halving + back
""",
        "64 pieces": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def pieces(self, workers):
        return 64

    def rounds(self, workers):
        there, back, share = [], [], 64
        far = workers // 2
        while far >= 1:
            share //= 2
            both = []
            for rank in range(workers):
                partner = rank ^ far
                first = partner // far * far * (64 // workers)
                both.append((rank, partner, range(first, first + share)))
            there.append([(rank, partner, some, True) for rank, partner, some in both])
            back.insert(0, [(partner, rank, some, False) for rank, partner, some in both])
            far //= 2
        return there + back
""",
        "two groups, each by itself": """
@ps.register
@dataclass(frozen=True)
class Mine(exchanges.Rounds):
    name = "mine"

    def rounds(self, workers):
        return self.among(0, workers)

    def among(self, first, many):
        if many == 1:
            return []
        half = many // 2
        lower, upper = range(first, first + half), range(first + half, first + many)
        swap = [(rank, rank + half, upper) for rank in lower] + [(rank, rank - half, lower) for rank in upper]
        inner = zip(self.among(first, half), self.among(first + half, half))
        inside = [one + other for one, other in inner]
        out = [(rank, to, some, True) for rank, to, some in swap]
        return [out, *inside, [(to, rank, some, False) for rank, to, some in swap]]
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
