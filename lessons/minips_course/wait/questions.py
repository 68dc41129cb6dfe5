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
    timed_question,
    timed_sentence,
)


def _longest(rule: str) -> Callable[..., bool]:
    """Return the condition that this rule took longer than each of the others."""
    return lambda **took: all(took[rule] > time for name, time in took.items() if name != rule)


timed_question(
    "wait.1",
    "Worker 3 is always four times slower than the others. Which of these three rules takes longest for the same "
    "number of updates?",
    Option(
        "BSP with one backup worker",
        _longest("backup"),
        "A round needs three pushes, and the fast workers took longer to push than to compute.",
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
        "Nobody waits under ASP, so computing and messages took this time: the machine was busy with something else.",
    ),
    otherwise="Two of them took equally long, or a time is missing.",
    shown={
        "backup": "BSP with one backup worker: {:.2f} of BSP's time",
        "ssp": "SSP, two clocks ahead: {:.2f} of BSP's time",
        "asp": "ASP, which never waits: {:.2f} of BSP's time",
    },
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

timed_sentence(
    "wait.1",
    "Share of BSP's time, mean of five repeats: one backup {backup:.0%} ± {d_backup:.0%}, SSP {ssp:.0%} ± {d_ssp:.0%}, "
    "ASP {asp:.0%} ± {d_asp:.0%}.",
    expect="backup < 0.6 and asp < 0.6 and 0.75 < ssp < 1.05",
)

timed_sentence(
    "wait.2",
    "In the run of the picture worker 3 started {bsp} steps under BSP, {backup} with one backup, {ssp} under SSP, "
    "{asp} under ASP, until {updates} updates were made.",
    expect="bsp == updates / 4 and ssp >= bsp - 4 and backup < 0.75 * bsp and asp < 0.75 * bsp",
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
    "wait.5",
    "Time of four updates, in mean times of a step, five seeds: BSP {bsp:.2f} ± {d_bsp:.2f}, one backup {backup:.2f} "
    "± {d_backup:.2f}, SSP {ssp:.2f} ± {d_ssp:.2f}, ASP {asp:.2f} ± {d_asp:.2f}.",
    expect="abs(bsp - 25 / 12) < 0.05 and abs(asp - 1) < 0.05 and asp + d_asp < ssp - d_ssp "
    "and ssp + d_ssp < backup - d_backup and ssp + d_ssp < bsp - d_bsp and ssp - asp < (bsp - asp) / 2",
    kind="count",
)

timed_sentence(
    "wait.6",
    "The real runs take {ratio[1]:.2f} times the virtual time with the same draws (median of {runs} pairs; quartiles "
    "{ratio[0]:.2f} and {ratio[2]:.2f}).",
    expect="0.95 < ratio[1] < 1.5",
)

sentence(
    "wait.7",
    "{workers} workers: one backup saves {formula:.0%} of BSP's time by the formula, {abandon:.0%} ± {d_abandon:.0%} "
    "if late workers abandon their step, {finish:.0%} ± {d_finish:.0%} if they finish it (five seeds, 300 steps).",
    expect="abs(abandon - formula) < 0.05 and 0.05 < finish - d_finish and finish + d_finish < formula",
    kind="single",
)

sentence(
    "wait.9",
    "If late workers finish their step, what one backup saves is {four:.0%} of the formula's figure with 4 workers, "
    "{eight:.0%} with 8, {sixteen:.0%} with 16.",
    expect="four < 0.5 < eight < sixteen and 0.7 < sixteen < 0.9",
    kind="count",
)

sentence(
    "wait.8",
    "Time of four updates, in mean times of a step: {mine:.2f} ± {d_mine:.2f} under your rule with every=3, {ssp:.2f} "
    "± {d_ssp:.2f} under SSP with s = 2.",
    kind="count",
)

sentence(
    "wait.10",
    "In pairs of seeds, staleness 8 takes {less:.0f} ± {half:.0f} % of the rounds' time less than staleness 1.",
    expect="less - half > 0",
    kind="count",
)

sentence(
    "wait.12",
    "minips' SSP with a staleness of 8 reads {more:+.2f} ± {half:.2f} percentage points more than its BSP, each at its "
    "best learning rate (five seeds, in pairs).",
    expect="abs(more) + half < 1",
    kind="comparison",
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
    "I choose a staleness of 8: it takes less time than a staleness of 1, by more than the interval of their "
    "difference, and the accuracy of this rule differs from that of rounds by less than a percentage point. Against a "
    "worker that is always slow no staleness helps for long, so I would give that worker fewer rows, or go on without "
    "it.",
    by=("say wait.10", "say wait.12: abs(more) + half < 1", "predict wait.1"),
    kind="time",
)

quiz(
    "wait",
    Item(
        "BSP with one backup worker: what becomes of a push that comes after its round?",
        {
            "it is dropped": "The round was made without it, and the parameters have moved on. It counts as late.",
            "it is part of the next round": "Each push belongs to the round of its clock, and that round is over.",
            "it is applied by a quarter": "SSP and ASP would apply a quarter of it: they have no rounds.",
        },
        by="say stale.16",
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
        by=("predict wait.2", "say wait.5"),
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
        "BSP waits": ("say wait.1", "say wait.2"),
        "SSP's bound": "say wait.3",
        "If one worker": ("predict wait.1", "say wait.2"),
        "With exponential": ("predict wait.2", "say wait.5"),
        "A formula has": ("say wait.7", "say wait.9"),
    },
)
