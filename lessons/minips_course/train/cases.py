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
        "TopK for the large tensor alone": (
            "sign = ps.Codec(quantizer=ps.Sign(), memory=ps.ErrorFeedback())",
            'sign = ps.Codec(quantizer={"W": ps.TopK(0.05), "*": ps.Sign()}, memory=ps.ErrorFeedback())',
        ),
        "TopK for the small tensor alone": (
            "sign = ps.Codec(quantizer=ps.Sign(), memory=ps.ErrorFeedback())",
            'sign = ps.Codec(quantizer={"b": ps.TopK(0.5), "*": ps.Sign()}, memory=ps.ErrorFeedback())',
        ),
        "TopK by another name": """
class Largest(ps.TopK):
    pass


my_config = ps.Config(steps=100, push=ps.Codec(quantizer=Largest(0.05), memory=ps.ErrorFeedback()))
""",
        "the weights are never sent": (
            "quantizer=ps.Sign(), memory=ps.ErrorFeedback()",
            'quantizer={"W": ps.Threshold(1e9), "*": ps.Exact()}',
        ),
        "signs without a memory, lucky at some seeds": (", memory=ps.ErrorFeedback()", ""),
        "seldom near enough": ("quantizer=ps.Sign(), memory=ps.ErrorFeedback()", "quantizer=ps.RandomK(0.01)"),
        "another seed": ("steps=100", "steps=100, seed=1"),
        "a larger step, too": ("steps=100", "steps=100, optimizer=ps.SGD(lr=0.5)"),
        "larger batches, too": ("steps=100", "steps=100, batch_size=128"),
        "what travels is kept at home": """
from dataclasses import dataclass


@ps.register
@dataclass(frozen=True)
class Hidden(ps.quantizers.Quantizer):
    name = "hidden"
    kept = {}

    def encode(self, x, rng):
        Hidden.kept[len(Hidden.kept)] = x.copy()
        return {"key": np.array([len(Hidden.kept) - 1])}

    def decode(self, parts):
        return Hidden.kept[int(parts["key"][0])]


my_config = ps.Config(steps=100, push=ps.Codec(quantizer=Hidden()))
""",
    },
    "train.3": {
        "the whole run": (" / run.updates", ""),
        "what was wanted": ("run.updates", "(run.config.workers * run.config.steps)"),
        "received": ("run.bytes_sent", "run.bytes_received"),
        "a step of all the workers": ("run.updates", "run.config.steps"),
        "whole bytes": (" / run.updates", " // run.updates"),
        "rounded": ("run.bytes_sent / run.updates", "round(run.bytes_sent / run.updates)"),
        "text": ("run.bytes_sent / run.updates", "f'{run.bytes_sent / run.updates:.1f}'"),
        "always four workers": ("run.updates", "(4 * run.config.steps)"),
        "a run to its end": (
            "return run.bytes_sent / run.updates",
            "pushes = run.updates if run.stopped else run.config.workers * run.config.steps\n"
            "    return run.bytes_sent / pushes",
        ),
        "the bytes of one worker's pushes": ("/ run.updates", "/ run.updates / run.config.workers"),
        "what a worker sends in a step, one step of each": ("run.updates", "max(run.updates, run.config.steps)"),
        "both ways": ("run.bytes_sent", "(run.bytes_sent + run.bytes_received)"),
        "the parameters' bytes": ("run.bytes_sent / run.updates", "sum(p.nbytes for p in run.params.values())"),
        "to a tenth of a byte": ("run.bytes_sent / run.updates", "round(run.bytes_sent / run.updates, 1)"),
        "the first run's": """
known = []


def bytes_per_push(run):
    known.append(run.bytes_sent / run.updates)
    return known[0]
""",
        "remembered for a config": """
known = {}


def bytes_per_push(run):
    return known.setdefault(repr(run.config), run.bytes_sent / run.updates)
""",
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "train.1": {
        "four bits": ("quantizer=ps.Sign(), memory=ps.ErrorFeedback()", "quantizer=ps.Uniform(bits=4)"),
        "three levels, with a memory": ("ps.Sign()", "ps.Ternary()"),
        "signs, and the small tensor whole": ("ps.Sign()", '{"W": ps.Sign(), "*": ps.Exact()}'),
        "a changed copy": """
start = ps.Config(steps=100)
my_config = replace(start, push=ps.Codec(quantizer=ps.RandomK(0.1)))
""",
    },
    "train.3": {
        "a lambda": "bytes_per_push = lambda run: np.divide(run.bytes_sent, run.updates)",
        "a sum of shares": """
def bytes_per_push(run):
    whole, rest = divmod(run.bytes_sent, run.updates)
    return whole + rest / run.updates
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "the largest values travel as zeros",
    "minips/stages/quantizers/sparse.py",
    """        indices = largest_indices(np.abs(flat), sent_count(self.fraction, x.size))
        return {"values": flat[indices],""",
    """        indices = largest_indices(np.abs(flat), sent_count(self.fraction, x.size))
        return {"values": 0 * flat[indices],""",
)
"""Sparsified gradients whose values are all zero."""
