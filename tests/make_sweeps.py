"""Make the sweeps anew that lessons keep: `python tests/make_sweeps.py bits`, or of all lessons without a word.

With `--check` nothing is written: it says which sweeps came out otherwise. With `--first` as well, only the runs with
the first seed are made anew, at each rate. Of a notebook only those statements run that a call of `lab.best_of` depends
on.
"""

import ast
import json
import linecache
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course import sweeps
from minips.lab.course.best import Metric
from minips.lab.course.courses import chosen
from minips.lab.course.lessons import read, source
from minips.lab.course.predictions import _names_of

LESSONS = Path(__file__).parents[1] / "lessons"
CLOSE, MOST = 1e-4, 0.5
"""The largest relative difference of two runs that are the same, since machines add in other orders, and the share of a
sweep's rates at which they are: if a rate is too large, a run is chaotic, and comes out otherwise on another machine.
"""


def swept() -> list[str]:
    """The lessons that compare schemes."""
    return [word for word, path in chosen().paths().items() if "lab.best_of(" in path.read_text(encoding="utf-8")]


def folder(word: str) -> Path:
    """Where a lesson keeps its sweeps."""
    return LESSONS / "minips_course" / word / "sweeps"


def needed(word: str) -> list[str]:
    """The statements of a notebook that call `lab.best_of`, and those above that they depend on."""
    cells = [source(cell) for cell in read(chosen().paths()[word])["cells"] if cell["cell_type"] == "code"]
    found, wanted = list[str](), set[str]()
    for text in reversed([one for cell in cells if cell[:1] not in ("%", "!") for one in statements(cell)]):
        tree = ast.parse(text)
        reads, binds = _names_of(tree)
        if "lab.best_of(" in text or (binds | changed(tree)) & wanted:
            wanted = (wanted - binds) | reads
            found.insert(0, text)
    return found


def statements(cell: str) -> list[str]:
    """The source of each statement in a cell, with its decorators."""
    lines, found = cell.splitlines(), list[str]()
    for node in ast.parse(cell).body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        found.append("\n".join(lines[first - 1 : node.end_lineno]) + "\n")
    return found


def changed(tree: ast.Module) -> set[str]:
    """The names of which a part is assigned: ``schemes`` in ``schemes["sign"] = …``."""
    parts = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript | ast.Attribute)]
    stored = [node.value for node in parts if isinstance(node.ctx, ast.Store)]
    return {node.id for node in stored if isinstance(node, ast.Name)}


def run_statements(word: str, texts: list[str]) -> None:
    """Run statements as a notebook does: what is defined in them has a source."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, text in enumerate(texts):
        file = f"<{word}, statement {number}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), names)


def made(word: str, seeds: float = math.inf) -> dict[str, str]:
    """The sweeps of a lesson, run anew: the text of each file by its name. Runs from ``seeds`` on are taken as kept."""
    found, kept = dict[str, str](), dict[float, Any]()
    before = sweeps.load, sweeps.keep, Metric.of

    def load(asked: Any) -> dict[float, Any]:
        path = folder(word) / f"{sweeps.key_of(asked)}.json"
        kept.clear()
        kept.update(sweeps.read(path) if path.exists() else {})
        return {}

    def keep(asked: Any, runs: Any) -> None:
        found[f"{sweeps.key_of(asked)}.json"] = sweeps.text_of(asked, runs)

    def of(metric: Metric, problem: ps.Problem, config: ps.Config, engine: Any) -> tuple[float, float]:
        rows = kept.get(getattr(config.optimizer, "lr", 0.0))
        return before[-1](metric, problem, config, engine) if config.seed < seeds or rows is None else rows[config.seed]

    sweeps.load, sweeps.keep, Metric.of = load, keep, of  # type: ignore[method-assign]
    try:
        run_statements(word, needed(word))
    finally:
        sweeps.load, sweeps.keep, Metric.of = before  # type: ignore[method-assign]
    return found


def differences(word: str, texts: dict[str, str]) -> list[str]:
    """What of a lesson's sweeps came out otherwise."""
    kept = {path.name: path for path in folder(word).glob("*.json")}
    said = [f"{word}: {name} is kept, and no cell asks for it" for name in sorted({*kept} - {*texts})]
    said += [f"{word}: {name} is not kept" for name in sorted({*texts} - {*kept})]
    for name in sorted({*texts} & {*kept}):
        ours, anew = (json.loads(text)["runs"] for text in (kept[name].read_text(encoding="utf-8"), texts[name]))
        if [*ours] != [*anew] or not alike(*(np.array([*runs.values()], float) for runs in (ours, anew))):
            said.append(f"{word}: the runs of {name} came out otherwise")
    return said


def alike(ours: Any, anew: Any) -> bool:
    """Whether two sweeps are the same: rates in rows, then seeds, then the metric and the bytes sent. All runs send the
    same bytes, and most rates give the same metric.
    """
    same = np.isclose(ours, anew, rtol=CLOSE, atol=0, equal_nan=True)
    return bool(same[..., 1].all() and same[..., 0].all(axis=1).mean() > MOST)


if __name__ == "__main__":
    os.environ.update(MINIPS_AUTOPLAY="1", MPLBACKEND="Agg")
    checks, first = ("--check" in sys.argv), ("--first" in sys.argv)
    if first and not checks:
        sys.exit("--first only goes with --check: a sweep is kept with all its seeds.")
    wrong = list[str]()
    for lesson in [word for word in sys.argv[1:] if not word.startswith("--")] or swept():
        texts = made(lesson, 1 if first else math.inf)
        wrong += differences(lesson, texts)
        if not checks:
            folder(lesson).mkdir(exist_ok=True)
            for path in folder(lesson).glob("*.json"):
                path.unlink()
            for name, text in texts.items():
                (folder(lesson) / name).write_text(text, encoding="utf-8")
        print(f"{lesson}: {len(texts)} sweeps", flush=True)
    print(*wrong, sep="\n")
    sys.exit(1 if checks and wrong else 0)
