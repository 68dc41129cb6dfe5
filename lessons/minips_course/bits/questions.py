"""The questions, sentences and quiz of "Send fewer bits"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    estimate,
    prompt,
    question,
    quiz,
    remember,
    sentence,
)

estimate(
    "bits.1",
    "One bit for each value, not 32: how many times fewer bytes does a worker send?",
    "times",
    expected=(8, 10),
    because="A push carries more than the bits: each tensor has a scale, and names, shapes, the clock and the loss "
    "travel in a header. With 650 values this fixed part, as minips writes it, is larger than the bits themselves.",
    otherwise="The nearer the ratio is to 32, the fewer bytes were sent besides the bits. They are listed below.",
    kind="count",
)

question(
    "bits.2",
    "A model with 10 010 values, trained until it reads 90 % of the held-out digits, each scheme at its own best "
    "learning rate: how many times as many steps does it take with one bit for each value as with 32 bits?",
    Option(
        "fewer than half as many",
        lambda times: 0 < times < 0.5,
        "The signs moved small values farther than their gradients would, and that helped more than it hurt.",
    ),
    Expected(
        "no more: half as many to as many",
        lambda times: 0.5 <= times <= 1.1,
        "The error of each message is large, but signs bear a learning rate several times as high, and at that rate "
        "they are there as soon. At the same low rate for both they take longer, as the left end of the picture shows.",
    ),
    Option(
        "more: up to ten times as many",
        lambda times: 1.1 < times <= 10,
        "More steps had to make up for the loss in each message.",
    ),
    Option(
        "about 32 times as many, or it never gets there",
        lambda times: times > 10,
        "Almost nothing was saved: the missing bits had to be sent in more steps, or the model was never good enough.",
    ),
    otherwise="One of the two numbers of steps is missing.",
    kind="comparison",
    shown={"times": "steps with one bit: {:.2f} times as many"},
)

sentence(
    "bits.2",
    "A push weighs {push:.0f} bytes: {bits} are the bits, {scales} two scales, and {header:.0f} the header.",
    expect="bits == 82 and scales == 16 and header > bits + scales",
    kind="count",
)

sentence(
    "bits.8",
    "Each at its best rate, top 0.1 % with a memory reaches 90 % with {fewer:.0f} ± {fewer_half:.0f} times fewer bytes "
    "than 32 bits, in {slower:.1f} ± {slower_half:.1f} times as many steps (five seeds, in pairs).",
    expect="fewer - fewer_half > 10 and slower - slower_half > 1",
    kind="comparison",
)

sentence(
    "bits.13",
    "In pairs, signs send {more:.2f} ± {more_half:.2f} times the bytes of top 0.1 % with a memory, in {quicker:.2f} ± "
    "{quicker_half:.2f} times its steps.",
    expect="more > 1 > more - more_half and quicker + quicker_half < 0.5",
    kind="comparison",
)

sentence(
    "bits.9",
    "Your quantizer: {share:.0%} of the bytes that the server's workers sent before. The model reads {after:.1%} of "
    "the held-out digits (one run).",
    expect="share < 0.7 and after > 0.9",
    kind="single",
)

sentence(
    "bits.15",
    "Signs take {small:.1f} times fewer bytes for 100 values, {middle:.1f} times for 10 000, and {large:.1f} times for "
    "a million.",
    expect="small < 8 < 25 < middle < large < 32",
    kind="count",
)

sentence(
    "bits.16",
    "A push of the whole table has {dense:,.0f} bytes, and one of the batch's rows {rows:,.0f}.",
    expect="dense > 1000 * rows",
    kind="count",
)

sentence(
    "bits.17",
    "Of a push of {rows} rows, the busiest of four servers receives {ranges} by ranges, and {modulo} by modulo.",
    kind="count",
)

prompt(
    "bits.1",
    "A worker sits behind a slow link, and its steps are quick. Which row of the table do you choose, and by which "
    "numbers and intervals? What would change your choice? Two sentences.",
    "I choose signs: one value in a thousand sends the fewest bytes, but in pairs signs send little more, by an "
    "interval that includes no more at all, and they need less than half of its steps. On a link so slow that only "
    "bytes count I would run more seeds of these two.",
    kind="comparison",
    by=("say bits.8", "say bits.13"),
)

quiz(
    "bits",
    Item(
        "A tensor of 10 values is sent with one bit for each. Why are there far more than 10 bits on the wire?",
        {
            "a scale and a header come with it": "The scale says how large the signs are, and the header names the "
            "tensor. Both take nearly as many bytes for 10 values as for a million.",
            "each bit is sent as a byte": "Eight bits are packed into one byte.",
            "a sign needs two bits, for plus, minus and zero": "Sign has only two levels: zero is sent as plus.",
        },
        by="say bits.2",
    ),
    Item(
        "Your server sends one byte for each value. Why does each tensor need a step of its own?",
        {
            "the tensors' magnitudes differ": "With one step for all, the values of a tensor with small magnitudes "
            "would all become zero.",
            "the tensors' shapes differ": "The shape does not matter: codes and step are the same in any shape.",
            "a byte has only 256 values": "That is so with any step. The question is how far apart these values are.",
        },
        by="check bits.2",
    ),
    Item(
        "Top-k with a memory sent the fewest bytes, and signs hardly more. When do you choose top-k?",
        {
            "if bytes alone count": "On a very slow link the steps cost nothing beside the bytes.",
            "if steps are slow to compute": "Top-k took several times as many steps.",
            "always": "Signs needed far fewer steps, and most links are not that slow.",
        },
        by=("say bits.8", "say bits.13"),
    ),
    Item(
        "After 40 steps scheme A reads 92 % and scheme B 90 %. What follows?",
        {
            "little: B may be unfinished": "B may have sent far fewer bytes. Compare steps and bytes until the same "
            "accuracy, over several seeds.",
            "A is the better scheme": "A is ahead after 40 steps. At equal bytes it may be far behind.",
            "B can never reach 92 %": "40 steps do not tell where a run ends.",
        },
        by="say bits.8",
    ),
    Item(
        "On which tensors is the k/32 rule nearly right?",
        {
            "large ones": "Scale and header do not grow with the number of values, so their share vanishes.",
            "small ones": "In a small tensor the fixed part is larger than the bits.",
            "none: half the rule is missing": "With a million values the ratio was nearly 32.",
        },
        by="say bits.15",
    ),
)

remember(
    "bits",
    {
        "A message contains": ("say bits.2", "say bits.15"),
        "One byte for each": "check bits.2",
        "Fewer bits need not": "predict bits.2",
        "The fewest bytes": ("say bits.8", "say bits.13"),
        "Your own quantizer": "say bits.9",
    },
)

RETIRED = {"say": (1, 3, 4, 5, 6, 7, 10, 11, 12, 14), "check": (1,)}
"""Maps each kind of key to the numbers that earlier editions used."""
