"""Test cases for "Spend bits where they matter": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "spend.1": {
        "more than two thirds": {"left": 0.9},
        "a third to two thirds": {"left": 0.5},
        "below a third": {"left": 0.07},
        "none of these": {"left": nan},
    },
    "spend.2": {
        "a sparse U": {"more": 0.05, "half": 0.02},
        "a sparse W": {"more": -0.05, "half": 0.02},
        "no difference is shown": {"more": 0.01, "half": 0.03},
        "none of these": {"more": nan, "half": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "spend.1": ["no harm is shown", "unfinished", "too short", "a tenth of"],
    "spend.2": ["more harm than", "shows no harm", "squeeze U"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "spend.3": {
        "stops where the best does not fit": """
def allocate(options, budget):
    chosen = {name: rows[0] for name, rows in options.items()}
    while True:
        left = budget - sum(one.bytes for one in chosen.values())
        found = []
        for name, rows in options.items():
            now = chosen[name]
            for row in rows:
                if row.error < now.error and row.bytes > now.bytes:
                    found.append(((now.error - row.error) / (row.bytes - now.bytes), name, row))
        _, name, row = max(found, key=lambda one: one[0], default=(0, "", None))
        if row is None or row.bytes - chosen[name].bytes > left:
            return {name: one.quantizer for name, one in chosen.items()}
        chosen[name] = row
""",
        "the fewest bytes": """
def allocate(options, budget):
    return {name: rows[0].quantizer for name, rows in options.items()}
""",
        "the same for all": """
def allocate(options, budget):
    fits = [n for n in range(5) if sum(rows[n].bytes for rows in options.values()) <= budget]
    return {name: rows[max(fits)].quantizer for name, rows in options.items()}
""",
        "equal shares": """
def allocate(options, budget):
    share = budget / len(options)
    found = {}
    for name, rows in options.items():
        fits = [row for row in rows if row.bytes <= share] or rows[:1]
        found[name] = min(fits, key=lambda row: row.error).quantizer
    return found
""",
        "shares by size": """
def allocate(options, budget):
    total = sum(rows[-1].bytes for rows in options.values())
    found = {}
    for name, rows in options.items():
        fits = [row for row in rows if row.bytes <= budget * rows[-1].bytes / total] or rows[:1]
        found[name] = min(fits, key=lambda row: row.error).quantizer
    return found
""",
        "one after the other": """
def allocate(options, budget):
    chosen = {name: rows[0] for name, rows in options.items()}
    for name, rows in options.items():
        left = budget - sum(one.bytes for one in chosen.values()) + chosen[name].bytes
        chosen[name] = min((row for row in rows if row.bytes <= left), key=lambda row: row.error)
    return {name: one.quantizer for name, one in chosen.items()}
""",
        "the most error, whatever it costs": (") / (row.bytes - now.bytes)", ") / 1"),
        "the fewest bytes more": ("(now.error - row.error) / (row.bytes - now.bytes)", "-(row.bytes - now.bytes)"),
        "the next option alone": ("for row in rows:", "for row in rows[rows.index(now) + 1 : rows.index(now) + 2]:"),
        "the relative error": ("(now.error - row.error) /", "(1 - row.error / now.error) /"),
        "one upgrade": ("        chosen[name] = row", "        chosen[name] = row\n        budget = 0"),
        "no look at the budget": (
            "                if row.error < now.error and 0 < row.bytes - now.bytes <= left:",
            "                if row.error < now.error and 0 < row.bytes - now.bytes:",
        ),
        "above the budget by one option": ("row.bytes - now.bytes <= left", "row.bytes - now.bytes <= 2 * left"),
        "half of the budget": ("left = budget -", "left = budget / 2 -"),
        "options, no quantizers": ("name: one.quantizer for", "name: one for"),
        "the shown tensors": """
def allocate(options, budget):
    names = [name for name in options if name in ("U", "a", "W", "b")]
    return {name: options[name][0 if name == "U" else 1].quantizer for name in names}
""",
        "worse options, too": ("row.error < now.error and ", ""),
        "each tensor once": (
            "            now = chosen[name]",
            "            now = chosen[name]\n            if now is not rows[0]:\n                continue",
        ),
        "the options are used up": ("chosen = {name: rows[0] for", "chosen = {name: rows.pop(0) for"),
    },
    "spend.2": {
        "no memory": ("seed=seed)", "seed=seed, push=ps.Codec(config.push.quantizer))"),
        "one seed for all": ("replace(config, seed=seed)", "config"),
        "all tensors": ("runs[name]", 'runs["all"]'),
        "the other way round": (
            'runs[name].validation_loss - runs["none"].validation_loss',
            'runs["none"].validation_loss - runs[name].validation_loss',
        ),
        "the normal distribution": ("T95[n]", "1.96"),
        "divided by n": ("ddof=1", "ddof=0"),
        "of one run": (" / np.sqrt(n)", ""),
        "not the harm": (' - runs["none"].validation_loss', ""),
        "the first problem": ("sensitivity(problem,", "sensitivity(problems[0],"),
        "U or W": ("runs[name]", "runs[name if name in ('U', 'W') else 'U']"),
        "of three problems": ("T95[n]", "T95[3]"),
        "three problems at most": ("enumerate(problems)", "enumerate(problems[:3])"),
        "the problems are used up": (
            "for seed, problem in enumerate(problems):",
            "for seed in range(len(problems)):\n        problem = problems.pop(0)",
        ),
        "the median": ("np.mean(added)", "np.median(added)"),
        "error feedback of its own": (
            "seed=seed)",
            "seed=seed, push=ps.Codec(config.push.quantizer, ps.ErrorFeedback() if ps.NoMemory() != config.push.memory "
            "else ps.NoMemory()))",
        ),
        "signs in any case": ("seed=seed)", "seed=seed, push=ps.Codec(ps.Sign(), config.push.memory))"),
        "always two workers": ("seed=seed)", "seed=seed, workers=2)"),
        "seeds from 1": ("enumerate(problems)", "enumerate(problems, 1)"),
        "apart, not in pairs": ("np.std(added, ddof=1)", "np.std(added, ddof=1) * 2**0.5"),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "spend.3": {
        "all combinations": """
def allocate(options, budget):
    from itertools import product

    fits = [some for some in product(*options.values()) if sum(one.bytes for one in some) <= budget]
    best = min(fits, key=lambda some: sum(one.error for one in some))
    return {name: one.quantizer for name, one in zip(options, best)}
""",
        "by numbers": """
def allocate(options, budget):
    at, left = dict.fromkeys(options, 0), budget - sum(rows[0].bytes for rows in options.values())
    while True:
        best, most = None, 0.0
        for name, rows in options.items():
            for number in range(at[name] + 1, len(rows)):
                cost = rows[number].bytes - rows[at[name]].bytes
                saved = rows[at[name]].error - rows[number].error
                if 0 < cost <= left and saved / cost > most:
                    best, most = (name, number, cost), saved / cost
        if best is None:
            return {name: rows[at[name]].quantizer for name, rows in options.items()}
        at[best[0]], left = best[1], left - best[2]
""",
    },
    "spend.2": {
        "by its own runs": """
def harm(problems, config, name):
    added = np.zeros(len(problems))
    for seed, problem in enumerate(problems):
        for sign, quantizer in ((1, {name: config.push.quantizer, "*": ps.Exact()}), (-1, ps.Exact())):
            one = replace(config, seed=seed, push=replace(config.push, quantizer=quantizer))
            added[seed] += sign * ps.train(problem, one, engine=ps.Threads()).validation_loss
    return float(added.mean()), float(T95[added.size] * (added.var(ddof=1) / added.size) ** 0.5)
""",
        "statistics": """
def harm(problems, config, name):
    from statistics import fmean, stdev

    def of(seed):
        runs = ps.sensitivity(problems[seed], replace(config, seed=seed))
        return runs[name].validation_loss - runs["none"].validation_loss

    all_ = [of(seed) for seed in range(len(problems))]
    return [fmean(all_), T95[len(all_)] * stdev(all_) / len(all_) ** 0.5]
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "a codec gives every tensor its first quantizer, whatever the pattern is",
    "minips/core/codec.py",
    "if fnmatchcase(name, pattern):",
    "if pattern:",
)
"""A codec whose first pattern matches every name."""
