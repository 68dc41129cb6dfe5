"""Test cases for "Meet a real network": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "links.1": {"expected": {"seconds": 0.042}, "otherwise": {"seconds": 0.4}},
    "links.2": {
        "the median below 1.5 times, the slowest below 3 times": {"median": 1.1, "slowest": 1.6},
        "the median below 1.5 times, the slowest above 3 times": {"median": 1.1, "slowest": 6.0},
        "the median above 1.5 times": {"median": 4.0, "slowest": 8.0},
        "none of these": {"median": nan, "slowest": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "links.1": ["0.0336", "0.0168", "0.034", "34 ms", "share a link"],
    "links.2": ["time-out", "tail", "nothing waits"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "links.1": {
        "the first hosts": """
def place(flows, room):
    hosts = sorted({host for pair in flows for host in pair})
    return hosts[: room[0]]
""",
        "for four workers and four servers": """
def place(flows, room):
    return [f"{kind} {number}" for kind in ("worker", "server") for number in range(room[0] // 2)]
""",
        "every second host": """
def place(flows, room):
    return sorted({host for pair in flows for host in pair})[::2][: room[0]]
""",
        "the sum of both ways": ("max(ways)", "sum(ways)"),
        "one way alone": ("max(ways)", "ways[1]"),
        "the emptier way": ("max(ways)", "min(ways)"),
        "the most bytes": ("if max(ways) < fewest:", "if best is None or max(ways) > fewest:"),
        "no more than one rack's room": ("max(0, len(hosts) - room[1])", "0"),
        "as full as can be": ("range(max(0, len(hosts) - room[1]), min(room[0], len(hosts)) + 1)", "[room[0]]"),
        "one host too few": ("min(room[0], len(hosts)) + 1", "min(room[0], len(hosts))"),
        "counts flows, not bytes": ("+= nbytes", "+= 1"),
        "the largest flow": (
            "ways[sender in rack] += nbytes",
            "ways[sender in rack] = max(ways[sender in rack], nbytes)",
        ),
        "what stays in its rack": ("(sender in rack) != (receiver in rack)", "sender in rack and receiver in rack"),
        "workers alone move": ("for host in pair})", "for host in pair if 'worker' in host})"),
        "rack 1": ("    return best", "    return [host for host in hosts if host not in best]"),
        "greedy": """
def place(flows, room):
    hosts = sorted({host for pair in flows for host in pair})
    rack = set(hosts[: max(0, len(hosts) - room[1])])
    while len(rack) < min(room[0], len(hosts)):
        bound = {h: sum(b for p, b in flows.items() if h in p and rack & {*p}) for h in hosts if h not in rack}
        rack.add(max(bound, key=bound.get))
    return rack
""",
        "remembers the first": """
from itertools import combinations

known = {}


def place(flows, room):
    hosts = sorted({host for pair in flows for host in pair})
    if len(hosts) in known:
        return known[len(hosts)]
    best, fewest = None, float("inf")
    for count in range(max(0, len(hosts) - room[1]), min(room[0], len(hosts)) + 1):
        for rack in combinations(hosts, count):
            out = sum(b for (s, r), b in flows.items() if s in rack and r not in rack)
            back = sum(b for (s, r), b in flows.items() if s not in rack and r in rack)
            if max(out, back) < fewest:
                best, fewest = rack, max(out, back)
    known[len(hosts)] = best
    return best
""",
    },
    "links.2": {
        "nothing leaves": ("max(0.0, waiting - rate * (at - last))", "waiting"),
        "below nothing": ("max(0.0, waiting - rate * (at - last))", "waiting - rate * (at - last)"),
        "nothing is dropped": ("waiting + nbytes > limit", "False"),
        "fills up to the brim": ("            dropped += 1", "            dropped, waiting = dropped + 1, limit"),
        "drops the full queue": ("waiting + nbytes > limit", "waiting > limit"),
        "drops what just fits": ("waiting + nbytes > limit", "waiting + nbytes >= limit"),
        "time since the first": (
            "waiting, last = max(0.0, waiting - rate * (at - last)), at",
            "waiting = max(0.0, waiting - rate * (at - last))",
        ),
        "the last packet that fitted": (
            "        waiting, last = max(0.0, waiting - rate * (at - last)), at\n        if waiting + nbytes > limit:",
            "        gone = max(0.0, waiting - rate * (at - last))\n        if gone + nbytes <= limit:\n"
            "            waiting, last = gone, at\n        if gone + nbytes > limit:",
        ),
        "bits": ("rate * (at - last)", "rate / 8 * (at - last)"),
        "the bytes that are dropped": ("dropped += 1", "dropped += nbytes"),
        "rows before": ("        rows.append(waiting)", "        rows.append(waiting - nbytes)"),
        "the same limit for all": ("> limit", "> 50_000"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "links.1": {
        "by bits": """
def place(flows, room):
    hosts = [*dict.fromkeys(host for pair in flows for host in pair)]
    ways = []
    for mask in range(2 ** len(hosts)):
        rack = {host for i, host in enumerate(hosts) if mask >> i & 1}
        if len(rack) <= room[0] and len(hosts) - len(rack) <= room[1]:
            out = sum(nbytes for (one, other), nbytes in flows.items() if one in rack and other not in rack)
            back = sum(nbytes for (one, other), nbytes in flows.items() if one not in rack and other in rack)
            ways.append((max(out, back), sorted(rack)))
    return min(ways)[1]
""",
        "by a key": """
from itertools import chain, combinations


def place(flows, room):
    hosts = {host for pair in flows for host in pair}

    def busier(rack):
        crossing = {pair: n for pair, n in flows.items() if len(rack & {*pair}) == 1}
        out = sum(n for (sender, _), n in crossing.items() if sender in rack)
        return max(out, sum(crossing.values()) - out)

    least, most = max(0, len(hosts) - room[1]), min(len(hosts), room[0])
    ways = chain.from_iterable(combinations(hosts, count) for count in range(least, most + 1))
    return min(map(frozenset, ways), key=busier)
""",
    },
    "links.2": {
        "by index": """
def queue(arrivals, rate, limit):
    rows, dropped = [], 0
    for i, (at, nbytes) in enumerate(arrivals):
        before = rows[-1] - (at - arrivals[i - 1][0]) * rate if i else 0
        before = max(before, 0)
        fits = before + nbytes <= limit
        rows.append(float(before + nbytes * fits))
        dropped += 1 - fits
    return rows, int(dropped)
""",
        "by the time when it is empty": """
def queue(arrivals, rate, limit):
    empty_at, dropped, rows = 0.0, 0, []
    for at, nbytes in arrivals:
        empty_at = max(empty_at, at)
        if (empty_at - at) * rate + nbytes <= limit + 1e-6:
            empty_at += nbytes / rate
        else:
            dropped += 1
        rows.append((empty_at - at) * rate)
    return [rows, dropped]
""",
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "all hosts are in the rack of the first",
    "minips/machines/topology.py",
    'yield host, f"rack {rack}"',
    'yield host, "rack 0"',
)
"""Two racks, of which one is empty."""
