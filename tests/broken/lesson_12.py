"""Lesson 12: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "12.1": {
        "by reference": ("[memoryview(bytearray(frame)) for frame in frames]", "frames"),
        "another list of the same": ("[memoryview(bytearray(frame)) for frame in frames]", "list(frames)"),
        "read-only copies": ("memoryview(bytearray(frame))", "bytes(frame)"),
        "waits for ever": ("self.inbox.get(timeout=timeout)", "self.inbox.get()"),
        "another error": ('TimeoutError("no message came in time")', 'OSError("no message came in time")'),
        "hangs up too soon": ("except queue.Empty:\n", "except queue.Empty:\n            self.shutdown()\n"),
        "loses the tag": ("self.outbox.put((tag, ", "self.outbox.put((0, "),
    },
    "12.2": {
        "lazy": ("[channel.call(frames) for frames in questions]", "(channel.call(frames) for frames in questions)"),
        "backwards": ("for future in futures", "for future in futures[::-1]"),
        "the last is forgotten": ("for frames in questions", "for frames in questions[:-1]"),
        "each twice": ("for frames in questions]", "for frames in questions for _ in range(2)][::2]"),
        "left open": (
            "with transport.connect(address, token) as channel:",
            "for channel in [transport.connect(address, token)]:",
        ),
        "one for each": ("channel.call(frames) for", "transport.connect(address, token).call(frames) for"),
    },
    "12.3": {
        "never again": ("range(attempts)", "range(1)"),
        "one too few": ("range(attempts)", "range(attempts - 1)"),
        "no error in the end": ("attempts - 1:", "attempts:"),
        "any error": ("except ConnectionError", "except Exception"),
        "a time-out too": ("except ConnectionError", "except OSError"),
        "left open": ("with connect() as channel:", "for channel in [connect()]:"),
        "no wait": ("sleep(rng.uniform(0, 0.05 * 2**attempt))", "pass"),
        "the bound itself": ("rng.uniform(0, 0.05 * 2**attempt)", "0.05 * 2**attempt"),
        "always the same bound": ("2**attempt", "1"),
        "half the bound": ("uniform(0, 0.05 * 2**attempt)", "uniform(0, 0.025 * 2**attempt)"),
        "a wait of nothing": ("rng.uniform(0, 0.05 * 2**attempt)", "0"),
        "a wait after the last": ("                raise\n", "                sleep(0)\n                raise\n"),
        "a wait while it is open": (
            "with connect() as channel:\n",
            "with connect() as channel:\n                sleep(0)\n",
        ),
        "its own error": ("                raise", "                raise ConnectionError('no luck') from None"),
    },
}
