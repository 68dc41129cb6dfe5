"""The lessons as they are saved, and run from the first cell to the last in a fresh kernel."""

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import pages
import pytest
from claims import lines_of
from execute_lessons import MEASURED
from minutes import FOLDED_LINES
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError
from plumbing import count_lines, is_plumbing

from minips.lab.course import QUESTIONS
from minips.lab.course.courses import chosen
from minips.lab.course.grading import with_a_kernel
from minips.lab.course.lessons import arguments, blanked

LESSONS = sorted((Path(__file__).parents[1] / "lessons").glob("[0-9]*.ipynb"))
MACHINE = re.compile(r"/(home|root|tmp|work|Users|private|usr|opt)/\w|[A-Z]:\\\\|127\.0\.0\.1:\d")
CHILDREN = """import json
import psutil
print(json.dumps([" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]))"""
"""A cell that lists the processes that the kernel still has."""
DRIVE = """import gc
from minips import lab
for _panel in [one for one in gc.get_objects() if isinstance(one, lab.Panel | lab.Workbench)]:
    _columns = [_panel] if isinstance(_panel, lab.Panel) else _panel.columns.values()
    for _column in _columns:
        for _name in list(_column.controls):
            _widget = _column.controls.get(_name)
            if isinstance(getattr(_widget, "value", None), bool):
                _widget.value = not _widget.value
                _widget.value = not _widget.value
            elif len(getattr(_widget, "options", ())) > 1:
                _widget.index, _before = (_widget.index + 1) % len(_widget.options), _widget.index
                _widget.index = _before
            elif hasattr(_widget, "max"):
                _widget.value, _before = _widget.min, _widget.value
                _widget.value = _before
    assert _panel.wait(60), _panel
    _panel.job.message.value = ""
    _panel.run()
    _panel.stop()
    assert _panel.wait(60), _panel
    assert "That does not work" not in _panel.job.message.value, (_panel, _panel.job.message.value)
"""
"""A cell that moves each control of each panel there and back, then runs and stops it."""
LISTEN = """import sys
sys.path.append({tests!r})
import claims
_run = claims.listen({word!r}, {remembered!r})"""
"""A cell that watches which of the lesson's claims the cells after it bear out."""
DECIDED = """assert not (_wrong := _run.undecided({word!r})), chr(10).join(_wrong)
print(*_run.noted, sep=chr(10))"""
"""A cell that fails if a claim was contradicted or never decided, and prints what only times contradict."""


@cache
def lesson(path: Path) -> Any:
    """The notebook, read once, for nothing changes it."""
    return nbformat.read(path, as_version=4)


def code_cells(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


SHORT = "01"
"""The lesson that runs in a few seconds; the others run as soak tests."""
FOLDED = {"source_hidden": True}
"""What the metadata of a folded cell say to Jupyter."""
WITHOUT_A_GUESS = ("00", "01", "03", "08", "20")
"""The lessons that a soak test goes through without a prediction; the others are a campaign."""
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def test_there_are_lessons() -> None:
    assert len(LESSONS) == len(chosen().lessons)


@each_lesson
def test_is_saved_as_it_ran(path: Path) -> None:
    book = lesson(path)
    nbformat.validate(book)
    first = book.cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert book.metadata.kernelspec.name == "python3"
    assert "widgets" not in book.metadata
    assert book.metadata.minips.measured == MEASURED, (
        f"execute it again: python tests/execute_lessons.py {path.name[:2]}"
    )
    assert [cell.execution_count for cell in code_cells(book)] == list(range(1, len(code_cells(book)) + 1))
    for cell in code_cells(book):
        errors = [output.evalue for output in cell.outputs if output.output_type == "error"]
        assert not errors or "raises-exception" in cell.metadata.get("tags", []), cell.source
    ids = [cell.id for cell in book.cells]
    assert len(set(ids)) == len(ids)


@each_lesson
def test_says_nothing_of_the_machine_it_ran_on(path: Path) -> None:
    for cell in lesson(path).cells:
        words = [cell.source]
        for output in cell.get("outputs", []):
            told = [output.get("text", ""), *(v for k, v in output.get("data", {}).items() if k.startswith("text/"))]
            words += told
            if any(re.search(r" of virtual time\. |\bin virtual time\b", one, re.IGNORECASE) for one in told):
                continue  # the times of a simulated run are the same on each machine
            assert not re.search(r"\d\s?(ms|µs|seconds)\b", "".join(told)), f"a timing as text after: {cell.source}"
        assert not MACHINE.search("".join(words)), cell.source


@each_lesson
def test_every_picture_has_words_beside_it(path: Path) -> None:
    cells = lesson(path).cells
    for number, cell in enumerate(cells):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            near = [c.source for c in cells[max(number - 1, 0) : number + 2] if c.cell_type == "markdown"]
            assert any("icture" in words for words in near), f"no words beside the picture of: {cell.source}"


def outermost(page: str) -> list[str]:
    """The tags of a page's pictures, without those of pictures inside a picture."""
    depth, found = 0, list[str]()
    for tag in re.findall(r"<(?:img|/?svg)\b[^>]*>", page):
        if not depth and not tag.startswith("</"):
            found.append(tag)
        depth += (tag.startswith("<svg") and not tag.endswith("/>")) - tag.startswith("</svg")
    return found


@each_lesson
def test_every_picture_has_a_text_for_readers_who_cannot_see_it(path: Path) -> None:
    for cell in code_cells(lesson(path)):
        for output in cell.outputs:
            for kind, shown in output.get("data", {}).items():
                if kind.startswith("image/"):
                    assert len(output.metadata.get(kind, {}).get("alt", "")) > 20, cell.source
                for tag in outermost(shown if kind == "text/html" else ""):
                    assert re.search(r"""(alt|aria-label)=(['"]).+?\2""", tag, re.DOTALL), tag[:200]


@each_lesson
def test_imports_and_drawing_alone_are_folded(path: Path) -> None:
    """And still are in the copy that a learner gets."""
    cells = [cell for cell in code_cells(lesson(path)) if "given" not in cell.metadata.get("tags", [])]
    folded = [cell.source for cell in cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert folded == [cell.source for cell in cells if is_plumbing(cell.source)]
    assert sum(map(count_lines, folded)) <= FOLDED_LINES
    copied = [cell for cell in json.loads(blanked(path))["cells"] if cell["metadata"].get("jupyter") == FOLDED]
    assert ["".join(cell["source"]) for cell in copied] == folded


@each_lesson
def test_every_panel_has_a_picture_and_a_line_for_readers_without_a_kernel(path: Path) -> None:
    cells = code_cells(lesson(path))
    for number, cell in enumerate(cells):
        if any("needs a running kernel" in o.get("data", {}).get("text/plain", "") for o in cell.outputs):
            after = [output for later in cells[number + 1 : number + 3] for output in later.outputs]
            shown = [output.get("data", {}) for output in after]
            pictures = ["image/png" in data or "<svg" in data.get("text/html", "") for data in shown]
            assert any(pictures), f"no still picture: {cell.source}"
            assert any(output.output_type == "stream" for output in after), f"no line of words: {cell.source}"


@each_lesson
def test_every_result_comes_after_its_prediction(path: Path) -> None:
    text = "\n".join(cell.source for cell in lesson(path).cells)
    assert "lab.predict(" in text
    for guess in re.findall(r"^(\w+) = lab\.predict\(", text, re.MULTILINE):
        asked, locked, shown = (text.find(f"{guess}{end}") for end in (" = lab.predict(", ".require()", ".compare("))
        assert 0 <= asked < locked < shown


@each_lesson
def test_each_solution_is_pasted_in_before_its_check(path: Path) -> None:
    pasted = [source for source, _ in solved(lesson(path))]
    for check, solution in exercises(lesson(path)):
        (cell,) = (source for source in pasted if check in source)
        assert cell.startswith(solution)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem[:2] == SHORT else [pytest.mark.soak]) for path in LESSONS],
    ids=lambda path: path.stem,
)
@pytest.mark.outside
@pytest.mark.timeout(900)  # each cell has the 120 seconds of --nbval-cell-timeout
def test_its_outputs_are_the_saved_ones_and_its_solutions_pass(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbval runs the cells and compares, in a folder in which nothing else may be found afterwards. Then the solutions
    are pasted in, and the lesson runs again from the first exercise on. In both states its claims are decided.
    """
    copy = Path(shutil.copy(path, tmp_path))
    run = IPyNbFile.from_parent(request.session, path=copy)
    saved = [*run.collect()]
    assert len(saved) == len(code_cells(lesson(path)))
    word = {place: word for word, place in chosen().paths().items()}[path]
    facts = {"tests": str(Path(__file__).parent), "word": word, "remembered": remembered(lesson(path))}
    listen, decided = LISTEN.format(**facts), DECIDED.format(**facts)

    def more(*sources: str, raising: bool = False) -> list[IPyNbCell]:
        options = defaultdict(bool, check_exception=raising)
        facts = [{"cell_num": len(saved), "cell": new_code_cell(source), "options": options} for source in sources]
        return [IPyNbCell.from_parent(run, name="Further", **fact) for fact in facts]

    (given,), (pasted,) = more(decided), more(decided)
    cells = [*more(listen), *saved, given, *more("_run.solved = True")]
    for source, raising in solved(lesson(path)):
        cells += more(source, raising=raising)
    cells += [pasted, *more(DRIVE, CHILDREN)]
    with ExitStack() as stack:
        monkeypatch.setattr("nbval.kernel.open", lambda *what: stack.enter_context(open(*what)), raising=False)
        with_a_kernel(run.setup)
        stack.callback(run.teardown)
        failed = [words for cell in cells if (words := failure(cell))]
    assert not failed, "\n\n".join(failed)
    print(f"as given: {given.test_outputs[0].text}\nwith the solutions: {pasted.test_outputs[0].text}")
    left = json.loads(cells[-1].test_outputs[0].text)
    assert not [command for command in left if "resource_tracker" not in command]
    assert [*tmp_path.iterdir()] == [copy]


def remembered(book: Any) -> list[str]:
    """The lines of the section "Remember"."""
    return [line for cell in book.cells if cell.cell_type == "markdown" for line in lines_of(cell.source)]


def solved(book: Any) -> list[tuple[str, bool]]:
    """The code from the first exercise on, with each solution pasted in before its check, and whether it may raise."""
    solutions = dict(exercises(book))
    found = []
    for cell in code_cells(book):
        check = next((check for check in solutions if check in cell.source), None)
        if check:
            found.append((f"{solutions[check]}\nverdict = {check}\nassert verdict, verdict", False))
        elif found:
            found.append((cell.source, "raises-exception" in cell.metadata.get("tags", [])))
    return found


def failure(cell: IPyNbCell) -> str | None:
    """Run a cell and compare its outputs; what is wrong, if anything is."""
    try:
        cell.runtest()
    except NbCellError as error:
        return f"Cell {error.cell_num}: {error}\n{error.source}\n{error.inner_traceback}"
    return None


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.soak if path.stem[:2] in WITHOUT_A_GUESS else pytest.mark.campaign)
        for path in LESSONS
    ],
    ids=lambda path: path.stem,
)
@pytest.mark.outside
@pytest.mark.timeout(900)
def test_a_learner_who_predicts_nothing_gets_through(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All cells run or say in one line what they wait for, and none shows a result that was asked for."""
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book = nbformat.reads(blanked(path).decode(), as_version=4)
    with_a_kernel(NotebookClient(book, timeout=120, resources={"metadata": {"path": tmp_path}}).execute)
    waiting = []
    for cell in code_cells(book):
        shown = "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
        if "waits for your prediction" in shown:
            assert re.fullmatch(r"This cell waits for your prediction: .*", shown)
            waiting.append(shown)
        assert ".compare(" not in cell.source or waiting[-1:] == [shown], cell.source
    questions = {QUESTIONS[key].text for cell in code_cells(book) for key in arguments(cell, "predict")}
    assert {line.partition(": ")[2].strip() for line in waiting} == questions


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "names", [pytest.param(f"{SHORT}*", marks=pytest.mark.soak), pytest.param("*", marks=pytest.mark.campaign)]
)
def test_readers_may_run_them_with_nbval(names: str) -> None:
    """The command works; what it compares, each lesson's own test above has compared as strictly."""
    paths = sorted(LESSONS[0].parent.glob(f"{names}.ipynb"))
    command = [sys.executable, "-m", "pytest", "--nbval", *paths, "-p", "no:cacheprovider", "--color=no"]
    done = subprocess.run(command, cwd=LESSONS[0].parents[1], capture_output=True, text=True, timeout=1140)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = sum(len(code_cells(lesson(path))) for path in paths)
    assert re.search(rf"^=+ {cells} passed in", done.stdout, re.MULTILINE)


def exercises(book: Any) -> list[tuple[str, str]]:
    """Each exercise's check and its folded solution."""
    found = []
    for cell in book.cells:
        checks = re.findall(r'^lab\.check\(".*$', cell.source, re.MULTILINE) if cell.cell_type == "code" else []
        solution = re.search(r"<details>.*?```python\n(.*?)```", cell.source, re.DOTALL)
        if checks:
            found.append([checks[0], None])
        elif solution:
            found[-1][1] = solution[1]
    assert found
    assert all(solution for _, solution in found), "an exercise without a folded solution"
    return [(check, solution) for check, solution in found]


def test_the_map_leads_to_headings_that_there_are() -> None:
    places: dict[str, Collection[str]] = {path.name: headings(lesson(path)) for path in LESSONS}
    places |= {Path(page).name: pages.anchors(page) for page in pages.FURTHER}
    page = (LESSONS[0].parent / "README.md").read_text().partition("\n## What they owe")[2]
    rows = re.findall(r"^\| (?!what|---)(.+?) \| (.+?) \|$", page, re.MULTILINE)
    assert len(rows) > 25
    for said, where in rows:
        links = re.findall(r"\]\((\S+?)#(\S+?)\)(?:;|$)", where)
        assert links, said
        for name, anchor in links:
            assert unquote(anchor) in places[name], (said, name, anchor)


def headings(book: Any) -> set[str]:
    """The anchors that Jupyter gives the headings: their text without marks."""
    text = "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    return {heading.replace("`", "").replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
