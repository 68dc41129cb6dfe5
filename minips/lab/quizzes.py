"""Five questions at the end of a lesson, each answer explained, right or wrong.

    lab.quiz("08")

The first answer to a question counts; the others may be read afterwards. In unattended runs the quiz is text.
"""

import ipywidgets
from IPython.display import display

from minips import seeds
from minips.lab import state
from minips.lab.course.questions import QUIZZES, Item, as_html, find, full_key
from minips.lab.style import STYLE, WIDE


class Quiz:
    """The questions of a lesson; ``first`` has the first answers, by the question's number from 0."""

    def __init__(self, lesson: str, items: tuple[Item, ...]) -> None:
        self.lesson, self.items = lesson, items
        self.first: dict[int, str] = {}
        self.choices, self.notes, rows = [], [], []
        for number, item in enumerate(items):
            options = seeds.options(item.text).permutation([*item.explained]).tolist()
            choice = ipywidgets.RadioButtons(
                options=options, value=None, description=f"{number + 1}. {item.text}", **WIDE
            )
            choice.observe(lambda change, number=number: self._answered(number, change["new"]), "value")
            note = ipywidgets.HTML()
            rows += [choice, note]
            self.choices.append(choice)
            self.notes.append(note)
        self.result = ipywidgets.HTML()
        self.panel = ipywidgets.VBox([ipywidgets.HTML(f"{STYLE}<b>Five questions.</b>"), *rows, self.result])
        self.panel.add_class("minips-panel")

    @property
    def right(self) -> int:
        """The number of first answers that were right."""
        return sum(self.items[number].right == answer for number, answer in self.first.items())

    def _answered(self, number: int, answer: str | None) -> None:
        if answer is None:
            return
        item = self.items[number]
        self.first.setdefault(number, answer)
        mark = "✓ Right." if answer == item.right else "✗ No."
        self.notes[number].value = as_html(f"{mark} {item.explained[answer]}")
        if len(self.first) == len(self.items):
            score = f"{self.right} of {len(self.items)}"
            unkept = state.note("quiz", self.lesson, right=score)
            self.result.value = as_html(f"Your first answers: {score} right. {unkept}".strip())


def quiz(lesson: str) -> None:
    """Ask the five questions of a lesson, by its number."""
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
