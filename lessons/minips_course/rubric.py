"""A rubric for the answers in words, and answers of three grades for each task, for the reader of a class' reports.

The full answer is the task's model answer, whose claims the lesson's own measurements decide, or the same with numbers
of the lesson as it is published. The partial one lacks a cause or a number. The poor one follows from a misconception,
which is named. `markdown` returns all of it as a page.
"""

from typing import NamedTuple

from minips.lab.course.courses import lesson_of
from minips.lab.course.lessons import lessons
from minips.lab.course.questions import PROMPTS
from minips_course import course


class Criterion(NamedTuple):
    """One thing that an answer is judged by, and what earns 2 points, 1 point and none."""

    name: str
    two: str
    one: str
    none: str


SENTENCES = (
    Criterion(
        "the cause",
        "Answers what was asked, and says what makes it so: a latency, a queue, a bias, an average, a rate.",
        "Answers what was asked, with half of a cause or with none.",
        "Repeats the table or the picture, answers something else, or has a wrong cause.",
    ),
    Criterion(
        "a number of one's own run",
        "Uses the numbers of the student's own table that decide, with their intervals where the table has some.",
        "Uses a right number that does not decide, or compares two means without their intervals.",
        "Has no number, or a number that the table contradicts.",
    ),
    Criterion(
        "the case",
        "Says for which link, rate, batch or workers it holds, or which measurement would change the answer.",
        "Says that it depends, but not on what.",
        "States a law: always, never, the best.",
    ),
)
"""The criteria for two sentences. They give 6 points."""

CAPSTONE = (
    Criterion(
        "the prediction",
        "Says what was predicted before the race and whether it came true, also where it did not.",
        "Names a prediction that anything would confirm, or does not say what became of it.",
        "Has no prediction, or one that was made after the result.",
    ),
    Criterion(
        "the evidence",
        "Gives the numbers that decide, of the own entry and of the best other one, beside garbage and with honest "
        "workers.",
        "Gives the numbers of one entry, or of one of the two cases.",
        "Has no number, or only the fastest one.",
    ),
    Criterion(
        "the decision",
        "Decides for an entry that keeps every limit, and says what it pays and what would make another one better.",
        "Decides for an entry that keeps the limits, without its price.",
        "Decides for an entry that breaks a limit, or does not decide.",
    ),
)
"""The criteria for the defence of an entry, at the end of the course. They give 6 points."""

DEFENCES = ("race.1",)
"""The tasks that are judged by `CAPSTONE`."""


class Graded(NamedTuple):
    """Answers to a task, and the misconception of the poor one. An empty ``full`` stands for the model answer."""

    partial: str
    poor: str
    misconception: str
    full: str = ""


ANSWERS = {
    "train.1": Graded(
        "I choose the top 5 %, since they send 0.168 MB where all values send 1.1 MB.",
        "I choose all values: whoever sends 5 % of a gradient learns from only 5 % of the images.",
        "Values of a gradient are taken for rows of the data.",
    ),
    "split.2": Graded(
        "I would change it from 500 images on, because there the plain mean is no longer exact.",
        "I would never change it. The mean of four means is the mean of all rows, whatever the shards are.",
        "A mean of means is believed to be the mean, also of unequal parts.",
    ),
    "batch.1": Graded(
        "With accumulate=4 the rate may be 3.1 times as high, and with accumulate=8 4.6 times.",
        "4 times and 8 times, because the mean of so many rows has so many times less noise.",
        "The rule of linear scaling is believed to have no end: the border of the curvature is forgotten.",
    ),
    "server.2": Graded(
        "BSP costs time, since the workers wait for the slowest one. ASP costs exactness, since gradients are old.",
        "BSP takes 1.66 s and ASP 0.58 s. So ASP does the same work in a third of the time and costs nothing.",
        "The same number of pushes is believed to be the same work: age, and whose data counts, are forgotten.",
    ),
    "lecture.2": Graded(
        "I fetch one copy if I look at an object often, since it takes 1091 bytes and calls take 3880.",
        "I always fetch a copy. It is the same object, so a change to it reaches the owner, too.",
        "A copy is taken for a reference.",
    ),
    "wire.2": Graded(
        "I choose msgpack, since it adds 51 bytes and json adds 183,647.",
        "I choose JSON, since every language reads it. A gradient takes the network the same time in every format.",
        "A format is believed to cost neither bytes nor time.",
        full="I choose msgpack: it adds 51 bytes where json adds 183,647, and with json the large array takes 815 "
        "times as long. For a few settings that people change by hand I would choose JSON, where its digits "
        "and its time do not matter.",
    ),
    "stranger.2": Graded(
        "I would load MessagePack, because a pickle can run a command while it is loaded.",
        "I would load a pickle behind a filter that forbids os.system. A damaged message raises an error anyway.",
        "A list of forbidden names is believed to be complete, and every damage to be noticed.",
        full="I would load a format that carries only values, such as MessagePack: a filter needs a list of names, "
        "and one name too many lets a command run. It will still load a changed value, as minips did in all "
        "12,240 cases, unless the message has a checksum or the connection is authenticated.",
    ),
    "squeeze.2": Graded(
        "I choose zstd 1 at 100 Mbit/s and none at 100 Gbit/s, because a fast line needs no compression.",
        "I choose zstd 1 on both lines. It makes the codes the smallest, and fewer bytes are always sooner there.",
        "The ratio alone is believed to decide: the time that compressing takes is forgotten.",
    ),
    "bits.1": Graded(
        "I choose signs, since they send 0.143 MB where 32 bits send 5.47 MB.",
        "I choose the top values, since 0.114 MB is the smallest number. The fewest bytes are the fastest on any link.",
        "Bytes alone are believed to decide: steps and intervals are forgotten.",
        full="I choose signs: they send 0.143 MB where the top values send 0.114 MB, but they need 24 ± 11 steps "
        "where those need 98 ± 22. On a link so slow that only bytes count I would run more seeds of these "
        "two.",
    ),
    "rounding.1": Graded(
        "Bias hurts 8 workers, since nearest rounding ends at a loss of 0.184 and random rounding at 0.147.",
        "Variance hurts, because random rounding adds noise. Nearest rounding has the least error in each value, so it "
        "trains best.",
        "The least error in one value is believed to be the least error of the mean.",
    ),
    "remember.2": Graded(
        "With the memory the accuracy is 94.0 %, and without it 86.8 %.",
        "The memory is worth what it is worth at 0.1. A comparison is fair only if both runs have the same rate.",
        "One rate for all schemes is taken for a fair comparison.",
    ),
    "fails.1": Graded(
        "The bound keeps the walks from going far beyond the minimum, but it loses a part of the gradient.",
        "The bound costs nothing. What it cuts off stays in the memory and is sent later.",
        "A bounded memory is believed to hold everything, as one without a bound does.",
    ),
    "spend.3": Graded(
        "U got the fewest bits for each value, because it has the most values.",
        "U got the most bits for each value, since the largest tensor matters most. The plan is better, as its mean "
        "shows.",
        "Bits are believed to go where the values are, and a mean is compared without its interval.",
    ),
    "spend.2": Graded(
        "Of W's harm nothing is left at the best rates, since its difference is only -0.001.",
        "Both harms are left. A better rate cannot bring back values that were not sent.",
        "The harm at one rate is believed to be the harm at every rate.",
    ),
    "move.2": Graded(
        "For 1 kB the column of α decides and for 1 MB that of β, so I choose tcp for the first.",
        "I choose shm for both, since its β is the least. 16 callers get 16 times as many answers, because none waits "
        "for another.",
        "One number is believed to decide for each size, and a server to have room for any number of callers.",
    ),
    "hide.2": Graded(
        "By α and β 4 calls under way take 0.312 s where 1 takes 1.152 s, and from 6 on nothing more is saved.",
        "16 calls under way take a sixteenth of the time, since calls under way do not disturb one another.",
        "The link is believed to carry all calls at once: only the latency can be hidden, not the bytes.",
    ),
    "survive.1": Graded(
        "Drawn waits with a server that knows the deadlines, since then all of 400 callers have an answer.",
        "Asking again at once, because a caller that asks more often is answered sooner.",
        "Another try is believed to be free: the load that it adds is forgotten.",
    ),
    "wait.2": Graded(
        "I choose a staleness of 8, since it takes 58 % of the rounds' time with 4 workers and 38 % with 16.",
        "I choose a staleness of 8 for both. A worker that is always slow catches up within the 8 steps.",
        "Staleness is believed to help against lasting slowness, as it does against slowness that comes and goes.",
    ),
    "stale.1": Graded(
        "I choose ASP for the digits, where it needs about half of BSP's time, and BSP for the patients.",
        "I choose ASP for both with the same momentum, since what never waits is the fastest on every problem.",
        "The rule that wins on one problem is believed to win on all: momentum multiplies what is old.",
    ),
    "stale.2": Graded(
        "The three differ by less than a quarter of their time, so fading pays little.",
        "Fading pays, since StalenessWeighted takes less time. It makes old gradients short, and only those do harm.",
        "What a smaller rate does to every step is taken for an effect of age.",
        full="Each at its own best rate, the mean needs 0.462 ± 0.070 s and the other two 0.400 ± 0.065 s, so "
        "fading pays little. StalenessWeighted's best rate is 1.899 and the mean's 0.785: it makes nearly "
        "every step shorter, and a smaller rate does that, too.",
    ),
    "trust.1": Graded(
        "I choose the median, since its accuracy in the worst case is 91.7 %.",
        "I choose the mean, since five honest phones outvote two broken ones.",
        "A mean is taken for a vote: a single large value moves it as far as it likes.",
        full="I choose the median: its accuracy in its worst case is 91.7 % ± 2.0 %, and the mean's is 0.2 %. If "
        "batches were so small that honest gradients scatter more than the length of their mean, I would test "
        "it against liars that agree.",
    ),
    "trust.2": Graded(
        "At 8 rows, where the accuracy is lower than at 16, 32 and 64 rows.",
        "A lie does the same harm at every batch size, since there are two traitors of seven each time.",
        "The share of liars alone is believed to decide: the scatter of the honest gradients is their cover.",
    ),
    "cost.2": Graded(
        "With shallow buffers the step takes 0.1829 s, several times as long as with deep ones.",
        "With shallow buffers the step is longer, because each message has a larger α and β there.",
        "Lost packets are believed to be in α and β: waiting for a packet that was sent again is in neither.",
    ),
    "pays.3": Graded(
        "In training, sign pays up to the higher bandwidth, because top 1 % needs more time.",
        "Both pay up to the same bandwidth, since a training is nothing but many messages.",
        "The break-even of a message is taken for that of a training: the number of steps is forgotten.",
    ),
    "pays.2": Graded(
        "Mine pays up to a higher bandwidth than fp16, because it needs less time for each value.",
        "The sentence is right. On a network of 10 Gbit/s half of the bytes cannot matter any more.",
        "The bandwidth alone is believed to decide, and not how fast this codec is on this processor.",
    ),
    "allreduce.2": Graded(
        "It has 12 rounds, as many as the tree, and sends 1.97 S, as many as the ring.",
        "It has the rounds of the tree, so it sends the 12 S of the tree: fewer rounds always cost more bytes.",
        "Rounds and bytes are believed to be one choice.",
    ),
    "network.3": Graded(
        "I trust the rows of two racks. The row of four servers over 20 kB fails, with 40 ms in virtual time and 164 "
        "ms on hosts.",
        "I trust all rows. Where the hosts take 164 ms and not 40, their processors are slower than the virtual ones.",
        "A queue that overflows is taken for a slow processor.",
    ),
    "network.2": Graded(
        "The ring needs the racks in order and halving-doubling needs zigzag, which is the fastest with 208 ms.",
        "The numbering does not matter. A schedule sends the same bytes in each of them.",
        "The sum of all bytes is believed to decide, and not those that cross the slow cable.",
    ),
    "ddp.2": Graded(
        "Flat is quicker than naive because it sends one message, and bucketed is quicker than flat.",
        "Overlap makes the step shorter, because fewer bytes have to be sent.",
        "Overlap is believed to save bytes: it only sends them while backward goes on.",
    ),
    "local.1": Graded(
        "I choose 30 steps, since they send 0.177 MB where an exchange in each step sends 5.28 MB.",
        "I choose 120 steps with the rate that is best for 1 step. Only the bytes change.",
        "Exchanging less often is believed to change nothing but bytes: the phones' models drift apart.",
    ),
    "links.1": Graded(
        "The slowest step over four servers with 50 kB takes 271 ms, about eight times the paper's 34.",
        "All steps with 50 kB are about eight times as long as on paper, since a real link has a larger β.",
        "The slowest step is taken for the usual one, and a time-out for a slow link.",
    ),
    "plug.1": Graded(
        "Under ASP I let the others go on, since the run takes 0.94 s either way.",
        "I never start it again. The others take over its rows under BSP, so that no gradient is missing.",
        "A barrier is believed to share out the work of a worker that is gone.",
    ),
    "race.1": Graded(
        "I decide for the median of 7. It takes 0.063 s beside garbage and 0.068 s with honest workers, and keeps the "
        "limits.",
        "I decide for the entry that waits for nobody, since 0.022 s is the fastest. The garbage of one desk of eight "
        "disappears in the mean.",
        "A mean is believed to dilute garbage, and the fastest honest run to win.",
    ),
}
"""Maps each task of the course to its answers. Their numbers are those of one run."""


def full(key: str) -> str:
    """Return the full answer to a task."""
    return ANSWERS[key].full or PROMPTS[key].example


def markdown() -> str:
    """Return the rubric and all graded answers as a page, ``RUBRIC.md``."""
    lines = [
        f"# A rubric for the answers of “{course.title}”",
        "",
        "Each answer gets 0 to 2 points for each of three criteria. From 5 points on it is full, from 3 on partial. If "
        "a task does not ask for a cause or a case, leave that criterion out, and judge by the share of the points.",
        "",
        *_table(SENTENCES),
        "",
        "Read an answer beside its table in the student's report: right numbers are those of the student's own run. "
        "The numbers below are those of the lessons as they are published. Where another machine, or another solution "
        "of the exercise, changes a number, the full answer below leaves it out; a student's answer has it.",
        "",
        "## The defence of an entry",
        "",
        f"The last lesson ends with a defence ({', '.join(DEFENCES)}), which has criteria of its own:",
        "",
        *_table(CAPSTONE),
    ]
    for lesson in lessons(course):
        keys = [key for key in ANSWERS if lesson_of(key) == lesson.word]
        lines += ["", f"## {lesson.number} {lesson.title}"] if keys else []
        for key in keys:
            answers = ANSWERS[key]
            lines += ["", f"**{key}.** {PROMPTS[key].task}", "", "| grade | an answer |", "|---|---|"]
            lines += [f"| full | {_cell(full(key))} |", f"| partial | {_cell(answers.partial)} |"]
            lines += [f"| poor | {_cell(answers.poor)} |", f"| its misconception | {_cell(answers.misconception)} |"]
    return "\n".join(lines) + "\n"


def _table(criteria: tuple[Criterion, ...]) -> list[str]:
    rows = [f"| {' | '.join(map(_cell, criterion))} |" for criterion in criteria]
    return ["| | 2 points | 1 point | 0 points |", "|---|---|---|---|", *rows]


def _cell(text: str) -> str:
    """Return a text for a cell of a table, where a bar would end the cell."""
    return text.replace("|", r"\|")
