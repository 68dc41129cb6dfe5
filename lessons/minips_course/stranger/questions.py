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
    "stranger.3",
    "The frame has {small:,} bytes and unpacks to {large:,}, {ratio:,.0f} times as many. With a limit of {limit:,}: "
    "{said}",
    expect="ratio > 100 and 'more than' in said",
    kind="count",
)

sentence(
    "stranger.6",
    "With {minips} of {trials:,} wrong bytes in its header, minips' reader raised an error other than ValueError. "
    "np.load did so with {npy} turned bits, and your own server with {own}.",
    expect="minips == 0 and npy > 0 and trials > 10_000",
    kind="identity",
)

sentence(
    "stranger.7",
    "Damage in the values: {tried:,} messages, of which the readers loaded {loaded:,}.",
    expect="loaded == tried > 10_000",
    kind="identity",
)

prompt(
    "stranger.2",
    "What would you let your own server load, and why not a pickle behind a filter? And which damage will it still not "
    "notice? Two sentences.",
    "I would load a format that carries only values, such as MessagePack: a filter needs a list of names, and one name "
    "too many lets a command run. It will still load a changed value, as each reader here did, "
    "unless the message has a checksum or the connection is authenticated.",
    by=("predict stranger.2", "say stranger.6", "say stranger.7"),
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
        "A filter finds each function first, and then compares its name. What can a stranger do?",
        {
            "let it import a module": "Finding a function imports its module, and that runs the module's code. Compare "
            "the name first.",
            "nothing, since the function is not called": "The function is not called, but its module was imported.",
            "send a name that is too long": "A long name is not found, like any other unknown name.",
        },
        by="check stranger.1",
    ),
    Item(
        "A server reads messages in a loop that catches ValueError alone. What ends the loop?",
        {
            "any other error that a reader raises": "np.load raised some at wrong bytes of its header. So a reader "
            "should raise one type of error.",
            "a message whose header is damaged": "If its reader raises ValueError, the loop goes on.",
            "a message with a wrong value": "A reader loads it as if nothing had happened.",
        },
        by="say stranger.6",
    ),
    Item(
        "A byte of an array's values is changed on the way. Which reader of this lesson notices?",
        {
            "none": "Each pattern of bits is a valid value. A checksum or an authenticated connection would notice.",
            "np.load, because it checks the header": "The header is undamaged, and it says nothing about the values.",
            "that of minips, because it raises ValueError": "It raises ValueError for bytes that are not a packet. The "
            "changed bytes are still a packet.",
        },
        by="say stranger.7",
    ),
)

remember(
    "stranger",
    {
        "`pickle.loads` calls": "predict stranger.1",
        "A filter must be": ("predict stranger.2", "check stranger.1"),
        "A filter must refuse": "check stranger.1",
        "A reader should": "say stranger.6",
        "No reader notices": "say stranger.7",
    },
)

RETIRED = {"say": (1, 2, 4, 5), "answer": (1,)}
"""Maps each kind of key to the numbers that earlier editions used."""
