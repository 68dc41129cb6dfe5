"""Lesson 11: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "11.1": {
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
    "11.2": {
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
