"""The lessons' exercises refuse wrong answers, and accept right ones that are written differently.

Both are in the ``cases`` of each lesson, as whole answers or as changes of the folded solution; ``python
tests/test_exercises.py`` prints how many. That the solutions themselves pass is test_lessons' part.
"""

import linecache
import re
import signal
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_lessons import exercises, lesson

import minips as ps
import minips_course
from minips import lab
from minips.lab.course import EXERCISES
from minips.lab.course import exercises as course
from minips.lab.course.courses import chosen, lesson_of

Answer = str | tuple[str, str]
"""An answer's source, or a piece of the folded solution and what replaces it."""
BROKEN: dict[str, dict[str, Answer]] = {}
RIGHT: dict[str, dict[str, Answer]] = {}
for word in minips_course.LESSONS:
    cases = import_module(f"minips_course.{word}.cases")
    BROKEN |= cases.BROKEN
    RIGHT |= getattr(cases, "RIGHT", {})
"""By exercise, and by what is wrong or different: an answer."""
LEAST_WRONG, LEAST_RIGHT = 8, 2
TIMED = {"pays.2"}
"""The exercises whose checks compare seconds."""
FIRST = 1
"""Of each exercise so many answers of a kind are tried in the default run, and the others in the soak tests."""
TRIES = {"default": [0], "soak": [1], "campaign": [*range(2, 23)]}
"""The seeds of the tries in each kind of test run."""


def trials(answers: dict[str, dict[str, Answer]]) -> Iterator[Any]:
    """Yield a test's parameters for each answer in each kind of test run: its exercise, the answer and the seeds."""
    for key, all_ in answers.items():
        for turn, (what, one) in enumerate(all_.items()):
            for run, seeds in TRIES.items():
                marks = [pytest.mark.alone] * (key in TIMED)
                if run != "default":
                    marks.append(getattr(pytest.mark, run))
                elif turn >= FIRST:
                    continue
                yield pytest.param(key, one, seeds, id=f"{key} {what} x{len(seeds)}", marks=marks)


def test_every_exercise_has_wrong_answers_and_right_ones() -> None:
    assert set(BROKEN) == set(RIGHT) == set(EXERCISES)
    for key, answers in RIGHT.items():
        assert len(BROKEN[key]) >= LEAST_WRONG
        assert len(answers) >= LEAST_RIGHT
        sources = [source(key, one) for one in (*answers.values(), *BROKEN[key].values())]
        assert len({*sources, solution_of(key)[1]}) == len(sources) + 1


def given(book: Any, key: str) -> str:
    """The code that an exercise gives, in cells with that tag before its check."""
    check = next(i for i, cell in enumerate(book.cells) if f'lab.check("{key}"' in cell.source)
    start = next(i for i, cell in enumerate(book.cells) if f"### `{key}` " in cell.source)
    tagged = [cell for cell in book.cells[start:check] if "given" in cell.metadata.get("tags", [])]
    return "\n".join(cell.source for cell in tagged)


def solution_of(key: str) -> tuple[str, str]:
    """The line that checks an exercise, and its folded solution."""
    ((asked, solution),) = (
        pair for pair in exercises(lesson(chosen().paths()[lesson_of(key)])) if f'"{key}"' in pair[0]
    )
    return asked, solution


def source(key: str, one: Answer) -> str:
    """The source of an answer."""
    if isinstance(one, str):
        return one
    solution, (old, new) = solution_of(key)[1], one
    assert old in solution, f"the solution of {key} has no {old!r}"
    return solution.replace(old, new)


def program(key: str, one: Answer) -> str:
    """The text of an answer, after the lesson's imports, its cells tagged "setup", and the cells that are given."""
    book = lesson(chosen().paths()[lesson_of(key)])
    folded = [cell.source for cell in book.cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    setup = [cell.source for cell in book.cells if "setup" in cell.metadata.get("tags", [])]
    return "\n".join([folded[0], *setup, given(book, key), source(key, one)])


def expression(key: str) -> str:
    """The second argument of the lesson's check."""
    found = re.fullmatch(r'lab\.check\("[\w.]+", (.*)\)', solution_of(key)[0])
    assert found
    return found[1]


@cache
def compiled(key: str, one: Answer) -> Any:
    """The code of an answer."""
    return compile(program(key, one), f"<an answer to {key}>", "exec")


def answer(key: str, one: Answer) -> Any:
    """What the lesson hands to its check for this answer, made anew."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compiled(key, one), namespace)
    return eval(expression(key), namespace)


def verdicts(key: str, one: Answer, seeds: list[int]) -> list[course.Verdict]:
    return [course.judge(EXERCISES[key], answer(key, one), np.random.default_rng(seed)) for seed in seeds]


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(("key", "one", "seeds"), [*trials(BROKEN)])
def test_a_wrong_answer_is_refused(key: str, one: Answer, seeds: list[int]) -> None:
    for verdict in verdicts(key, one, seeds):
        assert not verdict
        assert len(verdict.words.partition("\nA hint: ")[0]) > 20


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(("key", "one", "seeds"), [*trials(RIGHT)])
def test_a_right_answer_is_accepted_however_it_is_written(key: str, one: Answer, seeds: list[int]) -> None:
    for verdict in verdicts(key, one, seeds):
        assert verdict, verdict


@pytest.mark.parametrize("key", EXERCISES)
@pytest.mark.parametrize("thing", [None, 3, "an answer", ps.SGD, ps.Config()], ids=repr)
def test_what_is_no_answer_at_all_is_refused(key: str, thing: Any) -> None:
    assert not lab.check(key, thing)


class Halves(ps.quantizers.Float16):
    """A quantizer that sends no bytes."""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "Expected your class OneByte"),
        (ps.quantizers.Uniform, "is minips' own. Write one yourself"),
        (Halves, "With "),
    ],
    ids=["none", "minips' own", "halves"],
)
def test_a_refusal_says_what_failed_and_hints(answer: Any, words: str) -> None:
    verdict = repr(lab.check("train.4", answer))
    assert words in verdict
    assert verdict.endswith('A hint: lab.hint("train.4")')


def from_a_cell(source: str, name: str = "cell") -> Any:
    """What a notebook's cell defines: its lines are known to ``linecache``, as a kernel's are."""
    file = "/tmp/ipykernel_1/2.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"ps": ps, "np": np}
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def test_an_error_shows_the_line_of_the_learners_cell() -> None:
    answer = from_a_cell(
        "def cell(run):\n    updates = run.updates\n    return helper(updates)\n\ndef helper(n):\n    return 1 / 0\n"
    )
    verdict = repr(lab.check("train.3", answer))
    assert "It stopped with ZeroDivisionError: division by zero" in verdict
    assert "In helper, line 6 of your cell: return 1 / 0" in verdict


@pytest.mark.parametrize(
    "loop", ["while True: pass", "time.sleep(100)", "while True:\n  try: 1 / 0\n  except Exception: pass"]
)
def test_what_never_ends_is_stopped_in_a_sentence(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "LIMIT_S", 0.5)
    answer = from_a_cell(f"import time\ndef cell(run):\n {loop.replace(chr(10), chr(10) + ' ')}\n")
    before = signal.getsignal(signal.SIGALRM)
    left, _ = signal.getitimer(signal.ITIMER_REAL)  # the test run's own
    verdict = lab.check("train.3", answer)
    assert not verdict
    assert "It was stopped after 0.5 seconds. Does a loop never end?\nIn cell, line " in verdict.words
    assert signal.getsignal(signal.SIGALRM) is before
    assert left - 100 < signal.getitimer(signal.ITIMER_REAL)[0] <= left


def test_what_a_busy_machine_slows_down_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [0.0]  # seconds of the processor: a twentieth of the limit whenever the clock rings

    def process_time() -> float:
        used.append(used[-1] + 0.005)
        return used[-1]

    monkeypatch.setattr(course, "LIMIT_S", 0.1)
    monkeypatch.setattr(course, "time", SimpleNamespace(monotonic=lambda: 0.0, process_time=process_time))
    asked = course.Exercise("train.3", "wait", (), lambda answer, rng: answer())

    def until(rings: int) -> str:
        while len(used) < rings:
            pass
        return "It ended."

    rng = np.random.default_rng(0)
    assert course.judge(asked, lambda: until(10), rng).words.startswith("It ended.")
    assert "stopped after 0.1 seconds" in course.judge(asked, lambda: until(100), rng).words


def test_the_stop_button_leaves_one_line() -> None:
    answer = from_a_cell("def cell(run):\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt, match=r"train\.3: the check was interrupted\.") as caught:
        lab.check("train.3", answer)
    assert vars(caught.value)["_render_traceback_"]() == ["train.3: the check was interrupted."]


@pytest.mark.parametrize("key", EXERCISES)
def test_three_hints_differ_from_each_other_and_none_is_the_solution(key: str) -> None:
    hints = EXERCISES[key].hints
    assert len({*hints}) == len(hints) >= 3
    book = lesson(chosen().paths()[lesson_of(key)])
    (solution,) = (solution for asked, solution in exercises(book) if f'"{key}"' in asked)
    for line in solution.splitlines():
        words = line.strip().removeprefix("return ").rstrip(":")
        if len(words) > 30:
            assert not any(words in hint for hint in hints), words


def test_hints_come_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    count = len(EXERCISES["server.2"].hints)
    for turn in range(count + 1):
        lab.hint("3.2")
        assert f"Hint {turn % count + 1} of {count} for server.2" in capsys.readouterr().out


def test_an_unknown_exercise_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no exercise 'server\.9'.*Known: .*server\.1"):
        lab.check("server.9", None)


@pytest.mark.parametrize("margin", [0.85, 0.9, 0.95, 1, 1.1, 1.3])
@pytest.mark.parametrize("which", [np.mean, np.median, np.max, np.min], ids=lambda which: which.__name__)
def test_stale_3_is_not_solved_by_the_formula_of_the_lesson(which: Any, margin: float) -> None:
    def formula(ages: list[int], momentum: float) -> float:
        return margin * ps.cost.asynchronous_lr_limit(round(which(ages)), 1.0) * (1 - momentum)

    assert not lab.check("stale.3", formula)


if __name__ == "__main__":
    print("exercise, wrong answers, right answers (the folded solution is one more)")
    for key in EXERCISES:
        print(key, len(BROKEN[key]), len(RIGHT.get(key, {})))
