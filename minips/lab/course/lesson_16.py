"""Lesson 16: trust nobody."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, conforms, distance, drawn_seed, refuse_if
from minips.lab.course.questions import Expected, Item, Option, card, prompt, question, quiz, sentence
from minips.stage import Tensors

question(
    "16.1",
    "One worker of five sends noise, four are honest: how many held-out digits does the model read at the end, "
    "compared with a run in which all are honest?",
    Option(
        "nearly as many",
        lambda share: share >= 0.75,
        "The noise did little harm: it is a fifth of the mean, so it was not much larger than the honest gradients.",
    ),
    Option(
        "about half as many",
        lambda share: 1 / 3 < share < 0.75,
        "The noise moved the parameters about as far as the honest gradients did, and undid part of their work.",
    ),
    Expected(
        "at most a third of them",
        lambda share: share <= 1 / 3,
        "A fifth of 100 is still 20. The four honest gradients, of the size 0.1, cannot make up for that: the "
        "parameters follow the noise.",
    ),
    otherwise="One of the two runs gave no accuracy to compare.",
)

question(
    "16.2",
    "As x goes from 1.0 to a million, how far does the median of the five go?",
    Option(
        "after x, only slower",
        lambda near, far: far > 1.3 and far > near,
        "The result grows with x: what the fifth worker says has weight, however far away it is.",
    ),
    Expected(
        "to 1.1 and no further",
        lambda near, far: near == 1.0 and far == 1.1,
        "At x = 1.0 the third of the five is 1.0. A larger x moves to the end of the row, and 1.1 becomes the third. "
        "How far x goes after that makes no difference.",
    ),
    Option(
        "nowhere: it stays at 1.0",
        lambda near, far: near == far == 1.0,
        "The third of the five is 1.0 for both values of x.",
    ),
    otherwise="The median did not begin at 1.0, or it ended between the honest values.",
)


def _alone(rule: str) -> Callable[..., bool]:
    """True where this rule, and no other one, reads more than 80 % of the digits in its worst case."""
    return lambda **least: [name for name, accuracy in least.items() if accuracy > 0.8] == [rule]


question(
    "16.3",
    "Which rule alone reads more than 80 % of the digits in all four cases?",
    Option("the mean", _alone("mean"), "The mean withstood what the robust rules did not: the lies cancelled out."),
    Option(
        "the trimmed mean, trim = 1",
        _alone("trimmed"),
        "One value at each end was left out, and what the second liar said did no harm.",
    ),
    Option(
        "Krum, bad = 1",
        _alone("krum"),
        "An honest gradient was the one that lay closest to its neighbours in every case.",
    ),
    Expected(
        "the median",
        _alone("median"),
        "Two liars of five are fewer than half, so in each coordinate the middle value lies among the honest ones. "
        "The trimmed mean with trim = 1 and Krum with bad = 1 are made for one liar.",
    ),
    otherwise="No rule passed alone: none reached 80 % in all four cases, or more than one did.",
)

sentence(
    "16.1",
    "{name}: in the run with processes the model reads {one:.0%}; with five seeds, from {low:.0%} to {high:.0%}.",
)

sentence(
    "16.2",
    "At x = a million: the mean is {mean:,.0f}, the median {median:.2f}, the trimmed mean {trimmed:.2f}, "
    "Krum {krum:.2f}.",
    expect="mean > 1e5 and median == 1.1 and max([trimmed, krum]) <= 1.2",
)

sentence(
    "16.3",
    "As x goes on from 1.4 to 2.0, beyond the honest values, the mean moves by {mean:.2f}, the median by {median:.2f}, "
    "the trimmed mean by {trimmed:.2f}, Krum by {krum:.2f}.",
    expect="mean > 0.1 and median == trimmed == krum == 0",
)

sentence("16.4", "The five seeds of a field differ by {spread:.2f} at most.", expect="spread < 0.1")

sentence("16.5", "Without a lie, all rules read {least:.0%} or more.", expect="least > 0.8")

sentence("16.6", "{rule} fails with: {failed}.")

sentence(
    "16.7",
    "The mean is off by {mean:.2f}, the trimmed mean by {trimmed:.2f}, the median by {median:.2f}, Krum by {krum:.2f}: "
    "{ratio:.1f} times as much as the mean.",
    expect="mean < trimmed < median < krum and ratio > 1.5",
)

sentence(
    "16.8",
    "One lazy worker: the mean reads {mean:.0%} of the digits (five seeds, from {mean_low:.0%} to "
    "{mean_high:.0%}), Krum {krum:.0%} (from {krum_low:.0%} to {krum_high:.0%}).",
    expect="mean_low > 0.8 and krum_high < mean_low - 0.2",
)

sentence("16.9", "{name}: the vote reads {mean:.0%} (from {low:.0%} to {high:.0%}).", expect="low > 0.8")

sentence(
    "16.10",
    "The trimmed mean reads {one:.0%} of the digits with one noisy worker, and {two:.0%} with two. Krum reads "
    "{noise:.0%} with two noisy workers, and {lazy:.0%} with two lazy ones.",
    expect="one > 0.8 > two and noise > 0.8 > lazy",
)

sentence(
    "16.11",
    "All honest, the best of four learning rates for each: the mean reads {mean:.1%} of the digits, the vote "
    "{vote:.1%}. The vote differs by {points:+.1f} ± {half:.1f} percentage points (five seeds, paired, 95 % interval).",
    expect="points - half < 1 and vote > 0.9",
)

sentence(
    "16.12",
    "That is the error of one step. After the 40 steps of the table, all honest, Krum reads {krum:.0%} of the digits "
    "and the mean {mean:.0%}.",
    expect="abs(mean - krum) < 0.05",
)

sentence(
    "16.13",
    "Combined in pieces, the result equals the server's in every bit: for the median {median}, for the trimmed mean "
    "{trimmed}, for Krum {krum}.",
    expect="median and trimmed and not krum",
)

card(
    "16.14",
    "The mean ends {far:.1g} from where the traitor wants it. The median moves no coordinate further than {median:.2f} "
    "times the furthest that an honest gradient would, Krum {krum:.2f} times.",
    expect="far < 1e-9 and max(median, krum) <= 1 + 1e-9",
)

sentence(
    "16.15",
    "A lazy worker's zeros, as signs and back, move the vote by {moved:g}: it abstains.",
    expect="moved == 0",
)

prompt(
    "16.1",
    "Five phones train together, and one or two of them may be broken or dishonest. Which rule do you choose, by which "
    "number in the table? What would change your mind? Two sentences.",
    "I choose the median, since its lowest accuracy in the four cases is the highest of all rules. If batches were so "
    "small that honest gradients scatter more than their mean is long, I would test it against liars that agree.",
)

quiz(
    "16",
    Item(
        "Why can one liar of a hundred still ruin the mean?",
        {
            "the value that it sends has no limit": "The mean divides by a hundred, and the lie may be a million "
            "times too large.",
            "the mean gives it more weight than the others": "All have the same weight, one hundredth.",
            "it can send NaN": "The server refuses NaN and infinity, and nothing is changed.",
        },
    ),
    Item(
        "What does the median guarantee while fewer than half of the workers lie?",
        {
            "each coordinate lies between honest values": "The middle value has honest ones on both sides, or is one.",
            "each step goes downhill": "Exercise 16.2 shows steps uphill in which every coordinate is an honest value.",
            "it equals the mean of the honest workers": "It is one of their values in each coordinate, or the mean of "
            "two, and usually not their mean.",
        },
    ),
    Item(
        "Krum chose the lazy worker's zeros. Why?",
        {
            "zero was nearer to the others than they were to each other": "Honest gradients scattered around a small "
            "mean, and zero lay in their middle.",
            "zeros are always chosen": "With large batches the honest gradients lie close together, and zero "
            "is far off.",
            "the lazy workers had a majority": "One lazy worker of five was enough, with noisy batches.",
        },
    ),
    Item(
        "Under ASP, which rule withstands one liar?",
        {
            "none: each push is applied by itself": "There is nothing to compare it with. minips refuses Krum and "
            "the trimmed mean there.",
            "the median": "The median of a single gradient is that gradient.",
            "Krum": "Krum needs 2f + 3 gradients at once.",
        },
    ),
    Item(
        "Which rule can be computed without a server, each node combining one piece of all gradients?",
        {
            "the median": "It looks at each coordinate by itself, so the pieces put together are the whole result.",
            "Krum, with the same result": "Each node would choose by its own piece, and nodes may choose different "
            "workers.",
            "none, for robust rules need a server": "They need to see single values. A node that collects one piece of "
            "every gradient sees those.",
        },
    ),
)


BROKEN_BELOW = 0.5


class Traitors(ps.SoftmaxRegression):
    """The digits, where some of the workers send what ``lie`` makes of their gradient: the lesson's own, once more."""

    def __init__(self, *rows: Any, traitors: tuple[int, ...], lie: Callable[..., Tensors]) -> None:
        super().__init__(*rows)
        self.traitors, self.lie = traitors, lie
        self.honest, self.rng = True, np.random.default_rng(0)

    def shard(self, worker: int, workers: int) -> "Traitors":
        part = super().shard(worker, workers)
        part.X = part.X.copy()  # a traitor may do with its rows what it likes; the others' are not its
        part.honest, part.rng = worker not in self.traitors, np.random.default_rng(worker)
        return part

    def truth(self, params: Tensors, rows: Any = None) -> Tensors:
        """The honest gradient."""
        return super().loss_and_gradient(params, rows)[1]

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        loss, gradient = super().loss_and_gradient(params, rows)
        if self.honest:
            return loss, gradient
        told = self.lie(self, params, gradient)
        return loss, {name: np.asarray(told[name], p.dtype) for name, p in params.items()}


@asks(
    "16.1",
    "A worker's length is over all its tensors together: the root of the sum of all its squares.",
    "limit = np.median(lengths). A gradient that is longer is multiplied by limit / length; the others stay.",
    "A length may be zero. scale = 1 if length <= limit else limit / length never divides by it.",
)
def clipped(aggregator: Any, rng: np.random.Generator) -> str:
    """Shorten each worker's gradient to the median length at most, before you average."""
    conforms(aggregator, ps.Aggregator, "Clipped()")
    for trial in range(12):
        n = int(rng.integers(2, 9))
        factors = 10.0 ** rng.uniform(-2, 4, n)
        share_not_zero = (1.0, 0.5, 0.0)[trial % 3]
        factors[1:] *= rng.random(n - 1) < share_not_zero
        grads: list[Tensors] = [{"w": f * rng.normal(size=(3, 4)), "b": f * rng.normal(size=2)} for f in factors]
        got = aggregator.combine([ps.Contribution(i, 0, 0, g) for i, g in enumerate(grads)])
        lengths = [float(np.sqrt(sum(np.square(x).sum() for x in g.values()))) for g in grads]
        limit = float(np.median(lengths))
        scales = [1 if length <= limit else limit / length for length in lengths]
        of_lengths = f"lengths {', '.join(f'{length:.3g}' for length in lengths)}, whose median is {limit:.3g}"
        with case(f"With {n} gradients of {of_lengths}:"):
            for name in ("w", "b"):
                pieces = [scale * g[name] for scale, g in zip(scales, grads, strict=True)]
                far = distance(got, {name: np.mean(pieces, axis=0)})
                near = far <= 1e-9 * max(limit, 1)
                refuse_if(not near, f"{name!r} is off the mean of the shortened ones by {far:.3g}.")
    traitor, seed = int(rng.integers(5)), drawn_seed(rng)
    accuracy, plain = (_accuracy((traitor,), garbage, aggregator=one, seed=seed) for one in (aggregator, ps.Mean()))
    refuse_if(accuracy < 0.8, f"Worker {traitor} sent garbage (seed {seed}), and the accuracy was {accuracy:.2f}.")
    return (
        f"The formula holds; with garbage from worker {traitor}: accuracy {accuracy:.2f}, the plain mean {plain:.2f}."
    )


def _accuracy(traitors: tuple[int, ...], lie: Callable[..., Tensors], **fields: Any) -> float:
    """The share of the held-out digits that is read rightly after a run of five workers, some of them traitors."""
    problem = Traitors(*ps.datasets.digits(), traitors=traitors, lie=lie)
    return float(ps.train(problem, ps.Config(workers=5, steps=60, **fields), engine=ps.Threads()).accuracy or 0)


def garbage(part: Traitors, params: Tensors, gradient: Tensors) -> Tensors:
    """Noise a hundred times as large as any gradient."""
    return {name: 100 * part.rng.normal(size=p.shape) for name, p in params.items()}


@asks(
    "16.2",
    "The median of five takes the third of five ordered values. Two traitors that agree choose which of the honest "
    "three that is: the lowest, or the highest.",
    "In each coordinate push to the side that slows learning down: against the true gradient. How far does not matter, "
    "if it is far enough.",
    "Your traitors must agree on the side. Their batches of 8 rows are noisy; part.truth(params), over all the rows of "
    "a traitor, is less so. np.sign gives the side.",
    "A dictionary like the gradients: for each name a large number times the negative sign of the true gradient.",
)
def break_the_median(lie: Any, rng: np.random.Generator) -> str:
    """Break the median: two traitors of five, and fewer than half of the digits are read correctly."""
    if not callable(lie) or len(inspect.signature(lie).parameters) != 3:
        raise Refused(f"Expected your function my_lie(part, params, gradient), got {lie!r}.")
    seed, (one, other) = drawn_seed(rng), sorted(rng.choice(5, 2, replace=False).tolist())
    accuracy = _accuracy((one, other), lie, batch_size=8, aggregator=ps.Median(), seed=seed)
    who, asked = f"With traitors {one} and {other} (seed {seed})", f"less than {BROKEN_BELOW:.2f} is asked for"
    refuse_if(accuracy >= BROKEN_BELOW, f"{who} the median still reads {accuracy:.2f} of the digits; {asked}.")
    return f"{who} the model reads {accuracy:.2f} of the digits. The median never left the honest values."
