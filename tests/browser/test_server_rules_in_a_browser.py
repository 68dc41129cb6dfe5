"""The panel of lesson "server" in a real browser."""

import pytest
from jupyter_page import CLIPPED, Lab
from playwright.sync_api import expect
from test_panels_in_a_browser import CONTRAST, themes
from views_page import WIDTHS, faults_here, inaccessible

pytestmark = [pytest.mark.outside, pytest.mark.soak]


def test_the_rules_are_switched_beside_the_replay(jupyter: Lab) -> None:
    jupyter.write("from minips_course.server import panel\npanel.ServerRules()")
    jupyter.run_all()
    page, shown = jupyter.page, jupyter.page.locator(".minips-panel")
    expect(shown.get_by_text("BSP: 80 pushes in 1.66 virtual s")).to_be_visible()
    expect(shown.get_by_role("button", name="Play")).to_be_visible()
    shown.locator("select").first.select_option("ASP")
    expect(shown.get_by_text("ASP: 80 pushes in 0.58 virtual s")).to_be_visible()
    for theme in themes(jupyter):
        for width in (768, *WIDTHS):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(300)
            assert faults_here(page, ".minips-panel") == [], (theme, width)
            assert page.evaluate(CLIPPED) == [], (theme, width)
        assert page.evaluate(CONTRAST) == [], theme
        assert inaccessible(page, ".minips-panel") == [], theme
    assert jupyter.tracebacks() == 0
