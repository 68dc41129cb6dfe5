"""Pictures as output of a notebook's cell: with a text for readers who cannot see them, and right in a dark page.

A page shows ``<img alt="…">``, which JupyterLab's dark theme inverts as it does a panel's pictures. On pages of other
programs, its ground is white. An unattended run shows a PNG on white with the same text, for readers of the saved
notebook.
"""

import base64
import html
import io
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def follow_theme() -> None:
    """In a notebook, show matplotlib's figures by `show_figure` from now on."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        shown: Any = shell.display_formatter.ipython_display_formatter
        shown.for_type_by_name("matplotlib.figure", "Figure", show_figure)


def show_figure(figure: "Figure") -> None:
    """Show a figure, described by `describe`. NotImplementedError, by which IPython shows it itself, if the notebook
    does not show figures as PNG.
    """
    from IPython.core.getipython import get_ipython
    from matplotlib.colors import to_hex

    shell: Any = get_ipython()
    formats = shell.display_formatter.formatters["image/png"]
    if not any(kind in formats.type_printers for kind in type(figure).mro()):
        raise NotImplementedError
    on_white = to_hex(figure.get_facecolor()) == "#ffffff"
    picture = io.BytesIO()
    figure.savefig(picture, format="png", bbox_inches="tight", transparent=on_white and not unattended())
    show(picture.getvalue(), describe(figure), repr(figure), on_white)


class Shown:
    """A PNG with its text; ``plain`` replaces both in a terminal. A dark theme inverts a picture that ``follows`` it,
    whose ground is white or transparent. On a narrow page, the PNG ``narrow``, if there is one, replaces it.
    """

    def __init__(self, png: bytes, words: str, plain: str, follows: bool = True, narrow: bytes = b"") -> None:
        self.png, self.words, self.plain, self.follows, self.narrow = png, words, plain, follows, narrow

    def __repr__(self) -> str:
        return self.plain

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, str], dict[str, Any]]:
        from minips.lab.style import FIGURE

        code = base64.b64encode(self.png).decode()
        if unattended():
            return {"image/png": code, "text/plain": self.plain}, {"image/png": {"alt": self.words}}
        picture = self._image(code)
        if self.narrow:
            narrow = self._image(base64.b64encode(self.narrow).decode())
            picture = f"<div class='minips-forms'>{picture}{narrow}</div>"
        return {"text/html": f"{FIGURE}{picture}", "text/plain": self.plain}, {}

    def _image(self, code: str) -> str:
        look = " class='minips-figure' style='background: white'" if self.follows else ""
        return f"<img{look} alt='{html.escape(self.words, quote=True)}' src='data:image/png;base64,{code}'>"


def show(png: bytes, words: str, plain: str, follows: bool = True) -> None:
    """Show a picture, described in `Shown`, as output of a cell."""
    from IPython.display import display

    display(Shown(png, words, plain, follows))  # type: ignore[no-untyped-call]


def unattended() -> bool:
    """True if nobody reads the page while it runs, as in `minips.lab.course.state.autoplay`."""
    from minips.lab.course.state import autoplay

    return autoplay()


def describe(figure: "Figure") -> str:
    """Return what a figure shows: its label (``figure.set_label``) or else, of each of its axes, the title, the names
    of both axes, the series and the rows.
    """
    parts = [figure.get_suptitle(), *map(_describe, figure.axes)]
    return str(figure.get_label()) or ". ".join(filter(None, parts)) or "a picture without text"


def _describe(ax: "Axes") -> str:
    x, y, legend = ax.get_xlabel(), ax.get_ylabel(), ax.get_legend()
    series = [text.get_text() for text in legend.get_texts()] if legend else []
    ticks = [tick.get_text() for tick in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    rows = [name for name in ticks if re.search(r"[^\W\d_]", name) and "$" not in name]
    parts = [ax.get_title(), f"{y} against {x}" if x and y else x or y, ", ".join(series), ", ".join(rows)]
    return ": ".join(" ".join(part.split()) for part in parts if part)
