"""Spans of the default run, and of runs with a registered subclass that changes nothing, in µs and as ratios.

    python tests/spans_us.py         # 20 turns in an order drawn by seed, medians of the medians

Each run has two workers in threads and 50 steps on the digits. The ratios are of the subclass's run over the default's.
"""

import random
import sys
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import minips as ps
from minips.results.trace import SPANS

TURNS = 20


def renamed(base: type[Any]) -> Any:
    """A registered subclass of a stage that changes nothing but the name."""
    return ps.register(dataclass(frozen=True)(type(f"My{base.__name__}", (base,), {"name": f"my{base.name}"})))()


def measure(turns: int) -> dict[str, dict[str, float]]:
    """The median seconds of each span by name, for each run."""
    problem, default = ps.SoftmaxRegression(*ps.datasets.digits()), ps.Config(workers=2, steps=50)
    configs = {"default": default, "SGD": replace(default, optimizer=renamed(ps.SGD))}
    for name, stage in {"MsgPack": renamed(ps.MsgPack), "Exact": renamed(ps.Exact)}.items():
        codec = ps.Codec(**{stage.kind: stage})
        configs[name] = replace(default, push=codec, pull=codec)
    found: dict[str, dict[str, list[float]]] = {name: {span: [] for span in SPANS} for name in configs}
    for turn in range(turns):
        for name in random.Random(turn).sample([*configs], len(configs)):
            run = ps.train(problem, configs[name], engine="threads")
            for span in SPANS:
                if seconds := [one.seconds for one in run.trace if one.name == span]:
                    found[name][span].append(median(seconds))
    return {name: {span: median(rows) for span, rows in spans.items() if rows} for name, spans in found.items()}


if __name__ == "__main__":
    measured = measure(int(sys.argv[1]) if sys.argv[1:] else TURNS)
    for span, seconds in measured["default"].items():
        ratios = (f"{name} {spans[span] / seconds:5.2f}" for name, spans in measured.items() if seconds)
        print(f"{span:12} {seconds * 1e6:9.2f} µs   {'   '.join(ratios)}")
