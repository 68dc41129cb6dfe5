"""The questions, sentences and quiz of "Write a server that waits"."""

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
)

question(
    "server.3",
    "Of workers 0 to 3, worker 3 takes four times as long for a step as the others. The run ends when the server has "
    "80 pushes. How long does it take under ASP, compared with BSP?",
    Option(
        "about as long",
        lambda asp, bsp: 0.9 * bsp <= asp <= 1.1 * bsp and bsp > 0,
        "The other workers had to wait for worker 3 under both rules.",
    ),
    Option(
        "about three quarters as long",
        lambda asp, bsp: 0.65 * bsp <= asp <= 0.85 * bsp and bsp > 0,
        "Under ASP the other workers were held up, but less than under BSP.",
    ),
    Expected(
        "about a third as long",
        lambda asp, bsp: 0.27 * bsp <= asp <= 0.42 * bsp and bsp > 0,
        "Under BSP, each round of four pushes takes as long as a step of worker 3. Under ASP, the other three workers "
        "push at their own pace, and worker 3 adds a push now and then.",
    ),
    otherwise="The ratio of the two times lies between two of the options.",
    shown={"asp": "ASP: {:.2f} virtual s", "bsp": "BSP: {:.2f} virtual s"},
    kind="count",
)

timed_question(
    "server.2",
    "Four workers train twice with the same seed, and nobody waits. There are five such pairs of runs. How far apart "
    "are a pair's final parameters?",
    Option(
        "not at all: every bit is the same",
        lambda least, most: least == most == 0,
        "In each pair of runs the messages happened to arrive in orders that gave the same bits.",
    ),
    Option(
        "by rounding: less than a hundred-thousandth of the largest parameter",
        lambda least, most: 0 < most < 1e-5 and least >= 0,
        "The same gradients were added in another order, and only the rounding differs.",
    ),
    Expected(
        "by more than rounding, in each of five pairs",
        lambda least, most: 1e-5 <= least <= most,
        "The seed fixes each worker's batches, but not the order in which messages arrive. Another order gives a "
        "worker other parameters, so other gradients, and so on from step to step. The operating system decides that "
        "order anew in each run.",
    ),
    otherwise="Some of the five pairs differ by more than rounding, and some do not.",
    shown={
        "least": "the nearest of five pairs: {:.1g} of the largest parameter",
        "most": "the farthest of five pairs: {:.1g} of the largest parameter",
    },
)

sentence(
    "server.4",
    "Worker 0 pushes: {first}. May it pull now? {early}. Worker 1 pushes: {second}. May worker 0 pull now? {late}. "
    "The parameters are {moved}: minus the mean of (2, 0) and (0, 4). Worker 1 sends its push again: {again}.",
    expect="first == 'held' and not early and second == 'applied' and late and moved == [-1.0, -2.0] and "
    "again == 'duplicate'",
    kind="identity",
)

sentence(
    "server.5",
    "With worker 3 four times slower: under BSP the workers waited {waited:.0%} of their time, and the largest "
    "staleness was {old}. Under ASP they waited {idle:.0%} of it, and the largest staleness was {stalest}; {slow} of "
    "80 pushes came from worker 3.",
    expect="abs(waited - 0.54) < 0.005 and old == 0 and idle == 0 and stalest > 3 and slow == 7",
    kind="count",
)

sentence(
    "server.6",
    "With a server that waits for whole rounds, two runs with the same seed differ by {most:g} at most (five pairs).",
    expect="most == 0",
    kind="identity",
)

prompt(
    "server.2",
    "In two sentences, with numbers from the table: what does BSP cost, and what does ASP cost?",
    "BSP costs time: its workers wait 54 % of it, and the run takes 1.66 s rather than 0.58 s. Under ASP, gradients "
    "are old, 2.9 versions on average and 12 at most, and the data of the slow worker counts for little, with 7 of 80 "
    "pushes.",
    by=("table: row['BSP'][:2] == [1.66, 54]", "table: row['ASP'] == [0.58, 0, 7, 80, 2.9, 12]"),
    kind="count",
)

quiz(
    "server",
    Item(
        "Why does handle return a list of answers rather than one answer?",
        {
            "A push may be answered later, and then several workers at once.": "Under BSP, a held push gets no answer "
            "yet. When the last push completes the round, the server answers all workers.",
            "A pull has many arrays, and each is an answer.": "One answer contains all arrays of a pull: a dict of "
            "named arrays.",
            "Every message has to be sent to all workers.": "Only the worker that asked gets the answer to a pull.",
        },
        by="check server.1",
    ),
    Item(
        "What makes a gradient stale?",
        {
            "Pushes of other workers, applied between a worker's pull and its push.": "Each of them makes a new "
            "version, so the gradient is applied to newer parameters than those it was computed from.",
            "A slow link between a worker and the server, by itself.": "A slow link gives other workers more time to "
            "push. With only one worker nothing is stale, however slow the link.",
            "A learning rate that is too large for so many workers.": "The learning rate "
            "decides how much a stale gradient matters. It "
            "does not change the number of versions in between.",
        },
        by="say server.5: old == 0 and stalest > 3",
    ),
    Item(
        "One of four workers is four times slower. What share of all pushes comes from it under ASP?",
        {
            "less than a tenth": "The others push at their own pace. So the slow worker's data counts for less, too.",
            "a quarter": "That holds under BSP, where each round has one push of each worker.",
            "none: the server drops late pushes": "Under ASP the server applies each push, however old the parameters "
            "are from which it was computed.",
        },
        by="say server.5: slow < 8",
    ),
    Item(
        "Why add the gradients of a round in the workers' order?",
        {
            "Sums of rounded numbers depend on their order.": "The order of arrival differs from run to run. In a "
            "fixed order, the same gradients give the same bits.",
            "Otherwise the mean would be wrong by a factor.": "In any order, only the last bits of the mean differ.",
            "The first worker's gradient counts most.": "All gradients of a round count equally in the mean.",
        },
        by=("check server.1", "say server.6: most == 0"),
    ),
    Item(
        "An answer to a push gets lost, and the worker sends the push again. What does minips' Shard do?",
        {
            "It does not apply the push again.": "A push in minips contains the worker's clock. A second push with the "
            "same clock is a duplicate. Our server would take it for a new push.",
            "It applies the push twice.": "Our server under ASP does so: to it, a repeated push looks like a new one.",
            "It waits for the other workers to repeat theirs, too.": "Their pushes were applied, and nobody repeats "
            "them.",
        },
        by="say server.4: again == 'duplicate'",
    ),
)

remember(
    "server",
    {
        "A server decides": ("check server.1", "say server.4"),
        "These decisions fit": ("check server.1", "check server.2"),
        "With one worker four times slower": "say server.5: abs(waited - 0.54) < 0.005 and old == 0",
        "Under ASP nobody waited": "say server.5: idle == 0 and slow == 7",
        "A server that waits": "say server.6: most == 0",
    },
)

RETIRED = {"predict": (1,), "say": (1, 2, 3), "answer": (1,)}
"""The numbers of keys of earlier editions, by kind: none is used again."""
