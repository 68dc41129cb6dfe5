"""Test cases for "Survive a lost answer": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "survive.1": {
        "0 additions": {"counted": 0},
        "1 addition": {"counted": 1},
        "3 additions": {"counted": 3},
        "none of these": {"counted": nan},
    },
    "survive.2": {
        "all, within half a second": {"answered": 200, "last": 0.2},
        "all, after some seconds": {"answered": 200, "last": 3.1},
        "at least half": {"answered": 130, "last": 3.1},
        "about a quarter": {"answered": 50, "last": 0.05},
        "none of these": {"answered": 2, "last": 0.05},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "survive.1": ["nobody told the server", "goes on working", "the wait alone"],
    "survive.2": ["grows for ever", "a quarter", "first 50"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "survive.1": {
        "never again": ("        time.sleep(pause)\n        bound *= 2\n", "        return None\n"),
        "one try": """
def call_again(connect, frames, patience, seconds, time, rng):
    with connect() as channel:
        return channel.call(frames).result(timeout=min(patience, seconds))
""",
        "any error": ("except (ConnectionError, TimeoutError)", "except Exception"),
        "any error of the system": ("except (ConnectionError, TimeoutError)", "except OSError"),
        "a broken connection alone": ("except (ConnectionError, TimeoutError)", "except ConnectionError"),
        "a time-out alone": ("except (ConnectionError, TimeoutError)", "except TimeoutError"),
        "left open": ("with connect() as channel:", "for channel in [connect()]:"),
        "no wait": ("        time.sleep(pause)\n", ""),
        "the bound itself": ("rng.uniform(0, bound)", "bound"),
        "always the same bound": ("bound *= 2", "bound *= 1"),
        "a bound that grows by steps": ("bound *= 2", "bound += 0.4"),
        "half the bound": ("rng.uniform(0, bound)", "rng.uniform(0, bound / 2)"),
        "narrow jitter": ("rng.uniform(0, bound)", "rng.uniform(0.3, 0.7) * bound"),
        "the upper half": ("rng.uniform(0, bound)", "rng.uniform(bound / 2, bound)"),
        "at least a twentieth": ("rng.uniform(0, bound)", "rng.uniform(0.05, 1) * bound"),
        "rather short": ("rng.uniform(0, bound)", "rng.random() ** 1.2 * bound"),
        "one of eleven": ("rng.uniform(0, bound)", "rng.integers(0, 11) / 10 * bound"),
        "at most ten seconds": ("rng.uniform(0, bound)", "rng.uniform(0, min(bound, 10))"),
        "draws of its own": ("rng.uniform", "np.random.default_rng().uniform"),
        "one draw for all waits": """
def call_again(connect, frames, patience, seconds, time, rng):
    deadline, bound, share = time.monotonic() + seconds, 0.4, rng.random()
    while True:
        try:
            with connect() as channel:
                return channel.call(frames).result(timeout=min(patience, deadline - time.monotonic()))
        except (ConnectionError, TimeoutError):
            if time.monotonic() + share * bound > deadline:
                raise
        time.sleep(share * bound)
        bound *= 2
""",
        "a wait while it is open": """
def call_again(connect, frames, patience, seconds, time, rng):
    deadline, bound = time.monotonic() + seconds, 0.4
    while True:
        with connect() as channel:
            try:
                return channel.call(frames).result(timeout=min(patience, deadline - time.monotonic()))
            except (ConnectionError, TimeoutError):
                pause = rng.uniform(0, bound)
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
        bound *= 2
""",
        "patience alone": ("min(patience, left)", "patience"),
        "all the time that is left": ("min(patience, left)", "left"),
        "without a time-out": ("timeout=min(patience, left)", ""),
        "the time of the first try": ("min(patience, left)", "min(patience, seconds)"),
        "no deadline": ("time.monotonic() + pause > deadline", "False"),
        "looks after the wait": (
            "            if time.monotonic() + pause > deadline:\n                raise\n        time.sleep(pause)",
            "            time.sleep(pause)\n            if time.monotonic() > deadline:\n                raise",
        ),
        "only what is left": ("rng.uniform(0, bound)", "min(rng.uniform(0, bound), max(left, 0))"),
        "draws from what is left": (
            "rng.uniform(0, bound)",
            "rng.uniform(0, max(min(bound, deadline - time.monotonic()), 1e-9))",
        ),
        "gives up if the bound is too long": (
            "time.monotonic() + pause > deadline",
            "time.monotonic() + bound > deadline",
        ),
        "leaves time for an answer": (
            "time.monotonic() + pause > deadline",
            "time.monotonic() + pause + patience > deadline",
        ),
        "a new deadline for each try": ("        bound *= 2", "        bound *= 2\n        deadline += pause"),
        "six tries": (
            "deadline, bound = time.monotonic() + seconds, 0.4\n    while True:",
            "deadline, bound = time.monotonic() + seconds, 0.4\n    for _ in range(6):",
        ),
        "its own error": ("                raise\n", "                raise TimeoutError('no luck') from None\n"),
        "no error in the end": ("                raise\n", "                return None\n"),
        "the frames are used up": (
            "channel.call(frames)",
            "channel.call([frames.pop(0) for _ in range(len(frames))])",
        ),
        "the first frame alone": ("channel.call(frames)", "channel.call(frames[:1])"),
        "a new number for each try": ("channel.call(frames)", "channel.call([*frames[:-1], frames[-1] + b'+'])"),
        "an empty answer is none": (
            "return channel.call(frames).result(timeout=min(patience, left))",
            "answer = channel.call(frames).result(timeout=min(patience, left))\n                if answer:\n"
            "                    return answer\n                raise TimeoutError('empty')",
        ),
        "only resets": ("ConnectionError, TimeoutError", "ConnectionResetError, ConnectionRefusedError, TimeoutError"),
        "only the kind itself": (
            ":\n            pause = rng.uniform(0, bound)\n",
            " as error:\n            pause = rng.uniform(0, bound)\n"
            "            if type(error) not in (ConnectionError, TimeoutError):\n"
            "                raise\n",
        ),
        "one channel for all tries": """
def call_again(connect, frames, patience, seconds, time, rng):
    deadline, bound = time.monotonic() + seconds, 0.4
    with connect() as channel:
        while True:
            try:
                return channel.call(frames).result(timeout=min(patience, deadline - time.monotonic()))
            except (ConnectionError, TimeoutError):
                pause = rng.uniform(0, bound)
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            bound *= 2
""",
    },
    "survive.2": {
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
    "survive.1": {
        "by turns": """
def call_again(connect, frames, patience, seconds, time, rng):
    end = time.monotonic() + seconds
    for turn in range(1000):
        pause = 0.4 * 2.0**turn * rng.random()
        try:
            channel = connect()
            try:
                return channel.call(list(frames)).result(min(patience, end - time.monotonic()))
            finally:
                channel.close()
        except (ConnectionError, TimeoutError) as error:
            if pause > end - time.monotonic():
                raise error
        time.sleep(pause)
""",
        "again and again": """
def call_again(connect, frames, patience, seconds, time, rng, bound=0.4):
    start, error = time.monotonic(), None
    try:
        with connect() as channel:
            return channel.call(frames).result(timeout=min(patience, seconds - (time.monotonic() - start)))
    except (ConnectionError, TimeoutError) as caught:
        error = caught
    pause = rng.uniform(0.0, bound)
    if time.monotonic() + pause >= start + seconds:
        raise error
    time.sleep(pause)
    left = seconds - (time.monotonic() - start)
    return call_again(connect, frames, patience, left, time, rng, 2 * bound)
""",
    },
    "survive.2": {
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
import threading


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
