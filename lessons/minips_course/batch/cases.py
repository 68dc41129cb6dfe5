"""Test cases for "A small batch is an estimate": for its questions, its exercises and a claim."""

OUTCOMES = {
    "batch.1": {
        "sixteen times smaller": {"ratio": 16.0},
        "about four times smaller": {"ratio": 4.3},
        "less than two times smaller": {"ratio": 1.1},
        "none of these": {"ratio": 2.5},
    },
    "batch.2": {
        "eight times as long": {"ratio": 8.0},
        "longer, but clearly less than eight times": {"ratio": 4.4},
        "no longer": {"ratio": 1.0},
        "none of these": {"ratio": 12.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "batch.1": ["root", "quarter", "square root"],
    "batch.2": ["curvature is the same", "curvature stays", "three times", "four times"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "batch.1": {
        "the one that ends badly": ("return low", "return high"),
        "a middle that was never tried": ("return low", "return (low * high) ** 0.5"),
        "too early": ("1.02", "1.1"),
        "the other way round": ("if ends_well(middle)", "if not ends_well(middle)"),
        "the middle by difference": ("(low * high) ** 0.5", "(low + high) / 2"),
        "small steps": ("(low * high) ** 0.5", "low * 1.02"),
        "nothing is tried": ("while high / low > 1.02", "while False"),
        "eight halvings, whatever the range": ("while high / low > 1.02", "for _ in range(8)"),
        "by difference": ("while high / low > 1.02", "while high - low > 0.002"),
        "a little too early": ("1.02", "1.025"),
        "remembered for a range": """
known = {}


def largest(ends_well, low, high):
    if (low, high) not in known:
        a, b = low, high
        while b / a > 1.02:
            middle = (a * b) ** 0.5
            a, b = (middle, b) if ends_well(middle) else (a, middle)
        known[low, high] = a
    return known[low, high]
""",
        "remembered for a rate": """
tried = {}


def largest(ends_well, low, high):
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        if tried.setdefault(middle, ends_well(middle)):
            low = middle
        else:
            high = middle
    return low
""",
        "the last that ended well, if any": """
def largest(ends_well, low, high):
    best = None
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        if ends_well(middle):
            best = low = middle
        else:
            high = middle
    return best
""",
        "from one end": """
def largest(ends_well, low, high):
    while high / low > 1.02 and ends_well(high / 1.02):
        low = high = high / 1.02
    return low
""",
        "on a fixed grid": """
def largest(ends_well, low, high):
    grid = np.geomspace(low, high, 257)
    a, b = 0, 256
    while b - a > 1:
        middle = (a + b) // 2
        a, b = (middle, b) if ends_well(grid[middle]) else (a, middle)
    return grid[a]
""",
        "the lesson's range": (
            "    while high / low > 1.02",
            "    low, high = max(low, 0.01), min(high, 1.0)\n    while high / low > 1.02",
        ),
    },
    "batch.2": {
        "distances to the mean": ("(len(each) - 1)", "len(each)"),
        "a worker's variance": ("rows * one_worker", "one_worker"),
        "divided by the rows": ("rows * one_worker", "one_worker / rows"),
        "a length that is too long": (" - one_worker / len(each)", ""),
        "one worker's share": (" - one_worker / len(each)", " - one_worker"),
        "one tensor": ("for x in g.values()", "for x in [g['w']]"),
        "two names alone": ("for x in g.values()", "for x in (g['w'], g['b'])"),
        "never below zero": (
            "np.square(mean).sum() - one_worker / len(each)",
            "max(np.square(mean).sum() - one_worker / len(each), 0)",
        ),
        "of the standard deviations": (
            "np.square(each - mean).sum() / (len(each) - 1)",
            "np.square(each.std(axis=0, ddof=1).sum()) / each.shape[1]",
        ),
        "ddof for the values": (
            "np.square(each - mean).sum() / (len(each) - 1)",
            "each.var(axis=0).sum() * each.size / (each.size - 1)",
        ),
        "the median of the distances": (
            "np.square(each - mean).sum() / (len(each) - 1)",
            "np.median(np.square(each - mean).sum(axis=1)) * len(each) / (len(each) - 1)",
        ),
        "a hair too small": ("(len(each) - 1)", "(len(each) - 0.98)"),
        "for four workers": ("one_worker / len(each)", "one_worker / 4"),
        "for eight rows": ("rows * one_worker", "8 * one_worker"),
        "subtracts σ²": ("one_worker / len(each)", "rows * one_worker / len(each)"),
        "the gradients are centred in place": (
            "    return rows",
            "    for g in gradients:\n"
            "        for name in g:\n"
            "            g[name] = g[name] - sum(h[name] for h in gradients) / len(gradients)\n"
            "    return rows",
        ),
        "the first round's": """
known = []


def noise_of(gradients, rows):
    each = np.array([np.concatenate([np.ravel(x) for x in g.values()]) for g in gradients])
    one_worker = each.var(axis=0, ddof=1).sum()
    known.append((rows * one_worker, np.square(each.mean(axis=0)).sum() - one_worker / len(each)))
    return known[0]
""",
        "the length of one worker's gradient": (
            "np.square(mean).sum() - one_worker / len(each)",
            "np.square(each[0]).sum() - one_worker / len(each)",
        ),
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "batch.1": {
        "so many halvings as the range needs": """
def largest(ends_well, low, high):
    turns = int(np.ceil(np.log2(max(np.log(high / low) / np.log(1.02), 1))))
    for _ in range(turns):
        middle = np.sqrt(low * high)
        if ends_well(middle):
            low = middle
        else:
            high = middle
    return low
""",
        "by logarithms, with one function more": """
def largest(ends_well, low, high):
    a, b = np.log(low), np.log(high)
    tried = low
    while b - a > np.log(1.019):
        rate = float(np.exp((a + b) / 2))
        if ends_well(rate):
            a, tried = np.log(rate), rate
        else:
            b = np.log(rate)
    return tried
""",
        "itself again": """
def largest(ends_well, low, high):
    if high <= 1.02 * low:
        return low
    middle = low * (high / low) ** 0.5
    return largest(ends_well, middle, high) if ends_well(middle) else largest(ends_well, low, middle)
""",
    },
    "batch.2": {
        "products of pairs": """
def noise_of(gradients, rows):
    each = np.array([np.concatenate([np.ravel(x) for x in g.values()]) for g in gradients])
    n, products = len(each), each @ each.T
    length = (products.sum() - np.trace(products)) / (n * (n - 1))
    return rows * (np.trace(products) / n - length), length
""",
        "tensor by tensor": """
def noise_of(gradients, rows):
    n, one_worker, length = len(gradients), 0.0, 0.0
    for name in gradients[0]:
        stacked = np.stack([g[name] for g in gradients])
        one_worker += stacked.var(axis=0, ddof=1).sum()
        length += (stacked.mean(axis=0) ** 2).sum()
    return rows * one_worker, length - one_worker / n
""",
        "the first two workers alone": """
def noise_of(gradients, rows):
    one, other = (np.concatenate([np.ravel(x) for x in g.values()]) for g in gradients[:2])
    return rows * np.square(one - other).sum() / 2, one @ other
""",
        "neighbours": """
def noise_of(gradients, rows):
    each = np.array([np.concatenate([np.ravel(x) for x in g.values()]) for g in gradients])
    pairs = [*zip(each[:-1], each[1:])]
    one_worker = np.mean([np.square(a - b).sum() / 2 for a, b in pairs])
    return rows * one_worker, np.mean([a @ b for a, b in pairs])
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "the gradients of accumulated batches are added up and not averaged",
    "minips/engines/worker.py",
    "as_dtype(total / count, ",
    "as_dtype(total, ",
)
"""Accumulation that adds gradients up instead of averaging them."""
