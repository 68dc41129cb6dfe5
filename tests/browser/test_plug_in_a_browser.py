"""The panel that pulls the plug, in a real browser: each button by pointer and by keyboard; no process is left."""

from pathlib import Path

import pytest
from jupyter_page import CLIPPED, UNTOLD, Lab
from playwright.sync_api import Locator, expect
from test_panels_in_a_browser import CONTRAST, themes
from views_page import faults_here, inaccessible

pytestmark = [pytest.mark.outside, pytest.mark.soak]

CELL = """import minips as ps
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, classes=3))
config = ps.Config(workers=3, steps=30, delays=ps.Delays(seconds={}), link=ps.Link(10e6, 0.001))
panel = ps.lab.plug(problem, config)
panel"""
HEAD, LANE = 28, 28
"""The heights of a run's title and of a lane in the picture."""


def opened(jupyter: Lab, seconds: float = 0.01) -> Locator:
    jupyter.write(CELL.format(seconds))
    jupyter.run_all()
    jupyter.page.wait_for_selector(".minips-lanes text")
    return jupyter.page.locator(".minips-panel")


def click(jupyter: Lab, lane: int, share: float) -> None:
    """Click on a lane of the first run, at a share of its width."""
    ends = jupyter.page.locator(".minips-lanes .minips-grid").nth(-1).bounding_box()
    picture = jupyter.page.locator(".minips-lanes").bounding_box()
    assert ends
    assert picture
    jupyter.page.mouse.click(ends["x"] + share * ends["width"], picture["y"] + HEAD + LANE * (lane + 0.5))


def looked_at(jupyter: Lab, folder: Path, name: str) -> None:
    """In both themes and at both widths nothing is cut or scrolls sideways, all can be read, axe finds nothing."""
    page = jupyter.page
    for theme in themes(jupyter):
        assert page.evaluate(CONTRAST) == [], theme
        for width in (1280, 768):
            page.set_viewport_size({"width": width, "height": 1200})
            page.wait_for_timeout(300)
            found = [page.evaluate(CLIPPED), faults_here(page, ".minips-panel"), inaccessible(page, ".minips-panel")]
            assert found == [[], [], []], (theme, width)
            page.screenshot(path=folder / f"{name}-{theme}-{width}.png")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_clicks_put_kills_and_each_button_does_its_work(jupyter: Lab, tmp_path: Path) -> None:
    panel = opened(jupyter)
    said, cross = panel.locator(".minips-said"), panel.locator("path.minips-kill:not(.minips-under)")
    assert jupyter.page.evaluate(UNTOLD) == []
    click(jupyter, 2, 0.5)
    expect(said).to_contain_text("Planned: worker 1 killed at clock ")
    expect(jupyter.control("Pull the plug party")).to_have_value("worker 1")
    assert (cross.get_attribute("d") or "").count("M") == 1
    click(jupyter, 0, 0.3)
    expect(said).to_contain_text("Planned: server 0 killed at clock ")
    assert (cross.get_attribute("d") or "").count("M") == 2
    box = cross.bounding_box()
    assert box
    jupyter.page.mouse.click(box["x"] + 8, box["y"] + 8)  # the cross of the server, the first one
    expect(said).to_contain_text("Planned: worker 1 killed")

    jupyter.button("Run in virtual time").click()
    expect(said).to_contain_text("The fault costs ")
    expect(said).to_contain_text("Worker 1 is down from ")
    expect(panel.locator("path.minips-down")).to_have_count(2)  # on its lane, and in the legend
    expect(panel.locator(".minips-lanes .minips-title").last).to_have_text("B: with kills, in virtual time")
    looked_at(jupyter, tmp_path, "virtual")

    jupyter.control("Pull the plug restarts").fill("1")
    jupyter.control("Pull the plug restarts").press("Enter")
    jupyter.button("Run for real").click()
    expect(jupyter.button("Stop")).to_be_focused()
    expect(said).to_contain_text("Measured: 30 steps in ")
    expect(said).to_contain_text("worker 1 was started again")
    expect(jupyter.button("Run for real")).to_be_enabled()
    looked_at(jupyter, tmp_path, "measured")
    assert jupyter.spawned() == []
    assert jupyter.tracebacks() == 0


def test_by_keyboard_alone(jupyter: Lab) -> None:
    panel, page = opened(jupyter), jupyter.page
    said = panel.locator(".minips-said")
    jupyter.control("Pull the plug party").focus()
    page.keyboard.press("w")
    expect(jupyter.control("Pull the plug party")).to_have_value("worker 0")
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.ariaLabel || document.activeElement.textContent"))
        if reached[-1] == "Put or take away the kill":
            break
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Planned: worker 0 killed at clock 15.")
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Planned: no kill.")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(jupyter.button("Run in virtual time")).to_be_focused()
    page.keyboard.press("Enter")
    expect(said).to_contain_text("With worker 0 killed at clock 15")
    jupyter.control("Pull the plug rule").select_option("ASP")
    expect(panel.locator(".minips-lanes .minips-title").first).to_have_text("A: ASP, undisturbed")
    jupyter.control("Pull the plug checkpoint").focus()
    page.keyboard.press("Space")
    expect(jupyter.control("Pull the plug checkpoint")).to_be_checked()
    assert jupyter.tracebacks() == 0


@pytest.mark.parametrize("wait_ms", [0, 2500])
def test_stop_ends_a_real_run_and_leaves_no_process(jupyter: Lab, wait_ms: int) -> None:
    panel = opened(jupyter, seconds=1.0)
    jupyter.button("Run for real").click()
    expect(jupyter.button("Run in virtual time")).to_be_disabled()
    jupyter.page.wait_for_timeout(wait_ms)
    assert bool(jupyter.spawned()) or not wait_ms
    jupyter.button("Stop").click()
    expect(jupyter.button("Run for real")).to_be_enabled()
    expect(panel.get_by_role("alert")).to_contain_text("The undisturbed run was stopped")
    assert jupyter.spawned() == []
    jupyter.button("Run in virtual time").click()
    expect(panel.get_by_role("alert")).to_have_count(0)
    assert jupyter.tracebacks() == 0
