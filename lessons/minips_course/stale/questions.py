"""The questions, sentences and quiz of "Learn from old gradients"."""

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
    timed_sentence,
)

question(
    "stale.1",
    "Worker 3 is four times slower, and only it has the 8s and 9s. All rules get the same seconds, each at its own "
    "best learning rate. Does the model read fewer than half as many of them as under BSP: with one backup, or under "
    "ASP?",
    Expected(
        "with one backup, not under ASP",
        lambda backup, asp: backup < 0.5 <= asp,
        "With one backup a round ends with the third push. Worker 3 is late in each round, so each of its pushes is "
        "dropped. ASP applies each of them, and in the same seconds worker 3 makes as many as under BSP.",
    ),
    Option(
        "under ASP, not with one backup",
        lambda backup, asp: asp < 0.5 <= backup,
        "The many pushes of the fast workers undid the few pushes of worker 3.",
    ),
    Option(
        "under both",
        lambda backup, asp: backup < 0.5 and asp < 0.5,
        "Worker 3's gradients were dropped or outnumbered, so they had little effect under either rule.",
    ),
    Option(
        "under neither",
        lambda backup, asp: backup >= 0.5 and asp >= 0.5,
        "Enough of worker 3's pushes came in time, and the fast workers did not outvote them.",
    ),
    otherwise="Under BSP none of them was read, so there is nothing to compare.",
    kind="comparison",
    shown={
        "backup": "with one backup: {:.2f} of the 8s and 9s that BSP reads",
        "asp": "under ASP: {:.2f} of the 8s and 9s that BSP reads",
    },
)

question(
    "stale.2",
    "Four workers whose steps take equally long, momentum 0.9. BSP, whose velocity changes once a round, is stable up "
    "to lr · λ of about 3.8. Where is the border of ASP, whose velocity changes with each push?",
    Option(
        "higher than BSP",
        lambda ratio: ratio > 1,
        "Each push uses only a quarter of lr, and that gained more than the age cost.",
    ),
    Option(
        "a little lower, as without momentum",
        lambda ratio: 0.75 < ratio <= 1,
        "The velocity smoothed the gradients, so their age mattered as little as before.",
    ),
    Option(
        "about half of it",
        lambda ratio: 0.3 < ratio <= 0.75,
        "Age and momentum each make the descent turn late, and half the learning rate makes up for both.",
    ),
    Expected(
        "less than a tenth of it",
        lambda ratio: 0 < ratio < 0.1,
        "The velocity carries the parameters past the minimum for some ten pushes, and old gradients add to it for "
        "three more. Momentum damps swings only where gradients are fresh.",
    ),
    otherwise="ASP's border is between a tenth and three tenths of BSP's.",
    kind="identity",
    shown={"ratio": "the border of ASP: {:.2g} of that of BSP"},
)

timed_sentence(
    "stale.1",
    "Mean age: {even:.1f} versions with equal workers, {uneven:.1f} with the straggler. With the straggler half of the "
    "gradients are {usual:.0f} versions old or younger; the oldest is {oldest}.",
    expect="2.5 < even < 3.2 and 2.5 < uneven < 3.2 and usual <= 3 and oldest >= 9",
)

sentence(
    "stale.2",
    "After {seconds} virtual seconds, each rule at its best rate: one backup reads {backup:.0%} of the 8s and 9s, ASP "
    "{behind:.1f} ± {half:.1f} percentage points fewer of them than BSP, and SSP {ssp:.1f} fewer (five seeds, in "
    "pairs).",
    expect="backup < 0.01 and 0 < behind - half and behind + half < 10 and -3 < ssp < 3",
    kind="comparison",
)

sentence(
    "stale.3",
    "After as many pushes as BSP, ASP reads {few:.1f} ± {half:.1f} points fewer, each at its best rate. At a rate of "
    "0.1 for both it reads {early:.0f} fewer, and {later:.0f} fewer after equal seconds.",
    expect="few + half < 15 and early > 40 and later < early / 2",
    kind="comparison",
)

sentence(
    "stale.15",
    "ASP makes as many pushes as BSP in {time:.0%} of its time.",
    expect="time < 0.4",
    kind="count",
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
    "With a momentum of 0.9 the border is {bsp:.2f} under BSP and {equal:.2f} under ASP, {drawn:.2f} if times are "
    "drawn. If ASP's velocity decays by 0.9 in four pushes, as BSP's in a round, ASP's border is {four:.3f}.",
    expect="3.6 < bsp < 4 and four < equal < 0.2 and drawn < bsp / 10",
    kind="single",
)

sentence(
    "stale.13",
    "Without a cluster: a momentum of 0.9 changes the border from {plain[0]:.2f} to {moving[0]:.2f} at age 0, from "
    "{plain[1]:.2f} to {moving[1]:.3f} at age 1, from {plain[3]:.2f} to {moving[3]:.4f} at age 3, from {plain[7]:.2f} "
    "to {moving[7]:.4f} at age 7. A steady gradient is added up ten times, but from age 1 on ten times the border is "
    "at most {most:.2f} times the one without momentum.",
    expect="moving[0] > 1.8 * plain[0] and most < 1.04",
    kind="single",
)

sentence(
    "stale.6",
    "Runs: stable up to lr · λ = {equal:.2f} with equal workers, {straggler:.2f} with the straggler. The formula with "
    "the mean age says {formula:.2f} for both.",
    expect="abs(equal / formula - 1) < 0.05 and straggler > 1.2 * formula",
    kind="identity",
)

timed_sentence(
    "stale.7",
    "Real processes with the straggler: the last loss is {below:.2f} times the first at 0.7 of that border, and "
    "{above:.1e} times at 1.5 of it.",
    expect="below < 1 and above > 10",
)

sentence(
    "stale.8",
    "Digits, each rule at its best: ASP needs {time:.2f} ± {d_time:.2f} of BSP's time, and {bytes:.2f} ± {d_bytes:.2f} "
    "of its bytes.",
    expect="time + d_time < 0.8 and 0.5 < bytes < 1.5",
    kind="comparison",
)

sentence(
    "stale.14",
    "Patients: without momentum BSP takes {plain:.1f} ± {d_plain:.1f} times as long as ASP. The best momentum "
    "makes BSP's time {bsp:.2f} ± {d_bsp:.2f} times as long, and ASP's {asp:.2f} times. Then ASP takes {more:+.2f} ± "
    "{d_more:.2f} s more than BSP, whose time is {time:.2f} s.",
    expect="plain - d_plain > 2 and bsp < 0.4 and asp > 0.7 and more - d_more > 0 and more < time / 3",
    kind="comparison",
)

card(
    "stale.9",
    "At {held} of {ages} ages the loss fell at 0.97 of the border, and grew at 1.03 of it.",
    expect="held == ages",
    kind="identity",
)

sentence(
    "stale.10",
    "{rule} with overlap: the loss falls up to lr · λ = {limit:.2f}; by the formula {formula:.2f}.",
    expect="abs(limit / formula - 1) < 0.06",
    kind="identity",
)

sentence(
    "stale.11",
    "Each at its best rate, one backup reads {more:+.1f} ± {d_more:.1f} points more of all digits than BSP after equal "
    "seconds, and {even:+.1f} ± {d_even:.1f} after equally many rounds (five seeds, in pairs). At a rate of 0.1 for "
    "both it reads {early:+.1f} more after equal seconds: there BSP is unfinished.",
    expect="abs(more) < 2 and abs(even) < 2 and early > 3",
    kind="comparison",
)

sentence(
    "stale.16",
    "With one backup {late} pushes were dropped in {rounds} rounds.",
    expect="late > 20",
    kind="count",
)

sentence(
    "stale.12",
    "BSP's mean times for each batch: {one:.1f} with accumulate=1, {four:.1f} with 4, {sixteen:.1f} with 16.",
    expect="four < 0.8 * one and sixteen < 0.65 * one and sixteen > 1.1",
    kind="count",
)

prompt(
    "stale.1",
    "Your cluster has four workers whose slowness comes and goes. Which rule do you choose for the digits? And for "
    "the patients, with which momentum? Give the numbers, and say what would change your choice. Two sentences.",
    "For the digits I choose ASP, which needs less than BSP's time; for the patients BSP with momentum, which needs a "
    "little less time than ASP, and whose result does not depend on the order of pushes. If one worker were always "
    "slow, a round of BSP would take as long as that worker's step, and I would measure again.",
    kind="comparison",
    by=("say stale.8", "say stale.14"),
)

prompt(
    "stale.2",
    "Does it pay to fade old gradients? Compare the three at their best rates, and then these rates. Two sentences.",
    "Each at its own best rate, the three differ by less than a quarter of their time, so a plain mean at its own rate "
    "does nearly as well. StalenessWeighted's best rate is about twice the mean's: it makes nearly every step shorter, "
    "and a smaller rate does that, too.",
    kind="comparison",
    by=(
        "table: max(map(table.mean, table.rates)) < 1.25 * min(map(table.mean, table.rates))",
        "table: 1.7 < row['stalenessweighted'][0] / row['mean'][0] < 3",
    ),
)

quiz(
    "stale",
    Item(
        "Four workers under ASP. One of them becomes four times slower. What happens to the ages of the gradients?",
        {
            "the slow one's grow, and the mean stays": "While the slow worker computes, many more "
            "versions pass. The others' gradients get a little younger: in most of their steps its push is missing.",
            "all of them grow, and the mean with them": "A fast worker's step sees fewer pushes, not more.",
            "all stay as they were: nobody waits": "Nobody waits, but the slow worker's step misses more versions.",
        },
        by="say stale.1",
    ),
    Item(
        "Two rules are compared after equal pushes. Under ASP the slow worker's digits are read badly. What is your "
        "first step?",
        {
            "look at how long each run took, and at its learning rate": "ASP ended after a third of the time, when the "
            "slow worker had pushed a few times. After equal seconds most of the harm was gone, and at ASP's own rate, "
            "too.",
            "give the slow worker's gradients more weight": "First find out how large the harm is: after equal "
            "seconds, or at a higher rate, most of it was gone.",
            "conclude that ASP drops late pushes": "ASP drops nothing. BSP with one backup does.",
        },
        by=("say stale.3", "say stale.15"),
    ),
    Item(
        "Four workers under ASP, without momentum, whose steps take equally long: gradients are three versions old. "
        "Why is the border for lr only a tenth lower than BSP's?",
        {
            "each push moves the parameters by a quarter of lr": "Whole steps of age 3 would lower the border by more "
            "than three quarters. Steps of a quarter make up for nearly all of that.",
            "three versions are too few to matter": "With whole steps they matter, as the swings at age 2 and 4 show.",
            "the ages differ from push to push, and that evens out": "Here all ages but the first are 3. Ages do "
            "differ if times are drawn, and then the border is even higher than BSP's.",
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
        by="predict stale.2",
    ),
    Item(
        "A hospital's machine is always four times slower, and only it has some of the classes. Its rows may not be "
        "moved. No machine may wait, and all classes must be learned. Which rule?",
        {
            "ASP: old gradients are applied as well": "After equal seconds most of the slow worker's digits were "
            "read, but fewer than under BSP. Measure that: each other machine pushes four times as often.",
            "BSP with one backup: three machines are enough": "Each push of the slow machine would be dropped, and its "
            "classes would never be learned.",
            "SSP: it hides a machine that is always slow": "The others use up their lead, and then wait for it in each "
            "step. Its classes are learned, but at about BSP's pace.",
        },
        by="say stale.2",
    ),
)

remember(
    "stale",
    {
        "Under ASP with": "say stale.1",
        "Compare rules after": ("say stale.2", "say stale.3"),
        "If late pushes": ("predict stale.1", "say stale.2"),
        "The largest stable": ("say stale.4", "say stale.5", "say stale.13", "predict stale.2"),
        "Compare rules each": ("say stale.8", "say stale.14"),
    },
)
