"""The questions, sentences and quiz of "Trust nobody"."""

from collections.abc import Callable

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    question,
    quiz,
    remember,
    sentence,
)

question(
    "trust.1",
    "One worker of five sends noise, four are honest. Compared with five honest workers, each case at its own best "
    "learning rate: how many held-out digits does the model read at the end?",
    Option(
        "nearly as many",
        lambda share: share >= 0.75,
        "The noise did little harm: it is a fifth of the mean, so it was not much larger than the honest gradients.",
    ),
    Option(
        "about half as many",
        lambda share: 1 / 3 < share < 0.75,
        "The noise moved the parameters about as far as the honest gradients did, and undid part of their progress.",
    ),
    Expected(
        "at most a third of them",
        lambda share: share <= 1 / 3,
        "A fifth of 100 is still 20. The four honest gradients, of the size 0.1, cannot make up for that: the "
        "parameters follow the noise. A lower rate shortens both, and so does not help.",
    ),
    otherwise="One of the two runs has no accuracy, so there is nothing to compare.",
    kind="comparison",
    shown={"share": "digits read: {:.0%} of those with five honest workers"},
)


def _fewest(rule: str) -> Callable[..., bool]:
    """Return the condition that this rule reads the fewest digits, and that the four rules are not about equal."""
    return lambda **reads: (
        max(reads.values()) - min(reads.values()) >= 0.1 and min(reads, key=reads.__getitem__) == rule
    )


question(
    "trust.2",
    "One lazy worker of five sends zeros, and each batch has 4 rows. Which rule reads the fewest digits after 40 "
    "steps, each at its own best learning rate?",
    Option(
        "the mean",
        _fewest("Mean"),
        "The zeros shortened each step by a fifth, and that harmed more than the values that other rules leave out.",
    ),
    Option(
        "the median",
        _fewest("Median"),
        "The middle value was too often zero, or another small value.",
    ),
    Option(
        "the trimmed mean, trim = 1",
        _fewest("TrimmedMean"),
        "It left out the largest and the smallest value of each coordinate, which were honest, and kept the zero.",
    ),
    Expected(
        "Krum, bad = 1",
        _fewest("Krum"),
        "Krum takes one whole gradient, the one with the nearest neighbours. Gradients of 4 rows scatter so widely "
        "that zero, in their middle, is nearer to them than they are to each other. So it takes the zeros.",
    ),
    Option(
        "no rule: they differ by less than 10 percentage points",
        lambda **reads: max(reads.values()) - min(reads.values()) < 0.1,
        "One gradient of zeros among five did little harm, however the rule treated it.",
    ),
    otherwise="One of the runs has no accuracy, so there is nothing to compare.",
    kind="comparison",
    shown={
        "Mean": "the mean: {:.0%} of the digits",
        "Median": "the median: {:.0%} of the digits",
        "TrimmedMean": "the trimmed mean, trim = 1: {:.0%} of the digits",
        "Krum": "Krum, bad = 1: {:.0%} of the digits",
    },
)

sentence(
    "trust.1",
    "Each at its best rate, the model reads {good:.0%} of the held-out digits if all are honest, and {bad:.0%} with "
    "the traitor, at a rate of {rate:g} (means of five seeds).",
    expect="good > 0.9 and bad < good / 3",
    kind="comparison",
)

sentence(
    "trust.3",
    "At x = a million: the mean is {Mean:,.0f}, the median {Median:.2f}, the trimmed mean {TrimmedMean:.2f}, Krum "
    "{Krum:.2f}.",
    expect="Mean > 1e5 and Median == 1.1 and max([TrimmedMean, Krum]) <= 1.2",
    kind="single",
)

sentence(
    "trust.7",
    "At the start, 4 rows: {scatter[0]:.1f} lengths from the mean, and Krum chooses the zeros in {chosen[0]:.0%} of "
    "the draws.\nAt the start, 32 rows: {scatter[1]:.1f} lengths, {chosen[1]:.0%}.\nAfter 60 steps, 32 rows: "
    "{scatter[2]:.1f} lengths, {chosen[2]:.0%}.",
    expect="scatter[0] > 1 > scatter[1] and chosen[0] > 0.8 and chosen[1] < 0.2 and scatter[2] > 1 and chosen[2] > 0.8",
    kind="single",
)

sentence(
    "trust.13",
    "The median of a single push, a million, is {alone:,.0f}.",
    expect="alone == 1e6",
    kind="identity",
)

prompt(
    "trust.1",
    "Seven phones train together, and one or two of them may be broken or dishonest. Which rule do you choose, by "
    "which number in the table? What would change your mind? Two sentences.",
    "I choose the median: its accuracy in its worst case is high, and so are the trimmed mean's and the vote's. "
    "If batches were so small that honest gradients scatter more than the length of their mean, I would test it "
    "against liars that agree.",
    by=(
        "table: min(table.mean('Median'), table.mean('TrimmedMean'), table.mean('MajorityVote')) > 0.8",
        "table: max(table.mean('Mean'), table.mean('Krum')) < 0.5",
        "say trust.7",
    ),
    kind="comparison",
)

prompt(
    "trust.2",
    "At which batch size does your lie still do harm, even at the best learning rate, by which number? Why does it do "
    "less with more rows? Two sentences.",
    "Noise does no harm at any size, by the four numbers of the table: the median leaves it out. A lie on which two "
    "traitors agree does most at 8 rows, where honest gradients scatter most and the lowest of three often points "
    "uphill.",
    by=(
        "table: solved or min(map(table.mean, table.rates)) > 0.85",
        "table: not solved or table.mean('8 rows') == min(map(table.mean, table.rates)) < 0.5",
    ),
    kind="comparison",
)

quiz(
    "trust",
    Item(
        "Why can one liar of a hundred still ruin the mean?",
        {
            "the value that it sends has no limit": "The mean divides by a hundred, and the lie may be a million "
            "times too large.",
            "the mean gives it more weight than the others": "All have the same weight, one hundredth.",
            "it can send NaN": "The server refuses NaN and infinity, and nothing is changed.",
        },
        by="say trust.3: Mean > 1e5",
    ),
    Item(
        "What does the median guarantee while fewer than half of the workers lie?",
        {
            "each coordinate lies between honest values": "The middle value is honest, or between honest values.",
            "each step goes downhill": "If honest gradients scatter widely, an honest value may point uphill.",
            "it equals the mean of the honest workers": "It is one of their values in each coordinate, or the mean of "
            "two, and usually not their mean.",
        },
        by="say trust.3: 0.9 <= Median <= 1.2",
    ),
    Item(
        "Krum chose the lazy worker's zeros. Why?",
        {
            "zero lay nearest to the others": "Honest gradients scattered widely around "
            "a small mean, and zero lay in their middle.",
            "Krum chooses zeros whatever the others send": "With 32 rows, at the start, honest gradients lay closer "
            "together, and Krum chose the zeros seldom or never.",
            "the lazy worker counted twice": "Each worker sends one gradient. One lazy worker of five was enough.",
        },
        by="say trust.7",
    ),
    Item(
        "Under ASP, which of the rules of this lesson withstands one liar?",
        {
            "none: each push is applied by itself": "They compare the pushes of a round, and there is none. Under ASP, "
            "minips refuses Krum and the trimmed mean.",
            "the median: it accepts any number of gradients": "It accepts a single gradient, but the median of one "
            "gradient is that gradient.",
            "Krum, if there are five workers or more": "However many workers there are, each push is applied alone, "
            "and Krum needs 2f + 3 gradients at once.",
        },
        by="say trust.13",
    ),
    Item(
        "Krum adds up the distances to only n − f − 2 neighbours, not to all. Why?",
        {
            "an honest gradient needs no liar among them": "At least n − f − 1 others are honest. So liars, "
            "however far away, cannot make the sum of an honest gradient large.",
            "to save time: it computes fewer distances": "It has to compute all distances to know which are the "
            "smallest.",
            "so that it chooses the longest gradient": "A length does not count, only distances to other gradients.",
        },
        by="check trust.3",
    ),
)

remember(
    "trust",
    {
        "One liar can move": "say trust.3: round(Mean, -4) == 200000",
        "At its best rate": "say trust.1: bad < 0.25 and good > 0.95",
        "Robust rules stay": "say trust.3: all(0.9 <= x <= 1.2 for x in [Median, TrimmedMean, Krum])",
        "Between honest values": "say trust.7: scatter[0] > 1 and chosen[0] > 0.9",
        "Robust rules compare": "say trust.13",
    },
)

RETIRED = {"say": (4, 5, 6, 8, 9, 10, 11, 12), "check": (1,)}
"""The numbers of keys of earlier editions, by kind: none is used again."""
