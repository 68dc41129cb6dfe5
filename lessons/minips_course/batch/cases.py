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
    "batch.3": {
        "each batch is pushed": """
def accumulate(worker, problem, batches, many):
    for batch in batches:
        params = worker.pull().result()
        worker.push(problem.gradient(params, batch)).result()
""",
        "the sum": ("x / rows for", "x for"),
        "the mean of the means": (
            "total.get(name, 0) + len(batch) * g",
            "total.get(name, 0) + g * sum(map(len, group)) / len(group)",
        ),
        "divided by many": ("x / rows for", "x / (many * len(batch)) for"),
        "for eight rows a batch": ("x / rows for", "x / (8 * len(group)) for"),
        "the last batch alone": ("total.get(name, 0) + len(batch) * g", "sum(map(len, group)) * g"),
        "the last group is dropped": ("range(0, len(batches), many)", "range(0, len(batches) - many + 1, many)"),
        "all rows at once": """
def accumulate(worker, problem, batches, many):
    for first in range(0, len(batches), many):
        rows = np.concatenate(batches[first : first + many])
        params = worker.pull().result()
        worker.push(problem.gradient(params, rows)).result()
""",
        "a pull for each batch": (
            "            gradient = problem.gradient(params, batch)",
            "            gradient = problem.gradient(worker.pull().result(), batch)",
        ),
        "one pull for all": (
            "    for first in range(0, len(batches), many):\n        params = worker.pull().result()",
            "    params = worker.pull().result()\n    for first in range(0, len(batches), many):",
        ),
        "the total is kept": (
            "    for first in range(0, len(batches), many):\n        params = worker.pull().result()\n"
            "        total, rows = {}, 0",
            "    total, rows = {}, 0\n    for first in range(0, len(batches), many):\n"
            "        params = worker.pull().result()",
        ),
        "in groups of four": ("    for first in", "    many = 4\n    for first in"),
        "two tensors alone": ("for name, g in gradient.items()", "for name, g in [*gradient.items()][:2]"),
        "the batches are used up": (
            "        group = batches[first : first + many]",
            "        group = [batches.pop(0) for _ in range(min(many, len(batches)))]",
        ),
        "many groups of equal length": (
            "    for first in range(0, len(batches), many):",
            "    many = -(-len(batches) // max(len(batches) // many, 1))\n"
            "    for first in range(0, len(batches), many):",
        ),
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
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
    "batch.3": {
        "counted and pushed": """
def accumulate(worker, problem, batches, many):
    total, rows, params = None, 0, None
    for number, batch in enumerate(batches, 1):
        if total is None:
            params = worker.pull().result()
        gradient = problem.gradient(params, batch)
        weighted = {name: g * len(batch) for name, g in gradient.items()}
        total = weighted if total is None else {name: total[name] + weighted[name] for name in total}
        rows += len(batch)
        if number % many == 0 or number == len(batches):
            worker.push({name: x / rows for name, x in total.items()})
            total, rows = None, 0
""",
        "shares of the rows": """
def accumulate(worker, problem, batches, many):
    params = worker.pull().result()
    for first in range(0, len(batches), many):
        group = batches[first : first + many]
        shares = np.array([len(batch) for batch in group]) / sum(len(batch) for batch in group)
        gradients = [problem.gradient(params, batch) for batch in group]
        mean = {name: sum(share * g[name] for share, g in zip(shares, gradients)) for name in params}
        params = worker.push_pull(mean).result()
""",
        "a running mean": """
def accumulate(worker, problem, batches, many):
    batches = list(batches)
    while batches:
        group, batches = batches[:many], batches[many:]
        params, rows = worker.pull().result(), 0
        mean = {name: np.zeros_like(p) for name, p in params.items()}
        for batch in group:
            rows += len(batch)
            for name, g in problem.gradient(params, batch).items():
                mean[name] = mean[name] + (g - mean[name]) * len(batch) / rows
        worker.push(mean).result()
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
