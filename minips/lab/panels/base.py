"""The base of the lab's panels: a picture with a text, work in a thread, and a small panel that combines both.

`Panel` documents what your own panel must define. It adds the controls, the thread, the errors, and a still picture for
readers without a kernel. `GradientShards` is an example.

Work runs in another thread than the notebook's cells, so it only changes traits, and draws charts of its own or with
matplotlib's `Figure`, never with pyplot. An error is shown as a sentence in the panel, which stays usable.
"""

import asyncio
import base64
import html
import io
import os
import signal
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import comm
import ipywidgets
from IPython.core.getipython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure
from traitlets import Unicode

from minips.lab import pictures
from minips.lab.charts import NARROW_PX, WIDE_PX, Drawing, paint, svg
from minips.lab.controls import Form, close, help_html, sentence
from minips.lab.course import state
from minips.lab.style import DPI, NARROW_IN, STYLE, WIDE_IN
from minips.lab.texts import status
from minips.lab.views.base import can_move, widget_class
from minips.stage import Value

STATIC_S = 60.0
"""The most seconds that a still picture waits for unfinished work."""

KEPT = 256
"""The most findings that a panel keeps."""
_CHILD, _ALIVE = ".jp-OutputArea-child", ".minips-cover:not(.jupyter-widgets-disconnected)"
COVER = f"""<style>
{_CHILD}:has(.minips-cover), {_CHILD}:has(+ {_CHILD} {_ALIVE}), {_CHILD}:has(+ {_CHILD} + {_CHILD} {_ALIVE}),
.jp-CodeCell:has({_CHILD}:nth-last-child(-n + 2) {_ALIVE}) > .jp-Cell-inputWrapper {{display: none}}
</style>"""
"""The style of a widget that hides the two outputs before it while its kernel is running, and the code, too, unless it
shows something else afterwards. (JupyterLab's last child of outputs is a button to collapse them.)
"""

_cells: dict[str, list[str]] = {}
"""Maps a panel's name to the cells that have made a panel of this name."""

_jobs: "weakref.WeakValueDictionary[str, Work]" = weakref.WeakValueDictionary()
"""Maps a name to the last job with this name."""

Size = tuple[float, float]
"""Width and height of a figure, in inches."""
Asked = TypeVar("Asked", bound=Value)
Found = TypeVar("Found")


def _cell() -> tuple[str, str]:
    """Return the notebook's running cell, and the number of this run; empty if unknown."""
    parent: Any = getattr(get_ipython(), "get_parent", dict)()
    return parent.get("metadata", {}).get("cellId", ""), parent.get("header", {}).get("msg_id", "")


def numbered_name(name: str) -> str:
    """Return a panel's name, numbered if another cell has such a panel; a cell that runs again keeps its number."""
    cell, _ = _cell()
    cells = _cells.setdefault(name, [])
    if cell not in cells:
        cells.append(cell)
    number = cells.index(cell) + 1
    return f"{name} {number}".strip() if number > 1 else name


def png(draw: Callable[[Figure], Any], size: Size, alpha: float = 1.0) -> bytes:
    """Return the picture that ``draw`` draws, on a background with this ``alpha``; safe in any thread."""
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    figure.patch.set_alpha(alpha)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


class Picture:
    """A picture with a text, which screen readers say when it changes; invisible before the first one."""

    def __init__(self) -> None:
        self.png = b""
        """The picture shown, in its wide form; empty if it is a drawing."""
        self.image = ipywidgets.HTML(layout={"margin": "0"})
        self.words = ipywidgets.HTML()
        self.panel = ipywidgets.VBox([self.image, self.words])

    def show(self, words: str, draw: Callable[[Figure], Any], *sizes: Size) -> None:
        """Show another picture and text. Two ``sizes``: the first is for wide pages, the second for narrow ones."""
        pictures = [png(draw, size, alpha=0) for size in sizes]  # drawn on the page's background colour
        alt = html.escape(words, quote=True)
        self.png = pictures[0]
        self._show(
            words,
            [f"<img alt='{alt}' src='data:image/png;base64,{base64.b64encode(one).decode()}'>" for one in pictures],
        )

    def show_drawings(self, words: str, *drawings: Drawing) -> None:
        """Show a drawing and a text. Two ``drawings``: the first is for wide pages, the second for narrow ones."""
        self.png = b""
        self._show(words, [svg(drawing, words) for drawing in drawings])

    def say(self, words: str) -> None:
        """Show text without a picture."""
        self.png, self.image.value = b"", ""
        self.words.value = html.escape(words)

    def _show(self, words: str, shown: Sequence[str]) -> None:
        forms = (" class='minips-wide'", " class='minips-narrow'") if len(shown) > 1 else ("",)
        with_form = (one.replace(" ", f"{form} ", 1) for form, one in zip(forms, shown, strict=True))
        self.image.value = f"<div class='minips-picture'>{''.join(with_form)}</div>"
        self.words.value = status(words)


def show_still(title: str, draw: Callable[[Figure], Any], size: Size, words: str = "") -> None:
    """Show a picture as output of a cell, with ``words``, or else the title, for readers who cannot see it."""
    pictures.show(png(draw, size, alpha=float(pictures.unattended())), words or title, f"<picture: {title}>")


def cover() -> None:
    """Hide the two outputs before this one, a still picture and its text, from a learner whose kernel is running: the
    panel itself is there. An exported page shows them.
    """
    shell: Any = get_ipython()
    if getattr(shell, "kernel", None) is not None and not state.autoplay():
        display({**ipywidgets.HTML(COVER).add_class("minips-cover")._repr_mimebundle_(), "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]


class Work:
    """Runs work in a thread, one piece at a time, for a ``panel``, a widget.

    The work checks ``stopping`` now and then. Shared state is read and changed under ``lock``. A new one replaces an
    earlier one with the same name, whose work is stopped; if its cell was run again, its widgets are closed. In a
    notebook, the ■ button stops the work too.
    """

    def __init__(self, name: str, panel: Any) -> None:
        self.panel = panel
        self.closed = False
        """Whether its widgets are closed, since its cell was run again."""
        self._made = _cell()
        if before := _jobs.get(name):
            before.stop()
            if self._made[0] and before._made[1] != self._made[1]:  # two jobs from the same run of a cell can coexist
                before.close()
        _jobs[name] = self
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._next: Callable[[], None] | None = None

    def began(self) -> None:
        """Show that work is under way."""

    def ended(self) -> None:
        """Show that no work is left."""

    def say(self, words: str) -> None:
        """Show a line of text."""

    def fail(self, error: BaseException | str) -> None:
        """Show an error's sentence."""

    def close(self) -> None:
        """Close the widgets, also those that the panel does not show; code can still use the job."""
        self.closed = True
        close(self.panel)

    @property
    def busy(self) -> bool:
        """True if work is unfinished."""
        with self.lock:
            return self._thread is not None

    @property
    def wanted(self) -> bool:
        """True if unfinished work should end: it was stopped, or other work waits for it."""
        return self.stopping.is_set() or self._next is not None

    def start(self, work: Callable[[], None]) -> None:
        """Call ``work`` in a thread or, if no thread can start (in a browser's Python), immediately; errors become
        sentences. If earlier work is unfinished, ``work`` waits for it, and replaces any other work that waits.
        """
        with self.lock:
            if self._thread is not None:
                self._next = work
                return
            self.stopping.clear()
            self.began()
            self._thread = threading.Thread(target=self._work, args=(work,), name="minips-lab", daemon=True)
            with suppress(RuntimeError):
                self._thread.start()
                _stop_on_interrupt()
                _stop_on_reload()
                return
        self._work(work)

    def stop(self) -> None:
        """Ask unfinished work to end; its results so far are kept."""
        with self.lock:
            self._next = None
            if self._thread is not None:
                self.stopping.set()
                self.say("Stopping …")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the work's end. True once it has ended, False if that takes longer than ``timeout`` seconds."""
        with self.lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return not self.busy

    def _work(self, work: Callable[[], None]) -> None:
        following: Callable[[], None] | None = work
        while following is not None:
            try:
                following()
            except Exception as error:
                self.fail(error)
            with self.lock:
                following, self._next = self._next, None
                self.stopping.clear()  # it was meant for the work that has ended: `stop` leaves no work waiting
                if following is None:
                    self._thread = None
                    self.ended()


class Bar(ipywidgets.HTML):  # type: ignore[misc]
    """A progress bar with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(layout={"width": "140px"})
        self._name = name
        self.show(0, 1)

    def show(self, done: int, of: int) -> None:
        """Show how much is done."""
        self.done, self.of = done, of
        self.value = f"<progress aria-label='{html.escape(self._name)}' value='{done}' max='{of}'></progress>"


class Status(ipywidgets.HTML):  # type: ignore[misc]
    """A line of text, which screen readers announce when it changes."""

    value = Unicode(help="the text, as HTML").tag(
        sync=True, to_json=lambda text, widget: f"<div role='status' aria-live='polite'>{text}</div>"
    )


class Job(Work):
    """Work with controls: Run, Stop, a progress bar and a message. Stop is not disabled: it may have the focus. The
    ``page`` is an invisible widget, which describes the controls to screen readers, moves the focus from Stop back to
    Run, and copies code; None if anywidget is not installed.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, ipywidgets.VBox())
        self.panel.add_class("minips-panel")
        self.run_button = ipywidgets.Button(
            description=f"Run {name}".strip(),
            tooltip="start with the controls' values",
            button_style="primary",
            layout={"width": "auto"},
        )
        self.stop_button = ipywidgets.Button(
            description=f"Stop {name}".strip(),
            tooltip="end early, and keep the results so far",
            layout={"width": "auto"},
        )
        self.run_button.add_class("minips-run")
        self.stop_button.add_class("minips-stop")
        self.bar = Bar(f"Progress {name}".strip())
        self.message = Status()
        self.page = widget_class("panel")(layout={"display": "none"}) if can_move() else None
        self._failure = ""
        self.stop_button.on_click(lambda button: self.stop())

    def began(self) -> None:
        self.run_button.disabled, self.stop_button.button_style = True, "danger"

    def ended(self) -> None:
        self.run_button.disabled, self.stop_button.button_style = False, ""

    def close(self) -> None:
        super().close()
        close(self.run_button, self.stop_button, self.bar, *self.own())

    def own(self) -> list[Any]:
        """Return the widgets that each panel contains without showing them."""
        return [self.page] if self.page else []

    def on_run(self, run: Callable[[], None], other: Any = None) -> None:
        """Call ``run`` when Run, or the button ``other``, is pressed. Then Stop gets the focus, which they lose."""

        def pressed(button: Any) -> None:
            run()
            if self.busy:
                self.stop_button.focus()

        (other or self.run_button).on_click(pressed)
        if other:
            ipywidgets.dlink((self.run_button, "disabled"), (other, "disabled"))

    def progress(self, done: int, of: int) -> None:
        """Move the bar."""
        self.bar.show(done, of)

    def say(self, words: str) -> None:
        """Show a line of text under the buttons."""
        self.message.value = html.escape(words)

    def fail(self, error: BaseException | str) -> None:
        """Show an error's sentence under the buttons."""
        self.message.value = self._failure = sentence(str(error) or type(error).__name__)

    def forget_failure(self) -> None:
        """Remove an error's sentence, since its cause has been changed."""
        if self.message.value == self._failure:
            self.message.value = self._failure = ""


class Interactive(ABC):
    """An object with a ``panel``, which a notebook shows, and a `Work`, which does its work."""

    def __init__(self, job: Work) -> None:
        self.job: Any = job
        self.panel = job.panel
        _refresh_after_cells(self)

    def stop(self) -> None:
        """End unfinished work; its results so far are kept."""
        self.job.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the work's end. True once it has ended, False if that takes longer than ``timeout`` seconds."""
        return bool(self.job.wait(timeout))

    @abstractmethod
    def refresh(self) -> None:
        """Offer stages registered since the last call; a notebook calls this after each cell."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: it needs a running kernel>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Mapping[str, Any]:
        return {**self.panel._repr_mimebundle_(**kwargs), "text/plain": repr(self)}


class Panel(Interactive, Generic[Asked, Found]):
    """Subclass this with ``title``, ``asks``, `find`, `words`, and `chart` or `draw`.

    ``title`` names the panel in a few words; it begins the name of each control. ``asks`` is a frozen dataclass of
    ``option`` fields, with a control for each; a field whose type is a kind of stage becomes a dropdown of the
    registered stages, including the learner's, with the selected stage's fields under it. ``labels`` maps a field to
    its name on the page, if that differs. A number with a range has a slider. ``instant`` panels call `find` whenever a
    control changes; the others have Run and Stop.

    If `find` ``repeats``, finding the same for the same values, then findings are kept until the notebook runs a cell.
    While a learner moves a slider, those at its other stops are computed, too.

    From code: ``panel.controls["workers"].value = 8``, then ``panel.wait()``, then ``panel.found``.
    """

    title: ClassVar[str]
    asks: ClassVar[type[Any]]
    labels: ClassVar[Mapping[str, str]] = {}
    instant: ClassVar[bool] = True
    repeats: ClassVar[bool] = False
    width: ClassVar[float] = WIDE_IN
    heights: ClassVar[tuple[float, float]] = (3.2, 3.2)
    """Inches of the figure of `draw` on a wide page, and on a narrow one."""

    def __init__(self, **asked: Any) -> None:
        name = numbered_name(self.title)
        self.form = Form(name, self.asks(**asked), self._on_change, self.labels, live=self.repeats or not self.instant)
        super().__init__(Job(name[:1].lower() + name[1:]))
        self.picture = Picture()
        self.found: Any = None
        """The last finding; None before the first."""
        self._known: dict[Any, Any] = {}
        self.help = ipywidgets.HTML()
        self.job.on_run(self.run)
        buttons = [] if self.instant else [self.job.run_button, self.job.stop_button, self.job.bar]
        self.panel.children = [
            ipywidgets.HTML(f"{STYLE}<b class='minips-title'>{html.escape(name)}</b>"),
            self.form.panel,
            ipywidgets.HBox(buttons, layout={"flex_flow": "row wrap", "align_items": "center"}),
            self.job.message,
            self.picture.panel,
            self.help,
            *self.job.own(),
        ]
        self._explain()

    @abstractmethod
    def find(self, asked: Asked) -> Found:
        """Compute the finding, in a thread: check ``self.job.stopping``, and call ``self.job.progress``."""

    @abstractmethod
    def words(self, found: Found) -> str:
        """Describe the picture in a line or two, for readers who cannot see it."""

    def chart(self, found: Found, width: float) -> Drawing | None:
        """Return the finding as a drawing of this width in pixels, or None if only `draw` can draw it."""
        return None

    def draw(self, found: Found, figure: Figure) -> None:
        """Draw the finding in an empty figure."""
        drawing = self.chart(found, WIDE_PX)
        if drawing is None:
            raise NotImplementedError(f"{type(self).__name__} has neither a method chart nor a method draw.")
        paint(drawing, figure)

    @property
    def controls(self) -> dict[str, Any]:
        """The widgets by field name; a field of a selected stage is ``"quantizer.fraction"``."""
        return self.form.controls

    def run(self) -> None:
        """Call `find` in a thread, and show the finding. If `find` is running, call it again after that."""
        self.job.start(self._find)

    def refresh(self) -> None:
        with self.job.lock:
            self._known.clear()  # a cell can change what a learner's stage does
        self.form.refresh()
        self._explain()

    def static(self, line: str | None = None) -> None:
        """Show the current picture and its text as plain output of a cell, for readers without a kernel.

        Calls `find` first if needed. ``line`` can replace a text with measured times, since these differ from run to
        run.
        """
        self.wait(STATIC_S)
        if self.found is None:
            self._find()
        words = line or self.words(self.found)
        show_still(self.title, partial(self.draw, self.found), (self.width, self.heights[0]), words)
        print(words)
        cover()

    def _on_change(self) -> None:
        self.job.forget_failure()
        self._explain()
        if self.instant and not self.form.wrong:
            self.run()

    def _explain(self) -> None:
        self.help.value = help_html(self.form)

    def _find(self) -> None:
        asked = self.form.value()
        found = self._finding(asked)
        with self.job.lock:
            self.found = found
        self._show(found)
        self.job.message.value = ""
        if self.repeats and self.instant:
            self._look_ahead(self.form.other_stops(asked))

    def _finding(self, asked: Any) -> Any:
        """Return what `find` returns, or returned for equal values."""
        if not self.repeats:
            return self.find(asked)
        with self.job.lock:
            if asked in self._known:
                return self._known[asked]
        found = self.find(asked)
        with self.job.lock:
            if not self.job.stopping.is_set():  # then the finding is complete
                self._known[asked] = found
            while len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        return found

    def _look_ahead(self, others: Iterable[Any]) -> None:
        """Compute the findings at the other stops of the slider that was moved, until something else is asked for."""
        for asked in others:
            if self.job.wanted:
                break
            with suppress(Exception):  # its sentence is shown if the learner asks for it
                self._finding(asked)

    def _show(self, found: Found) -> None:
        """Show the finding's picture and its words in the panel."""
        words = self.words(found)
        drawings = [drawn for width in (WIDE_PX, NARROW_PX) if (drawn := self.chart(found, width)) is not None]
        if drawings:
            self.picture.show_drawings(words, *drawings)
            return
        wide, narrow = self.heights
        self.picture.show(words, partial(self.draw, found), (self.width, wide), (NARROW_IN, narrow))

    def _repr_mimebundle_(self, **kwargs: Any) -> Mapping[str, Any]:
        if self.instant and self.found is None:
            try:
                self._find()
            except Exception as error:
                self.job.fail(error)
        return super()._repr_mimebundle_(**kwargs)


def side_by_side(figure: Figure, count: int = 2, *, width_ratios: Sequence[float] | None = None, **shared: Any) -> Any:
    """Return axes side by side or, in a narrow figure, one below another."""
    if figure.get_figwidth() > NARROW_IN:
        return figure.subplots(1, count, width_ratios=width_ratios, squeeze=False, **shared)[0]
    return figure.subplots(count, 1, squeeze=False, **shared)[:, 0]


def _stop_on_interrupt() -> None:
    """Let the ■ button stop the panels' work too: a kernel that runs no cell ignores interrupts."""
    shell: Any = get_ipython()
    if getattr(shell, "kernel", None) is None or threading.current_thread() is not threading.main_thread():
        return

    def stop(number: int, frame: Any) -> None:
        for job in list(_jobs.values()):
            if job.busy:
                job._next = None
                job.stopping.set()

    def install() -> None:  # runs after this message, since the kernel restores its own handler after each message
        signal.signal(signal.SIGINT, stop)

    with suppress(RuntimeError):
        asyncio.get_running_loop().call_soon(install)


@cache
def _stop_on_reload() -> None:
    """Stop a run when a page is loaded again from a saved notebook that does not have its panel."""
    manager: Any = comm.get_comm_manager()
    channel_name = "jupyter.widget.control"  # a page that is loading opens this channel to ask for the widgets' state
    if (before := manager.targets.get(channel_name)) is None:
        return

    def opened(channel: Any, message: Any) -> None:
        before(channel, message)
        for job in list(_jobs.values()):
            if job.busy and not _saved(job.panel):
                job.stop()

    manager.register_target(channel_name, opened)


def _saved(panel: Any) -> bool:
    """Return True if the notebook's file contains the panel, or if that is unknown."""
    try:
        book = Path(os.environ["JPY_SESSION_NAME"]).read_text(encoding="utf-8")
    except (KeyError, OSError, ValueError):
        return True
    return panel.model_id in book


def _refresh_after_cells(panel: Any) -> None:
    """In a notebook, call ``panel.refresh()`` after each cell, until the panel's own cell is run again."""
    shell: Any = get_ipython()
    if shell is None:
        return
    held = weakref.ref(panel)

    def refresh(*result: Any) -> None:
        if (alive := held()) and not alive.job.closed:
            alive.refresh()
        else:
            shell.events.unregister("post_run_cell", refresh)

    shell.events.register("post_run_cell", refresh)
