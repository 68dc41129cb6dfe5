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
    timed_question,
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

timed_question(
    "lecture.2",
    "A call with 2 values, there and back: how long does torch's take, compared with minips' push_pull?",
    Option(
        "at most two thirds as long",
        lambda ratio: 0 < ratio <= 2 / 3,
        "torch's agent is written in C++, and minips in Python. This run does not show how much time that explains.",
    ),
    Option(
        "about as long, within a factor of 1.5",
        lambda ratio: 2 / 3 < ratio < 1.5,
        "Both calls send a small message and wait for the answer, which may take most of the time on this machine.",
    ),
    Expected(
        "more than 1.5 times as long",
        lambda ratio: ratio >= 1.5,
        "Both send a small message and wait for the answer, so the difference is the code around it. torch's call "
        "takes any method of any object: it pickles the call and its result, and hands it to threads on both sides. A "
        "push_pull knows what it carries. This run does not say how much each part takes.",
    ),
    otherwise="The times cannot be compared: one of them is zero, or missing.",
    shown={"ratio": "torch's call: {:.2f} times as long"},
)

sentence(
    "lecture.1",
    "worker1 ends with {worker}. And ps: {server}.",
    expect="'pickle' in worker and 'lambda' in worker and server",
    kind="single",
)

sentence(
    "lecture.2",
    "worker1 ends with {worker}.",
    expect="'NameError' in worker and 'global_ps_rref' in worker",
    kind="single",
)

sentence(
    "lecture.3",
    "worker1 ends with {worker}.",
    expect="'AttributeError' in worker and 'local_value' in worker",
    kind="single",
)

sentence(
    "lecture.4",
    "The list of the owner is {numbers} now. The answers to append and to index were {answers}.",
    expect="numbers == [1, 2, 3] and answers == [None, 2]",
    kind="single",
)

sentence("lecture.5", "worker1 ends with {worker}.", expect="'async' in worker and 'Future' in worker", kind="single")

sentence(
    "lecture.6",
    "Both processes end, and the server's parameters are {params}.",
    expect="not server and not worker and params == [-0.5, -0.5]",
    kind="single",
)

sentence(
    "lecture.7",
    "After adding 7 to the fetched copy, the server holds {untouched}; after a push of ones it holds {pushed}.",
    expect="untouched == [0, 0] and pushed == [-0.5, -0.5]",
    kind="single",
)

timed_sentence(
    "lecture.8",
    "Pushes sent together take {short:.0%} of the time of pushes one by one on a link with a latency of 1 millisecond, "
    "{middle:.0%} with 5, and {long:.0%} with 20.",
)

prompt(
    "lecture.1",
    "In two sentences: how do the two compare as messages grow, and how sure are you? Use the range of the five turns.",
    "torch's call took longer than minips' at each size whose whole range lies above 1. These five turns show a change "
    "of the ratio with the size only where the ranges do not overlap.",
    by="timed table: row['2'][1] > 1",
    kind="time",
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
        by="say lecture.1",
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
        by="say lecture.2",
    ),
    Item(
        "You want the server's parameters to change. Which call does that?",
        {
            "reference.rpc_sync().apply_gradients(g)": "The call is sent to the owner, which changes the object.",
            "reference.to_here().apply_gradients(g)": "This changes a copy at the caller, which is then forgotten.",
            "reference.local_value().apply_gradients(g), at the worker": "Only the owner may call local_value(); at "
            "the worker it raises an error.",
        },
        by="say lecture.6",
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
        by="say lecture.7",
    ),
    Item(
        "What does rpc_async() change, compared with rpc_sync()?",
        {
            "The caller goes on, and gets the result from a future.": "The call is the same, but the caller waits only "
            "when it needs the result.",
            "The method runs at the caller, and no call travels.": "The method runs at the owner in both cases.",
            "The owner runs the method, and sends no result.": "The result is sent, and wait() returns it.",
        },
        by=("say lecture.5", "check lecture.2"),
    ),
)

remember(
    "lecture",
    {
        "pickle sends": "say lecture.1",
        "Each process has": "say lecture.2",
        "`to_here()`": ("predict lecture.1", "say lecture.7"),
        "A remote reference": ("say lecture.4", "say lecture.5"),
        "A program that ends": ("predict lecture.1", "check lecture.1"),
    },
)
