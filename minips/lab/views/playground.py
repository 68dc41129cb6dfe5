"""The playground: the pipeline of a config is the panel, and a run moves through it.

The page draws `Playground.data` and asks for changes; each question is a dict with a method's name under ``do``.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from minips import cost, datasets
from minips.core.config import Config
from minips.engines import Engine
from minips.engines.simulated.engine import Simulated
from minips.lab.columns import STAGES
from minips.lab.panels.base import Interactive, Work, numbered_name
from minips.lab.source import code, one_line, read_line
from minips.lab.views import drawings, funnel, outcomes, pipeline
from minips.lab.views.base import View
from minips.lab.views.outcomes import PlayedRun
from minips.lab.views.pipeline import SIDES
from minips.problems import Problem, SoftmaxRegression
from minips.results.run import Progress, Run
from minips.training.train import train
from minips.words import check_type

FIRST_S = 20.0
"""The most seconds that a cell waits for the first run."""
REDRAW_S = 0.25
"""The shortest time between two pictures of an unfinished run."""
MOST_PALE = 4
"""The earlier runs that stay as pale lines."""


def playground(
    problem: Problem | str | None = None,
    configs: Config | Sequence[Config] | str | None = None,
    *,
    engine: Engine | str | None = None,
) -> "Playground":
    """Show a run on its way through the stages of a config. The boxes are the controls: change one, and see what moves.

    ``problem`` None: softmax regression on the digits. ``configs``: one config, or one for A and one for B, or the text
    that "Copy as one line" copies, which may also stand first. None: `START`, four workers behind a link of 10 Mbit/s.
    A run is simulated at once; "Run for real" trains on the ``engine`` (None: processes). Raises ValueError for a text
    or configs that are not possible.

    >>> playground("workers=2, steps=10, push='quantizer=sign'").configs["A"].push.quantizer
    Sign()
    """
    if isinstance(problem, str):
        if configs is not None:
            raise ValueError(f"playground takes configs or a text; got both: {problem!r:.99} and {configs!r:.99}.")
        problem, configs = None, problem
    return Playground(problem, configs, engine=engine)


class Playground(Interactive):
    """A pipeline with one config, A, or two, A and B. `playground` makes it; a notebook shows it."""

    def __init__(
        self,
        problem: Problem | None = None,
        configs: Config | Sequence[Config] | str | None = None,
        *,
        engine: Engine | str | None = None,
    ) -> None:
        given = read_line(configs) if isinstance(configs, str) else configs or pipeline.START
        starts = list(given) if isinstance(given, Sequence) else [given]
        for start in starts:
            check_type("playground", start, Config, "configs, such as ps.Config(workers=2)")
        check_type("playground", problem, Problem | None, "a Problem, or None for the digits")
        if not 1 <= len(starts) <= len(SIDES):
            raise ValueError(f"The playground takes one config, or one for A and one for B; got {len(starts)}.")
        self.problem, self.usual = problem or SoftmaxRegression(*datasets.digits()), problem is None
        self.engine: Engine | str = engine or "processes"
        self.given = dict(zip(SIDES, starts, strict=False))
        """The configs that the playground was opened with."""
        self.configs = {**self.given}
        for config in starts:
            pipeline.differences({"A": starts[0], "B": config})  # raises an error for a config that a box cannot show
        self.outcomes: dict[str, PlayedRun] = {}
        """The last run of each side."""
        self.shown, self.box, self.setting = SIDES[0], "quantizer", ""
        self.busy, self.error = "", ""
        self._pale: list[dict[str, Any]] = []
        self._calibrations: list[tuple[Config, cost.Calibration]] = []
        self._known: dict[tuple[str, ...], tuple[Config, Any]] = {}
        self._turn, self._drawings, self._drawn_at = 0, 0, 0.0
        self._under_way: dict[str, Progress] = {}
        self._offered = pipeline.stage_choices()
        self.name = numbered_name("playground")
        self.view = View("playground", {}, "", "")
        super().__init__(Background(self))
        self.view.on_asked(self.answer)
        self.job.start(self._simulate)
        self.job.wait(FIRST_S)

    @property
    def runs(self) -> dict[str, Run]:
        """The last run of each side."""
        return {side: outcome.run for side, outcome in self.outcomes.items()}

    def refresh(self) -> None:
        """Offer stages registered since the last call, and use the new class of a stage that was defined again."""
        renewed = {side: pipeline.renew(config) for side, config in self.configs.items()}
        if renewed != self.configs:
            self.configs = renewed
            self.job.start(self._simulate)
        elif pipeline.stage_choices() != self._offered:
            self.draw()
        self._offered = pipeline.stage_choices()

    def answer(self, question: dict[str, Any]) -> None:
        """Answer a question of the page: ``{"do": "change", "path": "push.quantizer", "to": "sign"}``.

        An error becomes a sentence in the panel.
        """
        self.error = ""
        words = {key: value for key, value in question.items() if key not in ("do", "number")}
        try:
            if question.get("do") not in _ANSWERS:
                raise ValueError(f"The playground cannot {question.get('do')!r}.")
            getattr(self, question["do"])(**words)
        except Exception as error:
            self.error = str(error) or type(error).__name__
        self.draw()

    def change(self, path: str, to: Any) -> None:
        """Change a control of the shown side, and simulate the new config."""
        self.configs[self.shown] = pipeline.change(self.configs[self.shown], path, to)
        self.setting = ""
        self.job.start(self._simulate)

    def show(self, side: str) -> None:
        """Show the controls of a side."""
        self.shown = side if side in self.configs else SIDES[0]

    def compare(self, on: bool) -> None:
        """Add B, a copy of A, or take it away."""
        self.configs = {side: self.configs["A"] for side in (SIDES if on else SIDES[:1])}
        self.shown, self.setting = SIDES[-1] if on else SIDES[0], ""
        self._keep_only(self.configs)
        self.job.start(self._simulate)

    def choose(self, setting: str) -> None:
        """Show a setting, made from the config that the playground was opened with; "" shows those configs again."""
        self.configs = pipeline.sides_of(setting, self.given["A"]) if setting else {**self.given}
        self.shown, self.setting = list(self.configs)[-1], setting
        self.outcomes, self._pale = {}, []
        if setting == pipeline.PREDICTED:
            self.job.start(self._predict_and_train)
        else:
            self.job.start(self._simulate)

    def open(self, box: str) -> None:
        """Open a box: one tensor before and after its stage, and the stage's source."""
        if box not in pipeline.BOXES:
            raise ValueError(f"There is no box {box!r}.")
        self.box = box

    def run(self) -> None:
        """Train for real, one side after the other."""
        self.job.start(self._train)

    def calibrate(self) -> None:
        """Measure the stages on this machine, and predict each side's step."""
        self.job.start(self._predict)

    def draw(self) -> None:
        """Draw the current state."""
        with self.job.lock:
            self._drawings += 1  # a trait with equal data would not reach the page, which may show another choice
            data = {**self.data(), "number": self._drawings}
            self.view.show(data=data, still=drawings.still(data), sentence=outcomes.sentence(self._present()))

    def data(self) -> dict[str, Any]:
        """Return everything that the page draws."""
        config, shown = self.configs[self.shown], self._present()
        mine, times = shown.get(self.shown), outcomes.stage_seconds(shown.get(self.shown))
        sizes = {side: self._once(one, self._sizes, side) for side, one in self.configs.items()}
        differ = pipeline.differences(self.configs)
        duration = max((outcome.run.seconds for outcome in shown.values()), default=0.0)
        ends = pipeline.ends(config)
        boxes = [
            {
                "name": box,
                "title": (ends["left"] if box == "workers" else box) + (" ≠" if box in differ else ""),
                "served": box in pipeline.SERVER,
                "controls": pipeline.controls(config, box, self.shown),
                "text": outcomes.box_words(box, sizes[self.shown].get(box), times),
            }
            for box in pipeline.BOXES
        ]
        return {
            "name": self.name,
            "sides": list(self.configs),
            "shown": self.shown,
            "settings": list(pipeline.SETTINGS),
            "setting": self.setting,
            "busy": self.busy,
            "error": self.error,
            "boxes": boxes,
            "back": pipeline.back_controls(config, self.shown),
            "ends": ends,
            "words": outcomes.way_words(config, mine),
            "strips": drawings.strips(sizes, self.shown),
            "turn": self._turn,
            "duration": duration,
            "moves": {side: outcome.movement for side, outcome in shown.items()},
            "activity": {side: outcome.activity for side, outcome in shown.items()},
            "plot": drawings.PLOT[0],
            "chart": drawings.chart([self._curve(side, one) for side, one in shown.items()], self._pale, duration),
            "bars": outcomes.bars(shown, self._under_way),
            "opened": self._once(config, self._inside, self.shown, self.box),
            "code": self._code(),
            "line": one_line(*self.configs.values()),
        }

    def _present(self) -> dict[str, PlayedRun]:
        """Return the outcomes of the sides in order."""
        return {side: self.outcomes[side] for side in self.configs if side in self.outcomes}

    def _curve(self, side: str, outcome: PlayedRun) -> dict[str, Any]:
        under_way = self._under_way.get(side)
        return outcomes.curve(under_way.losses if under_way else outcome.run.losses, side)

    def _once(self, config: Config, make: Callable[..., Any], *words: str) -> Any:
        """Return ``make(config, *words)``, computed once for each config; errors become a sentence in the panel."""
        known = self._known.get((make.__name__, *words))
        if known is None or known[0] != config:
            try:
                known = config, make(config, *words)
            except Exception as error:
                self.error = self.error or str(error) or type(error).__name__
                known = config, {}
            self._known[make.__name__, *words] = known
        return known[1]

    def _sizes(self, config: Config, side: str) -> dict[str, int]:
        return funnel.push_of(self.problem, config).sizes()

    def _inside(self, config: Config, side: str, box: str) -> dict[str, Any]:
        caption, before, after = funnel.before_and_after(self.problem, config, box)
        stage = pipeline.stage_at(config, STAGES[box]) if box in STAGES else None
        title, source = code(stage) if stage else type(self.problem).__name__, pipeline.source_of(stage or self.problem)
        return {"box": box, "caption": caption, "title": title, **source, "views": funnel.views(before, after)}

    def _code(self) -> str:
        """Return a program that trains each side."""
        problem = "ps.SoftmaxRegression(*ps.datasets.digits())" if self.usual else "...  # yours"
        lines = ["import minips as ps", "", f"problem = {problem}"]
        lines += [f"{side.lower()} = {code(config)}" for side, config in self.configs.items()]
        lines += ["", 'if __name__ == "__main__":']
        lines += [f"    print(ps.train(problem, {side.lower()}).summary())" for side in self.configs]
        return "\n".join(lines)

    def _keep_only(self, configs: Collection[str]) -> None:
        for side in list(self.outcomes):
            if side not in configs:
                self._retire(side)

    def _retire(self, side: str) -> None:
        """Keep a side's last run as a pale line."""
        outcome = self.outcomes.pop(side, None)
        if outcome:
            self._pale = [*self._pale, outcomes.curve(outcome.run.losses, side)][-MOST_PALE:]

    def _simulate(self) -> None:
        """Simulate the sides whose config has changed since their last run."""
        with self.job.lock:
            changed = {
                side: config
                for side, config in self.configs.items()
                if side not in self.outcomes or self.outcomes[side].run.config != config.for_rows(self.problem.rows)
            }
        self._drawn_at = time.monotonic()
        for side, config in changed.items():
            live = partial(self._live, f"{side} is simulated", "")
            run = train(self.problem, config, engine=Simulated(), progress=live, stop=self.job.stopping)
            played = PlayedRun(run, expected_bytes=outcomes.expected_bytes(self.problem, config))
            with self.job.lock:
                self._retire(side)
                self.outcomes[side] = played
        self._turn += bool(changed)

    def _predict(self) -> None:
        """Calibrate the stages of each side, and predict its step."""
        self._simulate()
        for side, outcome in self._present().items():
            config = outcome.run.config
            self._say(f"The stages of {side} are being measured …")
            alone = cost.alone(config)
            calibration = next((known for key, known in self._calibrations if key == alone), None)
            if calibration is None:
                calibration = cost.calibrate(config, self.problem, stop=self.job.stopping.is_set)
                self._calibrations.append((alone, calibration))
            found = cost.predict(self.problem, config, calibration)
            self.outcomes[side] = dataclasses.replace(outcome, prediction=found, expected_s=found.seconds_per_step)

    def _train(self) -> None:
        """Train each side for real."""
        self._simulate()
        for side, outcome in self._present().items():
            if not self.job.stopping.is_set():
                live = partial(self._live, f"{side} trains for real", side)
                config = outcome.run.config
                run = train(self.problem, config, engine=self.engine, progress=live, stop=self.job.stopping)
                self._under_way.clear()
                self.outcomes[side] = outcome.with_run(run)
        self._turn += 1

    def _predict_and_train(self) -> None:
        self._predict()
        self._train()

    def _live(self, words: str, side: str, progress: Progress) -> None:
        """Show now and then how far a run is; ``side``, unless empty, is filled meanwhile."""
        if time.monotonic() - self._drawn_at >= REDRAW_S and not self.job.stopping.is_set():
            self._under_way = {side: progress} if side else {}
            self._say(f"{words}: {progress.applied} of {progress.updates} steps.")

    def _say(self, words: str) -> None:
        self.busy, self._drawn_at = words, time.monotonic()
        self.draw()

    def __repr__(self) -> str:
        return repr(self.view)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.view._repr_mimebundle_(**kwargs)


_ANSWERS = ("change", "show", "compare", "choose", "open", "run", "calibrate", "stop")
"""The methods that the page may ask for."""


class Background(Work):
    """The work of a playground: its state and its errors are part of the picture."""

    def __init__(self, owner: Playground) -> None:
        self._owner = owner
        super().__init__(owner.name, owner.view.panel)

    def ended(self) -> None:
        self._owner.busy = ""
        self._owner.draw()

    def say(self, words: str) -> None:
        self._owner._say(words)

    def fail(self, error: BaseException | str) -> None:
        self._owner._under_way.clear()
        self._owner.error = str(error) or type(error).__name__
