"""The questions, sentences and quiz of "Remember what was not sent"."""

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
    "remember.1",
    "Four workers, 100 steps, one of 640 values of W in each push: how many different values of W has training moved "
    "with the memory, compared with training without it?",
    Option(
        "fewer: the memory repeats itself",
        lambda times: 0 < times < 0.9,
        "The memory kept the rest of the same few values, so these were sent again and again.",
    ),
    Option(
        "about as many: each push moves one",
        lambda times: 0.9 <= times <= 1.3,
        "Both runs sent 400 values of W, and changed about as many different values.",
    ),
    Expected(
        "about twice as many",
        lambda times: 1.6 <= times <= 2.8,
        "Without a memory the same values win again and again: those whose gradients are the largest. With it, a value "
        "that is left out grows in the memory until it is the largest one. Then all of it is sent, and the next one's "
        "turn comes.",
    ),
    Option(
        "many times as many",
        lambda times: times > 3.5,
        "Without a memory only a few values were ever the largest. With it, each value was the largest at some time.",
    ),
    otherwise="The ratio lies between two of the options, or without a memory no value of W has moved.",
    kind="count",
    shown={"times": "values moved with the memory: {:.2f} times as many"},
)

question(
    "remember.3",
    "QSGD rounds at random, and is right on average. With 3 levels, how much does error feedback hold after 200 "
    "gradients, in lengths of the longest?",
    Option(
        "less than one gradient: the errors cancel",
        lambda held: held < 1,
        "Errors of both signs cancelled in the memory.",
    ),
    Option(
        "one to a hundred gradients, as with top-k",
        lambda held: 1 <= held < 100,
        "The memory filled until as much was sent at each step as came in.",
    ),
    Expected(
        "more than a thousand gradients",
        lambda held: held > 1000,
        "The error of one draw is longer than what it rounds. It fills the memory, so the next input is longer, and so "
        "is its error.",
    ),
    otherwise="More is held than with top-k, and less than a thousand gradients.",
    kind="single",
    shown={"held": "held at the end: {:.2g} gradients"},
)

sentence(
    "remember.1",
    "Of 640 values of W, {few:.0f} have moved without a memory and {many:.0f} with it (means of 5 seeds).",
    expect="1.6 * few < many < 2.8 * few",
    kind="count",
)

sentence(
    "remember.2",
    "Where each has its best rate, the memory adds {gain:.1f} ± {half:.1f} percentage points of accuracy. With "
    "0.1 for both, it adds {early:.0f} ± {early_half:.0f}: at 0.1 the run without it is unfinished (pairs, 5 seeds).",
    expect="gain - half > 2 and early - early_half > 3 * gain",
    kind="comparison",
)

sentence(
    "remember.3",
    "Sent plus held equals meant for {equal} of {of} values, up to rounding.",
    expect="equal == of",
    kind="identity",
)

sentence(
    "remember.4",
    "The relative error of what was sent is {one:.2f} for the last step alone, and {summed:.2f} for the sum of {steps} "
    "steps.",
    expect="one > 5 * summed",
    kind="single",
)

sentence(
    "remember.6",
    "With top-k, a contraction, what is held is at most {held:.0f} times as long as the longest gradient. The bound is "
    "{bound:.0f} times.",
    expect="1 < held <= bound",
    kind="identity",
)

sentence(
    "remember.7",
    "With QSGD(levels=3) it is at the end more than 10 to the power of {power} times as long. If QSGD is given "
    "x / (1 + ω), it is at most {tame:.0f} times as long.",
    expect="power >= 4 and tame < 20",
    kind="count",
)

prompt(
    "remember.2",
    "What is the memory worth, each scheme at its best rate? Which has the higher best rate, the run with the memory "
    "or the one without it, and what follows for a comparison at 0.1 alone? Two sentences.",
    "At its best rate the run without a memory is behind by several percentage points. Its best rate is higher than "
    "the one with the memory, so a comparison at 0.1 alone shows several times that gap.",
    kind="comparison",
    by=("say remember.2", "table: row['no memory'][0] > row['error feedback'][0]"),
)

quiz(
    "remember",
    Item(
        "The gradient is 3, the memory holds 2, and the quantizer sends 4. What does error feedback hold next?",
        {
            "1": "It had 3 + 2 = 5 to send, and sent 4. It holds the difference.",
            "−1": "3 − 4 leaves out the 2 that the memory held before, so it is lost.",
            "3": "2 + 1 counts the old rest twice: the sum 3 + 2 = 5 already contains it.",
        },
        by="say remember.3: (3 + 2) - 4 == 1",
    ),
    Item(
        "With error feedback, why does the sum of many steps arrive with a small relative error?",
        {
            "only what is held is missing from the sum, and that stays bounded": "The sum of the gradients grows "
            "with the steps, and a bounded rest becomes a smaller share of it.",
            "each step arrives with a smaller error than the step before": "The error of a single step may stay as "
            "large as it was.",
            "errors of both signs cancel by chance": "Top-k draws nothing at random, and its sum still arrives.",
        },
        by="say remember.4",
    ),
    Item(
        "For top-k the bound on what is held was several times as large as what was measured. Does that refute it?",
        {
            "no: these were not the worst inputs": "The bound assumes that each step leaves the largest share that "
            "top-k can leave. Real gradients leave less.",
            "no: a bound holds only on average": "For top-k the bound holds for every single input.",
            "yes: the measured value shows that top-k is not a contraction": "A value below the bound agrees with it.",
        },
        by="say remember.6",
    ),
    Item(
        "Error feedback with QSGD at few levels held more and more. What is the cause?",
        {
            "the error of one draw is longer than its input": "The memory fills with noise, which makes the next "
            "input longer. A longer input brings more noise, and so on.",
            "QSGD is biased, and the memory adds that up": "QSGD is right on average. Its variance is too large.",
            "200 steps are too few to empty the memory": "The curve grew to the end: more steps make it worse.",
        },
        by="say remember.7",
    ),
    Item(
        "At one small rate the memory seemed to be worth several times as much as at each scheme's best rate. Why "
        "compare at the best rates?",
        {
            "the scheme without a memory has another best rate": "A rate that suits one scheme may leave the other "
            "unfinished. Then the gap measures the rate.",
            "at a small rate the memory loses values": "Sent plus held equals meant at any rate.",
            "a higher rate sends more bytes": "The rate changes no byte: it is used by the server's optimizer.",
        },
        by=("say remember.2", "table remember.2: row['no memory'][0] > row['error feedback'][0]"),
    ),
)

remember(
    "remember",
    {
        "Error feedback:": ("say remember.3", "check remember.3"),
        "Sent plus held": ("say remember.3", "check remember.3"),
        "Here, each at its": ("say remember.2",),
        "With a contraction": ("say remember.4", "say remember.6"),
        "With QSGD the memory": ("say remember.7",),
    },
)

RETIRED = {
    "predict": (2,),
    "say": (5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19),
    "answer": (1,),
    "check": (1,),
}
"""The keys of this lesson that earlier copies of it use, by kind."""
