"""The workbench in JupyterLab: it fits, curves come first, and pointer, keyboard and screen readers have all of it."""

import re

import pytest
from jupyter_page import CLIPPED, UNTOLD, Lab
from playwright.sync_api import Locator, expect
from test_panels_in_a_browser import CONTRAST, themes
from views_page import faults_here, inaccessible

import minips as ps

pytestmark = [pytest.mark.outside, pytest.mark.soak]

START = """import minips as ps
from minips import lab
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, features=10, classes=3))
configs = [ps.Config(workers=2, steps=40), ps.Config(workers=2, steps=40, push=ps.Codec("sign", "errorfeedback"))]
lab.Workbench(problem, configs, {})"""
WIDTHS = (768, 1024, 1280, 1440, 1920)
SIDEWAYS = """() => [...document.querySelectorAll('.minips-panel, .minips-panel *')]
    .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth)
    .filter(one => ['auto', 'scroll'].includes(getComputedStyle(one).overflowX))
    .map(one => one.outerHTML.slice(0, 200))"""
"""The boxes with a sideways scrollbar, as pieces of HTML."""
LOG = """() => {
    window.seen = []
    const look = () => {
        const panel = document.querySelector('.minips-panel')
        const now = panel.querySelector('[role=status]').innerText.replace(/[^a-z ]/gi, '')
            + (panel.querySelector('.minips-picture img') ? ' with a curve' : '')
        if (window.seen.at(-1) !== now) window.seen.push(now)
        requestAnimationFrame(look)
    }
    look()
}"""
"""From now on the page notes what the workbench says, and whether there is a curve."""
DOTS = """() => [...document.querySelectorAll('.flow-road i')]
    .filter(one => getComputedStyle(one).opacity > 0).map(one => one.getBoundingClientRect().x)"""
"""Where the dots are that can be seen."""


def opened(jupyter: Lab, options: str = "predict=False") -> Locator:
    """A workbench, before its first run."""
    jupyter.write(START.replace("{}", options))
    jupyter.run_all()
    panel = jupyter.page.locator(".minips-panel")
    expect(panel).to_contain_class("minips-live")
    return panel


def trained(jupyter: Lab, panel: Locator) -> None:
    """Run is pressed, and the runs have ended."""
    jupyter.button("Run").click()
    expect(panel.get_by_role("status").first).to_contain_text("× A's bytes")
    expect(jupyter.button("Run")).to_be_enabled()


def test_it_fits_every_width_in_both_themes(jupyter: Lab) -> None:
    panel, page = opened(jupyter), jupyter.page
    trained(jupyter, panel)
    jupyter.control("B bandwidth").select_option("10 Mbit/s")
    trained(jupyter, panel)  # with the curves of earlier runs, and with words on the link
    panel.get_by_role("tab", name="Timeline").click()
    expect(panel.locator(".minips-view:visible .minips-player")).to_have_count(1)
    for name in ("More", "The configs as code"):
        panel.get_by_role("button", name=name, exact=True).click()
        expect(panel.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-expanded", "true")
    for _ in themes(jupyter):
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(300)
            assert [one for one in faults_here(page) if "<html" not in one] == [], width
            assert page.evaluate(SIDEWAYS) == [], width
            assert page.evaluate(CLIPPED) == [], width
        assert page.evaluate(CONTRAST) == []
        assert inaccessible(page, ".minips-panel") == []
    assert jupyter.tracebacks() == 0


def test_the_curves_come_before_the_calibration_and_the_focus_goes_back_to_run(jupyter: Lab) -> None:
    panel = opened(jupyter, "predict=True")
    page = jupyter.page
    page.evaluate(LOG)
    jupyter.button("Run").focus()
    page.keyboard.press("Enter")
    expect(jupyter.button("Stop")).to_be_focused()
    expect(panel.get_by_role("status").first).to_contain_text("being measured")
    expect(panel.get_by_role("progressbar")).to_have_attribute("max", "100")
    expect(jupyter.button("Run")).to_be_focused()
    assert panel.get_by_role("progressbar").evaluate("one => one.value === one.max")
    seen = page.evaluate("window.seen")
    first = next(number for number, words in enumerate(seen) if words.endswith("with a curve"))
    measured = next(number for number, words in enumerate(seen) if "being measured" in words)
    assert first < measured, seen
    panel.get_by_role("tab", name="All runs").click()
    expect(panel.locator("table", has_text="Step, predicted").locator("td", has_text="–")).to_have_count(0)
    assert jupyter.tracebacks() == 0


def test_the_focus_stays_where_somebody_has_put_it(jupyter: Lab) -> None:
    panel = opened(jupyter)
    jupyter.control("A steps").fill("1e3")
    jupyter.control("A steps").press("Enter")
    expect(jupyter.control("A steps")).to_have_value("1000")
    jupyter.button("Run").click()
    expect(jupyter.button("Stop")).to_be_focused()
    jupyter.control("B steps").focus()
    expect(panel.get_by_role("status").first).to_contain_text("× A's bytes")
    expect(jupyter.button("Run")).to_be_enabled()
    expect(jupyter.control("B steps")).to_be_focused()


def help_of(cls: type, field: str) -> str:
    return str(cls.__dataclass_fields__[field].metadata["help"])  # type: ignore[attr-defined]


def test_each_control_says_what_it_does(jupyter: Lab) -> None:
    panel = opened(jupyter)
    panel.get_by_text("More", exact=True).click()
    expect(jupyter.control("A seed")).to_have_attribute("title", help_of(ps.Config, "seed"))
    assert jupyter.page.evaluate(UNTOLD) == []
    jupyter.control("B quantizer").select_option("topk")
    expect(jupyter.control("B quantizer fraction")).to_have_attribute("title", help_of(ps.TopK, "fraction"))
    expect(jupyter.control("B quantizer")).to_have_attribute("title", re.compile("topk: The k values"))
    assert jupyter.page.evaluate(UNTOLD) == []


def test_each_code_has_a_heading_and_a_button_that_copies_it(jupyter: Lab) -> None:
    panel = opened(jupyter)
    page = jupyter.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.get_by_text("The configs as code", exact=True).click()
    for side, config in (("A", "steps=40)"), ("B", "ps.Sign()")):
        copy = panel.get_by_role("button", name=f"Copy {side}", exact=True)
        copy.focus()
        page.keyboard.press("Enter")
        expect(panel.locator(".minips-copy").nth("AB".index(side))).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert config in copied
        assert (
            copied
            == panel.locator(".minips-code", has=page.locator(f"b:text-is('{side}')")).locator("pre").inner_text()
        )


def test_messages_move_after_a_run_and_again(jupyter: Lab) -> None:
    panel = opened(jupyter)
    expect(panel.locator(".flow-box", has_text="quantizer")).to_contain_text("B sign")
    expect(panel.locator(".flow-road i")).to_have_count(0)
    trained(jupyter, panel)
    for _ in range(2):
        jupyter.page.wait_for_function(f"() => ({DOTS})().length > 0")
        before = jupyter.page.evaluate(DOTS)
        jupyter.page.wait_for_function(f"before => ({DOTS})().join() !== before.join()", arg=before)
        jupyter.page.wait_for_function(f"() => ({DOTS})().length === 0")
        panel.get_by_role("button", name="Play", exact=True).first.click()
    jupyter.page.emulate_media(reduced_motion="reduce")
    assert jupyter.page.evaluate(DOTS) == []


def test_the_timeline_has_one_axis_and_a_replay(jupyter: Lab) -> None:
    panel = opened(jupyter)
    for _ in range(2):
        trained(jupyter, panel)
        panel.get_by_role("tab", name="Timeline").click()
        expect(panel.get_by_text("on one time axis")).to_contain_text("8 steps of A and")
        expect(panel.locator(".minips-view:visible .minips-title")).to_have_text(["A", "B"])
        expect(panel.locator(".minips-view:visible .minips-player")).to_have_count(1)
    assert jupyter.tracebacks() == 0
