"""The questions, sentences and quiz of "Enter the race"."""

from minips.lab.course.questions import Expected, Item, Option, prompt, question, quiz, remember, sentence

question(
    "race.1",
    "The four-bit entry sends each value in 4 bits instead of 32, and exchanges every 4 steps, with a rate of 1 "
    "instead of 0.1. How many times fewer bytes than the defaults does it need to 90 %?",
    Option(
        "about 8 times",
        lambda fewer: 4 <= fewer < 16,
        "Each value has an eighth of the bits, and nothing else counts.",
    ),
    Option(
        "about 32 times",
        lambda fewer: 16 <= fewer < 64,
        "Bits and exchanges save 8 times 4, and both need as many steps.",
    ),
    Expected(
        "more than 64 times",
        lambda fewer: fewer >= 64,
        "Bits and exchanges save 8 times 4. The rate saves the rest: this entry needs fewer steps. The bytes to a "
        "target are the bytes of a step, times the steps.",
    ),
    otherwise="It saves hardly anything.",
    kind="count",
    shown={"fewer": "the defaults' bytes: {:.0f} times those of the four-bit entry"},
)

question(
    "race.2",
    "One worker of eight sends noise with a standard deviation of 100 in place of its gradient. How much longer does "
    "the four-bit entry, which waits for nobody, need to 90 %?",
    Option(
        "less than twice as long",
        lambda times: times < 2,
        "Seven honest workers outweigh one, and four bits hold little noise.",
    ),
    Option(
        "2 to 5 times as long",
        lambda times: 2 <= times < 5,
        "The honest workers repair most of what each garbage push has broken.",
    ),
    Expected(
        "more than 5 times as long, or it does not get there",
        lambda times: times >= 5,
        "Under ASP a push is applied alone, so nothing outweighs it. Four bits are relative to the largest value: "
        "large noise stays large.",
    ),
    otherwise="There is nothing to compare.",
    kind="count",
    shown={"times": "beside garbage: {:.1f} times as long"},
)

sentence(
    "race.1",
    "{entry}: {seconds:.3f} virtual s and {kb:.0f} kB to 90 % (means of five seeds).",
    kind="count",
)

sentence(
    "race.2",
    "Beside one worker that sends garbage, {missed} of {runs} runs do not get to 90 % within 100 steps.",
    expect="missed >= 1",
    kind="count",
)

sentence(
    "race.3",
    "Your entry, on the judge's seeds: {seconds:.3f} virtual s and {kb:.0f} kB. Limits that it breaks: {broken}. "
    "Digest {digest}, the same on every machine.",
    kind="count",
)

sentence(
    "race.4",
    "Four bits, nobody waits, and your rule: {seconds:.3f} virtual s and {kb:.0f} kB; beside garbage {missed} of "
    "{runs} runs do not get to 90 %.",
    kind="count",
)

prompt(
    "race.1",
    "Defend an entry for these eight desks, of which one may send garbage. What did you predict, which numbers are "
    "your evidence, and what do you decide? Name what your entry costs. Two or three sentences.",
    "I predicted that a median would cost a little time, and that garbage would break what waits for nobody. The "
    "evidence: beside garbage, four bits alone do not always get to 90 %; with the median of 7 they take 0.063 s and "
    "83 kB. I decide for the median of 7: it costs 0.068 s instead of 0.046 s with honest workers.",
    by=(
        "table: row['median of 7'][:4] == [0.068, 88, 0.063, 83]",
        "table: row['four bits'][0] == 0.046",
        "say race.2: missed >= 1",
    ),
    kind="count",
)

quiz(
    "race",
    Item(
        "Two entries send the same bytes in each step. Why may one need far fewer bytes to 90 %?",
        {
            "It needs fewer steps.": "Bytes to a target are bytes of a step times steps: the rate counts as much as "
            "the codec.",
            "Its messages are sent sooner.": "That changes the seconds. The bytes stay.",
            "Its model is smaller.": "On a track all entries train the same model.",
        },
        by="predict race.1",
    ),
    Item(
        "Why does the median not help an entry that waits for nobody?",
        {
            "Each push is applied alone.": "The median of one gradient is this gradient.",
            "Its pushes are too old.": "They are old, but honest ones were good enough here.",
            "A median needs exact values.": "With four bits it kept garbage out.",
        },
        by=("predict race.2", "check race.1"),
    ),
    Item(
        "The median of 7 keeps all limits in the table. Which one does the median of 8 break?",
        {
            "time": "Worker 5 is four times slower, and each round waits for it.",
            "bytes": "A round has one more push at most: 92 kB instead of 88.",
            "trust": "A median of 8 bears one liar as well.",
        },
        by="table race.1: row['median of 8'][0] > 0.1 and row['median of 8'][1] < 160",
    ),
    Item(
        "The judge's seeds follow from the entry's text. What does that prevent?",
        {
            "that an entry is tuned to its seeds": "Each change of the text brings other seeds, unknown before.",
            "that two machines differ": "The same text has the same seeds everywhere.",
            "that an entry is too slow": "The clock decides that.",
        },
        by="say race.3: len(digest) == 16",
    ),
    Item(
        "Why does a laptop's entry count as much as a cluster's?",
        {
            "Seconds are virtual.": "They follow from the track's network, its stragglers, and one calibration.",
            "The judge's machine is used.": "Any machine may be the judge: the digest is the same.",
            "Only bytes count.": "Seconds have a place of their own.",
        },
        by="say race.3: len(digest) == 16",
    ),
)

remember(
    "race",
    {
        "Bytes to a target": ("predict race.1", "say race.1: entry != 'four bits' or round(kb) == 110"),
        "The fastest entry": "say race.1: entry != 'nobody waits' or round(seconds, 3) == 0.022",
        "Garbage spoils": ("predict race.2", "say race.2: missed >= 1"),
        "One choice": "table race.1: row['median of 8'][0] > 1.8 * row['median of 7'][0]",
        "A figure": "say race.3: len(digest) == 16",
    },
)
