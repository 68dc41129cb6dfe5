"""Write each question's text and options into the cell above it: `python tests/plain_questions.py bits`, or all.

Readers without a kernel see that cell; `test_course.py` holds it to the question that is kept with the lesson.
"""

import json
import sys

from minips.lab.course import QUESTIONS
from minips.lab.course.courses import chosen
from minips.lab.course.lessons import arguments, read
from minips.lab.course.questions import Estimate, Question


def plain(asked: Question | Estimate) -> str:
    """A question in Markdown, for readers without a kernel."""
    options = asked.options if isinstance(asked, Question) else (f"a number ({asked.unit})",)
    return "\n".join([f"**Predict.** {asked.text}", "", *(f"- {option}" for option in options)])


if __name__ == "__main__":  # the test run imports each module here
    for word, path in chosen().paths().items():
        if sys.argv[1:] and not {word, path.name[:2]} & {*sys.argv[1:]}:
            continue
        book = read(path)
        for above, cell in zip(book["cells"], book["cells"][1:], strict=False):
            for key in arguments(cell, "predict"):
                assert above["cell_type"] == "markdown", f"no Markdown cell above lab.predict({key!r})"
                above["source"] = plain(QUESTIONS[key]).splitlines(keepends=True)
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
