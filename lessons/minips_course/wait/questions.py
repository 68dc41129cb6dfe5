"""The questions, sentences and quiz of "Wait, or don't"."""

from collections.abc import Callable

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    card,
    prompt,
    question,
    quiz,
    remember,
    sentence,
    timed_sentence,
)


def _longest(rule: str) -> Callable[..., bool]:
    """Return the condition that this rule took longer than each of the others."""
    return lambda **took: all(took[rule] > time for name, time in took.items() if name != rule)


question(
    "wait.1",
    "Worker 3 is always four times slower than the others. Which of these three rules takes longest for the same "
    "number of updates?",
    Option(
        "BSP with one backup worker",
        _longest("backup"),
        "A round needs three pushes, and took longer than a step of worker 3.",
    ),
    Expected(
        "SSP, two clocks ahead",
        _longest("ssp"),
        "The fast workers use up their lead of two clocks in the first steps. From then on each of their "
        "steps waits for a step of worker 3, as under BSP.",
    ),
    Option(
        "ASP, which never waits",
        _longest("asp"),
        "Nobody waits under ASP, so this is the time of the steps themselves.",
    ),
    otherwise="Two of them took equally long, or a time is missing.",
    shown={
        "backup": "BSP with one backup worker: {:.2f} of BSP's time",
        "ssp": "SSP, two clocks ahead: {:.2f} of BSP's time",
        "asp": "ASP, which never waits: {:.2f} of BSP's time",
    },
    kind="count",
)

question(
    "wait.2",
    "Four workers, exponential times. How long does a BSP round take on average, counted in mean times of a step?",
    Option(
        "about 1 mean time",
        lambda ratio: 0.75 < ratio < 1.5,
        "Long and short steps evened out within a round: the slowest step of four took little longer than the mean.",
    ),
    Expected(
        "about 2 mean times",
        lambda ratio: 1.5 < ratio < 3,
        "A round ends with the slowest of its four steps. A single long step is enough to make all wait.",
    ),
    Option(
        "about 4 mean times",
        lambda ratio: 3 < ratio < 6,
        "The slowest step of four took as long as four steps one after another.",
    ),
    otherwise="The slowest step of four took less than three quarters of a mean time, or more than six mean times.",
    kind="identity",
    shown={"ratio": "a round of BSP: {:.2f} mean times of a step"},
)

card(
    "wait.3",
    "s = {s}: in {reads} reads the largest lag was {most}.",
    expect="most <= s and reads == 100",
    kind="identity",
)

timed_sentence(
    "wait.4",
    "Without a bound (ASP) {beyond} of {reads} reads lagged by more than 3, and the worst one by {most}.",
    expect="beyond > 0",
)

sentence(
    "wait.7",
    "{workers} workers: one backup saves {formula:.0%} of BSP's time by the formula, {abandon:.0%} ± {d_abandon:.0%} "
    "if late workers abandon their step, {finish:.0%} ± {d_finish:.0%} if they finish it (five seeds, 300 steps).",
    expect="abs(abandon - formula) < 0.05 and 0.05 < finish - d_finish and finish + d_finish < formula",
    kind="single",
)

sentence(
    "wait.12",
    "minips' SSP with a staleness of 8 reads {more:+.2f} ± {half:.2f} percentage points more than its BSP, each at its "
    "best learning rate (five seeds, in pairs).",
    expect="abs(more) + half < 1",
    kind="comparison",
)

sentence(
    "wait.13",
    "{workers} workers, worker 3 always four times slower, 20 updates of each: one backup takes {backup:.0%} of BSP's "
    "time, SSP (s = 2) {SSP:.0%}, ASP {ASP:.0%}.",
    expect="backup < 0.4 and ASP < 0.4 and 0.9 < SSP < 0.95",
    kind="count",
)

sentence(
    "wait.14",
    "{workers} workers, slowness comes and goes: an update of each takes {BSP.mean:.2f} ± {BSP.half:.2f} mean times "
    "under BSP ({H:.2f} by the formula), {backup.mean:.2f} ± {backup.half:.2f} with one backup, {SSP.mean:.2f} ± "
    "{SSP.half:.2f} under SSP (s = 2), {ASP.mean:.2f} ± {ASP.half:.2f} under ASP.",
    expect="abs(BSP.mean - H) < 0.05 and abs(ASP.mean - 1) < 0.05 and SSP.mean + SSP.half < backup.mean - backup.half "
    "and backup.mean < BSP.mean and 0.25 < (SSP.mean - ASP.mean) / (BSP.mean - ASP.mean) < 0.35",
    kind="count",
)

sentence(
    "wait.15",
    "By your function {workers} workers take {one:.0%} of BSP's time with s = 1, {eight:.0%} with s = 8.",
    kind="count",
)

timed_sentence(
    "wait.11",
    "A real run with staleness 8 takes {times:.2f} times the virtual time with the same draws.",
    expect="0.95 < times < 2",
)

prompt(
    "wait.2",
    "Slowness comes and goes. Which staleness would you choose for this server, by which number and its interval? And "
    "what would you do if one worker were always four times slower? Two sentences.",
    "I choose a staleness of 8: it takes 58 % of the rounds' time with 4 workers and 38 % with 16, less than a "
    "staleness of 1 by more than the intervals. Against a worker that is always slow no staleness helps for long, so I "
    "would give that worker fewer rows, or go on without it.",
    by=(
        "table: 'staleness 8' in table and row['4'][2] == 58 and row['4'][2] + row['4'][3] < row['4'][0] - row['4'][1]",
        "table: row['16'][2] == 38 and row['16'][2] + row['16'][3] < row['16'][0] - row['16'][1]",
        "predict wait.1",
        "say wait.13",
    ),
    kind="count",
)

quiz(
    "wait",
    Item(
        "Slowness comes and goes. What does SSP save of BSP's time with 16 workers, compared with four?",
        {
            "more": "BSP waits for the slowest of 16 steps in place of four. SSP lets workers run on until one of them "
            "is far behind.",
            "as much": "The time of SSP grows with the number of workers, too, but less than that of BSP.",
            "less": "With more workers BSP waits longer in each round, so there is more to save.",
        },
        by="say wait.14: workers == 8 or (SSP.mean / BSP.mean > 0.6) == (workers == 4) != (SSP.mean / BSP.mean < 0.52)",
    ),
    Item(
        "A worker is at clock 7 under SSP with s = 3. Which clock must the slowest worker have reached, so that it may "
        "pull?",
        {
            "4": "It may be 3 clocks ahead of the slowest, and 7 − 3 = 4.",
            "3": "The bound limits the lead, 7 minus the slowest clock, and not the slowest clock itself.",
            "7": "That would be s = 0, where no worker may be ahead of another.",
        },
        by="say wait.3: 7 - 3 == 4",
    ),
    Item(
        "One worker is always slower than the others. Why does SSP save so little?",
        {
            "the lead is soon used up": "The others gain a lead of s clocks once, at the start. After that each of "
            "their steps waits for a step of the slow worker.",
            "it drops the slow pushes": "SSP drops no push. BSP with backup workers drops some.",
            "its pulls take longer": "The rule may make a pull wait, but the message itself takes as long as before.",
        },
        by="predict wait.1",
    ),
    Item(
        "Exponential times: why does a BSP round of eight workers take longer than one of four?",
        {
            "the largest of more draws is larger": "Eight workers take H₈ mean times: H₄ + 1/5 + 1/6 + 1/7 + 1/8.",
            "each of the eight takes longer to compute": "A step's mean time is the same, however many workers there "
            "are.",
            "the server applies twice as many pushes": "In virtual time applying takes no time, and a round of more "
            "workers is longer there as well.",
        },
        by=("predict wait.2", "say wait.14"),
    ),
    Item(
        "Why does a backup worker save less here than its formula says?",
        {
            "late workers finish their steps": "The formula lets late workers start the next round with the others. "
            "Here they start it late, and so are late again more often.",
            "messages take up the difference": "The saving was measured in virtual time, without messages.",
            "a round has a gradient less": "The formula accounts for that: it is multiplied by n/(n − b).",
        },
        by="say wait.7",
    ),
)

remember(
    "wait",
    {
        "BSP waits": "say wait.13",
        "SSP's bound": "say wait.3",
        "With one worker": ("predict wait.1", "say wait.13: workers in (4, 8, 16) and round(100 * SSP) == 91"),
        "With exponential": (
            "predict wait.2",
            "say wait.14: abs((BSP.mean - SSP.mean) / (BSP.mean - ASP.mean) - 0.7) < 0.03",
        ),
        "A backup": "say wait.7: [workers, round(100 * finish), round(100 * formula)] in "
        "([4, 12, 31], [8, 18, 28], [16, 20, 25])",
    },
)

RETIRED = {"say": (1, 2, 5, 6, 8, 9, 10), "check": (1,)}
"""The numbers of keys of earlier editions, by kind: none is used again."""
