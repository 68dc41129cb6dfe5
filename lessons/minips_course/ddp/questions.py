"""The questions, sentences and quiz of "Put a deep net under DDP"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    estimate,
    prompt,
    quiz,
    remember,
    sentence,
    timed_question,
    timed_sentence,
)

timed_question(
    "ddp.1",
    "DDP makes one step of this net, with buckets of its own size. When does the first all-reduce begin?",
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

estimate(
    "ddp.2",
    "Training takes 60 steps with torch's PowerSGD of rank 2, the first ten of them with whole gradients. Of the net's "
    "38,282 values 32,768 are a matrix of 64 × 512. What share of the uncompressed bytes does a rank send over the 60 "
    "steps?",
    "%",
    expected=(10.0, 35.0),
    because="The matrix of 64 × 512 values travels as two thin ones, 64 × 2 and 512 × 2: 28 times fewer. But the first "
    "ten of the 60 steps travel whole, a sixth of all bytes.",
    otherwise="The thin matrices, or the steps that send whole gradients, had a different share of the bytes.",
    kind="count",
)

sentence(
    "ddp.1",
    "The mean gradient of each way differs from that of one process on all the rows by {error:.0e} at most.",
    expect="error < 1e-5",
    kind="identity",
)

timed_sentence(
    "ddp.2",
    "A whole step in milliseconds, median of {turns} turns: {told}.",
)

timed_sentence(
    "ddp.3",
    "A step as a share of the naive way's, in pairs of turns (median, quartiles): with one buffer for all "
    "{flat.median:.2f} ({flat.low:.2f} to {flat.high:.2f}), overlapped {overlapped.median:.2f} ({overlapped.low:.2f} "
    "to {overlapped.high:.2f}), DDP with small buckets {small.median:.2f} ({small.low:.2f} to {small.high:.2f}).",
    expect="small.median < flat.median < 1 and overlapped.median < 1",
)

timed_sentence(
    "ddp.6",
    "The shortest median step of this run: buckets of {best}, {calls} all-reduces in a step.",
    expect="calls > 1",
)

sentence(
    "ddp.4",
    "Top 2 %, each at its best rate: with a memory the net reads {gain:.0f} ± {half:.0f} percentage points more than "
    "without (five seeds, in pairs).",
    expect="gain > half",
    kind="comparison",
)

sentence(
    "ddp.5",
    "torch's fp16 hands over {share:.0%} of the bytes. Its accuracy minus that of the plain all-reduce, each at its "
    "best rate: {points:+.1f} ± {half:.1f} percentage points (five seeds, in pairs).",
    expect="abs(points) <= half + 0.5 and share < 0.51",
    kind="comparison",
)

prompt(
    "ddp.1",
    "This net trains over a link of 10 Mbit/s. Which hook do you take, by which numbers of the table? What would "
    "change your mind? Two sentences.",
    "I take the top 2 % with a memory, since no hook hands over fewer bytes, and its accuracy is not shown to be lower "
    "than that of the plain all-reduce. On a fast link I would take none, since encoding takes time, too.",
    by=(
        "table: table.bytes_sent('minips, top 2 %, memory').mean() == min(table.bytes_sent(name).mean() for name in "
        "table.rates)",
        "table: sum(table.difference('minips, top 2 %, memory', 'all-reduce')) > 0",
    ),
    kind="comparison",
)

quiz(
    "ddp",
    Item(
        "Why is one buffer for all tensors faster than an all-reduce for each?",
        {
            "the latency is paid once, not for each tensor": "The bytes are the same. Each all-reduce pays a latency.",
            "one buffer has fewer bytes than its tensors": "The buffer has exactly as many bytes as its tensors.",
            "one buffer can be sent during backward": "It can only be sent when the last gradient is in it.",
        },
        by="say ddp.3",
    ),
    Item(
        "What is the most that overlap can save in a step?",
        {
            "the shorter one of backward and communication": "At best the shorter one is hidden behind the longer one.",
            "all of the communication, however long it is": "If it takes longer than backward, its end is not hidden.",
            "the latency of each all-reduce, but no byte": "Bytes travel during backward, too.",
        },
        by="say hide.2",
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
        "A hook sends float16. Why does it divide by the number of ranks before it sums?",
        {
            "a sum of several ranks may leave float16's range": "The mean of values in this range stays in it.",
            "float16 cannot be divided after it has travelled": "It can, but after an overflow that is too late.",
            "an all-reduce of torch always divides by itself": "torch's all-reduce only sums. The hook has to divide.",
        },
        by="check ddp.1",
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
        "An all-reduce for": "say ddp.3",
        "Overlap sends": ("say ddp.3", "say hide.2"),
        "A bucket is": "predict ddp.1",
        "A hook decides": "check ddp.1",
        "A hook that": ("say ddp.4", "check ddp.2"),
    },
)
