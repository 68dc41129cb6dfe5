"""The questions, sentences and quiz of "Hide the latency"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    question,
    quiz,
    remember,
    sentence,
    timed_question,
    timed_sentence,
)

timed_question(
    "hide.1",
    "Ten calls are made before the first is answered. How many times as long as one call do they take: with 1 byte in "
    "each, and with 10 MB in each?",
    Option(
        "about 1 and about 1",
        lambda tiny, large: 0 < tiny < 2 and 0 < large < 2,
        "All calls were under way together, and the link carried ten large messages in the time of one.",
    ),
    Expected(
        "about 1 and about 7",
        lambda tiny, large: 0 < tiny < 2 and 5 <= large < 8.5,
        "All calls are under way together, so the latency of 0.04 s passes once for all ten. With 1 byte that is "
        "nearly all there is. But 10 MB keep the link busy for 0.08 s, one message after the other: one call takes "
        "0.12 s, ten take 0.84 s.",
    ),
    Option(
        "about 1 and about 10",
        lambda tiny, large: 0 < tiny < 2 and 8.5 <= large < 20,
        "The large calls ran one after the other, so the latency passed again for each.",
    ),
    Option(
        "about 10 and about 10",
        lambda tiny, large: 5 <= tiny < 20 and 5 <= large < 20,
        "Each call waited for the answer to the call before it.",
    ),
    otherwise="Either this machine was busy with something else, or the link did not hold the messages back.",
    shown={
        "tiny": "ten calls, 1 byte each: {:.2f} times as long as one",
        "large": "ten calls, 10 MB each: {:.2f} times as long as one",
    },
)

question(
    "hide.3",
    "In each step a push and its answer travel for 0.04 s. With which time of computing does overlap make a step "
    "faster by the largest factor?",
    Option(
        "0.01 s",
        lambda short, equal, long: short > 1.1 * equal and short > 1.1 * long,
        "Messages travel most of the time, and all of that was hidden.",
    ),
    Expected(
        "0.04 s",
        lambda short, equal, long: equal > 1.1 * short and equal > 1.1 * long,
        "A step with overlap takes the longer of the two times: 0.04 s in place of 0.05 s, 0.04 s in place of 0.08 s, "
        "0.16 s in place of 0.20 s. What is hidden is the shorter one, and that is at most half of the step.",
    ),
    Option(
        "0.16 s",
        lambda short, equal, long: long > 1.1 * equal and long > 1.1 * short,
        "It leaves most time in which messages can travel.",
    ),
    Option(
        "any of these: the factor is the same",
        lambda short, equal, long: max(short, equal, long) <= 1.1 * min(short, equal, long),
        "Overlap hid the same share of each step.",
    ),
    otherwise="Two of the three gained about equally, and more than the third.",
    kind="count",
    shown={
        "short": "computing for 0.01 s: {:.2f} times as fast",
        "equal": "computing for 0.04 s: {:.2f} times as fast",
        "long": "computing for 0.16 s: {:.2f} times as fast",
    },
)

timed_sentence(
    "hide.1",
    "With 1 byte, ten calls take {tiny.median:.2f} times as long as one (median of {turns} turns, quartiles "
    "{tiny.low:.2f} to {tiny.high:.2f}), with 10 MB {large.median:.1f} times ({large.low:.1f} to {large.high:.1f}).",
    expect="tiny.median < 2 and 5 < large.median < 8.5",
)

timed_sentence(
    "hide.2",
    "A step of a worker that waits takes {times.median:.2f} times as long as one with overlap (median of {steps} "
    "steps, quartiles {times.low:.2f} to {times.high:.2f}).",
    expect="1.3 < times.median < 2.2",
)

sentence(
    "hide.20",
    "Messages travel for 0.04 s in each step. Where computing takes 0.01 s, 0.04 s or 0.16 s, overlap makes a step "
    "{short:.2f}, {equal:.2f} or {long:.2f} times as fast.",
    expect="abs(short - 1.25) < 0.01 and abs(equal - 2) < 0.01 and abs(long - 1.25) < 0.01",
    kind="count",
)

timed_sentence(
    "hide.21",
    "Your number: 24 calls with 8 under way take {share:.0%} of their time with 1 under way.",
    expect="share < 1.5",
)

timed_sentence(
    "hide.22",
    "Twenty steps over the link take {given:.1f} s with the loop as given, {yours:.1f} s with yours.",
)

sentence(
    "hide.23",
    "Staleness: at most {waiting} versions without overlap, at most {stale} with it.",
    expect="waiting == 0 and stale == 1",
    kind="single",
)

timed_sentence(
    "hide.24",
    "A small call over a connection of its own takes {took.times:.0f} times as long as over one that stays open. "
    "Opening the connection takes {took.opening:.0%} of that time (medians of 30 calls each).",
    expect="took.times > 2",
)

prompt(
    "hide.2",
    "What do more calls under way save, and from which number on do they save nothing more? Why? Two sentences, with "
    "numbers from the table.",
    "By α and β 4 calls under way take less than a third of the time of 1, since the latency passes for four calls at "
    "once. 6, 8 and 16 take the same 0.232 s: one call takes 0.048 s, in which the link carries 6 calls, so it is "
    "always busy.",
    by=(
        "table: row['4'][1] < row['1'][1] / 3",
        "table: row['6'][1] == row['8'][1] == row['16'][1] == 0.232",
        "timed table: not solved or row['8'][0] < row['1'][0] / 2",
        "table: abs(row['1'][1] / 24 - 0.048) < 1e-9 and round(0.048 / 0.008) == 6",
    ),
    kind="time",
)

quiz(
    "hide",
    Item(
        "A link has 0.01 s of latency each way and carries 100 MB/s. A call carries 1 MB, its answer is small. Twenty "
        "calls are made before the first answer. How long do they take?",
        {
            "0.22 s": "The link is busy for 20 × 0.01 s, and the latency of 0.02 s passes once for all calls.",
            "0.03 s": "That is the time of one call. The link carries the 20 MB one after the other, in 0.01 s each.",
            "0.60 s": "That is twenty times the time of one call, as if each call waited for the previous answer.",
        },
        by="say hide.1: abs(20 * 0.01 + 2 * 0.01 - 0.22) < 1e-9",
    ),
    Item(
        "A step computes for 0.03 s, and its messages travel for 0.09 s. How much faster does it become with overlap, "
        "at best?",
        {
            "1.33 times": "A step shrinks from 0.12 s to the longer of the two times, 0.09 s.",
            "2 times": "That much is gained only if computing and travelling take the same time.",
            "4 times": "0.12 s / 0.03 s assumes that computing hides all the travelling, but it lasts only 0.03 s.",
        },
        by=("say hide.2: abs((0.03 + 0.09) / 0.09 - 1.33) < 0.01", "say hide.20"),
    ),
    Item(
        "A call keeps the link busy for 0.008 s, and 2α is 0.04 s. How many calls must be under way so that the link "
        "never idles?",
        {
            "6": "From the start of a call to its answer 0.048 s pass. In this time the link can carry 6 calls.",
            "2": "Then the link is busy for 0.016 s of 0.048 s, and idles for the rest.",
            "40": "More than 6 wait for the link, and save nothing.",
        },
        by="table hide.2: round((0.008 + 0.04) / 0.008) == 6 and row['6'][1] == row['16'][1] < row['4'][1]",
    ),
    Item(
        "A worker trains with overlap, and a push is under way. From which parameters does it compute meanwhile?",
        {
            "from the answer to the push before": "It is the newest that has arrived, and lacks "
            "one update: a staleness of 1.",
            "from the answer to this push": "That answer has not arrived yet. Waiting for it would be no overlap.",
            "from those that it started with": "Each answer brings new parameters. They come one step late, and not "
            "never.",
        },
        by="say hide.23",
    ),
    Item(
        'A lecture\'s client opens a "pool" of connections for each call, and closes it afterwards. What is wrong?',
        {
            "each call opens a connection again": "No connection is used twice. That makes a small call several times "
            "as long, even within one machine.",
            "a call over a new connection carries less": "It carries the same frames. It only begins later.",
            "nothing: to open a connection takes no time": "The lesson measured it, within one machine. A network adds "
            "its latency.",
        },
        by="say hide.24",
    ),
)

remember(
    "hide",
    {
        "Futures let": ("say hide.1", "predict hide.1"),
        "Keep just enough": (
            "check hide.3",
            "table hide.2: row['6'][1] == row['16'][1] < row['4'][1]",
            "say hide.21: share < 1.5",
        ),
        "With overlap a step": (
            "say hide.2",
            "predict hide.3",
            "say hide.20: 1.25 < equal == max(short, equal, long) <= 2",
        ),
        "Overlap has": "say hide.23",
        "Leave connections": "say hide.24",
    },
)

RETIRED = {"predict": (2,), "say": (*range(3, 20),), "answer": (1,), "check": (1, 2)}
"""The numbers that an earlier edition of the lesson used, by kind."""
