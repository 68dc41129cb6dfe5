"""The panels in a real browser: every control, both themes, both widths, the keyboard, and what interrupts a run."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import every_panel
import pytest
from jupyter_page import CLIPPED, UNTOLD, Lab
from playwright.sync_api import Locator, expect
from views_page import WIDTHS, faults_here, inaccessible

from minips.lab.course import QUIZZES

pytestmark = [pytest.mark.outside, pytest.mark.soak]

START = """import minips as ps
from minips import lab
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, features=10, classes=3))
"""
LONG = "ps.Config(workers=2, steps=100_000, delays=ps.Delays(seconds=0.01))"
STOP_MS = 2_000
PANELS = [*every_panel.PANELS]

CONTRAST = """() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true})
    const rgba = colour => {
        canvas.clearRect(0, 0, 1, 1)
        canvas.fillStyle = colour
        canvas.fillRect(0, 0, 1, 1)
        return canvas.getImageData(0, 0, 1, 1).data
    }
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
    const over = (above, below) => [0, 1, 2].map(i => (above[i] * above[3] + below[i] * (255 - above[3])) / 255)
    const behind = one => {
        const layers = []
        for (let at = one; at; at = at.parentElement) layers.unshift(rgba(getComputedStyle(at).backgroundColor))
        return layers.reduce((below, above) => over(above, below), [255, 255, 255])
    }
    const poor = []
    for (const panel of document.querySelectorAll('.minips-panel'))
        for (const one of panel.querySelectorAll('*')) {
            const told = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
                || one.matches('input[type=text], select, .minips-picture path:not([opacity])')
            const drawn = one.offsetParent !== null && !one.closest('.minips-told, .minips-look, option, style')
            if (!told || !drawn) continue
            let faded = 1
            for (let at = one; at; at = at.parentElement) faded *= getComputedStyle(at).opacity
            const paper = behind(one), ink = rgba(getComputedStyle(one).color)
            const [a, b] = [light(paper), light(over([ink[0], ink[1], ink[2], ink[3] * faded], paper))]
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
            if (ratio < 4.5) poor.push(ratio.toFixed(2) + ' ' + one.outerHTML.slice(0, 160))
        }
    return poor
}"""
"""The texts and the marks of the panels whose contrast with what is behind them is below 4.5 (WCAG 2.2, 1.4.3 and, more
than it asks of marks, 1.4.11), as pieces of HTML."""
WHERE = """() => document.activeElement.getBoundingClientRect().y
    - (document.activeElement.closest('.minips-panel')?.getBoundingClientRect().y ?? 0)"""
"""How far below the top of its panel what has the focus is."""
LETTERS = """() => [...document.querySelectorAll('.minips-panel img')].filter(one => one.offsetParent !== null)
    .map(one => [8 * 110 / 72 * one.getBoundingClientRect().width / one.naturalWidth, one.alt.length])"""
"""Of each picture that is shown: how high its smallest letters are (8 points), in pixels, and how long its alt text."""


def themes(jupyter: Lab) -> Iterator[str]:
    """Each theme, once the page wears it."""
    for theme, is_light in (("Dark", "false"), ("Light", "true")):
        jupyter.page.evaluate(
            f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
        )
        jupyter.page.wait_for_selector(f"body[data-jp-theme-light='{is_light}']", state="attached")
        jupyter.page.wait_for_timeout(500)
        yield theme


def looked_at(jupyter: Lab) -> None:
    """In both themes and at both widths nothing is cut, all text can be read, and every picture has words."""
    for theme in themes(jupyter):
        assert jupyter.page.evaluate(CONTRAST) == [], theme
        for width in (1280, 768):
            jupyter.page.set_viewport_size({"width": width, "height": 900})
            jupyter.page.wait_for_timeout(300)
            assert jupyter.page.evaluate(CLIPPED) == [], (theme, width)
            for pixels, words in jupyter.page.evaluate(LETTERS):
                assert pixels >= 9, (theme, width)
                assert words > 20
    jupyter.page.set_viewport_size({"width": 1280, "height": 900})


def tried(panel: Locator, control: Locator) -> None:
    """A control takes what makes sense, and says what is wrong with what does not, which stays as it was typed."""
    kind = control.evaluate("one => one.matches('select') ? 'select' : one.type")
    wrong = panel.locator(".minips-wrong:visible")
    if kind == "select":
        chosen = control.input_value()
        options = control.locator("option").evaluate_all("all => all.map(one => one.value)")
        for option in [*[one for one in options if one != chosen][:1], chosen]:
            control.select_option(option)
            settled(panel)  # the fields of what was chosen come
    elif kind == "checkbox":
        for _ in range(2):
            control.click()
    elif kind == "range":
        number = panel.get_by_label((control.get_attribute("aria-label") or "").removesuffix(", slider"), exact=True)
        for key in ("ArrowRight", "ArrowLeft"):
            control.press(key)
            settled(panel)
            expect(number).to_have_value(control.evaluate("one => one.ariaValueText"))
    else:
        before = control.input_value()
        for senseless in ("many", "-7e9"):
            control.fill(senseless)
            control.press("Enter")
            expect(wrong).to_have_count(1)
            expect(wrong).to_contain_text(f"got {senseless!r}." if senseless == "many" else "got -7000000000.")
            expect(control).to_have_value(senseless)
        control.fill(before and f"{float(before):.3e}")
        control.press("Enter")
        expect(wrong).to_have_count(0)
        control.fill(before)
        control.press("Enter")


def settled(panel: Locator) -> None:
    """The kernel has dealt with what the page's widgets sent, and the page shows it."""
    panel.page.wait_for_function("() => window.unanswered.size === 0")
    panel.page.wait_for_timeout(200)  # the views of new widgets are made after their messages


CONTROLS = ":is(select, input):visible:not(.race *, .minips-replay *)"
"""The controls of a form; those of the race and of the replay play, and are tested with the views."""
SHOWN = ".minips-picture svg:visible, .race:visible, .minips-replay:visible"
"""What panels show."""


SLIDERS = "input[type=range]:visible:not(.race *, .minips-replay *)"


def every_control(panel: Locator) -> list[Locator]:
    """In the order of the page. A stage's own fields come and go with it, so each is looked up again by its place."""
    count = panel.locator(CONTROLS).count()
    return [panel.locator(CONTROLS).nth(at) for at in range(count)]


def show_all(jupyter: Lab) -> Locator:
    """A notebook with all panels, which have no picture yet if they need Run."""
    jupyter.write(
        START + every_panel.IMPORTS + "from IPython.display import display",
        f"display({', '.join(f'{name}()' for name in PANELS)})",
    )
    jupyter.run_all()
    all_panels = jupyter.page.locator(".minips-panel")
    expect(all_panels).to_have_count(len(PANELS))
    return all_panels


def test_every_panel_at_every_width_in_both_themes(jupyter: Lab) -> None:
    """Nothing scrolls sideways, is cut or lies over something else, axe finds nothing, and Tab reaches all controls."""
    page, all_panels = jupyter.page, show_all(jupyter)
    for run in all_panels.get_by_role("button", name="Run ").all():
        run.click()
        expect(run).to_be_enabled()
    expect(all_panels.locator(SHOWN)).to_have_count(len(PANELS))
    expect(all_panels.get_by_role("status")).to_have_count(2 * len(PANELS))  # its message and its sentence
    expect(all_panels.get_by_role("progressbar")).to_have_count(2)
    for theme in themes(jupyter):
        for width in (768, *WIDTHS):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(300)
            assert faults_here(page, ".minips-panel") == [], (theme, width)
            assert page.evaluate(CLIPPED) == [], (theme, width)
        assert page.evaluate(CONTRAST) == [], theme
        assert inaccessible(page, ".minips-panel") == [], theme
    for panel in all_panels.all():
        controls = every_control(panel)
        controls[0].focus()
        for control in controls[1:]:
            page.keyboard.press("Tab")
            expect(control).to_be_focused()
    assert jupyter.tracebacks() == 0


@pytest.mark.campaign
def test_every_control_of_every_panel(jupyter: Lab) -> None:
    all_panels = show_all(jupyter)
    assert jupyter.page.evaluate(UNTOLD) == []
    for panel in all_panels.all():
        title = panel.locator("b").first.inner_text().lower()
        run = jupyter.button(f"Run {title}")
        if run.count():
            run.click()
            expect(run).to_be_enabled()
        expect(panel.locator(SHOWN)).to_have_count(1)
        controls = every_control(panel)
        assert len(controls) >= 2
        for control in controls:
            tried(panel, control)
            expect(panel.get_by_role("alert")).to_have_count(0)
        panel.locator("summary").click()
        assert panel.locator("details tr").count() == len(controls) - panel.locator(SLIDERS).count()
    looked_at(jupyter)
    assert jupyter.tracebacks() == 0


@pytest.mark.campaign
def test_every_control_of_the_workbench(jupyter: Lab) -> None:
    jupyter.write(f'{START}lab.Workbench(problem, ps.Config(workers=3, steps=4), engine="threads")')
    jupyter.run_all()
    jupyter.button("Run").click()
    expect(jupyter.page.get_by_text("× A's bytes")).to_be_visible()
    expect(jupyter.button("Run")).to_be_enabled()
    panel = jupyter.page.locator(".minips-panel")
    panel.get_by_text("More", exact=True).click()
    panel.get_by_text("The configs as code", exact=True).click()
    panel.locator("summary").click()
    assert jupyter.page.evaluate(UNTOLD) == []
    code = panel.locator("pre").all_inner_texts()
    controls = every_control(panel)
    assert len(controls) > 60
    for control in controls:
        tried(panel, control)
    expect(panel.get_by_role("alert")).to_have_count(0)
    expect(panel.locator("pre")).to_have_text(code)
    for tab in panel.get_by_role("tab").all():
        tab.click()
        looked_at(jupyter)
    for preset in panel.get_by_label("Preset").locator("option").all_inner_texts()[1:]:
        jupyter.control("Preset").select_option(preset)
        expect(panel.locator(".minips-differs:visible").first).to_be_visible()
        expect(panel.get_by_role("alert")).to_have_count(0)
    assert jupyter.tracebacks() == 0


def test_the_keyboard_alone(jupyter: Lab) -> None:
    guess = 'guess = lab.predict("trust.1")'
    jupyter.write(START + guess, f"lab.Workbench(problem, {LONG}, predict=False)")
    jupyter.run_all()
    page = jupyter.page
    options = page.get_by_role("radio")
    options.first.focus()
    for key in ("Tab", "Space"):
        page.keyboard.press(key)
    expect(jupyter.button("This is my prediction")).to_be_enabled()
    for key in ("Tab", "Tab", "Enter"):
        page.keyboard.press(key)
    expect(options.nth(1)).to_be_disabled()
    expect(options.nth(1)).to_be_checked()

    run, stop = jupyter.button("Run"), jupyter.button("Stop")
    page.locator(".minips-panel").nth(1).locator("button, select, input").first.focus()
    presses = 0
    while not run.evaluate("one => one === document.activeElement"):
        page.keyboard.press("Tab")
        presses += 1
        assert presses <= 25
    page.keyboard.press("Enter")
    expect(stop).to_be_focused()
    expect(page.get_by_text("A is at").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_text("A (stopped):")).to_be_visible()
    expect(run).to_be_focused()  # to run again

    rows = []
    for _ in range(30):
        page.keyboard.press("Tab")
        rows.append(page.evaluate(WHERE))
    assert rows[-1] > 400
    assert all(below >= above - 60 for above, below in itertools.pairwise(rows)), "Tab goes down the page"


def test_stop_ten_times(jupyter: Lab) -> None:
    """At moments that differ: while it is calibrated, while it starts, while it trains."""
    jupyter.write(f"{START}bench = lab.Workbench(problem, {LONG})\nbench")
    jupyter.run_all()
    run, stop = jupyter.button("Run"), jupyter.button("Stop")
    jupyter.page.get_by_text("More", exact=True).click()
    limit_ms = STOP_MS
    for turn in range(10):
        if turn == 5:
            jupyter.control("Predict each run").uncheck()
        pressed = time.monotonic()
        run.click()
        expect(run).to_be_disabled()
        answered_ms = 1e3 * (time.monotonic() - pressed)
        jupyter.page.wait_for_timeout(200 * turn)
        stop.click()
        limit_ms = max(limit_ms, 10 * answered_ms)  # where the machine is busy, all takes longer
        expect(run).to_be_enabled(timeout=limit_ms)
        assert jupyter.spawned() == [], turn
    assert jupyter.tracebacks() == 0


def running(jupyter: Lab) -> None:
    """A notebook whose workbench trains for a long time."""
    jupyter.write(f"{START}bench = lab.Workbench(problem, {LONG}, predict=False)\nbench")
    jupyter.run_all()
    begun(jupyter)


def begun(jupyter: Lab) -> float:
    """Run is pressed, and the first curve is there after so many milliseconds."""
    pressed = time.monotonic()
    jupyter.button("Run").click()
    expect(jupyter.page.get_by_text("A is at").first).to_be_visible()
    assert jupyter.spawned()
    return 1e3 * (time.monotonic() - pressed)


def stopped(jupyter: Lab, start_ms: float) -> None:
    """Stop works within two seconds, or as long as the start took where the machine is busy; nothing is left."""
    jupyter.button("Stop").click()
    expect(jupyter.page.get_by_text("A (stopped):")).to_be_visible(timeout=max(STOP_MS, start_ms))
    assert jupyter.spawned() == []


def works_again(jupyter: Lab) -> None:
    """The cell, run again, has a panel that runs and stops."""
    jupyter.run_cell(0)
    expect(jupyter.button("Run")).to_be_enabled()
    expect(jupyter.page.get_by_text("A is at")).to_have_count(0)
    stopped(jupyter, begun(jupyter))
    assert jupyter.tracebacks() == 0


def gone(jupyter: Lab) -> None:
    for _ in range(100):
        if not jupyter.spawned():
            return
        jupyter.page.wait_for_timeout(100)
    pytest.fail(f"still there: {jupyter.spawned()}")


def test_a_page_loaded_anew_finds_its_run(jupyter: Lab) -> None:
    running(jupyter)
    jupyter.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    loaded = time.monotonic()
    jupyter.open("mine.ipynb")
    words = jupyter.page.get_by_text("A is at").first
    expect(words).to_be_visible()
    expect(words).not_to_have_text(words.inner_text())  # it goes on
    assert jupyter.spawned()
    stopped(jupyter, 1e3 * (time.monotonic() - loaded))
    works_again(jupyter)


def test_a_page_loaded_anew_that_lost_its_panel_stops_the_run(jupyter: Lab) -> None:
    running(jupyter)
    jupyter.open("mine.ipynb")  # as it was saved, without the panel
    gone(jupyter)
    works_again(jupyter)


def test_the_cell_run_again_stops_the_old_run(jupyter: Lab) -> None:
    running(jupyter)
    jupyter.run_cell(0)
    gone(jupyter)
    works_again(jupyter)


def test_the_kernel_interrupted_stops_the_run(jupyter: Lab) -> None:
    running(jupyter)
    jupyter.page.get_by_role("button", name="Interrupt the kernel").click()
    expect(jupyter.page.get_by_text("A (stopped):")).to_be_visible()
    gone(jupyter)
    works_again(jupyter)


def test_the_kernel_restarted_says_what_to_do(jupyter: Lab) -> None:
    running(jupyter)
    jupyter.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    panel = jupyter.page.locator(".minips-panel")
    expect(panel).to_contain_class("jupyter-widgets-disconnected")
    said = panel.evaluate("one => getComputedStyle(one, '::before').content")
    assert said == '"The kernel was restarted or ended. Run the cells above, then this one."'
    expect(panel.locator("button:visible, select:visible, img:visible")).to_have_count(0)
    gone(jupyter)
    works_again(jupyter)


ASK = """from minips import lab
from minips.lab.course.questions import estimate
estimate("cost.91", "How long does the step take?", "ms", expected=(10.0, 30.0), because="Its bytes need 20 ms.",
         otherwise="It took another time.", timed=True)
guess = lab.predict("cost.91")"""
TABLE = """from minips.lab.course.questions import prompt
prompt("trust.91", "Which rule do you choose? Two sentences.", "The median, at 0.91.", kind="single", by="say trust.7")
lab.answer("trust.91", "rule      accuracy\\nmean          0.20\\nmedian        0.91")"""


def test_a_number_an_answer_a_quiz_and_the_report(jupyter: Lab, tmp_path: Path) -> None:
    page = jupyter.page
    jupyter.write(ASK, "took_ms = 26.0\nguess.compare(took_ms=took_ms)", TABLE, "lab.quiz('trust')", "lab.report()")
    for cell in (0, 1, 2, 3):
        jupyter.run_cell(cell)
    mine = jupyter.control("Your prediction (ms)")
    commit = jupyter.button("This is my prediction")
    expect(commit).to_be_disabled()
    mine.fill("much")
    expect(commit).to_be_disabled()
    mine.fill("20")
    commit.click()
    expect(mine).to_be_disabled()
    jupyter.run_cell(1)
    expect(jupyter.output(1)).to_contain_text("They are near each other: a factor of 1.3.")

    keep, box = jupyter.button("Keep them"), jupyter.control("Your two sentences")
    keep.click()
    expect(jupyter.output(2)).to_contain_text("There is nothing to keep yet.")
    box.fill("The median reads 0.91. The mean, at 0.20, is <b>no</b> choice.")
    keep.click()
    expect(jupyter.output(2)).to_contain_text("It is kept, and goes into the report.")

    quiz = jupyter.output(3)
    asked = quiz.locator(".widget-radio")
    for number, item in enumerate(QUIZZES["trust"]):
        asked.nth(number).get_by_label(item.right, exact=True).check()
        expect(quiz).to_contain_text(item.explained[item.right])
    expect(quiz).to_contain_text("Your first answers: 5 of 5 right.")
    wrong = next(option for option in QUIZZES["trust"][0].explained if option != QUIZZES["trust"][0].right)
    asked.first.get_by_label(wrong, exact=True).check()
    expect(quiz.locator("svg.mark.wrong + b")).to_have_text("No.")
    looked_at(jupyter)
    page.screenshot(path=tmp_path / "cells.png", full_page=True)

    jupyter.run_cell(4)
    expect(jupyter.output(4).get_by_role("link", name="report.html")).to_be_visible()
    assert jupyter.tracebacks() == 0
    written = jupyter.folder / "report.html"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(written.as_uri())
        expect(page.get_by_role("heading", name="18 Trust nobody")).to_be_visible()
        expect(page.locator("blockquote")).to_have_text(
            "The median reads 0.91. The mean, at 0.20, is <b>no</b> choice."
        )
        expect(page.get_by_text("Quiz: 5 of 5 right at the first answer.")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.screenshot(path=tmp_path / f"report-{scheme}.png", full_page=True)
    page.emulate_media(color_scheme="light")
