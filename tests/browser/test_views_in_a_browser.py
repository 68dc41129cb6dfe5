"""The views in a real browser with scrollbars: they move, fit every width, and are read by the keyboard alone."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from views_page import faults, open_view

from minips.lab.views import View

pytestmark = [pytest.mark.outside, pytest.mark.soak]


def test_a_page_without_a_network_shows_its_data_as_text(view_page: Page, tmp_path: Path) -> None:
    sentence = "Not a </script> tag & not <b>bold</b>."
    open_view(view_page, View("race", {"name": "</script>"}, "<svg></svg>", sentence), tmp_path)
    expect(view_page.get_by_role("status")).to_have_text(sentence)
    assert faults(view_page) == []
