"""The playground as a page from a file, with scrollbars: nothing scrolls sideways, is cut or overlaps."""

from pathlib import Path

import pytest
from playwright.sync_api import Page
from views_page import faults, faults_here, inaccessible, looks, open_view

from minips import lab
from minips.lab.views.pipeline import BOXES, SETTINGS

pytestmark = [pytest.mark.outside, pytest.mark.soak]


@pytest.mark.parametrize("setting", [None, *[*SETTINGS][:3]])
def test_a_page_from_a_file_fits_in_both_themes(view_page: Page, tmp_path: Path, setting: str | None) -> None:
    play = lab.playground()
    if setting:
        play.answer({"do": "choose", "setting": setting})
        assert play.wait(60)
    for box in BOXES:
        play.answer({"do": "open", "box": box})
        open_view(view_page, play.view, tmp_path)
        assert faults_here(view_page) == [], box
    view_page.get_by_role("button", name="Play").click()
    view_page.wait_for_timeout(1500)
    assert faults(view_page) == []


def test_axe_finds_nothing_in_both_themes(view_page: Page, tmp_path: Path) -> None:
    play = lab.playground()
    play.answer({"do": "choose", "setting": next(iter(SETTINGS))})
    assert play.wait(60)
    play.answer({"do": "change", "path": "aggregator", "to": "tokp"})
    open_view(view_page, play.view, tmp_path)
    for look in looks(view_page):
        assert inaccessible(view_page) == [], look
    view_page.get_by_role("button", name="Play").click()
    view_page.wait_for_timeout(1500)
    view_page.get_by_role("button", name="Pause").click()
    for look in looks(view_page):
        assert inaccessible(view_page) == [], look


def test_less_motion_steps_from_event_to_event(view_page: Page, tmp_path: Path) -> None:
    view_page.emulate_media(reduced_motion="reduce")
    open_view(view_page, lab.playground().view, tmp_path)
    clock = view_page.get_by_label("time", exact=True)
    dots = view_page.locator(".minips-playground circle")
    assert dots.count() == 0  # the whole run is shown
    times = set()
    for _ in range(5):
        view_page.get_by_role("button", name="Step").click()
        times.add(clock.input_value())
    assert len(times) == 5
    assert dots.count() > 0
    still = clock.input_value()
    view_page.wait_for_timeout(300)
    assert clock.input_value() == still
