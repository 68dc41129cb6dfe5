"""The questions, sentences and quiz of "Train in a minute"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    question,
    quiz,
    remember,
    sentence,
    timed_sentence,
)

question(
    "train.1",
    "After those 200 steps: how many of the held-out digits does the model read correctly?",
    Option(
        "about one in ten",
        lambda accuracy: 0.05 < accuracy < 0.2,
        "Guessing reads one digit in ten. The steps did not change the parameters, or did not improve them.",
    ),
    Option(
        "about half",
        lambda accuracy: 0.35 < accuracy < 0.65,
        "The model had learned some digits, and 200 steps were too few, or too short, for the others.",
    ),
    Expected(
        "more than nine in ten",
        lambda accuracy: 0.9 < accuracy <= 1,
        "Handwritten digits differ in where the ink is, and a weight for each pixel is enough to tell most of"
        " them apart. 200 steps with 128 images each show every training image about 18 times.",
    ),
    otherwise="The accuracy lies between the options.",
    kind="single",
    shown={"accuracy": "accuracy: {:.1%}"},
)

question(
    "train.2",
    "With 5 % of the values sent, and each way at its best learning rate: what happens to the accuracy on the held-out "
    "digits?",
    Option(
        "it falls below 50 %",
        lambda accuracy, change: 0 <= accuracy < 50 and change < -3,
        "The other values are missing: the few that arrive are not enough to train a model that reads the digits.",
    ),
    Option(
        "it falls by 10 to 40 percentage points",
        lambda accuracy, change: accuracy >= 50 and -40 <= change <= -10,
        "A part of each gradient arrives too late, or never, and 200 steps do not make up for that.",
    ),
    Expected(
        "it stays within 3 percentage points",
        lambda accuracy, change: accuracy >= 50 and -3 <= change <= 3,
        "A value that is not sent is not dropped. It waits in the worker's memory, and later gradients are added to "
        "it, until it is among the largest. Most values arrive some steps late, which does this model little harm.",
    ),
    otherwise="The accuracy rose, or it fell by an amount between the options.",
    kind="comparison",
    shown={
        "change": "change of the accuracy: {:+.1f} percentage points",
        "accuracy": "accuracy: {:.1f}%",
    },
)

sentence(
    "train.1",
    "After 200 steps the model reads {accuracy:.0%} of the held-out digits.",
    expect="accuracy > 0.9",
    kind="single",
)

sentence(
    "train.3",
    "A push has 2600 bytes of numbers. Names, shapes and the step add {extra:.0%}.",
    expect="0 < extra < 0.1",
    kind="count",
)

sentence(
    "train.4",
    "Each at its best learning rate: with 5 % of the values the accuracy differs by {mean:+.1f} ± {half:.1f} "
    "percentage points (five seeds, in pairs).",
    expect="abs(mean) + half < 3",
    kind="comparison",
)

sentence("train.5", "The sparse run sends {ratio:.2f} of the bytes.", expect="0.05 < ratio < 0.2", kind="count")

timed_sentence(
    "train.11",
    "On a link of 2 Mbit/s, the top 5 % take {top:.2f} of the time of everything, your quantizer takes {mine:.2f} of "
    "it (medians of three pairs of real runs).",
    expect="top < 1",
)

sentence(
    "train.12",
    "With the top 5 %, the workers receive {back:.2f} times as many bytes as before: each answer contains all "
    "parameters.",
    expect="back > 0.99",
    kind="count",
)

sentence(
    "train.13",
    "In your run, names, shapes and steps added {extra:.0%} to the bytes of a push, and with the top 5 % of the values "
    "{ratio:.2f} of the bytes were sent.",
    expect="0 < extra < 0.1 and 0.05 < ratio < 0.2",
    kind="count",
)

prompt(
    "train.1",
    "You pay for each byte. Which row do you choose, and by which two numbers in the table? What would change "
    "your mind? Two sentences.",
    "I choose the row that sends the fewest bytes, since the interval of its accuracy does not reach 3 points below "
    "zero. Where a tenth of a point counts I would change my mind, until more seeds and more held-out images narrow "
    "the interval.",
    by=(
        "table: all(mean - half > -0.03 for mean, half in [table.difference(name, 'all values') for name in "
        "table.rates])",
        "table: table.difference('top 5 %', 'all values').half > 0.001",
    ),
    kind="comparison",
)

quiz(
    "train",
    Item(
        "What does a worker send to the server at each step?",
        {
            "its gradient": "A gradient is a set of arrays with the parameters' names and shapes. The images stay at "
            "the worker.",
            "the images of its batch": "Each worker keeps its images. The server never sees one.",
            "its new parameters": "A worker does not change the parameters. The server changes them and sends them "
            "back.",
        },
        by="say train.3",
    ),
    Item(
        "5 % of the values are sent, and more than 5 % of the bytes. Why?",
        {
            "indices, names and shapes travel too": "Each value that is sent needs its index. Names and shapes do "
            "not shrink.",
            "the values in the memory travel too": "The memory stays in the worker. A value leaves the memory only "
            "when it is among the largest.",
            "the server asks for the rest afterwards": "The server asks for nothing. A value that was not sent arrives "
            "later, or never.",
        },
        by="say train.5",
    ),
    Item(
        "What does ErrorFeedback do with a value that was not sent?",
        {
            "it is added to the worker's next gradient": "The sum is sent if it is among the largest, and kept again "
            "if it is not.",
            "it is sent at the end of the run": "No such message exists. Values left in the memory are lost.",
            "it is forgotten": "Without a memory, TopK forgets the values that it does not send.",
        },
        by="predict train.2",
    ),
    Item(
        "Workers that send a seventh of the bytes over a slow link need more than a seventh of the time. Why?",
        {
            "the answers are as long as before": "The server sends all parameters to each worker, whatever the workers "
            "send.",
            "the link is slower for short messages": "The link has the same bandwidth for all messages.",
            "the other values travel at the end": "They stay in the workers' memories. What is left at the end is "
            "lost.",
        },
        by="say train.12: back > 0.99",
    ),
    Item(
        "One run with a new quantizer reads one more of 359 images than one run without it. What follows?",
        {
            "nothing yet: repeat both with several seeds": "Drawing other batches can change an accuracy by as much. "
            "Report the mean difference with an interval.",
            "the quantizer makes the model better": "With other batches, the difference may have the opposite sign.",
            "the quantizer does no harm": "That may be so, but one run of each does not show it.",
        },
        by="say train.4: half > 100 / 359",
    ),
)

remember(
    "train",
    {
        "A worker pushes a gradient": ("say train.3", "say train.12: back > 0.99"),
        "A push contains": ("say train.3", "say train.13"),
        "On its way": "check train.4",
        "Values that are not sent": ("say train.4", "say train.13"),
        "To compare accuracies": "say train.4",
    },
)

RETIRED = {"say": (2, 6, 7, 8, 9, 10), "check": (1,)}
"""The numbers of earlier editions' keys, which are not given again."""
