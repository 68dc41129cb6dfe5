"""A calibration: lines through measurements, and how they are kept and shown."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from minips import files
from minips.core.config import Config
from minips.machines.fit import Bound, Line
from minips.results.trace import DECODE, ENCODE, UPDATE
from minips.stage import Value, option
from minips.words import message_of


@dataclass(frozen=True)
class Calibration(Value):
    """The measurements of one machine. Lines are in seconds, by values, bytes or rows; `Line` has their intervals."""

    worker: dict[str, Line] = option(dict, "by span name: a worker's part of a push and its pull, by values")
    server: dict[str, Line] = option(dict, "by span name: the server's part; aggregate: a round's; by values")
    transfer: Line = option(Line(), "the span of that name, there and back, by values")
    worker_rest: Line = option(Line(), "processor time of a push and its pull in no span, at the worker, by values")
    server_rest: Line = option(Line(), "the same at the server, by values")
    idle: Line = option(Line(), "time of a push and its pull in which neither works, by values")
    worker_crowd: float = option(1.0, "how many times the worker's rest it takes when four push at once", minimum=1)
    server_crowd: float = option(1.0, "how many times the server's rest it takes then", minimum=1)
    hop_rest: Line = option(Line(), "processor time of a hop among workers in no span, both ends, by values")
    hop_idle: Line = option(Line(), "time of a hop in which neither works, by values")
    message: Line = option(Line(), "a message over the bare transport, one way: α, and β for each byte")
    late_s: float = option(0.0, "how much later than it says a shaped link delivers", minimum=0, unit="s")
    gradient: Line | None = option(None, "a batch's gradient of ``problem``, by rows")
    next_gradient: Line | None = option(None, "one right after another, as in local steps; None: the same")
    together: int = option(1, "contributions to a round", minimum=1)
    ratios: dict[str, float] = option(dict, "bytes that leave a stage of the push codec over those that enter it")
    cores: int = option(1, "cores of this machine", minimum=1)
    others: float = option(0.0, "processes of others that wanted a core at the same time", minimum=0)
    problem: str = option("", "whose gradients these were; empty: normal float32 values")
    subject: str = option("", "the stages and the transport that were measured")
    note: str = option("", "a sentence where other programs kept the machine busy meanwhile")

    @property
    def alpha_s(self) -> float:
        """Seconds that a message takes however small it is."""
        return self.message.fixed_s

    @property
    def beta_s(self) -> float:
        """Seconds for each byte of a message."""
        return self.message.each_s

    def with_gradient(self, line: Line) -> Self:
        """A calibration whose gradients all take the time of this line."""
        return replace(self, gradient=line, next_gradient=None)

    def gradient_of(self, step: int, config: Config) -> Line | None:
        """The gradient of a worker's ``step``: with local steps only the first after an exchange is ``gradient``."""
        return self.next_gradient or self.gradient if step % config.local_steps else self.gradient

    def bound(self, which: Bound) -> Self:
        """All the lower quartiles, or all the upper ones."""
        lines = ["transfer", "worker_rest", "server_rest", "idle", "hop_rest", "hop_idle", "message"]
        lines += ["gradient", "next_gradient"]
        return replace(
            self,
            worker={name: line.bound(which) for name, line in self.worker.items()},
            server={name: line.bound(which) for name, line in self.server.items()},
            **{name: line.bound(which) for name in lines if (line := getattr(self, name))},
        )

    def save(self, path: str | Path) -> None:
        """Write it as JSON. OSError, which says where, where that is not possible."""
        try:
            files.write(path, json.dumps(self.to_dict(), indent=1))
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise OSError(
                f"The calibration cannot be written to {path}: {why}. Choose another file, or make room."
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote. ValueError where the file holds something else."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text()))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path} holds no calibration that can be read ({message_of(error).rstrip('.')}). Give a file that "
                "Calibration.save wrote, or measure again with calibrate(config, cache=…)."
            ) from error

    def __str__(self) -> str:
        """A text table: α and β, then each stage: what it takes for a message, for a float32, and its ratio."""
        lines = [
            f"α  {_interval(self.message.fixed_s * 1e6, self.message)} µs for a message",
            f"β  {_interval(self.message.each_s * 1e9, self.message)} ns for a byte",
            f"{'':<22} {'fixed, µs':>30} {'ns for a byte':>30}{'ratio':>8}",
        ]
        if self.gradient:
            lines.insert(
                2,
                f"a gradient: {_interval(self.gradient.fixed_s * 1e6, self.gradient)} µs, and for a row "
                f"{_interval(self.gradient.each_s * 1e6, self.gradient)} µs",
            )
        for side, spans in (("worker", self.worker), ("server", self.server)):
            for name, line in spans.items():
                ratio = f"{self.ratios[name]:8.3f}" if side == "worker" and name in self.ratios else ""
                each, fixed = line.times(1 / 4).each_s, _interval(line.fixed_s * 1e6, line)
                lines.append(f"{side} {name:<15} {fixed:>30} {_interval(each * 1e9, line):>30}{ratio}")
        return "\n".join(lines)


def _interval(value: float, line: Line) -> str:
    """A value of a line with its quartiles."""
    return f"{value:.3g} ({value * line.low:.3g} to {value * line.high:.3g})"


def rank_lines(calibration: Calibration, config: Config) -> dict[str, Line]:
    """The lines of an all-reduce's rank: it encodes as a worker, decodes as a server, aggregates message by message."""
    lines = {name: calibration.worker[name] for name in ENCODE if name in calibration.worker}
    lines |= {name: calibration.server[name] for name in DECODE if name in calibration.server}
    lines |= update_lines(calibration, config)
    return {name: line.times(1 / config.workers) if name == "aggregate" else line for name, line in lines.items()}


def inner_s(calibration: Calibration, config: Config, values: float) -> float:
    """Seconds of one step of the inner optimizer, where there are local steps, on so many values: they are taken to be
    those of the outer one, which was measured.
    """
    return calibration.server.get("apply", Line()).at(values) if config.local else 0.0


def update_lines(calibration: Calibration, config: Config) -> dict[str, Line]:
    """The server's lines of a round, for as many contributions as this config's has."""
    together = (config.consistency.quorum(config.workers) or 1) / calibration.together
    lines = {name: calibration.server[name] for name in UPDATE if name in calibration.server}
    return {name: line.times(together) if name == "aggregate" else line for name, line in lines.items()}
