"""The questions, sentences and quiz of "Do without a server"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    card,
    prompt,
    quiz,
    remember,
    sentence,
    timed_question,
    timed_sentence,
)

timed_question(
    "allreduce.1",
    "Four workers. How long does a step by ring take, compared with one server?",
    Expected(
        "clearly less",
        lambda share: share < 0.8,
        "One server's link carries the gradients of all four workers, and four answers. In the ring each link "
        "carries 1.5 gradients each way, and all links work at the same time. Here the bytes take much longer than the "
        "ring's six latencies.",
    ),
    Option(
        "about the same",
        lambda share: 0.8 <= share <= 1.25,
        "The ring's six hops cost as much as it saved in bytes: each hop costs a latency and processor time.",
    ),
    Option(
        "clearly more",
        lambda share: share > 1.25,
        "The ring's six hops follow each other. The fixed time of each hop outweighed the bytes that the ring saves.",
    ),
    otherwise="One of the two runs has no time of a step, so there is nothing to compare.",
    shown={"share": "a step by ring: {:.2f} of the time over one server"},
)

timed_question(
    "allreduce.2",
    "Four workers, a small gradient, a long way to travel. Which way is the slowest now?",
    Option(
        "the way over a server",
        lambda server, tree, ring: server > max(tree, ring),
        "Its two messages took longer than the four or six of the other ways: the server was busy with something else.",
    ),
    Option(
        "the way up and down the tree",
        lambda server, tree, ring: tree > max(server, ring),
        "Each of its four hops carries the full gradient, and the bytes took longer than the latencies.",
    ),
    Expected(
        "the way round the ring",
        lambda server, tree, ring: ring > max(server, tree),
        "The ring has six hops, one after the other, and each of them costs a latency. Tree and halving-doubling have "
        "four, a server has two. With few bytes only the latencies count.",
    ),
    otherwise="Two of the ways took the same time, or one of them has no time.",
    shown={
        "server": "the way over a server: {:.3f} s",
        "tree": "the way up and down the tree: {:.3f} s",
        "ring": "the way round the ring: {:.3f} s",
    },
)

sentence(
    "allreduce.1",
    "Three ways, four workers: {right} of {of} arrays at the end are the sum.",
    expect="right == of",
    kind="identity",
)

sentence(
    "allreduce.2",
    "The hops and bytes counted in the schedules are those of the formulas in {same} of {of} cases, with 2 to 64 "
    "workers.",
    expect="same == of",
    kind="identity",
)

timed_sentence(
    "allreduce.3",
    "A step, as a share of one server's: ring {ring[1]:.0%} (the middle half of five steps: {ring[0]:.0%} to "
    "{ring[2]:.0%}), halving-doubling {halving[1]:.0%} ({halving[0]:.0%} to {halving[2]:.0%}), tree {tree[1]:.0%} "
    "({tree[0]:.0%} to {tree[2]:.0%}).",
    expect="ring[2] < 0.7 and halving[2] < 0.7 and ring[2] < tree[0]",
)

timed_sentence(
    "allreduce.4",
    "One server: the least time is {least:.0%} of that of two phases. Measured: {one[1]:.0%} (the middle half: "
    "{one[0]:.0%} to {one[2]:.0%}).",
    expect="0.9 * least < one[1] < 0.9",
)

timed_sentence(
    "allreduce.5",
    "Compared with their formulas, four servers take {four[1]:.0%} (the middle half: {four[0]:.0%} to {four[2]:.0%}), "
    "the ring {ring[1]:.0%} ({ring[0]:.0%} to {ring[2]:.0%}).",
    expect="0.9 < four[1] < 1.6 and 0.9 < ring[1] < 1.4",
)

sentence(
    "allreduce.6",
    "With 8 workers one server in two phases takes {phases:.1f} times as long as the ring, and {least:.1f} times in "
    "the best order.",
    expect="9 < phases < 9.3 and 5 < least < 5.3",
    kind="count",
)

timed_sentence(
    "allreduce.7",
    "A step, as a share of one server's: ring {ring[1]:.0%} (the middle half of five steps: {ring[0]:.0%} to "
    "{ring[2]:.0%}), tree {tree[1]:.0%} ({tree[0]:.0%} to {tree[2]:.0%}).",
    expect="ring[0] > tree[2] and tree[0] > 1.3",
)

sentence(
    "allreduce.8",
    "64 workers, by the formulas: ring {ring[0]:.0f} latencies and {ring[1]:.2f} S/B, tree that sends everything "
    "{tree[0]:.0f} and {tree[1]:.0f}, tree in pieces {pieces[0]:.0f} and {pieces[1]:.2f}. (For 8 workers, 100 kB and "
    "a thousandth of a second for each message by itself, {best:.0f} pieces would be best.)",
    expect="ring[1] < 2 and 4 < pieces[1] < 6 and tree[1] == 12 and ring[0] > 10 * tree[0] == 10 * pieces[0] and "
    "14 < best < 22",
    kind="count",
)

timed_sentence(
    "allreduce.9",
    "Measured: the ring takes {few[1]:.0%} of one server's time with 8 kB (the middle half of four steps: "
    "{few[0]:.0%} to {few[2]:.0%}) and {many[1]:.0%} with 100 kB ({many[0]:.0%} to {many[2]:.0%}).",
    expect="few[0] > 1 > many[2]",
)

timed_sentence(
    "allreduce.10",
    "100 kB: the tree in pieces takes {found[1]:.0%} of the time of the tree that sends everything at each hop (the "
    "middle half: {found[0]:.0%} to {found[2]:.0%}). By the formulas it is {formula:.0%}.",
    expect="found[1] < 1",
)

timed_sentence(
    "allreduce.11",
    "Measured: from four to eight workers the time grows by these factors (with the middle half): one server "
    "{one[1]:.2f} ({one[0]:.2f} to {one[2]:.2f}), ring {ring[1]:.2f} ({ring[0]:.2f} to {ring[2]:.2f}), "
    "halving-doubling {halving[1]:.2f} ({halving[0]:.2f} to {halving[2]:.2f}), as many servers as workers {n[1]:.2f} "
    "({n[0]:.2f} to {n[2]:.2f}).",
    expect="one[0] > 1.3 and n[2] < one[0]",
)

timed_sentence(
    "allreduce.12",
    "Your exchange trained {replicas} worker processes, whose parameters at the end have {digests} SHA-256: all are "
    "the same. A step takes {times:.1f} times as long as with the ring.",
    expect="replicas == 4 and digests == 1",
)

sentence(
    "allreduce.13",
    "Each at its best learning rate: the held-out loss is {whole:.3f} with 32 bits, and with 16 bits {more:+.1e} ± "
    "{half:.0e} higher (five seeds, in pairs). Bytes: {share:.0%}, since headers do not shrink.",
    expect="abs(more) + half < 0.01 * whole and share < 0.7",
    kind="comparison",
)

sentence(
    "allreduce.14",
    "The error with fp16 grows by these factors: ring {ring[0]:.1f} ± {ring[1]:.1f}, tree {tree[0]:.1f} ± "
    "{tree[1]:.1f}, halving-doubling {halving[0]:.1f} ± {halving[1]:.1f}.",
    expect="ring[0] - ring[1] > 2 and max(tree[0] + tree[1], halving[0] + halving[1]) < 1.6",
    kind="single",
)

sentence(
    "allreduce.15", "Zigzag takes {times:.1f} times as long, in virtual time.", expect="3 < times < 5", kind="count"
)

timed_sentence(
    "allreduce.16",
    "Beside one pull of the neighbour, our pull takes {virtual[1]:.2f} times as long in virtual time and "
    "{emulated[1]:.2f} times as long over the emulated link (medians). Beside two: {virtual[2]:.2f} and "
    "{emulated[2]:.2f} times.",
    expect="1.8 < virtual[1] < 2.1 and 2.6 < virtual[2] < 3.1 and 1.3 < emulated[1] < 2.4 < emulated[2] < 5",
)

card(
    "allreduce.17",
    "n = {n}: each worker sent {sent:.3f} S per step, the bound is {bound:.3f} S.",
    expect="1 <= sent / bound < 1.06",
    kind="identity",
)

prompt(
    "allreduce.1",
    "Between which two of the measured sizes does the ring overtake the tree, and does your formula's size lie between "
    "them? Give the numbers. Two sentences.",
    "The tree is the faster one up to 12 kB, where the ratio is above 1 by more than its interval, and the ring from "
    "48 kB on. The right formula says 23.5 kB for eight workers, which lies between; 10 kB, right for four, does not.",
    by=(
        "timed table: row['12'][0] - row['12'][1] > 1 > row['48'][0] + row['48'][1]",
        "table: abs(row['by your formula'][0] - (23.5 if solved else 10)) < 0.1",
        "check allreduce.1",
    ),
    kind="time",
)

quiz(
    "allreduce",
    Item(
        "A ring of eight workers. How many bytes does each of them send in a step?",
        {
            "1.75 S, all to one neighbour": "There are 14 hops, each with a piece of S/8: 2 · 7/8 · S.",
            "7 S, once to each of the others": "A worker sends pieces, and only to one neighbour. The pieces are "
            "added up on the way.",
            "16 S, as many as over a server": "The link of a single server carries that: eight gradients in, and "
            "eight answers out.",
        },
        by="say allreduce.17: 2 * 7 / 8 == 1.75",
    ),
    Item(
        "Four workers and one server took far less than the formula with two phases. Why?",
        {
            "pushes came in while pulls went out": "The first worker that gets its answer pushes again while the "
            "others still pull: a full-duplex link carries both.",
            "the emulated link is faster than it says, since no byte leaves the machine": "The emulator holds each "
            "message back for S/B + α, and the ring took as long as its formula says.",
            "the workers' processes had copies": "Each pull brings all the parameters.",
        },
        by="say allreduce.4",
    ),
    Item(
        "What changes in a tree if pieces follow each other?",
        {
            "all levels work at once": "While one piece travels on one level, others travel on the other levels. So "
            "the bytes cost about 4 S/B, however many workers there are.",
            "fewer bytes cross each link, since a piece is small": "All pieces together have as many bytes as before.",
            "the latencies go away": "The first piece still has to pass each level, and each level costs a latency.",
        },
        by=("say allreduce.10", "check allreduce.2"),
    ),
    Item(
        "The times measured here agree with the formulas. What does that say about a real network?",
        {
            "little: our link was made of them": "The agreement says that we counted messages, order "
            "and waiting correctly. Our link has no overflowing switches and no lost packets.",
            "that a ring will beat a server in it": "That depends on its α and B, and on what the formulas leave out.",
            "that processes cost nothing": "Processes add little time here, because these links are slow. With a "
            "fast link their share may be large.",
        },
        by="say allreduce.5",
    ),
    Item(
        "By the formulas, as many servers as workers take about as long as a ring, for a large gradient. Why?",
        {
            "each link carries the same share": "No link carries more than the others. A step takes 2 S/B; a ring's "
            "takes 2(n − 1)/n · S/B.",
            "no node receives from two others at once": "With n servers each node receives from all others at once; in "
            "a ring it receives from one.",
            "a server is faster than a worker": "All nodes have the same link here.",
        },
        by=("say allreduce.5", "say allreduce.11"),
    ),
)

remember(
    "allreduce",
    {
        "An all-reduce": ("say allreduce.2", "say allreduce.5"),
        "A ring sends": ("say allreduce.2", "say allreduce.17", "say allreduce.8"),
        "A tree that": ("say allreduce.8", "say allreduce.10"),
        "One server's": ("say allreduce.6", "say allreduce.11"),
        "With as many": ("say allreduce.5", "say allreduce.11"),
    },
)
