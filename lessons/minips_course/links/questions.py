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
    "Four workers and four servers have a link each, where a byte takes 84 ns, both ways at once. In a step each "
    "worker pushes 50 kB to each server; a server with all four pushes answers each worker with 50 kB. Neglect α. How "
    "long is a step?",
    "s",
    expected=(0.025, 0.09),
    because="Each link carries 200 kB in pushes, which take 0.0168 s, and then 200 kB in answers: 0.0336 s. On hosts "
    "it is somewhat longer. A guess why: flows share a link unevenly, so a server waits for the last of four pushes "
    "while its link carries less than it could.",
    otherwise="The links alone take 0.034 s. If a step took far longer than 0.05 s, other programs ran, too.",
)

timed_question(
    "links.2",
    "The switch now holds at most 50 kB at each port. Compared with the median step over four servers before, how long "
    "are the median and the slowest of 39 steps?",
    Option(
        "the median below 1.5 times, the slowest below 3 times",
        lambda median, slowest: 0 < median < 1.5 and slowest < 3,
        "TCP noticed each loss soon, and sent again without a wait.",
    ),
    Expected(
        "the median below 1.5 times, the slowest above 3 times",
        lambda median, slowest: 0 < median < 1.5 and slowest >= 3,
        "Most packets that overflow are followed by others, from which TCP sees the loss at once. If the last packets "
        "of a message are lost, nothing follows, and TCP waits for a time-out of at least 0.2 s. One such message "
        "holds up the whole step.",
    ),
    Option(
        "the median above 1.5 times",
        lambda median, slowest: median >= 1.5,
        "Nearly each step had a message that TCP sent again late.",
    ),
    otherwise="One of the steps has no time.",
    shown={"median": "median: {:.2f} times", "slowest": "slowest: {:.1f} times"},
)

timed_sentence(
    "links.1",
    "Deep queues, ms of the median step: one server {one:.0f}, on paper {least:.0f} to {most:.0f}; four servers "
    "{four:.0f}, on paper {paper:.0f}.",
    expect="0.9 * least < one < 1.25 * most and 0.9 * paper < four < 0.6 * one",
)

timed_sentence(
    "links.2",
    "A switch with 50 kB, ms of the median and the slowest step: four servers {four:.0f} and {four_slow:.0f}, one "
    "server {one:.0f} and {one_slow:.0f}. Dropped packets: {lost} and {one_lost}.",
    expect="four_slow > 3 * four and one < 1.3 * 134 and min(lost, one_lost) > 50",
)

timed_sentence(
    "links.3",
    "In the slowest step over four servers nothing waits in any queue for so many ms: {idle:.0f}.",
    expect="100 < idle",
)

timed_sentence(
    "links.4",
    "Workers in one rack and servers in the other, ms of a step: on hosts {apart:.0f}, in virtual time "
    "{apart_virtual:.0f}. Two of each in each rack: {mixed:.0f} and {mixed_virtual:.0f}.",
    expect="2 < apart / mixed < 6 and 3.9 < apart_virtual / mixed_virtual < 4.1",
)

timed_sentence(
    "links.5",
    "Your first two numbers, ms of a step {how}: your places {mine:.0f}, the best ones {best:.0f}. In virtual time "
    "yours take {virtual:.2f} times as long.",
    expect="abs(virtual - (1 if virtual < 1.5 else 2.67)) < 0.05 and mine < 5 * best",
)

timed_sentence(
    "links.6",
    "One server, 4 workers, ms of a step: in virtual time {four_virtual:.0f}, on hosts {four:.0f}. 1,000 workers: "
    "{many:.0f} virtual s. Your last number: {mb:.0f} MB would wait at the server's link, where hosts have room for 4.",
    expect="0.7 < four / four_virtual < 1.3 and mb > 40 and 31 < many < 33",
)

sentence(
    "links.7",
    "Four workers send 50 kB each at once, into a queue of 50 kB. Yours drops {mine} of {packets} packets.",
    expect="mine in (0, 73)",
    kind="count",
)

prompt(
    "links.1",
    "Which number of the table is far from the paper's, how many times as long is it, and which other number of this "
    "lesson says why? Two sentences.",
    "The slowest step over four servers with 50 kB takes several times the paper's 34; its median hardly differs. For "
    "most of it nothing waits in any queue: that is TCP's time-out, which is in no α or β.",
    by=(
        "timed table: row['four servers, 50 kB'][0] == 34 < row['four servers, 50 kB'][2] / 4",
        "timed table: row['four servers, 50 kB'][1] < 2.5 * row['four servers, 50 kB'][0]",
        "say links.3: idle > 100",
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
        by="say links.3: idle > 100",
    ),
    Item(
        "One server lost about a thousand packets. Why was its median step hardly longer?",
        {
            "its link stayed busy": "Others queued behind the lost packets, so TCP learned of each loss at once.",
            "lost packets are free": "Each is sent again, and takes the link's time once more.",
            "one server answers sooner": "It has four times the bytes of one of four servers.",
        },
        by="say links.2: one < 1.3 * 134 and one_lost > 50",
    ),
    Item(
        "Four workers and four servers fill two racks, which share a thin cable. Where do the servers belong?",
        {
            "two in each rack": "Then half of the bytes stay in their rack, and both ways of the cable work at once.",
            "all in one rack": "Then every byte crosses, in pushes one way, in answers the other.",
            "anywhere": "Here a step with all servers in one rack took about four times as long.",
        },
        by="say links.4: apart_virtual / mixed_virtual > 3.9",
    ),
    Item(
        "A ring's ranks are given. What decides how often it crosses the cable?",
        {
            "which ranks share a rack": "Only neighbours exchange. If a rack holds a row of neighbours, one message "
            "crosses each way in a hop.",
            "the size of the gradient": "It decides how many bytes cross, not how often.",
            "the number of servers": "A ring has none, so they cannot decide it.",
        },
        by="check links.1",
    ),
    Item(
        "Virtual time was right for four workers. What did nobody check for 1,000?",
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
        "A switch with": ("predict links.2", "say links.2"),
        "In the slowest": "say links.3: idle > 100",
        "Places decide": ("say links.5", "say links.4"),
        "A thousand workers": "say links.6: mb > 40",
    },
)
