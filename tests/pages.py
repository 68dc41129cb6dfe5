"""What the repository's pages of text hold: blocks of code, commands, headings and links."""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

ROOT = Path(__file__).parents[1]
GUIDE = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))]
"""What a user reads first: the README, and the pages of docs."""
OTHERS = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "lessons/README.md", "lessons/GLOSSARY.md"]
FURTHER = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "lessons").glob("further-*.md"))
"""What the lessons of a part leave out, one click from its lessons."""
PAGES = [*GUIDE, *OTHERS, *FURTHER, "minips/core/PROTOCOL.md"]
FENCED = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@cache
def text(page: str) -> str:
    """A page, by its path from the root of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def prose(page: str) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", text(page))


class Block(NamedTuple):
    """A block of code."""

    language: str
    code: str


def blocks(page: str, language: str = "") -> list[str]:
    """The code of a page's blocks, of one language or of all."""
    return [one.code for one in map(Block._make, FENCED.findall(text(page))) if language in ("", one.language)]


def languages(page: str) -> set[str]:
    """The languages of a page's blocks."""
    return {one.language for one in map(Block._make, FENCED.findall(text(page)))}


def commands(page: str) -> list[str]:
    """The lines of a page's blocks of shell commands, whole and without comments."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", "").splitlines()]
    return [" ".join(line.partition(" #")[0].split()) for line in lines]


def inline(page: str) -> list[str]:
    """What a page's sentences set as code."""
    return [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(page))]


def section(page: str, heading: str) -> str:
    """The text below a heading of the second rank, up to the next one."""
    (found,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text(page), re.DOTALL | re.MULTILINE)
    return str(found)


def headings(page: str) -> list[str]:
    """The headings of a page."""
    return re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(page: str) -> frozenset[str]:
    """The anchors of a page, or of a notebook as Jupyter makes them."""
    if page.endswith(".ipynb"):
        cells = json.loads(text(page))["cells"]
        words = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        return frozenset(
            one.replace("`", "").replace(" ", "-") for one in re.findall(r"^#+ (.+)$", words, re.MULTILINE)
        )
    return frozenset(map(anchor, headings(page)))


class Link(NamedTuple):
    """A link to a file of the repository, by its path from the root, and to a place in it."""

    file: str
    anchor: str


def links(page: str) -> Iterator[Link]:
    """The links of a page that lead to the repository's own files."""
    for address in re.findall(r"\]\(([^()\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", address):
            continue
        path, _, anchor = address.partition("#")
        there = Path(page).parent / unquote(path) if path else Path(page)
        yield Link(Path(os.path.normpath(there)).as_posix(), unquote(anchor))
