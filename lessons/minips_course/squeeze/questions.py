"""The questions, sentences and quiz of "Squeeze bytes"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    card,
    prompt,
    question,
    quiz,
    remember,
    sentence,
    timed_estimate,
    timed_question,
    timed_sentence,
)

question(
    "squeeze.1",
    "How much of the gradient's 400 000 bytes does LZ4 leave?",
    Option(
        "about half",
        lambda left: 0.3 <= left < 0.7,
        "Pieces of four bytes occur again and again, so every other one could be replaced by a note.",
    ),
    Option(
        "about nine tenths",
        lambda left: 0.8 <= left < 0.97,
        "Some pieces occur again nearby: the signs and exponents of neighbouring values are alike.",
    ),
    Expected(
        "all of them",
        lambda left: 0.99 < left < 1.05,
        "LZ4 saves only where a piece of four bytes or more occurs again nearby. Three of the four bytes of "
        "each number are as good as random, so that hardly ever happens.",
    ),
    otherwise="The share that LZ4 leaves lies between the options, or below them.",
    kind="count",
    shown={"left": "bytes left: {:.1%}"},
)

timed_estimate(
    "squeeze.2",
    "Below which bandwidth does the best of the five compressors pay for the 8-bit codes, on this machine?",
    "Mbit/s",
    expected=(60, 3000),
    because="The best one saves about 90 000 bits. Compressing and decompressing 100 kB takes it between 0.03 and 1.5 "
    "thousandths of a second. The break-even is the bits divided by the time.",
    otherwise="The best compressor took much less or much more time here than the 0.03 to 1.5 thousandths of a second "
    "that the text assumes; or none saved anything.",
)

timed_question(
    "squeeze.3",
    "Which of the two trains in much less time with LZ4, below 0.75 of the time without it?",
    Option(
        "both of them",
        lambda dense, yes: 0 < dense < 0.75 and 0 < yes < 0.75,
        "LZ4 found enough repetition in the gradients and parameters of each problem, and this link is slow.",
    ),
    Expected(
        "only yes or no",
        lambda dense, yes: 0 < yes < 0.75 <= dense,
        "Where the answer to a question is no for all eight images of a batch, its ten gradients are zero: "
        "long runs of zeros, which LZ4 finds. In a dense gradient hardly any value is zero. On a link this slow, "
        "bytes are time.",
    ),
    Option(
        "only dense",
        lambda dense, yes: 0 < dense < 0.75 <= yes,
        "LZ4 found repetition in the dense gradients, and the zeros of the other problem saved no time.",
    ),
    Option(
        "neither of them",
        lambda dense, yes: dense >= 0.75 and yes >= 0.75,
        "Whatever LZ4 saved, the link was so fast, or the machine so busy, that the bytes took hardly any time.",
    ),
    otherwise="One of the runs gave no time to compare.",
    shown={
        "dense": "dense: {:.2f} of the time without LZ4",
        "yes": "yes or no: {:.2f} of the time without LZ4",
    },
)

sentence("squeeze.1", "LZ4 leaves {left:.2f} of the bytes.", expect="left > 0.99", kind="count")

sentence(
    "squeeze.2",
    "Of {count:,} pieces of the gradient {again:,} had occurred before: {share:.2%}. Of as many random pieces, about "
    "{chance:.0f} would have.",
    expect="chance < again and share < 0.01",
    kind="count",
)

sentence(
    "squeeze.3",
    "The highest byte carries {top:.1f} bits; the others carry between {low:.2f} and {high:.2f}. All four together: "
    "{all:.2f} of the bytes, if each byte is coded independently.",
    expect="top < 4 and 7.5 < low <= high <= 8",
    kind="count",
)

card(
    "squeeze.4",
    "Byte {number}: at least {H:.3f} bits by Shannon's formula, {needed:.3f} by Huffman's code.",
    expect="H <= needed < H + 1",
    kind="identity",
)

card(
    "squeeze.5",
    "zlib needs {zlib:.2f} bits for byte 3, our code {ours:.2f}.",
    expect="abs(zlib - ours) < 0.1",
    kind="identity",
)

sentence(
    "squeeze.6",
    "LZ4 leaves {before:.2f} without the shuffle and {after:.2f} with it.",
    expect="0.8 < after < 0.95 < before",
    kind="count",
)

sentence(
    "squeeze.7",
    "With zeros between 1 % of the values, every compressor leaves at most {zeros:.2f}. LZ4 leaves {lz4:.2f} or more "
    "of float32 and of the 8-bit codes; Blosc, with its shuffle, {blosc:.2f} of float32. The best compressor leaves "
    "{signs:.2f} of the 1-bit signs.",
    expect="zeros < 0.1 and lz4 > 0.98 and 0.5 < blosc < 0.97 and signs > 0.9",
    kind="count",
)

sentence(
    "squeeze.8",
    "zlib leaves {text:.1f} of the text. That is still {array:.1f} times the array.",
    expect="text < 0.5 and array > 2",
    kind="count",
)

sentence(
    "squeeze.9",
    "By the entropy of single bytes, {limit:.3f} of the 8-bit codes could be left. zlib leaves {zlib:.3f}, zstd "
    "{zstd:.3f}.",
    expect="limit <= min(zlib, zstd) and max(zlib, zstd) < limit + 0.03",
    kind="count",
)

sentence(
    "squeeze.10",
    "{name}: LZ4 leaves {sent:.0%} of the bytes that the workers send, and {got:.0%} of those that they receive.",
    expect="sent > 0.95 if name == 'dense' else sent < 0.3 and got < 0.85",
    kind="count",
)

timed_sentence(
    "squeeze.11",
    "A step with LZ4 takes {dense:.0%} of the time for dense, and {yes:.0%} for yes or no (medians of 15 steps).",
    expect="dense > 0.9 and yes < 0.75",
)

timed_sentence(
    "squeeze.12",
    "The 8-bit codes with {count} compressors: {best} pays below {fast[1]:,.0f} Mbit/s (quartiles {fast[0]:,.0f} to "
    "{fast[2]:,.0f} of 15 repeats), zlib below {zlib[1]:,.0f} ({zlib[0]:,.0f} to {zlib[2]:,.0f}).",
    expect="count == 5 and fast[1] > 4 * zlib[1] and fast[0] > 60",
)

timed_sentence(
    "squeeze.13",
    "Of float32, whose mantissas are random, {best} saves {saved:.0%}, and pays below {fast[1]:,.0f} Mbit/s; zlib "
    "below {zlib[1]:,.0f}.",
    expect="saved > 0.03 and fast[1] > 4 * zlib[1] and fast[1] > 60",
)

timed_sentence(
    "squeeze.14",
    "gzip takes {ratios[1]:.2f} times as long as zlib (quartiles {ratios[0]:.2f} to {ratios[2]:.2f} of 15 pairs), and "
    "makes {extra} bytes more.",
    expect="0.7 < ratios[1] < 1.4",
)

sentence(
    "squeeze.15",
    "Of {arrays} arrays of parameters {same} are the same to the last bit, with the compressor and without. That is "
    "what lossless means.",
    expect="same == arrays",
    kind="identity",
)

timed_sentence(
    "squeeze.16",
    "{best} and the 8-bit codes, from the medians: one message alone, below {alone:,.0f} Mbit/s. Four workers, each "
    "with a slow line: {own:,.0f}. Four workers on the server's slow line: {shared:,.0f}. One message in blocks, "
    "if all the steps overlap: {blocks:,.0f}.",
    expect="own < alone < shared and blocks > alone",
)

prompt(
    "squeeze.1",
    "Your workers send 8-bit codes over lines of 100 Mbit/s. Which compressor, if any, do you choose for one worker, "
    "and by which numbers in the table? And for four workers? Two sentences.",
    "For one worker I choose zstd, if 100 Mbit/s lies below its whole interval; zlib pays only on much slower lines. "
    "With four workers the server decompresses four frames, so I look at the last column and use none if it says less "
    "than 100 Mbit/s.",
    by=("timed table: row['zlib'][2] < 100 < row['zstd'][2] - row['zstd'][3]", "check squeeze.1"),
    kind="time",
)

quiz(
    "squeeze",
    Item(
        "Why does LZ4 save nothing on a dense float32 gradient?",
        {
            "hardly any piece of four bytes occurs twice": "Four neighbouring bytes always hold bytes of a mantissa, "
            "and those are as good as random.",
            "each of the four bytes is as good as random": "The highest byte is not: sign and exponent carry far fewer "
            "than 8 bits. LZ4 cannot use that, since it looks for repeated pieces.",
            "LZ4 removes zeros, and there are none": "Any repeated piece would do. Zeros are the most common case.",
        },
        by=("say squeeze.1", "say squeeze.2"),
    ),
    Item(
        "zstd saves a tenth of the 8-bit codes, and LZ4 nothing. What does zstd use?",
        {
            "some codes are more frequent": "Frequent bytes get short words. LZ4 has no such words: it uses "
            "repeated pieces only.",
            "codes that hardly matter can be dropped": "Nothing is dropped: zstd is lossless and restores every bit.",
            "it shuffles the bytes first": "Blosc does that. And a code is one byte, so nothing can be reordered.",
        },
        by="say squeeze.9",
    ),
    Item(
        "What does the shuffle change?",
        {
            "the order of the bytes": "Similar bytes stand side by side afterwards, where a compressor finds them. The "
            "entropy of each of the four byte planes does not change.",
            "the size": "The shuffle makes nothing smaller. The compressor after it does.",
            "the last bits of the mantissas": "No bit is changed. The inverse transposition gives every float back.",
        },
        by=("say squeeze.6", "check squeeze.2"),
    ),
    Item(
        "A compressor saves 80 000 bits of a frame. It takes 1 thousandth of a second at both ends together. For one "
        "message alone, below which bandwidth does it pay?",
        {
            "80 Mbit/s": "At this bandwidth, 80 000 bits take a thousandth of a second: the wire saves as much time "
            "as the CPU spends.",
            "10 Mbit/s": "That is 10 megabytes per second in the wrong unit. The 80 000 are bits already.",
            "it depends on the size of the frame": "Only the bits saved and the seconds spent count.",
        },
        by="check squeeze.1: 80_000 / 1e-3 == 80 * 1e6",
    ),
    Item(
        "Four workers have lines of their own, and one thread of the server decompresses. How does the break-even of "
        "a round compare with that of one message?",
        {
            "it is lower": "The wire saves the time of one frame, but four are decompressed one after the other.",
            "it is the same": "It would be the same if the server had a thread and a core for each worker.",
            "it is four times as high": "That would need a shared line and a decompressor that takes no time.",
        },
        by=("check squeeze.1", "say squeeze.16"),
    ),
)

remember(
    "squeeze",
    {
        "A compressor uses": ("say squeeze.2", "say squeeze.3"),
        "The entropy is": ("say squeeze.4", "say squeeze.9"),
        "The shuffle puts": ("say squeeze.6", "check squeeze.2"),
        "Break-even bandwidth": "check squeeze.1",
        "With several workers": ("check squeeze.1", "say squeeze.16"),
    },
)
