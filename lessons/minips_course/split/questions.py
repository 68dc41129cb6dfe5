"""The questions, sentences and quiz of "Split a gradient"."""

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
    "split.1",
    "How far is the mean of the four gradients from the gradient of all the images?",
    Option(
        "a few percent: each worker saw other images",
        lambda mean: 0.005 <= mean < 2,
        "The shards did not contain each image exactly once: some images counted more than others, or not at all.",
    ),
    Expected(
        "only the last digits of float64",
        lambda mean: 0 < mean < 1e-12,
        "The loss is a mean over rows, so its gradient is one, too. The mean of four means over 350 rows each"
        " is the mean over all 1400: the same sum with other brackets. Only the rounding of the additions "
        "differs.",
    ),
    Option(
        "nothing at all: every bit is the same",
        lambda mean: mean == 0,
        "Each addition was rounded as in the sum over all the images, so this machine groups the additions alike.",
    ),
    otherwise="The two differ by more than rounding explains, but by less than different images would explain.",
    kind="identity",
    shown={"mean": "distance from the gradient, relative: {:.1g}"},
)

question(
    "split.2",
    "Is that still the gradient of all 1400 images?",
    Option(
        "yes, except for the last digits",
        lambda off, large, small: 0 <= off < 1e-12,
        "Each image counted equally, whichever shard it was in.",
    ),
    Option(
        "no: the images of the large shard count too much",
        lambda off, large, small: off > 0.01 and large > 1 > small,
        "Worker 0's share of the mean was larger than its share of the images.",
    ),
    Expected(
        "no: the images of the small shards count too much",
        lambda off, large, small: off > 0.01 and small > 1 > large,
        "Each worker's mean counts a quarter, and the images of a worker share that quarter. A hundred images"
        " share it in one case, eleven hundred in the other.",
    ),
    otherwise="The plain mean is off, but not because the images of one of the shards count more.",
    kind="identity",
    shown={
        "off": "distance from the gradient, relative: {:.2g}",
        "large": "an image of the large shard counts: {:.2f} times as much as it should",
        "small": "an image of a small shard counts: {:.2f} times as much as it should",
    },
)

sentence(
    "split.1",
    "One worker alone is off by {least:.2f} or more. The mean of the four and the gradient of all differ by "
    "{mean:.0e}.",
    expect="least > 0.05 and 0 < mean < 1e-13",
    kind="identity",
)

sentence("split.2", "The plain mean is off by {off:.2f}.", expect="off > 0.05", kind="single")

sentence(
    "split.3",
    "An image in the large shard counts {large:.2f} times what it should, one in a small shard {small:.1f} times.",
    expect="small > 3 and large < 0.5",
    kind="single",
)

sentence(
    "split.4",
    "In {same} of {splits} splits, into up to {most} shards, all the bits are the same.",
    expect="same == splits == 4",
    kind="identity",
)

sentence(
    "split.5", "{orders} orders, {sums} different sums.", expect="orders == 24 and 1 < sums <= 24", kind="identity"
)

sentence(
    "split.6",
    "After 50 steps the parameters of the four processes and those of the loop differ by {off:.0e}.",
    expect="0 <= off < 1e-12",
    kind="identity",
)

sentence(
    "split.7",
    "{how}: {differ} of {numbers} numbers differ between two runs; the largest difference is {most:.1g}.",
    expect="most < 1e-9 and (differ > 0) == (how == 'As they arrive')",
    kind="count",
)

sentence(
    "split.8",
    "Over TCP and over pipes: of {arrays} arrays {same} are the same to the last bit.",
    expect="same == arrays == 2",
    kind="identity",
)

sentence(
    "split.9",
    "Each worker alone is off by {least:.1f} or more. The mean of the four and the gradient of all differ by "
    "{mean:.0e}.",
    expect="least > 1 and mean < 1e-13",
    kind="identity",
)

sentence(
    "split.10",
    "{dtype}: the mean of the shards and the whole gradient differ by {least:.1f} ε to {most:.1f} ε on this machine, "
    "the whole gradients with the rows in two orders by {mixed:.1f} ε.",
    expect="0 < most < 1000 and 0 < mixed < 1000",
    kind="identity",
)

sentence(
    "split.11",
    "Shards of {least} or {most} rows: the plain mean is off by {off:.4f}.",
    expect="1e-9 < off < 0.01",
    kind="single",
)

prompt(
    "split.1",
    "A program averages the gradients of four workers, whatever their shares are. From which share of the largest "
    "worker on would you change it, and which number in the table decides? What would you change? Two sentences.",
    "I would change it from 500 images on, since the plain mean is off by several percent there, many times its "
    "interval. Each gradient should count by its number of rows, as in exercise split.1.",
    by=(
        "table: row['350'][0] == 0 and row['500'][0] > max(0.02, 3 * row['500'][1])",
        "table: not solved or row['500'][2] == 0",
    ),
    kind="single",
)

quiz(
    "split",
    Item(
        "Why is the mean of four equal shards' gradients the gradient of all the rows?",
        {
            "the loss is a mean over rows": "So the gradient is a mean over rows, too. Each row counts 1/1400, with "
            "shards or without.",
            "each shard looks like the whole data set": "With sorted labels, no shard looks like the whole data set, "
            "and the mean is still right.",
            "rounding errors cancel": "Rounding errors make the last digits differ. The equality holds on paper, "
            "without any rounding.",
        },
        by="say split.1",
    ),
    Item(
        "A program computes on the same data with the same seed. Two runs differ in their last digits. What is a "
        "likely cause?",
        {
            "gradients are added in the order in which they arrive": "Each addition is rounded, and additions in "
            "another order round differently.",
            "float64 fills its last bits at random": "One addition of the same two numbers always gives the same bits.",
            "the network changed some bits on the way": "TCP has a checksum, and a changed bit would seldom be among "
            "the last ones.",
        },
        by="say split.7",
    ),
    Item(
        "One worker has 900 rows, another one 100. How much does a row of the small shard count in the plain mean, "
        "compared with one of the large?",
        {
            "nine times as much": "Half of the mean is shared by 100 rows, the other half by 900.",
            "as much": "That holds for a mean weighted by the numbers of rows.",
            "a ninth": "Fewer rows share the small shard's half of the mean, so each of these rows counts more.",
        },
        by="say split.3: abs(small / large - 1100 / 100) < 1e-9 and 900 / 100 == 9",
    ),
    Item(
        "The rows are sorted by digit, so each worker's gradient points far away from the whole one. When does that "
        "do harm?",
        {
            "where each step uses one worker's gradient alone": "Each step then lowers only the loss of that worker's "
            "digits. The errors do not cancel within a step.",
            "in each step with the mean of all": "That mean is the whole gradient: only the grouping changed.",
            "in the rounding of the mean": "The mean is off in the last digits, as it is with shuffled rows.",
        },
        by="say split.9",
    ),
    Item(
        "With small whole numbers and 1024 rows, all the bits were equal. Why?",
        {
            "no addition and no division had to be rounded": "Sums of small whole numbers are exact in float64, and so "
            "is a division by a power of two.",
            "1024 rows are too few for a rounding error": "1400 images are hardly more, and a single addition can have "
            "a rounding error: 0.1 + 0.2.",
            "the shards were added in the same order as the rows": "The additions are grouped differently. Without "
            "rounding, the grouping makes no difference.",
        },
        by="say split.4",
    ),
)

remember(
    "split",
    {
        "The loss is a mean": ("say split.1", "predict split.1"),
        "These two gradients": ("say split.5", "say split.10"),
        "A server that adds": ("say split.7", "say split.8"),
        "In a plain mean": ("say split.3", "check split.1"),
        "One shard of sorted": "say split.9",
    },
)
