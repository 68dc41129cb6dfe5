"""``python -m benchmarks train``: the same training run on minips, on other systems, and with gradients alone.

Softmax regression on the digits, lifted to D random Fourier features, with 10 parameters for each. Two workers under
BSP. Every contender computes the same gradients, averages and steps with the same code, and ends at the same
parameters, which is checked; gradients alone, with nothing sent, are the floor.

The step loop lasts from go, when all are ready, to the last update. "In all" includes the start of every process, the
data shipped to it, and its end. The CPU is that of all processes that the contender started and that have ended.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from benchmarks import base, jobs, with_ray
from benchmarks.base import Chart
from minips import datasets, seeds
from minips.core.config import Config
from minips.engines import Processes
from minips.engines.supervisor import Supervisor, send_all
from minips.lab.measure import turns, with_torch
from minips.lab.measure.pairs import lacking
from minips.lab.measure.turns import START_S, TURN_S, Spread, Watch
from minips.problems import Problem, SoftmaxRegression
from minips.stage import Tensors, build
from minips.stages.optimizers import SGD
from minips.training.train import train

FEATURES, STEPS, ROUNDS = (1_000, 10_000, 100_000), 100, 5
TRANSPORT = "shm" if sys.platform == "linux" else "tcp"
SHARE = 0.8
"""With a smaller share of a core the floor is invalid: the scheduler prefers contenders that sometimes sleep."""
TOLERANCE = 1e-4
"""The allowed difference of the final parameters, as a share of the largest: machines may round differently."""


class Job(NamedTuple):
    """One run: seconds of the step loop and in all, and the parameters; for the floor the share of a core instead; and
    the CPU seconds of its processes, 0 on Windows, which does not count them.
    """

    loop_s: float
    total_s: float
    params: Tensors | None
    share: float | None = None
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Row:
    """One contender at one size; seconds over those of the floor and of minips in the same round."""

    features: int
    parameters: int
    contender: str
    loop_s: Spread | None = None
    loop_over_floor: Spread | None = None
    loop_over_minips: Spread | None = None
    total_s: Spread | None = None
    startup_s: Spread | None = None
    share: Spread | None = None
    """The share of a core that each of the floor's workers had; None for the others, whose workers wait."""
    cpu_s: Spread | None = None
    skipped: str = ""

    @property
    def group(self) -> str:
        """The rows of this size."""
        return f"D = {self.features:,}"


def measure(
    features: Sequence[int] = FEATURES,
    transport: str = TRANSPORT,
    contenders: Sequence[str] | None = None,
    steps: int = STEPS,
    rounds: int = ROUNDS,
    watch: Watch = lambda text, share: None,
) -> Iterator[Row]:
    """A row for each number of features and each contender (None: all). RuntimeError if one ends elsewhere."""
    config = Config(
        transport=build("transport", transport), workers=2, steps=steps, batch_size=64, optimizer=SGD(lr=16.0)
    )
    names = base.select(list(RUN), contenders)
    absent = {name: lacking([name], "compare") if name in ("torch", "ray") else "" for name in names}
    for i, size in enumerate(features):
        lifted, skipped = problem(size), dict(absent)
        done: dict[str, dict[int, Job]] = {name: {} for name in names if not skipped[name]}
        tell = base.part(watch, i, len(features), f"{size:,} features")
        for number, name in turns.rota(dict.fromkeys(done, rounds), rounds, tell):
            if skipped[name]:
                continue
            try:
                done[name][number] = run(name, lifted, config, size)
            except RuntimeError as error:
                skipped[name] = f"skipped: {error}"
                del done[name]
        check(done)
        parameters = sum(p.size for p in lifted.init(np.random.default_rng(0)).values())
        for name in names:
            yield _row(size, parameters, name, done, skipped[name])


def run(name: str, problem: Problem, config: Config, features: int) -> Job:
    """Run a job, and count the CPU seconds of its processes."""
    before = os.times()
    job = RUN[name](problem, config, features)
    after = os.times()
    user_s, system_s = after.children_user - before.children_user, after.children_system - before.children_system
    return job._replace(cpu_s=user_s + system_s)


def problem(features: int) -> Problem:
    """The digits' training rows, lifted, without held-out rows."""
    data = datasets.digits()
    return SoftmaxRegression(datasets.fourier(data.X, features), data.y)


def check(done: Mapping[str, Mapping[int, Job]]) -> None:
    """RuntimeError if two runs ended at different parameters, and so did different work."""
    ends = [(name, job.params) for name, runs in done.items() for job in runs.values() if job.params]
    for name, params in ends:
        first, expected = ends[0]
        for key, p in expected.items():
            off = float(np.abs(params[key] - p).max() / np.abs(p).max())
            if not off <= TOLERANCE:
                raise RuntimeError(
                    f"{name} and {first} ended at different parameters: {key} differs by {off:.2g} of its largest, "
                    f"and {TOLERANCE:g} is allowed. They did not do the same work, so their times cannot be compared."
                )


def _row(features: int, parameters: int, name: str, done: Mapping[str, Mapping[int, Job]], skipped: str) -> Row:
    if skipped:
        return Row(features, parameters, name, skipped=skipped)
    loops = {each: {number: job.loop_s for number, job in runs.items()} for each, runs in done.items()}
    over_floor, over_minips = (turns.over(loops, name, each) for each in ("floor", "minips"))
    loop, total = Spread.of(loops[name].values()), Spread.of(job.total_s for job in done[name].values())
    startup = Spread.of(job.total_s - job.loop_s for job in done[name].values())
    shares = [job.share for job in done[name].values() if job.share is not None]
    share, cpu = Spread.of(shares) if shares else None, Spread.of(job.cpu_s for job in done[name].values())
    return Row(features, parameters, name, loop, over_floor, over_minips, total, startup, share, cpu)


def _minips(problem: Problem, config: Config, features: int) -> Job:
    began = time.monotonic()
    run = train(problem, config, engine=Processes())
    return Job(run.seconds, time.monotonic() - began, run.params)


def _ray(_: Problem, config: Config, features: int) -> Job:
    """Run Ray's driver as a user would, with the problem made and Ray imported."""
    with Supervisor(Processes().start) as supervisor:
        (driver,) = supervisor.start("Ray's driver")
        driver.assign(with_ray.drive, {"config": config, "make": problem, "features": features})
        supervisor.receive(driver, "ready", START_S)
        driver.send("go")
        return Job(**supervisor.receive(driver, "result", TURN_S))


def _conduct(
    work: Callable[..., Any], serve: Callable[..., Any] | None, problem: Problem, config: Config, features: int
) -> Job:
    """A run whose workers, and server if any, run as roles in processes, like minips' own."""
    began = time.monotonic()
    with base.folder() as folder, Supervisor(Processes().start) as supervisor:
        parts = {"config": config, "folder": folder}
        workers = supervisor.start(*(f"worker {number}" for number in range(config.workers)))
        server = supervisor.start("the server")[0] if serve else None
        if server and serve:
            server.assign(serve, {"params": problem.init(seeds.init(config.seed)), **parts})
        for number, worker in enumerate(workers):
            worker.assign(work, {"problem": problem.shard(number, config.workers), "worker": number, **parts})
        if server and (address := supervisor.receive(server, "ready", START_S)):
            send_all(workers, "connect", address)
        for worker in workers:
            supervisor.receive(worker, "ready", START_S)
        going = time.monotonic()
        send_all(workers, "go")
        reports = [supervisor.receive(worker, "result", TURN_S) for worker in workers]
        if server:
            server.send("stop")
            reports = [supervisor.receive(server, "result", START_S)]
    ended = max(report["changed_at"] for report in reports)
    shares = [report["share"] for report in reports if "share" in report]
    return Job(ended - going, time.monotonic() - began, reports[0].get("params"), min(shares, default=None))


RUN: dict[str, Callable[[Problem, Config, int], Job]] = {
    "floor": partial(_conduct, jobs.alone, None),  # gradients alone, nothing sent
    "minips": _minips,
    "pickle": partial(_conduct, jobs.pipe_worker, jobs.pipe_server),
    "torch": partial(_conduct, with_torch.run_ps_worker, with_torch.serve),
    "ray": _ray,  # as in Ray's own example of a parameter server
}
"""How each contender runs a job: the problem, its config, its number of features."""


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""

    def cells(row: Row) -> list[str]:
        times = base.duration(row.total_s), *(base.duration(s, quartiles=False) for s in (row.startup_s, row.cpu_s))
        ratios = base.ratio(row.loop_over_floor), base.ratio(row.loop_over_minips)
        return [f"  {row.contender}", base.duration(row.loop_s), *ratios, *times]

    title = "digits, D Fourier features, 10 parameters each, 2 workers; medians [quartiles]"
    headings = ["step loop", "over\nfloor", "over\nminips", "in all", "less\nthe loop", "CPU"]
    shown = base.table(title, headings, rows, cells, "group")
    if short := [row.share.median for row in rows if row.share and row.share.median < SHARE]:
        words = f"The floor had {min(short):.0%} of its cores: other work runs here, so its multiples mean nothing."
        shown.caption = "\n".join(filter(None, [words, str(shown.caption or "")]))
    return shown


def chart(rows: Sequence[Row]) -> Chart:
    """The step loop of each contender, a series for each size."""
    return Chart(base.series(rows, "loop_s"), "time of the step loop (s)")
