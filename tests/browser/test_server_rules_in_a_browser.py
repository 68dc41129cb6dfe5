"""The panel of lesson "server" in a real browser."""

import pytest
from jupyter_page import Lab
from playwright.sync_api import expect

pytestmark = [pytest.mark.outside, pytest.mark.soak]


def test_the_rules_are_switched_beside_the_replay(jupyter: Lab) -> None:
    jupyter.write("from minips_course.server import panel\npanel.ServerRules()")
    jupyter.run_all()
    shown = jupyter.page.locator(".minips-panel")
    replay = shown.locator(".minips-replay")
    expect(shown.get_by_text("BSP: 80 pushes in 1.66 virtual s")).to_be_visible()
    expect(replay.get_by_role("img", name="BSP")).to_be_visible()
    shown.locator("select").first.select_option("ASP")
    expect(shown.get_by_text("ASP: 80 pushes in 0.58 virtual s")).to_be_visible()
    expect(replay.get_by_role("img", name="ASP")).to_be_visible()
    assert jupyter.tracebacks() == 0
