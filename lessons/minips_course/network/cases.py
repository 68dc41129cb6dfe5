"""Test cases for "Match a schedule to a network": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "network.1": {
        "about as long": {"times": 1.0},
        "2 to 3 times as long": {"times": 2.4},
        "more than 4 times as long": {"times": 6.0},
        "none of these": {"times": nan},
    },
    "network.3": {
        "less than 1.5 times as long": {"times": 1.3},
        "1.5 times to twice as long": {"times": 1.8},
        "more than twice as long": {"times": 3.3},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "network.1": ["half of everything", "2.4", "four messages"],
    "network.3": ["overflow", "times out", "sends again", "3.3 times"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "network.1": {
        "minips' ring": (
            "        return [hop._replace(to=after, source=before) for hop in super().schedule(place, workers)]",
            "        return super().schedule(rank, workers)",
        ),
        "in the order of the ranks": (
            "order = sorted(range(workers), key=self.racks.__getitem__)",
            "order = [*range(workers)]",
        ),
        "the rank's pieces": ("super().schedule(place, workers)", "super().schedule(rank, workers)"),
        "the rank at the place of its own number": ("place = order.index(rank)", "place = order[rank]"),
        "the wrong way round": ("to=after, source=before", "to=before, source=after"),
        "the sender stays": ("to=after, source=before", "to=after"),
        "no way back to the first": ("(place + 1) % workers", "min(place + 1, workers - 1)"),
        "for racks in zigzag": (
            "sorted(range(workers), key=self.racks.__getitem__)",
            "[*range(0, workers, 2), *range(1, workers, 2)]",
        ),
        "for eight workers": (
            "sorted(range(workers), key=self.racks.__getitem__)",
            "sorted(range(workers), key='01010101'.__getitem__) if workers < 9 else [*range(workers)]",
        ),
        "for racks 0 and 1": ("key=self.racks.__getitem__", 'key=lambda one: self.racks[one] == "1"'),
        "the racks of the places": ("key=self.racks.__getitem__", "key=lambda one: self.racks[one - 1]"),
        "the first racks for ever": (
            "def schedule(self, rank, workers):\n        order = sorted(range(workers), key=self.racks.__getitem__)",
            "def schedule(self, rank, workers, known={}):\n"
            "        order = sorted(range(workers), key=known.setdefault(workers, self.racks).__getitem__)",
        ),
        "a tree": """
@ps.register
@dataclass(frozen=True)
class RackRing(ps.TreeAllReduce):
    name = "rackring"
    racks: str = "01010101"
""",
    },
    "network.2": {
        "no cable": ("max(longest / bytes_per_s, max(left.values()) / cable_bytes_per_s)", "longest / bytes_per_s"),
        "the cable alone": (
            "max(longest / bytes_per_s, max(left.values()) / cable_bytes_per_s)",
            "max(left.values()) / cable_bytes_per_s",
        ),
        "both, one after the other": (
            "max(longest / bytes_per_s, max(left.values()) / cable_bytes_per_s)",
            "longest / bytes_per_s + max(left.values()) / cable_bytes_per_s",
        ),
        "both directions share the cable": ("max(left.values())", "sum(left.values())"),
        "a message, and not its pieces": ("left[racks[rank]] += len(hop.sends)", "left[racks[rank]] += 1"),
        "the largest message alone crosses": (
            "left[racks[rank]] += len(hop.sends)",
            "left[racks[rank]] = max(left[racks[rank]], len(hop.sends))",
        ),
        "the racks are halves": ("racks[hop.to] != racks[rank]", "(hop.to < n / 2) != (rank < n / 2)"),
        "rack 0 alone": ("max(left.values())", 'left["0"]'),
        "n pieces": ("exchange.pieces(n)", "n"),
        "the ranks one after another": ("longest = max(longest, len(hop.sends))", "longest += len(hop.sends)"),
        "all that crosses is as large as a rank's first": (
            "longest = max(longest, len(hop.sends))",
            "longest = max(longest, len(hops[0].sends))",
        ),
        "of the whole step": """
def racks_s(exchange, racks, nbytes, bytes_per_s, cable_bytes_per_s):
    n = len(racks)
    sent, left = [0] * n, {"0": 0, "1": 0}
    for rank in range(n):
        for hop in exchange.schedule(rank, n):
            sent[rank] += len(hop.sends)
            if hop.to is not None and racks[hop.to] != racks[rank]:
                left[racks[rank]] += len(hop.sends)
    return max(max(sent) / bytes_per_s, max(left.values()) / cable_bytes_per_s) * nbytes / exchange.pieces(n)
""",
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "network.1": {
        "rack by rack": """
@ps.register
@dataclass(frozen=True)
class RackRing(ps.RingAllReduce):
    name = "rackring"
    racks: str = "01010101"

    def schedule(self, rank, workers):
        order = []
        for rack in dict.fromkeys(self.racks):
            order += [one for one in range(workers) if self.racks[one] == rack]
        place = {one: at for at, one in enumerate(order)}
        hops = []
        for hop in ps.RingAllReduce().schedule(place[rank], workers):
            hops.append(ps.Hop(order[hop.to], hop.sends, order[hop.source], hop.receives, hop.adds))
        return hops
""",
        "the last rack first": (
            "sorted(range(workers), key=self.racks.__getitem__)",
            "sorted(range(workers), key=lambda one: (self.racks[one], -one), reverse=True)",
        ),
    },
    "network.2": {
        "a sum of largest times": """
def racks_s(exchange, racks, nbytes, bytes_per_s, cable_bytes_per_s):
    n = len(racks)
    piece = nbytes / exchange.pieces(n)
    total = 0
    for hops in zip(*[exchange.schedule(rank, n) for rank in range(n)]):
        times = [piece * len(hop.sends) / bytes_per_s for hop in hops]
        for rack in "01":
            mine = [hop for r, hop in enumerate(hops) if racks[r] == rack]
            out = sum(len(hop.sends) for hop in mine if hop.to is not None and racks[hop.to] != rack)
            times.append(piece * out / cable_bytes_per_s)
        total += max(times)
    return total
""",
        "by what arrives": (
            "            if hop.to is not None and racks[hop.to] != racks[rank]:\n"
            "                left[racks[rank]] += len(hop.sends)",
            "            if hop.source is not None and racks[hop.source] != racks[rank]:\n"
            "                left[racks[rank]] += len(hop.receives)",
        ),
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "the cable between the racks is as wide as the other links",
    "minips/machines/topology.py",
    'yield "rack 0", "rack 1", self.uplink_bps',
    'yield "rack 0", "rack 1", self.bandwidth_bps',
)
"""Two racks without a thin cable."""
