"""What decides the claims of a lesson: the lines to remember, the right answers of its quiz, and its model answers.

A claim's ``by`` names measurements by key, each with an optional condition on its values (see `By` in
`minips.lab.course.questions`). `listen` watches a lesson as it runs in a notebook's kernel, and `undecided` then says
which claims the run contradicts, or never came to.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from minips import lab
from minips.lab.course import EXERCISES, PROMPTS, QUESTIONS, QUIZZES, SENTENCES, cells, exercises, predictions
from minips.lab.course.courses import lesson_of
from minips.lab.course.questions import REMEMBERED, By, Outcome, Question, full_key

KNOWN: dict[str, Any] = {"say": SENTENCES, "predict": QUESTIONS, "check": EXERCISES}
KNOWN |= {"table": PROMPTS, "timed table": PROMPTS}
GRAMMAR = re.compile(r"(say|predict|check|table|timed table)(?: ([\w:]+\.\d+))?(?:: (.+))?", re.DOTALL)
EQUAL = re.compile(r"– \(\d+ equal\)")
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?(?!\w)")


class Decider(NamedTuple):
    """One measurement of a claim, and the condition on its values. A prompt's key may be left out by its own table."""

    kind: str
    key: str
    condition: str

    @property
    def timed(self) -> bool:
        """True if its values depend on the machine."""
        if self.kind in ("say", "predict"):
            return bool(KNOWN[self.kind][self.key].timed)
        return self.kind == "timed table"


class Claim(NamedTuple):
    """A text that a learner is told, what was given before it, and what decides it."""

    place: str
    text: str
    given: str
    by: tuple[Decider, ...]


def deciders(key: str, by: By) -> tuple[Decider, ...]:
    """The measurements that ``by`` names, for a claim in the lesson or the prompt with this key."""
    found = []
    for words in (by,) if isinstance(by, str) else by:
        match = GRAMMAR.fullmatch(words)
        assert match, f"{key}: not a measurement: {words!r}"
        kind, named, condition = match.groups()
        found.append(Decider(kind, named or key, condition or ""))
    return tuple(found)


def lines_of(text: str) -> list[str]:
    """The lines of the section "Remember" in a Markdown cell."""
    return re.findall(r"^- (.+)$", text.partition("## Remember\n")[2], re.MULTILINE)


def claims_of(word: str, remembered: list[str]) -> Iterator[Claim]:
    """All claims of a lesson, whose section "Remember" has these lines."""
    for line in remembered:
        named = [by for words, by in REMEMBERED.get(word, {}).items() if line.startswith(words)]
        yield Claim(f"Remember of {word}", line, "", deciders(word, named[0]) if len(named) == 1 else ())
    for turn, item in enumerate(QUIZZES[word], 1):
        yield Claim(f"quiz {word}, {turn}", item.right, item.text, deciders(word, item.by))
    for key, prompt in PROMPTS.items():
        if lesson_of(key) == word:
            yield Claim(f"model answer {key}", prompt.example, prompt.task, deciders(key, prompt.by))


def numbers(text: str) -> set[float]:
    """The numbers that stand by themselves in a text; of 8-bit or float32 there are none."""
    return {abs(float(found.replace("−", "-").replace(",", ""))) for found in NUMBER.findall(text)}


def rows(table: str) -> dict[str, list[float]]:
    """The numbers of a table's rows, by the first column and the columns without digits that follow it. The half of an
    interval whose values are equal is 0.

    >>> rows("top 5 %         0.153    -0.3 ± 0.2\\n0.4 s, drawn  unknown      never    10 ± 0")
    {'top 5 %': [0.153, -0.3, 0.2], '0.4 s, drawn unknown never': [10.0, 0.0]}
    """
    found = {}
    for line in table.splitlines():
        first, *columns = re.split(r"\s*\|\s*|\s{2,}|: ", re.sub(r"±\s+", "± ", EQUAL.sub("0", line.strip())))
        label = [first, *takewhile(lambda column: not re.search(r"\d", column), columns)]
        numbers = re.findall(r"[+-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?", " | ".join(columns[len(label) - 1 :]))
        if numbers:
            found[" ".join(label)] = [float(number.replace(",", "")) for number in numbers]
    return found


def column(row: dict[str, list[float]], turn: int) -> list[float]:
    """The numbers of all rows that have so many."""
    return [numbers[turn] for numbers in row.values() if turn < len(numbers)]


class Run:
    """What a lesson said so far: which measurements it came to, and which of them contradict a claim."""

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.solved = False
        """True once the solutions are pasted in."""
        self.seen: set[tuple[str, str]] = set()
        self.wrong: dict[str, str] = {}
        self.noted: list[str] = []
        """What came out otherwise, or contradicts a claim, and depends on the machine."""

    def came(self, kind: str, key: str, holds: bool, values: dict[str, Any]) -> None:
        """Decide the claims that name this measurement."""
        self.seen.add((kind, key))
        if not holds:
            self.noted.append(f"{kind} {key} came out otherwise: {values}, solved: {self.solved}")
        for claim in self.claims:
            for one in claim.by:
                if (one.kind.removeprefix("timed "), one.key) == (kind, key):
                    self._decide(claim, one, holds, values)

    def _decide(self, claim: Claim, one: Decider, holds: bool, values: dict[str, Any]) -> None:
        try:
            true = holds and (not one.condition or bool(eval(one.condition, {**values, "solved": self.solved})))
        except Exception as error:
            true = False
            values = {**values, "error": repr(error)}
        if not true:
            told = {name: value for name, value in values.items() if not callable(value)}
            words = f"{claim.place} ({claim.text!r}): {one} is not true of {told}, solved: {self.solved}"
            if one.timed and "error" not in values:
                self.noted.append(words)
            else:
                self.wrong[f"{claim.place} {claim.text} {one}"] = words

    def undecided(self, word: str) -> list[str]:
        """What contradicts a claim or was never measured in the whole lesson."""
        for key, verdict in exercises.VERDICTS.items():
            self.came("check", key, bool(verdict) or not self.solved, {"verdict": verdict})
        never = [
            f"{claim.place}: the lesson never came to {one}"
            for claim in self.claims
            for one in claim.by
            if lesson_of(one.key) == word and (one.kind.removeprefix("timed "), one.key) not in self.seen
        ]
        return [*self.wrong.values(), *never]


def listen(word: str, remembered: list[str]) -> Run:
    """Watch a lesson in this process, which is a notebook's kernel."""
    run = Run([*claims_of(word, remembered)])

    def completed(key: str, **values: Any) -> tuple[str, bool]:
        text, holds = original["completed"](key, **values)
        run.came("say", full_key(key), holds, values)
        return text, holds

    def settled(asked: Question, **values: Any) -> Outcome:
        outcome: Outcome = original["settled"](asked, **values)
        run.came("predict", asked.key, outcome.expected is None, values)
        return outcome

    def answer(key: str, table: Any, **values: Any) -> None:
        row, head = rows(str(table)), str(table).partition("\n")[0]
        facts = {"row": row, "column": partial(column, row), "head": head, "table": table}
        run.came("table", full_key(key), True, facts)
        original["answer"](key, table, **values)

    original: dict[str, Callable[..., Any]] = {}
    for module, new in ((cells, completed), (predictions, settled), (lab, answer)):
        original[new.__name__] = getattr(module, new.__name__)
        setattr(module, new.__name__, new)
    return run
