"""Pictures as output of cells: their colours in both themes, their texts, and the labels of their axes."""

import base64
import io
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import minips as ps
from minips import lab
from minips.lab import pictures, plots
from minips.lab.panels.base import show_still
from minips.lab.style import FIGURE

WHITE, DARK = (1.0, 1.0, 1.0), (0x11 / 255,) * 3
"""The colours of JupyterLab's pages."""
HUES = np.array([[0.213, 0.715, 0.072]] * 3)
TURNED = HUES - (np.eye(3) - HUES)
"""What CSS's ``hue-rotate(180deg)`` does to a colour."""


def contrast(one: Any, other: Any) -> float:
    """The contrast of two colours (WCAG 2.2)."""
    shares = np.array([one, other])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    dark, light = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return float((light + 0.05) / (dark + 0.05))


def inverted(colour: Any, share: float) -> Any:
    """The colour in a dark theme."""
    colour = np.array(colour)
    return np.clip(TURNED @ (share * (1 - colour) + (1 - share) * colour), 0, 1)


def test_every_look_has_a_contrast_of_four_and_a_half_in_both_themes() -> None:
    found = re.search(r"filter: invert\(([\d.]+)\) hue-rotate\(180deg\)", FIGURE)
    assert found
    for look in plots.LOOKS:
        colour = [int(look.colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        assert contrast(colour, WHITE) >= 4.5, look
        assert contrast(inverted(colour, float(found[1])), DARK) >= 4.5, look
    shade = plots.SHADES(1.0)[:3]
    assert contrast(shade, (0, 0, 0)) >= 4.5
    assert contrast(*(inverted(one, float(found[1])) for one in (shade, (0, 0, 0)))) >= 4.5


def shown(monkeypatch: pytest.MonkeyPatch, draw: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """The one picture that a cell gets."""
    outputs: list[Any] = []
    monkeypatch.setattr("IPython.display.display", outputs.append)
    draw()
    (picture,) = [output for output in outputs if isinstance(output, pictures.Shown)]
    return picture._repr_mimebundle_()


def test_a_page_shows_an_img_with_a_text_and_an_unattended_run_a_png(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw() -> None:
        show_still("a line", lambda figure: figure.subplots().plot([1, 2]), (3, 2), words)

    words = "a line from 1 to 2"
    data, metadata = shown(monkeypatch, draw)
    assert sorted(data) == ["image/png", "text/plain"]
    assert metadata == {"image/png": {"alt": words}}
    opaque = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGBA")
    assert opaque.getchannel("A").getextrema() == (255, 255)

    monkeypatch.delenv("MINIPS_AUTOPLAY")
    data, metadata = shown(monkeypatch, draw)
    assert (sorted(data), metadata) == (["text/html", "text/plain"], {})
    assert data["text/plain"] == "<picture: a line>"
    found = re.fullmatch(
        rf"<style>.*</style><img class='minips-figure' .* alt='{words}' src='data:image/png;base64,(.*)'>",
        data["text/html"],
        re.DOTALL,
    )
    assert found
    assert Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGBA").getpixel((0, 0))[3] == 0


def test_a_text_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    data, _ = shown(monkeypatch, lambda: pictures.show(b"", "it's <1 & >0", "", follows=False))
    assert "<img alt='it&#x27;s &lt;1 &amp; &gt;0' src=" in data["text/html"]


def test_best_of_shows_its_picture_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=60, features=4, classes=2))
    config = ps.Config(workers=2, steps=2, transport=ps.InProc())
    best = lab.best_of({"a": config}, problem, (0.1, 0.2, 0.3, 0.4, 0.5), seeds=2)
    assert shown(monkeypatch, best.show)[1] == {"image/png": {"alt": best.words}}


@pytest.fixture
def ax() -> Any:
    yield pyplot.subplots()[1]
    pyplot.close("all")


def test_a_figure_is_described_by_its_titles_axes_series_and_rows(ax: Axes) -> None:
    assert pictures.describe(ax.figure) == "a picture without text"
    ax.barh([0, 1], [1, 2], label="A")
    ax.set(title="two\nruns", xlabel="time (ms)")
    ax.set_yticks([0, 1], ["encode", "wait"])
    ax.legend()
    assert pictures.describe(ax.figure) == "two runs: time (ms): A: encode, wait"
    ax.figure.suptitle("All of it")
    ax.set(ylabel="span", xscale="log")
    assert pictures.describe(ax.figure) == "All of it. two runs: span against time (ms): A: encode, wait"
    ax.figure.set_label("the whole")
    assert pictures.describe(ax.figure) == "the whole"


def test_a_notebook_shows_every_figure_so_unless_its_user_chose_another_format(
    ax: Axes, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = SimpleNamespace(display_formatter=DisplayFormatter())
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    pictures.follow_theme()
    ax.set_title("one")
    assert shell.display_formatter.ipython_display_formatter(ax.figure) is None  # no format is PNG: IPython goes on
    shell.display_formatter.formatters["image/png"].for_type(Figure, repr)
    data, metadata = shown(monkeypatch, lambda: shell.display_formatter.format(ax.figure))
    assert (sorted(data), metadata) == (["image/png", "text/plain"], {"image/png": {"alt": "one"}})
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    for colour in ("white", "black"):
        ax.figure.set_facecolor(colour)
        data, _ = shown(monkeypatch, lambda: shell.display_formatter.format(ax.figure))
        assert " alt='one'" in data["text/html"]
        assert ("class='minips-figure'" in data["text/html"]) == (colour == "white")


def test_the_way_draws_stages_that_change_nothing_dashed(ax: Axes) -> None:
    lab.plots.way(ps.Config(push=ps.Codec("topk", memory="errorfeedback")), ax=ax)
    dashed = [box.get_linestyle() for box in ax.patches if box.get_linestyle() == "--"]
    assert len(dashed) == 1  # the compressor
    words = pictures.describe(ax.figure)
    assert "compressor: NoCompression(), which changes nothing" in words
    assert words.count("which changes nothing") == 1
    ax.clear()
    lab.plots.way(ps.Config(), ax=ax)
    assert sum(box.get_linestyle() == "--" for box in ax.patches) == 4  # and the memory, Exact, and what undoes Exact
    assert "quantizer⁻¹: back to arrays, which changes nothing" in pictures.describe(ax.figure)


@pytest.mark.parametrize("low", [3e-5, 0.004, 0.5, 2.0, 9e4])
def test_logarithmic_axes_have_decimals(ax: Axes, low: float) -> None:
    values = {rate: np.array([low, 1.1 * low]) * (1 + rate) for rate in (0.03, 0.1, 0.3, 1.0)}
    plots.rates({"a": values}, {"a": 0.1}, label="training loss", ax=ax)
    labels = [
        tick.get_text()
        for axis in (ax.xaxis, ax.yaxis)
        for tick in (*axis.get_ticklabels(), *axis.get_ticklabels(minor=True))
    ]
    said = [text for text in labels if text]
    assert said
    assert all(re.fullmatch(r"[\d,]+(\.\d+)?", text) for text in said), said
    assert "0.1" in said
