"""The playground as a page from a file, with scrollbars: nothing scrolls sideways, is cut or overlaps."""

from pathlib import Path

import pytest
from playwright.sync_api import Page
from views_page import FAULTS, faults, open_view

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
        assert view_page.evaluate(FAULTS) == [], box
    view_page.get_by_role("button", name="Play").click()
    view_page.wait_for_timeout(1500)
    assert faults(view_page) == []
