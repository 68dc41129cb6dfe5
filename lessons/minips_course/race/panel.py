"""Seconds and bytes to 90 %, for an entry's bits, local steps and rule of waiting as controls."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import minips as ps
from minips.lab.charts import PENS, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.racing import Verdict
from minips.racing.verdicts import run
from minips.stage import Value, option
from minips_course.race.trial import KB, OFFICE, SECONDS

SEEDS = 3
WAITS = {
    "for nobody": ps.ASP(),
    "for 6 of 8": ps.BSP(backup=2),
    "for 7 of 8": ps.BSP(backup=1),
    "for all 8": ps.BSP(),
}
LOW_S, HIGH_S, LOW_KB, HIGH_KB = 0.02, 2.0, 20.0, 20_000.0


@dataclass(frozen=True)
class Asked(Value):
    """An entry's bits per value, the steps between its exchanges, and its rule of waiting."""

    bits: int = option(32, "bits per value, each way; fewer than 32 with feedback", choices=(2, 4, 8, 32))
    steps: int = option(1, "gradient steps of each worker between two exchanges", choices=(1, 2, 4, 8))
    waits: str = option("for all 8", "how many workers' pushes a round waits for", choices=WAITS)


class Found(NamedTuple):
    """The verdict on what was asked for, and that on the defaults."""

    asked: Asked
    verdict: Verdict
    defaults: Verdict


def entry(asked: Asked) -> ps.Config:
    """Return the config of an entry, with the rate of the race's entries."""
    push, pull = ps.Codec(), ps.Codec()
    if asked.bits < 32:
        bits = ps.Uniform(bits=asked.bits)
        push, pull = ps.Codec(bits, ps.ErrorFeedback()), ps.Codec(bits, ps.Delta())
    local = ps.LocalSteps(asked.steps, ps.SGD(lr=1.0)) if asked.steps > 1 else None
    rule = WAITS[asked.waits]
    return ps.Config(
        workers=8, steps=160, optimizer=ps.SGD(lr=1.0), consistency=rule, local=local, push=push, pull=pull
    )


@cache
def verdict_on(config: ps.Config) -> Verdict:
    """Race a config on the office's track."""
    return run(OFFICE, config, range(SEEDS))


class SecondsAndBytes(Panel[Asked, Found]):
    """Draws the seconds and the kB to 90 % of the digits, beside the limits and minips' defaults.

    >>> found = SecondsAndBytes().find(Asked(bits=4, steps=4, waits="for nobody"))
    >>> found.verdict.seconds < found.defaults.seconds / 10, found.verdict.nbytes < found.defaults.nbytes / 50
    (True, True)
    """

    title = "Seconds and bytes to 90 %"
    asks = Asked
    labels = {"steps": "local steps"}
    repeats = True

    def find(self, asked: Asked) -> Found:
        return Found(asked, verdict_on(entry(asked)), verdict_on(ps.Config()))

    def chart(self, found: Found, width: float) -> Drawing:
        x = Scale("virtual seconds to 90 %", LOW_S, HIGH_S, log=True)
        chart = Chart(width, 280, x, Scale("kB of all messages", LOW_KB, HIGH_KB, log=True))
        chart.areas((LOW_S, SECONDS), (LOW_KB, KB), "b", "within both limits", pale=True)
        for verdict, pen, label in (
            (found.defaults, PENS[4], "the defaults"),
            (found.verdict, PENS[0], "this entry, each seed"),
        ):
            chart.marks([(lap.seconds, lap.nbytes / 1e3) for lap in verdict.laps if lap.reached], pen, label)
        return chart.drawing()

    def words(self, found: Found) -> str:
        asked, verdict = found.asked, found.verdict
        what = f"{asked.bits} bits, {asked.steps} local step{'s' * (asked.steps > 1)}, waits {asked.waits}: "
        if not verdict.placed:
            return f"{what}not every seed gets to 90 %."
        over = ["seconds"] * (verdict.seconds > SECONDS) + ["bytes"] * (verdict.nbytes > 1e3 * KB)
        kept = f"too many {' and '.join(over)}" if over else "both are kept"
        return (
            f"{what}{verdict.seconds:.3f} virtual s and {verdict.nbytes / 1e3:.0f} kB, the mean of {SEEDS} seeds. "
            f"The limits are {SECONDS:g} s and {KB:.0f} kB: {kept}."
        )
