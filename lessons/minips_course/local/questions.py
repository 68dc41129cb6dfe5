"""The questions, sentences and quiz of "Talk less often"."""

from collections.abc import Callable

from minips.lab.course.questions import Expected, Item, Option, prompt, question, quiz, remember, sentence

TENTH, HALF = 1.1, 1.5


def _rises(low: float, high: float) -> Callable[..., bool]:
    """Return the condition that a ratio of losses lies between these two."""
    return lambda ratio: low <= ratio < high


question(
    "local.1",
    "Four workers with similar rows make 480 steps each, and exchange 16 times instead of 480. Each at its best rates: "
    "how much higher is the held-out loss?",
    Expected(
        "by less than a tenth, or not at all",
        _rises(0.0, TENTH),
        "Each worker goes towards the minimum of its rows, which are like all the others'. So all go nearly the same "
        "way, and an exchange after 30 steps is enough.",
    ),
    Option(
        "by a tenth to a half",
        _rises(TENTH, HALF),
        "Between exchanges each worker fitted its own rows, and the mean of four such fits was somewhat worse.",
    ),
    Option(
        "by more than a half",
        _rises(HALF, float("inf")),
        "With 16 exchanges the workers trained nearly alone, and the mean of their parameters fits no one's rows.",
    ),
    otherwise="One of the runs has no loss, so there is nothing to compare.",
    kind="comparison",
    shown={"ratio": "held-out loss with 16 exchanges: {:.2f} times that with 480"},
)

question(
    "local.2",
    "Now 4 exchanges, and rows sorted by digit: each worker has only a few of the digits. The server averages the "
    "parameters, at the best inner rate. How high is the held-out loss, compared with 480 exchanges?",
    Option(
        "less than 1.1 times as high",
        _rises(0.0, TENTH),
        "The mean of four workers' parameters reads all the digits as well as if they had exchanged after each step.",
    ),
    Option(
        "1.1 to 1.5 times as high",
        _rises(TENTH, HALF),
        "The workers went different ways, but four exchanges brought them together often enough.",
    ),
    Expected(
        "more than 1.5 times as high",
        _rises(HALF, float("inf")),
        "In 120 steps each worker goes far towards the minimum of its own rows, another one for each. Four means of "
        "such parameters did not come near the minimum of all rows. With similar rows the workers' minima are close.",
    ),
    otherwise="One of the runs has no loss, so there is nothing to compare.",
    kind="comparison",
    shown={"ratio": "held-out loss with 4 exchanges: {:.2f} times that with 480"},
)

sentence(
    "local.1",
    "{steps} steps between exchanges: {bytes:.1%} of the bytes, and {loss:.2f} ± {half:.2f} times the held-out loss.",
    expect="loss < 1.1 and bytes < 0.13",
    kind="comparison",
)

sentence(
    "local.2",
    "Sorted rows, 120 steps between exchanges: FedAvg has {plain:.2f} ± {d_plain:.2f} times the loss of 1 step; "
    "the best two rates, inner {inner:g} and outer {rate:g}, have {loss:.2f} ± {half:.2f} times (five seeds).",
    expect="plain > 1.5 and loss - half > 1 and loss + half < plain - d_plain and rate > 1",
    kind="comparison",
)

sentence(
    "local.3",
    "FedAvg, 30 times fewer exchanges: {alike:.2f} ± {d_alike:.2f} times the loss with similar rows, where no "
    "difference is shown, and {apart:.2f} ± {d_apart:.2f} times with sorted ones.",
    expect="abs(alike - 1) < d_alike and apart - d_apart > 1",
    kind="comparison",
)

sentence(
    "local.4",
    "DiLoCo's outer optimizer, 120 times fewer exchanges, not 500: {alike:.2f} ± {d_alike:.2f} times the loss with "
    "similar rows, {apart:.2f} ± {d_apart:.2f} times with sorted ones.",
    kind="comparison",
)

sentence(
    "local.5",
    "After 8 rounds over a server, your parameters differ from those of minips' FedAvg by {apart:.2%} of their length.",
    kind="single",
)

sentence(
    "local.6",
    "The workers' rows (digits): {shards}. The mean by rows differs from the gradient of all rows by {by_rows:.0%} of "
    "that gradient's length, the plain mean by {plain:.0%}.",
    expect="by_rows < 1e-6 and plain > 0.3",
    kind="identity",
)

sentence(
    "local.7",
    "With 30 local steps, at the best rates, the plain mean has {loss:.2f} ± {half:.2f} times the held-out "
    "loss of the mean by rows: no difference is shown.",
    expect="abs(loss - 1) < half",
    kind="comparison",
)

sentence(
    "local.8",
    "Sorted rows, 120 steps between exchanges, best rates: with Nesterov's momentum {loss:.2f} ± {half:.2f} times the "
    "loss without momentum: no difference is shown.",
    expect="abs(loss - 1) < half",
    kind="comparison",
)

sentence(
    "local.9",
    "Your optimizer's W ends at most {far:.2g} from that of minips' Nesterov.",
    kind="single",
)

sentence(
    "local.10",
    "Drift in the first 120 steps, a worker's distance from the mean divided by the mean's distance from the start: "
    "{apart:.1f} with sorted rows, {alike:.1f} with similar ones.",
    expect="alike < 0.5 and apart > 1",
    kind="single",
)

prompt(
    "local.1",
    "Four phones have different digits each, and each exchange costs money. How many steps would you make between two "
    "exchanges, and which number, with its interval, decides that? What do you have to tune for it? Two sentences.",
    "I choose 30 steps: for 3 % of the bytes the loss rises by less than a tenth, and with 120 it rises by more than "
    "its interval. Both rates have to be tuned: with an outer rate of 1 the best inner one costs 1.2 times the loss.",
    by=(
        "table: table.ratio('30', '1').mean < 1.1 and round(100 * table.bytes_ratio('30', '1').mean) == 3",
        "table: table.ratio('120', '1').mean - table.ratio('120', '1').half > 1",
        "say local.3: round(apart, 1) == 1.2 and apart - d_apart > 1",
    ),
    kind="comparison",
)

quiz(
    "local",
    Item(
        "What does a worker push after its local steps?",
        {
            "its start minus its end": "The outer optimizer uses it like a gradient: it subtracts the outer rate times "
            "the mean.",
            "the last gradient": "Then the other steps would be lost.",
            "its parameters": "Their mean comes out with an outer rate of 1. But the push itself is the difference.",
        },
        by="check local.1",
    ),
    Item(
        "Local steps with `optimizer=ps.SGD()`, whose rate is 0.1. What happens?",
        {
            "the parameters move a tenth of the way": "The outer rate multiplies the mean of the differences, so "
            "minips warns.",
            "each local step has the size 0.1": "That is the inner optimizer's rate, in LocalSteps.",
            "nothing: the server only averages": "It averages if the outer rate is 1.",
        },
        by="say local.2: rate > 1",
    ),
    Item(
        "When do 120 steps between exchanges cost most?",
        {
            "if shards hold different classes": "Then each worker goes towards another minimum.",
            "if shards are similar": "Then all workers go nearly the same way.",
            "if the outer rate is the best one": "With the best inner rate, it lowered the cost of sorted rows here.",
        },
        by=("predict local.1", "predict local.2"),
    ),
    Item(
        "Shards have 100 and 300 rows, and FedAvg weights by rows. What is the weight of the second difference?",
        {
            "3/4": "Each row counts equally: 300 of 400.",
            "1/2": "That is the plain mean. It counts a row of the first shard three times as much.",
            "1/4": "That is the weight of the first.",
        },
        by="say local.6: 300 / (100 + 300) == 3 / 4",
    ),
    Item(
        "What does this lesson's linear model not show of the two papers?",
        {
            "that deep nets can be averaged": "A deep net has many minima. A linear model has one valley, in which a "
            "mean of parameters is never worse than the worst of them.",
            "that fewer exchanges send fewer bytes": "That was counted, byte by byte.",
            "that different rows cost something": "That was measured, with sorted rows.",
        },
        by=("say local.1", "say local.2"),
    ),
)

remember(
    "local",
    {
        "With local steps": "check local.1",
        "Similar rows": (
            "predict local.1",
            "say local.1: steps != '30' or round(100 * bytes) == 3 and loss + half < 1.1",
        ),
        "The default outer": "say local.2: rate > 1",
        "Sorted rows": (
            "predict local.2",
            "say local.2: [round(plain, 1), round(loss, 1)] == [2.0, 1.2]",
            "say local.10: apart > alike",
        ),
        "FedAvg weights": "say local.6",
    },
)
