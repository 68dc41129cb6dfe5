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

timed_sentence(
    "train.2",
    "In the median step a worker computes for {middle:.0%} of the time (quartiles {low:.0%} to {high:.0%}, {steps} "
    "steps). Transfer and waiting take {away:.0%}.",
    expect="middle < 0.5 and away > middle",
)

sentence("train.3", "Names, shapes and numbers of steps add {extra:.0%}.", expect="0 < extra < 0.1", kind="count")

sentence(
    "train.4",
    "Each at its best learning rate: with 5 % of the values the accuracy differs by {mean:+.1f} ± {half:.1f} "
    "percentage points (five seeds, in pairs).",
    expect="abs(mean) + half < 3",
    kind="comparison",
)

sentence(
    "train.9",
    "With seed 0 the two real runs read exactly as many digits as the simulated ones at their rate, 0.1: {same}.",
    expect="same",
    kind="identity",
)

sentence(
    "train.10",
    "One image is {image:.1f} points. As an estimate for other images, an accuracy on so few has a standard error of "
    "{error:.1f} points.",
    expect="image < error",
    kind="single",
)

sentence("train.5", "The sparse run sends {ratio:.2f} of the bytes.", expect="0.05 < ratio < 0.2", kind="count")

timed_sentence(
    "train.6",
    "B sends {bytes:.2f} of A's bytes. Its transfer takes {middle:.1f} times A's median (quartiles {low:.1f} to "
    "{high:.1f}, {spans} transfers).",
    expect="middle > bytes",
)

sentence(
    "train.7",
    "The training loss begins at {first:.1f}, is {early:.1f} around step 20, and {last:.1f} in the last ten steps.",
    expect="first - early > early - last > 0",
    kind="single",
)

timed_sentence(
    "train.8",
    "On a link of 2 Mbit/s B takes {middle:.2f} of A's time (three pairs of real runs: {low:.2f} to {high:.2f}), and "
    "would take {model:.2f} if only the link counted. Its pushes have {bytes:.2f} of A's bytes, its answers "
    "{back:.2f}.",
    expect="bytes < model < 0.9 and back == 1 and middle < 1",
)

prompt(
    "train.1",
    "You pay for each byte. Which of the two do you choose, and by which two numbers in the table? What would change "
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
        by="say remember.3",
    ),
    Item(
        "A worker has pushed, and its span says wait. What is missing?",
        {
            "the gradient of another worker": "The server averages the four gradients of a step. It answers when it "
            "has all of them.",
            "the bytes of its own gradient": "While these bytes are being sent, the span is called transfer.",
            "its next batch": "A worker has its images at hand. Nobody sends it a batch.",
        },
        by="say server.4",
    ),
    Item(
        "One run with a new quantizer reads one more of 359 images than one run without it. What follows?",
        {
            "nothing yet: repeat both with several seeds": "Drawing other batches can change an accuracy by as much. "
            "Report the mean difference with an interval.",
            "the quantizer makes the model better": "With other batches, the difference may have the opposite sign.",
            "the quantizer does no harm": "That may be so, but one run of each does not show it.",
        },
        by="say train.10",
    ),
)

remember(
    "train",
    {
        "A worker pushes a gradient": ("say train.3", "say train.8: back == 1"),
        "On its way": "check train.1",
        "A push contains": "say train.3",
        "Values that a quantizer": ("say train.4", "say remember.3"),
        "To show a difference": ("say train.4", "say train.8"),
    },
)
