"""The questions, sentences and quiz of "Open a stranger's bytes"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    question,
    quiz,
    remember,
    sentence,
)

question(
    "stranger.1",
    "A stranger sends a pickle that is made to run a command. What happens at server A?",
    Option(
        "the message is dropped, and no command has run",
        lambda accepted, ran: not accepted and not ran,
        "loads made an object, and the check dropped it before anything was called.",
    ),
    Expected(
        "the message is dropped, but the command has run",
        lambda accepted, ran: not accepted and ran,
        "loads calls the function, because that is how it makes the object. The check comes too late: it drops what "
        "the command returned.",
    ),
    Option(
        "the message is accepted, and the command has run",
        lambda accepted, ran: accepted and ran,
        "The command ran, and its result passed the check.",
    ),
    otherwise="The message was accepted, and no command has run.",
    kind="single",
    shown={
        "accepted": "the message was accepted: {}",
        "ran": "the command has run: {}",
    },
)

question(
    "stranger.2",
    "Does that help? Strangers try to run a command at server B, with anything they find in numpy.",
    Option(
        "no command runs, and an array is accepted",
        lambda honest, ran: honest and ran == 0,
        "A function outside of numpy was not found, and no function of numpy ran a stranger's command.",
    ),
    Expected(
        "a command runs, and an array is accepted",
        lambda honest, ran: honest and ran > 0,
        "numpy is large. One of its functions, numpy.testing.runstring, runs any text as Python, and B finds it.",
    ),
    Option(
        "no command runs, but an array is dropped, too",
        lambda honest, ran: not honest and ran == 0,
        "An array's pickle names a function outside numpy, so B finds neither that function nor a stranger's.",
    ),
    otherwise="A command ran, and an array was dropped: the filter does the opposite of its purpose.",
    kind="single",
    shown={
        "honest": "an array was accepted: {}",
        "ran": "commands that have run: {:.0f}",
    },
)

sentence(
    "stranger.1",
    "np.load: {said}. np.load with allow_pickle=True: {got}.",
    expect="said == 'refused' and 'shell' in got",
    kind="single",
)

sentence(
    "stranger.2",
    "The server answers: {answer} Its parameters moved by {moved:g}.",
    expect="'names msgpack' in answer and moved == 0",
    kind="single",
)

sentence(
    "stranger.3",
    "The frame has {small:,} bytes and unpacks to {large:,}, {ratio:,.0f} times as many. With a limit of {limit:,}: "
    "{said}",
    expect="ratio > 100 and 'more than' in said",
    kind="count",
)

sentence(
    "stranger.4",
    "Of all {trials:,} wrong values of one byte of this message, {header:,} of them in the header, {other} made the "
    "reader of minips raise an error other than ValueError.",
    expect="other == 0 and header > 10_000",
    kind="identity",
)

sentence(
    "stranger.5",
    "Of the {bits} bits of the values, whichever is turned, each of the {readers} readers notices {noticed}.",
    expect="noticed == 0",
    kind="count",
)

prompt(
    "stranger.1",
    "A server calls one of these readers in a loop that catches ValueError and nothing else. With which reader does "
    "the loop always go on? And which damage does no reader notice? Two sentences.",
    "With the reader of minips: no wrong byte of this message makes it raise anything but ValueError, while some "
    "turned bits in the other readers' headers do, and the loop would end. No reader notices a changed value: that "
    "needs a checksum or an authenticated connection.",
    by=(
        "say stranger.4",
        "say stranger.5",
    ),
    kind="single",
)

quiz(
    "stranger",
    Item(
        "Why does it not help to check the result of pickle.loads?",
        {
            "the functions in it have been called by then": "loads makes the object by calling these functions.",
            "the result has no type to check": "The result has a type, but a check of it comes too late.",
            "a pickle hides its type until it is used": "The type is known as soon as loads returns.",
        },
        by="predict stranger.1",
    ),
    Item(
        "A filter finds every name in the package numpy. What is wrong with it?",
        {
            "one of its many functions is enough": "Some run text as Python, and some open files. Nobody has checked "
            "all of them with a stranger's arguments.",
            "numpy's functions are written in C": "The problem is not the language, but what the functions do.",
            "arrays need names outside of numpy": "With protocols 4 and 5, arrays need only names in numpy.",
        },
        by="predict stranger.2",
    ),
    Item(
        "What makes MessagePack with raw frames safer than pickle?",
        {
            "it names no functions, only values": "It contains nothing that a reader would call.",
            "its bytes are encrypted on the way": "They are not encrypted. Anyone who sees the bytes can read them.",
            "its messages are much shorter": "The length says nothing about what the bytes can do.",
        },
        by="say stranger.2",
    ),
    Item(
        "A frame of 40 kB unpacks to 10 MB, more than the receiver's limit. What should the receiver do?",
        {
            "stop unpacking at its limit": "Then the memory never holds more unpacked bytes than the limit allows.",
            "unpack it and look at the length": "By then the memory is already in use, as with server A.",
            "refuse all compressed frames": "That is safe, but gives up the bytes that compression saves.",
        },
        by=("say stranger.3", "check stranger.2"),
    ),
    Item(
        "A byte of an array's values is changed on the way. Which reader of this lesson notices?",
        {
            "none": "Each pattern of bits is a valid value. A checksum or an authenticated connection would notice.",
            "np.load, because it checks the header": "The header is undamaged, and it says nothing about the values.",
            "that of minips, because it raises ValueError": "It raises ValueError for bytes that are not a packet. The "
            "changed bytes are still a packet.",
        },
        by="say stranger.5",
    ),
)

remember(
    "stranger",
    {
        "`pickle.loads` calls": "predict stranger.1",
        "A filter must be": ("predict stranger.2", "check stranger.1"),
        "A format that carries": ("say stranger.2", "say stranger.4"),
        "A limit on": ("say stranger.3", "check stranger.2"),
        "A reader should": ("say stranger.4", "say stranger.5"),
    },
)
