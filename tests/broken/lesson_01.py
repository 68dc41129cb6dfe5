"""Lesson 01: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "01.1": {
        "a plain mean": ("n * g[name]", "total / len(rows) * g[name]"),
        "a sum": (") / total", ")"),
        "the wrong way round": ("n * g[name]", "(total - n) * g[name]"),
        "one name for all": ("g[name]", "g['w']"),
        "shares of the first two": ("zip(rows, gradients, strict=True)", "zip(rows[:2], gradients)"),
        "another's array": ("total = sum(rows)", "total = sum(rows); gradients[0]['w'] *= 1.5"),
    },
    "01.2": {
        "all at once": ("rows[start : start + most]", "rows if start == 0 else rows[:0]"),
        "pieces count alike": ("len(piece) * g", "most * g"),
        "the last piece is lost": ("range(0, len(rows), most)", "range(0, len(rows) - most, most)"),
        "overlapping": ("start : start + most", "max(start - 1, 0) : start + most - 1"),
        "a sum": ("t / len(rows)", "t"),
    },
}
