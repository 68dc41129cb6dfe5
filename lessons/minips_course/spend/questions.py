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
    "Send all four tensors as signs, with error feedback. How much of the harm of signs without a memory is left?",
    Option(
        "more than two thirds",
        lambda left: left > 2 / 3,
        "The memory helped little: what it held was sent too late for 30 steps.",
    ),
    Option(
        "a third to two thirds",
        lambda left: 1 / 3 <= left <= 2 / 3,
        "The values left out were sent later, and this delay cost about half of their effect.",
    ),
    Expected(
        "below a third",
        lambda left: left < 1 / 3,
        "A value left out of a push is added to the next one, so it arrives a few steps later. The harms without a "
        "memory are far too large for training with one.",
    ),
    otherwise="There was no harm to compare.",
    kind="single",
)

question(
    "spend.2",
    "Send 1 % of the values of one tensor, the others exactly, with error feedback. U has 6.4 times as many values as "
    "W. How does the harm of a sparse U compare with the harm of a sparse W?",
    Option(
        "more than three times as large",
        lambda times: times > 3,
        "The harm grew with the number of values that were left out.",
    ),
    Option(
        "about as large",
        lambda times: 2 / 3 <= times <= 3,
        "The memory delayed the values of both tensors alike, whatever their sizes.",
    ),
    Expected(
        "clearly smaller",
        lambda times: times < 2 / 3,
        "Size is not harm. W has fewer values, and their delay by the memory costs more. This run does not tell why.",
    ),
    otherwise="There was no harm to compare.",
    kind="single",
)

sentence(
    "spend.1",
    "Without a memory signs for U add {u:.3f} ± {u_half:.3f} to the held-out loss, signs for W {w:.3f} ± {w_half:.3f}.",
    expect="u > u_half and w > w_half",
    kind="single",
)

sentence(
    "spend.2",
    "In 30 steps, 32 bits for every value read {more:+.1f} ± {half:.1f} percentage points more than signs with "
    "feedback, and send {times:.0f} times the bytes.",
    expect="more + half < 2 and times > 15",
    kind="single",
)

sentence(
    "spend.3",
    "For each byte saved W adds {times:.0f} ± {half:.0f} times as much loss as U (pairs, five seeds). a and b "
    "save little: {small:.1%} at most each.",
    expect="times - half > 3 and small < 0.02",
    kind="single",
)

sentence(
    "spend.4",
    "Four processes sent {share:.0%} of the budget, and the model reads {accuracy:.1%} of the held-out digits. The "
    "threads sent the same number of bytes: {same}.",
    expect="same and share <= 0.75 and accuracy > 0.8",
    kind="single",
)

sentence(
    "spend.5",
    "None of the three other plans is shown to be better than signs with feedback: the highest upper end of their "
    "intervals is {highest:+.1f} points.",
    expect="highest < 1",
    kind="single",
)

sentence(
    "spend.6",
    "The largest error is {over:.3f} of the allowed one. With a relative error of 0.5 allowed, U takes {large:.1f} "
    "bits and b {short:.1f}.",
    expect="over <= 1.001 and large > short",
    kind="single",
)

sentence(
    "spend.7",
    "Adaptive, a relative error of 0.5 allowed, with feedback: {steps} steps, and {gain:+.1f} ± {half:.1f} percentage "
    "points from signs with feedback.",
    expect="gain + half < 0 and steps < 30",
    kind="single",
)

sentence(
    "spend.8",
    "With U first, U is sent by {first}. With * first, it is sent by {last}.",
    expect="first == 'topk' and last == 'sign'",
    kind="identity",
)

prompt(
    "spend.1",
    "Which tensor got the fewest bits in your plan, and by which measured number did you choose it? How sure are you "
    "that the plan beats signs with feedback? Two sentences.",
    "U got the fewest bits, since W adds many times as much loss for each byte that it saves. Over the eight new seeds "
    "of the check the whole 95 % interval of the difference is above zero, on this network and with runs that are not "
    "finished.",
    by=("say spend.3", "check spend.1"),
    kind="single",
)

prompt(
    "spend.2",
    "In the narrow network, U has 6.4 times as many values as W, as before. Which of them would you squeeze first, and "
    "does the interval allow you to say so? Two sentences.",
    "U has 6.4 times as many values and its harm is not 6.4 times as large, so I would squeeze U first. With three "
    "seeds the intervals are wide, so I would take more before I rely on the exact ratio.",
    by="table: row['U'][0] < 6.4 * row['W'][0] and (not solved or row['U'][1] > 0.1 * row['U'][0])",
    kind="single",
)

quiz(
    "spend",
    Item(
        "Why are harms measured without a memory a poor guide for a training with error feedback?",
        {
            "the memory later sends most of the values left out": "So most of the harm in the first table is gone in "
            "the second. A plan made from the first table spends bytes on harm that is gone.",
            "without a memory the harms have no interval": "They have one. But even a narrow interval describes "
            "only its own set-up.",
            "the memory makes all tensors equally sensitive": "With a memory, a sparse W still did more harm than a "
            "sparse U.",
        },
        by="predict spend.1",
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
        by="table spend.1: row['few of all'][0] > 1.5 * row['few of W'][0]",
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
        by="say spend.5: 0.5 - 1.4 < 0",
    ),
)

remember(
    "spend",
    {
        "Measure the harm": "predict spend.1",
        "To compare two plans": "say spend.5",
        "A memory removes": ("predict spend.1", "say spend.2"),
        "Bytes buy": ("say spend.5", "check spend.1"),
        "Save bytes": "say spend.3",
    },
)
