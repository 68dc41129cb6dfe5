"""The questions, sentences and quiz of "Write a server in forty lines"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    quiz,
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
        "Twice as many workers pushed, and yet hardly more pushes fell between a worker's pull and its push. That "
        "can happen where the workers take their turns in larger blocks.",
    ),
    Expected(
        "about twice as stale",
        lambda four, eight: 1.3 * four < eight <= 3.5 * four and four > 0,
        "Only the pushes of other workers make a gradient stale. Each such push falls at most once between a worker's "
        "pull and its next push. So the mean over all gradients is n − 1 at most: 3 with four workers, 7 with eight; a "
        "single gradient can be staler. The mean is less, since some pushes fall between a push and the next pull.",
    ),
    Option(
        "more than 3.5 times as stale",
        lambda four, eight: eight > 3.5 * four > 0,
        "With four workers hardly any push fell between a pull and a push, with eight many did. That can happen where "
        "the machine has cores for four workers and not for eight.",
    ),
    otherwise="With four workers no gradient was stale at all, so there is nothing to compare with.",
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
        "The same gradients were added in another order, and only their rounding differs.",
    ),
    Expected(
        "by more than rounding, in each of five pairs",
        lambda least, most: 1e-5 <= least <= most,
        "The seed fixes each worker's batches, but not the order in which messages arrive. Another order gives a "
        "worker other parameters, so other gradients, and so on from step to step. The operating system decides that "
        "order anew in each run.",
    ),
    otherwise="Some of the five pairs differ by more than rounding, and some do not.",
)

sentence(
    "server.1",
    "Trained by hand with four workers, the model reads {mean:.1%} ± {half:.1%} of the held-out digits (five seeds, "
    "95 % interval).",
    expect="mean - half > 0.9",
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
)

sentence(
    "server.4",
    "Worker 0 pushes: {first}. May it pull now? {early}. Worker 1 pushes: {second}. May worker 0 pull now? {late}. "
    "The parameters are {moved}: minus the mean of (2, 0) and (0, 4). Worker 1 sends its push again: {again}.",
    expect="first == 'held' and not early and second == 'applied' and late and moved == [-1.0, -2.0] and "
    "again == 'duplicate'",
)

prompt(
    "server.1",
    "In two sentences: what does the server that waits give you that the other one does not, and is one of them more "
    "accurate here? Use the interval of the difference.",
    "With BSP two runs of one seed end at the same bits, with ASP they do not. If zero lies in the 95 % interval of "
    "the difference in accuracy, these five seeds show no difference.",
)

quiz(
    "server",
    Item(
        "Why does handle return a list of answers, and not one answer?",
        {
            "A push may be answered later, and then several workers at once.": "Under BSP a push that is held gets no "
            "answer, and the push that completes a round brings the answers of all workers.",
            "A pull has many arrays, and each is an answer.": "All arrays of a pull travel in one answer: a dict "
            "of named arrays.",
            "Every message has to be sent to all workers.": "The answer to a pull goes to the worker that asked, and "
            "to nobody else.",
        },
    ),
    Item(
        "What makes a gradient stale?",
        {
            "Pushes of other workers between a worker's pull and its push.": "Each of them makes a new version, so the "
            "gradient is applied to other parameters than the ones it was computed from.",
            "A slow link between a worker and the server, by itself.": "A slow link gives "
            "others more time to push. With one worker alone nothing is stale, "
            "however slow the link is.",
            "A learning rate that is too large for so many workers.": "The learning rate "
            "decides how much a stale gradient matters. It "
            "does not change the number of versions in between.",
        },
    ),
    Item(
        "Under BSP, why does our server need no rule for pulls?",
        {
            "A worker waits for the answer to its push before it pulls.": "That answer comes when the round is whole, "
            "so each pull sees the parameters of a whole round.",
            "Pulls change nothing, so their time does not matter.": "They change nothing, but their time matters: a "
            "worker that pulls before its round is whole computes its next gradient from the old parameters.",
            "The loop takes pulls last.": "The loop takes messages as they arrive. It knows nothing of their kinds.",
        },
    ),
    Item(
        "Why add the gradients of a round in the workers' order?",
        {
            "Sums of rounded numbers depend on their order.": "The arrival differs from run to run. With a fixed "
            "order the same gradients give the same bits.",
            "Otherwise the mean would be wrong by a factor.": "The mean is right in any order, but for its last bits.",
            "The first worker's gradient counts most.": "All gradients of a round count the same in the mean.",
        },
    ),
    Item(
        "An answer to a push gets lost, and the worker sends the push again. What does our server under ASP do?",
        {
            "It applies the gradient twice.": "Nothing in a message tells a repeated push from a new one. minips' "
            "pushes carry the worker's clock, and a second one with the same clock is a duplicate.",
            "It answers with an error.": "It has no way to tell that the push is a repetition.",
            "It applies the gradient once.": "For that, it would have to remember which pushes it has applied, and "
            "the push would have to say which one it is.",
        },
    ),
)
