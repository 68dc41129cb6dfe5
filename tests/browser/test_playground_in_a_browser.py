"""The playground in JupyterLab: one click moves it, a box changes it, the keyboard reaches all of it, and it fits."""

import time

import pytest
from jupyter_page import Lab
from playwright.sync_api import Locator, expect
from views_page import WIDTHS, faults_here

from minips.lab.views.pipeline import SETTINGS

pytestmark = [pytest.mark.outside, pytest.mark.soak]

CELL = "from minips import lab\nplay = lab.playground({})\nplay"
FRAMES = """() => {
    window.pictures = new Set()
    window.clicks = 0
    window.addEventListener('click', () => window.clicks++, true)
    const look = () => {
        const dots = [...document.querySelectorAll('.minips-playground circle')]
        if (dots.length) window.pictures.add(dots.map(dot => dot.getAttribute('cx')).join())
        requestAnimationFrame(look)
    }
    look()
}"""
"""From now on the page counts its clicks, and keeps each different picture of dots."""
FOCUSED = """() => {
    const one = document.activeElement
    if (!one.closest('.minips-playground')) return null
    return one.getAttribute('aria-label') || one.closest('label')?.textContent || one.textContent.slice(0, 20)
}"""
ALL = """() => [...document.querySelectorAll(
    '.minips-playground :is(button, select, input, textarea, summary, pre)')]
    .filter(one => one.checkVisibility()).length"""
UNNAMED = """() => [...document.querySelectorAll('.minips-playground :is(button, select, input, textarea)')]
    .filter(one => !(one.getAttribute('aria-label') || one.textContent.trim())).map(one => one.outerHTML)"""


def opened(jupyter: Lab, arguments: str = "") -> Locator:
    jupyter.write(CELL.format(arguments))
    jupyter.run_all()
    panel = jupyter.page.locator(".minips-playground")
    expect(panel.get_by_role("status")).to_contain_text("Accuracy")
    return panel


def test_it_moves_by_itself_and_one_click_stops_it_or_goes_on(jupyter: Lab) -> None:
    panel = opened(jupyter)
    jupyter.page.evaluate(FRAMES)
    jupyter.page.wait_for_function("() => window.pictures.size >= 20")
    panel.get_by_role("button", name="Pause").click()
    jupyter.page.evaluate("() => window.pictures.clear()")
    jupyter.page.wait_for_timeout(500)
    assert jupyter.page.evaluate("() => window.pictures.size") <= 1
    panel.get_by_role("button", name="Play").click()
    jupyter.page.wait_for_function("() => window.pictures.size >= 20")
    assert jupyter.page.evaluate("() => window.clicks") == 2
    assert jupyter.tracebacks() == 0


def test_it_does_not_move_by_itself_for_people_who_want_less_motion(jupyter: Lab) -> None:
    jupyter.page.emulate_media(reduced_motion="reduce")
    panel = opened(jupyter)
    expect(panel.get_by_role("button", name="Step")).to_be_visible()
    jupyter.page.evaluate(FRAMES)
    jupyter.page.wait_for_timeout(1000)
    assert jupyter.page.evaluate("() => window.pictures.size") <= 1
    expect(panel.locator("circle")).to_have_count(0)  # the whole run is shown


def test_a_box_changes_the_run(jupyter: Lab) -> None:
    panel = opened(jupyter)
    expect(panel.locator(".play-quantizer .play-size")).to_have_text("2.6 kB · –")
    panel.get_by_label("A quantizer", exact=True).select_option("sign")
    expect(panel.locator(".play-quantizer .play-size")).to_have_text("98 B · –")
    expect(panel.get_by_role("button", name="Pause")).to_be_visible()  # the new run plays
    expect(panel.locator(".play-pale")).to_have_count(1)
    panel.get_by_role("button", name="compressor").click()
    expect(panel.get_by_label("the open box")).to_contain_text("The bytes of the message, before and after")
    panel.get_by_label("setting").select_option(next(iter(SETTINGS)))
    expect(panel.get_by_role("status")).to_contain_text("A and B differ in consistency.")
    expect(panel.get_by_role("button", name="B", exact=True)).to_have_attribute("aria-pressed", "true")


def test_a_cell_that_runs_again_replaces_its_playground(jupyter: Lab) -> None:
    opened(jupyter)
    jupyter.run_cell(0, CELL.format("'workers=2, steps=5'"))
    panel = jupyter.page.locator(".minips-playground")
    expect(panel.get_by_role("button", name="2 workers")).to_be_visible()
    expect(panel).to_have_count(1)
    panel.get_by_label("A quantizer", exact=True).select_option("sign")
    expect(panel.locator(".play-quantizer .play-size")).to_have_text("98 B · –")
    assert jupyter.tracebacks() == 0


def test_an_error_is_a_sentence(jupyter: Lab) -> None:
    panel = opened(jupyter, "'workers=2, steps=5'")
    for _ in range(2):
        panel.get_by_label("A aggregator", exact=True).select_option("krum")
        expect(panel.get_by_role("alert")).to_contain_text("needs at least 5 contributions at once")
        expect(panel.get_by_label("A aggregator", exact=True)).to_have_value("mean")
    panel.get_by_label("A aggregator", exact=True).select_option("median")
    expect(panel.get_by_role("alert")).to_be_hidden()
    assert jupyter.tracebacks() == 0


def test_a_run_for_real_stops_without_a_trace(jupyter: Lab) -> None:
    panel = opened(jupyter, '\'workers=2, steps=400, delays="seconds=0.05", link="bandwidth_bps=1e7"\'')
    panel.get_by_role("button", name="Run for real").click()
    expect(panel.locator(".play-busy")).to_contain_text("trains for real")
    panel.get_by_role("button", name="Stop").click()
    expect(panel.get_by_role("button", name="Run for real")).to_be_visible()
    expect(panel.get_by_role("status")).to_contain_text("stopped early")
    deadline = time.monotonic() + 20
    while jupyter.spawned() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert jupyter.spawned() == []
    assert jupyter.tracebacks() == 0


def test_the_keyboard_alone_reaches_and_uses_everything(jupyter: Lab) -> None:
    panel = opened(jupyter)
    page = jupyter.page
    assert page.evaluate(UNNAMED) == []
    panel.get_by_label("setting").focus()
    reached = [page.evaluate(FOCUSED)]
    while True:
        page.keyboard.press("Tab")
        name = page.evaluate(FOCUSED)
        if name is None:
            break
        reached.append(name)
    assert len(reached) == page.evaluate(ALL)
    assert {"A quantizer", "A link", "A workers", "A optimizer lr", "A pull quantizer", "time", "speed"} <= {*reached}
    assert {"memory", "Run for real", "Copy as one line"} <= {*reached}
    panel.get_by_label("A quantizer", exact=True).focus()
    page.keyboard.type("sig")
    expect(panel.locator(".play-quantizer .play-size")).to_have_text("98 B · –")
    assert page.evaluate(FOCUSED) == "A quantizer"
    panel.get_by_label("A link", exact=True).focus()
    page.keyboard.press("Home")
    expect(panel.locator(".play-transport")).to_contain_text("1 Mbit/s")
    expect(panel.get_by_label("A link", exact=True)).to_have_attribute("aria-valuetext", "1 Mbit/s")
    panel.get_by_role("button", name="memory", exact=True).focus()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("button", name="memory", exact=True)).to_have_attribute("aria-pressed", "true")


def test_it_fits_a_notebook_of_each_width(jupyter: Lab) -> None:
    panel = opened(jupyter)
    panel.get_by_label("setting").select_option([*SETTINGS][1])
    expect(panel.get_by_role("status")).to_contain_text("A and B differ")
    for width in WIDTHS:
        jupyter.page.set_viewport_size({"width": width, "height": 900})
        jupyter.page.wait_for_timeout(300)
        assert [one for one in faults_here(jupyter.page) if "<html" not in one] == [], width
