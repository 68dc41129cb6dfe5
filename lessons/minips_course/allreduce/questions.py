"""The questions, sentences and quiz of "Add up without a server"."""

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
    "allreduce.3",
    "Eight workers in a ring send only to their right neighbours. How many bytes does each send, until all hold the "
    "sum?",
    Option(
        "about S",
        lambda sent: sent < 1.4,
        "Each gradient went into the sum, and each worker got the sum: it takes more than S for both.",
    ),
    Expected(
        "about 2 S",
        lambda sent: 1.4 <= sent < 3,
        "14 rounds carry a piece of S/8 each. A piece is added up on its way, so no whole gradient has to go around.",
    ),
    Option(
        "about 7 S",
        lambda sent: sent >= 3,
        "Seven whole gradients passed each worker: they were not added up on their way.",
    ),
    otherwise="The schedule has no bytes, so there is nothing to compare.",
    shown={"sent": "each worker of the ring sends: {:.2f} S"},
    kind="count",
)

question(
    "allreduce.4",
    "With 64 workers, how many times as many rounds as halving does the ring need?",
    Option(
        "up to 2 times",
        lambda times: times < 2,
        "The ring needed about as many rounds as partners that halve and double.",
    ),
    Option(
        "2 to 5 times",
        lambda times: 2 <= times <= 5,
        "The ring's rounds grew faster than those of partners that halve and double.",
    ),
    Expected(
        "more than 5 times",
        lambda times: times > 5,
        "A piece of the ring visits 63 neighbours, twice: 126 rounds. With 64 workers a gradient can be halved six "
        "times, and doubled six times: 12 rounds.",
    ),
    otherwise="One of the two schedules has no rounds, so there is nothing to compare.",
    shown={"times": "the ring's rounds: {:.1f} times as many"},
    kind="count",
)

sentence(
    "allreduce.1",
    "Three ways, four workers: {right} of {of} arrays at the end are the sum.",
    expect="right == of",
    kind="identity",
)

sentence(
    "allreduce.2",
    "The rounds and bytes that you counted are those of the formulas in {same} of {of} cases, with 2 to 64 workers.",
    expect="same == of",
    kind="identity",
)

timed_sentence(
    "allreduce.12",
    "Your exchange trained {replicas} worker processes, whose parameters at the end have {digests} SHA-256: all are "
    "the same. A step takes {times:.1f} times as long as with the ring.",
    expect="replicas == 4 and digests == 1",
)

timed_sentence(
    "allreduce.18",
    "Measured: the ring takes {ring[0]:.1f} latencies, the tree {tree[0]:.1f}, halving {halving[0]:.1f}. With "
    "bandwidth alone, they take {ring[1]:.2f}, {tree[1]:.2f} and {halving[1]:.2f} transfers of a gradient, S/B each.",
    expect="ring[0] > 1.4 * max(tree[0], halving[0]) and tree[1] > 1.5 * max(ring[1], halving[1])",
)

sentence(
    "allreduce.19",
    "64 workers: the ring has {ring[0]} rounds and the tree {tree[0]}. The longest messages of all rounds have "
    "{ring[1]:.2f} S in the ring, {tree[1]:.0f} S in the tree, and {pieces:.1f} S in a tree that sends 64 pieces, one "
    "after the other.",
    expect="ring[0] > 10 * tree[0] and tree[1] == 12 and 4 < pieces < 4.5 and 1.9 < ring[1] < 2",
    kind="count",
)

sentence(
    "allreduce.20",
    "In a ring of four each worker sends {whole:.2f} S a step, headers included, and with "
    "`push=ps.Codec(ps.Float16())` {half:.2f} S.",
    expect="1.5 < whole < 1.6 and 0.75 < half < 0.9",
    kind="count",
)

sentence(
    "allreduce.21",
    "Your schedule trained {replicas} worker processes, whose parameters at the end have {digests} SHA-256: all are "
    "the same.",
    expect="replicas == 4 and digests == 1",
    kind="identity",
)

timed_sentence(
    "allreduce.22",
    "Your two numbers: among eight workers the ring took {ring:.1f} latencies, and your schedule {yours:.2f} S/B.",
    expect="13.9 < ring < 28 and 1.7 < yours < 28",
)

prompt(
    "allreduce.2",
    "Your schedule costs rounds and bytes. Which of the two does it share with the ring, and which with the tree? And "
    "for which numbers of workers do you still need a ring or a tree? Give the numbers. Two sentences.",
    "With 64 workers mine has 12 rounds, as many as the tree, and 1.97 S, as many as the ring, which needs 126 "
    "rounds. It halves only powers of two evenly, so other numbers of workers need another schedule.",
    by=(
        "table: head.startswith('64 workers') and row['ring'] == [126, 1.97] and row['tree'] == [12, 12]",
        "table: row['yours'] == ([12, 1.97] if solved else [126, 126])",
        "check allreduce.3",
    ),
    kind="count",
)

quiz(
    "allreduce",
    Item(
        "A ring grows from 8 to 16 workers. What happens to its rounds, and to the bytes that each worker sends?",
        {
            "rounds double, bytes hardly change": "14 rounds become 30, and 1.75 S become 1.875 S: 2(n − 1)/n · S.",
            "rounds stay, bytes double": "A piece has to visit all workers, so there are more rounds. But pieces get "
            "smaller.",
            "both double": "There are twice as many rounds, but each carries a piece of half the size.",
        },
        by="say allreduce.2",
    ),
    Item(
        "In the second half of a schedule an incoming piece replaces the local one. What if it were added?",
        {
            "own values would be counted twice": "The incoming piece is complete: it already contains the local one.",
            "nothing, the sum is the same": "A complete sum plus a partial one is not the sum.",
            "the ranks would wait for each other": "Adding changes the values, and not who sends when.",
        },
        by="check allreduce.3",
    ),
    Item(
        "What changes in a tree if pieces follow each other?",
        {
            "all levels work at once": "While one piece travels on one level, others travel on the other levels. So "
            "the bytes cost about 4 S/B, however many workers there are.",
            "fewer bytes cross each link, since a piece is small": "All pieces together have as many bytes as before.",
            "the latencies go away": "The first piece still has to pass each level, and each level costs a latency.",
        },
        by=("say allreduce.19", "check allreduce.2"),
    ),
    Item(
        "The rounds and bytes measured here are nearly those counted. What does that say about a real network?",
        {
            "little: our link was made of latency and bandwidth": "The agreement says that we counted messages, order "
            "and waiting correctly. Our link has no overflowing switches and no lost packets.",
            "that a ring will beat a tree in it": "That depends on its latency and bandwidth, and on the gradient.",
            "that processors cost nothing": "They add little here, because these links are slow. With a fast link "
            "their share may be large.",
        },
        by="say allreduce.18",
    ),
    Item(
        "A program computes in `mixed_float16`, and adds up its gradients by an all-reduce. Which bits travel?",
        {
            "those that the codec of the messages makes": "The policy says in which bits a layer computes. Variables "
            "and their gradients keep 32 bits, until a codec or a compression makes them 16.",
            "16, since it computes in 16": "Its variables have 32 bits, and so have their gradients.",
            "16 in a ring, and 32 in a tree": "The schedule says who sends which piece, and not in how many bits.",
        },
        by="say allreduce.20",
    ),
)

remember(
    "allreduce",
    {
        "A schedule is": ("say allreduce.1", "check allreduce.3"),
        "A ring sends": ("say allreduce.2", "say allreduce.18", "say allreduce.22"),
        "A tree has": ("say allreduce.2", "say allreduce.19"),
        "Halving, then": ("say allreduce.2", "check allreduce.3", "say allreduce.22"),
        "Pieces that": ("say allreduce.19", "check allreduce.2"),
    },
)

RETIRED = {"predict": (1, 2), "say": (*range(3, 12), *range(13, 18)), "answer": (1,), "check": (1,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
