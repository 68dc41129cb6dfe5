"""What a learner does, in a real browser: lesson 00, the workbench, an exercise, a stage of one's own, the ■ button."""

import time
from pathlib import Path

import psutil
import pytest
from jupyter_page import CLIPPED, PATIENCE_MS, Lab, newcomers
from playwright.sync_api import Browser, expect

import minips as ps
from minips.lab.columns import FIRST, STAGES, row_label

pytestmark = [pytest.mark.outside, pytest.mark.soak]

BENCH = """from dataclasses import dataclass
import numpy as np
import minips as ps
from minips import lab
problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, features=10, classes=3))
"""
QUANTIZER = """@ps.register
@dataclass(frozen=True)
class Halves(ps.Quantizer):
    name = "halves"
    factor: float = ps.option(2.0, "what to divide by", minimum=1, maximum=4)

    def encode(self, x, rng):
        return {"half": np.asarray(x / self.factor, x.dtype), "factor": np.array([self.factor])}

    def decode(self, parts):
        return np.asarray(parts["half"] * parts["factor"][0], parts["half"].dtype)
"""


def test_a_learner_predicts_and_sees_the_result(jupyter: Lab) -> None:
    jupyter.open("00_train_in_a_minute.ipynb")
    page, outputs = jupyter.page, jupyter.page.locator(".jp-OutputArea")

    jupyter.run_all()  # to the last cell: those that wait for a prediction say so and are skipped
    expect(outputs.get_by_text("This cell waits for your prediction").first).to_be_visible()
    expect(outputs.get_by_text("You predicted")).to_have_count(0)
    for option in ("more than nine in ten", "it stays within 3 percentage points"):
        page.get_by_label(option).check()
        jupyter.button("This is my prediction").locator("visible=true").and_(page.locator(":enabled")).first.click()
        expect(page.get_by_label(option)).to_be_disabled()  # it is final

    jupyter.run_all()
    expect(outputs.get_by_text("You predicted").nth(1)).to_be_visible()
    expect(outputs.get_by_text("This cell waits for your prediction")).to_have_count(0)


def test_a_learner_swaps_a_stage_in_the_workbench_and_sees_the_result(jupyter: Lab, tmp_path: Path) -> None:
    sparse = "push=ps.Codec(quantizer=ps.TopK(fraction=0.05), memory=ps.ErrorFeedback())"
    jupyter.write(
        "import minips as ps\nfrom minips import lab",
        "problem = ps.SoftmaxRegression(*ps.datasets.digits())",
        f"lab.Workbench(problem, [ps.Config(steps=200), ps.Config(steps=200, {sparse})], predict=False)",
    )
    page, outputs = jupyter.page, jupyter.page.locator(".jp-OutputArea")
    jupyter.run_all()
    quantizer = jupyter.control("B quantizer")
    quantizer.scroll_into_view_if_needed()
    quantizer.select_option("sign")
    expect(jupyter.control("B quantizer fraction")).to_have_count(0)
    jupyter.button("Run").click()
    results = page.locator(".minips-panel table", has_text="Results")
    expect(results).to_contain_text("Sign()")
    expect(results).to_contain_text("accuracy")
    expect(outputs.get_by_text("× A's bytes").first).to_be_visible()
    expect(jupyter.button("Run")).to_be_enabled()
    for width in (1280, 768):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(500)
        for tab in ("Results", "Where the time goes", "Timeline", "Staleness", "All runs"):
            page.get_by_role("tab", name=tab).click()
            page.screenshot(path=tmp_path / f"{width}-{len(list(tmp_path.iterdir()))}.png")
            assert page.evaluate(CLIPPED) == []

    jupyter.control("B consistency backup").fill("9")
    jupyter.control("B consistency backup").press("Enter")
    expect(outputs.get_by_role("alert").first).to_contain_text("needs more than 9 workers")


@pytest.mark.parametrize(
    ("command", "asked"), [(("minips", "lab"), 0), (("jupyterlab",), 1)], ids=["minips lab", "JupyterLab as it comes"]
)
def test_no_question_covers_the_first_lesson(
    chromium: Browser, tmp_path: Path, command: tuple[str, ...], asked: int
) -> None:
    with newcomers(tmp_path / "home", *command) as address:
        page = chromium.new_page()
        page.goto(address)
        expect(page.locator(".jp-Launcher, .jp-Notebook").first).to_be_visible()
        if asked:
            expect(page.get_by_text("official Jupyter news")).to_have_count(1)
        page.wait_for_timeout(3_000)
        assert page.get_by_text("official Jupyter news").count() == asked
        page.close()


def test_the_first_screen_of_the_workbench_holds_all_that_a_first_run_needs(jupyter: Lab) -> None:
    page = jupyter.page
    page.set_viewport_size({"width": 1280, "height": 800})
    jupyter.write(f'{BENCH}lab.Workbench(problem, [ps.Config(), ps.Config(push=ps.Codec("topk"))], predict=False)')
    jupyter.run_all()
    jupyter.button("Run").click()
    curves = page.locator(".minips-panel img:visible").first
    expect(curves).to_be_visible()
    expect(jupyter.button("Run")).to_be_enabled()
    page.evaluate("document.querySelector('.minips-panel').scrollIntoView()")
    page.wait_for_timeout(500)
    notebook = page.locator(".jp-WindowedPanel-outer").first.bounding_box()
    names = [f"{side} {row_label(name)}" for side in "AB" for name in FIRST]
    wanted = [jupyter.button("Run"), jupyter.button("Stop"), curves, *map(jupyter.control, names)]
    for one in wanted:
        box = one.bounding_box()
        assert notebook["y"] <= box["y"], one
        assert box["y"] + box["height"] <= notebook["y"] + notebook["height"], one
    assert page.locator(".minips-differs:visible").count() == 3  # the name, and what A and B say


@pytest.mark.campaign
def test_every_option_of_every_dropdown_runs(jupyter: Lab) -> None:
    bench = 'lab.Workbench(problem, ps.Config(workers=8, steps=2), engine="threads", predict=False)'
    jupyter.write(BENCH + bench)
    jupyter.run_all()
    jupyter.control("Columns to run").select_option("A only")
    jupyter.page.get_by_text("More", exact=True).click()
    log = jupyter.output(0).locator("table", has_text="Outcome")
    runs = 0

    def run(**chosen: str) -> None:
        nonlocal runs
        for label, name in chosen.items():
            jupyter.control(f"A {label.replace('_', ' ')}").select_option(name)
        jupyter.button("Run").click()
        runs += 1
        expect(log.locator("tr").nth(runs)).to_be_attached()
        expect(log.locator("tr")).to_have_count(runs + 1)
        expect(jupyter.output(0).get_by_role("alert")).to_have_count(0)

    paths = {label.replace(" ", "_"): path for label, path in STAGES.items()}
    alone = ("exchange", "consistency", "aggregator")  # each with the usual others: they have conditions
    together = {label: ps.names(path[-1]) for label, path in paths.items() if label not in alone}
    for turn in range(max(map(len, together.values()))):
        chosen = {label: options[turn % len(options)] for label, options in together.items()}
        for side in ("", "pull_"):
            if chosen[f"{side}quantizer"] == "randomk":  # as it comes, it is unbiased, and refused under a memory
                chosen[f"{side}memory"] = "none"
        run(**chosen)
    run(**{label: options[0] for label, options in together.items()})
    for label in alone:
        for name in ps.names(paths[label][-1])[1:]:
            run(**{label: name})
        run(**{label: ps.names(paths[label][-1])[0]})
    assert jupyter.tracebacks() == 0


def test_run_stop_and_run_again(jupyter: Lab) -> None:
    config = "ps.Config(workers=2, steps=100_000, delays=ps.Delays(seconds=0.01))"
    jupyter.write(f"{BENCH}lab.Workbench(problem, {config}, predict=False)")
    jupyter.run_all()
    output, before = jupyter.output(0), ""
    words = output.get_by_text("A is at")
    late_s = []
    for turn in (1, 2):
        jupyter.button("Run").focus()
        pressed = time.monotonic()
        jupyter.page.keyboard.press("Enter")  # as somebody without a mouse does
        expect(words).to_be_visible()
        expect(words).not_to_have_text(before)
        expect(jupyter.button("Run")).to_be_disabled()
        while not jupyter.spawned():  # the curve of the run before may have been drawn once more
            assert time.monotonic() - pressed < PATIENCE_MS / 1e3
            time.sleep(0.05)
        start_s = time.monotonic() - pressed
        jupyter.button("Stop").click()
        clicked = time.monotonic()
        expect(output.get_by_text("A (stopped):")).to_be_visible()
        late_s.append(time.monotonic() - clicked - max(2, start_s))  # as long as the start where the machine is busy
        expect(jupyter.button("Run")).to_be_enabled()
        assert jupyter.spawned() == []
        before = words.inner_text()
        expect(output.locator("table", has_text="Outcome").locator("tr")).to_have_count(1 + turn)
        jupyter.page.get_by_role("tab", name="All runs").click()
        expect(output.locator("a", has_text="CSV")).to_be_visible()
        if turn == 1:
            jupyter.page.get_by_text("More", exact=True).click()
        jupyter.control("A seed").fill(str(turn))
        jupyter.control("A seed").press("Enter")
        expect(output.locator("pre").first).to_contain_text(f"seed={turn}")
    assert min(late_s) <= 0  # other work on the machine can only make one of the turns slower
    with jupyter.page.expect_download() as download:
        output.locator("a", has_text="CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("number,column,training_loss,seconds")


def test_a_quantizer_of_ones_own_is_chosen_and_run(jupyter: Lab) -> None:
    jupyter.write(f"{BENCH}lab.Workbench(problem, ps.Config(workers=2, steps=5))", QUANTIZER)
    jupyter.run_cell(0)
    expect(jupyter.control("B quantizer").locator("option", has_text="exact")).to_have_count(1)
    expect(jupyter.control("B quantizer").locator("option", has_text="halves")).to_have_count(0)
    jupyter.run_cell(1)
    expect(jupyter.control("B quantizer").locator("option", has_text="halves")).to_have_count(1)
    jupyter.control("B quantizer").select_option("halves")
    expect(jupyter.control("B quantizer factor")).to_have_value("2")
    jupyter.button("Run").click()
    results = jupyter.output(0).locator("table", has_text="Results")
    expect(results).to_contain_text("Halves(factor=2.0)")

    jupyter.run_cell(1, QUANTIZER.replace("return {", "raise ValueError('out of ink'); return {"))
    expect(jupyter.page.locator(".jp-InputPrompt").nth(1)).to_have_text("[3]:")
    jupyter.button("Run").click()
    expect(jupyter.output(0).get_by_role("alert").first).to_contain_text("out of ink")
    expect(jupyter.button("Run")).to_be_enabled()
    assert jupyter.tracebacks() == 0


def test_an_exercise_is_failed_and_then_solved(jupyter: Lab) -> None:
    wrong = "def bytes_per_push(run):\n    return run.bytes_sent"
    jupyter.write("from minips import lab", wrong, 'lab.check("train.3", bytes_per_push)', "lab.progress()")
    jupyter.run_all()
    expect(jupyter.output(2)).to_contain_text("✗ train.3: not yet.")
    expect(jupyter.output(2)).to_contain_text("A hint: lab.hint(")
    expect(jupyter.output(3)).to_contain_text("0 of 2")
    jupyter.run_cell(1, "bytes_per_push = lambda run: run.bytes_sent / run.updates")
    jupyter.run_cell(2)
    expect(jupyter.output(2)).to_contain_text("✓ train.3 is done.")
    jupyter.run_cell(3)
    expect(jupyter.output(3)).to_contain_text("1 of 2 (train.3)")
    jupyter.run_cell(1, "def bytes_per_push(run):\n    while True:\n        pass")
    jupyter.run_cell(2)
    expect(jupyter.output(2)).to_contain_text("It was stopped after 20 seconds. Does a loop never end?")
    expect(jupyter.output(2)).to_contain_text("of your cell: ")
    jupyter.run_cell(3)
    expect(jupyter.output(3)).to_contain_text("1 of 2 (train.3)")


def test_the_stop_button_of_the_notebook(jupyter: Lab) -> None:
    config = "ps.Config(workers=2, steps=100_000, delays=ps.Delays(seconds=0.01))"
    jupyter.write(
        f"{BENCH}run = ps.train(problem, {config}, progress=lambda now: print('under way') if now.applied else None)",
        f"bench = lab.Workbench(problem, {config}, predict=False)\nbench",
    )
    jupyter.run_cell(0)
    expect(jupyter.output(0).get_by_text("under way").first).to_be_visible()
    started = jupyter.spawned()
    assert len(started) == 4  # a server, two workers, and the process that they are forked from
    stop = jupyter.page.get_by_role("button", name="Interrupt the kernel")
    stop.click()
    expect(jupyter.output(0)).to_contain_text("The run was interrupted; all that it started has ended.")
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive

    jupyter.wait_for_rest()  # an interrupted kernel, too, may miss the page for a while
    jupyter.run_cell(1, f"from minips import lab\nbench = lab.Workbench(problem, {config}, predict=False)\nbench")
    jupyter.button("Run").click()
    expect(jupyter.output(1).get_by_text("A is at").first).to_be_visible()
    stop.click()  # the run has a thread of its own, which goes on until Stop is pressed
    jupyter.button("Stop").click()
    expect(jupyter.output(1).get_by_text("A (stopped):")).to_be_visible()
    expect(jupyter.button("Run")).to_be_enabled()
    assert jupyter.spawned() == []
    assert jupyter.tracebacks() == 0
