"""Test cases for "Hide the latency": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "hide.1": {
        "about 1 and about 1": {"tiny": 1.01, "large": 1.05},
        "about 1 and about 7": {"tiny": 1.01, "large": 7.0},
        "about 1 and about 10": {"tiny": 1.01, "large": 9.9},
        "about 10 and about 10": {"tiny": 10.0, "large": 9.9},
        "none of these": {"tiny": nan, "large": 7.0},
    },
    "hide.3": {
        "0.01 s": {"short": 5.0, "equal": 2.0, "long": 1.25},
        "0.04 s": {"short": 1.25, "equal": 2.0, "long": 1.25},
        "0.16 s": {"short": 1.25, "equal": 1.5, "long": 1.8},
        "any of these: the factor is the same": {"short": 1.0, "equal": 1.0, "long": 1.0},
        "none of these": {"short": 2.0, "equal": 2.0, "long": 1.25},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "hide.1": ["0.84", "0.12 s", "once for all", "hide latency"],
    "hide.3": ["the longer of", "the shorter", "twice as fast", "equally long"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "hide.3": {
        "waits for each": """
def answers(channel, messages, most):
    for frames in messages:
        yield channel.call(frames).result(timeout=10)
""",
        "all at once": """
def answers(channel, messages, most):
    under_way = [channel.call(frames) for frames in messages]
    for future in under_way:
        yield future.result(timeout=10)
""",
        "in batches": """
def answers(channel, messages, most):
    messages = iter(messages)
    while batch := [channel.call(frames) for frames, _ in zip(messages, range(most))]:
        for future in batch:
            yield future.result(timeout=10)
""",
        "in batches, drawn with care": """
def answers(channel, messages, most):
    under_way = []
    for frames in messages:
        if len(under_way) == most:
            for future in under_way:
                yield future.result(timeout=10)
            under_way = []
        under_way.append(channel.call(frames))
    for future in under_way:
        yield future.result(timeout=10)
""",
        "a list": """
def answers(channel, messages, most):
    under_way, found = deque(), []
    for frames in messages:
        if len(under_way) == most:
            found.append(under_way.popleft().result(timeout=10))
        under_way.append(channel.call(frames))
    return found + [future.result(timeout=10) for future in under_way]
""",
        "one too many": ("== most", "> most"),
        "one too few": ("== most", "== max(most - 1, 1)"),
        "always four": ("== most", "== 4"),
        "the newest first": ("under_way.popleft()", "under_way.pop()"),
        "what is done first": (
            "            yield under_way.popleft().result(timeout=10)\n",
            "            first = next((one for one in under_way if one.done()), under_way[0])\n"
            "            under_way.remove(first)\n            yield first.result(timeout=10)\n",
        ),
        "the last ones are lost": ("    while under_way:\n        yield under_way.popleft().result(timeout=10)\n", ""),
        "one of the last": ("while under_way:", "if under_way:"),
        "without a time-out": ("result(timeout=10)", "result()"),
        "a short time-out": ("result(timeout=10)", "result(timeout=0.1)"),
        "an empty answer is none": (
            "            yield under_way.popleft().result(timeout=10)\n",
            "            if answer := under_way.popleft().result(timeout=10):\n                yield answer\n",
        ),
        "errors are skipped": (
            "            yield under_way.popleft().result(timeout=10)\n",
            "            try:\n                yield under_way.popleft().result(timeout=10)\n"
            "            except Exception:\n                pass\n",
        ),
        "errors are yielded": (
            "            yield under_way.popleft().result(timeout=10)\n",
            "            future = under_way.popleft()\n            try:\n"
            "                yield future.result(timeout=10)\n"
            "            except Exception as error:\n                yield error\n",
        ),
        "its own error": (
            "            yield under_way.popleft().result(timeout=10)\n",
            "            try:\n                answer = under_way.popleft().result(timeout=10)\n"
            "            except Exception as error:\n                raise RuntimeError(*error.args) from None\n"
            "            yield answer\n",
        ),
        "it stops quietly": (
            "            yield under_way.popleft().result(timeout=10)\n",
            "            try:\n                answer = under_way.popleft().result(timeout=10)\n"
            "            except Exception:\n                return\n            yield answer\n",
        ),
        "all messages are drawn first": ("for frames in messages:", "for frames, _ in [*zip(messages, range(60))]:"),
        "answers by pairs": (
            "            yield under_way.popleft().result(timeout=10)\n",
            "            some = [one.result(timeout=10) for one in (under_way.popleft(), *under_way)][:1]\n"
            "            yield from some\n",
        ),
        "a window for all": (
            "def answers(channel, messages, most):\n    under_way = deque()",
            """
under_way = deque()


def answers(channel, messages, most):""",
        ),
    },
    "hide.4": {
        "waits for each": """
def train(ask, gradient, params, steps):
    for _ in range(steps):
        params = ask(gradient(params)).result(timeout=10)
    return params
""",
        "waits before it computes": """
def train(ask, gradient, params, steps):
    under_way = None
    for _ in range(steps):
        if under_way is not None:
            params = under_way.result(timeout=10)
        under_way = ask(gradient(params))
    return params if under_way is None else under_way.result(timeout=10)
""",
        "never waits": """
def train(ask, gradient, params, steps):
    futures = [ask(gradient(params)) for _ in range(steps)]
    return futures[-1].result(timeout=10) if futures else params
""",
        "always the first parameters": ("params = under_way", "_ = under_way"),
        "the last answer is lost": (
            "    return params if under_way is None else under_way.result(timeout=10)",
            "    return params",
        ),
        "no step is an error": (
            "    return params if under_way is None else under_way.result(timeout=10)",
            "    return under_way.result(timeout=10)",
        ),
        "one step too many": ("range(steps)", "range(steps + 1)"),
        "one step too few": ("range(steps)", "range(steps - 1)"),
        "two pushes under way": """
def train(ask, gradient, params, steps):
    under_way = []
    for _ in range(steps):
        gradients = gradient(params)
        if len(under_way) == 2:
            params = under_way.pop(0).result(timeout=10)
        under_way.append(ask(gradients))
    for future in under_way:
        params = future.result(timeout=10)
    return params
""",
        "it pushes before it takes": (
            """        if under_way is not None:
            params = under_way.result(timeout=10)
        under_way = ask(gradients)
""",
            """        before, under_way = under_way, ask(gradients)
        if before is not None:
            params = before.result(timeout=10)
""",
        ),
        "the old gradient": (
            "        under_way = ask(gradients)",
            "            gradients = gradient(params)\n        under_way = ask(gradients)",
        ),
        "only what is done": ("if under_way is not None:", "if under_way is not None and under_way.done():"),
        "without a time-out": ("result(timeout=10)", "result()"),
        "an error is passed over": (
            "            params = under_way.result(timeout=10)\n",
            "            try:\n                params = under_way.result(timeout=10)\n"
            "            except ConnectionError:\n                pass\n",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "hide.3": {
        "filled first": """
def answers(channel, messages, most):
    rest = iter(messages)
    window = [channel.call(frames) for _, frames in zip(range(most), rest)]
    while window:
        answer = window.pop(0).result(30)
        for frames in rest:
            window.append(channel.call(frames))
            break
        yield answer
""",
        "by numbers": """
def answers(channel, messages, most):
    futures, taken, made = {}, 0, 0
    for frames in messages:
        futures[made] = channel.call(frames)
        made += 1
        if made - taken == most:
            future = futures.pop(taken)
            taken += 1
            yield future.result(timeout=10)
    for number in range(taken, made):
        yield futures.pop(number).result(timeout=10)
""",
    },
    "hide.4": {
        "a list": """
def train(ask, gradient, params, steps):
    futures = []
    for step in range(steps):
        gradients = gradient(params)
        if step:
            params = futures.pop().result(30)
        futures.append(ask(gradients))
    for future in futures:
        params = future.result(30)
    return params
""",
        "the first step apart": """
def train(ask, gradient, params, steps):
    if steps == 0:
        return params
    travelling, left = ask(gradient(params)), steps - 1
    while left:
        next_gradients = gradient(params)
        params = travelling.result(timeout=20)
        travelling = ask(next_gradients)
        left -= 1
    return travelling.result(timeout=20)
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "overlap waits for the answer to its push",
    "minips/core/loop.py",
    "            travelling = yield Begin(push_pull)",
    "            params, versions = (yield Call(push_pull)), worker.versions",
)
"""A worker that does not overlap."""
