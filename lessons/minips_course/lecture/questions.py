"""The questions, sentences and quiz of "Mend a lecture's server"."""

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
    "lecture.1",
    "The worker calls apply_gradients on the result of .to_here(). Whose parameters change?",
    Option(
        "the server's parameters alone",
        lambda stopped, server, worker: not stopped and server > 0 and worker == 0,
        "The result behaves like a reference: the call went to the server's object.",
    ),
    Expected(
        "the worker's parameters alone",
        lambda stopped, server, worker: not stopped and server == 0 and worker > 0,
        "The result is a copy. The call changes the copy, and the server never hears of it. No error says so. (On a "
        "copy the mark async_execution has no effect: it is for calls that arrive.)",
    ),
    Option(
        "the parameters of both",
        lambda stopped, server, worker: not stopped and server > 0 and worker > 0,
        "Server and worker share the same array, so each sees the other's changes.",
    ),
    Option(
        "no parameters: the call ends with an error",
        lambda stopped, server, worker: stopped and server == 0 and worker == 0,
        "The result has no method apply_gradients, or it refuses calls outside its owner's process.",
    ),
    otherwise="The call neither changed parameters nor raised an error, or it did both.",
    kind="identity",
    shown={
        "stopped": "the call ended with an error: {}",
        "server": "sum of the server's parameters: {:.3g}",
        "worker": "sum of the worker's parameters: {:.3g}",
    },
)

question(
    "lecture.3",
    "An object has 100 numbers, and a method that changes and returns one of them. How many bytes do 20 calls through "
    "a reference take, compared with one copy?",
    Option(
        "at most half as many",
        lambda ratio: 0 < ratio <= 0.5,
        "A call carries one number each way, and a copy carries all of them.",
    ),
    Option(
        "between half and twice as many",
        lambda ratio: 0.5 < ratio <= 2,
        "What the calls carry besides the number makes them as large as the copy.",
    ),
    Expected(
        "more than twice as many",
        lambda ratio: ratio > 2,
        "Each call sends a pickle with the function, the object's number, the name of the method each time, and the "
        "arguments; the answer is a pickle, too. The copy sends its numbers once. But what the calls on it change, the "
        "owner never sees.",
    ),
    otherwise="There is nothing to compare: no byte travelled.",
    kind="count",
    shown={"ratio": "bytes of the calls: {:.1f} times those of the copy"},
)

timed_sentence(
    "lecture.8",
    "Pushes sent together take {short:.0%} of the time of pushes one by one on a link with a latency of 1 millisecond, "
    "{middle:.0%} with 5, and {long:.0%} with 20.",
)

sentence(
    "lecture.9",
    "On torch {version}, {same} of the {count} programs end as they do here.",
    expect="same == count > 0 or not count",
    kind="single",
)

sentence(
    "lecture.12",
    "{wrong} of the {count} programs ended with an error.",
    expect="wrong == 4 and count == 6 and 'lambda' in errors[0] and 'NameError' in errors[1]",
    kind="single",
)

sentence(
    "lecture.10",
    "In three processes, your worker made {steps} steps with two owners. They remember {pushes} pushes, and the "
    "largest distance from the aim went from 2 to {distance:.3g}. In the panel, the calls took {ratio:.1f} times the "
    "bytes of one copy.",
    expect="(distance == 2) if not any(pushes) else distance < 0.1 and pushes == [steps, steps]",
    kind="single",
)

sentence(
    "lecture.11",
    "After {pushes} pushes of ones with a rate of 0.5, each of the server's numbers is {held:g}.",
    expect="held == -0.5 * pushes",
    kind="single",
)

prompt(
    "lecture.2",
    "In two sentences: when do you fetch a copy, and when do you call through a reference? Use both columns.",
    "To see a small object often, one copy takes fewer bytes than many calls, and a new copy for each call takes the "
    "most. To change the owner's number, only the calls through the reference worked: after the calls on copies it was "
    "still 0.",
    by=(
        "table: row['one copy'][0] < row['through a reference'][0] < row['a copy for each call'][0]",
        "table: row['one copy'][1] == row['a copy for each call'][1] == 0 < row['through a reference'][1]",
    ),
    kind="count",
)

quiz(
    "lecture",
    Item(
        "What does pickle send for a function that a module defines?",
        {
            "Its module and its name.": "The other process imports the module and looks the name up. So it needs the "
            "same module, and the module must contain the name.",
            "Its source.": "A pickle contains no source or byte code. So the other process needs the same module.",
            "Its result.": "Pickling a function does not call it.",
        },
        by="say lecture.12",
    ),
    Item(
        "A function that uses a global of its module is called in another process. Which global does it see?",
        {
            "That of the process in which it runs.": "Only the function's name is sent, so it uses its module's global "
            "in the process where it runs.",
            "That of the process that made the call.": "Globals are not sent with a function: pickle sends only its "
            "module and its name.",
            "Both processes share it.": "Two processes share no variables. Each has its own copy of the module.",
        },
        by="say lecture.12: not errors[5]",
    ),
    Item(
        "You want the server's parameters to change. Which call does that?",
        {
            "reference.rpc_sync().apply_gradients(g)": "The call is sent to the owner, which changes the object.",
            "reference.to_here().apply_gradients(g)": "This changes a copy at the caller, which is then forgotten.",
            "reference.local_value().apply_gradients(g), at the worker": "Only the owner may call local_value(); at "
            "the worker it raises an error.",
        },
        by=("predict lecture.1", "say lecture.12: not errors[5]"),
    ),
    Item(
        "What is to_here() good for?",
        {
            "To read a value once.": "It fetches a copy of the object as it is at that moment. Later changes do not "
            "reach the copy.",
            "To move the object to another owner.": "The object stays with its owner; only a copy is sent.",
            "To save bytes.": "It sends the whole object with all its contents. A method that returns only the needed "
            "part sends less.",
        },
        by=("predict lecture.1", "table lecture.2: row['a copy for each call'][0] > row['through a reference'][0]"),
    ),
    Item(
        "What does rpc_async() change, compared with rpc_sync()?",
        {
            "The caller goes on, and gets the result from a future.": "The call is the same, but the caller waits only "
            "when it needs the result.",
            "The method runs at the caller, and no call travels.": "The method runs at the owner in both cases.",
            "The owner runs the method, and sends no result.": "The result is sent, and wait() returns it.",
        },
        by=("check lecture.3", "check lecture.2"),
    ),
)

remember(
    "lecture",
    {
        "pickle sends": "say lecture.12",
        "Each process has": "say lecture.12",
        "`to_here()`": ("predict lecture.1", "predict lecture.3"),
        "A remote reference": ("say lecture.10", "check lecture.3"),
        "A program that ends": ("predict lecture.1", "say lecture.10"),
    },
)

RETIRED = {"predict": (2,), "say": (1, 2, 3, 4, 5, 6, 7), "answer": (1,), "check": (1,)}
"""The numbers of keys that this lesson no longer uses, by kind."""
