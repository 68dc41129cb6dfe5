"""The questions, sentences and quiz of "Round at random"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    card,
    prompt,
    question,
    quiz,
    remember,
    sentence,
)

question(
    "rounding.1",
    "Same levels, same gradient at every worker: from how many workers on is the average of random "
    "rounding nearer to the true gradient than that of nearest rounding?",
    Option(
        "from one worker on",
        lambda workers: workers == 1,
        "Even a single copy that was rounded at random was nearer. On the same levels nothing is nearer than "
        "nearest rounding, so the levels differed.",
    ),
    Expected(
        "from a few on, 2 to 10",
        lambda workers: 2 <= workers <= 10,
        "Nearest rounding makes the same error in every copy: a bias, which no average removes. Random "
        "rounding makes a larger error in each copy, but a different one each time, and a mean of n divides "
        "its variance by n.",
    ),
    Option(
        "from more than 10 on",
        lambda workers: 10 < workers < float("inf"),
        "The variance of random rounding is so large that many copies have to be averaged before its mean is nearer "
        "than the bias of nearest rounding.",
    ),
    Option(
        "never, however many they are",
        lambda workers: workers == float("inf"),
        "With none of the numbers tried was the average of random rounding nearer: its errors did not cancel out.",
    ),
    otherwise="There was no number of workers to compare.",
    kind="single",
    shown={"workers": "random rounding is nearer from so many on: {:.0f} workers"},
)

question(
    "rounding.2",
    "256 workers, each with 32 rows of its own, are averaged: how far is nearest rounding from the gradient of all the "
    "rows, compared with random rounding on the same levels?",
    Option(
        "more than twice as far",
        lambda ratio: ratio > 2,
        "The bias of nearest rounding stayed, though the gradients differed: most values were rounded alike in all "
        "batches.",
    ),
    Expected(
        "about as far",
        lambda ratio: 0.75 < ratio < 1.25,
        "Batches differ: a value lies below a border between two levels in one batch and above it in another, and "
        "each gradient has levels of its own, so the borders move, too. Both act like random rounding, and most of the "
        "bias averages out.",
    ),
    Option(
        "less than half as far",
        lambda ratio: 0 < ratio < 0.5,
        "Different batches made nearest rounding right on average, and random rounding only added its variance.",
    ),
    otherwise="The two distances differed, but by less than a factor of two.",
    kind="single",
    shown={"ratio": "nearest rounding: {:.2f} times as far"},
)

sentence(
    "rounding.1",
    "Nearest rounding turns 2.3 steps into {nearest:.0f}. Of 1000 random roundings {up:.0%} are 3, the others 2; their "
    "mean is {mean:.2f}.",
    expect="nearest == 2 and abs(up - 0.3) < 0.05 and abs(mean - 2.3) < 0.05",
    kind="single",
)

sentence(
    "rounding.2",
    "One copy: nearest rounding errs by {near:.2f}, random rounding by {random:.2f}. From {workers} "
    "workers on the average of random rounding is nearer.",
    expect="1 < workers <= 10 and near < random",
    kind="single",
)

sentence(
    "rounding.3",
    "In |x|²: nearest rounding has a bias² of {bias:.3f} and no variance, random rounding a variance of "
    "{variance:.3f}. The squared error of an average of 16 should be {formula:.4f}; measured {measured:.4f}.",
    expect="abs(measured / formula - 1) < 0.1 and measured < bias < variance",
    kind="identity",
)

sentence(
    "rounding.15",
    "256 workers with their own 32 rows, each gradient on its own eight levels: the average errs by {unrounded:.3f} "
    "without rounding, by {nearest:.3f} with nearest rounding, by {at_random:.3f} with random rounding.",
    expect="unrounded < nearest and unrounded < at_random",
    kind="single",
)

sentence(
    "rounding.16",
    "Eight places of one common grid: nearest rounding errs by {low:.3f} to {high:.3f}, random rounding by "
    "{random_low:.3f} to {random_high:.3f}. On grids of their own, nearest rounding erred by {own:.3f}.",
    expect="own < low and random_high < low",
    kind="single",
)

sentence(
    "rounding.17",
    "Three levels above zero and three below. One copy errs by {length:.1f} if the scale is the length: worse than "
    "sending nothing. It errs by {largest:.2f} with the largest magnitude, and by {blocks:.2f} in blocks of {block}, "
    "at {bits:.1f} bits a value. The average beats nearest rounding on eight levels from {first}, {second} and "
    "{third} workers on.",
    expect="length > 1 and blocks <= largest < 1 and third <= second < first",
    kind="single",
)

sentence(
    "rounding.18",
    "Of the step along the gradient, nearest rounding to three levels keeps {nearest:.0%}, shrunk {shrunk:.0%}, "
    "stretched {stretched:.0%}.",
    expect="abs(nearest - shrunk) < 0.05 and abs(stretched - 1) < 1e-6",
    kind="single",
)

sentence(
    "rounding.19",
    "8 workers, all with the learning rate 0.1: shrunk raises the held-out loss after 60 steps by {early:.3f} ± "
    "{early_half:.3f}. At its best rate it changes it by {late:+.3f} ± {half:.3f}: a shorter step is only a smaller "
    "rate.",
    expect="early > 0.1 and late < early / 10",
    kind="comparison",
)

sentence(
    "rounding.20",
    "16 equal gradients, averaged: nearest rounding errs by {nearest:.2f}, as one copy does; random rounding by "
    "{at_random:.2f}, a quarter of one copy's {one:.2f}.",
    expect="abs(at_random / one - 0.25) < 0.02",
    kind="single",
)

card(
    "rounding.5",
    "For {levels} values of s the variance differs from the formula by {off:.1%} at most, and the squared mean error "
    "from variance/1000 by {bias:.0%} at most. The formula is above the bound for {above} of them.",
    expect="off < 0.1 and bias < 0.3 and above == 0",
    kind="identity",
)

sentence(
    "rounding.22",
    "256 workers with 1024 rows of their own, on grids of their own: {unrounded:.3f} without rounding, "
    "{nearest:.3f} with nearest, {at_random:.3f} with random rounding.",
    expect="unrounded < at_random and nearest > 2 * at_random",
    kind="single",
)

sentence(
    "rounding.23",
    "Between four processes and a server your quantizer sent {bits:.1f} bits for each value, header and all, and the "
    "model reads {accuracy:.0%} of the held-out digits.",
    expect="bits < 16 and accuracy > 0.9",
    kind="single",
)

sentence(
    "rounding.21",
    "At each one's best rate nearest rounding raises the loss by {near:.3f} ± {near_half:.3f}, and stretched, which "
    "has the bias alone, by {stretched:.3f} ± {half:.3f}.",
    expect="near - near_half > 0 and stretched - half > 0",
    kind="comparison",
)

sentence(
    "rounding.14",
    "Random rounding, at its best rate, changes the held-out loss by {one:+.3f} ± {one_half:.3f} with 1 worker, and by "
    "{random:+.3f} ± {random_half:.3f} with 8.",
    expect="one - one_half > 0 and random < one / 2 and random - random_half < 0",
    kind="comparison",
)

prompt(
    "rounding.1",
    "Bias or variance: which of them hurts 8 workers here, and which rows of the table show it, with their intervals? "
    "When does the other one hurt? Two sentences.",
    "Bias hurts 8 workers: at its best rate nearest rounding has a higher loss by more than its interval, also "
    "stretched, while random rounding differs by less than its own. Variance hurts a single worker: without an "
    "average, random rounding has a higher loss, too.",
    kind="comparison",
    by=("say rounding.19", "say rounding.21", "say rounding.14"),
)

quiz(
    "rounding",
    Item(
        "100 workers hold the same gradient and round it to the nearest level. What does averaging do to the error?",
        {
            "nothing": "All copies are equal, so their mean is any one of them.",
            "it divides it by 10": "That would hold for independent errors. These are all the same error.",
            "it removes it": "An average removes what differs from copy to copy, and nothing differs here.",
        },
        by="say rounding.3",
    ),
    Item(
        "A scheme is unbiased. What does that say about one message?",
        {
            "nothing about the size of its error": "QSGD with three levels of the length is unbiased, and one copy is "
            "farther off than zeros would be.",
            "it is nearly right": "It is right on average, over many draws. A single draw may be far off.",
            "it is nearer than nearest rounding": "On the same levels no rounding is nearer than nearest rounding.",
        },
        by="say rounding.17",
    ),
    Item(
        "The variance of one copy is 0.64. What is the expected squared error of the mean of 16 independent, unbiased "
        "copies?",
        {
            "0.04": "The mean of n copies has an n-th of the variance of one: 0.64 / 16.",
            "0.16": "That divides by the root of 16. Only the length of the error shrinks like that, not its square.",
            "0.64": "That is the error of one copy. Independent errors cancel in part.",
        },
        by="say rounding.3: 0.64 / 16 == 0.04",
    ),
    Item(
        "Why did nearest rounding on eight levels lose little when each worker had 32 rows of its own?",
        {
            "values cross borders, and borders move, from batch to batch": "So its rounding error changes from worker "
            "to worker, and averages out like a random one. On one common grid more bias was left.",
            "small batches have smaller gradients": "They are noisier, not smaller.",
            "32 rows are too few to have a bias": "The bias belongs to the rounding. With 1024 rows in each batch it "
            "stayed.",
        },
        by="predict rounding.2",
    ),
    Item(
        "All values of a gradient are rounded up or down by one common random number. What is wrong?",
        {
            "the errors of a message no longer cancel": "Mean and variance of each value are as before, but the "
            "errors no longer cancel: their sum varies far more than with a draw for each value.",
            "it is biased": "Each value is right on average.",
            "nothing: the mean is right": "Each value is right on average, but the errors in a message add up.",
        },
        by="check rounding.3",
    ),
)

remember(
    "rounding",
    {
        "Bias is": "say rounding.3",
        "Averaging": ("say rounding.3", "predict rounding.1"),
        "In one copy": "say rounding.2",
        "Batches that differ": ("predict rounding.2", "say rounding.22", "say rounding.16"),
        "To round at random": "check rounding.3",
    },
)

RETIRED = {"say": (4, 6, 7, 8, 9, 10, 11, 12, 13), "check": (1,)}
