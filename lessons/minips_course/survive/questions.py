"""The questions, sentences and quiz of "Survive a lost answer"."""

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
    "survive.1",
    "For each call, the server adds 1 and answers 0.3 s later. A caller waits 0.1 s for its answer, and makes three "
    "tries. What has the server counted in the end?",
    Option(
        "0 additions",
        lambda counted: counted == 0,
        "No call got its answer in time, and the server undid what it had added.",
    ),
    Option(
        "1 addition",
        lambda counted: counted == 1,
        "Only one of the three calls was carried out.",
    ),
    Expected(
        "3 additions",
        lambda counted: counted == 3,
        "A time-out ends the wait alone. Nobody told the server, so it carried out all three calls.",
    ),
    otherwise="The server carried out some of the calls.",
    kind="count",
    shown={"counted": "counted by the server: {:.0f}"},
)

question(
    "survive.2",
    "The server needs 0.001 s for a call. Each of 200 callers waits 0.05 s for its answer, then calls again at "
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

sentence(
    "survive.1",
    "The caller wanted one addition, and gave up three times. The server has counted {counted}.",
    expect="counted == 3",
    kind="count",
)

sentence(
    "survive.2",
    "After ten seconds {answered} of 200 callers have their answer. The server has worked on {worked} calls, on "
    "{wasted} of them for nobody.",
    expect="answered == 50 and wasted > 9000",
    kind="count",
)

sentence(
    "survive.3",
    "The last of 200 callers has its answer after {doubled:.1f} s if waits double, and after {drawn:.1f} ± {half:.1f} "
    "s if they are also drawn (five seeds).",
    expect="drawn + half < doubled < 10",
    kind="count",
)

timed_sentence(
    "survive.4",
    "Without the deadline, the server works on {blind} of 20 real calls. With it, the server works on {aware}, and "
    "answers {answered} of them in time.",
    expect="blind == 20 and answered <= aware < 12",
)

sentence(
    "survive.5",
    "The push is {first}. Sent again, it is a {again}. The parameter has moved by {moved:g}.",
    expect="first == 'applied' and again == 'duplicate' and moved == 1",
    kind="count",
)

timed_sentence(
    "survive.6",
    "Tries of your call_again: {answers}. The server's first answer is {first}, its last {last}, and the parameter has "
    "moved by {moved:g}.",
    expect="first == 'applied' and moved == 1 and (answers == 1 or last == 'duplicate')",
)

sentence(
    "survive.7",
    "400 additions, one answer in ten is lost: Adder has counted {adder:.0f} ± {half:.0f}, your Counter {yours:.0f} "
    "(five seeds).",
    expect="adder - half > 400 and yours >= 400",
    kind="count",
)

timed_sentence(
    "survive.8",
    "A call over a fresh connection takes {times.median:.1f} times as long as one through a pool (Http, median of 60 "
    "pairs, quartiles {times.low:.1f} to {times.high:.1f}).",
    expect="times.median > 1",
)

prompt(
    "survive.1",
    "Which waits, with which kind of server, give all or nearly all callers an answer within two seconds, however many "
    "call? Name the numbers that rule the others out. Two sentences.",
    "Drawn waits with a server that knows the deadlines: then all of 400 have their answer, and 399 ± 2 of them even "
    "if a drop costs half a call. Too few are answered if calls come at once and deadlines are not known or a drop has "
    "a cost (50 of 400), if waits double, with each server (150 of 400), and if waits are drawn but deadlines are not "
    "known (274 ± 18 of 400).",
    by=(
        "table: row['known drawn'][2] == 400",
        "table: row['known, a drop costs half a call drawn'][2:] == [399, 2]",
        "table: row['known, a drop costs half a call at once'][2] == 50",
        "table: row['known doubled'][2] == row['not known doubled'][2] == 150",
        "table: row['known, a drop costs half a call doubled'][2] == 150",
        "table: row['not known drawn'][2:] == [274, 18] and row['not known at once'][2] == 50",
    ),
    kind="count",
)

quiz(
    "survive",
    Item(
        "A call has timed out. What does its caller know?",
        {
            "only that no answer came in time": "The server may have done the work, may still do it, or may never have "
            "had the call.",
            "that the work was not done": "The server had counted each call that timed out.",
            "that the server has stopped the work": "Nobody told it. It would stop only if it knew the deadline.",
        },
        by=("say survive.1", "predict survive.1"),
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
        by="say survive.2",
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
        by="say survive.3",
    ),
    Item(
        "A server knows the deadlines, and a dropped call costs it half as much as an answered one. Which callers "
        "still make a storm?",
        {
            "those that call again at once": "The drops alone keep the server busy, so it hardly comes to a call that "
            "somebody waits for.",
            "those that draw their waits": "They are spread over time, and so there are few calls to drop.",
            "none: late calls are dropped": "A drop is work, too: the server must read a call before it can drop it.",
        },
        by="table survive.1: row['known, a drop costs half a call at once'][2] == 50 and "
        "row['known, a drop costs half a call drawn'][2] > 390",
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
        by="say survive.5",
    ),
)

remember(
    "survive",
    {
        "A time-out": ("predict survive.1", "say survive.1: counted == 3"),
        "Retries at once": ("predict survive.2", "say survive.2: answered == 50 and wasted > 9000"),
        "Back off": ("say survive.3", "check survive.1"),
        "Send the deadline": (
            "say survive.4",
            "table survive.1: row['known, a drop costs half a call at once'][2] == 50",
        ),
        "A repeated call": ("say survive.5", "say survive.6", "check survive.2"),
    },
)
