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
    "rounding.4",
    "The step of QSGD is {wider:.0f} times the step of the eight levels, at the same 3 bits. The largest value is "
    "{largest:.2f} of such a step. One copy errs by {error:.1f}: worse than sending nothing. Of 1, 2, 4, … 1024 "
    "workers, {workers} is the first number whose average beats nearest rounding.",
    expect="error > 1 and largest < 1 and workers > 16",
    kind="single",
)

sentence(
    "rounding.12",
    "With the largest magnitude in place of the length, one copy errs by {whole:.2f}, in blocks by {blocks:.2f}. From "
    "{workers} workers on, or {in_blocks} in blocks, the average beats nearest rounding on the eight levels.",
    expect="blocks < whole < 1 and in_blocks <= workers <= 16",
    kind="single",
)

sentence(
    "rounding.13",
    "On one common grid: nearest rounding {nearest:.3f}, random rounding {at_random:.3f}. With levels of their own it "
    "was {own:.3f} and {own_random:.3f}.",
    expect="nearest > at_random and own < own_random",
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
    "rounding.6",
    "256 workers with their own 32 rows: error {unrounded:.3f} without rounding, {nearest:.3f} with nearest, "
    "{at_random:.3f} with random rounding on the same levels, {qsgd:.3f} with QSGD.",
    expect="unrounded < nearest and unrounded < at_random < qsgd",
    kind="single",
)

sentence(
    "rounding.7",
    "The same with 1024 of the {rows} rows at each of 256 workers: nearest {nearest:.3f}, random {at_random:.3f}.",
    expect="nearest > 2 * at_random",
    kind="single",
)

sentence(
    "rounding.8",
    "Your quantizer sent {share:.0%} of the bytes between four processes and a server, and the model reads "
    "{accuracy:.0%} of the held-out digits.",
    expect="share < 0.45 and accuracy > 0.9",
    kind="single",
)

sentence(
    "rounding.9",
    "8 workers and the learning rate 0.1 for both: nearest rounding to three levels raises the held-out loss after 60 "
    "steps by {early:.3f} ± {early_half:.3f}. Each at its best rate: by {near:.3f} ± {near_half:.3f}.",
    expect="near - near_half > 0 and early > 3 * near",
    kind="comparison",
)

sentence(
    "rounding.10",
    "Of the step along the gradient, nearest rounding to three levels keeps {nearest:.0%}, and Stretched "
    "{stretched:.0%}.",
    expect="nearest < 0.5 and abs(stretched - 1) < 1e-6",
    kind="single",
)

sentence(
    "rounding.11",
    "Where the steps are as long along the gradient, and each has its best rate, nearest rounding raises the held-out "
    "loss by {stretched:.3f} ± {half:.3f}: a shorter step is not its only fault.",
    expect="stretched - half > 0",
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
    by=("say rounding.9", "say rounding.11", "say rounding.14"),
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
        by="say rounding.4",
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
        by="check rounding.1",
    ),
)

remember(
    "rounding",
    {
        "Bias is": "say rounding.3",
        "Averaging": ("say rounding.3", "predict rounding.1"),
        "In one copy": "say rounding.2",
        "Batches that differ": ("predict rounding.2", "say rounding.7", "say rounding.13"),
        "To round at random": "check rounding.1",
    },
)
