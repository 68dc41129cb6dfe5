"""Whole lessons in a browser, by the keyboard alone: each cell is run, each prediction made, each quiz answered."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from jupyter_page import CLIPPED, LESSONS, Lab
from playwright.sync_api import expect

from minips.lab.course.lessons import arguments, read

pytestmark = [pytest.mark.campaign, pytest.mark.outside, pytest.mark.timeout(900)]

IDLE = """() => {
    const panel = window.jupyterapp.shell.currentWidget
    return panel.sessionContext.session.kernel.status === 'idle'
        && !panel.node.querySelector('.jp-InputPrompt')?.textContent.includes('*')
        && ![...panel.node.querySelectorAll('.jp-InputPrompt')].some(one => one.textContent.includes('*'))
}"""
ACTIVE = "index => window.jupyterapp.shell.currentWidget.content.activeCellIndex === index"
IN_NOTEBOOK = "() => document.activeElement.closest('.jp-Notebook') !== null"
FOCUSED = """() => {
    const one = document.activeElement, groups = [...document.querySelectorAll('.widget-radio')]
    return [one.type || one.tagName, groups.indexOf(one.closest('.widget-radio')), one.textContent.trim()]
}"""
"""The kind of what the keyboard is in, the number of its group of options, and its text."""


def answer(lab: Lab, groups: int) -> None:
    """Go back into the output of the cell above, and choose the first option of each question that the keyboard meets,
    or type a number.
    """
    keys, met = lab.page.keyboard, set()
    for _ in range(60):
        keys.press("Shift+Tab")
        kind, group, _text = lab.page.evaluate(FOCUSED)
        if kind == "radio" and group not in met:
            met.add(group)
            keys.press("Space")
        elif kind == "text":
            met.add(group)
            keys.type("10")
            keys.press("Tab")
            keys.press("Shift+Tab")
        if len(met) == groups:
            return
    pytest.fail(f"the keyboard met {len(met)} of {groups} questions")


@pytest.mark.parametrize(("width", "theme"), [(1280, "Light"), (768, "Dark")])
@pytest.mark.parametrize("number", ["00", "03", "08", "16"])
def test_from_opening_to_end(jupyter: Lab, tmp_path: Path, number: str, width: int, theme: str) -> None:
    (path,) = LESSONS.glob(f"{number}_*.ipynb")
    page, cells, seconds = jupyter.page, read(path)["cells"], {}
    kept = Path(os.environ.get("MINIPS_SCREENSHOTS", tmp_path))
    (jupyter.folder.parent / "state/minips/progress.jsonl").unlink(missing_ok=True)  # of the run before
    jupyter.open(path.name)
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(f"() => window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=f"JupyterLab {theme}")
    page.evaluate("() => window.jupyterapp.shell.activateById(window.jupyterapp.shell.currentWidget.id)")
    page.wait_for_function(IN_NOTEBOOK)  # a change of the layout may take the focus from it
    keys = page.keyboard
    keys.press("Escape")
    keys.press("Control+Home")
    page.wait_for_function(ACTIVE, arg=0, timeout=10_000)
    for index, cell in enumerate(cells):
        begun = time.monotonic()
        keys.press("Shift+Enter")
        page.wait_for_function(IDLE, timeout=180_000)
        seconds[index] = time.monotonic() - begun
        asked, quiz = arguments(cell, "predict"), arguments(cell, "quiz")
        if asked or quiz:
            page.wait_for_timeout(500)
            answer(jupyter, 5 if quiz else 1)
            if asked:
                while page.evaluate(FOCUSED)[2] != "This is my prediction":
                    keys.press("Tab")
                keys.press("Enter")
            page.screenshot(path=kept / f"{number}-{width}-{theme}-{index:02}-asked.png")
            keys.press("Escape")  # from the widget to its cell
            page.wait_for_timeout(300)
            keys.press("ArrowDown")
        page.wait_for_function(ACTIVE, arg=index + 1, timeout=10_000)  # the keyboard is at the next cell
        if cell["cell_type"] == "code":
            page.screenshot(path=kept / f"{number}-{width}-{theme}-{index:02}.png")
            assert page.evaluate(CLIPPED) == [], index
    assert jupyter.tracebacks() == 0
    outputs = page.locator(".jp-OutputArea")
    expect(outputs.get_by_text("This cell waits for your prediction")).to_have_count(0)
    report: dict[str, Any] = {str(index): round(value, 1) for index, value in seconds.items() if value > 1}
    print(f"\n{path.stem} {width} {theme}: {sum(seconds.values()):.0f} s; over a second: {json.dumps(report)}")
