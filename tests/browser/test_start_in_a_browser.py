"""The first minute of somebody who has typed `minips lab`: one click, and the picture moves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_page import LESSONS, PATIENCE_MS, newcomers
from playwright.sync_api import Browser, Locator, Page, expect
from test_playground_in_a_browser import FRAMES
from views_page import DRAWN, WIDTHS, faults_here

pytestmark = [pytest.mark.outside, pytest.mark.soak]

OUTSIDE = """() => {
    const cell = document.querySelector('.jp-Notebook').getBoundingClientRect()
    return [...document.querySelectorAll('.jp-Notebook :is(.jp-RenderedMarkdown, .jp-OutputArea-output) :is(table, p)')]
        .filter(one => one.checkVisibility())
        .filter(one => one.getBoundingClientRect().right > cell.right || one.scrollWidth > one.clientWidth + 1)
        .map(one => one.outerHTML.slice(0, 200))
}"""
"""The tables and paragraphs of the page that are wider than it, or that scroll sideways."""
CUT = """() => [...document.querySelectorAll('.jp-DirListing-itemText')]
    .filter(one => one.scrollWidth > one.clientWidth || one.firstElementChild?.scrollWidth > one.clientWidth)
    .map(one => one.textContent)"""
"""The names of files that the sidebar cuts."""
BROKEN = """words => {
    const output = document.querySelector('.jp-OutputArea-output')
    const pre = document.createElement('pre')
    pre.style.width = '300px'
    pre.textContent = words
    output.append(pre)
    const rects = found => {
        const range = document.createRange()
        range.setStart(pre.firstChild, found.index)
        range.setEnd(pre.firstChild, found.index + found[0].length)
        return range.getClientRects().length
    }
    const broken = [...words.matchAll(/\\S+/g)].filter(found => rects(found) > 1).map(found => found[0])
    const lines = pre.getClientRects()[0].height / parseFloat(getComputedStyle(pre).lineHeight)
    pre.remove()
    return [broken, lines]
}"""
"""The words of a text that a line of a cell's output breaks, and the number of its lines."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start") / "home"


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with newcomers(home, "minips", "lab") as found:
        yield found


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    yield from opened(chromium, address, 1280)


@pytest.fixture
def narrow_page(chromium: Browser, address: str) -> Iterator[Page]:
    yield from opened(chromium, address, 768)


def opened(browser: Browser, address: str, width: int) -> Iterator[Page]:
    """The page, as it is opened in a window of this width, with a kernel that has started."""
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()
    yield page
    context.close()


def playground(page: Page) -> Locator:
    """The playground, once the bar's ▶ has been clicked."""
    page.locator("[title^='Run this cell']").click()
    panel = page.locator(".minips-playground")
    expect(panel.get_by_role("status")).to_contain_text("Accuracy")
    return panel


def test_one_click_leads_from_minips_lab_to_a_moving_picture(page: Page, address: str) -> None:
    assert "/lab/tree/START.ipynb?" in address
    text = page.locator(".jp-RenderedMarkdown")
    expect(text).to_contain_text("Begin with 00 Train in a minute, ")  # before the click
    page.evaluate(FRAMES)
    panel = playground(page)
    page.wait_for_function("() => window.pictures.size >= 20")
    assert page.evaluate("() => window.clicks") == 1
    expect(panel).to_be_in_viewport()
    expect(page.get_by_text("Begin with 00 Train in a minute, ").and_(page.locator(":visible"))).to_have_count(1)
    page.get_by_role("link", name="00 Train in a minute").and_(page.locator(":visible")).first.click()
    expect(page.get_by_role("heading", name="Train in a minute")).to_be_visible()


def test_ticks_are_right_after_a_restart_of_the_kernel(page: Page, home: Path) -> None:
    panel = playground(page)
    notes = home / ".local/state/minips/progress.jsonl"
    notes.parent.mkdir(parents=True, exist_ok=True)
    notes.write_text(json.dumps({"question": "train.1", "predicted": "about half"}) + "\n")
    try:
        page.locator("[title^='Restart the kernel']").first.click()
        page.locator(".jp-Dialog button", has_text="Restart").click()
        page.wait_for_timeout(2_000)
        expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()
        page.locator(".jp-Cell .cm-content").first.click()
        page.locator("[title^='Run this cell']").click()
        expect(page.locator(".jp-OutputArea").get_by_text("Go on with")).to_be_visible()
        expect(page.locator(".jp-OutputArea tr", has_text="00 Train in a minute")).to_contain_text("1/4")
        expect(panel).to_have_count(1)
    finally:
        notes.unlink()


def test_the_page_and_the_names_beside_it_fit(page: Page) -> None:
    for is_run in (False, True):
        if is_run:
            playground(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(500)
            page.evaluate(DRAWN)
            assert page.evaluate(OUTSIDE) == [], width
            assert [one for one in faults_here(page) if "<html" not in one] == [], width
            assert width < 1280 or page.evaluate(CUT) == [], width
    assert page.locator(".jp-DirListing-itemText").count() > len([*LESSONS.glob("[0-9]*.ipynb")])


def test_it_fits_a_narrow_window(narrow_page: Page) -> None:
    for is_run in (False, True):
        if is_run:
            playground(narrow_page)
        assert narrow_page.evaluate(OUTSIDE) == []
        assert [one for one in faults_here(narrow_page) if "<html" not in one] == []


def test_a_printed_sentence_breaks_between_words(page: Page) -> None:
    playground(page)
    broken, lines = page.evaluate(BROKEN, "This cell waits for your prediction: how many digits are read correctly?")
    assert broken == []
    assert lines > 1.5
