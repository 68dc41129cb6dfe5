"""The questions, sentences and quiz of "Match a schedule to a network"."""

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
    timed_sentence,
)

question(
    "network.1",
    "Two racks, eight workers, 400 kB. How long does halving-doubling take, compared with a ring?",
    Option(
        "about as long",
        lambda times: 0.7 < times < 1.4,
        "Both sent equally many bytes over the cable, as over the links of a star.",
    ),
    Expected(
        "2 to 3 times as long",
        lambda times: 2 <= times <= 3,
        "Halving-doubling begins with the partner in the other rack, with half of everything: four messages share the "
        "cable. Over the whole step 4 S cross it each way. In a ring one worker of a rack sends to the other rack, "
        "1.75 S over the whole step.",
    ),
    Option(
        "more than 4 times as long",
        lambda times: times > 4,
        "The cable carried more than four times as many bytes as in a ring.",
    ),
    otherwise="The ratio is between two of the options, or a time is missing.",
    shown={"times": "halving-doubling: {:.2f} times the time of a ring"},
    kind="count",
)

timed_question(
    "network.3",
    "On a star of hosts, the switch holds at most 20 kB for each link. How long does a step over four servers take, "
    "compared with a ring?",
    Option(
        "less than 1.5 times as long",
        lambda times: times < 1.5,
        "The small queues cost both about as much, or neither of them anything.",
    ),
    Option(
        "1.5 times to twice as long",
        lambda times: 1.5 <= times <= 2,
        "The queues in front of the servers overflowed, but most packets were sent again soon.",
    ),
    Expected(
        "more than twice as long",
        lambda times: times > 2,
        "Each server receives from all four workers at the same time, and the switch's queue in front of it overflows: "
        "incast. TCP sends lost packets again, some only after a time-out of 0.2 s, and that step waits for them. In a "
        "ring each node receives from one, which sends no faster than the link carries away.",
    ),
    otherwise="One of the two has no time.",
    shown={"times": "four servers: {:.1f} times the time of a ring"},
)

sentence(
    "network.1",
    "{kB:g} kB over a star, ms of a step: one server {server:.0f}, eight servers {servers:.0f}, ring {ring:.0f}, tree "
    "{tree:.0f}, halving-doubling {halving:.0f}.",
    expect="ring > 2 * max(server, servers, tree, halving) and servers < server < halving if kB < 10 "
    "else servers < 1.2 * halving < 1.2 * ring < tree < server",
    kind="count",
)

sentence(
    "network.2",
    "{workers} workers in two racks: ring {ring:.0f} virtual ms a step, halving-doubling {halving:.0f}.",
    expect="0.25 * workers < halving / ring < 0.4 * workers and abs(ring * workers / (workers - 1) / 320 - 1) < 0.02",
    kind="count",
)

timed_sentence(
    "network.3",
    "Two racks, time on hosts over virtual time: four servers {servers:.2f}, ring {ring:.2f}, zigzag ring "
    "{zigzag:.2f}, tree {tree:.2f}, halving-doubling {halving:.2f}.",
    expect="0.9 < min(servers, ring, zigzag, tree, halving) and max(servers, ring, zigzag, tree, halving) < 1.5",
)

timed_sentence(
    "network.4",
    "The zigzag ring takes {times:.2f} times the ring's time on hosts, {virtual:.2f} times in virtual time.",
    expect="1.5 < times < 2.8 and 1.9 < virtual < 2.2",
)

timed_sentence(
    "network.7",
    "Hosts, {network}, ms of a step: ring {ring:.0f}, with {ring_again:.0f} packets sent again in six steps; four "
    "servers {servers:.0f}, with {servers_again:.0f} packets.",
    expect="servers > 2 * ring if ',' in network else servers < 2 * ring",
)

sentence(
    "network.6",
    "Your three numbers: eight workers in zigzag, a ring takes {ring:.0f} virtual ms a step, and yours {mine:.0f}. "
    "Halving-doubling takes {halving:.0f} there.",
    expect="abs(ring / mine - (4.15 if mine < ring else 1)) < 0.1 and halving < min(ring, mine)",
    kind="count",
)

prompt(
    "network.3",
    "In which rows of the table would you trust the virtual time, and which row fails? Name a cause, and the two "
    "times of that row. Two sentences.",
    "In two racks with deep queues I trust the virtual times: all five ways take little longer on hosts. Four servers "
    "over a switch with 20 kB fail, with 40 in virtual time and far more on hosts: each server receives from all "
    "workers at once, the switch's queue overflows, and TCP waits before it sends some of the lost packets again.",
    by=(
        "timed table: row['star, 20 kB, servers'][0] == 40 and row['star, 20 kB, servers'][1] > 60",
        "say network.3",
        "say network.7",
        "predict network.3",
    ),
    kind="time",
)

prompt(
    "network.2",
    "Which numbering does each of the two schedules need, and which of the four rows is the fastest? Say why, with the "
    "bytes that cross the cable. Two sentences.",
    "A ring needs the racks in order, so that one message crosses each way in a hop; halving-doubling needs zigzag, so "
    "that only its smallest messages cross. Halving-doubling in zigzag is the fastest, 208 virtual ms: 1 S "
    "crosses each way, and 1.75 S in a ring.",
    by=(
        "table: 2 * 7 / 8 == 1.75 and row['ring, in order'][-1] < row['ring, in zigzag'][-1]",
        "table: row['halving, in zigzag'][-1] == 208 < min(row['ring, in order'][-1], row['halving, in order'][-1])",
        "check network.2",
        "predict network.1",
    ),
    kind="count",
)

quiz(
    "network",
    Item(
        "A gradient of 2 kB, links with a long latency, eight workers. Which of these is the slowest?",
        {
            "a ring": "It has 14 hops, one after the other, and each of them costs a latency.",
            "a tree": "Its six hops cost six latencies, and the bytes hardly count.",
            "one server": "A push and an answer are two latencies, and the bytes hardly count.",
        },
        by="say network.1: kB > 10 or ring > max(tree, server)",
    ),
    Item(
        "Two racks in order. With more workers, halving-doubling falls further behind a ring. Why?",
        {
            "in its first hop all workers of a rack cross": "Each sends half of everything to its partner in the other "
            "rack, and all of them share the cable.",
            "it has more hops": "It has fewer hops than a ring: 2 log₂ n, not 2(n − 1).",
            "a worker sends more bytes": "In both, a worker sends 2(n − 1)/n · S.",
        },
        by=("say network.2", "predict network.1"),
    ),
    Item(
        "What does a ring over two racks need?",
        {
            "neighbours in the ring mostly share a rack": "Then one message crosses the cable each way in a hop.",
            "neighbours are in different racks": "Then all messages cross the cable in each hop.",
            "fewer pieces": "The pieces decide how long a hop is, not how many messages cross.",
        },
        by=("say network.4", "check network.1"),
    ),
    Item(
        "A switch's queues are shallow. Why does a ring suffer so much less?",
        {
            "each node receives from one": "Its one sender is no faster than its link, so hardly a queue fills in "
            "front of it.",
            "its messages are lost less often, since TCP favours neighbours": "TCP knows no neighbours. Queues fill "
            "where several send to one.",
            "it sends fewer bytes": "Four servers receive about as many bytes a link, and suffered far more.",
        },
        by="say network.7",
    ),
    Item(
        "Virtual times and a formula agree. What does that say about a real network?",
        {
            "little: both leave out queues and TCP": "With a shallow switch between hosts, four servers took far "
            "longer than in virtual time.",
            "that both are right there": "They agreed for four servers as well, before the queues were shallow.",
            "that the network has no latency": "Both count latencies.",
        },
        by=("say network.7", "say network.3"),
    ),
)

remember(
    "network",
    {
        "Few bytes": "say network.1",
        "A ring fits": ("say network.6", "check network.1"),
        "The fastest": ("say network.1", "say network.2", "say network.6"),
        "In two racks": ("say network.3", "say network.4"),
        "Shallow queues": ("say network.7", "predict network.3"),
    },
)

RETIRED = {"predict": (2,), "say": (5,), "answer": (1,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
