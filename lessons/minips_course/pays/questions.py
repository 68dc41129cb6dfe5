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
    "fp16 breaks even at {plain[1]:.1f} Gbit/s. With the values times 256 "
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
    "pays.10",
    "With 8 bits both ways a step over 20 Mbit/s was {slow[1]:.1f} times as fast ({slow[0]:.1f} to {slow[2]:.1f} in "
    "{pairs} pairs of runs), and over the loopback {fast[1]:.2f} times ({fast[0]:.2f} to {fast[2]:.2f}).",
    expect="slow[1] > 1.5 and fast[1] < 1",
)

sentence(
    "pays.14",
    "The lecture says {says:.4f} s. A ring of 8 takes {right:.4f} s for a true 32 MB: {times:.1f} times as long.",
    expect="abs(says - 0.0055) < 5e-5 and abs(right - 0.0448) < 5e-5 and 8 < times < 8.3",
    kind="single",
)

sentence(
    "pays.16",
    "Steps until 90 %, each at its best rate (means of 5 seeds): exact {exact:.0f}, 8 bits {byte:.0f}, sign "
    "{sign:.0f}, top 1 % {top:.0f}.",
    expect="top > 1.2 * exact and sign < 1.2 * exact",
    kind="comparison",
)

timed_sentence(
    "pays.17",
    "With 8 bits over 1 Gbit/s, training is {times[0]:.1f} times as soon at 90 % as with exact gradients for 1 "
    "worker, {times[1]:.1f} times for 4, {times[2]:.1f} times for 16.",
    expect="times[0] < times[1] < times[2]",
)

timed_sentence(
    "pays.18",
    "Your two numbers: one message with 8 bits pays below {even:.1f} Gbit/s, and over 10 Mbit/s training with signs is "
    "{times:.1f} times as soon at 90 %.",
    expect="even > 0.5 and times > 2",
)

prompt(
    "pays.3",
    "For one message, sign and top 1 % break even at bandwidths of the same order. In a training by four workers, "
    "which of the two pays up to the higher bandwidth, and which number of the sentences above explains it? Give the "
    "break-evens. Two sentences.",
    "In training, sign pays up to a bandwidth more than 1.5 times as high as top 1 %. Top 1 % needs more steps than "
    "exact gradients, and each of them costs its time on the processors and on the way back.",
    by=(
        "timed table: not solved or row['sign'][2] > 1.5 * row['top 1 %'][2]",
        "say pays.16: top > 1.2 * exact",
    ),
    kind="time",
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
        by="say pays.14",
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
        "In a training, top 1 % stops paying at a far lower bandwidth than sign. Why?",
        {
            "it needs more steps": "Each step costs its time on the processors, and the way back.",
            "its pushes have more bytes": "They have fewer: about half as many as those of sign.",
            "it has a memory, and sign has none": "Both have one, and its time is counted for both.",
        },
        by="say pays.16: top > 1.2 * exact > sign",
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
        "With more workers, 8 bits gain more over the same links. Why?",
        {
            "the server's link carries a message for each of them": "Bytes grow with the workers. Of the codec's "
            "seconds, only the server's decoding does.",
            "they encode side by side, so encoding is free": "Each worker still waits for its own encoding.",
            "they need fewer steps": "The steps were counted with four workers, and taken as the same.",
        },
        by="say pays.17",
    ),
)

remember(
    "pays",
    {
        "Check a time": "say pays.14",
        "One message pays": ("say pays.5", "check squeeze.1", "say pays.18"),
        "That bandwidth": ("say pays.5", "say pays.7"),
        "The seconds until": ("predict pays.2", "say pays.8", "say pays.16", "say pays.18"),
        "More workers share": "say pays.17",
    },
)

RETIRED = {"say": (1, 2, 3, 11, 12, 13), "check": (1,)}
"""The numbers that an earlier edition of the lesson used, by kind."""
