"""Test cases for "Move frames": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "move.1": {
        "Http is faster": {"times": 0.7},
        "less than twice as long": {"times": 1.4},
        "at least twice as long": {"times": 6.6},
        "none of these": {"times": nan},
    },
    "move.3": {
        "less than 8 times as many": {"times": 1.4},
        "8 to 14 times as many": {"times": 10.0},
        "about 16 times as many": {"times": 15.0},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "move.1": ["hardly count", "event loops", "far less for a call"],
    "move.3": ["callers queue", "one interpreter", "can fill", "even be fewer"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

COUNTED, FIRST = "list(pool.map(calls_of, range(callers)))", "list(pool.map(ask, range(callers)))"
WAIT = "__import__('concurrent.futures').futures.wait([pool.submit(calls_of, n) for n in range(callers)])"

BROKEN = {
    "move.3": {
        "by reference": ("[bytearray(frame) for frame in frames]", "frames"),
        "another list of the same": ("[bytearray(frame) for frame in frames]", "list(frames)"),
        "read-only copies": ("[bytearray(frame) for", "[bytes(frame) for"),
        "waits for ever": ("self.inbox.get(timeout)", "self.inbox.get()"),
        "another error": ('TimeoutError("no message came in time")', 'OSError("no message came in time")'),
        "hangs up too soon": ("if message is None:\n", "if message is None:\n            self.shutdown()\n"),
        "no error": ('raise TimeoutError("no message came in time")', "return 0, []"),
        "loses the tag": ("self.outbox.put((tag, ", "self.outbox.put((0, "),
        "a second, whatever was asked": ("self.inbox.get(timeout)", "self.inbox.get(1.0)"),
        "for ever is a second": ("self.inbox.get(timeout)", "self.inbox.get(1.0 if timeout is None else timeout)"),
        "no time is for ever": ("self.inbox.get(timeout)", "self.inbox.get(timeout or None)"),
        "at most a tenth of a second": (
            "self.inbox.get(timeout)",
            "self.inbox.get(timeout if timeout is None else min(timeout, 0.1))",
        ),
        "at most five seconds": (
            "self.inbox.get(timeout)",
            "self.inbox.get(timeout if timeout is None else min(timeout, 5.0))",
        ),
        "half of the time": ("self.inbox.get(timeout)", "self.inbox.get(timeout if timeout is None else timeout / 2)"),
        "copies at the other end": """
class QueueWire(QueueEnd):
    def send(self, tag, frames):
        self.outbox.put((tag, frames))

    def receive(self, timeout=None, limit=None):
        message = self.inbox.get(timeout)
        if message is None:
            raise TimeoutError("no message came in time")
        tag, frames = message
        if limit is not None and sum(map(len, frames)) > limit:
            raise ValueError("too large")
        return tag, [bytearray(frame) for frame in frames]
""",
        "copies when they are read": (
            "[bytearray(frame) for frame in frames]",
            "(bytearray(frame) for frame in frames)",
        ),
        "the first frame alone": (
            "[bytearray(frame) for frame in frames]",
            "[frame if i else bytearray(frame) for i, frame in enumerate(frames)]",
        ),
        "small frames alone": (
            "[bytearray(frame) for",
            "[bytearray(frame) if len(frame) < 10_000 else frame for",
        ),
        "one copy for each buffer": """
class QueueWire(QueueEnd):
    def send(self, tag, frames):
        copies = {id(frame): bytearray(frame) for frame in frames}
        self.outbox.put((tag, [copies[id(frame)] for frame in frames]))

    def receive(self, timeout=None, limit=None):
        message = self.inbox.get(timeout)
        if message is None:
            raise TimeoutError("no message came in time")
        tag, frames = message
        if limit is not None and sum(map(len, frames)) > limit:
            raise ValueError("too large")
        return message
""",
        "the first two tries": """
class QueueWire(QueueEnd):
    def send(self, tag, frames):
        self.outbox.put((tag, [bytearray(frame) for frame in frames]))

    def receive(self, timeout=None, limit=None):
        for _ in range(2 if timeout is not None else 10**9):
            message = self.inbox.get(0.1)
            if message is not None:
                if limit is not None and sum(map(len, message[1])) > limit:
                    raise ValueError("too large")
                return message
        raise TimeoutError("no message came in time")
""",
        "no limit": ("nbytes > limit", "False"),
        "no message as large as the limit": ("nbytes > limit", "nbytes >= limit"),
        "no limit of 0": ("limit is not None and", "limit and"),
        "the first frame alone counts": ("sum(len(frame) for frame in frames)", "len(frames[0]) if frames else 0"),
        "the largest frame counts": ("sum(len(frame) for frame in frames)", "max(map(len, frames), default=0)"),
        "frames are counted": ("sum(len(frame) for frame in frames)", "len(frames)"),
        "cut to the limit": ("raise ValueError(", "frames = frames[:-1] or list("),
        "None is a million": (
            "limit is not None and nbytes > limit",
            "nbytes > (1_000_000 if limit is None else limit)",
        ),
    },
    "move.2": {
        "no first calls": (f"        {FIRST}\n", ""),
        "one caller at a time": ("ThreadPoolExecutor(callers)", "ThreadPoolExecutor(1)"),
        "half the threads": ("ThreadPoolExecutor(callers)", "ThreadPoolExecutor(max(callers // 2, 1))"),
        "the clock starts too soon": (f"{FIRST}\n        began = clock()", f"began = clock()\n        {FIRST}"),
        "first calls counted": ("return callers * turns", "return callers * (turns + 1)"),
        "calls of one caller counted": ("return callers * turns", "return turns"),
        "one call each": ("range(turns)", "range(1)"),
        "the clock stops too soon": (COUNTED, "[pool.submit(calls_of, n) for n in range(callers)]"),
        "errors are lost": (COUNTED, WAIT),
        "a caller is not waited for": (COUNTED, "list(pool.map(ask, [*range(callers)] * turns))"),
        "rounds in step": """
def calls_a_second(ask, callers, turns, clock=time.perf_counter):
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(ask, range(callers)))
        began = clock()
        for _ in range(turns):
            list(pool.map(ask, range(callers)))
        return callers * turns / (clock() - began)
""",
        "as many threads as there are by default": ("ThreadPoolExecutor(callers)", "ThreadPoolExecutor()"),
        "at most 32 threads": ("ThreadPoolExecutor(callers)", "ThreadPoolExecutor(min(callers, 32))"),
        "first calls are not waited for": (FIRST, "[pool.submit(ask, n) for n in range(callers)]"),
        "errors of first calls are lost": (
            FIRST,
            "__import__('concurrent.futures').futures.wait([pool.submit(ask, n) for n in range(callers)])",
        ),
        "other errors are lost": (
            f"        {COUNTED}\n",
            f"        try:\n            {COUNTED}\n        except (ConnectionError, OSError):\n            raise\n"
            "        except Exception:\n            pass\n",
        ),
        "an error of its own": (
            f"        {COUNTED}\n",
            f"        try:\n            {COUNTED}\n        except Exception as error:\n"
            "            raise ConnectionError('a call failed') from error\n",
        ),
        "one caller's first calls": (FIRST, "[ask(0) for _ in range(callers)]"),
        "the calls that were asked for, less one": ("range(turns)", "range(max(turns - 1, 1))"),
        "the mean of the callers' rates": """
def calls_a_second(ask, callers, turns, clock=time.perf_counter):
    def rate_of(caller):
        ask(caller)
        began = clock()
        for _ in range(turns):
            ask(caller)
        return turns / (clock() - began)

    with ThreadPoolExecutor(callers) as pool:
        return sum(pool.map(rate_of, range(callers)))
""",
        "threads that are kept": """
pools = []


def calls_a_second(ask, callers, turns, clock=time.perf_counter):
    def calls_of(caller):
        for _ in range(turns):
            ask(caller)

    pool = ThreadPoolExecutor(callers)
    pools.append(pool)
    list(pool.map(ask, range(callers)))
    began = clock()
    list(pool.map(calls_of, range(callers)))
    return callers * turns / (clock() - began)
""",
        "a clock of its own": ("clock() - began", "time.perf_counter() - began"),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "move.3": {
        "until a deadline": """
class QueueWire(QueueEnd):
    def send(self, tag, frames):
        copies = []
        for frame in frames:
            copies.append(bytearray(frame))
        self.outbox.put((tag, copies))

    def receive(self, timeout=None, limit=None):
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 0.05 if deadline is None else max(min(deadline - time.monotonic(), 0.05), 0)
            message = self.inbox.get(left)
            if message is not None:
                for size in [len(b"".join(message[1]))]:
                    if limit is not None and limit < size:
                        raise ValueError(size)
                return message
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"nothing came in {timeout} seconds")
""",
        "copies at both ends": """
class QueueWire(QueueEnd):
    def send(self, tag, frames):
        self.outbox.put((tag, tuple(bytes(frame) for frame in frames)))

    def receive(self, timeout=None, limit=None):
        message = self.inbox.get() if timeout is None else self.inbox.get(timeout)
        if not message:
            raise TimeoutError
        tag, frames = message
        left = float("inf") if limit is None else limit
        for frame in frames:
            left -= len(frame)
        if left < 0:
            raise ValueError("more than I was told to accept")
        return tag, [bytearray(frame) for frame in frames]
""",
    },
    "move.2": {
        "futures": """
def calls_a_second(ask, callers, turns, clock=time.perf_counter):
    def all_of(caller):
        return [ask(caller) for _ in range(turns)]

    with ThreadPoolExecutor(max_workers=callers + 3) as pool:
        for first in [pool.submit(ask, caller) for caller in range(callers)]:
            first.result()
        before = clock()
        for counted in [pool.submit(all_of, caller) for caller in range(callers)]:
            counted.result()
        after = clock()
    return turns * callers / (after - before)
""",
        "threads and an event": """
def calls_a_second(ask, callers, turns, clock=time.perf_counter):
    import threading

    ready, go, errors = threading.Semaphore(0), threading.Event(), []

    def caller_calls(caller):
        try:
            try:
                ask(caller)
            finally:
                ready.release()
            go.wait()
            for _ in range(turns):
                ask(caller)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=caller_calls, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for _ in threads:
        ready.acquire()
    began = clock()
    go.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return callers * turns / (clock() - began)
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "a server handles the calls of all its sockets one after another",
    "minips/stages/transports/endpoints.py",
    "                answer = answer_of(connection, frames, current.reply)\n",
    "                one = service.__dict__.setdefault('one', threading.Lock())\n"
    "                with one if hasattr(wire, 'framer') else suppress():\n"
    "                    answer = answer_of(connection, frames, current.reply)\n",
)
"""A server that handles only one call at a time over all its sockets."""
