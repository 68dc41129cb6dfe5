"""The questions, sentences and quiz of "Squeeze bytes"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    question,
    quiz,
    remember,
    sentence,
    timed_estimate,
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

sentence(
    "squeeze.15",
    "Of {arrays} arrays of parameters {same} are the same to the last bit, with the compressor and without. That is "
    "what lossless means.",
    expect="same == arrays",
    kind="identity",
)

sentence(
    "squeeze.17",
    "With zeros between 1 % of the values, each compressor leaves at most {zeros:.2f}. Of float32, LZ4 leaves "
    "{floats[lz4]:.2f}, and blosc 5 with its shuffle {floats[blosc 5]:.2f}. Of the 8-bit codes, LZ4 leaves "
    "{codes[lz4]:.2f} and zstd 1 {codes[zstd 1]:.2f}: the most frequent of the 256 codes makes up {common:.1%} of "
    "them.",
    expect="zeros < 0.1 and floats['lz4'] > 0.98 and 0.5 < floats['blosc 5'] < 0.97 and codes['lz4'] > 0.98 "
    "and codes['zstd 1'] < 0.92 and common > 2 / 256",
    kind="count",
)

timed_sentence(
    "squeeze.18",
    "For the 8-bit codes {best} pays below {fast[1]:,.0f} Mbit/s (quartiles {fast[0]:,.0f} to {fast[2]:,.0f} of 15 "
    "repeats), zlib 1 below {zlib[1]:,.0f}. Of float32, whose mantissas are as good as random, {best_32} saves "
    "{saved:.0%}, and pays below {fast_32[1]:,.0f}.",
    expect="fast[1] > 4 * zlib[1] and fast[0] > 60 and max(fast[1], fast_32[1]) < 100_000 and saved > 0.03",
)

timed_sentence(
    "squeeze.19",
    "Your compressor leaves {sent:.0%} of the bytes of the pushes. A step takes {step:.0%} of the time without it "
    "(medians of 10 steps).",
    expect="sent < 1 and step < 1.05",
)

timed_sentence(
    "squeeze.20",
    "Your two numbers: for the 8-bit codes {best} pays below {fast:,.0f} Mbit/s, and your compressor leaves {sent:.0%} "
    "of a push of floats.",
    expect="fast > 60 and sent < 1",
)

timed_sentence(
    "squeeze.21",
    "{best} and the 8-bit codes, from the medians: one worker below {one:,.0f} Mbit/s, four workers below {four:,.0f}.",
    expect="four <= one",
)

prompt(
    "squeeze.2",
    "Your workers send 8-bit codes, first over lines of 100 Mbit/s, then over 100 Gbit/s in a data centre. Which "
    "compressor, if any, do you choose on each, and by which numbers in the table? Two sentences.",
    "At 100 Mbit/s I choose zstd 1, because its break-even is higher, while zlib 1 pays only on slower lines. At 100 "
    "Gbit/s I choose none, because each break-even in the table is lower.",
    by=(
        "timed table: row['zlib 1'][1] < 100 < row['zstd 1'][1]",
        "timed table: max(column(1) + column(3)) < 100_000",
    ),
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
        by=("predict squeeze.1: left > 0.99", "say squeeze.17"),
    ),
    Item(
        "zstd saves a tenth of the 8-bit codes, and LZ4 nothing. What does zstd use?",
        {
            "some codes are more frequent": "Frequent bytes get short words. LZ4 has no such words: it uses "
            "repeated pieces only.",
            "codes that hardly matter can be dropped": "Nothing is dropped: zstd is lossless and restores every bit.",
            "it shuffles the bytes first": "Blosc does that. And a code is one byte, so nothing can be reordered.",
        },
        by="say squeeze.17: codes['zstd 1'] < 0.92 and codes['lz4'] > 0.98",
    ),
    Item(
        "What does the shuffle change?",
        {
            "the order of the bytes": "Similar bytes stand side by side afterwards, where a compressor finds them.",
            "the size": "The shuffle makes nothing smaller. The compressor after it does.",
            "the last bits of the mantissas": "No bit is changed. The inverse transposition gives every float back.",
        },
        by="check squeeze.2",
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
        "A link in a data centre carries 100 Gbit/s. Which of the five compressors pays there for float32?",
        {
            "none of them": "The wire is faster than the CPU at both ends: each break-even lies far below 100 Gbit/s.",
            "zstd 1": "It is quick for its kind, but a break-even of 100 Gbit/s needs much more speed.",
            "each that saves something": "What it saves on this wire is less time than it spends on the CPU.",
        },
        by="say squeeze.18: fast_32[1] < 100_000",
    ),
)

remember(
    "squeeze",
    {
        "A compressor uses": ("predict squeeze.1: left > 0.99", "say squeeze.17"),
        "The shuffle puts": ("say squeeze.17: floats['blosc 5'] < floats['lz4']", "check squeeze.2", "say squeeze.20"),
        "Break-even bandwidth": "check squeeze.1",
        "Below the break-even": ("say squeeze.18", "say squeeze.20"),
        "A data centre's link": "say squeeze.18: max(fast[1], fast_32[1]) < 100_000",
    },
)

RETIRED = {"predict": (3,), "say": (*range(1, 15), 16), "answer": (1,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
