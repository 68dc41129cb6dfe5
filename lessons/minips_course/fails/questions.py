"""The questions, sentences and quiz of "See when a memory fails"."""

from minips.lab.course.questions import Expected, Item, Option, prompt, question, quiz, remember, sentence

question(
    "fails.1",
    "Threshold t = 0.5, no memory. The curvature λ is 0.2, 1 or 5. How far from the minimum does w stop, at most?",
    Option(
        "about t, for each curvature",
        lambda flat, steep: 0.7 <= flat <= 1.3 and 0.7 <= steep <= 1.3,
        "The threshold alone decided where w stopped.",
    ),
    Expected(
        "about t/λ",
        lambda flat, steep: 3.5 <= flat <= 5.5 and 0.1 <= steep <= 0.25,
        "The threshold applies to the gradient. The gradient λw is below t, and is never sent, where w is below t/λ.",
    ),
    Option(
        "about λ · t",
        lambda flat, steep: 0.1 <= flat <= 0.25 and 3.5 <= steep <= 5.5,
        "A steep loss stopped the walk early, a flat one late.",
    ),
    Option(
        "about one step, 0.1 · t, for each curvature",
        lambda flat, steep: flat <= 0.098 and steep <= 0.098,
        "Each walk went on until one step would have gone past the minimum.",
    ),
    otherwise="The two distances follow none of these rules.",
    kind="single",
    shown={"flat": "λ = 0.2: {:.2f} t", "steep": "λ = 5: {:.2f} t"},
)

question(
    "fails.2",
    "Now with error feedback, and curvature 1. Each walk starts at about 5. How far beyond the minimum does it go?",
    Option(
        "not at all",
        lambda share: share < 0.002,
        "The memory was empty when w reached the minimum.",
    ),
    Option(
        "one step: 0.05, about a hundredth of its way",
        lambda share: 0.002 <= share < 0.03,
        "The memory held about one threshold when w reached the minimum.",
    ),
    Option(
        "as far as t = 0.5, about a tenth of its way",
        lambda share: 0.03 <= share < 0.2,
        "The memory held a few thresholds when w reached the minimum.",
    ),
    Expected(
        "by more than half of its way",
        lambda share: share > 0.5,
        "On the way down each gradient is longer than t, and the rest piles up in the memory. Beyond the minimum the "
        "old rest is still sent, until the new gradients have used it up.",
    ),
    otherwise="It goes between a fifth and a half of its way beyond the minimum.",
    kind="single",
    shown={"share": "beyond the minimum: {:.2f} of the way"},
)

sentence(
    "fails.1",
    "Without a memory w stops up to {stops[0]:.2f}, {stops[1]:.2f} and {stops[2]:.2f} from the minimum where λ is "
    "{bends[0]}, {bends[1]} and {bends[2]}. There the gradient λw is {least:.2f} to {most:.2f}; t is {t}.",
    expect="0.85 * t < least <= most <= t",
    kind="single",
)

sentence(
    "fails.2",
    "With error feedback all walks end within {within:.2f} of the minimum, for each λ; rate · t is {hop:.2f}. Until "
    "then they make {steps[0]}, {steps[1]} and {steps[2]} steps.",
    expect="within <= hop + 1e-9 and steps[0] < steps[1] < steps[2]",
    kind="single",
)

sentence(
    "fails.3",
    "Where λ is {bends[0]}, {bends[1]} and {bends[2]}, the memory holds up to {held[0]:.0f}, {held[1]:.0f} and "
    "{held[2]:.0f}, and w goes up to {beyond[0]:.2f}, {beyond[1]:.2f} and {beyond[2]:.2f} beyond the minimum "
    "(all starts).",
    expect="held[0] < held[1] < held[2] and beyond[0] < beyond[1] < beyond[2]",
    kind="single",
)

sentence(
    "fails.4",
    "At the same rate of 0.1, {memory} lowers the loss after 60 steps by {gain:.2f} ± {half:.2f} against error "
    "feedback.",
    expect="gain - half > 0",
    kind="comparison",
)

sentence(
    "fails.5",
    "Each at its best rate and momentum, the loss with momentum correction minus that with error feedback is "
    "{more:+.3f} ± {half:.3f} (pairs, 5 seeds).",
    expect="more > -half",
    kind="comparison",
)

sentence(
    "fails.6",
    "From step 20 on, with all the rows, the error without Delta is {slow:.0f} ± {slow_half:.0f} times the error with "
    "it. With 32 random rows it is {fast:.2f} ± {fast_half:.2f} times: there Delta does not help.",
    expect="slow - slow_half > 3 and fast + fast_half < 1",
    kind="single",
)

prompt(
    "fails.1",
    "What does the bound of 0.5 change in the walks, and what does it cost on the digits' gradients, against error "
    "feedback? Give two numbers of the table. Two sentences.",
    "With the bound no walk goes farther beyond the minimum than one step of rate · t, and all end as near as with "
    "error feedback. On the digits' gradients a part of what was meant is neither sent nor held, while error feedback "
    "loses nothing.",
    kind="single",
    by=(
        "table: row['error feedback'][0] > 4 and row['error feedback'][2] == 0",
        "table: not solved or row['Bounded'][0] <= 0.05 and row['Bounded'][1] <= row['error feedback'][1] + 0.001",
        "table: not solved or row['Bounded'][2] > 0",
    ),
)

quiz(
    "fails",
    Item(
        "Without a memory, threshold 0.5 and curvature 2: how far from the minimum does a walk stop?",
        {
            "within about a quarter": "There the gradient λw is 2 · 0.25 = 0.5, the threshold.",
            "within about one half": "That is t. It would be right for the curvature 1.",
            "within about one": "That is λ · t. A steeper loss brings w nearer, not less near.",
        },
        by="say fails.1: 0.85 * t < least <= most <= t",
    ),
    Item(
        "Why does a walk with error feedback go beyond the minimum?",
        {
            "the memory still holds gradients of the way down": "They are sent although the gradient has changed its "
            "sign, until the new gradients have used them up.",
            "the learning rate is too high": "One step is rate · t, far less than the distance.",
            "the threshold rounds small gradients up": "A value below the threshold is not sent: it is held.",
        },
        by="say fails.3",
    ),
    Item(
        "At equal rates momentum correction had the lower loss. At each one's best rate it had not. What follows?",
        {
            "here error feedback does no worse, with a rate of its own": "Momentum makes a step longer, and so does a "
            "higher rate. Compare two methods at the best rate of each.",
            "the paper is wrong": "The paper trains deep networks for many epochs. A short run of a convex model "
            "cannot represent them.",
            "momentum correction needs no tuning": "It needs its own rate, and its own momentum.",
        },
        by=("say fails.4", "say fails.5"),
    ),
    Item(
        "For which arrays does Delta make the error smaller?",
        {
            "those that change little from step to step": "Then the difference is short, and so is its error.",
            "gradients of a few random rows": "They are new at each step, so the difference is longer than the "
            "gradient.",
            "any array": "With 32 random rows the error was larger with Delta than without it.",
        },
        by="say fails.6",
    ),
    Item(
        "A memory may hold at most `limit` of each value. What do you give up?",
        {
            "sent plus held no longer equals meant": "What goes beyond the limit is lost for good.",
            "w ends farther from the minimum": "In the walks, the memory is nearly empty at the end: the bound changes "
            "the way, not the end.",
            "the codec must send more bytes": "The quantizer decides on the bytes, not the memory.",
        },
        by=("check fails.1", "table fails.1: not solved or row['Bounded'][2] > 0"),
    ),
)

remember(
    "fails",
    {
        "Without a memory": ("say fails.1: 0.85 * t < least <= most <= t",),
        "With error feedback": ("say fails.2",),
        "The steeper the loss": ("say fails.2", "say fails.3"),
        "Momentum before": ("say fails.4", "say fails.5"),
        "`Delta` helps": ("say fails.6",),
    },
)
