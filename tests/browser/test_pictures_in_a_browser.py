"""A lesson's cells in a browser: pictures are right in both themes and have a text, and imports are folded."""

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest
from jupyter_page import LESSONS, Lab, newcomers
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from minips.lab import pictures
from minips.lab.course.lessons import blanked
from minips.lab.panels.base import png

pytestmark = [pytest.mark.outside, pytest.mark.soak]

LESSON = next(LESSONS.glob("06_*.ipynb"))
SHOWS = (
    """import matplotlib.pyplot as plt
from minips import lab
plt.plot([1, 2, 3], label="a line")
plt.gca().set(xlabel="step", ylabel="loss")
plt.legend()
plt.show()""",
    """import minips as ps
run = ps.train(ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, classes=3)), ps.Config(workers=2, steps=20))
lab.timeline(run)
plt.show()""",
    """lab.plots.way(run.config)
plt.show()""",
    """from minips.lab.panels.base import show_still
show_still("a still", lambda figure: figure.subplots().plot([1, 2]), (4, 2), "a line from 1 to 2")""",
    """plt.figure(facecolor="black", label="a picture on black")
plt.plot([1, 2])
plt.show()""",
    """from matplotlib_inline.backend_inline import set_matplotlib_formats
set_matplotlib_formats("svg")
plt.plot([1, 2])
plt.show()""",
)
WORDS = (
    "loss against step: a line",
    "time since the start (ms): compute",
    "the way of a gradient",
    "a line from 1 to 2",
    "on black",
)


def pixels(shown: Locator) -> np.ndarray:
    """The colours of a picture on the page: rows, columns, and red, green and blue from 0 to 255."""
    return np.asarray(Image.open(io.BytesIO(shown.screenshot())).convert("RGB"), float)


def light(colours: np.ndarray) -> np.ndarray:
    """The relative luminance of colours (WCAG 2.2)."""
    shares = colours / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_they_have_the_ground_of_the_page_and_a_text(jupyter: Lab, tmp_path: Path, theme: str) -> None:
    page = jupyter.page
    jupyter.write(*SHOWS)
    page.evaluate(f"() => window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=f"JupyterLab {theme}")
    jupyter.run_all()
    expect(jupyter.output(len(SHOWS) - 1).locator("img")).to_be_visible()
    ground = light(np.array(page.evaluate(GROUND), float))
    for number, words in enumerate(WORDS):
        picture = jupyter.output(number).locator("img")
        assert words in picture.get_attribute("alt"), number
        picture.scroll_into_view_if_needed()
        lights = light(pixels(picture))
        picture.screenshot(path=tmp_path / f"{theme}-{number}.png")
        ratios = (np.maximum(lights, ground) + 0.05) / (np.minimum(lights, ground) + 0.05)
        on_black = number == len(WORDS) - 1
        assert (ratios[2, 2] < 1.05) == (not on_black), number
        assert ratios.max() > 12, number
    assert jupyter.output(len(SHOWS) - 1).locator("img.minips-figure").count() == 0  # its user chose SVG
    assert jupyter.tracebacks() == 0


def test_their_ground_is_white_on_a_dark_page_of_another_program(
    view_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    picture = png(lambda figure: figure.subplots().plot([1, 2]), (4, 2), alpha=0)
    shown = pictures.Shown(picture, "a line", "")._repr_mimebundle_()[0]["text/html"]
    view_page.set_content(f"<body style='background: #111'>{shown}</body>")
    assert pixels(view_page.locator("img"))[2, 2].tolist() == [255, 255, 255]


GROUND = """() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim() === 'white'
    ? [255, 255, 255] : [17, 17, 17]"""
"""The colour of the page under a cell's output."""


def folds(page: Page) -> None:
    """The first code cell of a lesson is folded, the second is not, and a click unfolds the first."""
    cells = page.locator(".jp-CodeCell")
    expect(cells.nth(0).locator(".jp-InputArea-editor")).to_be_hidden()
    expect(cells.nth(1).locator(".jp-InputArea-editor")).to_be_visible()
    cells.nth(0).locator(".jp-Placeholder").click()
    expect(cells.nth(0).locator(".jp-InputArea-editor")).to_contain_text("from minips import lab")


def test_jupyterlab_folds_the_imports(jupyter: Lab) -> None:
    (jupyter.folder / "mine.ipynb").write_bytes(blanked(LESSON))
    jupyter.open("mine.ipynb")
    folds(jupyter.page)


@pytest.mark.skipif(not importlib.util.find_spec("notebook"), reason='pip install "minips[test]" brings Notebook 7')
def test_notebook_7_folds_them_too(chromium: Browser, tmp_path: Path) -> None:
    with newcomers(tmp_path / "home", "notebook") as address:
        (tmp_path / "home" / "mine.ipynb").write_bytes(blanked(LESSON))
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address.replace("/tree", "/notebooks/mine.ipynb"))
        folds(page)
        page.close()
