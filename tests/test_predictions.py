"""What a learner is asked, and what comes of it: predictions, sentences, answers, a quiz, the report."""

import ast
import contextlib
import html
import io
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minips import lab
from minips.lab.course import PROMPTS, QUESTIONS, QUIZZES, SENTENCES, predictions, state, verdicts
from minips.lab.course.cells import Answer, Quiz
from minips.lab.course.courses import lesson_of
from minips.lab.course.questions import NONE, Disagreement, Estimate, Item, Option, Prompt, Question, Sentence, full_key

pytestmark = pytest.mark.usefixtures("somebody_is_there")

WHICH = Question(
    "train.91",
    "Which is heavier?",
    (
        Option("this", lambda share: share > 1, "It holds more."),
        Option("that", lambda share: share < 1, "It holds less."),
    ),
    expected="this",
    otherwise="They weigh the same.",
    timed=False,
)
HOW_LONG = Estimate(
    "train.92",
    "How long does it take?",
    "ms",
    (10.0, 30.0),
    "The bytes need 20 ms.",
    "It took another time.",
    timed=True,
)
QUIZ = tuple(Item(f"Question {number}?", {"yes": f"Yes, {number}.", "no": f"No, not {number}."}) for number in range(5))


@pytest.fixture(autouse=True)
def course(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two questions, two sentences, a task and a quiz of the test's own."""
    for asked in (WHICH, HOW_LONG):
        monkeypatch.setitem(QUESTIONS, asked.key, asked)
    for key, timed in (("train.91", False), ("train.92", True)):
        text = "B sent {share:.0%} of A's bytes."
        monkeypatch.setitem(SENTENCES, key, Sentence(key, text, "share < 0.2", timed, card=False))
    monkeypatch.setitem(SENTENCES, "train.93", Sentence("train.93", "It is {x}.", "x > 1", timed=True, card=True))
    monkeypatch.setitem(
        PROMPTS, "train.91", Prompt("train.91", "What sends less, and how do you know?", "Sign. It shows.")
    )
    monkeypatch.setitem(QUIZZES, "train", QUIZ)


class TestPrediction:
    def predicted(self, choice: str, key: str = "train.91") -> predictions.Guess:
        guess = lab.predict(key)
        guess.choice.value = choice
        guess.button.click()
        return guess

    def test_locks_until_it_is_made(self) -> None:
        guess = lab.predict("0.91")
        for result in (guess.require, lambda: guess.compare(share=2.0)):
            with pytest.raises(predictions.PredictFirstError, match=r"waits for your prediction: Which is heavier\?"):
                result()
        with pytest.raises(ValueError, match="Choose one"):
            guess.commit()
        guess.choice.value = "that"
        with pytest.raises(predictions.PredictFirstError):
            guess.require()  # chosen, and not yet said
        guess.button.click()
        guess.require()
        assert repr(guess.compare(share=2.0)).splitlines() == [
            "Question: Which is heavier?",
            "You predicted: that",
            "Measured: this",
            "They differ.",
            "Because: It holds more.",
        ]

    def test_a_run_that_disagrees_is_shown_beside_what_was_expected(self) -> None:
        comparison = self.predicted("that").compare(share=0.5)
        assert repr(comparison).splitlines()[2:] == [
            "Measured: ⚠ that",
            "Expected: this. Here it came out otherwise; the text goes on from this.",
            "They agree.",
            "Because: It holds less.",
        ]
        assert "⚠ that" in comparison._repr_html_()
        assert "Measured: ⚠ none of these" in repr(self.predicted("that").compare(share=1.0))
        assert "Because: They weigh the same." in repr(self.predicted("that").compare(share=float("nan")))

    def test_is_final_in_every_way_that_a_page_offers(self) -> None:
        guess = self.predicted("this")
        for one in (guess, lab.predict("train.91")):
            assert one.choice.disabled
            assert one.button.disabled or one.button.description == predictions.MADE
            one.choice.value = "that"  # as a page might that has missed something
            one.button.click()
            assert one.value == "this"
            assert "You predicted: this" in repr(one.compare(share=0.5))
        assert lab.predict("train.91").choice.value == "this"

    @pytest.mark.parametrize(("key", "choice"), [("train.91", "this"), ("train.92", "0,5")])
    def test_the_page_is_never_told_to_disable_the_button_that_was_pressed(
        self, key: str, choice: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        guess = lab.predict(key)
        guess.choice.value = choice
        told: list[dict[str, Any]] = []
        monkeypatch.setattr(guess.button, "send_state", lambda key: told.append(guess.button.get_state(key)))
        guess.button.click()
        assert guess.value
        assert told
        assert {state.get("disabled", False) for state in told} == {False}
        assert guess.button.description == predictions.MADE

    def test_a_new_kernel_does_not_forget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.predicted("that")
        monkeypatch.setattr(predictions, "_kept", {})
        again = lab.predict("train.91")
        again.require()
        assert again.value == again.choice.value == "that"
        assert again.choice.disabled

    @pytest.mark.parametrize(
        ("typed", "took", "verdict"),
        [
            ("20", 16.0, "They agree: a factor of 1.25."),
            ("20", 26.0, "They are near each other: a factor of 1.3."),
            ("12,5", 25.0, "They are near each other: a factor of 2."),
            ("60", 20.0, "They differ: a factor of 3."),
        ],
    )
    def test_a_number_is_scored_by_its_ratio(self, typed: str, took: float, verdict: str) -> None:
        guess = self.predicted(typed, "train.92")
        comparison = guess.compare(took_ms=took)
        assert comparison.verdict == verdict
        assert f"You predicted: {float(typed.replace(',', '.')):g} ms" in repr(comparison)
        assert f"Measured: {took:.3g} ms" in repr(comparison)
        assert "Because: The bytes need 20 ms." in repr(comparison)

    def test_a_number_that_came_out_otherwise_or_was_not_measured(self) -> None:
        guess = self.predicted("20", "train.92")
        assert "Expected: 10 to 30 ms." in repr(guess.compare(took_ms=90.0))
        none = guess.compare(took_ms=float("nan"))
        assert none.outcome.measured == NONE
        assert none.verdict == "They cannot be compared."
        with pytest.raises(ValueError, match="compared with one value; got a, b"):
            guess.compare(a=1, b=2)

    @pytest.mark.parametrize("typed", ["", "much", "0", "-3", "nan", "inf"])
    def test_what_is_no_number_is_no_prediction(self, typed: str) -> None:
        guess = lab.predict("train.92")
        guess.choice.value = typed
        assert guess.button.disabled
        with pytest.raises(ValueError, match="Type a number above 0"):
            guess.commit()

    def test_a_notebook_shows_one_sentence(self) -> None:
        error = predictions.PredictFirstError("Make your prediction first.")
        assert error._render_traceback_() == ["Make your prediction first."]

    def test_nothing_is_said_to_be_predicted_where_nobody_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
        guess = lab.predict("train.91")
        guess.require()
        assert guess.value is None
        assert repr(guess.compare(share=2)) == "Question: Which is heavier?\nMeasured: this\nBecause: It holds more."
        with pytest.raises(Disagreement, match=r"expected 'this', got 'that' of share = 0\.5"):
            guess.compare(share=0.5)
        assert lab.predict("train.92").compare(took_ms=90.0).outcome.expected == "10 to 30 ms"

    def test_an_unknown_question_names_the_nearest(self) -> None:
        with pytest.raises(ValueError, match=r"no question 'train\.81'.*train\.91"):
            lab.predict("train.81")

    @pytest.mark.parametrize(("key", "full"), [("7.91", "squeeze.91"), ("21.1", "21.1"), (14.1, "wait.1"), ("", "")])
    def test_a_number_is_that_of_a_lesson_or_stays_as_it_is(self, key: Any, full: str) -> None:
        assert full_key(key) == full

    def test_a_question_needs_different_options_and_one_that_is_expected(self) -> None:
        for options, expected in ((("a", "a"), "a"), (("a",), "a"), (("a", "b"), "c")):
            choices = tuple(Option(text, lambda: True, text) for text in options)
            with pytest.raises(ValueError, match="at least two options, all different"):
                Question("train.93", "?", choices, expected, "", timed=False)

    def test_two_options_that_come_true_are_an_error_where_nobody_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        both = tuple(Option(text, lambda x: True, text) for text in ("a", "b"))
        asked = Question("train.93", "Which?", both, "a", "", timed=True)
        assert asked.outcome(x=1).measured == "a"
        monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
        with pytest.raises(ValueError, match="'a', 'b' are all true"):
            asked.outcome(x=1)

    def test_values_of_other_names_than_the_rules_are_a_sentence(self) -> None:
        choices = (Option("a", lambda share: share > 0, "So."), Option("b", bool, "So."))
        asked = Question("train.93", "Which?", choices, "a", "")
        for values, got in (({"med": 1}, "med"), ({}, "nothing"), ({"share": 1, "med": 2}, "share and med")):
            with pytest.raises(TypeError, match=f"the rule of 'a' takes share, and compare got {got}"):
                asked.outcome(**values)

    def test_the_places_of_the_options_follow_from_the_question_and_say_nothing(self) -> None:
        choices = tuple(Option(text, lambda: True, text) for text in "abc")
        asked = [Question("train.93", f"Question {i}?", choices, "c", "", timed=False) for i in range(60)]
        places = [one.options.index("c") for one in asked]
        assert {*places} == {0, 1, 2}
        assert places == [one.options.index("c") for one in asked]


def ends(picture: str, look: str) -> list[tuple[float, float]]:
    """Where the rectangles and lines of a look begin and end, in percent."""
    inside = re.findall(rf"<g class='{look}'>(.*?)</g>", picture)
    shapes = re.findall(r"<(?:rect|line) [^>]*?x1?='([-\d.]+)%' (?:width|x2)='([-\d.]+)%", "".join(inside))
    return [(float(start), float(stop)) for start, stop in shapes]


class TestPicture:
    """The guess, drawn into what was measured."""

    def result(self, asked: Question | Estimate, guess: str, **values: Any) -> str:
        measured = {name: verdicts.Measured.of(value) for name, value in values.items()}
        outcome = asked.outcome(**{name: value.value for name, value in measured.items()})
        return verdicts.result(asked, guess, outcome.measured, measured)

    def test_an_option_is_drawn_as_the_range_in_which_its_rule_holds(self) -> None:
        picture = self.result(WHICH, "that", share=1.6)
        axis = verdicts.Ruler.around([1.0, 1.6])
        ((start, wide),) = ends(picture, "guess")
        assert (start, start + wide) == pytest.approx((axis.place(0.0), axis.place(1.0)), abs=0.02)
        assert {*ends(picture, "right")} == {(axis.place(1.6), axis.place(1.6))}
        assert f"{verdicts.mark('wrong')}that<b class='wrong'>your guess, wrong</b>" in picture
        assert f"{verdicts.mark('right')}this<b class='right'>came true</b>" in picture
        assert f"{verdicts.mark('right')}this<b class='right'>your guess, right</b>" in self.result(
            WHICH, "this", share=1.6
        )

    @pytest.mark.parametrize(("guess", "verdict"), [("16", "right"), ("30", "near"), ("9000", "wrong")])
    def test_a_number_is_a_bar_with_a_line_for_the_guess(self, guess: str, verdict: str) -> None:
        picture = self.result(HOW_LONG, guess, took_ms=20.0)
        axis = verdicts.Ruler.around([float(guess), 16.0, 25.0])
        assert axis.log == (guess == "9000")
        (bar, near), (line,) = ends(picture, "right"), ends(picture, "guess")
        assert bar == pytest.approx((1.0, axis.place(20.0) - 1), abs=0.02)
        assert near == pytest.approx((axis.place(16.0), axis.place(25.0) - axis.place(16.0)), abs=0.02)
        assert line == (axis.place(float(guess)),) * 2
        assert f"{verdicts.mark(verdict)}<b class='{verdict}'>your guess, {verdict}</b>" in picture
        assert f"which is {verdict}. Measured: 20 ms." in picture

    def test_an_interval_is_measured_by_its_mean_and_drawn_as_a_line(self) -> None:
        guess = lab.predict("train.92")
        guess.choice.value = "20"
        guess.commit()
        found = guess.compare(took_ms=lab.interval([19.0, 20.0, 24.0]))
        assert "Measured: 21 ms" in repr(found)
        assert "21 ± 6.57 ms</text>" in found._repr_html_()
        assert state.noted("question")["train.92"]["values"] == "took_ms = 21 ± 6.6"

    def test_numbers_in_one_unit_are_bars_in_the_rows_of_their_options(self) -> None:
        choices = tuple(
            Option(name, lambda name=name, **took: max(took, key=took.get) == name, "It is.") for name in ("a", "b")
        )
        shown = {"a": "a: {:.1f} s", "b": "b: {:.1f} s"}
        picture = self.result(Question("train.94", "Which?", choices, "a", "", shown=shown), "b", a=2.0, b=1.0)
        axis = verdicts.Ruler.around([2.0])
        lengths = [1 + wide for _, wide in ends(picture, "right")]
        assert sorted(lengths) == pytest.approx([axis.place(1.0), axis.place(2.0)], abs=0.02)
        assert (lengths[0] > lengths[1]) == (picture.find("</svg>a<") < picture.find("</svg>b<"))
        assert picture.count("class='words'") == 3  # two options, each with its bar, and the axis
        with pytest.raises(ValueError, match="Expected the form of a measured value"):
            Question("train.94", "Which?", choices, "a", "", shown={"a": "seconds"})

    def test_other_values_are_told_in_words(self) -> None:
        choices = (Option("yes", lambda ran, n: ran, "It ran."), Option("no", lambda ran, n: not ran, "It did not."))
        shown = {"ran": "the command has run: {}"}
        picture = self.result(Question("train.95", "Did it?", choices, "yes", "", shown=shown), "no", ran=True, n=3)
        assert ">the command has run: yes</div>" in picture
        assert ">n: 3</div>" in picture

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -3.0, 1e-30, 1e30])
    @pytest.mark.parametrize("guess", ["1e-300", "20", "1e300"])
    def test_no_number_breaks_it(self, value: float, guess: str) -> None:
        for picture in (self.result(HOW_LONG, guess, took_ms=value), self.result(WHICH, "that", share=value)):
            assert all(-1 <= start <= 100 for start, _ in ends(picture, ".*?"))
            assert not re.search(r"'(nan|inf)", picture)

    @pytest.mark.parametrize("key", sorted({*QUESTIONS}))
    def test_each_question_of_the_lessons_draws_each_of_its_outcomes(self, key: str) -> None:
        asked = QUESTIONS[key]
        if isinstance(asked, Estimate):
            outcomes: dict[str, Any] = {"": {"x": sum(asked.expected) / 2}}
        else:
            outcomes = import_module(f"minips_course.{lesson_of(key)}.cases").OUTCOMES[key]
        for values in outcomes.values():
            noted = verdicts.to_note({name: verdicts.Measured.of(value) for name, value in values.items()})
            for guess in getattr(asked, "options", ["3"]):
                picture = self.result(asked, guess, **values)
                assert picture.count("your guess, ") == 1
                again = {name: value.value for name, value in verdicts.from_note(noted).items()}
                assert asked.outcome(**again) == asked.outcome(**values)
                assert "class='band'" in picture or "fill-opacity" in picture or len(asked.shown) == len(values)


class TestSay:
    def test_a_sentence_has_its_numbers_from_the_run(self, capsys: pytest.CaptureFixture[str]) -> None:
        lab.say("0.91", share=0.152)
        assert capsys.readouterr().out == "B sent 15% of A's bytes.\n"

    def test_a_missing_value_is_a_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said = Sentence("train.94", "It is {run.lr:g}.", "all(abs(x) > low for x in shares)")
        monkeypatch.setitem(SENTENCES, "train.94", said)
        with pytest.raises(TypeError, match=r"train\.94 needs run, low and shares, and lab.say got no value"):
            lab.say("train.94")
        with pytest.raises(TypeError, match=r"needs low and shares, and lab.say got only run and more"):
            lab.say("train.94", run=1, more=2)

    def test_what_does_not_depend_on_time_is_strict_where_nobody_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
        with pytest.raises(Disagreement, match=r"expected share < 0\.2; got share = 0\.5\."):
            lab.say("train.91", share=0.5)

    @pytest.mark.parametrize(("autoplay", "key"), [("1", "train.92"), ("0", "train.92"), ("0", "train.91")])
    def test_where_it_comes_out_otherwise_both_figures_are_shown_and_the_lesson_goes_on(
        self, autoplay: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("MINIPS_AUTOPLAY", autoplay)
        lab.say(key, share=0.52)
        said = capsys.readouterr().out
        assert said == "B sent 52% of A's bytes. Expected: share < 0.2. Here it came out otherwise.\n"

    @pytest.mark.parametrize(
        ("x", "said"), [(2, "It is 2. Pass."), (1, "It is 1. Fail. Expected: x > 1. Here it came out otherwise.")]
    )
    def test_the_verdict_on_a_card_is_computed(self, x: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
        lab.say("train.93", x=x)
        assert capsys.readouterr().out == f"{said}\n"


class TestAnswer:
    TABLE = "bytes: A 100, B 4"

    def box(self) -> Answer:
        return Answer(PROMPTS["train.91"], self.TABLE)

    def test_two_sentences_are_kept_and_can_be_changed(self) -> None:
        box = self.box()
        box.keep()
        assert box.note.value == "<div role='status'>There is nothing to keep yet.</div>"
        box.text.value = "B sends less"
        box.button.click()
        assert "Two sentences were asked for." in box.note.value
        box.text.value = "B sends less. The table shows 4 bytes, not 100."
        box.button.click()
        assert box.note.value == "<div role='status'>It is kept, and goes into the report.</div>"
        assert self.box().text.value == box.text.value

    def test_a_cell_shows_the_table_and_the_box(self, capsys: pytest.CaptureFixture[str]) -> None:
        lab.answer("0.91", self.TABLE)
        said = capsys.readouterr().out
        assert self.TABLE in said
        assert "Explain it. What sends less, and how do you know?" in said
        assert "An example" not in said

    def test_where_nobody_is_an_example_is_shown_and_said_to_be_one(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
        lab.answer("train.91", self.TABLE)
        assert "Nobody was asked in this run. An example of an answer: Sign. It shows." in capsys.readouterr().out
        assert not state.state_file().exists()


class TestQuiz:
    def test_each_answer_is_explained_and_the_first_one_counts(self) -> None:
        quiz = Quiz("train", QUIZ)
        for number, choice in enumerate(quiz.choices):
            choice.value = "no" if number == 2 else "yes"
        right, wrong = verdicts.mark("right"), verdicts.mark("wrong")
        assert f"{wrong} <b class='wrong'>No.</b> No, not 2.<" in quiz.notes[2].value
        assert f"{right} <b class='right'>Right.</b> Yes, 0.<" in quiz.notes[0].value
        assert all("role='status'" in note.value for note in (*quiz.notes, quiz.result))
        assert "Your first answers: 4 of 5 right." in quiz.result.value
        quiz.choices[2].value = "yes"
        assert f"{right} <b class='right'>Right.</b> Yes, 2.<" in quiz.notes[2].value
        assert quiz.right == 4
        assert state.noted("quiz")["train"]["right"] == "4 of 5"

    def test_the_options_lie_in_other_places(self) -> None:
        assert {choice.options[0] for choice in Quiz("train", QUIZ).choices} == {"yes", "no"}

    @pytest.mark.parametrize("autoplay", ["0", "1"])
    def test_readers_without_a_kernel_see_the_questions(
        self, autoplay: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("MINIPS_AUTOPLAY", autoplay)
        lab.quiz("0")
        said = capsys.readouterr().out
        assert "3. Question 2?" in said
        assert said.count("( )") == 10

    def test_a_quiz_has_five_questions(self) -> None:
        from minips.lab.course.questions import quiz

        with pytest.raises(ValueError, match="a quiz has five questions, got 4"):
            quiz("99", *QUIZ[:4])


class TestReport:
    def test_all_that_was_done_stands_on_one_page(self, tmp_path: Path) -> None:
        guess = lab.predict("train.91")
        guess.choice.value = "this"
        guess.commit()
        guess.compare(share=0.25)
        box = Answer(PROMPTS["train.91"], "a <table>")
        box.text.value = "It is <b>so</b>. I saw it."
        box.keep()
        quiz = Quiz("train", QUIZ)
        for choice in quiz.choices:
            choice.value = "yes"
        state.note("exercise", "train.3")
        written = lab.report(tmp_path)
        page = (tmp_path / "report.html").read_text()
        assert repr(written) == f"Your report is in {written.path}, and as data in {tmp_path / 'report.json'}."
        for words in (
            "00 Train in a minute",
            "<b>Which is heavier?</b>",
            "<b class='wrong'>Wrong.</b> You predicted: this. Measured: that.",
            "aria-label='You predicted: this, which is wrong. Measured: that. share: 0.25.'",
            "What sends less, and how do you know?",
            "a &lt;table&gt;",
            "It is &lt;b&gt;so&lt;/b&gt;. I saw it.",
            "Exercises: train.3 done, of 2.",
            "Quiz: 5 of 5 right at the first answer.",
        ):
            assert words in page, words

    def test_one_quantity_has_one_unit(self, tmp_path: Path) -> None:
        for key, guess, values in (
            ("train.1", "about half", "accuracy = 0.961"),
            ("train.2", "it falls below 50 %", "accuracy = 96.21; change = 0.1"),
        ):
            measured = QUESTIONS[key].expected
            state.note("question", key, predicted=guess, measured=measured, values=values, verdict="They differ.")
        page = lab.report(tmp_path).path.read_text()
        assert ">96.1%</text>" in page
        assert ">accuracy: 96.2%</div>" in page
        assert "0.961" not in page
        assert "96.21" not in page

    def test_it_has_a_place_for_a_name(self, tmp_path: Path) -> None:
        lab.report(tmp_path, name='Ada "A" <b>')
        page = (tmp_path / "report.html").read_text()
        assert "<label>Name: <input value='Ada &quot;A&quot; &lt;b&gt;'></label>" in page
        lab.report(tmp_path)
        assert "<label>Name: <input value=''></label>" in (tmp_path / "report.html").read_text()

    def test_a_prediction_without_a_result_is_drawn_alone(self, tmp_path: Path) -> None:
        state.note("question", "train.91", predicted="that")
        state.note("question", "train.92", predicted="20")
        page = lab.report(tmp_path).path.read_text()
        assert page.count("Measured: not yet.") == 2
        assert "aria-label='You predicted: that.'" in page
        assert "<b class='guess'>your guess</b>" in page
        assert ends(page, "guess") == [(verdicts.Ruler.around([20.0]).place(20.0),) * 2]

    def test_where_nothing_was_done_it_says_so(self, tmp_path: Path) -> None:
        lab.report(tmp_path)
        assert "Nothing was predicted or answered yet." in (tmp_path / "report.html").read_text()

    @pytest.mark.parametrize(
        ("folder", "where", "link"),
        [
            (".", "report.html", "report.html"),
            ("of a class", "of a class/report.html", "of%20a%20class/report.html"),
            (Path("a&b"), "a&b/report.html", "a%26b/report.html"),
            ("..", "../report.html", "../report.html"),
            (None, None, "deep/report.html"),
        ],
    )
    def test_it_tells_where_it_is(
        self, folder: Any, where: str | None, link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = tmp_path / "here"
        for name in ("of a class", "a&b", "deep"):
            (here / name).mkdir(parents=True)
        monkeypatch.chdir(here)
        where = where or str(here / "deep" / "report.html")
        written = lab.report(here / "deep" if folder is None else folder)
        assert Path(where).read_text().endswith("</html>")
        assert repr(written) == f"Your report is in {where}, and as data in {Path(where).with_suffix('.json')}."
        assert f"<a href='{link}' target='_blank'>{html.escape(where)}</a>" in written._repr_html_()

    def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"There is no folder .*none for .*report.html\. Make it"):
            lab.report(tmp_path / "none")


class TestLockedCells:
    """What the lock makes of cells, without a notebook around them."""

    def run(self, names: dict[str, Any], *cells: str) -> list[bool]:
        """Whether each cell ran."""
        lock = names.setdefault("__lock__", predictions._Lock(names))
        ran = []
        for cell in cells:
            tree = lock.visit(ast.parse(cell))
            asks = "waits for your prediction: Which is heavier?" in ast.unparse(tree)
            ran.append(not asks)
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(ast.fix_missing_locations(tree), "cell", "exec"), names)
            assert said.getvalue().count("Which is heavier?") == asks
        return ran

    CELLS = (
        "guess.require()\nrun = 3\nfor value in range(3): pass",
        "total = run + 1",
        "def double():\n    return 2 * total",
        "double()",
        "shown = [run for run in range(3)], {run: run for run in {run for run in range(3)}}",
        "run = 5\nprint(run)",
        "other = run",
        "for value in (1, 2): print(value)",
        "run += value",
        "guess.compare(share=2)",
        "free = 1",
    )

    def test_a_cell_waits_that_requires_or_uses_what_such_a_cell_defines(self) -> None:
        names: dict[str, Any] = {"guess": lab.predict("train.91")}
        assert self.run(names, *self.CELLS) == [
            False, False, False, False, True, True, True, True, True, False, True,
        ]  # fmt: skip
        assert names["other"] == names["run"] - 2 == 5

    def test_all_run_once_it_is_predicted(self) -> None:
        guess = lab.predict("train.91")
        names: dict[str, Any] = {"guess": guess}
        self.run(names, *self.CELLS)
        guess.choice.value = "this"
        guess.commit()
        assert all(self.run(names, *self.CELLS))

    @pytest.mark.parametrize("cell", ["await something()", "import os.path as place", "lambda run: run", "x: int = 1"])
    def test_other_cells_are_left_alone(self, cell: str) -> None:
        lock = predictions._Lock({"guess": lab.predict("train.91")})
        lock.visit(ast.parse("guess.require()\nrun = 1"))
        tree = ast.parse(cell)
        assert lock.visit(tree) is tree


class TestInterval:
    def test_is_that_of_student(self) -> None:
        drawn = np.random.default_rng(0).normal(3.0, 2.0, size=(2000, 6))
        means, halves = lab.interval(drawn.T)
        inside = np.abs(means - 3.0) < halves
        assert 0.94 < inside.mean() < 0.96
        one = lab.interval(drawn[0])
        assert (one.mean, one.half) == pytest.approx((means[0], halves[0]))

    @pytest.mark.parametrize(
        ("values", "spec", "said"),
        [
            ([1.0, 2.0, 3.0, 4.0, 5.0], ".2f", "1.96"),
            ([1.0, 1.001, 1.002], ".2f", "0.002"),
            ([0.5, 0.5001, 0.5002], ".1%", "0.02%"),
            ([0.1] * 5, "6.2f", "– (5 equal)"),
            ([True, True], ".0%", "– (2 equal)"),
            ([1e-9, 2e-9, 3e-9], ".1e", "2.5e-09"),
        ],
    )
    def test_its_half_is_never_written_as_zero(self, values: Any, spec: str, said: str) -> None:
        _, half = lab.interval(values)
        assert format(half, spec) == said
        assert json.loads(json.dumps(half)) == half
        assert half == (0.0 if "equal" in said else pytest.approx(lab.interval(np.c_[values, values]).half[0]))

    @pytest.mark.parametrize("values", [3.0, [], [3.0]])
    def test_wants_two_values(self, values: Any) -> None:
        with pytest.raises(ValueError, match="two values or more; got"):
            lab.interval(values)
