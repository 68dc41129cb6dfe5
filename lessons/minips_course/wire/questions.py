"""The questions, sentences and quiz of "Put arrays on a wire"."""

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
    timed_question,
    timed_sentence,
)

question(
    "wire.1",
    "40 000 bytes of float32 numbers: how long is the JSON text?",
    Option(
        "about 40 000 bytes",
        lambda ratio: 0.8 <= ratio <= 1.4,
        "Four characters are enough for most of these numbers, because many of them are zero.",
    ),
    Option(
        "about 80 000 bytes",
        lambda ratio: 1.6 < ratio <= 2.5,
        "Seven or eight characters are enough for most of these numbers, including a comma and a space.",
    ),
    Expected(
        "more than 160 000 bytes",
        lambda ratio: ratio > 4,
        "tolist() makes Python floats of 64 bits, and JSON writes as many digits as those need: about 17. Before them "
        "stand a zero and a point, often a sign; after them, a comma and a space.",
    ),
    otherwise="The length lies between two of the options.",
    kind="count",
    shown={"ratio": "the JSON text: {:.2f} times as long"},
)

timed_question(
    "wire.2",
    "An array 25 times as large: how many times as long do the two calls, dumps and loads, take together?",
    Option(
        "about 25 times",
        lambda times: times >= 15,
        "Each byte was copied or read, and that took most of the time for both arrays.",
    ),
    Option(
        "about 5 times",
        lambda times: 3.5 <= times < 8,
        "Part of the work grew with the array, and part did not: the header, and the calls of Python functions.",
    ),
    Expected(
        "less than 2.5 times",
        lambda times: times < 2.5,
        "dumps writes a header and hands out the memory of the array as it is. loads reads the header and makes an "
        "array over the bytes that came. Neither looks at the values, so their number hardly matters.",
    ),
    otherwise="The ratio lies between two of the options, or the two times give none.",
    shown={"times": "the two calls: {:.2f} times as long"},
)

sentence(
    "wire.1",
    "JSON makes {json:.1f} times the bytes of the array, a list in MessagePack {list:.1f} times, pickle "
    "{pickle:.3f} times.",
    expect="json > 4 and list > 2 and pickle < 1.01",
    kind="count",
)

timed_sentence(
    "wire.2",
    "For {size}, json takes about {times:,.0f} times as long to write and read back as msgpack, which touches no value "
    "(five repeats; half of them from {low:,.0f} to {high:,.0f}).",
    expect="low > 10",
)

timed_sentence(
    "wire.10",
    "Sent through a local socket as well, json takes about {times:,.0f} times as long as msgpack for {size} (half of "
    "the repeats from {low:,.0f} to {high:,.0f}).",
    expect="low > 1",
)

sentence(
    "wire.3",
    "The array has {array:,} bytes. The text is {text:.2f} times as long, the packed and compressed bytes are "
    "{compressed:.3f} times as many.",
    expect="text > 2 and compressed > 1",
    kind="count",
)

sentence(
    "wire.4",
    "MessagePack turns the {array:,} bytes into {packed:,}, and LZ4 adds {added}.",
    expect="packed > 1.1 * array and 0 < added < 100",
    kind="count",
)

sentence(
    "wire.5",
    "The second frame lies in the array's own memory: {shared}. It changed with the array: {changed}.",
    expect="shared and changed",
    kind="identity",
)

sentence("wire.6", "The array is not copied by {names}.", expect="names == 'msgpack, npy, pickle'", kind="identity")

sentence(
    "wire.7",
    "With your pack the workers sent {ratio:.2f} times the bytes of the arrays, with pickle {pickle:.2f} times. The "
    "parameters of the two runs differ by {far:g}.",
    expect="far == 0",
    kind="count",
)

timed_sentence(
    "wire.8",
    "One message was sent. It arrived in {pieces} pieces, the largest of {most:.1f} MB.",
    expect="pieces > 1",
)

card(
    "wire.9",
    "The loaded array lies in the memory of the original: {shared}. The pickle has {small} bytes for 40 kB and {large} "
    "for 2 MB.",
    expect="shared and large - small <= 16",
    kind="identity",
)

prompt(
    "wire.1",
    "Four workers send a gradient of 1 MB ten times a second, and you choose the format. Which one, and by which "
    "numbers in the table? For which messages would you choose another one? Two sentences.",
    "I choose msgpack: it adds few bytes, copies nothing, and a large array takes hardly longer than a small one. "
    "For a few settings that people read and change I would choose JSON: its digits and its time do not matter there.",
    by=(
        "table: row['msgpack'][0] == min(column(0))",
        "say wire.6",
        "timed table: row['msgpack'][2] < 2",
    ),
    kind="count",
)

quiz(
    "wire",
    Item(
        "A receiver has the bytes of an array. What must the header tell it?",
        {
            "dtype with the order of its bytes, and shape": "Read as another dtype, the same bytes give other numbers, "
            "without an error. The bytes do not contain the shape either.",
            "the number of bytes alone": "The same number of bytes may be float32 or int32 values, in one row or ten.",
            "the largest and the smallest value": "Once dtype and shape are known, the bytes give every value.",
        },
        by="check wire.1",
    ),
    Item(
        "Why is JSON so long for a float32 array?",
        {
            "it writes each number in decimal digits, as many as a float64 needs": "tolist() makes Python floats, and "
            "JSON needs about 17 digits to restore such a float exactly.",
            "it adds the dtype and the shape to each number": "It adds neither: nested lists show the shape, and all "
            "numbers are written alike.",
            "it pads each number with zeros to the width of the longest": "It writes no more "
            "digits than are needed. Zero is short.",
        },
        by="say wire.1",
    ),
    Item(
        "A program prints the length of a list's text as the original size. What is the fair original size of an "
        "array?",
        {
            "the array's nbytes": "It is the number of values times the bytes per value: the size without any format.",
            "the length of the text": "JSON sends this text. But that is one format among others, and any size looks "
            "small next to it.",
            "the length of its pickle": "A pickle has a header, too. It is one of the formats to compare.",
        },
        by="say wire.3",
    ),
    Item(
        "Why is a list of floats in MessagePack longer than the array of the same numbers?",
        {
            "each number gets a byte that tells its type": "So 8 bytes become 9. A float32 becomes a float64 in the "
            "list, so 4 bytes become 9.",
            "each number is written in decimal digits": "JSON does that. MessagePack keeps a float's 8 bytes.",
            "each number gets the shape of the array": "A list of plain numbers does not contain a shape.",
        },
        by="say wire.1: abs(list - 9 / 4) < 0.05",
    ),
    Item(
        "The frame of an array is a view. What must you not do before it has been sent?",
        {
            "change the array in place": "The frame is the array's own memory, so the new values would be sent.",
            "read the array": "Reading changes nothing.",
            "delete the array's name": "The view keeps the memory alive.",
        },
        by="say wire.5",
    ),
)

remember(
    "wire",
    {
        "The bytes of an array": "check wire.1",
        "Numbers are long": ("say wire.1", "say wire.3"),
        "A format for small": "table wire.1: row['msgpack'][0] < 100 < row['json'][0]",
        "A format that hands": "predict wire.2: times < 1.5",
        "A view is": "say wire.5",
    },
)
