"""The questions, sentences and quiz of "A small batch is an estimate"."""

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
    "batch.1",
    "A batch of 64 rows has sixteen times as many rows as a batch of 4. How much smaller is its typical error?",
    Option(
        "sixteen times smaller",
        lambda ratio: ratio >= 10,
        "The error fell as fast as the number of rows rose: the batches cannot have been drawn at random.",
    ),
    Expected(
        "about four times smaller",
        lambda ratio: 3.2 <= ratio < 5,
        "A mean of sixteen times as many rows has a sixteenth of the variance. The typical error is the root of the "
        "variance: a quarter. It is a little less still: 64 different rows are a good part of all 354.",
    ),
    Option(
        "less than two times smaller",
        lambda ratio: 0 < ratio < 2,
        "The errors of a batch's rows did not cancel, as if all rows were alike.",
    ),
    otherwise="The ratio lies between two of the options: the error fell, but by another rule.",
    kind="identity",
    shown={"ratio": "smaller by a factor: {:.2f}"},
)

question(
    "batch.2",
    "Average eight rows before each step. How long may the step be, compared with one row?",
    Option(
        "eight times as long",
        lambda ratio: 7 <= ratio < 10,
        "Only the noise limited the step: its variance is an eighth, so the step may be eight times as long.",
    ),
    Expected(
        "longer, but clearly less than eight times",
        lambda ratio: 1.5 <= ratio < 7,
        "Two things limit a step. The variance falls to an eighth. The curvature is the same for any number of rows, "
        "and above 2/λ a step overshoots without any noise.",
    ),
    Option(
        "no longer",
        lambda ratio: 0.5 < ratio < 1.5,
        "The noise made no difference: with one row, the curvature already set the limit.",
    ),
    otherwise="Eight rows allowed a step more than ten times as long, or less than half as long.",
    kind="single",
    shown={"ratio": "the step: {:.2f} times as long"},
)

sentence(
    "batch.1",
    "The mean of {draws:,} gradients of 4 rows is off by {off:.3f}. The typical error of one of them is {each:.1f}.",
    expect="off < 3 * each / draws**0.5 and each > 0.5",
    kind="single",
)

card(
    "batch.2",
    "{rows} rows, {settings} settings of batch and workers: measured over computed lies between {least:.2f} and "
    "{most:.2f}.",
    expect="settings == 11 and 0.9 < least <= most < 1.1",
    kind="identity",
)

sentence(
    "batch.3",
    "Each run looks at {least:,} rows. Accumulation sends {ratio:.2f} of the bytes.",
    expect="least == most == 2560 and 0.2 < ratio < 0.3",
    kind="count",
)

sentence(
    "batch.4",
    "At a learning rate of 0.04 for both, the held-out loss ends {early:.4f} higher with a push for every four "
    "batches. Each at its best rate, {usual:g} and {longer:g}, it ends {mean:.4f} ± {half:.4f} higher (five seeds, in "
    "pairs).",
    expect="early > 0.01 and longer >= 2 * usual and abs(mean) + half < early / 3",
    kind="comparison",
)

sentence(
    "batch.5",
    "2/λ is {limit:.2f}. Training begins at a loss of {start:.2f}. With all the rows, after 40 steps, it is "
    "{below:.2f} at 0.9 of this limit, and {above:,.0f} at 1.1 of it.",
    expect="below < start < above",
    kind="single",
)

sentence(
    "batch.6",
    "workers={workers}, accumulate={many}: at 0.7 of the largest step {below} of 20 seeds end well, at 1.3 of it "
    "{above}. Real processes end at the same parameters as the simulated ones: {same}.",
    expect="below >= 15 and above <= 7 and same",
    kind="single",
)

sentence(
    "batch.7",
    "From one round of {workers} workers with {rows} rows each, on average of {rounds:,} rounds: σ² is {sigma:.2f} of "
    "the true one, the squared length {length:.2f} of the true one.",
    kind="single",
)

sentence(
    "batch.8",
    "Your accumulate sends {ratio:.2f} of the bytes with many={many} as with many=1. Its parameters are those of "
    "minips' own accumulation: {same}.",
    expect="same == (ratio < 0.5)",
    kind="identity",
)

sentence(
    "batch.9",
    "From 4 to 64 rows, the error became {smaller:.1f} times smaller. From 1 to 8 rows, the largest step became "
    "{longer:.1f} times longer.",
    expect="3 < smaller < 5 and 1.5 < longer < 7",
    kind="single",
)

prompt(
    "batch.1",
    "How many times longer may the step be with accumulate=4, and with accumulate=8? Give the largest rates with their "
    "intervals, and say why it is not 4 and 8. Two sentences.",
    "With accumulate=4 the largest step is about three times as long as with one row, with accumulate=8 four to "
    "five times, and the intervals do not overlap. The noise falls with the number of rows, but the border of the "
    "curvature, 2/λ, stays where it is.",
    by=(
        "table: 2.5 < row['4'][2] < 3.5 and 4 < row['8'][2] < 5",
        "table: row['4'][0] + row['4'][1] < row['8'][0] - row['8'][1]",
        "say batch.5",
    ),
    kind="single",
)

quiz(
    "batch",
    Item(
        "A batch grows from 16 to 64 rows, out of very many. What happens to the typical error of its gradient?",
        {
            "it halves": "The variance falls to a quarter, and the typical error is the root of the variance.",
            "it falls to a quarter": "The variance falls to a quarter. The error has the units of the gradient, and is "
            "the root of the variance.",
            "it stays: the gradient is right on average": "Right on average means that the mean of the errors "
            "is zero. Their size falls.",
        },
        by=("predict batch.1", "say batch.2: (64 / 16) ** 0.5 == 2"),
    ),
    Item(
        "Eight workers have 16 rows each, from shards that look alike. One worker has 128 rows. Whose mean gradient is "
        "noisier?",
        {
            "neither": "Both are a mean over 128 rows, whichever worker looked at a row.",
            "the eight workers'": "Each of their gradients is noisier. The mean of the eight is not.",
            "the single worker's": "Its gradient is a mean over as many rows as the eight workers have together.",
        },
        by="say batch.2",
    ),
    Item(
        "accumulate=4, and all else as before: the same rows, the same learning rate. Why does the loss end higher?",
        {
            "a quarter of the steps, each about as long as before": "The model gets about a quarter of the way. A "
            "longer step makes up for it.",
            "the average of four batches is a wrong gradient": "It is a better estimate than each of the four.",
            "three of four batches are thrown away": "All four are in the average.",
        },
        by=("say batch.3", "say batch.4"),
    ),
    Item(
        "What does accumulation save?",
        {
            "pushes and pulls": "One push for four batches sends about a quarter of the bytes.",
            "gradients to compute": "Each run looks at the same number of rows.",
            "steps, at any learning rate": "With the same learning rate the fewer steps get less far.",
        },
        by="say batch.3",
    ),
    Item(
        "With all the rows and a step of 1.1 · 2/λ the loss grows. Would twice as many rows help?",
        {
            "no: the step overshoots without any noise": "Where the curvature is largest, each step ends farther from "
            "the minimum than it began, even without noise.",
            "yes: the variance would be half": "A gradient of all the rows has no variance from drawing them.",
            "yes: each row would weigh less": "The mean, and so the curvature λ, stays about the same.",
        },
        by="say batch.5",
    ),
)

remember(
    "batch",
    {
        "The gradient of a batch": ("say batch.1", "say batch.2", "say batch.9"),
        "Only the number of rows": "say batch.2",
        "Accumulation sends": ("say batch.3", "say batch.4", "check batch.3"),
        "Less noise allows": ("predict batch.2", "say batch.5", "say batch.9"),
        "A limit measured": "table batch.1: all(row[rows][1] > 0.05 * row[rows][0] for rows in ('1', '4', '8'))",
    },
)

RETIRED = {"check": (1,)}
"""The keys that no question, sentence or exercise has any more, by kind."""
