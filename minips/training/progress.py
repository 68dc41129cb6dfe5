"""The progress of long calls: bars in a terminal, or a line below the running cell of a notebook.

A long call says what it waits for as a `Wait`. Calls are nested, since tuning trains and predicting calibrates: the
outermost call shows the waits of all calls inside it, and each of them only says its own.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Caller = Literal["terminal", "cell", "thread", "kernel"]
"""The caller of a long call: a program in a terminal; a cell that a page runs in JupyterLab or Jupyter Notebook, or a
thread that such a cell has started; other code in a kernel, such as a widget's callback, or a cell of another program.
"""


class Wait(NamedTuple):
    """One state of a call: its phase, the share that is done (None: not known), and details that change often."""

    phase: str
    share: float | None = None
    detail: str = ""


class Level:
    """The wait of one call, since when it has been in this phase."""

    def __init__(self, wait: Wait) -> None:
        self.wait, self.since = wait, time.monotonic()

    def show(self, wait: Wait) -> None:
        """Take a new wait; another phase begins now."""
        if wait.phase != self.wait.phase:
            self.since = time.monotonic()
        self.wait = wait


class Chain(list[Level]):
    """The levels of nested calls, the outermost first. ``shown`` is False if nobody sees them."""

    shown = False


class _Calls(threading.local):
    chain: Chain | None = None
    """The chain of the calls that this thread is in."""


_calls = _Calls()


def autoplay() -> bool:
    """True in unattended runs (``MINIPS_AUTOPLAY=1``): a notebook shows no progress, predictions answer themselves, and
    nothing is noted.
    """
    return os.environ.get("MINIPS_AUTOPLAY") == "1"


def place(progress: bool | None, caller: Caller, unattended: bool = False) -> Literal["page", "output", "bars", ""]:
    """Where an outermost call shows its waits: in the page, in an output, on bars, or nowhere. None means: in a page.

    >>> [place(progress, "cell") for progress in (None, True, False)], place(None, "terminal")
    (['page', 'page', ''], '')
    """
    if progress is False or (unattended and caller != "terminal"):
        return ""
    if caller == "cell" or (progress and caller == "thread"):
        return "page"
    return "" if not progress else "bars" if caller == "terminal" else "output"


def words(chain: Chain, now: float) -> tuple[str, str, float | None]:
    """The waits of all calls, for one line: the phases, all else, and the share of the outermost call. Its seconds are
    those of the outermost phase.

    >>> level = Level(Wait("starting 5 processes"))
    >>> chain = Chain([level])
    >>> words(chain, level.since + 1.25)
    ('starting 5 processes', ' · 1.2 s', None)
    >>> level.show(Wait("training", 0.185, "step 37 of 200"))
    >>> words(chain, level.since + 75)
    ('training', ' · step 37 of 200 · 1 min 15 s', 0.185)
    """
    levels = [*chain]
    outer, inner = levels[0], levels[-1].wait
    details = [level.wait.detail for level in levels]
    if inner.share is not None and not inner.detail:
        details.append(f"{inner.share:.0%}")
    rest = [*filter(None, details), format_seconds(now - outer.since)]
    phases = filter(None, (level.wait.phase for level in levels))
    return " · ".join(phases), " · " + " · ".join(rest), outer.wait.share


def format_seconds(seconds: float) -> str:
    """Seconds that pass, as text."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes:
        return f"{minutes} min {rest} s"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def bars(chain: Chain, now: float) -> "Table":
    """A bar for each call, for a terminal. It moves back and forth if the share is not known."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    shown = Table.grid(padding=(0, 1, 0, 0), expand=True)
    for width in (20, 4, 10):
        shown.add_column(justify="right", width=width)
    shown.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for level in [*chain]:
        phase, share, detail = level.wait
        bar = ProgressBar(None if share is None else 1.0, share or 0.0, width=20)
        percent = "" if share is None else f"{share:.0%}"
        text = " · ".join(filter(None, (phase, detail)))
        shown.add_row(bar, Text(percent), Text(format_seconds(now - level.since)), Text(text))
    return shown


@contextmanager
def showing(
    progress: bool | Callable[..., None] | None,
    read: Callable[..., Wait] = Wait,
    console: "Console | None" = None,
    *,
    first: Wait = Wait(""),  # noqa: B008, it cannot change
) -> Iterator[Callable[..., None]]:
    """``progress`` if it is a function. Otherwise a function that passes its arguments to ``read`` and shows the wait.

    The ``first`` wait stands until the first arguments come. True shows the waits; None, the default of long calls,
    shows them in a notebook's cell, or if an outer call shows its own. If a call does not show its waits, the calls
    inside it do not by default.
    """
    if not (isinstance(progress, bool | None) or callable(progress)):
        raise TypeError(f"progress takes True, False, None, or a function; got {progress!r}.")
    before = _calls.chain
    joined = before is not None and (progress is None or (progress is True and before.shown))
    chain = before if before is not None and joined else Chain()
    level = Level(first)
    chain.append(level)
    screen = nullcontext() if joined or callable(progress) else _screen(progress, chain, console)
    chain.shown = chain.shown or not isinstance(screen, nullcontext)
    _calls.chain = chain
    try:
        with screen:
            yield progress if callable(progress) else lambda *news: level.show(read(*news))
    finally:
        _calls.chain = before
        if joined:
            chain.remove(level)


def _screen(progress: bool | None, chain: Chain, console: "Console | None") -> AbstractContextManager[Any]:
    """Return what shows the chain while the call lasts; a null context if nothing does."""
    caller: Caller = "terminal"
    notebook = import_module("minips.lab.waits") if "ipykernel" in sys.modules else None  # only the lab shows widgets
    if notebook:
        caller = notebook.caller()
    there = place(progress, caller, autoplay())
    if notebook and there in ("page", "output"):
        return notebook.line(lambda: words(chain, time.monotonic()), there == "page")  # type: ignore[no-any-return]
    return _live(chain, console) if there == "bars" else nullcontext()


def _live(chain: Chain, console: "Console | None") -> AbstractContextManager[Any]:
    """Return bars that disappear when the call is over."""
    from rich.console import Console
    from rich.live import Live

    console = console or Console(stderr=True)
    if not console.is_interactive:
        return nullcontext()  # rich would write an empty line to a pipe
    return Live(
        get_renderable=lambda: bars(chain, time.monotonic()),
        console=console,
        transient=True,
        refresh_per_second=10,
        redirect_stdout=bool(sys.stdout and sys.stdout.isatty()),
    )
