"""The base of the views: a picture that a JavaScript module draws and moves, with a still and a sentence beside it.

A view NAME consists of ``common.js`` and ``NAME.js`` in this folder, joined into one ES module: plain functions, of
which ``render({ model, el })`` draws the trait ``data`` of the model in the element. ``common.css`` and, if it exists,
``NAME.css`` are its style sheet. Python computes the data, so tests need no browser.

In a notebook, anywidget carries the module to the page. Where it is not installed, the still stands alone.
"""

import html
import json
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ipywidgets
import traitlets
from IPython.display import publish_display_data

from minips.lab.style import FIGURE

FOLDER = Path(__file__).parent
MISSING = 'This picture moves if anywidget is installed: pip install "minips[lab]".'
"""The sentence under a still whose view cannot move."""

_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; background: light-dark(#ffffff, #111418); font: 13px/1.4 system-ui, sans-serif }}
{css}
</style>
</head>
<body>
<main><noscript>{still}</noscript></main>
<script type="application/json" id="state">{state}</script>
<script type="module">
{esm}
const state = JSON.parse(document.getElementById("state").textContent);
show({{ model: standIn(state), el: document.querySelector("main") }});
</script>
</body>
</html>
"""


def format_seconds(seconds: float | None) -> str:
    """Return seconds in words, with three digits; "–" for None. ``formatSeconds`` in ``common.js`` says the same.

    >>> format_seconds(0.2814), format_seconds(0.9996), format_seconds(None)
    ('281 ms', '1 s', '–')
    """
    return _in_units(seconds, _SECONDS)


def format_bytes(nbytes: float | None) -> str:
    """Return bytes in words, with three digits; "–" for None. ``formatBytes`` in ``common.js`` says the same.

    >>> format_bytes(304), format_bytes(2_680), format_bytes(2_100_000)
    ('304 B', '2.68 kB', '2.1 MB')
    """
    return _in_units(nbytes, _BYTES)


def _in_units(value: float | None, units: tuple[tuple[str, float], ...]) -> str:
    if value is None:
        return "–"
    rounded = _round(value)
    default = next((unit, size) for unit, size in units if size == 1)
    unit, size = next((one for one in units if rounded >= one[1]), default if rounded == 0 else units[-1])
    figure = _round(rounded / size)
    return f"{figure:.0f} {unit}" if figure >= 1000 else f"{figure:g} {unit}"


def _round(value: float) -> float:
    """Return the value with three digits."""
    return float(_DIGITS.create_decimal_from_float(float(value)))


@cache
def module_text(name: str) -> str:
    """Return the ES module of a view: ``common.js``, its own file, and the exports of all functions except ``render``,
    by whose export anywidget recognizes an older kind of module.
    """
    source = "\n".join((FOLDER / f"{part}.js").read_text(encoding="utf-8") for part in ("common", name))
    functions = re.findall(r"^(?:async )?function ((?!render\b)\w+)", source, re.MULTILINE)
    return f"{source}\nexport {{ {', '.join(functions)} }};\nexport default {{ render: show }};\n"


@cache
def style_text(name: str) -> str:
    """Return the style sheet of a view: ``common.css`` and, if it exists, its own file."""
    files = [FOLDER / f"{part}.css" for part in ("common", name)]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())


def can_move() -> bool:
    """Return True if anywidget, which carries the modules to the page, is installed."""
    return find_spec("anywidget") is not None


@cache
def widget_class(name: str) -> type[Any]:
    """Return the class of a view's widgets."""
    import anywidget

    contents = {
        "_esm": module_text(name),
        "_css": style_text(name),
        "data": traitlets.Dict().tag(sync=True),
        "sentence": traitlets.Unicode().tag(sync=True),
        "asked": traitlets.Dict().tag(sync=True),
        "mark": traitlets.Unicode(help="names the still beside it").tag(sync=True),
        "__module__": __name__,
        "__doc__": f"The widget of the view {name!r}.",
    }
    return type(f"{name.capitalize()}Widget", (anywidget.AnyWidget,), contents)


class View:
    """A picture that moves, made from a view's ``name``, ``data`` for JSON, a ``still`` (SVG text) and a ``sentence``.

    A notebook shows the moving picture. Readers without a kernel see the still and the sentence, which are an output of
    their own: a page that can move the picture hides them. ``panel`` is a widget for boxes of widgets. Without
    anywidget it contains the still and the sentence.
    """

    def __init__(self, name: str, data: Mapping[str, Any], still: str, sentence: str) -> None:
        self.name = name
        self._data, self._still, self._sentence = dict(data), still, sentence
        self.moves = can_move()
        """Whether the picture can move: True if anywidget is installed."""
        self.panel: Any = widget_class(name)() if self.moves else ipywidgets.HTML()
        self._send()

    @property
    def data(self) -> dict[str, Any]:
        """The data that the page draws. Assign other data to redraw it; changes inside the dict are not seen."""
        return self._data

    @data.setter
    def data(self, data: Mapping[str, Any]) -> None:
        self.show(data=data)

    @property
    def still(self) -> str:
        """The picture without movement, as SVG text."""
        return self._still

    @still.setter
    def still(self, still: str) -> None:
        self.show(still=still)

    @property
    def sentence(self) -> str:
        """The picture in words."""
        return self._sentence

    @sentence.setter
    def sentence(self, sentence: str) -> None:
        self.show(sentence=sentence)

    def show(
        self, data: Mapping[str, Any] | None = None, still: str | None = None, sentence: str | None = None
    ) -> None:
        """Show other data, another still or another sentence, in one message to the page."""
        self._data = self._data if data is None else dict(data)
        self._still = self._still if still is None else still
        self._sentence = self._sentence if sentence is None else sentence
        self._send()

    def on_asked(self, callback: Callable[[dict[str, Any]], None]) -> None:
        """Call ``callback`` with each question of the page, a dict. The page asks with ``ask`` of ``common.js``."""
        if self.moves:
            self.panel.observe(lambda change: callback(change["new"]), "asked")

    def html(self, title: str = "minips") -> str:
        """Return a page that shows the view without a kernel and without a network."""
        state = json.dumps(
            {"mark": "", "data": self._data, "sentence": self._sentence}, separators=(",", ":"), allow_nan=False
        )
        return _PAGE.format(
            title=html.escape(title),
            css=style_text(self.name),
            still=self._still,
            state=state.replace("<", "\\u003c"),
            esm=module_text(self.name),
        )

    def __repr__(self) -> str:
        return self._sentence

    def _repr_html_(self) -> str:
        note = "" if self.moves else f"<p>{html.escape(MISSING)}</p>"
        words = f"{self._still}<p>{html.escape(self._sentence)}</p>{note}"
        return f"{FIGURE}<div class='minips-still' data-view='{self._mark()}'>{words}</div>"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        still = {"text/html": self._repr_html_(), "text/plain": repr(self)}
        if not self.moves:
            return still, {}
        moving, metadata = self.panel._repr_mimebundle_(**kwargs)
        return {**moving, **still}, metadata

    def _ipython_display_(self) -> None:
        """Show the still and the moving picture as two outputs: of one output, an exported page shows one form only,
        the one that needs a network.
        """
        every, metadata = self._repr_mimebundle_()
        still = {kind: every.pop(kind) for kind in ("text/html", "text/plain")}
        publish_display_data(still)  # type: ignore[no-untyped-call]
        if self.moves:
            publish_display_data({**every, "text/plain": ""}, metadata)  # type: ignore[no-untyped-call]

    def _mark(self) -> str:
        return sha256(f"{self._still}{self._sentence}".encode()).hexdigest()[:16]

    def _send(self) -> None:
        if self.moves:
            with self.panel.hold_sync():
                self.panel.data, self.panel.sentence, self.panel.mark = self._data, self._sentence, self._mark()
        else:
            self.panel.value = self._repr_html_()
