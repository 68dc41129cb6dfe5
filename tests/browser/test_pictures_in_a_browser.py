"""Pictures of a lesson's cells in JupyterLab: right in both themes, and with a text for readers who cannot see them."""

import io
from pathlib import Path

import numpy as np
import pytest
from jupyter_page import Lab
from PIL import Image
from playwright.sync_api import Locator, expect

pytestmark = [pytest.mark.outside, pytest.mark.soak]

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
    "lab.GradientShards().static()",
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
    "4 shards of 24 rows",
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


GROUND = """() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim() === 'white'
    ? [255, 255, 255] : [17, 17, 17]"""
"""The colour of the page under a cell's output."""
