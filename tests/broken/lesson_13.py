"""Lesson 13: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "13.1": {
        "never again": ("range(attempts)", "range(1)"),
        "one too few": ("range(attempts)", "range(attempts - 1)"),
        "no error in the end": ("attempts - 1:", "attempts:"),
        "any error": ("except ConnectionError", "except Exception"),
        "a time-out too": ("except ConnectionError", "except OSError"),
        "left open": ("with connect() as channel:", "for channel in [connect()]:"),
        "no wait": ("sleep(rng.uniform(0, 0.4 * 2**attempt))", "pass"),
        "the bound itself": ("rng.uniform(0, 0.4 * 2**attempt)", "0.4 * 2**attempt"),
        "always the same bound": ("2**attempt", "1"),
        "half the bound": ("uniform(0, 0.4 * 2**attempt)", "uniform(0, 0.2 * 2**attempt)"),
        "a wait of nothing": ("rng.uniform(0, 0.4 * 2**attempt)", "0"),
        "a wait after the last": ("                raise\n", "                sleep(0)\n                raise\n"),
        "a wait while it is open": (
            "with connect() as channel:\n",
            "with connect() as channel:\n                sleep(0)\n",
        ),
        "its own error": ("                raise", "                raise ConnectionError('no luck') from None"),
    },
    "13.2": {
        "counts again": ("number > known:", "number >= known:"),
        "counts everything": ("number > known:", "True:"),
        "one number for all": ("self.last.get(caller, (-1, None))", "max(self.last.values(), default=(-1, None))"),
        "another answer": ("return answer", "return self.total"),
        "late copies are answered": ("raise ValueError(", "return answer or str("),
        "late copies count": ("if number < known:\n", "if number < known:\n            self.total += amount\n"),
        "remembers all calls": ("= number, answer", "= number, answer\n            self.last[caller, number] = answer"),
        "the first one is lost": ("(-1, None)", "(0, None)"),
        "forgets": ("self.last[caller] = number, answer", "self.last = {caller: (number, answer)}"),
        "the number of answers": ("= number, answer", "= len(self.last), answer"),
    },
}
