"""The views in a real browser with scrollbars: they move, fit every width, and the keyboard alone reaches everything.

In JupyterLab and in Notebook 7 they play without a request to another host.
"""

import importlib.util
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from jupyter_page import KERNEL, PATIENCE_MS, RESTING_S, Lab, newcomers
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Locator, Page, expect
from views_page import faults, faults_here, inaccessible, looks, open_view

import minips as ps
from minips import lab
from minips.lab.views import View

pytestmark = [pytest.mark.outside, pytest.mark.soak]

RACES = {
    "two racks": {"topology": ps.cost.TwoRacks(100e6, 0.0, uplink_bps=20e6)},
    "tree": {"topology": ps.cost.Tree(), "workers": 16, "exchange": ps.HalvingDoubling()},
    "ring": {"topology": ps.cost.Ring(), "workers": 5, "servers": 2},
    "alone": {"workers": 3, "exchange": ps.PS()},
    "one worker": {"workers": 1},
}
SHOW = """from minips import lab
panel = lab.Collectives(workers=4)
panel.run()
assert panel.wait(60)
panel.view"""
REPLAY = """import minips as ps
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, classes=3))
config = ps.Config(workers=3, steps=20, link=ps.Link(10e6, 0.001))
lab.replay(ps.train(problem, config, engine=ps.Simulated(compute_s=0.01)))"""
PLAYGROUND = "lab.playground()"
RACING = ".race-there[visibility=visible], .race-back[visibility=visible]"
"""The dots of a race that are on their way."""


def race(name: str = "two racks") -> View:
    panel = lab.Collectives(**RACES[name])
    panel.run()
    assert panel.wait(60)
    assert not panel.job.message.value
    return panel.view


def time_of(page: Page) -> float:
    """The share of the clock that has passed."""
    return float(page.get_by_label("time", exact=True).input_value())


def plays(page: Page, view: Locator, moving: str = RACING) -> None:
    """One click moves the dots, unless they move by themselves, and another one stops them."""
    button = view.locator(".minips-go")
    expect(button).to_be_visible()
    if button.text_content() == "Play":
        button.click()
    slider = view.get_by_label("time", exact=True)
    page.wait_for_function("slider => Number(slider.value) > 0.1", arg=slider.element_handle())
    expect(view.locator(moving).first).to_be_attached()
    view.get_by_role("button", name="Pause").click()
    stopped = slider.input_value()
    page.wait_for_timeout(200)
    assert slider.input_value() == stopped


def test_a_page_without_a_network_shows_its_data_as_text(view_page: Page, tmp_path: Path) -> None:
    sentence = "Not a </script> tag & not <b>bold</b>."
    open_view(view_page, View("race", {"name": "</script>"}, "<svg></svg>", sentence), tmp_path)
    expect(view_page.get_by_role("status")).to_have_text(sentence)
    assert faults(view_page) == []


@pytest.mark.parametrize("name", RACES)
def test_a_race_fits_every_width_in_both_themes(name: str, view_page: Page, tmp_path: Path) -> None:
    open_view(view_page, race(name), tmp_path)
    assert faults(view_page) == []
    view_page.get_by_label("time", exact=True).fill("1")
    assert faults(view_page) == []
    for theme, width in looks(view_page):
        assert inaccessible(view_page) == [], (theme, width)


def test_one_click_moves_a_race_and_its_end_stops_it(view_page: Page, tmp_path: Path) -> None:
    open_view(view_page, race(), tmp_path)
    plays(view_page, view_page.locator(".minips-view"))
    view_page.get_by_label("time", exact=True).fill("0.98")
    view_page.get_by_role("button", name="Play").click()
    expect(view_page.get_by_role("button", name="Play")).to_be_visible()
    assert time_of(view_page) == 1
    states = view_page.locator(".race-state").all_inner_texts()
    assert states == ["done after 281 ms", "done after 1.76 s, one step every 1.28 s"]


def test_a_race_by_the_keyboard_alone(view_page: Page, tmp_path: Path) -> None:
    view = race()
    open_view(view_page, view, tmp_path)
    keyboard, slider = view_page.keyboard, view_page.get_by_label("time", exact=True)
    for name in ("previous event", "Play", "next event", "time", "speed"):
        keyboard.press("Tab")
        focused = view_page.evaluate("() => document.activeElement.ariaLabel ?? document.activeElement.innerText")
        assert focused == name
    keyboard.press("Shift+Tab")
    ends = sorted({moment for side in view.data["sides"] for piece in side["pieces"] for moment in piece[:2]})
    assert ends[0] == 0
    for moment in ends[1:4]:
        keyboard.press("ArrowRight")
        assert time_of(view_page) == pytest.approx(moment / view.data["seconds"])
    keyboard.press("ArrowLeft")
    assert time_of(view_page) == pytest.approx(ends[2] / view.data["seconds"])
    expect(slider).to_have_attribute("aria-valuetext", f"{lab.views.format_seconds(ends[2])} of 1.76 s")
    keyboard.press("Space")
    expect(view_page.get_by_role("button", name="Pause")).to_be_visible()
    keyboard.press("Space")
    expect(view_page.get_by_role("button", name="Play")).to_be_visible()


def test_reduced_motion_steps_from_event_to_event(view_page: Page, tmp_path: Path) -> None:
    view_page.emulate_media(reduced_motion="reduce")
    view = race()
    open_view(view_page, view, tmp_path)
    step = view_page.get_by_role("button", name="Step")
    places = []
    for _ in range(3):
        step.click()
        places.append(time_of(view_page))
        view_page.wait_for_timeout(100)
        assert time_of(view_page) == places[-1]
    assert len(set(places)) == 3


def test_jupyterlab_plays_a_view_and_hides_its_still(jupyter: Lab) -> None:
    hosts = set()
    jupyter.page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    jupyter.write(SHOW)
    jupyter.run_all()
    view = jupyter.page.locator(".minips-view")
    expect(view).to_have_count(1)
    plays(jupyter.page, view)
    expect(jupyter.page.locator(".minips-still")).to_have_count(1)
    expect(jupyter.page.locator(".minips-still")).to_be_hidden()
    for theme in ("Dark", "Light"):
        jupyter.page.evaluate(
            f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
        )
        jupyter.page.wait_for_selector(f"body[data-jp-theme-light='{str(theme == 'Light').lower()}']", state="attached")
        jupyter.page.wait_for_timeout(500)
        for width in (1024, 1280, 1440, 1920):
            jupyter.page.set_viewport_size({"width": width, "height": 900})
            jupyter.page.wait_for_timeout(300)
            assert faults_here(jupyter.page) == [], (theme, width)
            assert inaccessible(jupyter.page) == [], (theme, width)
    assert hosts <= {"127.0.0.1", "", None}
    assert jupyter.tracebacks() == 0


def test_a_panel_in_jupyterlab_races_again_when_a_control_changes(jupyter: Lab) -> None:
    jupyter.write("from minips import lab\nlab.Collectives(workers=4)")
    jupyter.run_all()
    view = jupyter.page.locator(".minips-panel .race")
    expect(view.locator("section")).to_have_count(2)
    plays(jupyter.page, view)
    jupyter.control("Race over a network rival").select_option("tree")
    expect(view.locator("section").nth(1)).to_have_attribute("aria-label", "tree")
    expect(view.get_by_role("status")).to_contain_text("Its rival, tree, takes")
    plays(jupyter.page, view)
    assert faults_here(jupyter.page) == []


@pytest.mark.skipif(not importlib.util.find_spec("notebook"), reason='pip install "minips[test]" brings Notebook 7')
def test_notebook_7_plays_every_view_and_hides_its_still(chromium: Browser, tmp_path: Path) -> None:
    cells = [new_code_cell(cell) for cell in (SHOW, REPLAY, PLAYGROUND)]
    book = new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    with newcomers(tmp_path / "home", "notebook") as address:
        nbformat.write(book, tmp_path / "home" / "mine.ipynb")
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address.replace("/tree", "/notebooks/mine.ipynb"))
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
        page.wait_for_timeout(1e3 * RESTING_S)
        errors.clear()  # those of Notebook's own start
        for number, moving in enumerate((RACING, "circle", "circle")):
            cell = page.locator(".jp-CodeCell").nth(number)
            cell.locator(".cm-content").click()
            page.keyboard.press("Shift+Enter")
            view = cell.locator(".minips-view")
            expect(view).to_have_count(1)
            expect(cell.locator(".minips-still")).to_be_hidden()
            plays(page, view, moving)
            assert faults_here(page) == [], number
        page.close()
        assert errors == []
