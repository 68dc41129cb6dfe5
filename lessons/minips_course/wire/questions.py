"""The questions, sentences and quiz of "Put arrays on a wire"."""

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
    "wire.3",
    "An array of 1 MB makes the whole trip as JSON, and with minips' MsgPack. How many times as long does JSON take?",
    Option(
        "about 6 times",
        lambda times: 3 <= times < 12,
        "JSON has about six times the bytes, and the trip took as long as its bytes.",
    ),
    Option(
        "about 30 times",
        lambda times: 18 <= times < 60,
        "More bytes went through the socket, and the text took several times as long as the socket.",
    ),
    Expected(
        "more than 100 times",
        lambda times: times > 100,
        "JSON writes and reads each number digit by digit, and makes Python objects of them. MsgPack looks at no "
        "value: it hands out the memory of the array, and the socket copies it.",
    ),
    otherwise="The ratio lies between two of the options, or below them.",
    shown={"times": "JSON: {:,g} times as long"},
)

sentence(
    "wire.1",
    "JSON makes {json:.1f} times the bytes of the array, a list in MessagePack {list:.1f} times, pickle "
    "{pickle:.3f} times.",
    expect="json > 4 and list > 2 and pickle < 1.01",
    kind="count",
)

sentence(
    "wire.11",
    "JSON sends just this text: {same}. It is {text:.1f} times as long as the array; packed with MessagePack, the list "
    "is {packed:.1f} times as long.",
    expect="same and text > 4 and packed > 2",
    kind="identity",
)

sentence(
    "wire.13",
    "The first frame has {head} bytes, the second {rest:,}. The second frame lies in the array's own memory: {shared}.",
    expect="shared and rest == 40_000 and head < 100",
    kind="identity",
)

sentence(
    "wire.14",
    "Server 0 received {first:.0%} of the bytes, server 1 {second:.0%}. The parameters differ by {away:g} from those "
    "of one server.",
    expect="away < 1e-6",
    kind="identity",
)

timed_sentence(
    "wire.12",
    "Your two numbers: JSON makes {json:.1f} times the bytes of the array, and its trip of 1 MB takes about "
    "{times:,.0f} times as long as that of msgpack (half of five trips: {low:,.0f} to {high:,.0f}).",
    expect="json > 4 and low > 10",
)

sentence(
    "wire.7",
    "With your pack the workers sent {ratio:.2f} times the bytes of the arrays, with pickle {pickle:.2f} times. The "
    "parameters of the two runs differ by {far:g}.",
    expect="far == 0",
    kind="count",
)

prompt(
    "wire.2",
    "Four workers send a gradient of 1 MB ten times a second, and you choose the format. Which one, and by which "
    "numbers in the table? For which messages would you choose another one? Two sentences.",
    "I choose msgpack: it adds the fewest bytes, and with json the large array takes many times as long. For a few "
    "settings that people change by hand I would choose JSON: its digits and its time do not matter there.",
    by=("table: row['msgpack'][0] == min(column(0))", "timed table: row['json'][2] > 10"),
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
        by=("say wire.11", "say wire.1: abs(pickle - 1) < 0.01"),
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
        by="say wire.13",
    ),
)

remember(
    "wire",
    {
        "The bytes of an array": "check wire.1",
        "Numbers are long": ("say wire.1", "say wire.11"),
        "Text is slow": ("predict wire.3", "say wire.12"),
        "A format for small": "table wire.2: row['msgpack'][0] < 100 < row['json'][0]",
        "A view is": "say wire.13",
    },
)

RETIRED = {"predict": (2,), "say": (2, 3, 4, 5, 6, 8, 9, 10), "answer": (1,), "check": (2,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
