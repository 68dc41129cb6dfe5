"""Test cases for "Remember what was not sent": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "remember.1": {
        "fewer: the memory repeats itself": {"times": 0.5},
        "about as many: each push moves one": {"times": 1.05},
        "about twice as many": {"times": 2.2},
        "many times as many": {"times": 6.0},
        "none of these": {"times": nan},
    },
    "remember.2": {
        "up to about t, with error feedback and without": {"plain": 0.98, "fed": 0.95},
        "up to about t without a memory, up to about lr · t with it": {"plain": 0.98, "fed": 0.08},
        "up to about t without a memory, ever further with it": {"plain": 0.98, "fed": 40.0},
        "no distance: with both, w comes to the minimum exactly": {"plain": 0.0, "fed": 0.0},
        "none of these": {"plain": 9.0, "fed": 0.08},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "remember.1": ["win again and again", "turn comes", "twice as many"],
    "remember.2": ["hops", "w stops", "within lr", "never sent", "add up until"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "remember.1": {
        "no mending": ("p - sent", "np.where(sent == 0, p, 0 * p)"),
        "a case for signs alone": ("p - sent", "np.where(np.abs(sent) < np.abs(sent).max(), p - sent, 0 * p)"),
        "the wrong way round": ("p - sent", "sent - p"),
        "what was sent": ("p - sent", "sent"),
        "a share of it": ("p - sent", "0.99 * (p - sent)"),
        "only what is large": ("p - sent", "np.where(np.abs(p - sent) > 0.05, p - sent, 0 * p)"),
        "half precision": ("p - sent", "(p - sent).astype(np.float16)"),
        "written into the gradient": ("p - sent", "np.subtract(p, sent, out=p)"),
        "never more than one": ("p - sent", "np.clip(p - sent, -1, 1)"),
    },
    "remember.2": {
        "nothing added": ("x + memory.get(name, 0)", "x"),
        "a share of it": ("x + memory.get(name, 0)", "x + 0.9 * memory.get(name, 0)"),
        "written into the gradient": (
            "x + memory.get(name, 0)",
            "np.add(x, memory.get(name, 0), out=x)",
        ),
        "what was sent": ("x - sent[name]", "sent[name]"),
        "zeros alone": ("x - sent[name]", "np.where(sent[name] == 0, x, 0 * x)"),
        "the largest is lost": ("x - sent[name]", "np.where(x - sent[name] > 1, 1, x - sent[name])"),
        "one for all": ("name: x - sent[name]", "'W': x - sent[name]"),
        "in double precision": ("x + memory.get(name, 0)", "x + np.float64(1) * memory.get(name, np.zeros(x.shape))"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "error feedback forgets what was not sent",
    "minips/stages/memories/feedback.py",
    'state["error"] = np.asarray(p - sent)',
    'state["error"] = np.zeros_like(p)',
)
"""A memory that forgets what was not sent."""
