"""Evaluations: functions that a training run calls with its parameters and losses at regular steps.

``train(…, every=20, on_eval=[…])`` pauses the run after every 20 steps of all the workers, and at its end. Training
resumes when each function has processed its `Eval`; a function that returns True ends the run. The run keeps the losses
of its pauses. Because a run pauses, all engines end with the same bits, and evaluations lengthen it.
"""

import csv
import io
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minips import files
from minips.core.local import LocalSteps
from minips.intake import as_number
from minips.problems import Problem
from minips.results.run import HELD_OUT, Evaluations, Rows, Run
from minips.stage import Tensors


class Eval(NamedTuple):
    """The state of a run during a pause."""

    step: int
    """Gradient steps of each worker so far, including those of an earlier run that is resumed."""
    params: Tensors
    """The parameters, which a function may keep."""
    loss: float
    """The training loss of the last step, averaged over the batches of all the workers; NaN before the first step."""
    validation_loss: float | None
    """The loss on held-out rows, without the problem's penalty; None if the problem has no held-out rows."""
    seconds: float
    """Seconds since the step loop started, including evaluations."""


OnEval = Callable[[Eval], bool | None]


@dataclass
class EarlyStopping:
    """Ends a run when its loss on held-out rows has not fallen by more than ``min_delta`` below its best for
    ``patience`` evaluations. ``best`` is the evaluation with the lowest loss; keep its ``params``.

    The run raises ValueError if the problem has no held-out rows. Source: Prechelt 1998, "Early Stopping – But When?",
    the class of criteria UP.
    """

    patience: int = 5
    min_delta: float = 0.0
    best: Eval | None = field(default=None, init=False)
    waited: int = field(default=0, init=False)
    """The number of evaluations since the best one."""
    _last: Eval | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.patience < 1 or self.min_delta < 0:
            raise ValueError(
                "EarlyStopping takes a patience of at least 1 and a min_delta of at least 0; "
                f"got {self.patience} and {self.min_delta}."
            )

    def __call__(self, now: Eval) -> bool:
        loss = now.validation_loss
        if loss is None:
            raise ValueError(
                "EarlyStopping needs the loss of held-out rows, but the problem has none. Give it X_validation and "
                "y_validation."
            )
        if self._last and (now.step <= self._last.step or now.seconds < self._last.seconds):  # a new run has begun
            self.best, self.waited = None, 0
        self._last = now
        if self.best is None or loss < (self.best.validation_loss or 0.0) - self.min_delta:
            self.best, self.waited = now, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


@dataclass
class CsvLog:
    """Writes a row of step, seconds, loss and validation_loss at each evaluation. The first row replaces an existing
    file; with ``append``, rows are added to it. The path may also be a pipe or a device. OSError if writing fails.
    """

    path: str | Path
    append: bool = False
    _rows: int = field(default=0, init=False, repr=False)

    def __call__(self, now: Eval) -> None:
        if not self._rows and (stream := files.stream(self.path)):
            weakref.finalize(self, stream.close)  # a pipe's reader sees the end of the file only then
        appends = self._rows > 0 or (self.append and self._holds_rows())
        writer = csv.writer(text := io.StringIO())
        if not appends:
            writer.writerow(["step", "seconds", "loss", "validation_loss"])
        held_out = "" if now.validation_loss is None else now.validation_loss
        writer.writerow([now.step, f"{now.seconds:.6f}", now.loss, held_out])
        (files.append if appends else files.write)(self.path, text.getvalue())
        self._rows += 1

    def _holds_rows(self) -> bool:
        path = Path(self.path)
        return path.is_file() and path.stat().st_size > 0


class Evaluation:
    """Pauses a run every ``every`` clocks, each of ``each`` gradient steps, until all functions have processed their
    `Eval`.
    """

    def __init__(self, problem: Problem, every: int, calls: Sequence[OnEval], began_s: float, each: int = 1) -> None:
        self.every, self._each = every, each
        self._held_out, self._calls, self._began_s = problem.held_out(), calls, began_s
        self._clock = -1
        self.rows: Evaluations = []
        """The losses at each pause so far."""

    def call(self, clock: int, params: Tensors, losses: Rows, seconds: float) -> bool:
        """Evaluate the run at a clock, ``seconds`` after its start. Return True if a function ends it."""
        if clock == self._clock:  # the workers that remained completed another round
            return False
        self._clock = clock
        with np.errstate(over="ignore", invalid="ignore"):
            held_out = None if self._held_out is None else as_number(self._held_out.loss(params), HELD_OUT)
        loss = losses[-1][2] if losses else math.nan
        now = Eval(clock * self._each, params, loss, held_out, self._began_s + seconds)
        self.rows.append((now.seconds, now.step, now.loss, held_out))
        answers = [call(now) for call in self._calls]
        for call, answer in zip(self._calls, answers, strict=True):
            if not isinstance(answer, bool | np.bool_ | None):
                raise TypeError(f"on_eval returns True to end the run, or None; {call!r} returned {answer!r}.")
        return any(answers)

    def end(self, run: Run) -> None:
        """Evaluate the run at its end, unless it was evaluated in a pause at the same step."""
        if run.clocks > self._clock and run.diverged is None:
            self.call(run.clocks, run.params, run.losses, run.seconds)


def evaluation(
    every: int | None,
    on_eval: OnEval | Sequence[OnEval],
    problem: Problem,
    began_s: float,
    local: LocalSteps | None = None,
) -> Evaluation | None:
    """Return the evaluation that calls these functions every ``every`` steps; None without ``every``. Raise TypeError
    or ValueError if the arguments do not fit together.
    """
    calls: list[Any] = [on_eval] if callable(on_eval) or not isinstance(on_eval, Iterable) else [*on_eval]
    if not all(map(callable, calls)):
        raise TypeError(f"on_eval takes functions of a ps.Eval; got {on_eval!r}.")
    if calls and every is None:
        raise ValueError("on_eval needs the number of steps between its calls, such as every=20.")
    if every is not None and (not isinstance(every, int | np.integer) or isinstance(every, bool) or every < 1):
        raise ValueError(f"every is a number of steps, at least 1; got {every!r}.")
    if every and local:
        local.check("every", every)
    each = local.steps if local else 1
    return Evaluation(problem, int(every) // each, calls, began_s, each) if every else None
