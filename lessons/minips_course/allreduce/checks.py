"""The exercises of "Add up without a server"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, distance, is_own, keeps, refuse_if, unaided
from minips.stage import Array
from minips.testing import check_exchange
from minips_course.allreduce import exchanges

MOST_PIECES = 1000


@asks(
    "allreduce.3",
    "Draw it for four workers. In the first round rank 0 swaps with rank 2, and rank 1 with rank 3: each sends the "
    "half that its partner keeps. Then rank 0 swaps quarters with rank 1. Then both rounds come back, in reverse.",
    "While a rank keeps blocks of `size` pieces, its partner is rank ^ size, and a rank's block begins at "
    "rank // size * size. `size` is first workers // 2, then half of that, and 1 in the last round that adds.",
    "In a halving round each rank sends its partner's block, with True. To come back, take these rounds in reverse, "
    "swap sender and receiver of each message, keep its pieces, and write False.",
)
def halving_doubling(exchange: Any, rng: np.random.Generator) -> str:
    """Write an all-reduce as rounds: the tree's number of rounds, and the ring's bytes."""
    is_own(exchange, exchanges.Rounds, "Mine()")
    for workers in (1, 2, 4, 8, 2 ** int(rng.integers(4, 7))):
        with case(f"With {workers} workers"):
            _is_short(exchange, workers, rng)
    keeps(check_exchange, exchange, workers=(4,))
    _trains(exchange, 2 ** int(rng.integers(1, 4)))
    return "Everybody ends with the sum, in 2 log₂ n rounds and with 2(n − 1)/n · S bytes. Workers trained with it."


def _is_short(exchange: exchanges.Rounds, workers: int, rng: np.random.Generator) -> None:
    """Refuse rounds that do not add up, or that are more, or carry more bytes, than needed."""
    pieces = _pieces(exchange, workers)
    if workers == 1:
        return
    rounds = _rounds(exchange, workers)
    refuse_if(_rounds(exchange, workers) != rounds, "the second time it is asked, rounds gives others. Keep no state.")
    own: Array = rng.normal(size=(workers, pieces))
    values, copies = own.copy(), 0.0
    for number, messages in enumerate(rounds, 1):
        with case(f"(round {number} of {len(rounds)})"):
            _is_a_round(messages, workers, pieces, adds=number <= (len(rounds) + 1) // 2)
        before = values.copy()
        for source, to, some, adds in messages:
            at = list(some)
            values[to, at] = before[source, at] + (values[to, at] if adds else 0)
        copies += max((len(some) for _, _, some, _ in messages), default=0) / pieces
    _are_sums(values, own.sum(axis=0))
    least, bound = 2 * (workers.bit_length() - 1), 2 * (workers - 1) / workers
    refuse_if(len(rounds) > least, f"it adds up, but in {len(rounds)} rounds. {least} are enough.")
    words = f"it adds up, but the longest messages of its rounds have {copies:.2f} S in all"
    refuse_if(copies > bound + 1e-9, f"{words}. {bound:.2f} S are enough.")


def _rounds(exchange: exchanges.Rounds, workers: int) -> list[list[exchanges.Message]]:
    found = unaided(exchange.rounds, workers, helpers=exchanges)
    try:
        return [[(source, to, some, adds) for source, to, some, adds in messages] for messages in found]
    except (TypeError, ValueError):
        words = "expected a list of rounds, each a list of messages (from, to, pieces, adds)"
        raise Refused(f"{words}; got {repr(found)[:100]}.") from None


def _is_a_round(messages: list[exchanges.Message], workers: int, pieces: int, *, adds: bool) -> None:
    for message in messages:
        source, to, some, added = message
        words = f"message {message}"
        ranks = all(isinstance(rank, int | np.integer) and 0 <= rank < workers for rank in (source, to))
        refuse_if(not ranks or source == to, f"{words}: the ranks are 0 to {workers - 1}, and two of them talk.")
        known = isinstance(some, range) and some.step == 1 and 0 <= some.start < some.stop <= pieces
        refuse_if(not known, f"{words}: expected a range of the pieces 0 to {pieces - 1}, such as range(0, 1).")
        halves = "the first half of the rounds adds, and the second half replaces"
        refuse_if(added is not adds, f"{words} has {added!r} at its end, but {halves}.")
    for place, word in ((0, "send"), (1, "receive")):
        ranks_of = [message[place] for message in messages]
        refuse_if(len({*ranks_of}) < len(ranks_of), f"a rank may {word} one message a round; {word}ing: {ranks_of}.")


def _pieces(exchange: ps.AllReduce, workers: int) -> int:
    pieces = exchange.pieces(workers)
    good = isinstance(pieces, int) and 1 <= pieces <= MOST_PIECES
    refuse_if(not good, f"pieces({workers}) is {pieces!r}; expected 1 to {MOST_PIECES}.")
    return pieces


def _are_sums(values: Array, sums: Array) -> None:
    for rank, ends in enumerate(values):
        near = np.allclose(ends, sums, rtol=0, atol=1e-9)
        shown = f"{ends[:8].round(3).tolist()}; the sums of the pieces are {sums[:8].round(3).tolist()}"
        refuse_if(not near, f"rank {rank} ends with {shown}.")


def _trains(exchange: ps.AllReduce, workers: int) -> None:
    """Refuse an exchange that does not train as a ring does; in virtual time, so a busy machine does not matter."""
    problem = ps.LinearRegression(*ps.datasets.diabetes())
    mine, ring = (
        ps.train(problem, ps.Config(exchange=one, workers=workers, steps=3), engine=ps.Simulated()).params
        for one in (exchange, ps.RingAllReduce())
    )
    far = distance(mine, ring)
    refuse_if(not far <= 1e-4, f"{workers} workers trained with it, and ended {far:.3g} from where a ring ends.")


@asks(
    "allreduce.2",
    "Draw a table with a row for each place and a column for each turn. Each field has the piece that is sent on.",
    "Place 0 sends piece t in turn t; each next place sends it a turn later. When does the last piece reach the end?",
    "Each of the three methods is one line. The last piece starts n − 1 turns after the first one. Numbers that no "
    "piece has need no special case.",
)
def line(exchange: Any, rng: np.random.Generator) -> str:
    """Cut the values into pieces that travel down the line one after another."""
    closed = "A ring closes the line, but here the last worker is not a neighbour of the first."
    refuse_if(isinstance(exchange, ps.RingAllReduce), closed)
    is_own(exchange, ps.AllReduce, "Line()")
    for workers in (1, 2, 3, 4, int(rng.integers(5, 10)), int(rng.integers(34, 60))):
        with case(f"With {workers} workers"):
            _adds_up(exchange, workers, rng)
    keeps(check_exchange, exchange, workers=(2,))
    workers = int(rng.integers(3, 6))
    _trains(exchange, workers)
    return f"It adds up, only neighbours talk, and no link idles for long. {workers} workers trained with it."


def _adds_up(exchange: ps.AllReduce, workers: int, rng: np.random.Generator) -> None:
    pieces = _pieces(exchange, workers)
    schedules = [exchange.schedule(rank, workers) for rank in range(workers)]
    again = [exchange.schedule(rank, workers) for rank in reversed(range(workers))]
    refuse_if(again[::-1] != schedules, "the second time it is asked, schedule gives other hops. Keep no state.")
    lengths = {len(hops) for hops in schedules}
    refuse_if(len(lengths) > 1, f"the ranks have {sorted(lengths)} hops; all need the same number.")
    own: Array = rng.normal(size=(workers, pieces))
    values, sums, turns = own.copy(), own.sum(axis=0), 0.0
    for turn, hops in enumerate(zip(*schedules, strict=True)):
        with case(f"(hop {turn})"):
            values = _turn(values, hops)
        turns += max(len(hop.sends) for hop in hops) / pieces
    _are_sums(values, sums)
    time = f"it takes the time of {turns:.2f} whole gradients, hop by hop"
    refuse_if(turns > 4.05, f"{time}. In pieces it can do with 4 or less.")


def _turn(values: Array, hops: "tuple[ps.Hop, ...]") -> Array:
    """Return the values after all ranks' next hop."""
    after = values.copy()
    for rank, hop in enumerate(hops):
        if hop.to is not None:
            refuse_if(abs(hop.to - rank) != 1, f"rank {rank} sends to {hop.to}, which is not a neighbour.")
            deaf = hops[hop.to].source != rank
            refuse_if(deaf, f"rank {rank} sends to {hop.to}, which does not receive from it.")
        if hop.source is not None:
            other = hops[hop.source]
            refuse_if(other.to != rank, f"rank {rank} waits for {hop.source}, which does not send to it.")
            sent = f"rank {hop.source} sends {other.sends} with adds={other.adds}"
            differs = (other.sends, other.adds) != (hop.receives, hop.adds)
            refuse_if(differs, f"{sent}; rank {rank} expects {hop.receives} with adds={hop.adds}.")
            at = list(hop.receives)
            after[rank, at] = values[hop.source, at] + (values[rank, at] if hop.adds else 0)
    return after
