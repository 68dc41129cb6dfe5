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
        "no memory": (", feedback)", ")"),
        "too many steps": ("steps=50", "steps=53"),
        "too few steps": ("steps=50", "steps=30"),
        "a longer step": ("steps=50", "steps=50, optimizer=ps.SGD(lr=0.5)"),
        "fewer workers": ("steps=50", "steps=50, workers=2"),
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
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "a codec gives every tensor its first quantizer, whatever the pattern is",
    "minips/core/codec.py",
    "if fnmatchcase(name, pattern):",
    "if pattern:",
)
"""A codec whose first pattern matches every name."""
