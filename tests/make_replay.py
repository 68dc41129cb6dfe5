"""Make the replay anew that the README and the docs show: `python tests/make_replay.py`.

Its runs are simulated, so it comes out the same everywhere. A test compares.
"""

from pathlib import Path

import minips as ps

DOCS = Path(__file__).parents[1] / "docs"
THEMES = "<style>svg { color: #1f2328 } @media (prefers-color-scheme: dark) { svg { color: #f0f6fc } }</style>"
"""The colours of a picture that stands alone: `currentColor` of the page does not reach it."""


def bsp_and_asp() -> list[ps.Run]:
    """Runs of four workers, of which one is three times slower: they wait for each other, or do not."""
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    slow = ps.Delays(seconds=0.01, slow={3: 3.0})
    rules = [ps.BSP(), ps.ASP()]
    configs = [ps.Config(steps=12, consistency=rule, link=ps.Link(10e6, 0.001), delays=slow) for rule in rules]
    return [ps.train(problem, config, engine=ps.Simulated(compute_s=0.01)) for config in configs]


def files() -> dict[Path, str]:
    """The text of each file."""
    replay = ps.lab.replay(*bsp_and_asp())
    start, rest = replay.still.split(">", 1)
    page, picture = replay.html("Everybody waits, or nobody"), f"{start}>{THEMES}{rest}\n"
    return {DOCS / "replay.html": page, DOCS / "replay.svg": picture}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8", newline="\n")
        print(f"{path.name}: {len(text.encode()):,} bytes")
