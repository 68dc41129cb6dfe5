"""Calibrations: lines fitted to measurements, stored in files and shown as tables."""

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
    """Measurements of one machine. Each line gives seconds as a function of values, bytes or rows, with quartiles."""

    worker: dict[str, Line] = option(dict, "the worker's spans in a push and a pull, by name: time by values")
    server: dict[str, Line] = option(dict, "the server's spans, by name: time by values; aggregate: per round")
    transfer: Line = option(Line(), "the span transfer, there and back, by values")
    worker_rest: Line = option(Line(), "the worker's processor time outside spans, per push and pull, by values")
    server_rest: Line = option(Line(), "the server's processor time outside spans, by values")
    idle: Line = option(Line(), "time during which both sides are idle, per push and pull, by values")
    worker_crowd: float = option(1.0, "the factor on worker_rest while four workers push", minimum=1)
    server_crowd: float = option(1.0, "the factor on server_rest while four workers push", minimum=1)
    hop_rest: Line = option(Line(), "processor time of a hop outside spans at both ends, by values")
    hop_idle: Line = option(Line(), "time of a hop during which both ends are idle, by values")
    message: Line = option(Line(), "one message over only the transport, one way: α, plus β for each byte")
    late_s: float = option(0.0, "the delay of a shaped link beyond what it promises", minimum=0, unit="s")
    gradient: Line | None = option(None, "the time of a batch's gradient of ``problem``, by rows")
    next_gradient: Line | None = option(None, "a gradient right after another one, as in local steps; None: the same")
    together: int = option(1, "contributions to a round", minimum=1)
    ratios: dict[str, float] = option(dict, "by stage of the push codec: bytes out over bytes in")
    cores: int = option(1, "cores of this machine", minimum=1)
    others: float = option(0.0, "other processes that needed a core at that time", minimum=0)
    problem: str = option("", "the problem that was calibrated; empty: normal float32 values")
    subject: str = option("", "the stages and the transport that were measured")
    note: str = option("", "a sentence if other programs kept the machine busy")

    @property
    def alpha_s(self) -> float:
        """The seconds that even the smallest message takes."""
        return self.message.fixed_s

    @property
    def beta_s(self) -> float:
        """The seconds that each byte of a message takes."""
        return self.message.each_s

    def with_gradient(self, line: Line) -> Self:
        """Return this calibration with ``line`` as the time of all gradients."""
        return replace(self, gradient=line, next_gradient=None)

    def gradient_of(self, step: int, config: Config) -> Line | None:
        """The line of a worker's ``step``. With local steps, only the first after an exchange uses ``gradient``."""
        return self.next_gradient or self.gradient if step % config.local_steps else self.gradient

    def bound(self, which: Bound) -> Self:
        """Return the calibration with every line at its lower quartile, or every line at its upper quartile."""
        lines = ["transfer", "worker_rest", "server_rest", "idle", "hop_rest", "hop_idle", "message"]
        lines += ["gradient", "next_gradient"]
        return replace(
            self,
            worker={name: line.bound(which) for name, line in self.worker.items()},
            server={name: line.bound(which) for name, line in self.server.items()},
            **{name: line.bound(which) for name in lines if (line := getattr(self, name))},
        )

    def save(self, path: str | Path) -> None:
        """Write the calibration as JSON. Raise OSError, which names the file, if it cannot be written."""
        try:
            files.write(path, json.dumps(self.to_dict(), indent=1))
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise OSError(
                f"The calibration cannot be written to {path}: {why}. Choose another file, or make room."
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote. Raise ValueError if the file contains something else."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text()))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path} does not contain a valid calibration ({message_of(error).rstrip('.')}). Give a file that "
                "Calibration.save wrote, or measure again with calibrate(config, cache=…)."
            ) from error

    def __str__(self) -> str:
        """Return a text table: α and β, then each stage with its time per message and per float32, and its ratio."""
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
    """Format a value of a line, with its quartiles."""
    return f"{value:.3g} ({value * line.low:.3g} to {value * line.high:.3g})"


def rank_lines(calibration: Calibration, config: Config) -> dict[str, Line]:
    """Return the lines of an all-reduce's rank: a worker's encoding, a server's decoding and updates."""
    lines = {name: calibration.worker[name] for name in ENCODE if name in calibration.worker}
    lines |= {name: calibration.server[name] for name in DECODE if name in calibration.server}
    lines |= _update_lines(calibration, config)
    lines = {name: line.times(1 / config.workers) if name == "aggregate" else line for name, line in lines.items()}
    return {**lines, "transfer": calibration.hop_rest.times(1 / 2)}


def inner_s(calibration: Calibration, config: Config, values: float) -> float:
    """Return the seconds of one inner optimizer step on this many values; 0 without local steps. The inner optimizer is
    assumed to take as long as the outer optimizer, which was measured.
    """
    return calibration.server.get("apply", Line()).at(values) if config.local else 0.0


def worker_lines(calibration: Calibration) -> dict[str, Line]:
    """Return the lines of a worker with servers, by span; ``transfer`` is a message's processor time outside spans."""
    return {**calibration.worker, "transfer": calibration.worker_rest.times(1 / 2)}


def server_lines(calibration: Calibration, config: Config) -> dict[str, Line]:
    """Return the lines of a server."""
    lines = calibration.server | _update_lines(calibration, config)
    return {**lines, "transfer": calibration.server_rest.times(1 / 2)}


def _update_lines(calibration: Calibration, config: Config) -> dict[str, Line]:
    """Return the server's lines for a round with this config's number of contributions."""
    together = (config.consistency.quorum(config.workers) or 1) / calibration.together
    lines = {name: calibration.server[name] for name in UPDATE if name in calibration.server}
    return {name: line.times(together) if name == "aggregate" else line for name, line in lines.items()}
