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
)

question(
    "bits.2",
    "A model with 10 010 values, trained until it reads 90 % of the held-out digits: how many times as many steps does "
    "it take with one bit for each value as with 32 bits?",
    Option(
        "fewer than half",
        lambda times: 0 < times < 0.5,
        "The signs moved small values farther than their gradients would, and that helped more than it hurt.",
    ),
    Expected(
        "about as many",
        lambda times: 0.5 <= times <= 1.4,
        "The error of a message is large, but the next message has another one, from another batch at other "
        "parameters. So the five ratios scatter about 1: on other seeds the mean may move by a third.",
    ),
    Option(
        "two to ten times as many",
        lambda times: 1.4 < times <= 10,
        "More steps had to make up for the loss in each message.",
    ),
    Option(
        "about 32 times as many, or it never gets there",
        lambda times: times > 10,
        "Almost nothing was saved: the missing bits had to be sent in more steps, or the model was never good enough.",
    ),
    otherwise="One of the two numbers of steps is missing.",
)

sentence(
    "bits.1",
    "{blank} numbers are zero because a pixel is blank. Half the others are below {half:.0%} of the largest magnitude.",
    expect="half < 0.2",
)

sentence(
    "bits.2",
    "A push weighs {push:.0f} bytes: {bits} are the bits, {scales} two scales, and {header:.0f} the header.",
    expect="bits == 82 and scales == 16 and header > bits + scales",
)

sentence(
    "bits.3",
    "With a header of 16 bytes in both runs the ratio would be {slim:.0f}, not {ratio:.0f}.",
    expect="20 < slim < 32 and slim > 2 * ratio",
)

sentence(
    "bits.4", "650 values: {small:.1f} times fewer bytes. 10 010 values: {large:.1f} times.", expect="25 < large < 32"
)

sentence(
    "bits.5",
    "Relative error: {two:.2f} with the two bits of Uniform, {one:.2f} with the one bit of Sign. Uniform's levels are "
    "{apart:.2f} apart, and half of the values are below {middle:.2f}: {share:.0%} of all get the same level.",
    expect="0.5 < one < two and apart > 3 * middle and share > 0.7",
)

sentence(
    "bits.6",
    "Squared errors, in |x|². Sign: {sign:.3f}, by the formula {formula:.3f}. The largest 5 %: {top:.3f}, where 0.95 "
    "is the bound.",
    expect="abs(sign / formula - 1) < 1e-4 and top < 0.95",
)

sentence(
    "bits.7",
    "On this model the largest 1 % of the values hold {tail:.0%} of the square; of normally distributed values they "
    "hold {normal:.0%}. With one value in a hundred, {without} of 5 runs read 90 % within 160 steps without a memory, "
    "{fed} of 5 with it.",
    expect="abs(tail - normal) < 0.05 and without < 5 and fed == 5",
)

sentence(
    "bits.8",
    "Top 0.1 % with a memory reaches 90 % with {fewer:.0f} ± {fewer_half:.0f} times fewer bytes than 32 "
    "bits, in {slower:.1f} ± {slower_half:.1f} times as many steps (five seeds, in pairs).",
    expect="fewer - fewer_half > 10 and slower - slower_half > 1",
)

sentence(
    "bits.9",
    "Your quantizer: {share:.0%} of the bytes that the server's workers sent before. Accuracy {after:.1%}, "
    "before {before:.1%} (one run each).",
    expect="share < 0.7 and after > 0.9",
)

sentence(
    "bits.10",
    "The head and the zeros make the message with all values {large:.3f} times as long, and that with one value in a "
    "thousand {small:.1f} times.",
    expect="large < 1.02 and small > 2",
)

sentence(
    "bits.11",
    "Under autocast a linear layer's output has {output} bits a value, its weight {weight}, and the weight's gradient "
    "{gradient}.",
    expect="output == 16 and weight == gradient == 32",
)

prompt(
    "bits.1",
    "A worker sits behind a slow link, and its steps are quick. Which row of the table do you choose, and by which "
    "number and its interval? On which link would you choose another? Two sentences.",
    "I choose one value in a hundred with a memory: its interval of kB overlaps with the least, that of one in a "
    "thousand, and it takes half the steps. On a fast link steps cost more than bytes, and I would choose 8 bits.",
    by=(
        "table: row['top 1 %, memory'][2] - row['top 1 %, memory'][3] < sum(row['top 0.1 %, memory'][2:])",
        "table: row['top 1 %, memory'][0] < 0.6 * row['top 0.1 %, memory'][0]",
        "table: row['8 bits'][0] <= row['top 1 %, memory'][0]",
    ),
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
        "Four evenly spaced levels gave a larger error than two. Why?",
        {
            "most values share one of the levels": "A few large values stretch the "
            "range. The two levels of Sign stay where most values are.",
            "two bits hold fewer levels than one": "Two bits hold four levels, one bit holds two.",
            "the scale of Uniform is rounded": "The ends of its range are exact. The levels between are far apart.",
        },
        by="say bits.5",
    ),
    Item(
        "Top-k keeps 1 % of 100 000 float32 values. About which share of the bytes does it send?",
        {
            "2 %": "An index among 100 000 values takes 4 bytes, as many as the value.",
            "1 %": "That leaves out the indices of the values.",
            "0.03 %": "The kept values are sent with all their 32 bits.",
        },
        by="check bits.1: (4 + 4) * 1000 / (4 * 100_000) == 2 / 100",
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
            "none: half the rule is missing": "With 10 010 values the ratio was much nearer to 32 than with 650.",
        },
        by="say bits.4",
    ),
)

remember(
    "bits",
    {
        "There are two simple": ("predict bits.1", "say bits.8"),
        "A message contains": ("say bits.2", "say bits.4", "check bits.1"),
        "The relative error": "say bits.6",
        "Fewer bits need not": "predict bits.2",
        "A scheme that drops": "say bits.7",
    },
)
