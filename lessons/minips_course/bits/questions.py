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
    "bits.1",
    "{blank} numbers are zero because a pixel is blank. Half the others are below {half:.0%} of the largest magnitude.",
    expect="half < 0.2",
    kind="count",
)

sentence(
    "bits.2",
    "A push weighs {push:.0f} bytes: {bits} are the bits, {scales} two scales, and {header:.0f} the header.",
    expect="bits == 82 and scales == 16 and header > bits + scales",
    kind="count",
)

sentence(
    "bits.3",
    "With a header of 16 bytes in both runs the ratio would be {slim:.0f}, not {ratio:.0f}.",
    expect="20 < slim < 32 and slim > 2 * ratio",
    kind="count",
)

sentence(
    "bits.4",
    "650 values: {small:.1f} times fewer bytes. 10 010 values: {large:.1f} times.",
    expect="25 < large < 32",
    kind="count",
)

sentence(
    "bits.5",
    "Relative error: {two:.2f} with the two bits of Uniform, {one:.2f} with the one bit of Sign. Uniform's levels are "
    "{apart:.2f} apart, and half of the values are below {middle:.2f}: {share:.0%} of all get the same level.",
    expect="0.5 < one < two and apart > 3 * middle and share > 0.7",
    kind="single",
)

sentence(
    "bits.6",
    "Squared errors, in |x|². Sign: {sign:.3f}, by the formula {formula:.3f}. The largest 5 %: {top:.3f}, where 0.95 "
    "is the bound.",
    expect="abs(sign / formula - 1) < 1e-4 and top < 0.95",
    kind="identity",
)

sentence(
    "bits.14",
    "Where both have the learning rate 5, signs take {early:.2f} ± {early_half:.2f} times as many steps as 32 bits. "
    "Each at its best rate, {sign:g} and {whole:g}, they take {times:.2f} ± {half:.2f} times as many (five seeds, in "
    "pairs).",
    expect="early > 1.2 and times < 1.1 and sign > whole",
    kind="comparison",
)

sentence(
    "bits.7",
    "On this model the largest 1 % of the values hold {tail:.0%} of the square; of normally distributed values they "
    "hold {normal:.0%}.",
    expect="abs(tail - normal) < 0.05",
    kind="single",
)

sentence(
    "bits.12",
    "One value in a hundred, each at its best rate: {without:.0f} of 5 runs read 90 % within 160 steps without a "
    "memory, {fed:.0f} of 5 with it. Where both have the rate 5: {early:.0f} and {early_fed:.0f}.",
    expect="without < 5 and fed == 5 and early == 0 and early_fed == 5",
    kind="comparison",
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
    "bits.10",
    "The head and the zeros make the message with all values {large:.3f} times as long, and that with one value in a "
    "thousand {small:.1f} times.",
    expect="large < 1.02 and small > 2",
    kind="count",
)

sentence(
    "bits.11",
    "Under autocast a linear layer's output has {output} bits a value, its weight {weight}, and the weight's gradient "
    "{gradient}.",
    expect="output == 16 and weight == gradient == 32",
    kind="identity",
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
        by=("say bits.14", "say bits.8"),
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
        "A scheme that drops": "say bits.12",
    },
)
