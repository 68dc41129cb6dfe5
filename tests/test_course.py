"""What the lessons ask and say: every outcome can come out, and a notebook tells none of them before it is measured.

The ``cases`` of each lesson have, for each question, values under which each of its options comes true, and none, and
words that would give its answer away.
"""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import pairwise, product
from math import nan
from pathlib import Path
from typing import Any

import pytest
from claims import KNOWN, Claim, Decider, Run, claims_of, column, deciders, numbers, rows
from course_page import NEEDS
from plain_questions import plain
from test_lessons import LESSONS, lesson, remembered

import minips_course
from minips import lab
from minips.lab.course import EXERCISES, PROMPTS, QUESTIONS, QUIZZES, SENTENCES, exercises, predictions, state
from minips.lab.course.best import Figure
from minips.lab.course.courses import chosen, lesson_of
from minips.lab.course.exercises import Verdict
from minips.lab.course.lessons import arguments
from minips.lab.course.questions import (
    KINDS,
    NONE,
    REMEMBERED,
    Disagreement,
    Estimate,
    Option,
    Prompt,
    Question,
    Sentence,
    completed,
    settled,
)

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


@pytest.mark.parametrize(
    ("key", "option", "values"),
    [
        ("server.3", "about a third as long", {"asp": 0.8, "bsp": 1.6}),
        ("server.3", "about as long", {"asp": 1.4, "bsp": 1.6}),
        ("remember.1", "about twice as many", {"times": 1.5}),
        ("remember.1", "about twice as many", {"times": 3.0}),
        ("batch.1", "about four times smaller", {"ratio": 3.0}),
        ("batch.1", "about four times smaller", {"ratio": 5.5}),
        ("wire.1", "about 80 000 bytes", {"ratio": 1.5}),
        ("wire.1", "about 80 000 bytes", {"ratio": 2.7}),
        ("wire.3", "about 6 times", {"times": 13.0}),
        ("wire.3", "about 30 times", {"times": 13.0}),
        ("wire.3", "about 30 times", {"times": 70.0}),
    ],
)
def test_about_a_number_is_no_other_number(key: str, option: str, values: dict[str, float]) -> None:
    assert option in QUESTIONS[key].options
    assert QUESTIONS[key].outcome(**values).measured == NONE


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


def claims(path: Path) -> list[Claim]:
    """All claims of a lesson."""
    word = next(word for word, place in chosen().paths().items() if place == path)
    return [*claims_of(word, remembered(lesson(path)))]


@each_lesson
def test_each_claim_names_what_decides_it(path: Path) -> None:
    for claim in claims(path):
        assert claim.by, f"nothing decides {claim.place}: {claim.text}"
        for one in claim.by:
            assert one.key in KNOWN[one.kind], f"{claim.place}: there is no {one}"
            decides = one.condition or one.kind != "say" or SENTENCES[one.key].expect
            assert decides, f"{claim.place}: {one.key} expects nothing, and the claim names no condition"


@pytest.mark.parametrize("word", REMEMBERED)
def test_each_line_to_remember_has_one_entry_and_each_entry_its_line(word: str) -> None:
    lines = remembered(lesson(chosen().paths()[word]))
    assert len(lines) == 5
    assert {*REMEMBERED} == {*chosen().words}
    for words in REMEMBERED[word]:
        assert sum(line.startswith(words) for line in lines) == 1, words
    assert len(REMEMBERED[word]) == len(lines)


@each_lesson
def test_a_condition_uses_the_values_that_the_lesson_measures(path: Path) -> None:
    word = next(word for word, place in chosen().paths().items() if place == path)
    said = {key: given for cell in lesson(path).cells for key, given in values_said(cell)}
    for claim in claims(path):
        for one in claim.by:
            if not one.condition:
                continue
            assert lesson_of(one.key) == word, f"{claim.place}: another lesson's run decides {one}"
            nodes = [*ast.walk(ast.parse(one.condition, mode="eval"))]
            bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            names = {node.id for node in nodes if isinstance(node, ast.Name)} - bound - {*vars(builtins)}
            known = {"say": said.get(one.key, set()), "predict": {*next(iter(OUTCOMES.get(one.key, {0: ()}).values()))}}
            known["table"] = known["timed table"] = {"row", "column", "head", "table", "solved"}
            assert names <= known.get(one.kind, set()), f"{claim.place}: {one}"


def values_said(cell: Any) -> Iterator[tuple[str, set[str]]]:
    """The key of each sentence in a cell, and the names of its values."""
    for node in ast.walk(code_of(cell)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.say":
            key = ast.literal_eval(node.args[0])
            yield (
                key,
                {*(word.arg for word in node.keywords if word.arg), *re.findall(r"{(\w+)", SENTENCES[key].template)},
            )


@each_lesson
def test_each_number_of_a_claim_was_given_or_is_part_of_what_decides_it(path: Path) -> None:
    for claim in claims(path):
        told = " ".join([claim.given, *(f"{one.condition} {words_of(one)}" for one in claim.by)])
        known = numbers(told) | {0.0, 1.0, 95.0}  # also the interval's 95 %
        known |= {100 * number for number in known}
        assert not (new := numbers(claim.text) - known), f"{claim.place}: nothing decides {new} in: {claim.text}"


def decided(by: str, *measured: tuple[str, bool, dict[str, Any]]) -> Run:
    """What a run with these measurements decides about a claim in lesson 17."""
    run = Run([Claim("a claim", "the border is only a little lower", "", deciders("stale.1", by))])
    for key, holds, values in measured:
        run.came("say", key, holds, values)
    return run


@pytest.mark.parametrize("asp", [1.8, 0.5, nan])
def test_a_condition_decides_a_claim_in_both_states(asp: float) -> None:
    run = decided("say stale.4: solved or 0.8 < asp / bsp < 1", ("stale.4", True, {"bsp": 2.0, "asp": asp}))
    assert bool(run.undecided("stale")) == (asp != 1.8)
    run.solved = True
    run.came("say", "stale.4", True, {"bsp": 2.0, "asp": 1.8})
    assert bool(run.undecided("stale")) == (asp != 1.8), "what was contradicted once stays so"


@pytest.mark.parametrize(
    ("by", "measured"),
    [
        ("say stale.4", []),
        ("say stale.4", [("stale.5", True, {})]),
        ("say stale.4", [("stale.4", False, {})]),
        ("say stale.4: asp > 1", [("stale.4", True, {"bsp": 2.0})]),
        ("check stale.3", []),
    ],
    ids=["nothing came", "another came", "it came out otherwise", "a value is missing", "no verdict"],
)
def test_a_claim_that_nothing_bears_out_is_named(by: str, measured: list[tuple[str, bool, dict[str, Any]]]) -> None:
    (words,) = decided(by, *measured).undecided("stale")
    assert words.startswith("a claim")


@pytest.mark.parametrize("passed", [True, False])
def test_a_check_decides_a_claim_once_the_solution_is_pasted_in(passed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercises, "VERDICTS", {"stale.3": Verdict("stale.3", passed, "")})
    run = decided("check stale.3: 2 + 2 == 4")
    assert not run.undecided("stale")
    run.solved = True
    assert bool(run.undecided("stale")) != passed
    assert decided("check stale.3: 2 + 2 == 5").undecided("stale")


@pytest.mark.parametrize("table", ["rule  90 ± 2\nother  40 ± 3", "rule  30 ± 2\nother  40 ± 3"], ids=["true", "false"])
def test_a_condition_on_a_column_of_the_table_is_decided(table: str) -> None:
    run = decided("table stale.1: row['rule'][0] == max(column(0)) and len(column(1)) == 2")
    row = rows(table)
    run.came("table", "stale.1", True, {"row": row, "column": partial(column, row), "head": "", "table": table})
    assert bool(run.undecided("stale")) == table.startswith("rule  30")


def test_what_depends_on_the_machine_contradicts_no_claim() -> None:
    run = decided("say stale.17: even < 2", ("stale.17", True, {"even": 3.0}))
    assert not run.undecided("stale")
    assert len(run.noted) == 1


def words_of(one: Decider) -> str:
    """The words of a sentence, a question or an exercise, and what it expects."""
    found = KNOWN[one.kind][one.key]
    return f"{found.template} {found.expect}" if one.kind == "say" else getattr(found, "text", None) or found.task


NOT_COMPARED = {
    "say batch.5": "the limit of one scheme's rate",
    "say bits.9": "one run: its bytes and its accuracy",
    "say squeeze.15": "the word lossless",
    "say rounding.23": "one run: its bytes and its accuracy",
    "say move.11": "one run, and a list of transports",
    "say wait.3": "the word reads: parameters are read",
    "say wait.4": "the word reads: parameters are read",
    "say stale.4": "the limits of two rules' rates, by halving",
    "predict train.1": "one run",
}
"""Sentences, questions and prompts with words of `TRAINED` that compare no schemes."""
TRAINED = re.compile(r"accurac|\bloss|\breads?\b|percentage points|\btrains? better\b", re.IGNORECASE)
"""The words for how well a scheme trained."""


def told_of_training() -> Iterator[tuple[str, str]]:
    """What says how well schemes trained, of any kind: its key, and the kind. A sentence compares several values."""
    for key, said in SENTENCES.items():
        if TRAINED.search(said.template) and len({*re.findall(r"{(\w+)", said.template)}) > 1:
            yield f"say {key}", said.kind
    for key, asked in QUESTIONS.items():
        if TRAINED.search(" ".join([asked.text, *getattr(asked, "options", ())])):
            yield f"predict {key}", asked.kind
    for key, prompt in PROMPTS.items():
        if TRAINED.search(f"{prompt.task} {prompt.example}"):
            yield f"answer {key}", prompt.kind


def test_what_says_how_well_schemes_trained_compares_them_at_their_best_rates() -> None:
    found = {key for key, kind in told_of_training() if kind != "comparison"}
    assert found == {*NOT_COMPARED}


@pytest.mark.parametrize(
    "new",
    [
        Sentence("bits.91", "Sign reads {one:.0%} of the digits, top-k {other:.0%}.", kind="single"),
        Sentence("bits.91", "The loss is {one:.2f} with signs and {other:.2f} with all bits.", kind="count"),
        Prompt("bits.91", "Which of the two has the higher accuracy?", "Signs.", kind="single"),
        Question(
            "bits.91", "Does Sign lower the accuracy?", (Option("yes", bool, ""), Option("no", bool, "")), "yes", ""
        ),
    ],
    ids=["digits", "loss", "prompt", "question"],
)
def test_a_new_comparison_at_one_rate_is_found(new: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {Sentence: SENTENCES, Prompt: PROMPTS, Question: QUESTIONS}[type(new)]
    monkeypatch.setitem(table, new.key, new)
    with pytest.raises(AssertionError, match=r"bits\.91"):
        test_what_says_how_well_schemes_trained_compares_them_at_their_best_rates()


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


def test_each_way_through_the_course_contains_what_its_lessons_build_on() -> None:
    paths = chosen().paths()
    for way, words in chosen().ways.items():
        listed = {int(paths[word].name[:2]) for word in words}
        for word in words:
            needs = NEEDS.search(lesson(paths[word]).cells[0].source)[1].partition("omework")[0]
            assert {int(number) for number in re.findall(r"\b\d\d\b", needs)} <= listed, (way, word)
