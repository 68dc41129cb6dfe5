"""The questions, sentences and quiz of "Write a server in forty lines"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    quiz,
    remember,
    sentence,
    timed_question,
    timed_sentence,
)

timed_question(
    "server.1",
    "Each worker takes 100 steps, and nobody waits. With eight workers: how stale is a gradient on average, compared "
    "with four?",
    Option(
        "about as stale",
        lambda four, eight: 0 <= eight <= 1.3 * four > 0,
        "Twice as many workers pushed, but hardly more pushes fell between a worker's pull and its push. That can "
        "happen if each worker takes several steps before the next worker runs.",
    ),
    Expected(
        "about twice as stale",
        lambda four, eight: 1.6 * four <= eight <= 2.8 * four and four > 0,
        "Only the pushes of other workers make a gradient stale. Each such push falls at most once between a worker's "
        "pull and its next push. So the mean over all gradients is n − 1 at most: 3 with four workers, 7 with eight; a "
        "single gradient can be staler. The mean is less, since some pushes fall between a push and the next pull.",
    ),
    Option(
        "more than 3.5 times as stale",
        lambda four, eight: eight > 3.5 * four > 0,
        "With four workers, few pushes fell between a worker's pull and its push; with eight, many did. That can "
        "happen if the machine has enough cores for four workers but not for eight.",
    ),
    otherwise="The ratio lies between two of the options, or with four workers no gradient was stale at all.",
    shown={
        "four": "mean staleness, four workers: {:.1f} versions",
        "eight": "mean staleness, eight workers: {:.1f} versions",
    },
)

timed_question(
    "server.2",
    "Four workers train twice with the same seed, and nobody waits. How far apart do the two runs end?",
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
    "server.1",
    "Trained by hand with four workers, the model reads {mean:.1%} ± {half:.1%} of the held-out digits (five seeds, "
    "95 % interval).",
    expect="mean - half > 0.9",
    kind="single",
)

timed_sentence(
    "server.2",
    "{name}: a gradient is {mean:.2f} versions stale on average (five runs, from {low:.2f} to {high:.2f}); the stalest "
    "one was {most}.",
    expect="low > 0",
)

sentence(
    "server.3",
    "With a server that waits for whole rounds, two runs with the same seed differ by {most:g} at most (five pairs). "
    "The largest staleness in them is {old}.",
    expect="most == 0 and old == 0",
    kind="identity",
)

sentence(
    "server.4",
    "Worker 0 pushes: {first}. May it pull now? {early}. Worker 1 pushes: {second}. May worker 0 pull now? {late}. "
    "The parameters are {moved}: minus the mean of (2, 0) and (0, 4). Worker 1 sends its push again: {again}.",
    expect="first == 'held' and not early and second == 'applied' and late and moved == [-1.0, -2.0] and "
    "again == 'duplicate'",
    kind="identity",
)

prompt(
    "server.1",
    "In two sentences: what does the server that waits give you that the other one does not, by which numbers of the "
    "table? And what does the table not say?",
    "With BSP two runs of one seed end at the same bits, and no gradient is stale; with ASP neither is so. The table "
    "does not say which rule trains better: for that each needs its own learning rate.",
    by=("table: row['BSP'] == [0, 0, 0]", "timed table: min(row['ASP']) > 0"),
    kind="identity",
)

quiz(
    "server",
    Item(
        "Why does handle return a list of answers, and not one answer?",
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
            "Pushes of other workers between a worker's pull and its push.": "Each such push makes a new version, so "
            "the gradient is applied to newer parameters than those it was computed from.",
            "A slow link between a worker and the server, by itself.": "A slow link gives other workers more time to "
            "push. With only one worker nothing is stale, however slow the link.",
            "A learning rate that is too large for so many workers.": "The learning rate "
            "decides how much a stale gradient matters. It "
            "does not change the number of versions in between.",
        },
        by="predict server.1",
    ),
    Item(
        "Under BSP, why does our server need no rule for pulls?",
        {
            "A worker waits for the answer to its push before it pulls.": "The answer arrives when the round is "
            "complete, so each pull gets parameters after a complete round.",
            "Pulls change nothing, so their time does not matter.": "Pulls change nothing, but their time matters: a "
            "worker that pulls before its round is complete computes its next gradient from the old parameters.",
            "The loop takes pulls last.": "The loop handles messages as they arrive, whatever their kinds.",
        },
        by="say server.3: old == 0",
    ),
    Item(
        "Why add the gradients of a round in the workers' order?",
        {
            "Sums of rounded numbers depend on their order.": "The order of arrival differs from run to run. In a "
            "fixed order, the same gradients give the same bits.",
            "Otherwise the mean would be wrong by a factor.": "In any order, only the last bits of the mean differ.",
            "The first worker's gradient counts most.": "All gradients of a round count equally in the mean.",
        },
        by=("say server.3", "say split.5"),
    ),
    Item(
        "An answer to a push gets lost, and the worker sends the push again. What does our server under ASP do?",
        {
            "It applies the gradient twice.": "To our server, a repeated push looks like a new one. A push in minips "
            "contains the worker's clock, and a second push with the same clock is a duplicate.",
            "It answers with an error.": "It cannot know that the push is a repetition.",
            "It applies the gradient once.": "For that, each push would need a number, and the server would have to "
            "remember which pushes it has applied.",
        },
        by="say hide.4",
    ),
)

remember(
    "server",
    {
        "A server decides": ("check server.1", "say server.4"),
        "These decisions fit": ("check server.1", "check server.2"),
        "A gradient's staleness": "say server.2",
        "A server that applies": "predict server.2",
        "A server that waits": "say server.3",
    },
)
