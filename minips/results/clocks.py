"""One clock for the parties of a run on several machines, by what the messages between them show."""

from collections import deque
from collections.abc import Iterable, Mapping
from math import inf

from minips.results.messages import Message


def clock_offsets(messages: Iterable[Message], machine_of: Mapping[str, str]) -> tuple[dict[str, float], float]:
    """For each party, the seconds by which its clock is ahead of that of the first one in ``machine_of``, which maps
    parties to machines; and the largest error of these.

    The shortest message from one machine to another, and the shortest one back, are assumed to have travelled for
    equally long: the error is at most half of their round trip (Mills 1991, "Internet time synchronization: the Network
    Time Protocol"). An offset within its error counts as 0, and adds to the error.
    """
    least: dict[tuple[str, str], float] = {}
    for one in messages:
        ends = machine_of.get(one.sender, ""), machine_of.get(one.receiver, "")
        if one.start is not None and one.end is not None and ends[0] != ends[1]:
            least[ends] = min(least.get(ends, inf), one.end - one.start)
    first = next(iter(machine_of.values()), "")
    ahead, errors, near = {first: 0.0}, {first: 0.0}, deque([first])
    while near:
        here = near.popleft()
        for there in (machine for machine in dict.fromkeys(machine_of.values()) if machine not in ahead):
            to, back = least.get((here, there)), least.get((there, here))
            if to is not None and back is not None:
                offset, error = (to - back) / 2, abs(to + back) / 2
                counts = abs(offset) > error
                ahead[there] = ahead[here] + (offset if counts else 0.0)
                errors[there] = errors[here] + error + (0.0 if counts else abs(offset))
                near.append(there)
    offsets = {who: ahead[machine] for who, machine in machine_of.items() if ahead.get(machine)}
    return offsets, max(errors.values())
