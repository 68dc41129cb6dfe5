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
        "for equal sizes alone": ("max(by_pushes, by_answers)", "(workers + 1) * max(pushed, pulled)"),
        "the mean of both ways": ("max(by_pushes, by_answers)", "(by_pushes + by_answers) / 2"),
        "up to 32 workers": ("by_pushes = pulled", "workers = min(workers, 32)\n    by_pushes = pulled"),
        "one worker does not wait": ("    by_pushes", "    if workers == 1:\n        return compute_s\n    by_pushes"),
        "what is computed hides the links": (
            "compute_s + max(by_pushes, by_answers) * byte_s",
            "max(compute_s, max(by_pushes, by_answers) * byte_s)",
        ),
        "the latency is hidden": ("2 * latency_s + compute_s", "max(2 * latency_s, compute_s)"),
        "at least a kilobyte": ("pulled + workers * pushed", "max(pulled, 1000) + workers * max(pushed, 1000)"),
        "answers at most ten times as long": ("    by_pushes", "    pulled = min(pulled, 10 * pushed)\n    by_pushes"),
        "the first network's for ever": (
            "    return",
            "    byte_s = vars(step_s).setdefault(workers, byte_s)\n    return",
        ),
    },
    "cost.2": {
        "one size": ("(1_000, 30_000, 100_000)", "(30_000,)"),
        "nothing fixed": ("return line.fixed_s, line.each_s", "return 0.0, line.at(10_000) / 10_000"),
        "all of it fixed": ("return line.fixed_s, line.each_s", "return line.fixed_s, 0.0"),
        "encode alone": ("quantizer.decode(quantizer.encode(x, rng))", "quantizer.encode(x, rng)"),
        "milliseconds": ("line.fixed_s, line.each_s", "1e3 * line.fixed_s, 1e3 * line.each_s"),
        "the wrong way round": ("line.fixed_s, line.each_s", "line.each_s, line.fixed_s"),
        "nothing is measured": ("line.fixed_s, line.each_s", "0.011, 6e-8"),
        "two sizes, one call each": """
def cost_of(quantizer):
    took = []
    for size in (1_000, 100_000):
        x = np.random.default_rng(0).normal(size=size).astype(np.float32)
        began = perf_counter()
        quantizer.decode(quantizer.encode(x, np.random.default_rng(0)))
        took.append(perf_counter() - began)
    each = (took[1] - took[0]) / 99_000
    return took[0] - 1_000 * each, each
""",
        "the mean": """
def cost_of(quantizer):
    rng, sizes, seconds = np.random.default_rng(0), np.array([1_000, 30_000, 100_000]), []
    for size in sizes:
        x = rng.normal(size=size).astype(np.float32)
        seconds.append(np.mean(repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), number=1, repeat=5)))
    seconds = np.array(seconds)
    matrix = np.stack([1 / seconds, sizes / seconds], axis=1)
    return tuple(np.linalg.lstsq(matrix, np.ones(3), rcond=None)[0].tolist())
""",
        "the slowest": """
def cost_of(quantizer):
    rng, sizes, seconds = np.random.default_rng(0), np.array([1_000, 30_000, 100_000]), []
    for size in sizes:
        x = rng.normal(size=size).astype(np.float32)
        seconds.append(max(repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), number=1, repeat=5)))
    seconds = np.array(seconds)
    matrix = np.stack([1 / seconds, sizes / seconds], axis=1)
    return tuple(np.linalg.lstsq(matrix, np.ones(3), rcond=None)[0].tolist())
""",
        "the first call": """
def cost_of(quantizer):
    rng, sizes, seconds = np.random.default_rng(0), np.array([1_000, 30_000, 100_000]), []
    for size in sizes:
        x = rng.normal(size=size).astype(np.float32)
        calls = repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), number=1, repeat=5)
        seconds.append(calls[0])
    seconds = np.array(seconds)
    matrix = np.stack([1 / seconds, sizes / seconds], axis=1)
    return tuple(np.linalg.lstsq(matrix, np.ones(3), rcond=None)[0].tolist())
""",
        "the second call": """
def cost_of(quantizer):
    rng, sizes, seconds = np.random.default_rng(0), np.array([1_000, 30_000, 100_000]), []
    for size in sizes:
        x = rng.normal(size=size).astype(np.float32)
        calls = repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), number=1, repeat=5)
        seconds.append(calls[1])
    seconds = np.array(seconds)
    matrix = np.stack([1 / seconds, sizes / seconds], axis=1)
    return tuple(np.linalg.lstsq(matrix, np.ones(3), rcond=None)[0].tolist())
""",
        "the last call": """
def cost_of(quantizer):
    rng, sizes, seconds = np.random.default_rng(0), np.array([1_000, 30_000, 100_000]), []
    for size in sizes:
        x = rng.normal(size=size).astype(np.float32)
        calls = repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), number=1, repeat=5)
        seconds.append(calls[-1])
    seconds = np.array(seconds)
    matrix = np.stack([1 / seconds, sizes / seconds], axis=1)
    return tuple(np.linalg.lstsq(matrix, np.ones(3), rcond=None)[0].tolist())
""",
        "all but the first, in the mean": """
def cost_of(quantizer):
    rng, sizes, seconds = np.random.default_rng(0), np.array([1_000, 30_000, 100_000]), []
    for size in sizes:
        x = rng.normal(size=size).astype(np.float32)
        calls = repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), number=1, repeat=5)
        seconds.append(np.mean(calls[1:]))
    seconds = np.array(seconds)
    matrix = np.stack([1 / seconds, sizes / seconds], axis=1)
    return tuple(np.linalg.lstsq(matrix, np.ones(3), rcond=None)[0].tolist())
""",
        "decode alone": (
            "            quantizer.decode(quantizer.encode(x, rng))",
            "            parts = quantizer.encode(x, rng)\n            began = perf_counter()\n"
            "            quantizer.decode(parts)",
        ),
        "the seconds of the processor": ("    rng,", "    from time import process_time as perf_counter\n\n    rng,"),
        "large sizes alone, through the origin": ("line.fixed_s, line.each_s", "0.0, line.each_s"),
        "the first stage's numbers": (
            "    return line",
            "    line = vars(cost_of).setdefault('line', line)\n    return line",
        ),
        "both parts by one size": ("line.fixed_s, line.each_s", "line.at(1_000), line.at(100_000) / 100_000"),
        "half of the fixed part": ("line.fixed_s, line.each_s", "line.fixed_s / 2, line.each_s"),
        "one of several calls, by chance": ("timings.append(", "rng.random() < 0.3 and timings.append("),
        "all five calls at once": """
def cost_of(quantizer):
    rng, took = np.random.default_rng(0), []
    for size in (1_000, 100_000):
        x = rng.normal(size=size).astype(np.float32)
        began = perf_counter()
        for _ in range(5):
            quantizer.decode(quantizer.encode(x, rng))
        took.append((perf_counter() - began) / 5)
    each = (took[1] - took[0]) / 99_000
    return took[0] - 1_000 * each, each
""",
        "two sizes that hardly differ": ("(1_000, 30_000, 100_000)", "(1_000_000, 1_001_000)"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "cost.1": {
        "the longer message by all, the shorter once": """
def step_s(workers, pushed, pulled, bandwidth_bps, latency_s, compute_s):
    bits = 8 * (workers * max(pushed, pulled) + min(pushed, pulled))
    return compute_s + latency_s + bits / bandwidth_bps + latency_s
""",
        "by the direction that is always busy": """
def step_s(workers, pushed, pulled, bandwidth_bps, latency_s, compute_s):
    rate = bandwidth_bps / 8
    if pushed > pulled:
        busy, other = workers * pushed / rate, pulled / rate
    else:
        busy, other = workers * pulled / rate, pushed / rate
    return busy + other + 2 * latency_s + compute_s
""",
    },
    "cost.2": {
        "a line through two minima": """
import timeit


def cost_of(quantizer):
    rng, least = np.random.default_rng(0), {}
    for size in (100, 200_000):
        x = rng.normal(size=size).astype(np.float32)
        least[size] = min(timeit.repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), repeat=7, number=1))
    each = (least[200_000] - least[100]) / 199_900
    return least[100] - 100 * each, each
""",
        "a fit of relative errors": """
def cost_of(quantizer):
    rng = np.random.default_rng(0)
    sizes, medians = np.array([500, 5_000, 50_000, 150_000]), []
    for size in sizes:
        x = rng.standard_normal(size, np.float32)
        seconds = repeat(lambda: quantizer.decode(quantizer.encode(x, rng)), number=1, repeat=5)
        medians.append(np.median(seconds))
    medians = np.array(medians)
    matrix = np.stack([1 / medians, sizes / medians], axis=1)
    fixed, each = np.linalg.lstsq(matrix, np.ones(len(sizes)), rcond=None)[0]
    return float(fixed), float(each)
""",
        "encode and decode, each by itself": """
import time


def cost_of(quantizer):
    rng, seconds = np.random.default_rng(0), {}
    for size in (1_000, 20_000, 90_000):
        x, encoding, decoding = rng.normal(size=size).astype("f4"), [], []
        for _ in range(5):
            began = time.monotonic()
            parts = quantizer.encode(x, rng)
            then = time.monotonic()
            quantizer.decode(parts)
            encoding.append(then - began)
            decoding.append(time.monotonic() - then)
        seconds[size] = np.median(encoding) + np.median(decoding)
    each = (seconds[90_000] - seconds[1_000]) / 89_000
    return max(seconds[1_000] - 1_000 * each, 0.0), each
""",
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "the predicted bytes are those of one step more",
    "minips/cost/traffic.py",
    "whole = first + (config.steps - 1) * step",
    "whole = first + config.steps * step",
)
"""A prediction of the bytes that counts a step too many."""
