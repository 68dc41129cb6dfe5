"""The panel of lesson "hide" in a real browser."""

import pytest
from jupyter_page import Lab
from playwright.sync_api import expect

pytestmark = [pytest.mark.outside, pytest.mark.soak]


def test_overlap_is_switched_beside_its_picture(jupyter: Lab) -> None:
    jupyter.write("from minips_course.hide import panel\npanel.Overlap()")
    jupyter.run_all()
    shown = jupyter.page.locator(".minips-panel")
    expect(shown.get_by_text("Without overlap a step takes 0.0801 virtual s.")).to_be_visible()
    shown.locator("input[type=checkbox]").check()
    expect(shown.get_by_text("With overlap a step takes 0.0401 virtual s, 2.00 times as fast")).to_be_visible()
    assert jupyter.tracebacks() == 0
