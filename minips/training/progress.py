"""Progress bars, in a terminal or in a notebook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVarTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

News = TypeVarTuple("News")


def bars(console: "Console | None" = None) -> "Bars":
    """Rich's progress bars in minips' style; they disappear when done."""
    from rich import get_console
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = console or get_console()
    if not (console.is_interactive or console.is_jupyter):
        console = Console(quiet=True)  # rich would write an empty line to a pipe
    percent, text = TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}")
    return Progress(BarColumn(), percent, TimeElapsedColumn(), text, console=console, transient=True)


@contextmanager
def showing(
    progress: bool | Callable[[*News], None],
    read: Callable[[*News], tuple[str, float]],
    console: "Console | None" = None,
) -> Iterator[Callable[[*News], None]]:
    """``progress`` if it is a function. Otherwise a function that passes its arguments to ``read`` and, if ``progress``
    is True, shows the resulting text and share on a bar.
    """
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda *news: None
    else:
        with bars(console) as shown:
            task = shown.add_task("", total=1.0)

            def show(*news: *News) -> None:
                text, share = read(*news)
                shown.update(task, description=text, completed=share)

            yield show
