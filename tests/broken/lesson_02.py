"""Lesson 02: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "02.1": {
        "the one that ends badly": ("return low", "return high"),
        "a middle that was never tried": ("return low", "return (low * high) ** 0.5"),
        "too early": ("1.02", "1.1"),
        "the other way round": ("if ends_well(middle)", "if not ends_well(middle)"),
        "the middle by difference": ("(low * high) ** 0.5", "(low + high) / 2"),
        "small steps": ("(low * high) ** 0.5", "low * 1.02"),
        "nothing is tried": ("while high / low > 1.02", "while False"),
    },
    "02.2": {
        "distances to the mean": ("(len(each) - 1)", "len(each)"),
        "a worker's variance": ("rows * one_worker", "one_worker"),
        "divided by the rows": ("rows * one_worker", "one_worker / rows"),
        "a length that is too long": (" - one_worker / len(each)", ""),
        "one worker's share": (" - one_worker / len(each)", " - one_worker"),
        "one tensor": ("for x in g.values()", "for x in [g['w']]"),
    },
}
