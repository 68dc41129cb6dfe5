"""The questions, sentences and quiz of "Put a deep net under DDP"."""

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
    "ddp.1",
    "DDP makes one step of this net, with buckets of its default size. When does the first all-reduce begin?",
    Option(
        "with the first gradient that is ready",
        lambda first, last, begin: begin < first + 0.25 * (last - first),
        "Each gradient travelled by itself, as soon as it was ready.",
    ),
    Option(
        "in the middle of backward",
        lambda first, last, begin: first + 0.25 * (last - first) <= begin < last,
        "A first bucket was full when only some of the gradients were ready.",
    ),
    Expected(
        "after the last gradient is ready",
        lambda first, last, begin: begin >= last,
        "A bucket travels when it is full. The smallest one that DDP makes by itself holds 1 MB, and all gradients of "
        "this net together are 0.15 MB. So all of them are in one bucket, and the last one fills it.",
    ),
    otherwise="No all-reduce was seen.",
    shown={
        "first": "the first gradient is ready: {:.2f} ms",
        "begin": "the first all-reduce begins: {:.2f} ms",
        "last": "the last gradient is ready: {:.2f} ms",
    },
)

question(
    "ddp.3",
    "Which step ends sooner here: overlapped or flat?",
    Option(
        "overlapped, by more than 5 %",
        lambda each, one: each < one / 1.05,
        "What overlap hid behind backward was more than the latencies that it added.",
    ),
    Expected(
        "flat, by more than 5 %",
        lambda each, one: one < each / 1.05,
        "Overlapped pays the latency eight times, flat once. The messages travel one after another, so most of the "
        "eight are still waiting for the link when backward ends.",
    ),
    Option(
        "neither: they differ by less",
        lambda each, one: one / 1.05 <= each <= 1.05 * one,
        "What overlap hid behind backward was about as much as the latencies that it added.",
    ),
    otherwise="The steps could not be computed.",
    kind="single",
    shown={"each": "overlapped, eight messages: {:.0f} ms", "one": "flat, one message: {:.0f} ms"},
)

sentence(
    "ddp.7",
    "After each exchange, the gradients differ from the mean of the two ranks' gradients by {error:.1g} at most.",
    expect="error < 1e-5",
    kind="identity",
)

sentence(
    "ddp.8",
    "Milliseconds of a step in virtual time: naive {naive:.0f}, overlapped {each:.0f}, flat {one:.0f}, and "
    "bucketed {best:.0f} (at {size:.0f} kB, {messages} messages). When bucketed, backward takes {backward:.0f} and the "
    "messages {busy:.0f}, of which overlap hides {hidden:.0f}.",
    expect="max(backward, busy) < best < one < naive and best < each < naive",
    kind="single",
)

timed_sentence(
    "ddp.9",
    "A step as a share of the naive one, in pairs of {turns} turns (median, quartiles): flat {flat.median:.2f} "
    "({flat.low:.2f} to {flat.high:.2f}), overlapped {overlapped.median:.2f} ({overlapped.low:.2f} to "
    "{overlapped.high:.2f}), bucketed {bucketed.median:.2f} ({bucketed.low:.2f} to {bucketed.high:.2f}).",
)

sentence(
    "ddp.10",
    "Your two numbers: the shortest step of the panel has {messages} messages, and a hook with a memory sent "
    "{share:.0%} of the bytes.",
    expect="1 < messages < 8 and share < 0.1",
    kind="count",
)

sentence(
    "ddp.4",
    "Top 2 %, each at its best rate: with a memory the net reads {gain:.0f} ± {half:.0f} percentage points more than "
    "without, and {over:.0f} ± {over_half:.0f} more than with exact gradients (five seeds, in pairs).",
    expect="gain > half and abs(over) < over_half",
    kind="comparison",
)

prompt(
    "ddp.2",
    "Compare the rows of the table. What did fewer messages buy, and what did overlap buy on top? Two sentences, "
    "with its numbers.",
    "Flat pays one latency where naive pays one for each tensor: its step is shorter by the difference of the two "
    "medians. Buckets also travel while backward goes on, so their step is shorter than that of flat.",
    by=("timed table: not solved or row['bucketed'][0] < row['flat'][0] < row['naive'][0]", "say ddp.8"),
    kind="time",
)

quiz(
    "ddp",
    Item(
        "Why is one buffer for all tensors faster than an all-reduce for each, one after another?",
        {
            "the latency is paid once, not for each tensor": "The bytes are the same. Each all-reduce pays a latency.",
            "one buffer has fewer bytes than its tensors": "The buffer has exactly as many bytes as its tensors.",
            "one buffer can be sent during backward": "It can only be sent when the last gradient is in it.",
        },
        by="say ddp.8",
    ),
    Item(
        "What is the most that overlap can save in a step?",
        {
            "the shorter one of backward and communication": "At best the shorter one is hidden behind the longer one.",
            "all of the communication, however long it is": "If it takes longer than backward, its end is not hidden.",
            "the latency of each all-reduce, but no byte": "Bytes travel during backward, too.",
        },
        by="say ddp.8: best > max(backward, busy)",
    ),
    Item(
        "All gradients of a net fit into one bucket of DDP. What follows?",
        {
            "nothing overlaps, since the last gradient fills it": "This is the flat way. Smaller ones could overlap.",
            "DDP cuts it, so that two halves can overlap": "DDP does not cut buckets. You choose their size.",
            "each tensor travels as soon as it is ready": "A bucket travels whole, when it is full.",
        },
        by="predict ddp.1",
    ),
    Item(
        "A program reads a buffer before its all-reduce has ended. What may it find?",
        {
            "this rank's own gradients": "The sum is written when it is there. So wait for the future first.",
            "always zeros": "Nobody clears the buffer. It has the values that this rank put there.",
            "the mean, since the call has returned": "The call only starts the all-reduce, and returns a future.",
        },
        by="check ddp.3",
    ),
    Item(
        "Where is the state of an error-feedback hook kept?",
        {
            "at each rank, for its own gradients": "The state is the values that this rank did not send.",
            "at rank 0, for the mean of all ranks": "The mean no longer contains the values that each rank left out.",
            "in DDP's buckets, which hold gradients only": "A bucket's buffer is written anew in each step.",
        },
        by="check ddp.2",
    ),
)

remember(
    "ddp",
    {
        "Each message pays": "say ddp.8",
        "Overlap hides": "say ddp.8: best > max(backward, busy)",
        "If all": "predict ddp.1",
        "Buckets are": ("say ddp.8", "say ddp.10"),
        "A hook decides": ("say ddp.4", "say ddp.10", "check ddp.2"),
    },
)

RETIRED = {"predict": (2,), "say": (1, 2, 3, 5, 6), "answer": (1,), "check": (1,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
