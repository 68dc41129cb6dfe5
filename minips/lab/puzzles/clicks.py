"""A puzzle: which server holds which items of a table, if clicks are not spread evenly and change with the hour.

An hour takes as long as its busiest server. All figures are counts of clicks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minips.lab.puzzles.base import IllegalMoveError, Played, Puzzle, only_the_game_makes

if TYPE_CHECKING:
    from minips.lab.charts import Drawing

ITEMS, SERVERS, HOURS, ROOM = 48, 4, 6, 14
MOST = 1000
"""Clicks on the hour's favourite; the next one has half as many, the third a third, and so on (Zipf's law)."""


def clicks_on(item: int) -> tuple[int, ...]:
    """Return the clicks on an item in each hour: an hour moves every item's place by 11.

    >>> clicks_on(0)
    (1000, 83, 43, 29, 22, 125)
    """
    return tuple(MOST // ((7 * item + 11 * hour) % ITEMS + 1) for hour in range(HOURS))


class TableItem:
    """A row of the table: its ``number``, and its ``clicks`` in each hour. Only the game makes items."""

    __slots__ = ("clicks", "number")
    number: int
    clicks: tuple[int, ...]

    def __new__(cls) -> "TableItem":
        raise only_the_game_makes("An item", "Place the items that the function gets.")

    def __setattr__(self, name: str, value: object) -> None:
        raise IllegalMoveError(f"An item's {name} cannot be changed. Only its server is yours to choose.")

    def __repr__(self) -> str:
        return f"item {self.number}"


class Shelf:
    """A server's memory: `hold` places an item on it."""

    __slots__ = ("_place", "number")

    def __init__(self, number: int, place: Callable[["Shelf", object], None]) -> None:
        self.number, self._place = number, place

    def hold(self, item: TableItem) -> None:
        """Place an item here. `IllegalMoveError` if the server is full, or the item is placed already."""
        self._place(self, item)


class ClicksPuzzle(Puzzle):
    """The placement of a table's items."""

    name, title, function, unit, par, best = "clicks", "place a table on servers", "place", "clicks", 8339, 7665
    task = f"""
    A table has {ITEMS} items, and {SERVERS} servers hold them, each at most {ROOM}. In every hour the favourite item
    has {MOST} clicks, the second one half as many, the third one a third: Zipf's law. The favourites change from
    hour to hour, over {HOURS} hours.

    Your function gets the lists items and servers, and places each item once: servers[0].hold(items[5]). An item has
    .number and .clicks, a tuple with its clicks in each hour; a server has .number.

    A server answers one click after another, so an hour takes as long as its busiest server. The score is the sum of
    the busiest server's clicks over the hours. Ranges, turns, or better?
    """
    start = """
def place(items, servers):
    \"\"\"Ranges: the first 12 items on the first server, and so on.\"\"\"
    for item in items:
        servers[item.number // 12].hold(item)
"""

    def play(self, function: Callable[..., Any]) -> "Placed":
        items = [_item(number) for number in range(ITEMS)]
        known = {id(item): number for number, item in enumerate(items)}
        held: dict[int, int] = {}

        def hold(shelf: Shelf, item: object) -> None:
            server = next((number for number, one in enumerate(shelves) if one is shelf), None)
            if server is None:
                raise IllegalMoveError("There is no such server. Use the servers that the function gets.")
            if id(item) not in known:
                got = "another item" if isinstance(item, TableItem) else repr(item)
                raise IllegalMoveError(f"Expected an item of this play, from items; got {got}.")
            number = known[id(item)]
            if number in held:
                raise IllegalMoveError(f"Item {number} is on server {held[number]} already. Place every item once.")
            if list(held.values()).count(server) == ROOM:
                raise IllegalMoveError(f"Server {server} is full: it holds {ROOM} items. Choose another server.")
            held[number] = server

        shelves = tuple(Shelf(number, hold) for number in range(SERVERS))
        function(list(items), list(shelves))
        if len(held) < ITEMS:
            lacking = next(number for number in range(ITEMS) if number not in held)
            raise IllegalMoveError(
                f"{ITEMS - len(held)} items are on no server, the first of them item {lacking}. Place every item."
            )
        loads = [
            [sum(clicks_on(item)[hour] for item, at in held.items() if at == server) for server in range(SERVERS)]
            for hour in range(HOURS)
        ]
        return Placed(self, sum(map(max, loads)), tuple(map(tuple, loads)), tuple(sorted(held.items())))


def _item(number: int) -> TableItem:
    one = object.__new__(TableItem)
    object.__setattr__(one, "number", number)
    object.__setattr__(one, "clicks", clicks_on(number))
    return one


@dataclass(frozen=True, repr=False)
class Placed(Played):
    """A placement, and each server's clicks in each hour."""

    loads: tuple[tuple[int, ...], ...]
    held: tuple[tuple[int, int], ...]

    @property
    def words(self) -> str:
        even = sum(map(sum, self.loads)) / SERVERS
        return f"If all servers were equally busy in every hour, the score would be {even:g}."

    def text(self) -> str:
        """A bar for each server in each hour."""
        most, rows = max(map(max, self.loads)), []
        for hour, loads in enumerate(self.loads):
            for server, load in enumerate(loads):
                busiest = "  busiest" if load == max(loads) else ""
                rows.append(
                    f"{f'hour {hour}' if not server else '':7} server {server} {load:5} "
                    f"{'█' * round(40 * load / most)}{busiest}"
                )
        for server in range(SERVERS):
            rows.append(f"server {server} holds {' '.join(str(item) for item, at in self.held if at == server)}")
        return "\n".join(rows)

    def drawing(self, width: float) -> "Drawing":
        from minips.lab.puzzles.pictures import draw_loads

        return draw_loads(self.loads, width)
