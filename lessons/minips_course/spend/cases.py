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
        "more than three times as large": {"times": 6.4},
        "about as large": {"times": 1.0},
        "clearly smaller": {"times": 0.4},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "spend.1": ["most of the harm is gone", "arrives a few steps later", "a tenth of"],
    "spend.2": ["size is not harm", "suffers more", "squeeze U"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "spend.1": {
        "no memory": (", feedback)", ")"),
        "signs in fewer steps": (
            '{"U": ps.TopK(fraction=0.002), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=50',
            "ps.Sign(), feedback)\nplan = replace(signs, steps=22",
        ),
        "few of all tensors": ('{"U": ps.TopK(fraction=0.002), "*": ps.Sign()}', "ps.TopK(fraction=0.005)"),
        "few of the wrong tensor": (
            '"U": ps.TopK(fraction=0.002), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=50',
            '"W": ps.TopK(fraction=0.002), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=24',
        ),
        "the wrong order of patterns": (
            '{"U": ps.TopK(fraction=0.002), "*": ps.Sign()}',
            '{"*": ps.Sign(), "U": ps.TopK(fraction=0.002)}',
        ),
        "too many steps": ("steps=50", "steps=53"),
        "too few steps": ("steps=50", "steps=30"),
        "a longer step": ("steps=50", "steps=50, optimizer=ps.SGD(lr=0.5)"),
        "fewer workers": ("steps=50", "steps=50, workers=2"),
        "all of the others": ('"*": ps.Sign()', '"*": ps.Exact()'),
        "few of each, at random": ("ps.TopK(fraction=0.002)", "ps.RandomK(fraction=0.002, unbiased=False)"),
        "half of them": ("steps=50", "steps=25"),
        "another seed": ("steps=50", "steps=50, seed=7"),
        "fewer bytes by compressing": ("feedback)", "feedback, compressor=ps.Zlib())"),
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
    "spend.1": {
        "fewer of U": (
            'ps.TopK(fraction=0.002), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=50',
            'ps.TopK(fraction=0.001), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=54',
        ),
        "more of U": (
            'ps.TopK(fraction=0.002), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=50',
            'ps.TopK(fraction=0.004), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=44',
        ),
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
