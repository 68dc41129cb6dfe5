"""Test cases for "Hide and survive": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "hide.1": {
        "about 1 and about 1": {"tiny": 1.01, "large": 1.05},
        "about 1 and about 7": {"tiny": 1.01, "large": 7.0},
        "about 1 and about 10": {"tiny": 1.01, "large": 9.9},
        "about 10 and about 10": {"tiny": 10.0, "large": 9.9},
        "none of these": {"tiny": nan, "large": 7.0},
    },
    "hide.2": {
        "all, within half a second": {"answered": 200, "last": 0.2},
        "all, after some seconds": {"answered": 200, "last": 3.1},
        "at least half": {"answered": 130, "last": 3.1},
        "about a quarter": {"answered": 50, "last": 0.05},
        "none of these": {"answered": 2, "last": 0.05},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "hide.1": ["0.84", "0.12 s", "once for all", "hide latency"],
    "hide.2": ["grows for ever", "nobody waits for", "a quarter", "first 50"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "hide.1": {
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
        "narrow jitter": ("rng.uniform(0, 0.4 * 2**attempt)", "rng.uniform(0.3, 0.7) * 0.4 * 2**attempt"),
        "at least a twentieth": ("rng.uniform(0, 0.4 * 2**attempt)", "rng.uniform(0.05, 1) * 0.4 * 2**attempt"),
        "rather short": ("rng.uniform(0, 0.4 * 2**attempt)", "rng.random() ** 1.2 * 0.4 * 2**attempt"),
        "one of eleven": ("rng.uniform(0, 0.4 * 2**attempt)", "rng.integers(0, 11) / 10 * 0.4 * 2**attempt"),
        "at most ten seconds": ("0.4 * 2**attempt", "min(0.4 * 2**attempt, 10)"),
        "draws of its own": ("rng.uniform", "np.random.default_rng().uniform"),
        "one draw for all waits": """
def call_again(connect, frames, attempts, sleep, rng):
    share = rng.random()
    for attempt in range(attempts):
        try:
            with connect() as channel:
                return channel.call(frames).result(timeout=10)
        except ConnectionError:
            if attempt == attempts - 1:
                raise
        sleep(share * 0.4 * 2**attempt)
""",
        "the frames are used up": (
            "channel.call(frames)",
            "channel.call([frames.pop(0) for _ in range(len(frames))])",
        ),
        "the first frame alone": ("channel.call(frames)", "channel.call(frames[:1])"),
        "an empty answer is none": (
            "return channel.call(frames).result(timeout=10)",
            "answer = channel.call(frames).result(timeout=10)\n            if answer:\n                return answer",
        ),
        "only resets": ("except ConnectionError:", "except (ConnectionResetError, ConnectionRefusedError):"),
        "only the kind itself": (
            "except ConnectionError:\n",
            "except ConnectionError as error:\n            if type(error) is not ConnectionError:\n"
            "                raise\n",
        ),
        "any error of connect": (
            "with connect() as channel:",
            "try:\n                made = connect()\n            except Exception as error:\n"
            "                raise ConnectionError(*error.args) from None\n            with made as channel:",
        ),
        "without a time-out": ("result(timeout=10)", "result()"),
    },
    "hide.2": {
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
        "an answer of 0 is none": ("if number > known:", "if number > known or not answer:"),
        "by the last letter": ("caller, (-1, None)", "caller[-1], (-1, None)"),
        "whole amounts": ("+= amount", "+= int(amount)"),
        "never less": ("+= amount", "+= max(amount, 0)"),
        "late copies are remembered": (
            "            raise ValueError(",
            "            self.last[caller] = number, answer\n            raise ValueError(",
        ),
        "the last hundred calls": """
class Counter(Adder):
    def add(self, caller, number, amount):
        if (caller, number) in self.last:
            return self.last[caller, number]
        if any(one == caller and later > number for one, later in self.last):
            raise ValueError("late")
        self.total += amount
        self.last[caller, number] = self.total
        while len(self.last) > 100:
            del self.last[next(iter(self.last))]
        return self.total
""",
        "ten callers": """
class Counter(Adder):
    def add(self, caller, number, amount):
        known, answer = self.last.get(caller, (-1, None))
        if number < known:
            raise ValueError("A later call of this caller has been answered.")
        if number > known:
            self.total += amount
            answer = self.total
            self.last.pop(caller, None)
            self.last[caller] = number, answer
            if len(self.last) > 10:
                del self.last[next(iter(self.last))]
        return answer
""",
        "kept in the class": """
class Counter(Adder):
    seen = {}

    def add(self, caller, number, amount):
        known, answer = self.seen.get(caller, (-1, None))
        if number < known:
            raise ValueError("A later call of this caller has been answered.")
        if number > known or not self.total:
            self.total += amount
            answer = self.total
            self.seen[caller] = number, answer
        return answer
""",
        "a bit for each call": """
class Counter(Adder):
    def add(self, caller, number, amount):
        seen, last, answer = self.last.get(caller, (0, -1, None))
        if seen >> number & 1:
            if number < last:
                raise ValueError("late")
            return answer
        self.total += amount
        self.last[caller] = seen | 1 << number, number, self.total
        return self.total
""",
        "a list outside": """
calls = []


class Counter(Adder):
    def add(self, caller, number, amount):
        calls.append((caller, number, amount))
        known, answer = self.last.get(caller, (-1, None))
        if number < known:
            raise ValueError("A later call of this caller has been answered.")
        if number > known:
            self.total += amount
            answer = self.total
            self.last[caller] = number, answer
        return answer
""",
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "hide.1": {
        "while": """
def call_again(connect, frames, attempts, sleep, rng):
    bound, left = 0.4, attempts
    while True:
        left -= 1
        try:
            channel = connect()
            try:
                return channel.call(frames).result(10)
            finally:
                channel.close()
        except ConnectionError as error:
            if not left:
                raise error
        sleep(rng.uniform(0.0, bound))
        bound *= 2
""",
        "again and again": """
def call_again(connect, frames, attempts, sleep, rng, bound=0.4):
    error = None
    try:
        with connect() as channel:
            return channel.call(list(frames)).result(timeout=30)
    except ConnectionError as caught:
        error = caught
    if attempts <= 1:
        raise error
    sleep(bound * rng.random())
    return call_again(connect, frames, attempts - 1, sleep, rng, 2 * bound)
""",
    },
    "hide.2": {
        "two dictionaries": """
class Counter(Adder):
    def __init__(self):
        super().__init__()
        self.answers = {}

    def add(self, caller, number, amount):
        if caller in self.last:
            if number == self.last[caller]:
                return self.answers[caller]
            if number < self.last[caller]:
                raise ValueError(f"{number} comes late")
        self.total = self.total + amount
        self.last[caller], self.answers[caller] = number, self.total
        return self.answers[caller]
""",
        "with a lock": """
class Counter(Adder):
    def __init__(self):
        self.total, self.lock, self.calls = 0, threading.Lock(), {}

    def add(self, caller, number, amount):
        with self.lock:
            last = self.calls.setdefault(caller, {})
            if number in last:
                return last[number]
            if last and number < max(last):
                raise ValueError("a later call has been answered")
            self.total += amount
            last.clear()
            last[number] = self.total
            return self.total
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "a push is new each time that it comes",
    "minips/core/shard.py",
    "return clock == at or clock in self._missed[worker]",
    "return clock <= at",
)
"""A server that applies a repeated push again."""
