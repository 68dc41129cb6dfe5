"""The questions, sentences and quiz of "Predict the cost"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    quiz,
    remember,
    sentence,
    timed_estimate,
    timed_question,
    timed_sentence,
)

timed_question(
    "cost.1",
    "A line is fitted to calls of 100 bytes to 10 MB over the bare loopback. It then predicts 3 kB, 30 kB and 300 kB, "
    "which it has not seen. How far off is the worst of the three predictions?",
    Option(
        "by less than 5 %",
        lambda factor: 1 <= factor < 1.05,
        "Here the loopback took the same time for each byte, whatever the size, like a link of constant speed.",
    ),
    Expected(
        "by more than 5 %, but less than a factor of 2",
        lambda factor: 1.05 <= factor < 2,
        "The loopback has no constant α and β. Copies, caches, buffers and the scheduler are likely to set its time, "
        "and they cost more for each byte at some sizes than at others. But most sizes are not far from a line.",
    ),
    Option(
        "by a factor of 2 or more",
        lambda factor: factor >= 2,
        "At one of the sizes a byte costs far more, or far less, than at the sizes of the fit. A busy machine has "
        "the same effect.",
    ),
    otherwise="One of the sizes has no time to compare.",
    shown={"factor": "the worst prediction: {:.2f} times off"},
)

timed_estimate(
    "cost.2",
    "Four workers share one server. Each of the five has a link of its own: 20 Mbit/s each way, both ways at once, "
    "and a latency of 0.005 s. In each step a worker pushes 80 kB. Once the server has all four pushes, it sends 80 "
    "kB of new parameters to each. Neglect the processors. How long is each of many steps?",
    "s",
    expected=(0.16, 0.24),
    because="80 kB take 0.032 s on a link. From the moment when the server has all the pushes, the first worker's "
    "answer takes 0.032 + 0.005 s, and its next push as long again: 0.074 s. The pushes of the other three come in "
    "after it, 0.032 s apart. Together that is 0.074 + 3 · 0.032 = 0.170 s. The later answers cost nothing extra: "
    "they travel while the first worker pushes again. The processors add a little.",
    otherwise="The links alone take 0.170 s. If a step took much longer, other programs had the processors.",
)

timed_sentence(
    "cost.1",
    "A call of 100 kB takes {longer:.1f} times as long as a call of 100 bytes (median of five series, {low:.1f} to "
    "{high:.1f}), and has a thousand times the bytes.",
    expect="longer < 20",
)

timed_sentence(
    "cost.2",
    "One of {calls} calls of 1 kB was held up. Their mean time is {mean:.0f} times their median.",
    expect="mean > 5",
)

timed_sentence(
    "cost.3",
    "Five series of calls, at 1 kB. Plain least squares is off by {plain[0]:+.0%}, {plain[1]:+.0%}, {plain[2]:+.0%}, "
    "{plain[3]:+.0%}, {plain[4]:+.0%}. The fit of relative errors: {relative[0]:+.0%}, {relative[1]:+.0%}, "
    "{relative[2]:+.0%}, {relative[3]:+.0%}, {relative[4]:+.0%}.",
    expect="sum([abs(x) for x in relative]) < sum([abs(x) for x in plain]) / 2 and max([abs(x) for x in relative]) < 1",
)

timed_sentence(
    "cost.4",
    "The fit to {calls} calls finds {a:.2f} times the link's α, and {b:.2f} times its β.",
    expect="0.8 < a < 2 and 0.8 < b < 1.4",
)

timed_sentence(
    "cost.5",
    "Predicted over measured, five series. Over the emulated link, 300 kB: {link:.2f} ({low:.2f} to {high:.2f}). Over "
    "the loopback, medians: {free[0]:.2f} at 3 kB, {free[1]:.2f} at 30 kB, {free[2]:.2f} at 300 kB.",
    expect="0.8 < link < 1.25 and max([max(x, 1 / x) for x in free]) < 3",
)

sentence(
    "cost.6",
    "Bytes that the workers send in {steps} steps: {says_sent:,} predicted, {sent:,} counted. Bytes that they "
    "receive: {says_received:,} predicted, {received:,} counted.",
    expect="says_sent == sent and says_received == received",
    kind="identity",
)

timed_sentence(
    "cost.7",
    "Predicted over measured for the whole step: {ratio:.3f} ± {half:.1g} by minips, {paper:.3f} ± {paper_half:.1g} "
    "for the links alone, on paper ({runs} runs). Transfer: {transfer:.2f}. Wait: {wait:.2f}.",
    expect="1 / 1.4 < ratio < 1.4 and paper < 1.05 and 0.8 < transfer < 1.25 and 0.6 < wait < 1.6",
)

timed_sentence(
    "cost.8",
    "The {count} spans of the processor are off by factors from {least:.1f} to {most:.1f}. Together they are "
    "{share:.1%} of the step.",
    expect="share < 0.1",
)

timed_sentence(
    "cost.9",
    "One worker's measured spans add up to {whole:.0%} of the step. The predicted ones, with the server's, add up to "
    "{said:.0%}. Up to the last update, the measured ones add up to {inside:.0%}.",
    expect="0.9 < inside < 1.02 and whole > inside and abs(said - whole) < 0.1",
)

timed_sentence(
    "cost.10",
    "Without the link, predicted over measured is {low:.2f} to {high:.2f} in {runs} runs. Span by span the first run "
    "is off by factors up to {most:.1f}.",
    expect="0.03 < low and high < 4 and most > 1.5",
)

timed_sentence(
    "cost.11",
    "With two servers a step was predicted to take {says:.0%} of the time with one. It took {low:.0%} to {high:.0%}, "
    "in {runs} runs.",
    expect="says < 0.9 and high < 0.95",
)

timed_sentence("cost.12", "The prediction is off by {error:+.0%}.", expect="abs(error) < 0.3")

prompt(
    "cost.1",
    "What did your function predict for your config, as a ratio to the measured step and with its interval? Which part "
    "of the time does it leave out, and by which number does that part matter here? Two sentences.",
    "For three workers that push half floats, the ratio of the function in two phases is well above 1; once the "
    "phases overlap, it is a little below 1. It leaves out the processors' work on each message and on the round, and "
    "the distance of the ratio from 1 shows how much that matters.",
    by=("timed table: 0.8 < row['step_s'][0] < 1.1 if solved else row['step_s'][0] > 1.1", "check cost.1"),
    kind="time",
)

quiz(
    "cost",
    Item(
        "Calls of 100 bytes to 10 MB are fitted by plain least squares. Which calls decide where the line goes?",
        {
            "the longest ones": "Squared errors are added up, and the calls of 10 MB have the largest.",
            "the shortest ones": "Their errors are a few millionths of a second, so they hardly affect the sum.",
            "all of them alike": "That would be so in a fit of relative errors.",
        },
        by="say cost.3",
    ),
    Item(
        "Over the emulated link the line predicts a size that was held out. What does that show?",
        {
            "that the fit finds α and β in spite of noise": "The emulator holds each message back for S/B + α. So the "
            "form of the line was never in question.",
            "that TCP connections take α + βS": "The emulator uses this formula. Only the bare loopback tests TCP.",
            "that a real network of that speed takes as long": "The emulator has no incast, no slow start and no loss.",
        },
        by=("say cost.4", "say cost.5"),
    ),
    Item(
        "Eight workers, one server, links of 20 Mbit/s each way, latency 0.005 s, 80 kB up and 80 kB down, many steps. "
        "How long do the links alone make a step?",
        {
            "0.298 s": "Two latencies, the first answer, and then eight pushes one after the other: 0.010 + 9 · 0.032.",
            "0.522 s": "That adds eight pushes and eight answers. But answers travel while the next pushes come in.",
            "0.074 s": "That is one worker with a server of its own: one push and one answer.",
        },
        by="check cost.1: abs(2 * 0.005 + 9 * 8 * 80_000 / 20e6 - 0.298) < 1e-9",
    ),
    Item(
        "The whole step is predicted at 98 % of what was measured. What do you know about its spans?",
        {
            "of the long ones something, of the short ones nothing": "The long ones are right, or their errors "
            "cancel. A span of a tenth of a per cent may be off by a factor of 10, and the sum hardly changes.",
            "that each of them is predicted at about 98 %": "Short spans, such as the processor's, may be far off, "
            "and the sum does not show it.",
            "nothing, as spans run side by side and do not add up": "The spans of one worker follow each other, and "
            "add up to its step.",
        },
        by="say cost.8",
    ),
    Item(
        "What is needed for a prediction of the step with other links and more workers?",
        {
            "the calibration made before": "Its lines describe this machine and the stages. Links and workers are "
            "added afterwards, by arithmetic.",
            "a calibration with those links": "A link's time is bytes over bandwidth, plus latency. On an emulated "
            "link there is nothing to measure.",
            "a run of a few steps with those workers": "That would be a measurement. The prediction simulates the "
            "steps in virtual time.",
        },
        by="say cost.11",
    ),
)

remember(
    "cost",
    {
        "A message takes": ("say cost.1", "say cost.4"),
        "Fit medians": ("say cost.2", "say cost.3"),
        "Test a model": "say cost.5",
        "To predict a step": ("predict cost.2", "check cost.1"),
        "A correct sum": ("say cost.8", "say cost.10"),
    },
)
