"""What the lessons ask and say: every outcome can come out, and a notebook tells none of them before it is measured.

The ``cases`` of each lesson have, for each question, values under which each of its options comes true, and none, and
words that would give its answer away.
"""

import ast
import re
from importlib import import_module
from itertools import pairwise, product
from math import nan
from pathlib import Path
from typing import Any

import pytest
from plain_questions import plain
from test_lessons import LESSONS, lesson

import minips_course
from minips import lab
from minips.lab.course import EXERCISES, PROMPTS, QUESTIONS, QUIZZES, SENTENCES, predictions, state
from minips.lab.course.best import Figure
from minips.lab.course.courses import chosen, lesson_of
from minips.lab.course.lessons import arguments
from minips.lab.course.questions import KINDS, NONE, Disagreement, Estimate, Question, completed, settled

OUTCOMES: dict[str, dict[str, dict[str, Any]]] = {}
TELLING: dict[str, list[str]] = {}
for word in minips_course.LESSONS:
    cases = import_module(f"minips_course.{word}.cases")
    OUTCOMES |= cases.OUTCOMES
    TELLING |= cases.TELLING

each_question = pytest.mark.parametrize("key", QUESTIONS)
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@each_question
def test_each_option_can_come_true_and_none_of_them_too(key: str) -> None:
    asked, outcomes = QUESTIONS[key], OUTCOMES[key]
    if isinstance(asked, Estimate):
        assert {*outcomes} == {"expected", "otherwise"}
        assert asked.outcome(**outcomes["expected"]).expected is None
        assert asked.outcome(**outcomes["otherwise"]).expected is not None
        return
    assert {*outcomes} == {*asked.options, NONE}
    for option, values in outcomes.items():
        outcome = asked.outcome(**values)
        assert outcome.measured == option
        assert (outcome.expected is None) == (option == asked.expected)


@each_question
def test_never_do_two_come_true(key: str) -> None:
    asked = QUESTIONS[key]
    if isinstance(asked, Question):
        names = sorted({name for values in OUTCOMES[key].values() for name in values})
        assert all(sorted(values) == names for values in OUTCOMES[key].values())
        seen = [list({repr(v[name]): v[name] for v in OUTCOMES[key].values()}.values()) for name in names]
        for mixed in product(*seen):
            asked.outcome(**dict(zip(names, mixed, strict=True)))  # an unattended run refuses two


@each_question
def test_a_value_that_is_no_number_makes_none_true(key: str) -> None:
    values = next(iter(OUTCOMES[key].values()))
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert QUESTIONS[key].outcome(**{**values, name: nan}).measured == NONE


@each_question
def test_a_run_that_disagrees_is_an_error_in_an_unattended_run_and_shown_to_a_learner(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = QUESTIONS[key]
    other = next(v for v in OUTCOMES[key].values() if asked.outcome(**v).expected is not None)
    if asked.kind == "comparison":
        other = {name: Figure(value) for name, value in other.items()}
    if asked.timed:
        assert settled(asked, **other).expected
    else:
        with pytest.raises(Disagreement, match=re.escape(key)):
            settled(asked, **other)
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    assert settled(asked, **other).expected


@each_question
def test_each_option_has_a_reason_of_its_own(key: str) -> None:
    asked = QUESTIONS[key]
    if isinstance(asked, Question):
        reasons = [*(choice.because for choice in asked.choices), asked.otherwise]
        assert all(len(reason) > 20 for reason in reasons)
        assert len({*reasons}) == len(reasons)
        assert TELLING[key]


@pytest.mark.usefixtures("somebody_is_there")
@each_question
def test_each_option_can_be_predicted(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = QUESTIONS[key]
    for answer in asked.options if isinstance(asked, Question) else ("12.5",):
        monkeypatch.setattr(predictions, "_kept", {})
        state.reset()
        guess = lab.predict(key)
        guess.choice.value = answer
        assert not guess.button.disabled, answer
        guess.button.click()
        assert guess.value == answer


def code_of(cell: Any) -> ast.Module:
    return ast.parse(cell.source if cell.cell_type == "code" else "")


def compared(cell: Any) -> list[tuple[str, ast.Call]]:
    """The calls of ``guess.compare`` in a cell, each with the name of its guess."""
    return [
        (node.func.value.id, node)
        for node in ast.walk(code_of(cell))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "compare"
        and isinstance(node.func.value, ast.Name)
    ]


def guesses(book: Any) -> dict[str, str]:
    """The key of each question, by the name of its guess."""
    found = {}
    for cell in book.cells:
        for node in ast.walk(code_of(cell)):
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("lab.predict("):
                found[ast.unparse(node.targets[0])] = str(ast.literal_eval(node.value.args[0]))  # type: ignore[attr-defined]
    return found


@each_lesson
def test_what_is_compared_was_measured(path: Path) -> None:
    """No value of a comparison is a constant, or a name that stands for nothing but constants."""
    book = lesson(path)
    constants: dict[str, bool] = {}
    for cell in book.cells:
        for node in ast.walk(code_of(cell)):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                constant = not any(isinstance(part, ast.Name) for part in ast.walk(node.value))
                constants[name] = constants.get(name, True) and constant
    asked = guesses(book)
    for cell in book.cells:
        for name, call in compared(cell):
            if name not in asked:
                continue
            assert not call.args, f"a value without a name in {ast.unparse(call)}"
            assert call.keywords, ast.unparse(call)
            for keyword in call.keywords:
                names = [part.id for part in ast.walk(keyword.value) if isinstance(part, ast.Name)]
                assert any(not constants.get(one) for one in names), f"{ast.unparse(call)} compares a constant"


@each_lesson
def test_a_notebook_keeps_no_answer_and_no_expectation(path: Path) -> None:
    for cell in lesson(path).cells:
        for node in ast.walk(code_of(cell)):
            if isinstance(node, ast.Call):
                assert not {keyword.arg for keyword in node.keywords} & {"expect", "because"}, ast.unparse(node)


@each_lesson
def test_nothing_tells_the_answer_before_it_is_measured(path: Path) -> None:
    book = lesson(path)
    headings = [
        line
        for cell in book.cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line[:1] == "#"
    ]
    for name, key in guesses(book).items():
        asked = QUESTIONS[key]
        words = [*TELLING.get(key, ()), *(asked.options if isinstance(asked, Question) else ())]
        found = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words) or "(?!)", re.IGNORECASE)
        start = next(i for i, cell in enumerate(book.cells) if key in arguments(cell, "predict"))
        end = next(i for i, cell in enumerate(book.cells) if name in dict(compared(cell)))
        between = [cell.source for cell in book.cells[start + 1 : end]]
        between.append(book.cells[end].source.partition(f"{name}.compare(")[0])
        between.append(book.cells[start].source)
        for text in [*headings, *between]:
            assert not (told := found.search(text)), f"{told[0]!r} tells the answer to {key}: {text}"


@each_lesson
def test_readers_without_a_kernel_see_each_question(path: Path) -> None:
    for above, cell in pairwise(lesson(path).cells):
        for key in arguments(cell, "predict"):
            assert above.cell_type == "markdown"
            assert above.source == plain(QUESTIONS[key]), "run tests/plain_questions.py"


def test_what_is_kept_is_used_and_what_is_used_is_kept() -> None:
    kept = {"predict": QUESTIONS, "say": SENTENCES, "answer": PROMPTS, "quiz": QUIZZES, "check": EXERCISES}
    for function, known in kept.items():
        used = {
            (word, key)
            for word, path in chosen().paths().items()
            for cell in lesson(path).cells
            for key in arguments(cell, function)
        }
        assert {key for _, key in used} == {*known}, function
        assert all(word == lesson_of(key) for word, key in used)


@pytest.mark.parametrize("key", SENTENCES)
def test_no_sentence_says_that_it_passes(key: str) -> None:
    words = re.sub(r"{.*?}", "", SENTENCES[key].template)
    assert not re.search(r"\b(pass|passes|passed|fail|fails|failed)\b\W*$", words)
    assert "expect" not in SENTENCES[key].template.lower()


def test_a_sentence_that_a_run_does_not_bear_out(monkeypatch: pytest.MonkeyPatch) -> None:
    key = next(key for key, one in SENTENCES.items() if one.expect and not one.timed)
    names = {node.id for node in ast.walk(ast.parse(SENTENCES[key].expect)) if isinstance(node, ast.Name)}
    wanted = {*names, *re.findall(r"{(\w+)", SENTENCES[key].template)} - {
        "abs",
        "all",
        "any",
        "len",
        "min",
        "max",
        "sum",
    }
    values = dict.fromkeys(wanted, nan)
    with pytest.raises(Disagreement, match=re.escape(key)):
        completed(key, **values)
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    text, holds = completed(key, **values)
    assert not holds
    assert f"Expected: {SENTENCES[key].expect}. Here it came out otherwise." in text


@pytest.mark.parametrize("lesson_", QUIZZES)
def test_each_answer_of_a_quiz_is_explained(lesson_: str) -> None:
    for item in QUIZZES[lesson_]:
        assert len(item.explained) >= 2
        assert all(len(words) > 20 for words in item.explained.values())
        assert len({*item.explained.values()}) == len(item.explained)


UNSWEPT = {
    "train.4": "top 5 % and all values, at the default rate",
    "batch.4": "pushes of one batch and of four, at two rates that it names",
    "spend.1": "signs for one tensor and for another, at one rate",
    "spend.3": "the same, by bytes",
    "allreduce.13": "32 and 16 bits, at one rate",
    "ddp.5": "fp16 and the plain all-reduce of torch, at one rate",
}
"""Sentences that compare schemes that train at a rate that is not each one's best: these are still to be swept."""
UNSWEPT_TOO = (
    *("train.2", "spend.1", "spend.2", "stale.1", "stale.2", "trust.1", "trust.2", "pays.2"),  # questions
    *("stale.2", "stale.3", "stale.8", "stale.11", "trust.1", "trust.4", "pays.8", "pays.9", "ddp.4"),  # sentences
    *("train.1", "server.1", "spend.1", "spend.2", "stale.1", "stale.2", "trust.1", "trust.2", "ddp.1"),  # prompts
)
"""Questions, sentences and prompts without these words that do so, too."""
NOT_COMPARED = {
    "train.7": "one run, at three times",
    "batch.5": "the limit of one scheme's rate",
    "batch.6": "the limit of one scheme's rate",
    "squeeze.15": "the word lossless",
    "rounding.8": "one run: its bytes and its accuracy",
    "remember.10": "a paper's claim for any rate",
    "spend.4": "one run: its bytes and its accuracy",
    "move.11": "one run, and a list of transports",
    "stale.4": "the limits of two rules' rates, by halving",
    "stale.7": "the limit of one rule's rate",
    "stale.9": "the limit of one scheme's rate",
    "stale.10": "the limit of one rule's rate",
}
"""Sentences with the word accuracy or loss and several values that compare no schemes."""


def test_a_sentence_with_two_values_of_accuracy_or_loss_compares_schemes_at_their_best_rates() -> None:
    found = {
        key
        for key, one in SENTENCES.items()
        if re.search(r"accurac|\bloss", one.template, re.IGNORECASE)
        and len({*re.findall(r"{(\w+)", one.template)}) > 1
        and one.kind != "comparison"
    }
    assert found == {*UNSWEPT, *NOT_COMPARED}
    assert not {*UNSWEPT} & {*NOT_COMPARED}
    known = {**SENTENCES, **QUESTIONS, **PROMPTS}
    assert {*UNSWEPT_TOO} <= {*known}
    assert not {lesson_of(key) for key in UNSWEPT_TOO} & {"bits", "rounding", "remember"}


STATED = {"sentence": SENTENCES, "question": QUESTIONS, "prompt": PROMPTS}


@pytest.mark.parametrize("what", STATED)
def test_each_says_of_which_kind_it_is(what: str) -> None:
    assert [key for key, one in STATED[what].items() if one.kind not in KINDS] == []
    timed = [key for key, one in STATED[what].items() if getattr(one, "timed", False) and one.kind != "time"]
    assert timed == []


@pytest.mark.parametrize("key", [key for key, one in SENTENCES.items() if one.kind == "comparison"])
def test_a_comparison_refuses_a_number_that_is_not_of_a_sweep(key: str) -> None:
    names = {*re.findall(r"{(\w+)", SENTENCES[key].template)}
    names |= {node.id for node in ast.walk(ast.parse(SENTENCES[key].expect)) if isinstance(node, ast.Name)} - {"abs"}
    figures: dict[str, Any] = dict.fromkeys(names, Figure(0.5))
    for name in names:
        with pytest.raises(TypeError, match=rf"{re.escape(key)} compares schemes .* These do not: {name}\."):
            completed(key, **{**figures, name: 0.5})


def test_a_prompt_that_compares_takes_a_sweep_as_its_table() -> None:
    (key, *_) = [key for key, one in PROMPTS.items() if one.kind == "comparison"]
    with pytest.raises(TypeError, match=rf"{re.escape(key)} compares schemes that train"):
        lab.answer(key, "top 1 %   94 %")
