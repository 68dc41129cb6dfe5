"""The cells of a lesson except predictions: a sentence that a run completes, an answer in words, and a final quiz.

    lab.say("trust.4", spread=max(spread))  # shows a sentence of the lesson with this number in it
    lab.answer("trust.1", table)            # shows the table, the task, and a box for text
    lab.quiz("trust")                       # asks five questions, and explains every answer

The lesson's folder in its course contains the sentences, tasks and questions. If a run contradicts a sentence, the
cell says so, shows the measured and the expected figure, and the lesson continues. In an unattended run, a
labelled example replaces the learner's answer, and the quiz is plain text.
"""

import re
from typing import Any

import ipywidgets
from IPython.display import display

from minips import seeds
from minips.lab.course import state
from minips.lab.course.best import Best
from minips.lab.course.questions import PROMPTS, QUIZZES, Item, Prompt, completed, find, full_key, tells_if_retired
from minips.lab.course.verdicts import CSS, mark
from minips.lab.style import STYLE, WIDE
from minips.lab.texts import as_html, status


class Said:
    """A sentence that a run has completed; ``holds`` is False if the run contradicts it."""

    def __init__(self, text: str, holds: bool) -> None:
        self.text, self.holds = text, holds

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<p>{'' if self.holds else '⚠ '}{as_html(self.text)}</p>"


@tells_if_retired
def say(key: str, **values: Any) -> None:
    """Show the sentence of this key with the values in it. Raises `Disagreement` as `completed` does."""
    display(Said(*completed(key, **values)))  # type: ignore[no-untyped-call]


class Answer:
    """The box for an answer in words. Only the last text is stored for the report."""

    def __init__(self, prompt: Prompt, table: str) -> None:
        self.prompt, self.table = prompt, table
        before = state.noted("answer").get(prompt.key, {}).get("text", "")
        self.text = ipywidgets.Textarea(
            value=before,
            description="Your two sentences",
            layout={"width": "auto", "height": "6em"},
            style=WIDE["style"],
        )
        self.button = ipywidgets.Button(
            description="Keep them", tooltip="Your answer goes into the report.", layout={"align_self": "flex-start"}
        )
        self.button.on_click(lambda _: self.keep())
        self.note = ipywidgets.HTML("You can change them later." if before else "")
        task = ipywidgets.HTML(f"{STYLE}<b>Explain it.</b> {as_html(prompt.task)}")
        self.panel = ipywidgets.VBox([task, self.text, self.button, self.note])
        self.panel.add_class("minips-panel")

    def keep(self) -> None:
        """Store the text. A text of fewer than two sentences is stored too, but the box says that it is short."""
        text = self.text.value.strip()
        if not text:
            self.note.value = status("There is nothing to keep yet.")
            return
        unkept = state.note("answer", self.prompt.key, task=self.prompt.task, table=self.table, text=text)
        short = "" if len(re.findall(r"[.!?](?=\s|$)", text)) >= 2 else "Two sentences were asked for."
        self.note.value = status(" ".join(filter(None, ["It is kept, and goes into the report.", short, unkept])))


@tells_if_retired
def answer(key: str, table: Any) -> None:
    """Show ``table``, which has the measurements, and the task of this key with a box for the answer. TypeError if the
    task compares schemes that train, and the table is not a `Best`.
    """
    prompt = find("prompt", PROMPTS, key)
    if prompt.kind == "comparison" and not isinstance(table, Best):
        raise TypeError(f"{prompt.key} compares schemes that train: its table must be what lab.best_of returns.")
    if isinstance(table, str):
        print(table)
    else:
        display(table)  # type: ignore[no-untyped-call]
    if state.autoplay():
        print(f"Explain it. {prompt.task}\nNobody was asked in this run. An example of an answer: {prompt.example}")
        return
    box = Answer(prompt, str(table))
    text = f"Explain it. {prompt.task}"
    display({**box.panel._repr_mimebundle_(), "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]


class Quiz:
    """The questions of a lesson. ``first`` maps a question's number, from 0, to its first answer; only that is
    scored. Afterwards, the other options' explanations can be read.
    """

    def __init__(self, lesson: str, items: tuple[Item, ...]) -> None:
        self.lesson, self.items = lesson, items
        self.first: dict[int, str] = {}
        self.choices, self.notes, rows = [], [], []
        for number, item in enumerate(items):
            options = seeds.options(item.text).permutation([*item.explained]).tolist()
            choice = ipywidgets.RadioButtons(
                options=options, value=None, description=f"{number + 1}. {item.text}", tooltip="", **WIDE
            )
            choice.observe(lambda change, number=number: self._answered(number, change["new"]), "value")
            note = ipywidgets.HTML()
            rows += [choice, note]
            self.choices.append(choice)
            self.notes.append(note)
        self.result = ipywidgets.HTML()
        title = ipywidgets.HTML(f"{STYLE}<style>{CSS}</style><b>Five questions.</b>")
        self.panel = ipywidgets.VBox([title, *rows, self.result])
        self.panel.add_class("minips-panel")

    @property
    def right(self) -> int:
        """The number of questions whose first answer was right."""
        return sum(self.items[number].right == answer for number, answer in self.first.items())

    def _answered(self, number: int, answer: str | None) -> None:
        if answer is None:
            return
        item = self.items[number]
        self.first.setdefault(number, answer)
        verdict, word = ("right", "Right.") if answer == item.right else ("wrong", "No.")
        words = f"{mark(verdict)} <b class='{verdict}'>{word}</b> {as_html(item.explained[answer])}"
        self.notes[number].value = f"<div class='minips-result' role='status'>{words}</div>"
        if len(self.first) == len(self.items):
            score = f"{self.right} of {len(self.items)}"
            unkept = state.note("quiz", self.lesson, right=score)
            self.result.value = status(f"Your first answers: {score} right. {unkept}".strip())


def quiz(lesson: str) -> None:
    """Ask the five questions of the lesson with this name."""
    items = find("quiz", QUIZZES, lesson)
    asked = Quiz(full_key(lesson), items)
    text = "\n".join(
        line
        for number, (item, choice) in enumerate(zip(items, asked.choices, strict=True), 1)
        for line in (f"{number}. {item.text}", *(f"  ( ) {option}" for option in choice.options))
    )
    if state.autoplay():
        print(text)
        return
    display({**asked.panel._repr_mimebundle_(), "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
