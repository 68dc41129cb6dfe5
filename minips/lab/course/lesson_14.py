"""Lesson 14: wait, or don't."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course import own
from minips.lab.course.exercises import asks, case, conforms, drawn_seed, equals, refuse_if
from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    card,
    prompt,
    question,
    quiz,
    sentence,
    timed_question,
    timed_sentence,
)
from minips.stage import Array


def _longest(rule: str) -> Callable[..., bool]:
    """True where this rule took longer than each of the others."""
    return lambda **took: all(took[rule] > time for name, time in took.items() if name != rule)


timed_question(
    "14.1",
    "Worker 3 is always four times slower than the others. Which of these three rules takes longest for the same "
    "number of updates?",
    Option(
        "BSP with one backup worker",
        _longest("backup"),
        "A round needs three pushes, and the three fast workers did not bring them as fast as their steps are short.",
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
        "Nobody waits under ASP, so computing and messages took that time: this machine was busy with something else.",
    ),
    otherwise="Two of them took equally long, or a time is missing.",
)

question(
    "14.2",
    "Four workers, exponential times. How long does a BSP round take on average, counted in mean times of a step?",
    Option(
        "about 1 mean time",
        lambda ratio: 0.75 < ratio < 1.5,
        "Long and short steps evened out within a round: the slowest of four took hardly longer than the mean.",
    ),
    Expected(
        "about 2 mean times",
        lambda ratio: 1.5 < ratio < 3,
        "A round ends with the slowest of its four steps. A single long step is enough to make all wait.",
    ),
    Option(
        "about 4 mean times",
        lambda ratio: 3 < ratio < 6,
        "The slowest of four took as long as four steps one after the other.",
    ),
    otherwise="The slowest of four took less than one step does on average, or more than six of them.",
)

timed_sentence(
    "14.1",
    "Share of BSP's time, mean of five repeats: one backup {backup:.0%} ± {d_backup:.0%}, SSP {ssp:.0%} ± {d_ssp:.0%}, "
    "ASP {asp:.0%} ± {d_asp:.0%}.",
    expect="backup < 0.6 and asp < 0.6 and 0.75 < ssp < 1.05",
)

timed_sentence(
    "14.2",
    "In the run of the picture worker 3 started {bsp} steps under BSP, {backup} with one backup, {ssp} under SSP, "
    "{asp} under ASP, until {updates} updates were made.",
    expect="bsp == updates / 4 and ssp >= bsp - 4 and backup < 0.75 * bsp and asp < 0.75 * bsp",
)

card(
    "14.3",
    "s = {s}: in {reads} reads the largest lag was {most}.",
    expect="most <= s and reads == 100",
)

timed_sentence(
    "14.4",
    "Without a bound (ASP) {beyond} of {reads} reads lagged by more than 3, and the worst one by {most}.",
    expect="beyond > 0",
)

sentence(
    "14.5",
    "Mean times of a step that four updates take, five seeds: BSP {bsp:.2f} ± {d_bsp:.2f}, one backup {backup:.2f} ± "
    "{d_backup:.2f}, SSP {ssp:.2f} ± {d_ssp:.2f}, ASP {asp:.2f} ± {d_asp:.2f}.",
    expect="abs(bsp - 25 / 12) < 0.05 and abs(asp - 1) < 0.05 and asp + d_asp < ssp - d_ssp "
    "and ssp + d_ssp < backup - d_backup and ssp + d_ssp < bsp - d_bsp and ssp - asp < (bsp - asp) / 2",
)

timed_sentence(
    "14.6",
    "The real runs take {ratio[1]:.2f} times the virtual time with the same draws (median of {runs} pairs; quartiles "
    "{ratio[0]:.2f} and {ratio[2]:.2f}).",
    expect="0.95 < ratio[1] < 1.5",
)

sentence(
    "14.7",
    "One backup saves {formula:.0%} of BSP's time by the formula, {abandon:.0%} ± {d_abandon:.0%} if late workers "
    "abandon their step, {finish:.0%} ± {d_finish:.0%} if they finish it (five seeds, 300 steps).",
    expect="abs(abandon - formula) < 0.05 and 0.05 < finish - d_finish and finish + d_finish < formula / 2",
)

sentence(
    "14.8",
    "Mean times of a step that four updates take: {mine:.2f} ± {d_mine:.2f} under your rule with every=3, {ssp:.2f} ± "
    "{d_ssp:.2f} under SSP with s = 2.",
)

prompt(
    "14.2",
    "Slowness comes and goes. Which staleness would you choose for this server, by which number and its interval? And "
    "what would you do if one worker were always four times slower? Two sentences.",
    "I choose a staleness of 8: its time is the least, its interval lies below that of 1, and the interval of "
    "the accuracy's difference shows no loss worth that time. Against a worker that is always slow no staleness helps "
    "for long, so I would give that worker fewer rows, or go on without it.",
)

quiz(
    "14",
    Item(
        "BSP with one backup worker: what becomes of a push that comes after its round?",
        {
            "it is dropped": "The round was made without it, and the parameters have moved on. It counts as late.",
            "it is part of the next round": "Each push belongs to the round of its clock, and that round is over.",
            "it is applied by a quarter": "So it would be under SSP and ASP, where there are no rounds.",
        },
    ),
    Item(
        "A worker is at clock 7 under SSP with s = 3. Which clock must the slowest worker have reached, so that it may "
        "pull?",
        {
            "4": "It may be 3 clocks ahead of the slowest, and 7 − 3 = 4.",
            "3": "The bound is on the lead, 7 minus the slowest clock, and not on the slowest clock itself.",
            "7": "That is s = 0: nobody is ahead of anybody.",
        },
    ),
    Item(
        "One worker is always slower than the others. Why does SSP save so little?",
        {
            "the lead is soon used up": "A lead of s clocks is won once, at the start. After it each step of the "
            "others waits for a step of the slow one.",
            "it drops the slow pushes": "Under SSP no push is dropped. Backup workers drop some.",
            "its pulls take longer": "A pull may wait, and that is the rule's doing; the message itself is the same.",
        },
    ),
    Item(
        "Exponential times: why does a BSP round of eight workers take longer than one of four?",
        {
            "the largest of more draws is larger": "H₈ is H₄ + 1/5 + 1/6 + 1/7 + 1/8.",
            "each of the eight takes longer to compute": "A step's mean time is the same, however many workers there "
            "are.",
            "the server applies twice as many pushes": "In virtual time applying takes no time, and a round of more "
            "workers is longer there as well.",
        },
    ),
    Item(
        "Why does a backup worker save less here than its formula says?",
        {
            "late workers finish their steps": "The formula lets them start the next round with the others. Here they "
            "start it late, and are late again more often.",
            "messages take up the difference": "The saving was measured in virtual time, without messages.",
            "a round has a gradient less": "The formula counts that: it is multiplied by n/(n − b).",
        },
    ),
)


@asks(
    "14.1",
    "Which meeting has a worker at this clock come to last? With every = 4 it is 8 for the clocks 8, 9, 10 and 11.",
    "In may_pull: clock // self.every numbers the meetings from 0. When was the last one, and who must have come?",
    "One comparison: the slowest clock against the last meeting.",
)
def meet(rule: Any, rng: np.random.Generator) -> str:
    """Relax may_pull: the workers run free, and meet at every multiple of `every`."""
    conforms(rule, ps.Consistency, "Meet()")
    names = [field.name for field in dataclasses.fields(rule)]
    refuse_if(names != ["every"], f"Expected the field every; got {rule!r}.")
    refuse_if(rule.quorum(4) is not None, f"quorum(4) is {rule.quorum(4)}. Leave it at None: there are no rounds.")
    for every in (1, 2, *map(int, rng.integers(3, 12, size=3))):
        mine = dataclasses.replace(rule, every=every)
        for clock in map(int, [*range(2 * every + 1), *rng.integers(0, 200, size=20)]):
            for slowest in range(max(clock - 2 * every - 1, 0), clock + 2):
                may, meeting = mine.may_pull(clock, slowest), clock - clock % every
                with case(f"With every={every}, may_pull(clock={clock}, slowest={slowest}) is {may}."):
                    refuse_if(may and slowest < meeting, f"The slowest has not come to the meeting at {meeting} yet.")
                    refuse_if(not may and slowest >= meeting, f"Both have been at the meeting at {meeting}.")
    slow, every = int(rng.integers(3)), int(rng.integers(3, 6))
    mine, delays = dataclasses.replace(rule, every=every), ps.Delays(seconds=0.004, slow={slow: 4.0})
    config = ps.Config(workers=3, steps=3 * every, consistency=mine, delays=delays, seed=drawn_seed(rng))
    run = ps.train(ps.LinearRegression(*ps.datasets.diabetes()), config, engine=ps.Threads())
    for clock, slowest in ((grant.clock, grant.slowest) for grant in run.grants):
        with case(f"In a run with every={every}"):
            early = slowest < clock - clock % every
            refuse_if(early, f"a worker at clock {clock} went on, the slowest at {slowest}.")
    lead = max(grant.clock - grant.slowest for grant in run.grants)
    return f"Right for random clocks. In a run with every={every} the largest lead was {lead} clocks."


@asks(
    "14.2",
    "A worker whose push is not answered cannot pull. So whose push may stay without an answer, and until when?",
    "Each push moves a clock, and may move the slowest one. Then workers whose pushes came earlier may be free, too: "
    "keep those that wait, and look at all of them after each push.",
    "In __init__ an empty collection of those that wait. handle changes it twice: first for the sender, then for those "
    "whom the clocks now set free. Which of them get an answer?",
)
def own_bound(server: Any, rng: np.random.Generator) -> str:
    """Keep SSP's bound in your server: answer a push once its worker is at most `staleness` clocks ahead."""
    lacks = not isinstance(server, type) or not hasattr(server, "handle") or not hasattr(server, "staleness")
    refuse_if(lacks, f"Expected your class Server with handle and staleness, got {server!r}.")
    for _ in range(3):
        own.check_bound(server, rng)
    return "Pushes in random orders, 2 to 5 workers, staleness 0 to 99: each was answered in its time, and none twice."


@asks(
    "14.3",
    "Keep a table of when each worker has completed each clock, and fill it clock by clock.",
    "Two things must have happened before a worker starts clock c: one of its own, and one of the slowest worker. "
    "may_pull of SSP says which clock the slowest must have completed.",
    "For each c a worker starts at the later of two times. The second one plays no part while c is small.",
)
def finish_time(function: Any, rng: np.random.Generator) -> str:
    """Make finish_time, of times and staleness, answer for SSP."""
    refuse_if(not callable(function), f"Expected the function finish_time, got {function!r}.")
    for turn in range(30):
        clocks, workers = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        times = rng.integers(1, 10, size=(clocks, workers)).astype(float)
        if turn % 3 == 0:
            times[:, rng.integers(workers)] *= 5
        for staleness in (0, int(rng.integers(1, 4)), clocks):
            with case(f"For staleness={staleness} and times={times.astype(int).tolist()}"):
                equals(function(times.copy(), staleness), _ssp_seconds(times, staleness))
    return "Right for 90 random cases, from BSP (staleness 0) to no waiting at all."


def _ssp_seconds(times: Array, staleness: int) -> float:
    """When the last worker is done: it waits, before each clock, for the slowest to be ``staleness`` clocks behind."""
    clocks, workers = times.shape
    ends = [[0.0] * workers]
    for clock in range(clocks):
        gate = max(ends[max(clock - staleness, 0)])
        ends.append([max(ends[-1][worker], gate) + float(times[clock, worker]) for worker in range(workers)])
    return max(ends[-1])
