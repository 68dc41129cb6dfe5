"""The questions, sentences and quiz of "Move frames"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    quiz,
    remember,
    sentence,
    timed_question,
    timed_sentence,
)

timed_question(
    "move.1",
    "A frame of a kilobyte there and back: how long does minips' Http take, compared with minips' Tcp?",
    Option(
        "Http is faster",
        lambda times: times < 1,
        "A call over aiohttp and its event loops took less time in all than one over minips' Tcp and its threads.",
    ),
    Option(
        "less than twice as long",
        lambda times: 1 <= times < 2,
        "The time that Http added to a call was less than the time of a whole call over Tcp.",
    ),
    Expected(
        "at least twice as long",
        lambda times: times >= 2,
        "With 1 kB the bytes hardly count. For each call aiohttp makes a request and an answer and runs tasks in event "
        "loops, and minips hands the call over to the threads of these loops and back. Tcp does far less for a call. "
        "The share of each part is not measured here.",
    ),
    otherwise="One of the two could not be measured.",
    shown={"times": "a frame over Http: {:.2f} times as long"},
)

timed_question(
    "move.3",
    "16 callers, each with its own connection, call over minips' Tcp with 1 kB, again and again. The server sends "
    "each frame back at once. Compared with one caller, how many times as many calls a second does it answer?",
    Expected(
        "less than 8 times as many",
        lambda times: 0 < times < 8,
        "One caller and the server work in turns, with short gaps that more callers can fill. But all threads of the "
        "server share one interpreter, and all processes share the cores. Where these are busy, further callers queue, "
        "and changing from thread to thread takes time as well, so that there may even be fewer calls. The share of "
        "each is not measured here.",
    ),
    Option(
        "8 to 14 times as many",
        lambda times: 8 <= times <= 14,
        "One caller left the server idle most of the time, and 16 callers filled most of the idle time.",
    ),
    Option(
        "about 16 times as many",
        lambda times: times > 14,
        "The server answered many calls at once, and a call took hardly longer in the crowd than alone.",
    ),
    otherwise="One of the two could not be measured.",
    shown={"times": "16 callers: {:.2f} times as many calls a second"},
)

timed_sentence(
    "move.2",
    "A call of 1 MB over HTTP: the JSON list takes {times.median:.0f} times as long as the bytes (median of {turns} "
    "rounds, quartiles {times.low:.0f} to {times.high:.0f}).",
    expect="times.low > 10",
)

timed_sentence(
    "move.16",
    "By α, from the least: {by_alpha}. By β: {by_beta}.",
    expect="by_alpha != by_beta",
)

timed_sentence(
    "move.17",
    "The line at 30 kB, between the sizes that it knows: {between.median:.0%} of the measured time (median of the "
    "contenders, quartiles {between.low:.0%} to {between.high:.0%}). At 10 MB, far beyond: {beyond.median:.0%} "
    "({beyond.low:.0%} to {beyond.high:.0%}), and {least:.0%} at worst.",
    expect="between.low > 0.5 and between.high < 1.6 and least < 0.9",
)

timed_sentence(
    "move.18",
    "16 callers in place of one: Tcp answers {times.median:.2g} times as many calls a second (median of {rounds} "
    "rounds, quartiles {times.low:.2g} to {times.high:.2g}), so each caller waits {longer:.0f} times as long as one "
    "alone. Over all contenders it is {least:.1f} to {most:.1f} times as many calls.",
    expect="times.median < 8",
)

timed_sentence(
    "move.19",
    "A byte over Pyro takes {serpent:.0f} times as long as over Tcp with serpent, {msgpack:.1f} times with "
    "MessagePack, and {ours:.1f} times as minips uses it.",
    expect="serpent > 3 * msgpack and msgpack > 1",
)

timed_sentence(
    "move.20",
    "Tcp, 1 kB, one caller: by α and β a call that waits for its turn takes {times:.2g} times as long as one right "
    "after another.",
    expect="times > 1",
)

timed_sentence(
    "move.21",
    "Your numbers: over Tcp the bytes of a frame of {twice:.0f} kB take as long as α. 16 callers get {times:.2g} times "
    "the calls of one.",
    expect="twice > 2 and times < 8",
)

timed_sentence(
    "move.22",
    "A handler that waits: your function says that 16 callers get {times:.1f} times the calls of one.",
)

sentence(
    "move.11",
    "Your transport carried the messages of four workers, and the model reads {accuracy:.0%} of the held-out digits. "
    "Is it among minips' transports? {listed}.",
    expect="accuracy > 0.9 and listed == 'yes'",
    kind="single",
)

prompt(
    "move.2",
    "One program sends frames of 1 kB, another one frames of 1 MB. Which column decides for which program, and what "
    "do you choose or avoid? What do 16 callers change? Two sentences, with numbers from the table.",
    "For 1 kB the column of α decides, and I take Tcp: Http's α is more than twice as large; for 1 MB β decides, and I "
    "avoid JSON, whose β is more than 10 times that of Http with bytes. With 16 callers Tcp answers less than 8 "
    "times as many calls of 1 kB as with one, so each caller waits more than twice as long.",
    by=(
        "timed table: row['http'][0] > 2 * row['tcp'][0]",
        "timed table: row['aiohttp-json'][1] > 10 * row['http'][1]",
        "timed table: row['tcp'][3] < 8 * row['tcp'][2]",
    ),
    kind="time",
)

quiz(
    "move",
    Item(
        "A call of 1 kB and a call of 2 kB over the same transport take almost the same time. Which cost decides?",
        {
            "the fixed cost α": "A call costs α for each of its two messages, whatever they carry. Here that "
            "is nearly all of its time.",
            "the cost β of each byte": "Then twice the bytes would take about twice the time.",
            "neither: this must be chance": "For small frames, the times of all transports grow far less than the "
            "frame. That is not an accident of one call.",
        },
        by=("say move.16", "say move.21: twice > 2"),
    ),
    Item(
        "REST sends a list of numbers as JSON text. What does that change most, for a large frame?",
        {
            "β: each number is written and parsed": "The work is done for every number, so the time grows with the "
            "frame, and far faster than with bytes.",
            "α: a request has to be made for each call": "minips' Http makes a request as well, and yet its call "
            "with 1 MB is many times as fast.",
            "nothing: the network carries both alike": "The text is longer than the bytes. And no network is used "
            "here: the time goes into writing and parsing.",
        },
        by="say move.2",
    ),
    Item(
        "16 callers get less than eight times the calls a second of one caller. How long does each of the 16 wait for "
        "an answer?",
        {
            "more than twice as long as one alone": "They share less than eight times the calls, and 16 / 8 is 2.",
            "as long as one alone": "Then 16 callers would get 16 times the calls.",
            "a sixteenth of the time of one alone": "The time of all calls, divided by 16, is not what a caller waits.",
        },
        by=("predict move.3", "say move.18"),
    ),
    Item(
        "α and β come from frames of up to 1 MB. Some calls of 10 MB take longer than the line says. What follows?",
        {
            "trust a line between the sizes that it was fitted to": "Between them it was close. Far beyond them a "
            "byte may cost more.",
            "α grows with the size of the frame": "α is what a message costs whatever its size; at 10 MB it hardly "
            "counts.",
            "the line is as wrong at 30 kB": "There it was close, though it had not seen that size either.",
        },
        by="say move.17",
    ),
    Item(
        "A lecture calls Pyro relatively slow. What did this run say of large frames?",
        {
            "slower than TCP, mostly because of its serializer": "With MessagePack in place of serpent most of the "
            "difference is gone. Pyro is then still slower than TCP.",
            "as fast as TCP: only its serializer is slow": "Even with MessagePack a byte takes longer than over TCP.",
            "slower than TCP, and the serializer does not matter": "serpent and MessagePack are far apart.",
        },
        by="say move.19",
    ),
)

remember(
    "move",
    {
        "A transport moves": ("check move.3", "say move.11"),
        "A message takes": ("say move.16", "say move.21"),
        "Sending text": ("say move.2", "say move.19"),
        "In a crowd": ("say move.18", "say move.21", "predict move.3"),
        "A measurement must": ("say move.17", "say move.20"),
    },
)

RETIRED = {"predict": (2,), "say": (1, *range(3, 11), *range(12, 16)), "answer": (1,), "check": (1,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
