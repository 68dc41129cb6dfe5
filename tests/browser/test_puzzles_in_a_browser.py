"""The puzzles' pictures in JupyterLab: they fit, their letters are large enough, and both themes suit them."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from jupyter_page import Lab
from playwright.sync_api import expect
from test_pictures_in_a_browser import GROUND, light, pixels

from minips.lab.charts import PX_PER_IN, SIZE
from minips.lab.puzzles import PUZZLES
from minips.lab.puzzles.base import DPI

pytestmark = [pytest.mark.outside, pytest.mark.soak]

SIZES = """number => [...document.querySelectorAll('.jp-OutputArea')][number].querySelectorAll('img').values().toArray()
    .filter(img => img.getClientRects().length)
    .map(img => {
        const box = img.getBoundingClientRect(), output = img.closest('.jp-OutputArea-output').getBoundingClientRect()
        return [box.width / img.naturalWidth, output.right - box.right]
    })"""
"""Of each picture that an output shows: how much it is scaled, and the pixels of the page to the right of it."""
LETTERS_PX = SIZE * DPI / PX_PER_IN
"""The height of letters in a PNG."""


def test_they_fit_wide_and_narrow_pages_in_both_themes(jupyter: Lab, tmp_path: Path) -> None:
    page = jupyter.page
    play = "from minips import lab\npuzzle = lab.puzzle({!r})\nexec(puzzle.start)\npuzzle.play({})"
    jupyter.write(*(play.format(name, one.function) for name, one in PUZZLES.items()))
    jupyter.run_all()
    expect(jupyter.output(len(PUZZLES) - 1).locator("img:visible")).to_be_visible()
    assert jupyter.tracebacks() == 0
    for theme, width in product(("Light", "Dark"), (1280, 768)):
        page.set_viewport_size({"width": width, "height": 1300})  # so that no picture is higher than the notebook
        page.evaluate(
            f"() => window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
        )
        page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=f"JupyterLab {theme}")
        for number, name in enumerate(PUZZLES):
            picture, told = jupyter.output(number).locator("img:visible"), (name, theme, width)
            picture.scroll_into_view_if_needed()
            ((scale, beyond),) = page.evaluate(SIZES, number)
            assert scale * LETTERS_PX >= 10, told
            assert beyond >= 0, told
            assert picture.get_attribute("alt").startswith(f"{name}: "), told
            for _ in range(100):  # the theme's styles may come a moment after its name
                ground, lights = light(np.array(page.evaluate(GROUND), float)), light(pixels(picture))
                ratios = (np.maximum(lights, ground) + 0.05) / (np.minimum(lights, ground) + 0.05)
                if ratios[2, -2] < 1.05:
                    break
                page.wait_for_timeout(100)
            picture.screenshot(path=tmp_path / f"{name}-{theme}-{width}.png")
            assert ratios[2, -2] < 1.05, told
            assert ratios.max() > 12, told
