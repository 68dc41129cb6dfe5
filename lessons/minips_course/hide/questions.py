"""The questions, sentences and quiz of "Hide and survive"."""

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

timed_question(
    "hide.1",
    "Ten calls are made before the first is answered. How many times as long as one call do they take: with 1 byte in "
    "each, and with 10 MB in each?",
    Option(
        "about 1 and about 1",
        lambda tiny, large: 0 < tiny < 2 and 0 < large < 2,
        "All calls were under way together, and the link carried ten large messages in the time of one.",
    ),
    Expected(
        "about 1 and about 7",
        lambda tiny, large: 0 < tiny < 2 and 5 <= large < 8.5,
        "All calls are under way together, so the latency of 0.04 s passes once for all ten. With 1 byte that is "
        "nearly all there is. But 10 MB keep the link busy for 0.08 s, one message after the other: one call takes "
        "0.12 s, ten take 0.84 s.",
    ),
    Option(
        "about 1 and about 10",
        lambda tiny, large: 0 < tiny < 2 and 8.5 <= large < 20,
        "The large calls ran one after the other, so the latency passed again for each.",
    ),
    Option(
        "about 10 and about 10",
        lambda tiny, large: 5 <= tiny < 20 and 5 <= large < 20,
        "Each call waited for the answer to the call before it.",
    ),
    otherwise="Either this machine was busy with something else, or the link did not hold the messages back.",
    shown={
        "tiny": "ten calls, 1 byte each: {:.2f} times as long as one",
        "large": "ten calls, 10 MB each: {:.2f} times as long as one",
    },
)

question(
    "hide.2",
    "The server needs 0.001 s for a call. Each of the 200 callers waits 0.05 s for its answer, then it calls again at "
    "once. How many have their answer after ten seconds?",
    Option(
        "all, within half a second",
        lambda answered, last: answered == 200 and last <= 0.5,
        "The server needs 0.2 s for 200 calls, and it lost little time with calls that nobody waited for.",
    ),
    Option(
        "all, after some seconds",
        lambda answered, last: answered == 200 and last > 0.5,
        "In the end the server emptied its queue, with the calls of callers that had given up.",
    ),
    Option(
        "at least half",
        lambda answered, last: 100 <= answered < 200,
        "Each time that one of the others called, the queue was too long.",
    ),
    Expected(
        "about a quarter",
        lambda answered, last: 20 <= answered < 100,
        "The first 50 are answered in time. When the others give up, their calls are still in the queue, and the "
        "server works on them. The new calls stand behind them, so they time out as well. Each 0.05 s brings 150 new "
        "calls, and 50 are done: the queue grows for ever, and the server is busy with calls that nobody waits for.",
    ),
    otherwise="Hardly anybody was answered, not even those first in the queue.",
    kind="count",
    shown={
        "answered": "answered within ten seconds: {:.0f} callers",
        "last": "the last answer, after the start: {:.2g} s",
    },
)

timed_sentence(
    "hide.1",
    "With 1 byte, ten calls take {tiny.median:.2f} times as long as one (median of {turns} turns, quartiles "
    "{tiny.low:.2f} to {tiny.high:.2f}), with 10 MB {large.median:.1f} times ({large.low:.1f} to {large.high:.1f}).",
    expect="tiny.median < 2 and 5 < large.median < 8.5",
)

timed_sentence(
    "hide.2",
    "A step of a worker that waits takes {times.median:.2f} times as long as one with overlap (median of {steps} "
    "steps, quartiles {times.low:.2f} to {times.high:.2f}).",
    expect="1.3 < times.median < 2.2",
)

sentence("hide.3", "Staleness with overlap: at most {stale} version.", expect="stale == 1", kind="single")

sentence(
    "hide.4",
    "The caller wanted one addition, and got {errors} TimeoutErrors. The server has added {counted}.",
    expect="errors == counted == 3",
    kind="count",
)

sentence(
    "hide.5",
    "After ten seconds {answered} of 200 callers have their answer. The server has worked on {worked} calls, for "
    "{busy:.0%} of the time.",
    expect="answered < 100 and busy > 0.95",
    kind="count",
)

sentence(
    "hide.6",
    "The last caller has its answer after {doubled:.1f} s if waits double, and after {drawn:.1f} ± {half:.1f} s if "
    "they are also drawn (five seeds).",
    expect="drawn + half < doubled < 10",
    kind="count",
)

sentence(
    "hide.18",
    "Let a dropped call cost 0.0005 s. Then {at_once} of 200 callers have their answer if they call again at once. If "
    "they draw their waits, from 0.4 s on, it is {drawn} of 200, the last one after {last:.1f} s at most (five seeds).",
    expect="at_once < 100 and drawn == 200 and last < 10",
    kind="count",
)

timed_sentence(
    "hide.7",
    "Of 20 calls, {answered} are answered in time. The server works on {blind} of them without the deadline, on "
    "{aware} with it.",
    expect="blind == 20 and answered <= aware < 12",
)

sentence(
    "hide.8",
    "The push is {first}. Sent again, it is a {again}. The parameter has moved by {moved:g}.",
    expect="first == 'applied' and again == 'duplicate' and moved == 1",
    kind="count",
)

sentence(
    "hide.9",
    "400 additions, one answer in ten is lost: Adder has counted {adder:.0f} ± {half:.0f}, your Counter {yours:.0f} "
    "(five seeds).",
    expect="adder - half > 400 and yours >= 400",
    kind="count",
)

timed_sentence(
    "hide.10",
    "gRPC: of 20 calls with a deadline of 0.11 s, {late} ended with {came}. The server's function was called "
    "{handled} times.",
    expect="came == 'DEADLINE_EXCEEDED' and late > 10 and handled < 12",
)

timed_sentence(
    "hide.11",
    "aiohttp, three calls through a pool of one: with enough time they open {enough} connection, and {short} if each "
    "call times out.",
    expect="enough == 1 and short == 3",
)

sentence(
    "hide.12",
    "gRPC's retries: {answer} after one call of the caller and {served} at the server.",
    expect="answer == 'ONCE MORE' and served == 3",
    kind="count",
)

sentence(
    "hide.13",
    "With the server there: {first}. Without it: {second}. With a new server at the same address: {third}.",
    expect="first == 'HERE' and second == 'ConnectionError' and third == 'BACK AGAIN'",
    kind="single",
)

sentence(
    "hide.14",
    "Connections for 40 calls: {as_in_the_lecture} as in the lecture, {one_after_another} for one call after another, "
    "{all_at_once} for all calls at once through a pool of at most 8.",
    expect="as_in_the_lecture == 40 and one_after_another == 1 and all_at_once == 8",
    kind="count",
)

timed_sentence(
    "hide.15",
    "With 4 connections the 40 calls take {small.median:.1f} times as long as one call (median of {turns} turns, "
    "quartiles {small.low:.1f} to {small.high:.1f}), with 8 connections {middle.median:.1f} times ({middle.low:.1f} to "
    "{middle.high:.1f}), with 40 {large.median:.1f} times ({large.low:.1f} to {large.high:.1f}).",
    expect="small.median > 7 and middle.median > 4 and large.median < small.median / 2",
)

timed_sentence(
    "hide.16",
    "With pool=0 a call takes {times.median:.2f} times as long (median of {turns} pairs, quartiles {times.low:.2f} to "
    "{times.high:.2f}).",
    expect="times.median > 1",
)

timed_sentence(
    "hide.17",
    "Over two connections the 32 MB take {share.median:.0%} of the time over one (median of {rounds} pairs, quartiles "
    "{share.low:.0%} to {share.high:.0%}).",
    expect="0.3 < share.median < 2",
)

prompt(
    "hide.1",
    "Does it help to draw the waits, with a deadline and without? Give the seconds of all four pairs. Two sentences.",
    "With a deadline it helps from either bound: 0.45 s in place of 3.00 s from 0.4 s on, 0.25 s in place of 0.55 s "
    "from 0.05 s on. Without one it helps from 0.4 s on (1.28 ± 0.45 s in place of 3.00 s), but not from 0.05 s on "
    "(2.39 ± 0.17 s in place of 1.85 s), where the server works on more calls, 971 in place of 800.",
    by=(
        "table: row['0.4 s, drawn sent along'][0] == 0.45 and row['0.4 s, doubled sent along'][0] == 3.00",
        "table: row['0.05 s, drawn sent along'][0] == 0.25 and row['0.05 s, doubled sent along'][0] == 0.55",
        "table: row['0.4 s, drawn unknown'][:2] == [1.28, 0.45] and row['0.4 s, doubled unknown'][0] == 3.00",
        "table: row['0.05 s, drawn unknown'][:3] == [2.39, 0.17, 971]",
        "table: row['0.05 s, doubled unknown'] == [1.85, 800]",
    ),
    kind="time",
)

quiz(
    "hide",
    Item(
        "A link has 0.01 s of latency each way and carries 100 MB/s. A call carries 1 MB, its answer is small. Twenty "
        "calls are made before the first answer. How long do they take?",
        {
            "0.22 s": "The link is busy for 20 × 0.01 s, and the latency of 0.02 s passes once for all calls.",
            "0.03 s": "That is the time of one call. The link carries the 20 MB one after the other, in 0.01 s each.",
            "0.60 s": "That is twenty times the time of one call, as if each call waited for the previous answer.",
        },
        by="say hide.1: abs(20 * 0.01 + 2 * 0.01 - 0.22) < 1e-9",
    ),
    Item(
        "A step computes for 0.03 s, and its messages travel for 0.09 s. How much faster does it become with overlap, "
        "at best?",
        {
            "1.33 times": "A step shrinks from 0.12 s to the longer of the two times, 0.09 s.",
            "2 times": "That much is gained only if computing and travelling take the same time.",
            "4 times": "0.12 s / 0.03 s assumes that computing hides all the travelling, but it lasts only 0.03 s.",
        },
        by="say hide.2: abs((0.03 + 0.09) / 0.09 - 1.33) < 0.01",
    ),
    Item(
        "In the storm of callers that call again at once, the server is busy all the time. What does it work on?",
        {
            "calls whose callers have given up": "They are first in the queue. When the server reaches a new call, "
            "its caller has given up, too.",
            "connections that it has to open anew": "No connection is simulated there: a call costs 0.001 s of work, "
            "and nothing else.",
            "the same 50 callers again and again": "The first 50 have their answers, and do not call again.",
        },
        by="say hide.5",
    ),
    Item(
        "200 workers lose their server at the same moment. All wait 0.4, 0.8, 1.6 s and so on. Why is each wait also "
        "drawn at random?",
        {
            "so that they do not all come back at one moment": "Waits that only double are the same for all, so all "
            "workers call at the same moment at each try.",
            "so that no worker has to wait as long as 1.6 s": "The bound still doubles. A drawn wait is shorter on "
            "average, but that is not its purpose.",
            "so that the server can tell the workers apart": "A worker has a number for that. The server does not see "
            "how long a worker has waited.",
        },
        by="say hide.6",
    ),
    Item(
        "A push has timed out, and the worker sends it again. Why does minips' server not apply it twice?",
        {
            "it knows the push by worker and clock": "It has seen this clock of this worker before, and "
            "answers `duplicate`.",
            "the time-out has ended the first one": "A time-out ends the waiting at the worker. The server may have "
            "applied the push long ago.",
            "the same gradient again changes nothing": "A second time, it would move the parameters as far again.",
        },
        by="say hide.8",
    ),
)

remember(
    "hide",
    {
        "Futures let": ("say hide.1", "predict hide.1"),
        "With overlap": ("say hide.2", "say hide.3"),
        "Immediate retries": (
            "say hide.5",
            "say hide.6",
            "check hide.1",
            "table hide.1: row['0.05 s, drawn unknown'][0] > row['0.4 s, drawn unknown'][0]",
        ),
        "A deadline that": (
            "say hide.7",
            "table hide.1: row['at once unknown never'][0] == 10_000 and row['at once sent along'][1] == 200",
        ),
        "A call that timed": ("say hide.4", "say hide.8", "check hide.2"),
    },
)
