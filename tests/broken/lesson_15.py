"""Lesson 15: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "15.1": {
        "one age": ("x[-1 - age]", "x[-1 - round(np.mean(ages))]"),
        "fresh gradients": ("x[-1 - age]", "x[-1]"),
        "the oldest of all": ("x[-1 - age]", "x[-1 - max(ages)]"),
        "the youngest of all": ("x[-1 - age]", "x[-1 - min(ages)]"),
        "a push younger": ("x[-1 - age]", "x[-age]"),
        "a push older": ("x[-1 - age]", "x[-2 - age]"),
        "once through the ages": ("5000 // len(ages)", "1"),
        "a rate for all the workers": ("- rate *", "- 4 * rate *"),
        "the formula with the mean age": (
            "x[-1] - rate * x[-1 - age]",
            "x[-1] - rate * (x[-1 - round(sum(ages) / len(ages))])",
        ),
        "never": ("return True", "return False"),
        "no answer": ("return True", "return None"),
    },
    "15.2": {
        "the usual weight": ("min(1, (1 + self.usual) / (1 + one.staleness))", "1"),
        "as StalenessWeighted": ("(1 + self.usual) / (1 + one.staleness)", "1 / (1 + one.staleness)"),
        "a jump": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "1 if one.staleness <= self.usual else 1 / (1 + one.staleness)",
        ),
        "young ones count more": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "(1 + self.usual) / (1 + one.staleness)",
        ),
        "old ones are dropped": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "float(one.staleness <= self.usual)",
        ),
        "one off": ("(1 + self.usual) / (1 + one.staleness)", "self.usual / max(one.staleness, 1)"),
        "usual is a constant": ("1 + self.usual", "4"),
        "the sum": ("weight / len(weights)", "weight"),
        "weights that add up to one": ("weight / len(weights)", "weight / sum(weights)"),
    },
}
