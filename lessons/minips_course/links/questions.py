"""The questions, sentences and quiz of "Meet a real network"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    quiz,
    remember,
    sentence,
    timed_estimate,
    timed_question,
    timed_sentence,
)

timed_estimate(
    "links.1",
    "Four workers and four servers have a link each, where a byte takes 84 ns, both ways at once. In a step each worker "
    "pushes 50 kB to each server; a server with all four pushes answers each worker with 50 kB. Neglect α. How long is "
    "a step?",
    "s",
    expected=(0.025, 0.09),
    because="Each link carries 200 kB in pushes, which take 0.0168 s, and then 200 kB in answers: 0.0336 s. The hosts "
    "took longer. Their flows share a link unevenly, so a server waits for the last push while its link carries less "
    "than it could; and the software of each message, which two cores run for eight hosts, is in no β.",
    otherwise="The links alone take 0.034 s. If a step took far longer than 0.05 s, other programs ran, too.",
)

timed_question(
    "links.2",
    "Each end of a link now holds at most 50 kB. Which median step is shorter, the one over four servers or the one "
    "over one server?",
    Option(
        "over four servers, at least by half",
        lambda times: 0 < times <= 0.5,
        "The smaller queues cost both little, and four links carry more than one.",
    ),
    Option(
        "over four servers, by less than half",
        lambda times: 0.5 < times < 0.95,
        "The smaller queues cost the step over four servers more, but not all that it had gained.",
    ),
    Expected(
        "over one server",
        lambda times: times > 1.05,
        "With one server, many packets are lost, but others follow on the same connection, so TCP notices at once, and "
        "the link stays busy. Over four servers a message has 50 kB. If its last packets are lost, nothing follows "
        "them, and TCP waits for a time-out of 0.2 s. Meanwhile all wait for this message.",
    ),
    otherwise="The two took about as long, or one has no time.",
    shown={"times": "four servers: {:.2f} times the time of one server"},
)

timed_sentence(
    "links.1",
    "Deep queues: one server {one:.0f} ms a step, on paper {least:.0f} to {most:.0f}; four servers {four:.0f}, on paper "
    "{paper:.0f}.",
    expect="0.9 * least < one < 1.25 * most and 0.9 * paper < four < 0.6 * one",
)

timed_sentence(
    "links.2",
    "Queues of 50 kB: one server {one:.0f} ms in the median step, {one_slow:.0f} in the slowest; four servers "
    "{four:.0f} and {four_slow:.0f}.",
    expect="four > 1.3 * one and one_slow >= one",
)

timed_sentence(
    "links.3",
    "Dropped packets: one server {one:.0f}, {one_ends:.0f} of them by the hosts' own ends; four servers {four:.0f}, "
    "{four_ends:.0f} by the hosts' own ends. The longest time of a median step in which nothing waits in any queue: "
    "one server {one_idle:.0f} ms, four servers {four_idle:.0f}.",
    expect="four < one and four_ends > 0.5 * four and one_idle < 100 < 150 < four_idle",
)

timed_sentence(
    "links.4",
    "Workers in one rack and servers in the other: {apart:.0f} ms a step on hosts, {apart_virtual:.0f} in virtual time. "
    "Two of each in each rack: {mixed:.0f} and {mixed_virtual:.0f}.",
    expect="2 < apart / mixed < 6 and 3.9 < apart_virtual / mixed_virtual < 4.1",
)

timed_sentence(
    "links.5",
    "Your first two numbers: your places take {mine:.0f} ms a step {how}, the best {best:.0f}. In virtual time that is "
    "{virtual:.2f} times as long.",
    expect="abs(virtual - (1 if virtual < 1.5 else 2.67)) < 0.05 and mine < 5 * best",
)

timed_sentence(
    "links.6",
    "One server, 4 workers: {four_virtual:.0f} virtual ms a step, on hosts {four:.0f}. 1,000 workers: {many:.0f} "
    "virtual s. Your last number: {mb:.0f} MB would wait at the server's link, where hosts have room for 4.",
    expect="0.7 < four / four_virtual < 1.3 and mb > 40 and 31 < many < 33",
)

timed_sentence(
    "links.7",
    "Four workers send 50 kB each at once, into a queue of 50 kB. Yours drops {mine} of {packets} packets.",
    expect="mine in (0, 65)",
)

prompt(
    "links.1",
    "In which row is the step far from the paper's, how many times as long is it, and which other number of this lesson "
    "says why? Two sentences.",
    "Four servers with queues of 50 kB are far off: a step takes several times the paper's 34 ms, though one server "
    "loses more packets. The longest time without a waiting byte says why: it is about TCP's time-out of 200 ms, in "
    "which the network does nothing, and no α or β contains it.",
    by=(
        "timed table: row['four servers, 50 kB'][1] > 3 * row['four servers, 50 kB'][0]",
        "timed table: row['one server, 50 kB'][1] < 1.5 * row['one server, 50 kB'][0]",
        "say links.3",
    ),
    kind="time",
)

quiz(
    "links",
    Item(
        "All queues are empty for 0.2 s in the middle of a step. What does the network wait for?",
        {
            "TCP's time-out": "The last packets of a message were lost, and nothing behind them tells TCP so.",
            "a full queue": "It would show as many bytes, not as none.",
            "a slow link": "A slow link has a long queue.",
        },
        by="say links.3: four_idle > 150",
    ),
    Item(
        "One server lost more packets than four servers. Why was its step shorter?",
        {
            "others followed the lost ones": "TCP learns of a loss from what arrives after it, and sends again at once.",
            "its packets are shorter": "All networks here have the same packets.",
            "its link is faster": "All links have 100 Mbit/s.",
        },
        by=("say links.3: four < one", "predict links.2"),
    ),
    Item(
        "Four workers, four servers, a thin cable. Where do the servers belong?",
        {
            "two in each rack": "Then half of the bytes stay in their rack, and both ways of the cable work at once.",
            "all in the other rack": "Then every byte crosses, in pushes one way, in answers the other.",
            "anywhere": "Here apart took about four times as long.",
        },
        by="say links.4: apart_virtual / mixed_virtual > 3.9",
    ),
    Item(
        "A ring's ranks are given. What decides how often it crosses the cable?",
        {
            "which ranks share a rack": "Only neighbours exchange. If a rack holds a row of neighbours, one message "
            "crosses each way in a hop.",
            "the size of the gradient": "It decides how many bytes cross, not how often.",
            "the number of servers": "A ring has none.",
        },
        by="check links.1",
    ),
    Item(
        "A run of 1,000 workers in virtual time was right at four. What did nobody check?",
        {
            "that its queues hold the bytes": "In virtual time nothing overflows. Hosts of that number cannot be made "
            "here.",
            "that bytes take time": "That was checked at four, with deep queues.",
            "that a link is shared": "That was checked at four, too.",
        },
        by="say links.6: mb > 40",
    ),
)

remember(
    "links",
    {
        "With deep queues": "say links.1",
        "With queues": "predict links.2",
        "Not the lost": "say links.3",
        "Places decide": ("say links.5", "say links.4"),
        "A thousand workers": "say links.6: mb > 40",
    },
)
