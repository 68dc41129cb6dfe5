"""Three puzzles: an all-reduce of eight ranks on a star, on a ring, and on two racks with a slow uplink.

The board keeps what is true of each sum (its piece, its ranks, its place, when it arrives); a `Sum` contains nothing
that could be changed. A step takes as long as its busiest link, and a constant for its latency.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isgenerator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary, ref

from minips.lab.puzzles.base import IllegalMoveError, Played, Puzzle, only_the_game_makes
from minips.machines.topology import hosts

if TYPE_CHECKING:
    from minips.lab.charts import Drawing

RANKS = PIECES = 8
NODES = hosts(RANKS, 0)
LATENCY = 2
"""Ticks that a step takes beside its bytes."""
MOST_STEPS = 200

Ends = tuple[str, str]


class Fact(NamedTuple):
    """A sum's entry on the board."""

    game: "ref[Board]"
    """Weak, since the board has sums."""
    piece: int
    ranks: frozenset[int]
    at: int
    step: int
    """The number of steps after which it can be used."""

    @property
    def board(self) -> "Board":
        """The board of its play. `IllegalMoveError` if the play has ended."""
        board = self.game()
        if board is None:
            raise IllegalMoveError(f"{_name(self)} is from another play. Begin from this play's rank.gradients.")
        return board


class Sum:
    """One piece of the gradients of some ranks, added up, at one rank. Sums come from `Rank.gradients`, ``+`` and
    `send`.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls) -> "Sum":
        raise only_the_game_makes("A sum", "Add sums that a rank has, from its gradients on, or send them.")

    @property
    def piece(self) -> int:
        """The number of the piece, 0 to 7."""
        return _fact(self).piece

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks whose gradients it contains."""
        return _fact(self).ranks

    @property
    def at(self) -> int:
        """The rank that has it."""
        return _fact(self).at

    @property
    def whole(self) -> bool:
        """True if it contains the gradients of all ranks."""
        return len(self.ranks) == RANKS

    def __add__(self, other: "Sum") -> "Sum":
        mine, theirs = _usable(self), _usable(other)
        if mine.board is not theirs.board:
            raise IllegalMoveError(f"{_name(theirs)} is from another play. Begin from this play's rank.gradients.")
        if mine.piece != theirs.piece:
            raise IllegalMoveError(f"Pieces {mine.piece} and {theirs.piece} differ. Add sums of the same piece.")
        if mine.at != theirs.at:
            raise IllegalMoveError(
                f"One sum is at rank {mine.at}, the other at rank {theirs.at}. Send one of them, and yield."
            )
        if both := mine.ranks & theirs.ranks:
            raise IllegalMoveError(
                f"Both sums of piece {mine.piece} contain the gradient of {_of(both)}, which would count twice. "
                "Add sums of different ranks."
            )
        return mine.board.make(mine.piece, mine.ranks | theirs.ranks, mine.at)

    def __radd__(self, other: object) -> "Sum":
        if other != 0 or type(other) is not int:
            raise IllegalMoveError(f"A sum is added to a sum; got {other!r}.")
        return self  # sum() begins with 0

    def send(self, to: int) -> "Sum":
        """Send it to the rank ``to``. Return what arrives there, which can be used after the next ``yield``."""
        return _usable(self).board.send(self, to)

    def __repr__(self) -> str:
        return f"piece {self.piece} of {_of(self.ranks)}, at rank {self.at}"


_FACTS: WeakKeyDictionary[Sum, Fact] = WeakKeyDictionary()


def _fact(one: object) -> Fact:
    """Return what is known of a sum. `IllegalMoveError` if no board made it."""
    if type(one) is not Sum:  # a class derived from Sum may claim to equal any sum
        got = "another one" if isinstance(one, Sum) else repr(one)
        raise IllegalMoveError(f"Expected a sum, from rank.gradients, + or send; got {got}.")
    if one not in _FACTS:
        raise IllegalMoveError("No rank has this sum. Sums come from rank.gradients, + and send.")
    return _FACTS[one]


def _usable(one: object) -> Fact:
    """Return what is known of a sum that has arrived. `IllegalMoveError` if it is under way."""
    fact = _fact(one)
    if fact.step > len(fact.board.steps):
        raise IllegalMoveError(f"{_name(fact)} is on its way to rank {fact.at}. It arrives at the next yield.")
    return fact


def _name(fact: Fact) -> str:
    return f"Piece {fact.piece} of {_of(fact.ranks)}"


def _of(ranks: frozenset[int]) -> str:
    listed = ", ".join(map(str, sorted(ranks)))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


@dataclass(frozen=True)
class Rank:
    """A rank: its number, its gradient in eight pieces, and the ranks to which it can send."""

    number: int
    gradients: tuple[Sum, ...]
    neighbours: tuple[int, ...]

    def use(self, total: Sum) -> None:
        """Use the whole sum of a piece for this rank's step. `IllegalMoveError` if it is not whole, or elsewhere."""
        fact = _usable(total)
        if fact.at != self.number:
            raise IllegalMoveError(f"Rank {self.number} cannot use {total}. Send it there first.")
        if len(fact.ranks) < RANKS:
            lacking = frozenset(range(RANKS)) - fact.ranks
            raise IllegalMoveError(
                f"Rank {self.number} cannot use piece {fact.piece}: the gradient of {_of(lacking)} is missing."
            )
        fact.board.used.add((self.number, fact.piece))


class Sending(NamedTuple):
    """A sum on its way, in one step."""

    source: int
    target: int
    piece: int
    gradients: int
    """The number of gradients that it contains."""


class Step(NamedTuple):
    """The messages that the links carry between two yields."""

    load: Counter[Ends]
    """The ticks for which each link is busy, in each direction."""

    @property
    def ticks(self) -> int:
        return LATENCY + max(self.load.values(), default=0)


class Board:
    """The ranks, their links, and what has happened so far."""

    def __init__(self, links: Mapping[Ends, int]) -> None:
        self.cost: dict[Ends, int] = {}
        """Ticks of one piece over each link, in each direction."""
        for (a, b), ticks in links.items():
            self.cost[a, b] = self.cost[b, a] = ticks
        nodes = [*enumerate(NODES)]
        self.paths = {(i, j): path for i, a in nodes for j, b in nodes if i != j and (path := self._path(a, b))}
        self.steps: list[Step] = []
        self.sent: list[Sending] = []
        self.used: set[tuple[int, int]] = set()
        self.most = [[0] * PIECES for _ in range(RANKS)]
        """The gradients in the largest sum of each piece that each rank has."""
        self.looks: list[list[list[int]]] = []
        """``most`` at each yield."""
        self.ranks = [
            Rank(
                i,
                tuple(self.make(p, frozenset([i]), i) for p in range(PIECES)),
                tuple(j for j in range(RANKS) if (i, j) in self.paths),
            )
            for i in range(RANKS)
        ]

    def _path(self, source: str, target: str) -> list[Ends]:
        """Return the links from a rank to another one, through switches only; empty if there is no such path."""
        paths, seen = [[source]], {source}
        for path in paths:
            if path[-1] == target:
                return list(pairwise(path))
            if len(path) > 1 and path[-1].startswith("worker"):
                continue
            after = [end for start, end in self.cost if start == path[-1] and end not in seen]
            seen.update(after)
            paths += [[*path, one] for one in after]
        return []

    def make(self, piece: int, ranks: frozenset[int], at: int) -> Sum:
        """Return a new sum, which can be used at once."""
        self.has(at, piece, len(ranks))
        return self._sum(Fact(ref(self), piece, ranks, at, len(self.steps)))

    def has(self, rank: int, piece: int, gradients: int) -> None:
        """Note that a rank has a sum of so many gradients."""
        self.most[rank][piece] = max(self.most[rank][piece], gradients)

    def _sum(self, fact: Fact) -> Sum:
        one = object.__new__(Sum)
        _FACTS[one] = fact
        return one

    def send(self, one: Sum, to: int) -> Sum:
        """Send a sum that has arrived, and return what arrives."""
        fact = _FACTS[one]
        if type(to) is not int or (fact.at, to) not in self.paths:
            neighbours = ", ".join(map(str, self.ranks[fact.at].neighbours))
            raise IllegalMoveError(f"Rank {fact.at} sends to the ranks {neighbours}, by number; got {to!r}.")
        self.sent.append(Sending(fact.at, to, fact.piece, len(fact.ranks)))
        return self._sum(fact._replace(at=to, step=len(self.steps) + 1))

    def end_step(self) -> None:
        """Let arrive what was sent. `IllegalMoveError` after too many steps."""
        if len(self.steps) == MOST_STEPS:
            raise IllegalMoveError(f"The game ends after {MOST_STEPS} steps, and not all sums are whole.")
        load = Counter[Ends]()
        for message in self.sent:
            for ends in self.paths[message.source, message.target]:
                load[ends] += self.cost[ends]
        self.look()
        self.steps.append(Step(load))
        for message in self.sent:
            self.has(message.target, message.piece, message.gradients)
        self.sent = []

    def look(self) -> None:
        """Keep how much each rank has now."""
        self.looks.append([list(row) for row in self.most])

    def end(self) -> None:
        """End the game. `IllegalMoveError` if it is not over."""
        self.look()
        if self.sent:
            raise IllegalMoveError(
                f"{len(self.sent)} messages were sent after the last yield, and do not arrive. Yield after sending."
            )
        lacking = sorted({(i, p) for i in range(RANKS) for p in range(PIECES)} - self.used)
        if lacking:
            rank, piece = lacking[0]
            raise IllegalMoveError(
                f"{len(lacking)} of {RANKS * PIECES} pieces were not used, the first of them piece {piece} at rank "
                f"{rank}. Call rank.use(total) at every rank for every piece."
            )


class AllReducePuzzle(Puzzle):
    """An all-reduce on a network."""

    function = "all_reduce"
    unit = "ticks"
    links: ClassVar[Mapping[Ends, int]]
    """Maps the ends of each link to the ticks that a piece takes there."""
    network: ClassVar[str]
    rules: ClassVar[str] = """
    Eight ranks each have a gradient of eight pieces, rank.gradients[0] to [7]. In the end every rank must have used the
    whole sum of every piece: rank.use(total). {network}

    Your function gets the list of ranks. a + b adds two sums at the same rank; a.send(3) sends a sum to rank 3 and
    returns what arrives there; yield ends a step, and lets everything arrive. A sum has .piece, .ranks, .at and .whole;
    a rank has .number, .gradients and .neighbours, the numbers of the ranks to which it can send.

    A step costs 2 ticks, and as many as its busiest link needs in one direction: 1 for each piece. Adding is free. Few
    steps with much traffic, or many steps with little?
    """
    start = """
def all_reduce(ranks):
    \"\"\"Rank 0 is the server: all ranks send it everything, and it sends all the sums to everyone.\"\"\"
    first, *others = ranks
    arrived = [[rank.gradients[p].send(0) for rank in others] for p in range(8)]
    yield
    totals = [first.gradients[p] + sum(arrived[p]) for p in range(8)]
    copies = [(rank, total.send(rank.number)) for rank in others for total in totals]
    yield
    for rank, total in [*copies, *((first, total) for total in totals)]:
        rank.use(total)
"""

    @property
    def task(self) -> str:  # type: ignore[override]
        return self.rules.format(network=self.network)

    def play(self, function: Callable[..., Any]) -> "Reduced":
        board = Board(self.links)
        moves = function(board.ranks)
        if not isgenerator(moves):
            raise IllegalMoveError("The function has no yield. Yield after sending: it ends a step.")
        for _ in moves:
            board.end_step()
        board.end()
        score = sum(step.ticks for step in board.steps)
        return Reduced(self, score, tuple(board.steps), tuple(board.looks), tuple(self.links))


class OnStar(AllReducePuzzle):
    """All ranks at one switch."""

    name, title, par, best = "star", "an all-reduce at one switch", 26, 18
    links: ClassVar = {(node, "switch"): 1 for node in NODES}
    network = "Each rank has one link to a switch, over which it can send to every other rank."


class OnRing(AllReducePuzzle):
    """Each rank beside two others."""

    name, title, par, best = "ring", "an all-reduce around a ring", 24, 20
    links: ClassVar = dict.fromkeys(pairwise([*NODES, NODES[0]]), 1)
    network = "The ranks form a ring: each has a link to the rank before it and to the rank after it, and to no other."
    start = """
def all_reduce(ranks):
    \"\"\"Every gradient goes all the way around: 7 steps, but each of them carries whole gradients.\"\"\"
    have, going = [list(rank.gradients) for rank in ranks], [list(rank.gradients) for rank in ranks]
    for _ in range(7):
        going = [[one.send((r + 1) % 8) for one in going[r]] for r in range(8)]
        yield
        going = [going[r - 1] for r in range(8)]
        have = [[a + b for a, b in zip(have[r], going[r])] for r in range(8)]
    for rank, totals in zip(ranks, have):
        for total in totals:
            rank.use(total)
"""


class OnRacks(AllReducePuzzle):
    """Four ranks in each of two racks."""

    name, title, par, best = "racks", "an all-reduce over two racks", 50, 46
    links: ClassVar = {("rack 0", "rack 1"): 4, **{(node, f"rack {i // 4}"): 1 for i, node in enumerate(NODES)}}
    network = (
        "Ranks 0 to 3 are at the switch of one rack, ranks 4 to 7 at the other's. Between the switches is one uplink, "
        "on which a piece takes 4 ticks; all messages between the racks share it."
    )


ALL_REDUCES = (OnStar(), OnRing(), OnRacks())


@dataclass(frozen=True, repr=False)
class Reduced(Played):
    """An all-reduce that was played to its end."""

    steps: tuple[Step, ...]
    looks: tuple[list[list[int]], ...]
    links: tuple[Ends, ...]

    @property
    def total(self) -> Counter[Ends]:
        """The ticks for which each link was busy, in each direction."""
        return sum((step.load for step in self.steps), Counter[Ends]())

    @property
    def words(self) -> str:
        busiest, ticks = max(self.total.items(), key=lambda item: item[1])
        count = f"{len(self.steps)} steps" if len(self.steps) != 1 else "1 step"
        latency, nbytes = LATENCY * len(self.steps), sum(step.ticks - LATENCY for step in self.steps)
        return (
            f"{count}: {latency} ticks of latency and {nbytes:g} of traffic. The busiest link, "
            f"{' → '.join(map(_short, busiest))}, is busy for {ticks:g} ticks."
        )

    def text(self) -> str:
        """A row for each step; a column for each rank, with the gradients in its largest sum of each piece."""
        rows = ["step   ticks  " + "  ".join(f"{f'rank {i}':{PIECES}}" for i in range(RANKS)).rstrip()]
        for number, look in enumerate(self.looks):
            name = f"{number:<5} {self.steps[number - 1].ticks:6}" if number else "start"
            rows.append(f"{name:12}  " + "  ".join("".join(map(str, row)) for row in look))
        return "\n".join([*rows, "Each digit is a piece: how many gradients its largest sum contains."])

    def drawing(self, width: float) -> "Drawing":
        from minips.lab.puzzles.pictures import draw_all_reduce

        steps = [(LATENCY, step.ticks - LATENCY) for step in self.steps]
        return draw_all_reduce(self.links, self.total, steps, self.looks, self.goals, width)


def _short(node: str) -> str:
    return node.replace("worker", "rank")
