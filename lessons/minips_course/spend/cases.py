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
    "spend.1": {
        "no memory": (", feedback)", ")"),
        "signs as they are": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=9',
            "ps.Sign(), feedback)\nplan = replace(signs, steps=4",
        ),
        "signs in fewer steps": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}, feedback)\nplan = replace(signs, steps=9',
            "ps.Sign(), feedback)\nplan = replace(signs, steps=3",
        ),
        "few of all tensors": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}, feedback)\n'
            "plan = replace(signs, steps=9, push=codec, optimizer=ps.SGD(lr=1.5))",
            "ps.TopK(fraction=0.005), feedback)\nplan = replace(signs, steps=9, push=codec, optimizer=ps.SGD(lr=2.2))",
        ),
        "few of the wrong tensor": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}, feedback)\n'
            "plan = replace(signs, steps=9, push=codec, optimizer=ps.SGD(lr=1.5))",
            '{"W": ps.TopK(fraction=0.005), "*": ps.Sign()}, feedback)\n'
            "plan = replace(signs, steps=4, push=codec, optimizer=ps.SGD(lr=2.2))",
        ),
        "four bits for W": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}, feedback)\n'
            "plan = replace(signs, steps=9, push=codec, optimizer=ps.SGD(lr=1.5))",
            '{"W": ps.Uniform(bits=4), "*": ps.Sign()}, feedback)\n'
            "plan = replace(signs, steps=3, push=codec, optimizer=ps.SGD(lr=1))",
        ),
        "the wrong order of patterns": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}',
            '{"*": ps.Sign(), "U": ps.TopK(fraction=0.001)}',
        ),
        "too many steps": ("steps=9", "steps=10"),
        "too few steps": ("steps=9", "steps=5"),
        "as many steps as signs": ("steps=9", "steps=4"),
        "the default rate": (", optimizer=ps.SGD(lr=1.5)", ""),
        "too large a rate": ("lr=1.5", "lr=8"),
        "momentum": ("lr=1.5", "lr=0.5, momentum=0.7"),
        "another optimizer": ("ps.SGD(lr=1.5)", "ps.Adam(lr=0.01)"),
        "fewer workers": ("steps=9", "steps=9, workers=2"),
        "all of the others": ('"*": ps.Sign()', '"*": ps.Exact()'),
        "few of all, at random": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}',
            "ps.RandomK(fraction=0.005, unbiased=False)",
        ),
        "another seed": ("steps=9", "steps=9, seed=7"),
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
        "more of U": ("fraction=0.001", "fraction=0.0015"),
        "with each tensor named": (
            '{"U": ps.TopK(fraction=0.001), "*": ps.Sign()}',
            '{"[abW]": ps.Sign(), "U": ps.TopK(fraction=0.0012)}',
        ),
        "one step less": ("steps=9", "steps=8"),
        "few of U, at random": ("ps.TopK(fraction=0.001)", "ps.RandomK(fraction=0.001, unbiased=False)"),
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
