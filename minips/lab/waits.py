"""The line below a running cell that tells what a long call waits for.

It is a widget that is never displayed: its JavaScript puts the line into the page and takes it away again, so that the
notebook has no output of it. Programs other than JupyterLab and Jupyter Notebook show an output, if they are asked to.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from IPython import get_ipython
from IPython.display import DisplayHandle

from minips.training.progress import Caller

QUIET_S = 0.3
"""The seconds that a call takes before the line appears."""
TICK_S = 0.2
"""The seconds between two changes of the line."""
LEAVING_S = 2.0
"""The most seconds that a call waits for its line to be taken away."""

Words = tuple[str, str, float | None]
"""The phase, the other words, and the share that is done."""


def request() -> Mapping[str, Any] | None:
    """Return the message that the kernel works on; None outside a kernel."""
    get_parent = getattr(getattr(get_ipython(), "kernel", None), "get_parent", None)
    return get_parent and (get_parent("shell") or {})


def caller_of(message: Mapping[str, Any] | None, in_main_thread: bool) -> Caller:
    """Return the caller of a long call that is made while the kernel works on this message.

    A page of JupyterLab names the cell by an id that is valid in a notebook file. Clients without a page do not name
    it, and an editor names it in its own way.
    """
    if message is None:
        return "terminal"
    kind = message.get("header", {}).get("msg_type")
    cell = message.get("metadata", {}).get("cellId")
    if kind != "execute_request" or not re.fullmatch(r"[\w-]{1,64}", str(cell or "")) or not find_spec("anywidget"):
        return "kernel"
    return "cell" if in_main_thread else "thread"


def caller() -> Caller:
    """Return the caller of the long call that asks."""
    return caller_of(request(), threading.current_thread() is threading.main_thread())


@contextmanager
def line(read: Callable[[], Words], in_page: bool) -> Iterator[None]:
    """Show the line until the block ends: in the page, or else as an output, which is empty afterwards. ``read`` is
    called in another thread.
    """
    over, code = threading.Event(), (request() or {}).get("content", {}).get("code", "")
    shown = partial(_in_page, code) if in_page else _as_output
    thread = threading.Thread(target=_show, args=(read, shown, over), name="minips-wait", daemon=True)
    try:
        thread.start()
        yield
    finally:
        over.set()
        thread.join(LEAVING_S)


Shown = Callable[[Words], object]


def _show(read: Callable[[], Words], shown: Callable[[], AbstractContextManager[Shown]], over: threading.Event) -> None:
    if over.wait(QUIET_S):
        return
    with suppress(Exception), shown() as show:  # a broken library of widgets must not disturb the call
        show(read())
        while not over.wait(TICK_S):
            show(read())


@contextmanager
def _in_page(code: str) -> Iterator[Shown]:
    widget = _widget_class()(code=code)
    try:
        yield partial(setattr, widget, "wait")
    finally:
        widget.layout.close()
        widget.close()


@contextmanager
def _as_output() -> Iterator[Shown]:
    handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]
    handle.display({"text/plain": ""}, raw=True)
    try:
        yield lambda words: handle.update({"text/plain": "".join(words[:2])}, raw=True)
    finally:
        handle.update({"text/plain": ""}, raw=True)


@cache
def _widget_class() -> type[Any]:
    """Return the class of the line's widget. Importing anywidget takes a while, so it waits until it is needed."""
    import anywidget
    import traitlets

    here = Path(__file__)
    contents = {
        "_esm": here.with_suffix(".js").read_text(encoding="utf-8"),
        "_css": here.with_suffix(".css").read_text(encoding="utf-8"),
        "code": traitlets.Unicode().tag(sync=True),
        "wait": traitlets.Tuple(("", "", None)).tag(sync=True),
        "__module__": __name__,
    }
    return type("WaitWidget", (anywidget.AnyWidget,), contents)
