"""Test cases for "Predict the cost": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "cost.1": {
        "by less than 5 %": {"factor": 1.02},
        "by more than 5 %, but less than a factor of 2": {"factor": 1.4},
        "by a factor of 2 or more": {"factor": 3.0},
        "none of these": {"factor": nan},
    },
    "cost.2": {"expected": {"seconds": 0.174}, "otherwise": {"seconds": 0.9}},
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "cost.1": ["no constant", "not constant", "caches", "no straight line", "roughly right"],
    "cost.2": ["0.170", "0.17", "0.074", "0.174", "0.173"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "cost.1": {
        "two phases": ("max(by_pushes, by_answers)", "(workers * pushed + workers * pulled)"),
        "the smaller sum": ("max(by_pushes", "min(by_pushes"),
        "pushes alone": ("max(by_pushes, by_answers)", "by_pushes"),
        "answers alone": ("max(by_pushes, by_answers)", "by_answers"),
        "no first answer": ("pulled + workers * pushed", "workers * pushed"),
        "one latency": ("2 * latency_s", "latency_s"),
        "no gradient": (" + compute_s", ""),
        "a gradient for each worker": ("compute_s +", "workers * compute_s +"),
        "bits for bytes": ("8 / bandwidth_bps", "1 / bandwidth_bps"),
        "minips' own formula": (
            "return 2 * latency_s + compute_s + max(by_pushes, by_answers) * byte_s",
            "return compute_s + ps.cost.parameter_server_step_s("
            "workers, pushed, 1 / byte_s, latency_s, pulled_nbytes=pulled)",
        ),
        "minips' own formula, by another name": (
            "return 2 * latency_s + compute_s + max(by_pushes, by_answers) * byte_s",
            "return compute_s + vars(ps.cost)['parameter_server_step_s']("
            "workers, pushed, 1 / byte_s, latency_s, pulled_nbytes=pulled)",
        ),
    },
    "cost.2": {
        "one size": ("(1_000, 30_000, 100_000)", "(30_000,)"),
        "nothing fixed": ("return line.fixed_s, line.each_s", "return 0.0, line.at(10_000) / 10_000"),
        "all of it fixed": ("return line.fixed_s, line.each_s", "return line.fixed_s, 0.0"),
        "encode alone": ("quantizer.decode(quantizer.encode(x, rng))", "quantizer.encode(x, rng)"),
        "milliseconds": ("line.fixed_s, line.each_s", "1e3 * line.fixed_s, 1e3 * line.each_s"),
        "the wrong way round": ("line.fixed_s, line.each_s", "line.each_s, line.fixed_s"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the predicted bytes are those of one step more",
    "minips/cost/traffic.py",
    "whole = first + (config.steps - 1) * step",
    "whole = first + config.steps * step",
)
"""A prediction of the bytes that counts a step too many."""
