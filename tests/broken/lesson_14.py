"""Lesson 14: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "14.1": {
        "as strict as BSP": ("clock // self.every * self.every", "clock"),
        "nobody waits": ("slowest >= last_meeting", "True"),
        "SSP": ("clock // self.every * self.every", "clock - self.every"),
        "the meeting before": ("clock // self.every * self.every", "(clock // self.every - 1) * self.every"),
        "the slowest's meetings": ("slowest >= last_meeting", "slowest // self.every >= clock // self.every - 1"),
        "a bound of its own": ("self.every", "4"),
        "in rounds": ("return None", "return workers"),
    },
    "14.2": {
        "BSP": ("done[c - staleness].max()", "done[c].max()"),
        "nobody waits": ("c > staleness", "False"),
        "a clock too early": ("done[c - staleness].max()", "done[c - staleness - 1].max()"),
        "the fastest is waited for": ("done[c - staleness].max()", "done[c - staleness].min()"),
        "the first to be done": ("done[-1].max()", "done[-1].min()"),
        "the sum": ("done[-1].max()", "done[-1].sum()"),
    },
    "14.3": {
        "one age": ("x[-1 - age]", "x[-1 - round(np.mean(ages))]"),
        "fresh gradients": ("x[-1 - age]", "x[-1]"),
        "the oldest of all": ("x[-1 - age]", "x[-1 - max(ages)]"),
        "a push younger": ("x[-1 - age]", "x[-age]"),
        "a few pushes": ("4000 // len(ages)", "1"),
        "not of one push": ("0.95 * workers", "0.95"),
        "timid": ("0.95 * workers", "0.85 * workers"),
        "above the border": ("0.95 * workers", "1.02 * workers"),
        "no curvature": (" / curvature", ""),
    },
}
