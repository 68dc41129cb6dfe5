"""The questions, sentences and quiz of "Spend bits where they matter"."""

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
    "spend.1",
    "Give each scheme its own best learning rate: no tensor as signs, and all four. How much of the harm at the rate "
    "0.1 is left?",
    Option(
        "more than two thirds",
        lambda left: left > 2 / 3,
        "The rate made little difference: what signs leave out was missing at each of them.",
    ),
    Option(
        "a third to two thirds",
        lambda left: 1 / 3 <= left <= 2 / 3,
        "A better rate made up for about half of what signs leave out.",
    ),
    Expected(
        "below a third",
        lambda left: left < 1 / 3,
        "At 0.1 all runs are unfinished, and those with signs are further behind. Rates ten times as large finish "
        "both. What looked like harm was a step that was too short.",
    ),
    otherwise="There was no harm to compare.",
    kind="comparison",
    shown={"left": "harm that is left: {:.0%}"},
)

question(
    "spend.2",
    "Send one value in 1000 of one tensor, the others exactly, with error feedback, each scheme at its best rate. U "
    "has 6.4 times as many values as W. Which of the two does more harm when it is sparse?",
    Expected(
        "a sparse U",
        lambda more, half: more - half > 0,
        "At its best rate a sparse W shows no harm, and a sparse U does. At the rate 0.1 it was the other way round. "
        "This run does not tell why.",
    ),
    Option(
        "a sparse W",
        lambda more, half: more + half < 0,
        "W is the smaller one, and its values did more harm when they were late.",
    ),
    Option(
        "no difference is shown",
        lambda more, half: -half <= more <= half,
        "The interval of the difference contains zero, so eight seeds do not tell the two apart.",
    ),
    otherwise="There was no harm to compare.",
    kind="comparison",
    shown={
        "more": "loss with a sparse U, minus that with a sparse W: {:+.2g}",
        "half": "half of its 95 % interval: {:.2g}",
    },
)

sentence(
    "spend.1",
    "At the rate 0.1 without a memory, signs for U add {u:.3f} ± {u_half:.3f} to the held-out loss, signs for W "
    "{w:.3f} ± {w_half:.3f}.",
    expect="u > u_half and w > w_half",
    kind="comparison",
)

sentence(
    "spend.9",
    "Each at its best rate, signs for all tensors change the held-out loss by {left:+.3f} ± {half:.3f}: no harm is "
    "shown.",
    expect="left - half <= 0",
    kind="comparison",
)

sentence(
    "spend.2",
    "In 30 steps, each at its best rate, 32 bits for every value read {more:+.1f} ± {half:.1f} percentage points more "
    "than signs with feedback, and send {times:.0f} times the bytes.",
    expect="more + half < 2 and times > 15",
    kind="comparison",
)

sentence(
    "spend.3",
    "Each at its best rate, a sparse U adds {u:.3f} ± {u_half:.3f} to the held-out loss, a sparse W {w:+.3f} ± "
    "{w_half:.3f}. At 0.1 it was {early_u:.2f} and {early_w:.2f}. A sparse U saves {times:.1f} times as many bytes.",
    expect="u > u_half and w - w_half <= 0 and early_w > early_u and times > 5",
    kind="comparison",
)

sentence(
    "spend.8",
    "With U first, U is sent by {first}. With * first, it is sent by {last}.",
    expect="first == 'topk' and last == 'sign'",
    kind="identity",
)

sentence(
    "spend.11",
    "At the bytes of 4, 8 and 16 steps of signs, a sparse U with more steps reads {gain_4:+.1f} ± {half_4:.1f}, "
    "{gain_8:+.1f} ± {half_8:.1f} and {gain_16:+.1f} ± {half_16:.1f} percentage points more.",
    expect="gain_4 - half_4 > 0 and gain_4 > gain_8 > gain_16",
    kind="comparison",
)

sentence(
    "spend.12",
    "At the bytes of four steps of signs, your plan reads {gain:+.1f} ± {half:.1f} percentage points more than signs.",
    kind="comparison",
)

sentence(
    "spend.13",
    "{signs} steps of signs cost no fewer bytes than {steps} steps of your plan, which sends U by {way}.",
    expect="1.5 * signs < steps and way == 'topk'",
    kind="count",
)

prompt(
    "spend.3",
    "Which tensor got the fewest bits for each value from your function, and why? Is the plan shown to be better than "
    "signs with feedback? Two sentences.",
    "U got the fewest: it has most of the values but a small part of the error, so a byte lowers the error least "
    "there. Over eight seeds the whole 95 % interval of the difference is above zero, on this network and with this "
    "small budget.",
    by=("check spend.3", "table: not solved or row['yours'][3] > row['yours'][4]"),
    kind="comparison",
)

prompt(
    "spend.2",
    "In the narrow network, U has 6.4 times as many values as W, as before. Is the harm that your function measures at "
    "the rate 0.1 left where each scheme has its best rate, and does the interval allow you to say so? Two sentences.",
    "Of the harm of a sparse W nothing is shown where each has its best rate: the interval contains zero. A sparse U "
    "still does harm there, since its whole interval is above zero, but less than at the rate 0.1.",
    by="table: row['W'][3] - row['W'][4] < 0 < row['U'][3] - row['U'][4]",
    kind="comparison",
)

quiz(
    "spend",
    Item(
        "Signs for all tensors, measured at the rate 0.1: why is this harm a poor guide for where to spend bits?",
        {
            "at each scheme's best rate no harm of signs is shown": "At 0.1 the runs are unfinished. A plan made from "
            "that table spends bytes on harm that a larger rate takes away.",
            "at the rate 0.1 the harms have no interval": "They have one. But even a narrow interval describes "
            "only its own set-up.",
            "at the best rates all tensors are equally sensitive": "There a sparse U still did more harm than a "
            "sparse W.",
        },
        by="say spend.9",
    ),
    Item(
        "Suppose that, at the same steps, 32 bits for every value read half a point more than signs. What follows for "
        "mixed precision?",
        {
            "more bits for some tensors can hardly gain more": "Fewer than 32 bits for some tensors are rarely better "
            "than 32 for all. So try to gain by sending fewer bytes.",
            "one bit is always enough": "That holds in this set-up, with its memory, network and steps. Measure any "
            "other set-up.",
            "four bits for W gain at least a point": "They lie between signs and 32 bits for all tensors.",
        },
        by="say spend.2",
    ),
    Item(
        "Two plans send the same bytes in all. The pushes of plan A are half as large as those of plan B. What else "
        "differs?",
        {
            "A makes about twice as many steps": "And each step computes a gradient, so A also computes twice as much.",
            "A is finished in half of the time": "The bytes are the same, and A computes more. The network and the "
            "computer decide which is faster.",
            "A is less accurate, since its pushes say less": "A single push says less. But A makes more pushes, and a "
            "memory keeps the rest.",
        },
        by="say spend.13",
    ),
    Item(
        "Codec({'*': Sign(), 'U': TopK(0.01)}): how is U sent?",
        {
            "as signs": "The first pattern that matches counts, and '*' matches every name.",
            "as one value in a hundred": "That is so only if the pattern 'U' comes first.",
            "as signs of one value in a hundred": "A tensor has one quantizer, that of the first pattern.",
        },
        by="say spend.8",
    ),
    Item(
        "Over five seeds a plan is 0.5 ± 1.4 points better in accuracy. What may you say?",
        {
            "no benefit is shown": "The interval reaches from −0.9 to +1.9, so the plan may also be worse.",
            "it is better by half a point": "That is the mean of five seeds. With other seeds it may be below zero.",
            "the two plans are equally good": "That is not shown either: a benefit of a point would be within the "
            "interval.",
        },
        by="say spend.9: 0.5 - 1.4 < 0",
    ),
)

remember(
    "spend",
    {
        "Measure the harm": ("predict spend.1", "say spend.9"),
        "What 32 bits": "say spend.2",
        "Bytes buy": ("say spend.13", "say spend.11"),
        "Give the next byte": "check spend.3",
        "Save bytes": (
            "predict spend.2",
            "say spend.3: times > 5",
            "table spend.3: not solved or row['yours'][3] > row['yours'][4]",
        ),
    },
)

RETIRED = {"say": (4, 5, 6, 7, 10), "answer": (1,), "check": (1,)}
"""The keys that no question, sentence or exercise has any more, by kind."""
