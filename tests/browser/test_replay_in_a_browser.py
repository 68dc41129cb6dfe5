"""A replay in a real browser: a page from a file, without a network, that plays, fits every width and obeys keys."""

from functools import cache
from pathlib import Path

import pytest
from jupyter_page import Lab
from playwright.sync_api import Page, expect
from views_page import faults, faults_here, inaccessible, screenshots

import minips as ps
from minips import lab
from minips.lab.views.recording import Recording

pytestmark = [pytest.mark.outside, pytest.mark.soak]

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, classes=3))
SLOW = ps.Delays(seconds=0.01, slow={3: 3.0})
CONFIG = ps.Config(workers=4, steps=40, link=ps.Link(10e6, 0.001), delays=SLOW)
TIME = "() => document.querySelector('.minips-player input').valueAsNumber"
FRAMES = """() => {
    window.frames = 0
    const moving = document.querySelector('.minips-now').parentNode
    new MutationObserver(() => window.frames++).observe(moving, {childList: true})
}"""


@cache
def run(which: str) -> ps.Run:
    if which == "crowd":
        config = ps.Config(workers=200, steps=5, link=ps.Link(10e6, 0.001))
        return ps.train(PROBLEM, config, engine=ps.Simulated(compute_s=0.05, exponential=True))
    fields = {"bsp": {}, "asp": {"consistency": "asp"}, "ring": {"exchange": "ring"}}[which]
    return ps.train(PROBLEM, CONFIG.with_(fields), engine=ps.Simulated(compute_s=0.01))


def opened(page: Page, folder: Path, *runs: str) -> None:
    lab.replay(*map(run, runs)).to_html(folder / "run.html")
    page.goto((folder / "run.html").as_uri())
    page.wait_for_selector(".minips-lanes text")


def test_one_click_moves_it(view_page: Page, tmp_path: Path) -> None:
    opened(view_page, tmp_path, "bsp", "asp")
    view_page.evaluate(FRAMES)
    before = view_page.evaluate(TIME)
    view_page.get_by_role("button", name="Play").click()
    view_page.wait_for_function("() => window.frames > 20")
    assert view_page.evaluate(TIME) > before
    view_page.wait_for_selector("circle")  # a message on its way
    view_page.get_by_role("button", name="Pause").click()
    still = view_page.evaluate(TIME)
    view_page.wait_for_timeout(200)
    assert view_page.evaluate(TIME) == still


def test_it_plays_to_the_end_and_its_window_follows(view_page: Page, tmp_path: Path) -> None:
    opened(view_page, tmp_path, "asp")
    view_page.get_by_label("speed").select_option(label="real time")
    labels = "() => [...document.querySelectorAll('.minips-lanes text')].map(one => one.textContent).join(' ')"
    before = view_page.evaluate(labels)
    view_page.get_by_role("button", name="Play").click()
    view_page.wait_for_function(f"() => ({TIME})() === 1")
    expect(view_page.get_by_role("button", name="Play")).to_be_visible()
    assert view_page.evaluate(labels) != before


def test_keys_alone_reach_and_use_every_control(view_page: Page, tmp_path: Path) -> None:
    opened(view_page, tmp_path, "bsp")
    controls = view_page.locator(".minips-view :is(button, select, input):visible")
    names = controls.evaluate_all("all => all.map(one => one.ariaLabel || one.textContent)")
    for _ in names:
        view_page.keyboard.press("Tab")
    assert view_page.evaluate("() => document.activeElement.textContent") == names[-1] == "wider"

    times = [view_page.evaluate(TIME)]
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        view_page.keyboard.press(key)
        times.append(view_page.evaluate(TIME))
    assert times[0] < times[1] < times[2]
    assert times[3] == times[1]

    view_page.get_by_role("button", name="the longest wait").focus()
    view_page.keyboard.press("Enter")
    why = view_page.locator(".minips-why")
    longest = Recording(run("bsp")).longest
    assert longest
    expect(why).to_contain_text(f"{longest.who} waits 19.4 ms in step {longest.step} for worker 3.")
    expect(why).to_contain_text("What ended it: worker 3 computes, 30 ms → push and pull of ")
    expect(why).to_have_attribute("aria-live", "polite")
    expect(view_page.locator(".minips-lanes .minips-chain")).to_have_count(2)

    view_page.get_by_role("button", name="next wait").focus()
    for wait in sorted(Recording(run("bsp")).waits, key=lambda wait: wait.start)[longest.step * 3 + 1 :][:4]:
        view_page.keyboard.press("Enter")
        expect(why).to_contain_text(f"{wait.who} waits 19.4 ms in step {wait.step} for worker 3.")

    view_page.get_by_role("button", name="all of it").focus()
    view_page.keyboard.press(" ")
    expect(view_page.locator(".minips-lanes")).to_contain_text("1.2 s")
    view_page.get_by_label("time").focus()
    view_page.keyboard.press(" ")
    expect(view_page.get_by_role("button", name="Pause")).to_be_visible()


def test_a_click_on_a_wait_says_for_whom_it_was(view_page: Page, tmp_path: Path) -> None:
    opened(view_page, tmp_path, "bsp")
    picture = view_page.locator(".minips-lanes").bounding_box()
    waits = view_page.locator(".minips-lanes .minips-wait").nth(1).bounding_box()
    assert picture
    assert waits
    view_page.mouse.click(waits["x"] + 20, waits["y"] + waits["height"] / 2)
    expect(view_page.locator(".minips-why")).to_contain_text("worker 0 waits 19.4 ms in step 16 for worker 3")
    expect(view_page.locator(".minips-chosen")).to_have_count(1)
    view_page.mouse.click(picture["x"] + 300, picture["y"] + 32)  # the server's lane
    expect(view_page.locator(".minips-moment")).to_contain_text("worker 0 is in step")
    before = view_page.evaluate(TIME)
    view_page.keyboard.press("ArrowRight")
    assert view_page.evaluate(TIME) > before


def test_with_reduced_motion_it_steps(view_page: Page, tmp_path: Path) -> None:
    view_page.emulate_media(reduced_motion="reduce")
    opened(view_page, tmp_path, "bsp")
    before = view_page.evaluate(TIME)
    view_page.get_by_role("button", name="Step", exact=True).click()
    after = view_page.evaluate(TIME)
    view_page.wait_for_timeout(300)
    assert before < after == view_page.evaluate(TIME)


@pytest.mark.parametrize("runs", [("bsp", "asp"), ("ring",), ("crowd",)], ids="-".join)
def test_nothing_is_clipped_at_any_width(view_page: Page, tmp_path: Path, runs: tuple[str, ...]) -> None:
    opened(view_page, tmp_path, *runs)
    assert faults(view_page) == []
    assert inaccessible(view_page) == []
    for name in ("the longest wait", "all of it", "closer"):
        button = view_page.get_by_role("button", name=name)
        if name != "the longest wait" or runs != ("crowd",):  # in a density there is no single wait to show
            button.click()
            assert faults(view_page) == [], name
            assert inaccessible(view_page) == [], name
        else:
            expect(button).to_have_count(0)
    screenshots(view_page, tmp_path, "-".join(runs))


def test_in_jupyterlab_it_plays_and_has_its_keys(jupyter: Lab) -> None:
    setup = """import minips as ps
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, classes=3))
config = ps.Config(workers=3, steps=20, link=ps.Link(10e6, 0.001))
run = ps.train(problem, config, engine=ps.Simulated(compute_s=0.01))
ps.lab.replay(run)"""
    jupyter.write("# Below: a replay", setup)
    jupyter.run_all()
    page = jupyter.page
    page.wait_for_selector(".minips-lanes text")
    expect(page.locator(".minips-still")).to_be_hidden()
    assert faults_here(page) == []
    page.get_by_label("time", exact=True).focus()
    times = [page.evaluate(TIME)]
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):  # which JupyterLab also knows, for cells
        page.keyboard.press(key)
        times.append(page.evaluate(TIME))
    assert times[0] < times[1] == times[3] < times[2]
    jupyter.button("Play").click()
    page.wait_for_function(f"() => ({TIME})() > {times[2]}")
    assert jupyter.tracebacks() == 0
