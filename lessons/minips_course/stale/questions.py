"""The questions, sentences and quiz of "Learn from old gradients"."""

from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    question,
    quiz,
    remember,
    sentence,
    timed_sentence,
)

question(
    "stale.3",
    "Four workers, no momentum. Is ASP's border lower or higher than BSP's, with constant and with random times?",
    Option(
        "lower with both",
        lambda constant, random: constant < 1 and random < 1,
        "Gradients were old with both, and that decided.",
    ),
    Option(
        "higher with both",
        lambda constant, random: constant >= 1 and random >= 1,
        "Each push takes only a quarter of the step, and that gained more than the age cost.",
    ),
    Expected(
        "lower with constant, higher with random",
        lambda constant, random: constant < 1 <= random,
        "With constant times all gradients are three versions old, but each push takes only a quarter of the step. "
        "With random times many are younger and some much older. The exercise tests whether the ages alone explain it.",
    ),
    Option(
        "higher with constant, lower with random",
        lambda constant, random: random < 1 <= constant,
        "Random times make some gradients very old, and these decided.",
    ),
    otherwise="One of the borders was not found.",
    kind="identity",
    shown={
        "constant": "with constant times: {:.2g} of BSP's border",
        "random": "with random times: {:.2g} of BSP's border",
    },
)

question(
    "stale.4",
    "Momentum 0.9, constant times. BSP's border is about 3.8. Where is ASP's?",
    Option(
        "higher",
        lambda ratio: ratio > 1,
        "Each push uses only a quarter of lr, and that gained more than the age cost.",
    ),
    Option(
        "a little lower",
        lambda ratio: 0.75 < ratio <= 1,
        "The velocity smoothed the gradients, so their age mattered as little as before.",
    ),
    Option(
        "at about half of it",
        lambda ratio: 0.3 < ratio <= 0.75,
        "Age and momentum each make the descent turn late, and half the learning rate makes up for both.",
    ),
    Expected(
        "below a tenth of it",
        lambda ratio: 0 < ratio < 0.1,
        "The velocity carries the parameters past the minimum for some ten pushes, and old gradients add to it for "
        "three more. Momentum raises the border only where gradients are fresh.",
    ),
    otherwise="ASP's border is between a tenth and three tenths of BSP's.",
    kind="identity",
    shown={"ratio": "the border of ASP: {:.2g} of that of BSP"},
)

timed_sentence(
    "stale.17",
    "Mean age: {even:.1f} versions with constant times, {mixed:.1f} with random ones. With random times {young:.0%} of "
    "the gradients are 2 versions old or younger, and the oldest is {oldest}.",
    expect="2.5 < even < 3.2 and 2.3 < mixed < 3.2 and young > 0.5 and oldest >= 7",
)

sentence(
    "stale.4",
    "Without momentum the loss falls up to lr · λ = {bsp:.2f} under BSP. Under ASP it falls up to {equal:.2f} if all "
    "steps take equally long, and up to {drawn:.2f} if each step's time is drawn (the lowest of five seeds).",
    expect="1.9 < bsp < 2.1 and 0.85 < equal / bsp < 0.95 and drawn > 1.8 * bsp",
    kind="single",
)

sentence(
    "stale.5",
    "With a momentum of 0.9 the border is {bsp:.2f} under BSP. Under ASP it is {equal:.2f} with constant times and "
    "{drawn:.2f} with random ones. If ASP keeps 0.9 of its velocity in four pushes, as BSP does in a round, its border "
    "with constant times is even lower: {four:.3f}.",
    expect="3.6 < bsp < 4 and four < equal < 0.2 and drawn < bsp / 10",
    kind="single",
)

sentence(
    "stale.20",
    "{times} times, momentum {momentum}: four times your border is {yours:.3g}, and the cluster's border, with one "
    "seed, is {measured:.3g}.",
    kind="identity",
)

sentence(
    "stale.21",
    "Digits, constant times: ASP takes {more:+.2f} ± {d_more:.2f} s more than BSP, whose time is {time:.2f} s. Random "
    "times: ASP needs {part:.2f} ± {d_part:.2f} of BSP's time.",
    expect="-0.05 < more and more + d_more > 0.02 and part + d_part < 0.8",
    kind="comparison",
)

sentence(
    "stale.22",
    "Patients, random times, no momentum: BSP takes {plain:.1f} ± {d_plain:.1f} times as long as ASP. The best "
    "momentum is {best_bsp} for BSP and {best_asp} for ASP. With it BSP takes {bsp:.2f} ± {d_bsp:.2f} of its time "
    "without, and ASP {asp:.2f}. Then ASP takes {more:+.2f} ± {d_more:.2f} s more than BSP, whose time is {time:.2f} "
    "s.",
    expect="plain - d_plain > 2 and bsp < 0.4 and asp > 0.7 and more - d_more > 0 and more < time / 3",
    kind="comparison",
)

prompt(
    "stale.1",
    "Your cluster has four workers whose slowness comes and goes. Which rule do you choose for the digits? And for "
    "the patients, with which momentum? Give the numbers, and say what would change your choice. Two sentences.",
    "For the digits I choose ASP, which needs 0.49 of BSP's time; for the patients BSP with momentum 0.7, which needs "
    "0.45 s, 0.06 s less than ASP. If one worker were always slow, a round of BSP would take as long as that worker's "
    "step, and I would measure again.",
    kind="comparison",
    by=(
        "say stale.21: round(part, 2) == 0.49",
        "say stale.22: best_bsp == '0.7' and round(time, 2) == 0.45 and round(more, 2) == 0.06",
    ),
)

prompt(
    "stale.2",
    "Does it pay to fade old gradients? Compare the three at their best rates, and then these rates. Two sentences.",
    "Each at its own best rate, the three differ by less than a quarter of their time, so fading pays little. "
    "StalenessWeighted's best rate is about twice the mean's: it makes nearly every step shorter, and a smaller rate "
    "does that, too.",
    kind="comparison",
    by=(
        "table: max(map(table.mean, table.rates)) < 1.25 * min(map(table.mean, table.rates))",
        "table: 1.7 < row['stalenessweighted'][0] / row['mean'][0] < 3",
    ),
)

quiz(
    "stale",
    Item(
        "Four workers under ASP. Their steps took equally long; now their times are random. What happens to the ages "
        "of the gradients?",
        {
            "most get younger, some much older": "The mean stays near three. A long step sees many pushes of others, "
            "but long steps are few.",
            "all of them get older": "The mean stays near three: in the time of a step each other worker still pushes "
            "about once.",
            "all stay as they were": "The mean does, but the ages spread.",
        },
        by="say stale.17",
    ),
    Item(
        "Four workers under ASP, without momentum, whose steps take equally long: gradients are three versions old. "
        "Why is the border for lr only a tenth lower than BSP's?",
        {
            "each push moves the parameters by a quarter of lr": "Whole steps of age 3 would lower the border by more "
            "than three quarters. Steps of a quarter make up for nearly all of that.",
            "three versions are too few to matter": "With whole steps they matter: at age 3 the border would be 0.45.",
            "the ages differ from push to push, and that evens out": "Here all ages but the first are 3. Ages do "
            "differ if times are random, and then the border is even higher than BSP's.",
        },
        by="say stale.4",
    ),
    Item(
        "A team trains under BSP with momentum 0.9, close to its border. They switch to ASP, and the loss explodes. "
        "What do you try first?",
        {
            "a much smaller learning rate, or less momentum": "With momentum, ASP's border is less than a tenth of "
            "BSP's. The rule is not broken: the learning rate is beyond its border.",
            "fewer workers, so that nothing is stale": "Two workers still send old gradients, and the border is still "
            "lower than BSP's.",
            "more momentum, to smooth the old gradients": "Momentum carries the parameters on, and makes old gradients "
            "worse.",
        },
        by="predict stale.4",
    ),
    Item(
        "You measured a rule's border on machines whose steps take equally long. You move to machines whose times are "
        "random. What do you do?",
        {
            "measure the border again there": "ASP's border changed by more than a factor of two with the times.",
            "keep the border: the mean age is the same": "The mean age is the same, and ASP's border still changed by "
            "more than a factor of two.",
            "keep the border: it depends only on λ": "BSP's does. ASP's depends on the ages, and so on the times.",
        },
        by="say stale.4: drawn / equal > 2",
    ),
    Item(
        "All steps take equally long. What does ASP gain over BSP?",
        {
            "little: nobody had to wait": "On the digits ASP was not faster there. With random times it was.",
            "half of the time, as with random times": "That time was spent on waiting. With equal times there is "
            "hardly any.",
            "a larger learning rate": "Its border is lower there: gradients are old, and BSP's are not.",
        },
        by=("say stale.21", "say stale.4"),
    ),
)

remember(
    "stale",
    {
        "Under ASP with": "say stale.17: abs(even - 3) < 0.7 and abs(mixed - 3) < 0.7",
        "Without momentum": "say stale.4",
        "With momentum 0.9": ("predict stale.4", "say stale.5"),
        "Digits, random times": "say stale.21: round(part, 2) == 0.49",
        "Patients: with": "say stale.22: best_bsp == '0.7' and best_asp == '0' and round(time, 2) == 0.45 and "
        "round(more, 2) == 0.06",
    },
)

RETIRED = {
    "predict": (1, 2),
    "say": (1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16),
    "check": (1,),
}
"""The numbers of keys of earlier editions, by kind: none is used again."""
