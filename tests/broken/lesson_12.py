"""Lesson 12: what is wrong, the piece of the solution, and what stands there instead."""

COUNTED, FIRST = "list(pool.map(calls_of, range(callers)))", "list(pool.map(ask, range(callers)))"
WAIT = "__import__('concurrent.futures').futures.wait([pool.submit(calls_of, n) for n in range(callers)])"

BROKEN = {
    "12.1": {
        "by reference": ("[memoryview(bytearray(frame)) for frame in frames]", "frames"),
        "another list of the same": ("[memoryview(bytearray(frame)) for frame in frames]", "list(frames)"),
        "read-only copies": ("memoryview(bytearray(frame))", "bytes(frame)"),
        "waits for ever": ("self.inbox.get(timeout)", "self.inbox.get()"),
        "another error": ('TimeoutError("no message came in time")', 'OSError("no message came in time")'),
        "hangs up too soon": ("if message is None:\n", "if message is None:\n            self.shutdown()\n"),
        "no error": ('raise TimeoutError("no message came in time")', "return 0, []"),
        "loses the tag": ("self.outbox.put((tag, ", "self.outbox.put((0, "),
    },
    "12.2": {
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
