"""Run every entry of examples/race on every track, and write the tables of LEADERBOARD.md.

python benchmarks/race/table.py
"""

import math
import sys
from pathlib import Path

from minips.racing import TRACKS, Track, Verdict, judge

ROOT = Path(__file__).parents[2]
PAGE, ENTRIES = ROOT / "LEADERBOARD.md", ROOT / "examples" / "race"
END = "<!-- end -->"
HEAD = "| entry | seconds | kB | accuracy | digest |\n|---|---|---|---|---|\n"


def table(track: Track) -> str:
    """The table of a track: the fastest entry first, then entries without a place."""
    placed: list[tuple[float, str]] = []
    others: list[tuple[float, str]] = []
    for path in sorted(ENTRIES.glob("*.py")):
        print(track.name, path.name, file=sys.stderr)
        link = f"[{path.stem}](examples/race/{path.name})"
        try:
            verdict = judge(track, path.read_text(), path.name)
        except (ValueError, RuntimeError) as error:
            others.append((math.inf, f"| {link} | no place: {error} | | | |\n"))
            continue
        (placed if verdict.placed else others).append((verdict.seconds, _row(link, verdict)))
    return HEAD + "".join(row for _, row in [*sorted(placed), *others])


def section(track: Track) -> str:
    """The text between a track's marks in LEADERBOARD.md."""
    return f"\n{track.about}\n\n{table(track)}\n"


def _row(link: str, verdict: Verdict) -> str:
    seconds = [lap.seconds for lap in verdict.laps]
    kilobytes = [lap.nbytes / 1e3 for lap in verdict.laps]
    accuracy = sum(lap.accuracy for lap in verdict.laps) / len(verdict.laps)
    return (
        f"| {link} | {verdict.seconds:.4f} ({min(seconds):.4f} to {max(seconds):.4f}) "
        f"| {verdict.nbytes / 1e3:.1f} ({min(kilobytes):.1f} to {max(kilobytes):.1f}) "
        f"| {accuracy:.3f} | `{verdict.digest}` |\n"
    )


def main() -> None:
    """Write the tables."""
    page = PAGE.read_text()
    for track in TRACKS.values():
        begin = f"<!-- {track.name} -->\n"
        before, _, rest = page.partition(begin)
        page = before + begin + section(track) + END + rest.partition(END)[2]
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
