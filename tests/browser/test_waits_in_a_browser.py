"""The line that tells what a running cell waits for, in a real JupyterLab; the notebook keeps nothing of it."""

from typing import Any

import nbformat
import psutil
import pytest
from jupyter_page import KERNEL, Lab
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, expect

pytestmark = [pytest.mark.outside, pytest.mark.soak]

BEGIN = """import threading
import time
import minips as ps
from minips import lab
from ipywidgets import Button
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, features=10, classes=3))
config = ps.Config(workers=2, steps=60, delays=ps.Delays(seconds=0.02))
def fail(now):
    if now.step == 40:
        raise KeyError("mine")
"""
SLOW = """
class Slow(ps.SoftmaxRegression):
    def __setstate__(self, state):
        time.sleep(1)
        self.__dict__.update(state)
slow = Slow(problem.X, problem.y)
"""
"""A problem that takes each child a second to load: on a quick machine a start ends before the line would show it."""
COLLECT = """() => {
    window.said = []
    const note = () => document.querySelectorAll('.minips-wait').forEach(line => window.said.push(
        [[...document.querySelectorAll('.jp-Cell')].indexOf(line.closest('.jp-Cell')), line.innerText.trim()]))
    new MutationObserver(note).observe(document.body, {subtree: true, childList: true, characterData: true})
}"""
"""From now on the page notes each text of each line, with the number of its cell."""


def lines(jupyter: Lab) -> Locator:
    return jupyter.page.locator(".minips-wait")


def said(jupyter: Lab) -> list[tuple[int, str]]:
    """What the lines have said since the last question: the cell, and the phase."""
    texts = jupyter.page.evaluate("() => window.said.splice(0)")
    return list(dict.fromkeys((cell, text.split(" · ")[0]) for cell, text in texts if text))


def saved(jupyter: Lab) -> list[list[Any]]:
    """The outputs of each cell, as the notebook's file has them."""
    jupyter.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    book = nbformat.read(jupyter.folder / "mine.ipynb", as_version=4)
    assert "widgets" not in book.metadata
    return [cell.outputs for cell in book.cells]


def test_the_line_tells_the_phases_and_leaves_no_output(jupyter: Lab) -> None:
    folded = new_code_cell(BEGIN + SLOW + "run = ps.train(problem, config)")
    folded.metadata["jupyter"] = {"source_hidden": True}
    cells = [
        "run = ps.train(slow, config)",
        "print('before')\nrun = ps.train(problem, config)\nprint('after')",
        "calibration = ps.cost.calibrate(config, problem)",
        "runs = list(ps.sweep(problem, {'one': config, 'two': config}))",
        "ps.train(problem, config, every=20, on_eval=fail)",
    ]
    book = new_notebook(cells=[folded, *map(new_code_cell, cells)], metadata={"kernelspec": KERNEL})
    nbformat.write(book, jupyter.folder / "mine.ipynb")
    jupyter.open("mine.ipynb")
    jupyter.page.evaluate(COLLECT)
    jupyter.run_all()  # to the error
    expect(lines(jupyter)).to_have_count(0)
    told = said(jupyter)
    for cell in (0, 1, 2, 5):
        *before, last = [phase for at, phase in told if at == cell]
        assert last == "training"
        assert before == ["starting 3 processes"] or (before == [] and cell != 1)
    measuring = [phase for at, phase in told if at == 3]
    assert measuring[0] == "measuring the stages"
    assert measuring[1:] in ([], ["measuring the stages again, since the machine was busy"])
    assert {phase for at, phase in told if at == 4} == {"run 1 of 2", "run 2 of 2"}

    outputs = saved(jupyter)
    assert [[output.output_type for output in one] for one in outputs] == [[], [], ["stream"], [], [], ["error"]]
    assert outputs[2][0].text == "before\nafter\n"
    assert outputs[5][0].ename == "KeyError"


def test_the_line_goes_with_an_interrupted_call(jupyter: Lab) -> None:
    jupyter.write(BEGIN, "ps.train(problem, config.with_({'steps': 100_000}))")
    jupyter.run_cell(0)
    jupyter.run_cell(1)
    line = jupyter.page.locator(".jp-Cell").nth(1).locator(".minips-wait")
    expect(line).to_contain_text("training · step ")
    expect(line.get_by_role("status")).to_have_text("training")
    expect(line.get_by_role("progressbar")).to_be_visible()
    box = line.evaluate("one => [one.scrollWidth - one.clientWidth, one.scrollHeight - one.clientHeight]")
    assert max(box) <= 0
    jupyter.page.get_by_role("button", name="Interrupt the kernel").click()
    expect(jupyter.output(1)).to_contain_text("The run was interrupted; all that it started has ended.")
    expect(lines(jupyter)).to_have_count(0)
    assert [[output.output_type for output in one] for one in saved(jupyter)] == [[], ["error"]]
    assert jupyter.spawned() == []


def test_panels_callbacks_and_threads_show_no_line(jupyter: Lab) -> None:
    jupyter.write(
        BEGIN,
        "bench = lab.Workbench(problem, config, predict=False)\nbench",
        "button = Button(description='Train')\n"
        "button.on_click(lambda _: setattr(button, 'description', repr(ps.train(problem, config))))\nbutton",
        "thread = threading.Thread(target=ps.train, args=(problem, config))\n"
        "thread.start()\nthread.join()\nprint('joined')",
        "run = ps.train(problem, config, progress=False)\nprint('trained')",
    )
    for cell in range(3):
        jupyter.run_cell(cell)
    expect(jupyter.button("Run")).to_be_enabled()
    jupyter.page.evaluate(COLLECT)
    jupyter.button("Run").click()
    expect(jupyter.output(1).get_by_text("A is at").first).to_be_visible()
    expect(jupyter.button("Run")).to_be_enabled()
    jupyter.button("Train").click()
    expect(jupyter.page.get_by_role("button", name="<Run of 120 updates")).to_be_visible()
    jupyter.run_cell(3)
    expect(jupyter.output(3)).to_contain_text("joined")
    jupyter.run_cell(4)
    expect(jupyter.output(4)).to_contain_text("trained")
    assert said(jupyter) == []


def test_the_line_goes_when_the_kernel_dies(jupyter: Lab) -> None:
    jupyter.write(BEGIN + "ps.train(problem, config.with_({'steps': 100_000}))")
    jupyter.run_cell(0)
    expect(lines(jupyter)).to_contain_text("training")
    for kernel in (one for one in psutil.Process(jupyter._server).children() if "ipykernel" in " ".join(one.cmdline())):
        kernel.kill()
    expect(lines(jupyter)).to_have_count(0)
