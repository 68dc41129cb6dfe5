"""The questions, sentences and quiz of "Where compression pays"."""

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

timed_question(
    "pays.1",
    "One message of 0.8 MB goes over a link of 100 Gbit/s, as in a data centre. Counting the time to encode and "
    "decode, how many of the seven codecs make it faster on this machine?",
    Expected(
        "none of them",
        lambda paying: paying == 0,
        "A link of 100 Gbit/s carries a 32-bit value in 0.32 ns, and a codec can save no more than that. To encode and "
        "decode, numpy needs several passes over the values, which together take longer.",
    ),
    Option(
        "one to three",
        lambda paying: 1 <= paying <= 3,
        "Some codec here encodes and decodes a value in less time than it saves of the link's 0.32 ns.",
    ),
    Option(
        "four to six",
        lambda paying: 4 <= paying <= 6,
        "Most codecs here need less time for a value than they save of the link's 0.32 ns.",
    ),
    Option(
        "all seven",
        lambda paying: paying == 7,
        "Each codec needs less time for a value than it saves of the link's 0.32 ns, lz4 included.",
    ),
    otherwise="The codecs that pay could not be counted.",
    shown={"paying": "it is faster with: {:.0f} of the seven codecs"},
)

question(
    "pays.2",
    "With 1 % of the values and a memory, a push has about 1/60 of the bytes. Over a link of 10 Mbit/s, how many "
    "times as soon does training read 90 % of the held-out digits, compared with exact gradients, each at its best "
    "learning rate?",
    Option(
        "less than 1.5 times as soon",
        lambda times: 0 < times < 1.5,
        "More steps, the way back, or the codec's own time cost as much as the smaller push saved.",
    ),
    Expected(
        "1.5 to 8 times as soon",
        lambda times: 1.5 <= times < 8,
        "The push has all but vanished. The way back is left: parameters in 8 bits, for four workers over one link of "
        "the server. A step can be no shorter than that, however few values a push has.",
    ),
    Option(
        "8 to 30 times as soon",
        lambda times: 8 <= times < 30,
        "The way back was a small part of a step, and the push was a large part.",
    ),
    Option(
        "30 times as soon, or more",
        lambda times: times >= 30,
        "A step's time fell in proportion to the bytes of a push, as if nothing came back.",
    ),
    otherwise="One of the two trainings did not reach 90 % within the steps that were tried.",
    kind="comparison",
    shown={"times": "with 1 % of the values: {:.2f} times as soon"},
)

sentence(
    "pays.1",
    "The lecture's code, in seconds: {says:.4f}; with 16 bits {half:.4f}, with 8 bits {byte:.4f}.",
    expect="abs(says - 0.0055) < 5e-5 and abs(half - 0.0027) < 5e-5 and abs(byte - 0.0014) < 5e-5",
    kind="single",
)

sentence(
    "pays.2",
    "A ring of 8 takes {right:.4f} s for a true 32 MB: {times:.1f} times as long as the lecture says. With a latency "
    "of 0.001 s for each of its messages it takes {each:.4f} s; the lecture adds a latency once.",
    expect="abs(right - 0.0448) < 5e-5 and 8 < times < 8.3 and abs(each - 0.0588) < 5e-5",
    kind="single",
)

sentence(
    "pays.3",
    "Bytes of a message, over k/32 of the exact one: 8 bits {byte:.3f} times, sign {sign:.2f} times. Only {kept:.0%} "
    "of the bytes of top 1 % are values; the rest are indices and headers.",
    expect="1 < byte < 1.02 and 1 < sign < 1.1 and 0.45 < kept < 0.55",
    kind="count",
)

timed_sentence(
    "pays.4",
    "Of the seven codecs {slow} pay at 10 Mbit/s, {ten} at 10 Gbit/s, {fast} at 100 Gbit/s.",
    expect="slow == 6 and fast == 0 and ten < slow",
)

timed_sentence(
    "pays.5",
    "In Gbit/s, by the medians of {times} passes: fp16 breaks even at {half[1]:.1f} (quartiles {half[0]:.1f} to "
    "{half[2]:.1f}), 8 bits at {byte[1]:.1f} ({byte[0]:.1f} to {byte[2]:.1f}), the last of the seven, {last}, at "
    "{most[1]:.0f} ({most[0]:.0f} to {most[2]:.0f}).",
    expect="half[1] < byte[1] <= most[1]",
)

sentence(
    "pays.6",
    "{tiny:.0%} of the values of W are subnormal as half floats; multiplied by 256, {left:.1%} are.",
    expect="tiny > 0.05 and left < 0.01",
    kind="single",
)

timed_sentence(
    "pays.7",
    "fp16 breaks even at {plain[1]:.1f} Gbit/s, as on the map. With the values times 256, measured in the same turns, "
    "it does so at {scaled[1]:.1f} (quartiles {scaled[0]:.1f} to {scaled[2]:.1f}). Two bare copies in place of the "
    "cast would break even at {copied:.0f}.",
    expect="plain[1] < scaled[1] < copied",
)

timed_sentence(
    "pays.8",
    "Speed-up until 90 % are read, over exact gradients at 10 Mbit/s (five seeds, in pairs): fp16 "
    "{sooner[fp16][0]:.1f} ± {sooner[fp16][1]:.1g}, 8 bits {sooner[8 bits][0]:.1f} ± {sooner[8 bits][1]:.1g}, sign "
    "{sooner[sign][0]:.1f} ± {sooner[sign][1]:.1g}, top 1 % {sooner[top 1 %][0]:.1f} ± {sooner[top 1 %][1]:.1g}.",
    expect="min([mean - half for name, (mean, half) in sooner.items() if name != 'exact']) > 1.3 "
    "and sooner['8 bits'][0] > 2.5",
)

timed_sentence(
    "pays.9",
    "Time until then at 10 Gbit/s, over that with exact gradients: fp16 {longer[fp16][0]:.2f} ± "
    "{longer[fp16][1]:.2f}, 8 bits {longer[8 bits][0]:.2f} ± {longer[8 bits][1]:.2f}, sign {longer[sign][0]:.2f} ± "
    "{longer[sign][1]:.2f}, top 1 % {longer[top 1 %][0]:.2f} ± {longer[top 1 %][1]:.2f}.",
    expect="longer['fp16'][0] > 1 and longer['top 1 %'][0] > 1 and min([mean for mean, half in longer.values()]) > 0.7",
)

timed_sentence(
    "pays.13",
    "Of a step with exact gradients the links take {slow:.0%} over 10 Mbit/s, and {fast:.0%} over 10 Gbit/s.",
    expect="fast < 0.85 < slow",
)

timed_sentence(
    "pays.10",
    "With 8 bits both ways a step over 20 Mbit/s was {slow[1]:.1f} times as fast ({slow[0]:.1f} to {slow[2]:.1f} in "
    "{pairs} pairs of runs), and over the loopback {fast[1]:.2f} times ({fast[0]:.2f} to {fast[2]:.2f}).",
    expect="slow[1] > 1.5 and fast[1] < 1",
)

timed_sentence(
    "pays.11",
    "Judged by one message, {ten:.0%} of the codecs pay at 10 Gbit/s, and {over:.0%} of the {setups} set-ups from "
    "1 to 20 Gbit/s. In the paper it is 6 of more than 200: less than 3 %.",
    expect="over > 0.06",
)

timed_sentence(
    "pays.12",
    "One gradient of 100 rows takes {compute:.1f} times as long here as its 0.8 MB take at 1 Gbit/s. If computing "
    "hides that much of the transfer, {hidden:.0%} of the set-ups pay in place of {over:.0%}. If it hides a tenth of "
    "that: {tenth:.0%}.",
    expect="hidden <= tenth <= over and hidden < over",
)

prompt(
    "pays.2",
    "Somebody says: sixteen bits do not pay at 10 Gbit/s. Between which bandwidths does only one of the two codecs of "
    "the table pay, and what do you answer? Give the numbers and their intervals. Two sentences.",
    "With the upper half of each float32 only mine pays between the two break-evens of the table, by their "
    "intervals. So the sentence is about an implementation on a processor, and not about sixteen bits.",
    by="timed table: not solved or row['fp16'][0] + row['fp16'][1] < row['yours'][0] - row['yours'][1]",
    kind="time",
)

quiz(
    "pays",
    Item(
        "A function divides a size in bytes by a bandwidth in bits per second. Its seconds are",
        {
            "eight times too few": "A byte has 8 bits. The lecture's 32 MB were read as bits, and became 4 MB.",
            "eight times too many": "The size in bits is the larger number, so the true time is longer.",
            "right in SI units": "SI prefixes say how large a mega is. They do not turn bytes into bits.",
        },
        by="say pays.2",
    ),
    Item(
        "A codec is rewritten. It makes the same bytes, and adds half the seconds. Its break-even bandwidth",
        {
            "doubles": "The break-even is the bits saved, divided by the seconds added.",
            "halves": "With less processor time to win back on the wire, the codec pays on faster links, too.",
            "stays: the same bytes are saved": "The break-even depends on the bytes saved and on the seconds added.",
        },
        by="check squeeze.1",
    ),
    Item(
        "The same gradient times 256 raised the break-even of fp16. Why?",
        {
            "few values are subnormal then": "Here numpy's cast of a subnormal value takes several times as "
            "long. The bytes are the same.",
            "larger values need fewer bits": "Each value has 16 bits, however large it is.",
            "the cast rounds less": "Rounding takes hardly any time. It changes the error, not the seconds.",
        },
        by=("say pays.6", "say pays.7"),
    ),
    Item(
        "Over 10 Mbit/s a push of 1 % of the values made a step only a few times shorter. What is most of that step?",
        {
            "the parameters on their way back": "They have 8 bits a value, and the server's link carries them once for "
            "each worker.",
            "what the memory computes": "The memory takes thousandths of a second, and the link takes far longer.",
            "the additional steps": "More steps make a training longer, but not a single step.",
        },
        by="predict pays.2",
    ),
    Item(
        "By the time of one message far more of our set-ups pay than in the paper. If computing hides a part of the "
        "transfer, fewer of them pay. What do these two numbers show?",
        {
            "overlap makes codecs pay less often": "How much of the paper's count it explains is open: its codecs, "
            "processors and networks differ from ours as well.",
            "overlap is the reason for the paper's count": "It is a candidate. We ran nothing from the paper, so its "
            "GPUs and codecs are candidates, too.",
            "the paper's codecs were badly written": "We cannot tell: we ran nothing from the paper.",
        },
        by="say pays.12",
    ),
)

remember(
    "pays",
    {
        "Check a time": ("say pays.1", "say pays.2", "check pays.1"),
        "A codec pays": ("say pays.5", "check squeeze.1"),
        "That bandwidth": ("say pays.5", "say pays.7"),
        "The seconds until": ("predict pays.2", "say pays.8"),
        "The time of one": ("say pays.12", "say pays.13"),
    },
)
