"""The pictures of minips' states on a page, drawn from their tables.

python tests/states.py             draws them anew on docs/reading.md
"""

import re
from pathlib import Path

from minips.core.states import MemberState, Resumption, RunState, State, Supervision

PAGE = Path(__file__).parents[1] / "docs" / "reading.md"
TABLES: tuple[type[State], ...] = MemberState, RunState, Resumption, Supervision
"""In the order of the page."""


def picture(table: type[State]) -> str:
    """A table as a diagram in Mermaid's language: an arrow for each pair of states, with its events."""
    first, *_ = table
    lines = ["stateDiagram-v2", f"    [*] --> {first.word}"]
    for state in table:
        for word in dict.fromkeys(state.row.values()):
            events = ", ".join(event for event, after in state.row.items() if after == word)
            lines.append(f"    {state.word} --> {word}: {events}")
    return "\n".join(lines) + "\n"


def drawn(page: str) -> str:
    """The page with the pictures of the tables of today."""
    tables = iter(TABLES)
    return re.sub(
        r"(?<=^```mermaid\n).*?(?=^```)", lambda _: picture(next(tables)), page, flags=re.DOTALL | re.MULTILINE
    )


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
