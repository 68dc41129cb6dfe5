"""The questions, sentences and quiz of "Pull the plug"."""

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
    "plug.1",
    "A run has four workers and 40 steps, so 160 gradients. Before its 21st push worker 3 is killed, and stays away. "
    "How many gradients are missing in the end under BSP, under ASP, and in a ring?",
    Option(
        "20 each: those of worker 3",
        lambda bsp, asp, ring: bsp == asp == ring == 20,
        "Each time the others went on without worker 3, each with its own 40 steps.",
    ),
    Expected(
        "BSP 20, ASP none, the ring 80",
        lambda bsp, asp, ring: bsp == 20 and asp == 0 and ring == 80,
        "Under BSP the server waited a quarter of a second for worker 3, then let go of it: its last 20 gradients are "
        "missing. Under ASP the run ends after 160 pushes, whoever makes them: the others made more. In a ring each "
        "rank needs all the others: the run ended with an error, and all that was to come is missing.",
    ),
    Option(
        "BSP 80, ASP 20, the ring 80",
        lambda bsp, asp, ring: bsp == ring == 80 and asp == 20,
        "Where all wait for all, everything stopped. Where nobody waits, only worker 3's gradients are missing.",
    ),
    Option(
        "BSP all 160, ASP none, the ring 20",
        lambda bsp, asp, ring: bsp == 160 and asp == 0 and ring == 20,
        "The server waited for ever, and the ring closed its gap.",
    ),
    otherwise="Other numbers of gradients are missing.",
    kind="count",
    shown={
        "bsp": "missing under BSP: {:.0f}",
        "asp": "missing under ASP: {:.0f}",
        "ring": "missing in the ring: {:.0f}",
    },
)

question(
    "plug.2",
    "The server's last snapshot is that of clock 25. It is killed at clock 35, after 40 more pushes, and started "
    "again. How many gradients do the workers compute once more?",
    Option(
        "40: those since the snapshot",
        lambda again: again == 40,
        "The new server began at clock 25, and the workers made their steps from there again.",
    ),
    Option(
        "4: those of the last clock",
        lambda again: again == 4,
        "The last clock's pushes had no answer, so each worker made its step once more.",
    ),
    Option(
        "140: all so far",
        lambda again: again == 140,
        "The new server began with the first parameters.",
    ),
    Expected(
        "none",
        lambda again: again == 0,
        "Each push was in the journal before it was acknowledged, and the new server applied the journal's pushes. "
        "A worker without an answer sent the same push again.",
    ),
    otherwise="Some gradients were computed again.",
    kind="count",
    shown={"again": "computed once more: {:.0f}"},
)

sentence(
    "plug.1",
    "Without a checkpoint the run ends, and the parameters are gone: {error}",
    expect="'server 0 ended before its work was done' in error",
    kind="single",
)

sentence(
    "plug.2",
    "With a checkpoint, the new server applied {replayed} pushes of its journal. In the end {made} pushes counted, and "
    "the parameters are those of a run without a death, to the bit: {same}.",
    expect="same and made == 160",
    kind="identity",
)

sentence(
    "plug.4",
    "Faults that the error needs: {after} of {before}. A server makes two steps with a message: it takes it, and keeps "
    "what it has done.",
    kind="single",
)

sentence(
    "plug.5",
    "Your server, in {schedules} schedules: {twice} pushes count twice, {lost} are lost, and {waiting} workers wait "
    "for ever.",
    kind="count",
)

sentence(
    "plug.6",
    "{pushes:,} pushes over connections that break. Retries alone: {twice} count twice. A server that remembers, "
    "without retries: {lost} are lost. Both: {wrong} are wrong. The claim that both ends are needed:",
    expect="twice > 20 and lost > 20 and wrong == 0",
    card=True,
    kind="count",
)

timed_sentence(
    "plug.7",
    "A push_pull of {values:,} values takes {none_s:.2g} s if the server keeps nothing, {journal.median:.2f} times as "
    "long with a journal ({journal.low:.2f} to {journal.high:.2f}), {synced.median:.1f} times if it waits for the disk "
    "({synced.low:.1f} to {synced.high:.1f}; medians and quartiles of {rounds} turns).",
    expect="1 < journal.median < 3 and synced.median > journal.median",
)

sentence(
    "plug.8",
    "Your invariant finds {found} of {planted} histories with a planted bug, and blames {blamed} of {right} right "
    "ones.",
    kind="count",
)

sentence(
    "plug.3",
    "A worker with two servers was killed at each of {kills} moments of its run, {between} times after only one server "
    "had its push. Then it was started again: {wrong} promises were broken.",
    expect="wrong == 0 and between > 0",
    kind="count",
)

prompt(
    "plug.1",
    "A worker of yours will be killed now and then. Would you let the others go on without it, or start it again? "
    "Two sentences, with numbers from the table.",
    "I start it again under BSP: then no gradient is missing, and the bits are the same, but the run takes 1.32 s, "
    "not 1.05 s. Under ASP I let the others go on: 0.94 s either way, and they make the missing pushes.",
    by=(
        "table: row['BSP'][:2] == [1.05, 20]",
        "table: row['BSP, started again'][:2] == [1.32, 0]",
        "table: row['ASP'][:2] == row['ASP, started again'][:2] == [0.94, 0]",
    ),
    kind="count",
)

quiz(
    "plug",
    Item(
        "A worker dies for good. Why are no gradients missing under ASP?",
        {
            "The others make more steps.": "The run ends after so many pushes, whoever makes them. But the dead "
            "worker's rows count for less.",
            "The server makes its pushes up.": "A server has no rows: it cannot compute gradients.",
            "Its place goes to another process.": "Nobody was started here: the worker stayed away.",
        },
        by="predict plug.1",
    ),
    Item(
        "A server writes a push to its journal, and dies before it answers. What may the worker do?",
        {
            "send the same push again": "It cannot know that the push counts. The new server knows, by worker and "
            "clock, and answers.",
            "go on with its next step": "If the push had not been kept, it would be lost.",
            "compute the gradient again": "It still has the push. And from other parameters the gradient would be "
            "another one.",
        },
        by=("predict plug.2", "say plug.6: twice > 0 and lost > 0"),
    ),
    Item(
        "TCP loses and doubles nothing while a connection holds. Why did pushes count twice?",
        {
            "The retry came over another connection.": "Each connection was right. Only the two ends know that both "
            "messages are one push.",
            "The network doubled a message.": "No message was doubled: the worker sent the push twice.",
            "The server applied one message twice.": "It applied two messages, once each.",
        },
        by="say plug.6: twice > 0",
    ),
    Item(
        "Which memory is enough to count each push once?",
        {
            "each worker's last clock, kept with the parameters": "A worker repeats only its last push. And a server "
            "that starts again must know what its parameters contain.",
            "each worker's last clock, in a global variable": "A new process begins without it: then the retry counts "
            "twice.",
            "the last gradient of each worker": "Two pushes may have the same gradient, and both must count.",
        },
        by="check plug.1",
    ),
    Item(
        "What does an acknowledgement with `sync=True` say that one without does not?",
        {
            "The push outlives a power loss.": "The disk has it. Without sync the system may still have to write it: "
            "that outlives a killed process.",
            "The push outlives a killed server.": "So it does without sync: the system has the journal's bytes.",
            "The push has been applied.": "Both say so: the server applies it before it answers.",
        },
        by=("say plug.2: same", "say plug.7"),
    ),
)

remember(
    "plug",
    {
        "A killed worker": "predict plug.1: [bsp, asp, ring] == [20, 0, 80]",
        "A journal": ("predict plug.2", "say plug.2: same"),
        "Retries alone": "say plug.6: [twice, lost, wrong] == [224, 281, 0]",
        "Exactly once": ("check plug.1", "say plug.6: wrong == 0"),
        "An acknowledgement": "say plug.7",
    },
)
