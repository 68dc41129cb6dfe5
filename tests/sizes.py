"""The lines of Python in each folder, and of the files that docs/reading.md lists: pytest prints them at its end.

python tests/sizes.py              prints the table
python tests/sizes.py COMMIT       counts the differences from this commit on, in tests/sizes.json
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "sizes.json"
"""``since``, a commit; ``sizes``, what it had; ``ceilings``, the most that there may be."""
PAGE = "docs/reading.md"
FOLDERS = (
    "minips",
    "minips/core",
    "minips/drivers",
    "minips/engines",
    "minips/cost",
    "minips/stages",
    "minips/stages/transports",
    "minips/results",
    "minips/training",
    "minips/testing",
    "minips/lab",
    "lessons/minips_course",
    "tests",
    "benchmarks",
    "examples",
)
MANY = 100
"""The table comes after more tests than this."""


class Reading(NamedTuple):
    """The files that the page lists: those of the core, the other numbered ones, and those to look up."""

    core: list[str]
    rest: list[str]
    lookups: list[str]

    @property
    def numbered(self) -> list[str]:
        return self.core + self.rest

    @property
    def all(self) -> list[str]:
        return self.numbered + self.lookups


def section(page: str, heading: str) -> str:
    """The text of the page under this heading, up to the next one."""
    (text,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    return str(text)


def reading() -> Reading:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    headings = "The core", "Client, server and transport", "Look these up"
    return Reading(*(re.findall(r"^\|.* \[`.+?`\]\(\.\./(.+?)\) \|", section(page, one), re.M) for one in headings))


def totals(lines: dict[str, int]) -> dict[str, int]:
    """The lines of each folder and of the list, from those of each file."""
    folders = {folder: sum(n for path, n in lines.items() if path.startswith(f"{folder}/")) for folder in FOLDERS}
    lists = {"the list to read": reading().all, "the list's core": reading().core}
    return folders | {name: sum(lines.get(path, 0) for path in paths) for name, paths in lists.items()}


def now() -> dict[str, int]:
    """The sizes of what is here."""
    roots = {folder.split("/")[0] for folder in FOLDERS}
    files = (path for root in roots for path in (ROOT / root).rglob("*.py") if "node_modules" not in path.parts)
    return totals({path.relative_to(ROOT).as_posix(): path.read_bytes().count(b"\n") for path in files})


def at(commit: str) -> dict[str, int]:
    """The sizes at a commit, of the files that are listed today. CalledProcessError where git does not know it."""
    command = ["git", "grep", "-c", "", commit, "--", "*.py"]
    counts = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return totals({path: int(n) for _, path, n in (row.split(":") for row in counts.splitlines())})


def table() -> list[str]:
    """The sizes, the differences since the commit that is recorded, and the ceilings."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = [f"{'':28}{'lines':>8}{'since ' + record['since'][:7]:>15}{'at most':>10}"]
    for name, size in now().items():
        most = record["ceilings"].get(name)
        change = size - record["sizes"].get(name, 0)
        rows.append(f"{name:28}{size:8,}{change:+15,}{'' if most is None else f'{most:,}':>10}".rstrip())
    return rows


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the table after a long test run, in the process that prints."""
    ran = sum(len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "skipped"))
    if ran > MANY:
        terminalreporter.section("lines of Python")
        for row in table():
            terminalreporter.write_line(row)


if __name__ == "__main__":
    if sys.argv[1:]:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        command = ["git", "rev-parse", "--verify", f"{sys.argv[1]}^{{commit}}"]
        since = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        record |= {"since": since, "sizes": at(since)}
        RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(*table(), sep="\n")
