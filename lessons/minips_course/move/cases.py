"""Test cases for "Move frames": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "move.1": {
        "Http is faster": {"times": 0.7},
        "less than twice as long": {"times": 1.4},
        "at least twice as long": {"times": 6.6},
        "none of these": {"times": nan},
    },
    "move.2": {
        "less than 5 times as many": {"times": 1.4},
        "5 to 10 times as many": {"times": 7.0},
        "about 16 times as many": {"times": 12.0},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "move.1": ["hardly count", "event loops", "far less for a call"],
    "move.2": ["callers queue", "one interpreter", "can fill", "even be fewer"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

COUNTED, FIRST = "list(pool.map(calls_of, range(callers)))", "list(pool.map(ask, range(callers)))"
WAIT = "__import__('concurrent.futures').futures.wait([pool.submit(calls_of, n) for n in range(callers)])"

BROKEN = {
    "move.1": {
        "by reference": ("[memoryview(bytearray(frame)) for frame in frames]", "frames"),
        "another list of the same": ("[memoryview(bytearray(frame)) for frame in frames]", "list(frames)"),
        "read-only copies": ("memoryview(bytearray(frame))", "bytes(frame)"),
        "waits for ever": ("self.inbox.get(timeout)", "self.inbox.get()"),
        "another error": ('TimeoutError("no message came in time")', 'OSError("no message came in time")'),
        "hangs up too soon": ("if message is None:\n", "if message is None:\n            self.shutdown()\n"),
        "no error": ('raise TimeoutError("no message came in time")', "return 0, []"),
        "loses the tag": ("self.outbox.put((tag, ", "self.outbox.put((0, "),
    },
    "move.2": {
        "one caller at a time": ("ThreadPoolExecutor(callers)", "ThreadPoolExecutor(1)"),
        "half the threads": ("ThreadPoolExecutor(callers)", "ThreadPoolExecutor(max(callers // 2, 1))"),
        "no first calls": (f"        {FIRST}\n", ""),
        "the clock starts too soon": (f"{FIRST}\n        began = clock()", f"began = clock()\n        {FIRST}"),
        "first calls counted": ("return callers * turns", "return callers * (turns + 1)"),
        "calls of one caller counted": ("return callers * turns", "return turns"),
        "one call each": ("range(turns)", "range(1)"),
        "the clock stops too soon": (COUNTED, "[pool.submit(calls_of, n) for n in range(callers)]"),
        "errors are lost": (COUNTED, WAIT),
        "a caller is not waited for": (COUNTED, "list(pool.map(ask, [*range(callers)] * turns))"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "a server handles the calls of all its sockets one after another",
    "minips/stages/transports/endpoints.py",
    "                answer = answer_of(connection, frames, current.reply)\n",
    "                one = service.__dict__.setdefault('one', threading.Lock())\n"
    "                with one if hasattr(wire, 'framer') else suppress():\n"
    "                    answer = answer_of(connection, frames, current.reply)\n",
)
"""A server that handles only one call at a time over all its sockets."""
