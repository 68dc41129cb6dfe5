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
    otherwise="The plain mean differs, but not because the images of one of the shards count more.",
    kind="identity",
    shown={
        "off": "distance from the gradient, relative: {:.2g}",
        "large": "an image of the large shard counts: {:.2f} times as much as it should",
        "small": "an image of a small shard counts: {:.2f} times as much as it should",
    },
)

sentence(
    "split.1",
    "The gradient of one worker and that of all images differ by {least:.2f} or more. The mean of the four and the "
    "gradient of all images differ by {mean:.0e}.",
    expect="least > 0.05 and 0 < mean < 1e-13",
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
    "split.12",
    "After 50 steps on the unequal shards, the parameters with your aggregator and those of the loop differ by "
    "{differ:.1g}.",
    expect="differ >= 0",
    kind="identity",
)

sentence(
    "split.14",
    "Over TCP and over pipes, all bits of the parameters are the same: {same}.",
    expect="same",
    kind="identity",
)

sentence(
    "split.13",
    "In your run, the plain mean and the gradient of all images differ by {equal:.0e} with equal shards, by "
    "{unequal:.2f} with shards of 1100 and 100 images.",
    expect="0 <= equal < 1e-13 and unequal > 0.05",
    kind="single",
)

prompt(
    "split.2",
    "A program takes the plain mean of four workers' gradients, whatever their shards are. From which size of the "
    "largest shard on would you change it, and which number in the table decides? What would you change? Two "
    "sentences.",
    "I would change it from 500 images on, since the plain mean differs by several percent there, many times its "
    "interval. Each gradient should count by its number of rows, as in exercise split.3.",
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
            "each shard looks like the whole data set": "No shard's gradient is near the gradient of all rows, and the "
            "mean is still right.",
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
        by="say split.5",
    ),
    Item(
        "One worker has 900 rows, another one 100. How much does a row of the small shard count in the plain mean, "
        "compared with one of the large?",
        {
            "nine times as much": "Half of the mean is shared by 100 rows, the other half by 900.",
            "as much": "That holds for a mean weighted by the numbers of rows.",
            "a ninth": "Fewer rows share the small shard's half of the mean, so each of these rows counts more.",
        },
        by="predict split.2: abs(small / large - 1100 / 100) < 1e-6 and 900 / 100 == 9",
    ),
    Item(
        "Four processes train with equal shards, a loop trains on all rows. How do their parameters compare after 50 "
        "steps?",
        {
            "they differ in the last digits alone": "Each step adds the same numbers in another grouping, and rounding "
            "is all that differs.",
            "they differ by several percent": "Each worker's gradient differs by that much from the whole one, but the "
            "server steps with the mean.",
            "the processes' loss falls four times as fast": "A step uses the same gradient in both. More workers only "
            "share the work of computing it.",
        },
        by="say split.6",
    ),
    Item(
        "A worker has n of all N rows. By which factor do you multiply its gradient before you add all workers' "
        "gradients?",
        {
            "n / N": "The factors add up to 1, and each row counts 1/N.",
            "1 / the number of workers": "That is the plain mean, which is right only for equal shards.",
            "N / n": "So the smallest shard would count most.",
        },
        by="check split.3",
    ),
)

remember(
    "split",
    {
        "The loss is a mean": ("say split.1", "predict split.1", "say split.13"),
        "Floating-point sums": "say split.5",
        "A server that adds": "say split.14",
        "In a plain mean": ("predict split.2", "say split.13"),
        "Weight each gradient": ("check split.3", "table split.2: not solved or max(column(2)) == 0"),
    },
)

RETIRED = {"say": (2, 3, 4, 7, 8, 9, 10, 11), "answer": (1,), "check": (1,)}
"""The numbers of earlier editions' keys, which are not given again."""
