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
    "move.2",
    "16 callers, each with its own connection, call over minips' Tcp with 1 kB, again and again. The server sends "
    "each frame back at once. Compared with one caller, how many times as many calls a second does it answer?",
    Expected(
        "less than 5 times as many",
        lambda times: 0 < times < 5,
        "One caller and the server work in turns, with short gaps that more callers can fill. But all threads of the "
        "server share one interpreter, and all processes share the cores. Where these are busy, further callers queue, "
        "and changing from thread to thread takes time as well, so that there may even be fewer calls. The share of "
        "each is not measured here.",
    ),
    Option(
        "5 to 10 times as many",
        lambda times: 5 <= times <= 10,
        "One caller left the server idle most of the time, and 16 callers filled most of the idle time.",
    ),
    Option(
        "about 16 times as many",
        lambda times: times > 10,
        "The server answered many calls at once, and a call took hardly longer in the crowd than alone.",
    ),
    otherwise="One of the two could not be measured.",
    shown={"times": "16 callers: {:.2f} times as many calls a second"},
)

timed_sentence(
    "move.1",
    "A call of 1 kB: Http takes {times.median:.1f} times as long as Tcp (median of {rounds} rounds, quartiles "
    "{times.low:.1f} to {times.high:.1f}).",
    expect="times.median > 2",
)

timed_sentence(
    "move.2",
    "A call of 1 MB over HTTP: the JSON list takes {times.median:.0f} times as long as the bytes (median of {turns} "
    "rounds, quartiles {times.low:.0f} to {times.high:.0f}).",
    expect="times.low > 10",
)

timed_sentence(
    "move.3",
    "By α, from the least: {by_alpha}. By β: {by_beta}.",
    expect="by_alpha != by_beta",
)

timed_sentence(
    "move.4",
    "The line at 32 kB, between its two points: {between.median:.0%} of the measured time (median of the contenders, "
    "quartiles {between.low:.0%} to {between.high:.0%}). At 10 MB, far beyond: {beyond.median:.0%} ({beyond.low:.0%} "
    "to {beyond.high:.0%}), and {least:.0%} at worst.",
    expect="between.low > 0.5 and between.high < 1.6 and least < 0.9",
)

sentence(
    "move.5",
    "serpent writes 1,000,000 bytes as {text:,}, MessagePack as {packed:,}.",
    expect="text > 1.3e6 and packed < 1.001e6",
    kind="single",
)

timed_sentence(
    "move.6",
    "1 MB there and back, compared with Tcp (medians, quartiles): Pyro with serpent takes {serpent.median:.0f} times "
    "as long ({serpent.low:.0f} to {serpent.high:.0f}), Pyro with MessagePack {msgpack.median:.1f} times "
    "({msgpack.low:.1f} to {msgpack.high:.1f}), minips' Pyro {ours.median:.1f} times ({ours.low:.1f} to "
    "{ours.high:.1f}).",
    expect="serpent.low > 3 * msgpack.high and msgpack.median > 1 and ours.median > 1",
)

timed_sentence(
    "move.7",
    "One after another the 16 calls take {times:.1f} times as long as through the pool.",
    expect="times > 6",
)

timed_sentence(
    "move.8",
    "16 callers in place of one: Tcp answers {times.median:.2g} times as many calls a second (median of {rounds} "
    "rounds, quartiles {times.low:.2g} to {times.high:.2g}), so each caller waits {longer:.0f} times as long as one "
    "alone. Over all contenders it is {least:.1f} to {most:.1f} times as many calls.",
    expect="times.median < 5",
)

timed_sentence(
    "move.9",
    "Of Tcp's calls a second, Pyro alone, with MessagePack, answers {one.median:.0%} with one caller and "
    "{many.median:.0%} with 16 (medians, quartiles {one.low:.0%} to {one.high:.0%} and {many.low:.0%} to "
    "{many.high:.0%}); minips' Pyro {ours.median:.0%} with 16 ({ours.low:.0%} to {ours.high:.0%}).",
    expect="many.median < 1 and ours.median < 1",
)

timed_sentence(
    "move.10",
    "Tcp, 1 kB, one caller: a call that has waited for its turn takes {times:.1f} times as long as one right after "
    "another.",
    expect="times > 1",
)

sentence(
    "move.11",
    "Your transport carried the messages of four workers, and the model reads {accuracy:.0%} of the held-out digits. "
    "Is it among minips' transports? {listed}.",
    expect="accuracy > 0.9 and listed == 'yes'",
    kind="single",
)

sentence(
    "move.12",
    "No .proto file, and the answers are {answer} and, with asyncio, {awaited}.",
    expect="answer == 'NO .PROTO ANYWHERE' and awaited == 'NOR HERE'",
    kind="single",
)

sentence(
    "move.13",
    "One call; frames of {sent} bytes, answered one by one: {totals}.",
    expect="sent == [100, 20, 3] and totals == [100, 120, 123]",
    kind="single",
)

sentence(
    "move.14",
    "{size} values arrived, as an array of shape {shape} and dtype {dtype}. A number in place of a name was refused: "
    "{refused}.",
    expect="size == 6 and shape == [2, 3] and dtype == 'float32' and refused",
    kind="single",
)

sentence(
    "move.15",
    "ZeroMQ raised no error; an answer came: {answered}. minips' Zmq, which asks whether anybody is there: {ours}.",
    expect="not answered and ours == 'ConnectionError'",
    kind="single",
)

prompt(
    "move.1",
    "16 workers push gradients of 1 MB over a network of 1 Gbit/s. Which transport do you take, and what would change "
    "your decision? Two sentences, with a number from the table.",
    "Without a network Tcp makes several times the 125 calls of 1 MB a second that 1 Gbit/s carries, and over 1 "
    "Gbit/s all three come close to 125: the network is the limit, and I take Tcp for its reserve. With 10 Gbit/s or "
    "1 kB the transport would be the limit, and I would take the quickest one without a network.",
    by=(
        "timed table: row['tcp'][1] > 3 * 125",
        "timed table: all(100 < r[1] < 130 for name, r in row.items() if name.endswith('1 Gbit/s'))",
        "timed table: max(row['http'][1], row['pyro'][1]) < 10 * 125",
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
        by=("say move.3", "say cost.1"),
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
        "A handler waits 0.05 s for a disk. 16 blocking calls over 16 connections go through a ThreadPoolExecutor(16). "
        "How long do they take?",
        {
            "about as long as one call": "All of them wait at the same time, and a thread that waits needs no core.",
            "about 16 times as long as one call": "That is the time without the pool: each waits for the previous one.",
            "about 8 times as long, with two cores": "Cores matter if threads compute. These threads wait.",
        },
        by="say move.7",
    ),
    Item(
        "A handler answers at once: 16 callers bring far less than 16 times as many calls a second. Another handler "
        "waits: 16 connections in 16 threads bring more than six times as many. What does that show?",
        {
            "calls that wait overlap, calls that do not wait queue": "For what they queue, an interpreter, the cores "
            "or a change of threads, was not measured.",
            "a server has too few connections for 16 callers": "With the handler that waits, as many connections were "
            "no obstacle.",
            "the bandwidth between two processes is used up": "16 callers with 1 kB move some megabytes a second. The "
            "same kind of socket moved far more when frames were large.",
        },
        by=("say move.7", "predict move.2"),
    ),
    Item(
        "A lecture calls Pyro relatively slow. What did this run say?",
        {
            "it is slower than TCP, mostly because of its serializer": "With MessagePack in place of serpent most of "
            "the difference at 1 MB is gone. Pyro is then still slower than TCP.",
            "it is not slow: only its serializer is": "Even with MessagePack its call takes longer than TCP's.",
            "it is slow, and its serializer does not matter": "serpent and MessagePack are far apart at 1 MB.",
        },
        by="say move.6",
    ),
)

remember(
    "move",
    {
        "A transport moves": ("check move.1", "say move.11"),
        "A message takes": ("say move.3", "say move.4"),
        "Sending text": ("say move.2", "say move.5"),
        "Threads around": ("say move.7", "predict move.2"),
        "A measurement must": ("say move.4", "say move.10"),
    },
)
