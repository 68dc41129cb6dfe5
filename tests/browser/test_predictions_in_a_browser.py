"""What a learner predicts, answers and is told, in JupyterLab and Notebook 7: shown once, drawn, and said in words."""

import importlib.util
import re
from importlib import import_module
from itertools import product
from pathlib import Path

import nbformat
import pytest
from jupyter_page import CLIPPED, KERNEL, PATIENCE_MS, RESTING_S, Lab, newcomers
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from plain_questions import plain
from playwright.sync_api import Browser, Page, expect
from views_page import DRAWN, THEMES, WIDTHS, faults_here, inaccessible

from minips import lab
from minips.lab.course import QUESTIONS, predictions, state, verdicts
from minips.lab.course.courses import lesson_of
from minips.lab.course.questions import Estimate

pytestmark = [pytest.mark.outside, pytest.mark.soak]

MINE = ":is(.minips-result, .minips-panel)"
"""The boxes of predictions, their results, quizzes and answers."""
CELLS = (
    "from minips import lab",
    'lab.answer("split.2", "shares  distance\\n100     0.2")',
    'lab.quiz("train")',
    'lab.check("train.3", lambda run: 3)',
    'lab.hint("train.3")',
)


LESSON = (
    new_code_cell("import minips as ps\nfrom minips import lab"),
    new_markdown_cell("**Note.** A cell of another form stays:\n\n- one\n- two"),
    new_code_cell("1"),
    new_markdown_cell(plain(QUESTIONS["train.1"])),
    new_code_cell('guess = lab.predict("train.1")'),
    new_markdown_cell(plain(QUESTIONS["wait.1"])),
    new_code_cell('other = lab.predict("wait.1")'),
    new_code_cell("guess.compare(accuracy=0.96)"),
    new_code_cell("other.compare(backup=lab.interval([0.4, 0.5]), ssp=0.9, asp=0.3)"),
    new_code_cell("panel = lab.GradientShards()\npanel"),
    new_code_cell("panel.static()"),
    new_code_cell("""problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, classes=3))
bench = lab.Workbench(problem)
bench.static({"A": ps.train(problem, ps.Config(steps=5), engine=ps.Threads())})
print("One more thing.")"""),
)
"""Cells of a lesson: questions as they are written and asked, results, and panels with their stills."""


@pytest.fixture
def learner(jupyter: Lab) -> Lab:
    return jupyter


def looks(lab_page: Lab, tmp_path: Path, name: str) -> None:
    """In each theme and at each width nothing is clipped, scrolls sideways, or is out of a screen reader's reach."""
    page = lab_page.page
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    for theme in ("Light", "Dark"):
        change = f"() => window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
        page.evaluate(change)
        page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=f"JupyterLab {theme}")
        for width in (768, *WIDTHS):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(300)
            assert faults_here(page, MINE) == [], (theme, width)
            assert page.evaluate(CLIPPED) == [], (theme, width)
            page.screenshot(path=tmp_path / f"{name}-{theme}-{width}.png")
        assert inaccessible(page, MINE) == [], theme


def test_a_question_is_asked_once_and_its_result_is_a_picture(learner: Lab, tmp_path: Path) -> None:
    page, cells = learner.page, learner.page.locator(".jp-Cell")
    nbformat.write(new_notebook(cells=LESSON, metadata={"kernelspec": KERNEL}), learner.folder / "mine.ipynb")
    learner.open("mine.ipynb")
    written = page.locator(".jp-RenderedMarkdown")
    expect(written).to_have_count(3)
    learner.run_all()
    expect(page.locator(".minips-panel .widget-radio")).to_have_count(2)
    expect(written.nth(0)).to_be_visible()
    expect(written.nth(1)).to_be_hidden()
    expect(written.nth(2)).to_be_hidden()
    waits = page.locator(".jp-OutputArea").get_by_text("This cell waits for your prediction").first
    expect(waits).to_have_attribute("role", "status")
    assert waits.evaluate("one => getComputedStyle(one).wordBreak") == "normal"
    for option in ("about half", "SSP, two clocks ahead"):
        page.get_by_label(option).check()
        page.locator("button:enabled", has_text="This is my prediction").click()
        expect(page.get_by_label(option)).to_be_disabled()
    learner.run_all()
    results = page.locator(".minips-result")
    expect(results).to_have_count(2)
    for result, verdict, came in ((results.first, "wrong", 1), (results.last, "right", 0)):
        expect(result.get_by_role("status")).to_contain_text(f"{verdict.capitalize()}. You predicted: ")
        expect(result.locator("[role=img]")).to_have_accessible_name(re.compile(rf"^You predicted: .* is {verdict}\."))
        expect(result.locator(f".words svg.{verdict}")).to_be_visible()
        expect(result.locator(".words", has_text=f"your guess, {verdict}")).to_be_visible()
        expect(result.locator(".words", has_text="came true")).to_have_count(came)
    expect(learner.output(-1)).to_contain_text("One more thing.")
    stills = [cells.nth(number).locator(".jp-OutputArea-child") for number in (-2, -1)]
    for still in stills:
        expect(still.nth(2)).to_be_attached()  # a picture, its text, and what hides both
        for number in range(3):
            expect(still.nth(number)).to_be_hidden()
    expect(stills[1].nth(3)).to_be_visible()
    expect(cells.nth(-2).locator(".cm-content")).to_be_hidden()
    expect(cells.nth(-1).locator(".cm-content")).to_be_visible()
    looks(learner, tmp_path, "predicted")

    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    expect(written.nth(1)).to_be_visible()
    expect(stills[0].first).to_be_visible()
    expect(cells.nth(-2).locator(".cm-content")).to_be_visible()
    said = "getComputedStyle(document.querySelector('.minips-panel'), '::before').content"
    assert page.evaluate(said) == (
        '"The kernel was restarted or ended. Run the cells that import lab, then this cell. '
        'A prediction that is made stays made."'
    )


def test_a_quiz_an_answer_and_a_check_fit_their_page_and_say_what_they_do(learner: Lab, tmp_path: Path) -> None:
    page = learner.page
    learner.write(*CELLS, 'guess = lab.predict("bits.1")', "guess.compare(ratio=8.9)")
    learner.run_all()
    expect(learner.output(4)).to_contain_text("Hint 1 of")
    learner.control("Your two sentences").fill("I would not. The table shows why.")
    learner.button("Keep them").click()
    expect(learner.output(1).get_by_role("status")).to_have_text("It is kept, and goes into the report.")
    for options in page.locator(".widget-radio").all():
        options.locator("input").first.check()
    expect(learner.output(2).get_by_text("Your first answers: ")).to_be_visible()
    notes = learner.output(2).locator(".minips-result")
    expect(notes).to_have_count(5)
    for note in notes.all():
        verdict = "right" if note.inner_text().strip().startswith("Right.") else "wrong"
        expect(note.locator(f"svg.{verdict}")).to_be_visible()
    learner.control("Your prediction (times)").fill("30")
    learner.control("Your prediction (times)").press("Tab")
    learner.button("This is my prediction").click()
    learner.run_cell(6)
    expect(learner.output(6).get_by_role("status")).to_contain_text("They differ: a factor of 3.37.")
    looks(learner, tmp_path, "answered")


def test_the_report_is_right_in_both_themes_at_every_width_and_in_print(
    view_page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(predictions, "_kept", {})
    monkeypatch.setenv("MINIPS_AUTOPLAY", "0")
    for key, values in {"train.1": {"accuracy": 0.96}, "wait.1": {"backup": 0.4, "ssp": 0.9, "asp": 0.3}}.items():
        guess = lab.predict(key)
        guess.choice.value = guess.question.options[0]
        guess.commit()
        guess.compare(**values)
    state.note("answer", "train.1", task="Which?", table="sent  accuracy\n0.15  96.8%" + 99 * " ", text="The second.")
    page = view_page
    page.goto(lab.report(tmp_path, name="Ada Lovelace").path.as_uri())
    expect(page.get_by_label("Name:")).to_have_value("Ada Lovelace")
    expect(page.locator(".minips-result")).to_have_count(2)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in (768, *WIDTHS):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(DRAWN)
            assert faults_here(page, "main > :not(pre)") == [], (theme, width)
            page.screenshot(path=tmp_path / f"report-{theme}-{width}.png", full_page=True)
        assert inaccessible(page, "main") == [], theme
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_each_picture_of_the_lessons_fits_a_narrow_page_and_a_wide_one(view_page: Page, tmp_path: Path) -> None:
    pictures = []
    for key, asked in QUESTIONS.items():
        if isinstance(asked, Estimate):
            low, high = asked.expected
            measured: list[dict[str, float]] = [{"x": low}, {"x": high}]
        else:
            measured = [*import_module(f"minips_course.{lesson_of(key)}.cases").OUTCOMES[key].values()]
        for guess, values in product(getattr(asked, "options", ["0.02", "7", "12345"]), measured):
            known = {name: verdicts.Measured.of(value) for name, value in values.items()}
            pictures.append(verdicts.result(asked, guess, asked.outcome(**values).measured, known))
    page = f"<!doctype html><meta charset=utf-8><style>{verdicts.CSS}</style><main>{''.join(pictures)}</main>"
    (tmp_path / "pictures.html").write_text(page, encoding="utf-8")
    view_page.goto((tmp_path / "pictures.html").as_uri())
    for width in (480, 580, 800):
        view_page.set_viewport_size({"width": width, "height": 900})
        view_page.evaluate(DRAWN)
        assert faults_here(view_page, ".minips-result") == [], width


@pytest.mark.skipif(not importlib.util.find_spec("notebook"), reason='pip install "minips[test]" brings Notebook 7')
def test_notebook_7_asks_once_too(chromium: Browser, tmp_path: Path) -> None:
    with newcomers(tmp_path / "home", "notebook") as address:
        nbformat.write(
            new_notebook(cells=LESSON[:5], metadata={"kernelspec": KERNEL}), tmp_path / "home" / "mine.ipynb"
        )
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(address.replace("/tree", "/notebooks/mine.ipynb"))
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
        page.wait_for_timeout(1e3 * RESTING_S)
        page.locator(".jp-Cell .cm-content").first.click()
        for _ in LESSON[:5]:
            page.keyboard.press("Shift+Enter")
        expect(page.locator(".widget-radio")).to_be_visible()
        expect(page.locator(".jp-RenderedMarkdown", has_text="more than nine in ten")).to_be_hidden()
        expect(page.locator(".jp-RenderedMarkdown", has_text="another form")).to_be_visible()
        page.close()
