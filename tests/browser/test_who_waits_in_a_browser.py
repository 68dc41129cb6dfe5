"""The panel of lesson "wait" in a real browser."""

import pytest
from jupyter_page import Lab
from playwright.sync_api import expect

pytestmark = [pytest.mark.outside, pytest.mark.soak]


def test_the_rule_and_the_slowness_are_chosen_beside_the_replay(jupyter: Lab) -> None:
    jupyter.write("from minips_course.wait import panel\npanel.WhoWaits()")
    jupyter.run_all()
    shown = jupyter.page.locator(".minips-panel")
    expect(shown.get_by_text("SSP(staleness=2), 4 workers: 80 updates in 1.46 virtual s")).to_be_visible()
    expect(shown.locator(".minips-replay").get_by_role("img", name="SSP")).to_be_visible()
    shown.locator("select").first.select_option("asp")
    expect(shown.get_by_text("ASP(), 4 workers: 80 updates in 0.50 virtual s")).to_be_visible()
    assert jupyter.tracebacks() == 0
