"""Test cases for "Predict the cost": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "cost.3": {"expected": {"seconds": 0.045}, "otherwise": {"seconds": 0.4}},
    "cost.5": {
        "as long as before, within 20 %": {"times": 1.05},
        "up to half longer": {"times": 1.3},
        "more than half longer": {"times": 3.7},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "cost.3": ["0.034", "0.054", "34 ms", "54 ms", "0.045", "share a link", "share the link"],
    "cost.5": ["drops", "overflow", "time-out", "lost packets", "sent again", "are lost"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "cost.3": {
        "nothing is measured": ("    in_turn", "    alpha, beta = 2e-4, 8.4e-8\n    in_turn"),
        "two sizes, one call each": ("{size: np.median(seconds)", "{size: seconds[0]"),
        "the last call": ("{size: np.median(seconds)", "{size: seconds[-1]"),
        "the mean": ("{size: np.median(seconds)", "{size: np.mean(seconds)"),
        "the slowest": ("{size: np.median(seconds)", "{size: max(seconds)"),
        "all but the slowest, in the mean": ("{size: np.median(seconds)", "{size: np.mean(sorted(seconds)[:-1])"),
        "the median of the first three": ("{size: np.median(seconds)", "{size: np.median(seconds[:3])"),
        "plain least squares": """
def step_of(timed, workers, pushed, pulled):
    sizes = np.array(list(timed), float)
    medians = np.array([np.median(seconds) for seconds in timed.values()])
    beta, fixed = np.polyfit(sizes, medians, 1)
    least = fixed + max(workers * pushed + pulled, pushed + workers * pulled) * beta
    return least, fixed + workers * (pushed + pulled) * beta
""",
        "a call's fixed part is one message's": ("alpha = fixed / 2", "alpha = fixed"),
        "a quarter": ("alpha = fixed / 2", "alpha = fixed / 4"),
        "no latency": ("2 * alpha", "0"),
        "a latency for each worker": ("2 * alpha", "2 * workers * alpha"),
        "one latency": ("2 * alpha", "alpha"),
        "β there and back": ("    alpha =", "    beta = beta / 2\n    alpha ="),
        "pushes alone": ("max(workers * pushed + pulled, pushed + workers * pulled)", "(workers * pushed + pulled)"),
        "answers alone": ("max(workers * pushed + pulled, pushed + workers * pulled)", "(pushed + workers * pulled)"),
        "no first answer": (
            "max(workers * pushed + pulled, pushed + workers * pulled)",
            "workers * max(pushed, pulled)",
        ),
        "the smaller sum": ("max(workers", "min(workers"),
        "for equal sizes alone": (
            "max(workers * pushed + pulled, pushed + workers * pulled)",
            "(workers + 1) * max(pushed, pulled)",
        ),
        "four workers": ("    small", "    workers = 4\n    small"),
        "the sizes that were shown": ("min(middle), max(middle)", "10_000, 1_000_000"),
        "the first network's for ever": (
            "    alpha =",
            "    fixed, beta = vars(step_of).setdefault('line', (fixed, beta))\n    alpha =",
        ),
        "least and most the wrong way round": ("return least, most", "return most, least"),
        "the least twice": ("return least, most", "return least, least"),
        "milliseconds": ("return least, most", "return 1e3 * least, 1e3 * most"),
        "minips' own fit": """
from minips.machines.fit import Line


def step_of(timed, workers, pushed, pulled):
    line = Line.fit([(size, s) for size, seconds in timed.items() for s in seconds])
    least = line.fixed_s + max(workers * pushed + pulled, pushed + workers * pulled) * line.each_s
    return least, line.fixed_s + workers * (pushed + pulled) * line.each_s
""",
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
    "cost.3": {
        "a fit of relative errors": """
def step_of(timed, workers, pushed, pulled):
    sizes = np.array(list(timed), float)
    medians = np.array([np.median(seconds) for seconds in timed.values()])
    matrix = np.stack([1 / medians, sizes / medians], axis=1)
    fixed, beta = np.linalg.lstsq(matrix, np.ones(len(sizes)), rcond=None)[0]
    first = workers * pushed + pulled
    last = workers * pulled + pushed
    least = fixed + beta * (first if first > last else last)
    return least, fixed + beta * workers * (pushed + pulled)
""",
        "by minima, with weights": """
def step_of(timed, workers, pushed, pulled):
    sizes, quickest = zip(*((size, min(seconds)) for size, seconds in timed.items()))
    beta, fixed = np.polyfit(sizes, quickest, 1, w=1 / np.array(quickest))
    alpha = fixed / 2
    long, short = max(pushed, pulled), min(pushed, pulled)
    return 2 * alpha + beta * (workers * long + short), 2 * alpha + beta * workers * (long + short)
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
    "the token buckets pass twice the bits",
    "minips/engines/hosts.py",
    "index, rate, topology, limit = _index(kernel, end), bits / 8,",
    "index, rate, topology, limit = _index(kernel, end), bits / 4,",
)
"""Links that are twice as quick as they say."""
