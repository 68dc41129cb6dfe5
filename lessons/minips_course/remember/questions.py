"""The questions, sentences and quiz of "Remember what was not sent"."""

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
)

question(
    "remember.1",
    "Four workers, 100 steps, one value of W out of 640 in each push: how many values of W has training moved at the "
    "end with the memory, compared with none?",
    Option(
        "fewer: the memory repeats itself",
        lambda times: 0 < times < 0.9,
        "The memory kept the rest of the same few values, so these were sent again and again.",
    ),
    Option(
        "about as many: each push moves one",
        lambda times: 0.9 <= times <= 1.3,
        "Both runs sent 400 values of W, and changed about as many different values.",
    ),
    Expected(
        "about twice as many",
        lambda times: 1.6 <= times <= 2.8,
        "Without a memory the same values win again and again: those whose gradients are the largest. With it, a value "
        "that is left out grows in the memory until it is the largest one. Then all of it is sent, and the next one's "
        "turn comes.",
    ),
    Option(
        "many times as many",
        lambda times: times > 3.5,
        "Without a memory only a few values were ever the largest. With it, each value was the largest at some time.",
    ),
    otherwise="The ratio lies between two of the options, or without a memory no value of W has moved.",
    kind="count",
    shown={"times": "values moved with the memory: {:.2f} times as many"},
)

question(
    "remember.2",
    "Step size lr = 0.1, threshold t = 0.5. In the last 200 of 1000 steps, over all 101 starts: how far from the "
    "minimum is w at most?",
    Option(
        "up to about t, with error feedback and without",
        lambda plain, fed: 0.2 < plain <= 1.5 and 0.11 < fed <= 1.5,
        "Gradients below the threshold were not sent, and the memory did not raise them above it.",
    ),
    Expected(
        "up to about t without a memory, up to about lr · t with it",
        lambda plain, fed: 0.2 < plain <= 1.5 and fed <= 0.11,
        "Without a memory a gradient below t is never sent, so w stops where it is. With error feedback such gradients "
        "add up until they reach t. Then t is sent, and w moves by lr · t: it hops around the minimum by about that "
        "much.",
    ),
    Option(
        "up to about t without a memory, ever further with it",
        lambda plain, fed: 0.2 < plain <= 1.5 < fed,
        "The memory filled faster than it was emptied, so w swung ever further.",
    ),
    Option(
        "no distance: with both, w comes to the minimum exactly",
        lambda plain, fed: plain <= 0.01 and fed <= 0.01,
        "All starts were multiples of lr · t away from the minimum, so the paths could hit it.",
    ),
    otherwise="Without a memory w did not stay within the threshold, or it came nearer than with error feedback.",
    kind="single",
    shown={
        "plain": "without a memory: {:.2f} t",
        "fed": "with error feedback: {:.2f} t",
    },
)

sentence(
    "remember.1",
    "Of 640 values of W, {few:.0f} have moved without a memory and {many:.0f} with it (means of 5 seeds).",
    expect="1.6 * few < many < 2.8 * few",
    kind="count",
)

sentence(
    "remember.2",
    "Where each has its best rate, the memory adds {gain:.1f} ± {half:.1f} percentage points of accuracy. Where both "
    "have 0.1, it adds {early:.0f} ± {early_half:.0f}: there the run without it is unfinished (pairs, 5 seeds).",
    expect="gain - half > 2 and early - early_half > 3 * gain",
    kind="comparison",
)

sentence(
    "remember.16",
    "With all the values the accuracy is {behind:.1f} ± {half:.1f} percentage points higher than with one in each push "
    "and error feedback, each at its best rate.",
    expect="0 < behind < 5",
    kind="comparison",
)

sentence(
    "remember.3",
    "Sent plus held equals meant for {equal} of {of} values, up to rounding.",
    expect="equal == of",
    kind="identity",
)

sentence(
    "remember.4",
    "One step arrives with a relative error of {one:.2f}, the sum of {steps} steps with {summed:.2f}.",
    expect="one > 5 * summed",
    kind="single",
)

sentence(
    "remember.5",
    "With top-k, Saver ends at the parameters of ErrorFeedback, bit by bit, in {as_fed} of 5 runs. With signs it ends "
    "at those of no memory in {as_none} of 5.",
    expect="as_fed == as_none == 5",
    kind="identity",
)

sentence(
    "remember.17",
    "With signs, error feedback is {behind:.1f} ± {half:.1f} percentage points of accuracy ahead of Saver after 40 "
    "steps, each at its best rate; where both have 0.1, {early:.1f} ± {early_half:.1f}.",
    expect="abs(behind) < half and early - early_half > 0",
    kind="comparison",
)

sentence(
    "remember.6",
    "Top-k, a contraction: the residual is at most {held:.0f} times as long as a gradient; the bound is "
    "{bound:.0f} times.",
    expect="1 < held <= bound",
    kind="identity",
)

sentence(
    "remember.7",
    "QSGD(levels=3): more than 10 to the power of {power} lengths are held at the end, at most {tame:.0f} with the "
    "remedy.",
    expect="power >= 4 and tame < 20",
    kind="count",
)

sentence(
    "remember.8",
    "Ternary without the remedy: at most {held:.0f} lengths, although its ω is {omega:.1f} or more on these gradients.",
    expect="omega > 1 and held < 30",
    kind="single",
)

sentence(
    "remember.9",
    "Step size {lr}, {starts} starts. Without a memory w stops up to {plain:.2f} from the minimum; t is {t}. With "
    "error feedback up to {most:.0f} are held, w overshoots to {lowest:.1f}, and stays within {fed:.2f} in the end; "
    "lr · t is {reach:.2f}. (From the start 5.0 alone it ends at {exactly:.2f}.)",
    expect="lowest < -3 and exactly < 1e-9 < fed <= reach + 1e-9 and reach < plain <= t",
    kind="single",
)

sentence(
    "remember.15",
    "Without a memory w stops up to {plain:.2f} from the minimum, as before. With error feedback it stays within "
    "{fed:.2f}, no longer within {before:.2f}; lr · t is {reach:.2f}.",
    expect="before < fed <= reach + 1e-9 < plain <= 0.5",
    kind="single",
)

sentence(
    "remember.18",
    "Without a memory w stops up to {stops[0]}, {stops[1]} and {stops[2]} from the minimum where λ is {bends[0]}, "
    "{bends[1]} and {bends[2]}. There the gradient λw is {least:.2f} to {most:.2f}; t is {t}.",
    expect="0.9 * t < least <= most <= t",
    kind="single",
)

sentence(
    "remember.19",
    "With error feedback it stays within {fed:.2f} for each of them; lr · t is {reach:.2f}.",
    expect="fed <= reach + 1e-9",
    kind="identity",
)

card(
    "remember.10",
    "{runs} runs each. Without a memory the loss is never below {least:.2f}. With error feedback it ends below 10⁻⁹ in "
    "{below} of them.",
    expect="least > 2 - 1e-9 and below == runs",
    kind="single",
)

sentence(
    "remember.11",
    "At the same lr of 0.1, {memory} lowers the loss after 60 steps by {gain:.2f} ± {half:.2f} against error feedback.",
    expect="gain - half > 0",
    kind="comparison",
)

sentence(
    "remember.12",
    "Each at its best rate and momentum: the loss with momentum correction, minus that with error feedback, is "
    "{more:+.3f} ± {half:.3f}; with error feedback and the server's momentum, minus the same, {beside:+.3f} ± "
    "{beside_half:.3f} (pairs, 5 seeds).",
    expect="more > -half and beside > -beside_half",
    kind="comparison",
)

sentence(
    "remember.13",
    "From step 20 on, with all the rows, the error without Delta is {slow:.0f} ± {slow_half:.0f} times the error with "
    "it. With 32 random rows it is {fast:.2f} ± {fast_half:.2f} times: there Delta does not help.",
    expect="slow - slow_half > 3 and fast + fast_half < 1",
    kind="single",
)

sentence(
    "remember.14",
    "Each at its best rate: against an exact pull, 2 bits raise the held-out loss by {plain:.3f} ± {half:.3f}; with "
    "Delta they change it by {delta:+.3f} ± {delta_half:.3f} (pairs, 5 seeds).",
    expect="plain > half and abs(delta) < plain / 3",
    kind="comparison",
)

prompt(
    "remember.1",
    "With which of the two quantizers is Saver broken, and what does that cost after 40 steps at each one's best rate? "
    "Give the number and its interval. Two sentences.",
    "With signs: a sign is never zero, so Saver takes every value for sent, keeps nothing, and ends where no memory "
    "does. At its best rate it is behind error feedback by less than the interval, so here five seeds do not show "
    "that the defect costs accuracy.",
    kind="comparison",
    by=("say remember.5", "say remember.17"),
)

quiz(
    "remember",
    Item(
        "The gradient is 3, the memory holds 2, and the quantizer sends 4. What does error feedback hold next?",
        {
            "1": "It had 3 + 2 = 5 to send, and sent 4. It holds the difference.",
            "−1": "3 − 4 leaves out the 2 that the memory held before, so it is lost.",
            "3": "2 + 1 counts the old rest twice: the sum 3 + 2 = 5 already contains it.",
        },
        by="say remember.3: (3 + 2) - 4 == 1",
    ),
    Item(
        "With error feedback, why does the sum of many steps arrive with a small relative error?",
        {
            "only what is held is missing from the sum, and that stays bounded": "The sum of the gradients grows "
            "with the steps, and a bounded rest becomes a smaller share of it.",
            "each step arrives with a smaller error than the step before": "The error of a single step may stay as "
            "large as it was.",
            "errors of both signs cancel by chance": "Top-k draws nothing at random, and its sum still arrives.",
        },
        by="say remember.4",
    ),
    Item(
        "For top-k the bound on what is held was several times as large as what was measured. Does that refute it?",
        {
            "no: these were not the worst inputs": "The bound assumes that each step leaves the largest share that "
            "top-k can leave. Real gradients leave less.",
            "no: a bound holds only on average": "For top-k the bound holds for every single input.",
            "yes: the measured value shows that top-k is not a contraction": "A value below the bound agrees with it.",
        },
        by="say remember.6",
    ),
    Item(
        "Error feedback around QSGD with few levels held ever more. What is the cause?",
        {
            "the error of one draw is longer than its input": "The memory fills with noise, which makes the next "
            "input longer. A longer input brings more noise, and so on.",
            "QSGD is biased, and the memory adds that up": "QSGD is right on average. Its variance is too large.",
            "200 steps are too few to empty the memory": "The curve grew to the end: more steps make it worse.",
        },
        by="say remember.7",
    ),
    Item(
        "With TwoBit and error feedback, the step size is made five times as long. How far from the minimum does w "
        "stay in the end?",
        {
            "about five times as far": "In the end w hops by lr · t around the minimum, and lr is five times as large.",
            "as far: the threshold sets it": "That is so without a memory, where threshold and curvature set it. With "
            "one, gradients below the threshold add up until they are sent.",
            "nearer: the memory empties sooner": "That concerns the way down. In the end one hop is lr · t, and a "
            "longer hop ends farther from the minimum.",
        },
        by=("say remember.9", "say remember.15: abs(fed / before - 5) < 1.1"),
    ),
)

remember(
    "remember",
    {
        "Error feedback:": ("say remember.3", "check remember.2"),
        "Sent plus held": ("say remember.3", "check remember.1"),
        "With a contraction": ("say remember.4", "say remember.6"),
        "Other quantizers": ("say remember.7", "say remember.8"),
        "With a fixed threshold": ("say remember.9", "say remember.15", "say remember.18", "say remember.19"),
    },
)
