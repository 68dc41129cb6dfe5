"""The questions, sentences and quiz of "Predict the cost"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    quiz,
    remember,
    timed_estimate,
    timed_question,
    timed_sentence,
)

timed_estimate(
    "cost.3",
    "Four workers and one server have a link each, where a byte takes 84 ns, both ways at once. In a step each worker "
    "pushes 80 kB; once the server has all four pushes, it sends 80 kB to each. Neglect the processors. Many steps "
    "follow each other. How long is one?",
    "s",
    expected=(0.03, 0.06),
    because="80 kB take 0.0067 s on a link. If each link carries one message after another, a worker that has its "
    "answer pushes while the later answers still travel: one answer and four pushes follow each other, 0.034 s. If "
    "messages that are on their way together share the link, as TCP lets them, all four answers are complete after "
    "four times 0.0067 s, and all four pushes after four more: 0.054 s. Real TCP shares, but not quite evenly.",
    otherwise="The links alone take 0.034 s. If a step took far longer than 0.054 s, other programs ran, too.",
)

timed_question(
    "cost.5",
    "The switch now holds at most 10 kB for each link, seven packets. How long is the same step?",
    Option(
        "as long as before, within 20 %",
        lambda times: 0 < times < 1.2,
        "The workers' TCP noticed early enough that the server's link was full, and sent more slowly.",
    ),
    Option(
        "up to half longer",
        lambda times: 1.2 <= times < 1.5,
        "Lost packets were sent again at once, and cost little more than their bytes.",
    ),
    Expected(
        "more than half longer",
        lambda times: times >= 1.5,
        "Four workers push at once, and four links carry more than one can take away. The switch's queue in front of "
        "the server overflows, and packets are dropped. TCP sends them again, sometimes only after a time-out of "
        "0.2 s, which is longer than the whole step was.",
    ),
    otherwise="One of the two steps was not measured.",
    shown={"times": "with 10 kB: {:.1f} times as long"},
)

timed_sentence(
    "cost.13",
    "Between two hosts, β is {beta:.1f} ns a byte. 100 Mbit/s alone would be 80.0 ns: {more:+.1%}. α, in ms, comes out "
    "as {alpha:.3f}.",
    expect="-0.2 < more < 0.5 and abs(alpha) < 20",
)

timed_sentence(
    "cost.14",
    "With 4 MB at each end a step took {deep:.4f} s. On paper it is {least:.4f} s if a link carries one message after "
    "another, and {most:.4f} s if messages share it. minips, which simulates packets in queues, says {says:.4f} s.",
    expect="0.9 * least < deep < 1.25 * most and abs(says / most - 1) < 0.25",
)

timed_sentence(
    "cost.17",
    "With 10 kB in the switch a step took {shallow:.3f} s, {times:.1f} times as long. TCP sent {again:.0f} packets "
    "again in a run, and {before:.0f} with 4 MB.",
    expect="times > 1.5 and again > 2 * before + 50",
)

timed_sentence(
    "cost.16",
    "Your function says {least:.4f} s to {most:.4f} s. Measured: {deep:.4f} s with deep buffers, {shallow:.4f} s with "
    "shallow ones.",
    expect="shallow > 1.5 * deep",
)

prompt(
    "cost.2",
    "Where does the step with deep buffers lie, compared with your two numbers? And which number of this lesson says "
    "why the step with shallow buffers lies elsewhere? Two sentences.",
    "With deep buffers the step lies about where α and β put it, between the least and the most: messages share the "
    "server's link, but not evenly. With shallow buffers it lies far above both, and the hundreds of packets that were "
    "sent again say why: waiting for them is in no α or β.",
    by=(
        "timed table: 0.9 * row['yours'][0] < row['deep'][0] < 1.25 * row['yours'][1] < row['shallow'][0] "
        "if solved else row['deep'][0] > row['yours'][1]",
        "say cost.17",
    ),
    kind="time",
)

quiz(
    "cost",
    Item(
        "In a fit of calls of 100 bytes to 10 MB, each error is counted in seconds. Which calls decide α and β?",
        {
            "the longest ones": "Squared errors are added up, and those of the calls of 10 MB are the largest. So α "
            "may come out as anything.",
            "the shortest ones": "Their errors are a few millionths of a second, and hardly count in the sum.",
            "all of them alike": "They would if each error were divided by its call's seconds.",
        },
        by="check cost.3",
    ),
    Item(
        "Each packet of 1,514 bytes carries 1,448 of the message. What does that do to a link's β?",
        {
            "it raises β by 4.6 %": "The link carries 1,514 bytes for each 1,448 of the message.",
            "it raises α, and β stays 8/B": "Headers come with each packet, so long messages have more of them.",
            "nothing: headers are no part of a message": "They are none, but the link carries them all the same.",
        },
        by="say cost.13: abs(100 * (1514 / 1448 - 1) - 4.6) < 0.1",
    ),
    Item(
        "Eight workers, one server, 80 kB up and down, 0.0067 s for each on a link, no latency. Between which two "
        "times does a step lie on paper?",
        {
            "0.060 s and 0.107 s": "One answer and eight pushes, if they follow each other; eight and eight, if they "
            "share a link.",
            "0.0067 s and 0.0134 s": "That is one worker with a server of its own.",
            "0.034 s and 0.054 s": "That is for four workers. The server's link carries one message for each of them.",
        },
        by="check cost.3: abs(9 * 0.0067 - 0.060) < 0.001 and abs(16 * 0.0067 - 0.107) < 0.001",
    ),
    Item(
        "With shallow buffers a step took several times as long, for the same bytes. What does the formula leave out?",
        {
            "packets that are lost when workers push at once": "The switch's queue overflows, and TCP sends again, "
            "sometimes after a time-out.",
            "the latency, which small buffers raise": "A small buffer makes the longest wait in it shorter.",
            "the server's processor": "It has the same work as with deep buffers.",
        },
        by="say cost.17",
    ),
    Item(
        "A prediction agrees with runs over `ps.Link`, the emulator. What does that show?",
        {
            "that messages and bytes are counted right": "The emulator holds each message back for α + βS, so the "
            "formula itself was never in question.",
            "that a real network of that speed takes as long": "In the emulator no queue overflows, and no packet is "
            "lost.",
            "that TCP connections take α + βS": "Only a network that was not made of the formula can show it, or "
            "refute it.",
        },
        by=("say cost.14", "say cost.17"),
    ),
)

remember(
    "cost",
    {
        "A message takes": "say cost.13",
        "Fit medians": "check cost.3",
        "On paper a step": ("predict cost.3", "say cost.14", "say cost.16"),
        "Where a queue": ("predict cost.5", "say cost.17", "say cost.16"),
        "An emulator": ("say cost.14", "say cost.17"),
    },
)

RETIRED = {"predict": (1, 2, 4), "say": (*range(1, 13), 15), "answer": (1,), "check": (1,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
