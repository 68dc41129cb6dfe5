"""Lesson 10: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "10.1": {
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
    "10.2": {
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
