"""Pull the plug: kills put on the replay of a run, which is then made anew in virtual time or with real processes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import make_dataclass, replace
from functools import partial
from math import inf
from operator import itemgetter
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import ipywidgets
from IPython.display import HTML, display

from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.exchange import PS, AllReduce
from minips.core.faults import Faults
from minips.engines.processes import Processes
from minips.engines.simulated.engine import Simulated
from minips.lab.panels.base import STATIC_S, Panel, cover
from minips.lab.source import code
from minips.lab.style import FIGURE
from minips.lab.views.base import View, format_seconds
from minips.lab.views.packing import columns, pack
from minips.lab.views.recording import Recording, axis_of, times_of
from minips.lab.views.replay import check_playable, happened
from minips.lab.views.still import draw_still
from minips.machines.calibration import Calibration
from minips.problems import Problem
from minips.results.checkpoints import Checkpoint
from minips.results.messages import Joined
from minips.results.run import Run
from minips.results.trace import Trace
from minips.stage import Value, option
from minips.stages.consistency import ASP, BSP, SSP, Consistency
from minips.training.train import check_problem, train
from minips.words import check_type, join_names

EVERY = 10
"""The clocks between two snapshots of a run that is kept."""
HINT = "Click on a lane of A to kill its process there, and on the cross to let it live; or choose both here:"
RULES: dict[str, Consistency] = {"BSP": BSP(), "SSP(staleness=2)": SSP(2), "ASP": ASP()}
Kill = dict[str, int]


class Pulled(NamedTuple):
    """A run with kills, beside an undisturbed one."""

    kill: Kill
    calm: Run
    run: Run | None
    """If it has ended for good, what there was of it; None if nothing is left of a real one."""
    measured: bool
    ended: str = ""
    """The error that ended it for good."""
    has_params: bool = False
    """Whether that error has the run so far, with its parameters."""
    settings: str = ""
    """Its restarts and its checkpoint, in words."""


def plug(
    problem: Problem,
    config: Config,
    *,
    engine: Simulated | Calibration | None = None,
    kill: Mapping[str, int] | None = None,
    restart: int = 0,
    checkpoint: bool = False,
) -> "Plug":
    """Play a run back in virtual time, put kills on its lanes by a click, and see what they cost.

    ``engine`` or a calibration says what takes time; None is ``Simulated(compute_s=0.01)``. ``kill`` (as in `Faults`),
    ``restart`` and ``checkpoint`` are what the panel shows first. "Run for real" trains on `Processes`. Raises
    TypeError or ValueError if a kill is not possible, or nothing takes time.
    """
    check_problem("plug", problem)
    check_type("plug", config, Config, "a Config, such as ps.Config(workers=4, steps=40)")
    check_type("plug", engine, Simulated | Calibration | None, "a Simulated, or a Calibration")
    if not isinstance(engine, Simulated):
        engine = Simulated(calibration=engine) if engine else Simulated(compute_s=0.01)
    config = config.for_rows(problem.rows)
    return Plug(problem, config, engine, dict(kill or {}), restart=restart, checkpoint=checkpoint)


class Plug(Panel[Any, Pulled]):
    """The panel that `plug` makes. From code: change ``kill``, then ``run()`` or ``run_for_real()``, and ``wait()``."""

    title = "Pull the plug"
    labels = {"restart": "restarts"}
    instant = False

    def __init__(self, problem: Problem, config: Config, engine: Simulated, kill: Kill, **asked: Any) -> None:
        if config.clocks < 2:
            raise ValueError(f"plug needs a run of at least two clocks; got {config!r}.")
        Faults(kill=kill).check(config)
        self.problem, self.engine, self.kill, self.configs = problem, engine, kill, rules_of(config)
        self.asks = asks_of(config, [*self.configs], kill)  # type: ignore[misc]
        self.view = View("replay", {}, "", "")
        self._calm: dict[tuple[str, bool], Run] = {}
        super().__init__(**asked)
        number = self.form.name.removeprefix(self.title)
        self.real_button, self.kill_button = (
            ipywidgets.Button(description=words + number, tooltip=help, layout={"width": "auto"})
            for words, help in (
                ("Run for real", "train on processes of this machine, with the same kills"),
                ("Put or take away the kill", "kill the chosen party at the chosen clock, or let it live"),
            )
        )
        self.job.run_button.description = f"Run in virtual time{number}"
        self.job.stop_button.description = f"Stop{number}"
        self.job.on_run(self.run_for_real, self.real_button)
        self.kill_button.on_click(lambda button: self.toggle())
        self.view.on_asked(lambda asked: self.click(asked["who"], asked["at"], asked["near"]))
        title, form, buttons, message, _, *others = self.panel.children
        buttons.children = [buttons.children[0], self.real_button, *buttons.children[1:]]
        hint, edit = ipywidgets.HTML(HINT), ipywidgets.HBox([self.kill_button])
        self.panel.children = [title, hint, form, edit, buttons, message, self.view.panel, *others]
        check_playable(Recording(self.calm(self.rule)))
        self._draw()

    @property
    def rule(self) -> str:
        """The chosen rule."""
        return str(self.controls["rule"].value)

    def calm(self, rule: str, measured: bool = False) -> Run:
        """Return the undisturbed run under a rule, in virtual time or measured on processes."""
        if (rule, measured) not in self._calm:
            engine = Processes() if measured else self.engine
            run = train(self.problem, self.configs[rule], engine=engine, **self._watched())
            if run.stopped:
                raise InterruptedError("The undisturbed run was stopped, so there is nothing to compare with.")
            self._calm[rule, measured] = run
        return self._calm[rule, measured]

    def find(self, asked: Any, measured: bool = False) -> Pulled:
        calm, engine = self.calm(asked.rule, measured), Processes() if measured else self.engine
        pulled = pull(self.problem, calm, {**self.kill}, asked, engine, **self._watched())
        return pulled._replace(settings=settings_of(asked))

    def run_for_real(self) -> None:
        """Train on processes with the same kills, in a thread."""
        self.job.start(self._measure)

    def _measure(self) -> None:
        self.found = self.find(self.form.value(), measured=True)
        self._draw()
        self.job.message.value = ""

    def click(self, who: str, at: float, near: float = 0.0) -> None:
        """Kill a party at its moment next to ``at``, in seconds of the picture. ``near`` its cross, let it live."""
        moments, at = moments_of(self.calm(self.rule))[who], at + self._axis.start
        clock = min(moments, key=lambda clock: abs(moments[clock] - at))
        if abs(moments.get(self.kill.get(who, -1), inf) - at) <= near:
            clock = self.kill[who]
        self.controls["party"].value, self.controls["clock"].value = who, clock
        self.toggle()

    def toggle(self) -> None:
        """Kill the chosen party at the chosen clock, or let it live if that is planned; errors become sentences."""
        self.job.forget_failure()
        try:
            asked = self.form.value()
            kill = {asked.party: max(asked.clock, int(asked.party.startswith("server")))}
            Faults(kill=kill).check(self.configs[asked.rule])
            if kill.items() <= self.kill.items():
                del self.kill[asked.party]
            else:
                self.kill |= kill
            self._draw()
        except ValueError as error:
            self.job.fail(error)

    def _on_change(self) -> None:
        super()._on_change()
        if self.rule != self._drawn:
            self.job.start(self._draw)

    def _watched(self) -> dict[str, Any]:
        return {"progress": lambda one: self.job.progress(one.applied, one.updates), "stop": self.job.stopping}

    def _show(self, found: Pulled) -> None:
        self._draw()

    def _draw(self) -> None:
        """Draw the undisturbed run with the kills that are planned, and the last run if it was under this rule."""
        rule, found = self.rule, self.found
        calm = self.calm(rule)
        with self.job.lock:
            recordings, words = [Recording(calm, f"A: {rule}, undisturbed")], f"Planned: {killed(self.kill)}."
            if found and found.calm.config == calm.config:
                words = f"{self.words(found)} {words * (found.kill != self.kill)}".rstrip()
                title = f"B: with kills{found.settings}, {'measured' if found.measured else 'in virtual time'}"
                recordings += [Recording(found.run, title)] if found.run else []
            else:
                words = f"{undisturbed(calm)} {words}"
            self._drawn, self._axis, moments = rule, axis_of(recordings), moments_of(calm)
            marks = [(who, moments[who][clock]) for who, clock in self.kill.items() if clock in moments.get(who, ())]
            data, times = pack(recordings), [at for _, at in marks]
            data["windows"].pop("eight", None)
            if not recordings[0].folded:  # otherwise a lane is that of several parties
                lanes = [recordings[0].parties.index(who) for who, _ in marks]
                data["runs"][0]["kills"] = {**columns(self._axis, times, times), "lane": lanes}
            self.view.show(data, draw_still(recordings, "all", marks), words)

    def words(self, found: Pulled) -> str:
        return " ".join(sentences(found))

    def static(self, line: str | None = None) -> None:
        self.wait(STATIC_S)
        if self.found is None:
            self._find()
        display(HTML(f"{FIGURE}<div class='minips-still'>{self.view.still}</div>"))  # type: ignore[no-untyped-call]
        print(line or self.view.sentence)
        cover()


# ---- the choices ----


def rules_of(config: Config) -> dict[str, Config]:
    """Return the config under each rule that it allows, by name; the first is its own."""
    served = config.exchange if isinstance(config.exchange, PS) else None
    own = config.consistency if served else config.exchange
    name = next((name for name, rule in RULES.items() if rule == own), code(own, package=False).removesuffix("()"))
    found = {name: config}
    for name, rule in RULES.items():
        with suppress(ValueError):
            found.setdefault(name, replace(config, exchange=served or PS(), consistency=rule))
    with suppress(ValueError):
        found.setdefault("RingAllReduce", replace(config, exchange=RingAllReduce()))
    return found


def asks_of(config: Config, rules: Sequence[str], kill: Kill) -> type[Any]:
    """Return the class of what a panel for this config asks; it shows the first of these kills."""
    servers = [f"server {number}" for number in range(config.servers)]
    parties = [*servers, *(f"worker {number}" for number in range(config.workers))]
    dies = "a worker dies before it pushes the gradient of this clock, a server once it has applied so many clocks"
    kept = f"keep the run, with a snapshot every {EVERY} clocks: if a death ends it, it goes on from there"
    party, clock = next(iter(kill.items()), (parties[0], config.clocks // 2))
    fields = [
        ("party", str, option(party, "the process to kill", choices=parties)),
        ("clock", int, option(clock, dies, minimum=0, maximum=config.clocks - 1, step=1)),
        ("rule", str, option(rules[0], "who waits for whom", choices=rules)),
        ("restart", int, option(0, "how often each process is started again", minimum=0, maximum=3, step=1)),
        ("checkpoint", bool, option(False, kept)),
    ]
    return make_dataclass("Asked", fields, bases=(Value,), frozen=True)


def moments_of(run: Run) -> dict[str, dict[int, float]]:
    """Return when each party could die, by clock: a worker with a gradient computed, a server with a clock applied."""
    found = defaultdict[str, dict[int, float]](dict)
    for message in run.messages:
        if message.sender.startswith("worker") and message.clock is not None and message.start is not None:
            found[message.sender].setdefault(message.clock, message.start)
    for span in run.trace:
        if span.name == "compute":
            found[span.who][span.step] = span.start + span.seconds
    servers = run.config.servers if isinstance(run.config.exchange, PS) else 0
    applied = {clock: at for clock, (at, *_) in enumerate(run.losses[:-1], 1)}
    return {**found, **{f"server {number}": applied for number in range(servers)}}


# ---- the runs ----


def pull(problem: Problem, calm: Run, kill: Kill, asked: Any, engine: Simulated | Processes, **watched: Any) -> Pulled:
    """Train like ``calm``, with these kills. If a death ends the run and it is kept, it goes on: on processes from its
    checkpoint, in virtual time from the state that a run without this death has at the same clock.
    """
    config, measured = calm.config, isinstance(engine, Processes)
    ring = isinstance(config.exchange, AllReduce)
    restart = 0 if ring else asked.restart  # all ranks start again from a snapshot, as a whole run does
    go: Any = partial(train, problem, engine=replace(engine, restart=restart), **watched)
    resume: Any = None
    dead: Any  # a Run, or at first None
    lives: list[tuple[Run, str]] = []
    left = {**kill}

    def part(clocks: int, others: Kill) -> Run:
        faults = Faults(kill={who: clock for who, clock in others.items() if clock < clocks})
        run: Run = go(replace(config, steps=clocks * config.local_steps), faults=faults)
        return run

    with TemporaryDirectory(prefix="minips-plug-") as folder:
        kept = Checkpoint(folder, every=EVERY) if measured and (asked.checkpoint or asked.restart) else None
        while True:
            try:
                run = go(config, faults=Faults(kill=left), resume=resume, checkpoint=kept)
                break
            except RuntimeError as error:
                who = next((one for one in left if str(error).startswith(f"{one} ended before its work")), None)
                if who is None:
                    raise
                clock, dead = left.pop(who), vars(error).get("run")
                has_params = dead is not None
                why = str(error).partition(". ")[0].rstrip(".")
            if dead is None and measured and not kept:
                return Pulled(kill, calm, None, measured, why)
            if dead is None and measured:
                dead = replace(calm, losses=[], trace=Trace(), events=[], seconds=calm.losses[clock - 1][0])
            elif dead is None:
                clocks = clock
                while (dead := part(clocks, left)).updates < clock * config.workers and clocks < config.clocks - 1:
                    clocks += 1  # a server's clock counts the pushes of all, also of those that have left
                dead = replace(dead, trace=begun(dead, dead.seconds))
            if not (dead.events and re.match(f"{who} (was killed|ended)", dead.events[-1][1])):
                dead.events.append((dead.seconds, f"{who} was killed at clock {clock}"))
            if not (asked.checkpoint or (ring and asked.restart)):
                return Pulled(kill, calm, dead, measured, why, has_params)
            lives.append((dead, why))
            if kept:
                resume = folder if not ring or kept.ranks(config.workers) else None
            else:
                snapshot = dead if not ring else part(clock // EVERY * EVERY, left) if clock >= EVERY else None
                resume = snapshot and replace(snapshot, losses=[], trace=Trace(), seconds=0.0, events=[])
            left = {one: other for one, other in left.items() if other > clock}
    for dead, why in reversed(lives):
        at = dead.events[-1][0]
        again = at + (run.start_s if isinstance(engine, Processes) else engine.restart_s)
        if measured and run.losses and run.losses[0][0] < 0:  # the clock of what was kept goes on
            again = calm.losses[0][0] - run.losses[0][0]
        dead.events.append((at, f"all processes were started again, since {why}"))
        run = run.after(replace(dead, seconds=again))
    return Pulled(kill, calm, replace(run, events=sorted(run.events, key=itemgetter(0))), measured)


def begun(run: Run, at: float) -> Trace:
    """Return what a run's trace has begun before a moment."""
    messages = tuple(one for one in run.messages if times_of(one)[0] < at)
    joined = Joined(messages, tuple(wait for wait in run.waits if wait.start < at))
    return Trace(spans=[span for span in run.trace if span.start < at], joined_before=joined)


def twice_in(found: Pulled, run: Run) -> int:
    """Return how many gradients were computed twice. A real process that dies takes its trace along; there it follows
    from the kills.
    """
    config = run.config
    if not found.measured:
        computed = Counter((span.who, span.step) for span in run.trace if span.name == "compute")
        return computed.total() - min(computed.values(), default=0) * len(computed)
    if isinstance(config.exchange, AllReduce):
        return config.workers * config.local_steps * sum(clock % EVERY + 1 for clock in found.kill.values())
    again = [who for who in found.kill if any(text.startswith(f"{who} was started again") for _, text in run.events)]
    return config.local_steps * sum(who.startswith("worker") for who in again)


# ---- words ----


def killed(kill: Kill) -> str:
    """Return the kills in words."""
    deaths = [f"{who} killed at clock {clock}" for who, clock in sorted(kill.items(), key=lambda one: one[1])]
    return join_names(deaths) if deaths else "no kill"


def settings_of(asked: Any) -> str:
    """Return a panel's restarts and checkpoint in words, none if there are none."""
    restarts = f", {asked.restart} restart{'s' * (asked.restart != 1)}" if asked.restart else ""
    return f"{restarts}, a checkpoint" if asked.checkpoint else restarts


def undisturbed(calm: Run, measured: bool = False) -> str:
    """Return an undisturbed run in words."""
    took = f"{'Measured' if measured else 'In virtual time'}: {calm.clocks} steps in {format_seconds(calm.seconds)}"
    return f"{took} undisturbed, with a loss of {calm.losses[-1][2]:.4f} at the end."


def sentences(found: Pulled) -> Iterator[str]:
    """Yield what the kills cost."""
    calm, run = found.calm, found.run
    yield undisturbed(calm, found.measured)
    if found.ended:
        yield f"With {killed(found.kill)} the run ends: {found.ended}."
        if run and found.has_params:
            yield f"Lost: {calm.updates - run.updates} of {calm.updates} pushes, all that were to come."
            yield f"The error's run has the parameters after {run.clocks} steps."
        else:
            done = run.clocks if run else next(at for who, at in found.kill.items() if found.ended.startswith(who))
            took = format_seconds(run.seconds if run else calm.losses[done - 1][0])
            yield f"Nothing is kept: the fault costs all {done} steps so far, and the {took} that they took."
    elif run:
        cost, lost, twice = run.seconds - calm.seconds, max(calm.updates - run.updates, 0), twice_in(found, run)
        took = format_seconds(run.seconds) + " (stopped)" * run.stopped
        yield f"With {killed(found.kill)}: {run.clocks} steps in {took}."
        yield f"The fault costs {format_seconds(cost)}." if cost >= 0 else f"That is {format_seconds(-cost)} less."
        yield f"Lost: {lost} of {calm.updates} pushes. Done twice: {twice} gradient{'s' * (twice != 1)}."
        if run.losses:
            alike = "the same" if run.losses[-1][2] == calm.losses[-1][2] else "a different one"
            yield f"The loss at the end is {run.losses[-1][2]:.4f}, {alike}."
    if run:
        recording = Recording(run)
        yield from happened(recording, min(0.0, recording.start))
