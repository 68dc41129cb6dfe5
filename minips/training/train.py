"""Train a problem with a config."""

import reprlib
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.core.config import Config
from minips.core.exchange import PS
from minips.core.faults import Faults
from minips.core.limits import check_run
from minips.core.local import warn_of_outer
from minips.engines import Engine, Processes
from minips.engines.base import TrainingJob
from minips.engines.evaluation import Evaluation, OnEval, evaluation
from minips.engines.supervisor import interrupt_kept
from minips.problems import Problem
from minips.results.checkpoints import Checkpoint
from minips.results.origin import origin_of
from minips.results.run import Progress, Run, check_resumable
from minips.stage import build
from minips.training.progress import Wait, showing
from minips.words import check_type

CHILDREN = {"processes": "processes", "threads": "threads", "hosts": "hosts", "ray": "actors"}
"""The children that each engine starts, in words."""


@one_blas_thread
def train(
    problem: Problem,
    config: Config | None = None,
    *,
    engine: Engine | str | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
    stop: threading.Event | Callable[[], bool] | None = None,
    every: int | None = None,
    on_eval: OnEval | Sequence[OnEval] = (),
    resume: Run | str | Path | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    faults: Faults | None = None,
) -> Run:
    """Train ``problem`` with ``config`` on ``engine`` (None: `Processes`).

    ``progress`` shows the phase of the run and its step (True), or is called with a `Progress` a few times a second.
    None shows them in a notebook's cell, on a line that disappears. ``stop`` is an event or a function: once it is set
    or returns True, the run ends early and keeps its results. A run that diverges ends with the last finite parameters,
    and `Run.diverged` gives the reason. If a worker or server fails, raises a RuntimeError
    that names it and says why. Until `train` returns, BLAS uses one thread in this process too, so that every engine
    gives the same bits. Output, logs and warnings of the processes go to standard error, with the worker's name.

    The first Ctrl-C ends the run as ``stop`` does, and then raises KeyboardInterrupt; the second ends it immediately.
    The exception's attribute ``run`` is the unfinished run. Exceptions from callbacks also have this attribute; with
    servers, so has the RuntimeError for a failed worker.

    After every ``every`` steps, and at the end, the run pauses for an evaluation; ``progress`` shows its losses, and
    `Run.evaluations` keeps them. Each function in ``on_eval`` gets an `Eval`; if one returns True, the run ends.

    ``resume`` is a run, or the file of a saved run. The config's steps are the total: a run saved after 20 steps and
    resumed with ``steps=40`` gives the result of 40 steps, under BSP to the bit. If ``config`` is None, the saved
    config is used. Raises ValueError if the two are not compatible.

    ``checkpoint``, a `Checkpoint` or the path of a folder, keeps the run in that folder while it trains. If everything
    dies, ``resume`` with this folder goes on with the same run: no acknowledged push is lost, and under BSP the result
    is that of an undisturbed run, to the bit. ValueError if the folder holds a run and ``resume`` does not name it.

    ``faults`` are made on purpose, to see what the run does about them: see `Faults`. ValueError if the engine cannot
    make them.
    """
    check_problem("train", problem)
    if not isinstance(config, Config | None):
        raise TypeError(f"train takes a Config, such as ps.Config(workers=2), or None; got {reprlib.repr(config)}.")
    if not (isinstance(progress, bool | None) or callable(progress)):
        raise TypeError(f"progress takes True, False, or a function of a ps.Progress; got {progress!r}.")
    if not (stop is None or isinstance(stop, threading.Event) or callable(stop)):
        raise TypeError(f"stop takes a threading.Event, or a function that returns True to end the run; got {stop!r}.")
    check_type("faults", faults, Faults | None, "a ps.Faults, such as ps.Faults(kill={'worker 1': 20})")
    kept, before, given = _kept_and_before(Checkpoint.of(checkpoint), resume)
    config = (config or given).for_rows(problem.rows)
    warn_of_outer(config.local, config.optimizer)
    chosen = engine_for(engine, [config])
    if faults:
        chosen.check_faults(faults, config)
    params = check_run(config, problem.init(seeds.init(config.seed)), problem.tables)
    origin = origin_of(problem, params)
    if kept:
        kept.keep_origin(origin)
    state = None
    if before:
        params, state = check_resumable(before, config, origin)
    pauses = evaluation(every, on_eval, problem, before.seconds if before else 0.0, config.local)
    stopped = stop.is_set if isinstance(stop, threading.Event) else stop or (lambda: False)
    run = None
    with interrupt_kept() as interrupts:
        try:
            read, first = partial(_wait, chosen, config, pauses), _first_wait(chosen, config)
            if kept:
                kept.run.unlink(missing_ok=True)  # the whole run so far, which now goes on
            with showing(progress, read, first=first) as watch:
                run = chosen.run(
                    TrainingJob(
                        *(problem, config, params, watch, lambda: bool(interrupts) or stopped(), pauses, state),
                        checkpoint=kept,
                        faults=faults,
                    )
                )
            if pauses and not interrupts:
                pauses.end(run)
            if interrupts:
                raise interrupts[0]
        except BaseException as error:
            ended = interrupts[0] if interrupts and isinstance(error, Exception) else error
            run = vars(error).pop("run", run)
            if run and run.config is config:  # not if the run was made in a callback
                run.evaluations = pauses.rows if pauses else []
                with suppress(Exception):  # this error may be the reason why the run ended
                    run.judge(problem, origin)
                ended.run = run.after(before) if before else run  # type: ignore[attr-defined]
            if isinstance(ended, KeyboardInterrupt):
                words = "The run was interrupted; all that it started has ended."
                ended.args = (words,)
                vars(ended)["_render_traceback_"] = lambda: [words]  # a notebook shows this instead of a traceback
            if ended is not error:
                raise ended from None
            raise
    run.judge(problem, origin)
    run.evaluations = pauses.rows if pauses else []
    run = run.after(before) if before else run
    if kept:
        run.save(kept.run)
    return run


def _kept_and_before(
    checkpoint: Checkpoint | None, resume: Run | str | Path | None
) -> tuple[Checkpoint | None, Run | None, Config]:
    """Where the run is kept; the run before it, unless the one in that folder goes on; and the config of either."""
    goes_on = False
    if isinstance(resume, str | Path) and Path(resume).is_dir():
        checkpoint = checkpoint or Checkpoint(str(resume))
        goes_on = checkpoint.path.resolve() == Path(resume).resolve()
    if checkpoint:
        checkpoint.check(goes_on)
        if goes_on:
            return checkpoint, None, checkpoint.config()
    before = Run.load(resume) if isinstance(resume, str | Path) else resume
    return checkpoint, before, before.config if isinstance(before, Run) else Config()


def engine_for(engine: Engine | str | None, configs: Iterable[Config]) -> Engine:
    """The engine with this name (None: `Processes`). Raises ValueError if it cannot run one of the configs."""
    chosen: Engine = Processes() if engine is None else build("engine", engine)
    for config in configs:
        chosen.check(config)
    return chosen


def check_problem(who: str, problem: object) -> None:
    """Raise TypeError, naming the function ``who``, if ``problem`` is not a `Problem`."""
    if not isinstance(problem, Problem):
        raise TypeError(
            f"{who} takes a problem, which knows a loss and its gradient. Wrap the rows in one: "
            "ps.SoftmaxRegression(X, y) where y holds class numbers, ps.LinearRegression(X, y) where it holds values, "
            f"or a subclass of ps.Problem. Got {reprlib.repr(problem)}."
        )


def _first_wait(engine: Engine, config: Config) -> Wait:
    """The wait of a run before its first step."""
    if engine.name == "simulated":
        return Wait("simulating")
    children = config.workers + config.servers * isinstance(config.exchange, PS)
    return Wait(f"starting {children} {CHILDREN.get(engine.name, 'servers and workers')}")


def _wait(engine: Engine, config: Config, pauses: Evaluation | None, progress: Progress) -> Wait:
    """The wait of a run that trains. A step counts once, not once for each worker."""
    phase = "simulating" if engine.name == "simulated" else "training"
    details = [f"step {progress.applied // config.workers} of {progress.updates // config.workers}"]
    if progress.losses:
        details.append(f"loss {progress.losses[-1][2]:.4f}")
    if pauses and pauses.rows and pauses.rows[-1][-1] is not None:
        details.append(f"validation loss {pauses.rows[-1][-1]:.4f}")
    return Wait(phase, progress.applied / max(progress.updates, 1), " · ".join(details))
