"""Test cases for "Train in a minute": for its questions, its exercises and a claim."""

OUTCOMES = {
    "train.1": {
        "about one in ten": {"accuracy": 0.1},
        "about half": {"accuracy": 0.5},
        "more than nine in ten": {"accuracy": 0.96},
        "none of these": {"accuracy": 0.8},
    },
    "train.2": {
        "it falls below 50 %": {"accuracy": 12.0, "change": -84.0},
        "it falls by 10 to 40 percentage points": {"accuracy": 76.0, "change": -20.0},
        "it stays within 3 percentage points": {"accuracy": 96.0, "change": 0.1},
        "none of these": {"accuracy": 90.0, "change": -6.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "train.1": ["a weight for each pixel", "most of them apart"],
    "train.2": ["is not dropped", "some steps late", "does not mind"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "train.1": {
        "all the bytes": ("ps.Sign()", "ps.Exact()"),
        "half the bytes": ("ps.Sign()", "ps.Float16()"),
        "too few values": ("ps.Sign(), memory=ps.ErrorFeedback()", "ps.TopK(0.01)"),
        "the one that was shown": ("ps.Sign()", "ps.TopK(fraction=0.05)"),
        "shown, for one tensor": ("ps.Sign()", '{"W": ps.TopK(0.05), "*": ps.Exact()}'),
        "the pull, too": ("push=sign", "push=sign, pull=ps.Codec(quantizer=ps.Float16())"),
        "fewer steps": ("steps=100", "steps=25"),
        "fewer workers": ("steps=100", "steps=100, workers=1"),
        "only a codec": ("ps.Config(steps=100, push=sign)", "sign"),
    },
    "train.3": {
        "the whole run": (" / run.updates", ""),
        "what was wanted": ("run.updates", "(run.config.workers * run.config.steps)"),
        "received": ("run.bytes_sent", "run.bytes_received"),
        "a step of all the workers": ("run.updates", "run.config.steps"),
        "whole bytes": (" / run.updates", " // run.updates"),
        "rounded": ("run.bytes_sent / run.updates", "round(run.bytes_sent / run.updates)"),
        "text": ("run.bytes_sent / run.updates", "f'{run.bytes_sent / run.updates:.1f}'"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the largest values travel as zeros",
    "minips/stages/quantizers/sparse.py",
    """        indices = largest_indices(np.abs(flat), sent_count(self.fraction, x.size))
        return {"values": flat[indices],""",
    """        indices = largest_indices(np.abs(flat), sent_count(self.fraction, x.size))
        return {"values": 0 * flat[indices],""",
)
"""Sparsified gradients whose values are all zero."""
