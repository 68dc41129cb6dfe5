"""Views, and what their readers see: with anywidget and without it, in a notebook, in an exported page, under nbval."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook

from minips import lab
from minips.lab.views import View
from minips.lab.views.base import MISSING, module_text

WIDGET = "application/vnd.jupyter.widget-view+json"
STILL = "<svg viewBox='0 0 9 9'><circle r='4' fill='currentColor'/></svg>"
SENTENCE = "A dot & a <circle>."
SHOW = f"from minips.lab.views import View\nview = View('race', {{}}, {STILL!r}, {SENTENCE!r})\nview"


def view(**data: Any) -> View:
    return View("race", data, STILL, SENTENCE)


def without_anywidget(program: str) -> Any:
    """What a fresh interpreter without anywidget comes to, under ``say``."""
    words = f"import json, sys\nsys.modules['anywidget'] = None\n{program}\nprint(json.dumps(say))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_view_is_a_widget_a_still_and_a_sentence() -> None:
    bundle, _ = view(seconds=3)._repr_mimebundle_()
    assert set(bundle) == {WIDGET, "text/html", "text/plain"}
    assert bundle["text/plain"] == SENTENCE
    assert STILL in bundle["text/html"]
    assert "A dot &amp; a &lt;circle&gt;." in bundle["text/html"]
    assert MISSING not in bundle["text/html"]


def test_other_data_go_to_the_same_widget_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    one = view(seconds=3)
    sent = []
    monkeypatch.setattr(type(one.panel), "send_state", lambda self, key=None: sent.append(set(key)))
    before = one.panel.model_id
    one.show({"seconds": 4}, "<svg/>", "Another.")
    assert sent == [{"data", "sentence", "mark"}]
    one.data = {"seconds": 5}
    one.sentence = "A third."
    assert (one.panel.data, one.panel.sentence, one.still) == ({"seconds": 5}, "A third.", "<svg/>")
    assert one.panel.model_id == before
    one.still = STILL
    assert STILL in one._repr_html_()


def test_a_question_of_the_page_reaches_python() -> None:
    one, heard = view(), []
    one.on_asked(heard.append)
    one.panel.set_state({"asked": {"quantizer": "sign", "number": 1}})
    assert heard == [{"quantizer": "sign", "number": 1}]


def test_the_still_that_a_page_hides_is_its_own() -> None:
    one, other = view(), View("race", {}, STILL, "Another sentence.")
    assert one.panel.mark in one._repr_html_()
    assert one.panel.mark != other.panel.mark
    assert view()._repr_html_() == one._repr_html_()  # the same at each execution, as nbval demands


def test_a_page_has_all_that_it_needs_in_it() -> None:
    page = View("race", {"name": "</script><b>"}, STILL, SENTENCE).html("A & B")
    assert "<title>A &amp; B</title>" in page
    assert f"<noscript>{STILL}</noscript>" in page
    (state,) = re.findall(r'<script type="application/json" id="state">(.*?)</script>', page)
    assert json.loads(state) == {"mark": "", "data": {"name": "</script><b>"}, "sentence": SENTENCE}
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href)=|@import|\burl\(|\bfetch\(", page)


def test_a_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        view(seconds=float("nan")).html()


def test_each_view_is_one_module_of_plain_functions() -> None:
    folder = Path(lab.views.__file__).parent
    names = {path.stem for path in folder.glob("*.js")} - {"common"}
    assert "race" in names
    for name in names:
        text = module_text(name)
        assert not re.search(r"^import\b|\bimport\(", text, re.MULTILINE)
        assert text.count("\nexport ") == 2
        assert text.count("\nfunction render(") == 1
        functions = re.findall(r"^(?:async )?function (\w+)", text, re.MULTILINE)
        assert len(functions) == len(set(functions)), "a view's function has the name of a common one"


def test_without_anywidget_there_is_a_still_and_a_sentence() -> None:
    program = f"{SHOW}\nsay = [view._repr_mimebundle_()[0], view.panel.value, view.html(), repr(view)]"
    bundle, shown, page, words = without_anywidget(program)
    assert set(bundle) == {"text/html", "text/plain"}
    assert STILL in bundle["text/html"]
    assert 'pip install "minips[lab]"' in bundle["text/html"].replace("&quot;", '"')
    assert shown == bundle["text/html"]
    assert page == view().html()
    assert words == SENTENCE


@pytest.mark.soak
def test_without_anywidget_the_panel_shows_its_picture_and_changes_it() -> None:
    program = """
from minips import lab
panel = lab.Collectives(workers=2)
panel.run()
assert panel.wait(60)
before = panel.view.panel.value
panel.controls["workers"].value = 3
assert panel.wait(60)
say = [before, panel.view.panel.value, panel.words(panel.found), panel.job.message.value]
"""
    before, after, words, failure = without_anywidget(program)
    assert "<svg " in before
    assert "among 2 workers" in before
    assert words in after.replace("&#x27;", "'")
    assert not failure


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    book = new_notebook(cells=[new_code_cell(SHOW)])
    NotebookClient(book, timeout=60).execute()
    return book


def test_an_executed_notebook_shows_the_still_the_sentence_and_the_widget(executed: nbformat.NotebookNode) -> None:
    still, moving = (output.data for output in executed.cells[0].outputs)
    assert still["text/plain"] == SENTENCE
    assert STILL in still["text/html"]
    assert set(moving) == {WIDGET, "text/plain"}


@pytest.mark.parametrize("keeps_state", [True, False])
def test_an_exported_page_shows_the_still_and_the_sentence(
    executed: nbformat.NotebookNode, tmp_path: Path, keeps_state: bool
) -> None:
    book = nbformat.from_dict(executed)
    if not keeps_state:
        book.metadata.pop("widgets", None)
    nbformat.write(book, tmp_path / "book.ipynb")
    page, _ = HTMLExporter().from_filename(str(tmp_path / "book.ipynb"))
    shown = page[page.index("jp-OutputArea-output") :]
    assert re.search(r"<div class=.minips-still.[^>]*><svg viewbox=", shown, re.IGNORECASE)
    assert "<p>A dot &amp; a &lt;circle&gt;.</p>" in shown


@pytest.mark.outside
@pytest.mark.soak
def test_nbval_finds_the_same_at_the_next_execution(executed: nbformat.NotebookNode, tmp_path: Path) -> None:
    book = nbformat.from_dict(executed)
    book.metadata.pop("widgets", None)
    for sentence, status in ((SENTENCE, 0), ("Another dot.", 1)):
        book.cells[0].outputs[0].data["text/plain"] = sentence
        nbformat.write(book, tmp_path / "book.ipynb")
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "--rootdir", tmp_path, "-c", os.devnull]
        done = subprocess.run([sys.executable, *command, "book.ipynb"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
