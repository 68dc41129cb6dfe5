"""Lesson 20: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "20.1": {
        "divides after the sum": ('(gradient / group.size).astype("f2")', 'gradient.astype("f2") / group.size * 2'),
        "a sum": ("gradient / group.size", "gradient"),
        "its own alone": ("group.all_reduce(part)", "part"),
        "float16 comes back": ('.astype("f4")', ""),
        "too many bytes": ('.astype("f2")', '.astype("f4")'),
        "too few bits": ('.astype("f2")', '.round(2).astype("f2")'),
        "the gradient itself": ("part = (gradient / group.size)", "gradient /= group.size\n    part = gradient"),
    },
    "20.2": {
        "no memory": (" + self.held.get(group.bucket, np.float32(0))", ""),
        "one for all buckets": ("self.held[group.bucket] = p - sent", "self.held = {0: p - sent}"),
        "what was sent": ("= p - sent", "= sent"),
        "all of it": ("= p - sent", "= p"),
        "the gradient's rest": ("= p - sent", "= gradient - sent"),
    },
}
