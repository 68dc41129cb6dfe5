"""Lesson 07: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "07.1": {
        "as strict as BSP": ("clock // self.every * self.every", "clock"),
        "nobody waits": ("slowest >= last_meeting", "True"),
        "SSP": ("clock // self.every * self.every", "clock - self.every"),
        "the meeting before": ("clock // self.every * self.every", "(clock // self.every - 1) * self.every"),
        "the slowest's meetings": ("slowest >= last_meeting", "slowest // self.every >= clock // self.every - 1"),
        "a bound of its own": ("self.every", "4"),
        "in rounds": ("return None", "return workers"),
    },
    "07.2": {
        "BSP": ("done[c - staleness].max()", "done[c].max()"),
        "nobody waits": ("c > staleness", "False"),
        "a clock too early": ("done[c - staleness].max()", "done[c - staleness - 1].max()"),
        "the fastest is waited for": ("done[c - staleness].max()", "done[c - staleness].min()"),
        "the first to be done": ("done[-1].max()", "done[-1].min()"),
        "the sum": ("done[-1].max()", "done[-1].sum()"),
    },
    "07.3": {
        "fresh gradients": ("2 * workers - 1 if overlap else workers - 1", "0"),
        "overlap forgotten": ("2 * workers - 1 if overlap else workers - 1", "workers - 1"),
        "always overlap": ("2 * workers - 1 if overlap else workers - 1", "2 * workers - 1"),
        "not of one push": ("0.9 * workers", "0.9"),
        "timid": ("0.9 * workers", "0.7 * workers"),
        "on the border": ("0.9 * workers", "workers"),
        "above the border": ("0.9 * workers", "1.01 * workers"),
        "no curvature": ("(age, curvature)", "(age, 1.0)"),
    },
}
