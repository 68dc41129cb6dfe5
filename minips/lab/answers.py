"""Say it: a learner looks at what was measured and writes two sentences, which are kept for the report.

    lab.answer("08.1", table)       # shows the table and the task, and a box to write in

In unattended runs it shows an example of an answer, and says so.
"""

import re
from typing import Any

import ipywidgets
from IPython.display import display

from minips.lab import state
from minips.lab.course.questions import PROMPTS, Prompt, as_html, find
from minips.lab.style import STYLE, WIDE


class Answer:
    """The box. What was written last counts."""

    def __init__(self, prompt: Prompt, table: str) -> None:
        self.prompt, self.table = prompt, table
        before = state.noted("answer").get(prompt.key, {}).get("text", "")
        self.text = ipywidgets.Textarea(
            value=before,
            description="Your two sentences",
            layout={"width": "100%", "height": "6em"},
            style=WIDE["style"],
        )
        self.button = ipywidgets.Button(
            description="Keep them", tooltip="Your answer goes into the report.", layout={"align_self": "flex-start"}
        )
        self.button.on_click(lambda _: self.keep())
        self.note = ipywidgets.HTML("You can change them later." if before else "")
        task = ipywidgets.HTML(f"{STYLE}<b>Say it.</b> {as_html(prompt.task)}")
        self.panel = ipywidgets.VBox([task, self.text, self.button, self.note])
        self.panel.add_class("minips-panel")

    def keep(self) -> None:
        """Note the text; what is shorter than two sentences is kept, too, and said to be."""
        text = self.text.value.strip()
        if not text:
            self.note.value = "There is nothing to keep yet."
            return
        unkept = state.note("answer", self.prompt.key, task=self.prompt.task, table=self.table, text=text)
        short = "" if len(re.findall(r"[.!?](?=\s|$)", text)) >= 2 else "Two sentences were asked for."
        self.note.value = as_html(" ".join(filter(None, ["It is kept, and goes into the report.", short, unkept])))


def answer(key: str, table: Any) -> None:
    """Show ``table``, what was measured, and the task of this key with a box for the answer."""
    prompt = find("prompt", PROMPTS, key)
    if isinstance(table, str):
        print(table)
    else:
        display(table)  # type: ignore[no-untyped-call]
    if state.autoplay():
        print(f"Say it. {prompt.task}\nNobody was asked in this run. An example of an answer: {prompt.example}")
        return
    box = Answer(prompt, str(table))
    text = f"Say it. {prompt.task}"
    display({**box.panel._repr_mimebundle_(), "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
