"""Schemes compared fairly: each at the best of its own learning rates, all with the same seeds.

    best = lab.best_of({"all values": whole, "top 1 %": sparse}, problem, rates=(0.1, 0.3, 1, 3, 10))
    best.show()                               # a picture of the metric against the rate, and a table
    best.difference("top 1 %", "all values")  # in pairs: the mean, and half of its 95 % interval

A sweep takes long, so it is kept, see `minips.lab.course.sweeps`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from minips.core.config import Config
from minips.engines import Engine, Simulated
from minips.engines.evaluation import Eval
from minips.lab.course import sweeps
from minips.lab.course.intervals import Interval, interval
from minips.problems import Problem
from minips.stage import Array, build
from minips.training.progress import showing
from minips.training.sweep import Table
from minips.training.train import check_problem, train
from minips.words import check_type, join_names, suggestion

LEAST = 5
"""The least number of learning rates: with fewer, one cannot see that the best of them is a scheme's best rate."""
RESTARTS = ("restart", "restart_s", "rejoin_s")
"""The fields of an engine that change nothing, since no party of a sweep's runs dies."""
WIDER = 6
"""The most rates by which a sweep is widened if its best rate is its first or its last."""
METRICS = {
    "accuracy": ("accuracy on held-out rows", ".1%"),
    "loss": ("loss on held-out rows", ".3f"),
    "steps": ("steps to", ".0f"),
    "seconds": ("seconds to", ".3f"),
}
"""Each metric in words, and its format. More is better for the accuracy, less for the others."""


class Figure(float):
    """A number from a `Best`. Its sums, differences, products and ratios are such numbers, too: ``100 * figure``."""

    value: float

    def __new__(cls, value: float) -> "Figure":
        """Keep the value itself, which may be a float with a text of its own."""
        self = super().__new__(cls, value)
        self.value = value
        return self

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


def _figures(name: str) -> Callable[..., Any]:
    def operate(self: Figure, *other: Any) -> Any:
        result = getattr(float, name)(self, *other)
        return Figure(result) if isinstance(result, float) else result

    return operate


for _name in ("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv", "neg", "abs"):
    setattr(Figure, f"__{_name}__", _figures(f"__{_name}__"))


class Metric(NamedTuple):
    """A measurement of a run. ``accuracy`` or ``loss`` is the target of ``steps`` and ``seconds``."""

    name: str
    accuracy: float | None
    loss: float | None
    every: int

    def __str__(self) -> str:
        words, _ = METRICS[self.name]
        if self.accuracy is not None:
            return f"{words} an accuracy of {self.accuracy:g}"
        return words if self.loss is None else f"{words} a training loss of {self.loss:.4g}"

    def text(self, mean: float, half: float, sign: str = "") -> str:
        """A mean with its interval, as text."""
        _, spec = METRICS[self.name]
        return f"{mean:{sign}{spec}} ± {half:{spec}}"

    def check(self) -> None:
        """ValueError if the metric does not exist, or does not have the targets that it needs."""
        if self.name not in METRICS:
            raise ValueError(f"There is no metric {self.name!r}. {suggestion(self.name, METRICS)}")
        targets = [target for target in (self.accuracy, self.loss) if target is not None]
        if len(targets) != (self.name in ("steps", "seconds")):
            raise ValueError(
                "The metrics steps and seconds need one target, accuracy=0.9 or loss=0.5, and the others take none; "
                f"got metric={self.name!r}, accuracy={self.accuracy}, loss={self.loss}."
            )

    def of(self, problem: Problem, config: Config, engine: Engine) -> tuple[float, float]:
        """Train once. Return the metric, and the bytes that the workers sent until then. If the run diverged or did not
        reach its target, the metric is infinite, and an accuracy 0.
        """
        if self.accuracy is not None:
            return self._until_accurate(problem, config, engine)
        run = train(problem, config, engine=engine)
        if self.loss is not None:
            at, step = next(((at, step) for at, step, loss in run.losses if loss <= self.loss), (np.inf, np.inf))
            return (at if self.name == "seconds" else step), run.bytes_sent * step / run.losses[-1][1]
        value = run.accuracy if self.name == "accuracy" else run.validation_loss
        if value is None:
            raise ValueError(f"{problem!r} has no {METRICS[self.name][0]}. Give it some, or compare steps to a loss.")
        if run.diverged is not None:
            value = 0.0 if self.name == "accuracy" else np.inf
        return value, run.bytes_sent

    def _until_accurate(self, problem: Problem, config: Config, engine: Engine) -> tuple[float, float]:
        """Train until an evaluation finds the target accuracy."""
        held_out, found = problem.held_out(), list[Eval]()
        if held_out is None:
            raise ValueError(f"{problem!r} has no held-out rows. Give it some, or compare steps to a loss.")

        def is_there(now: Eval) -> bool:
            if (held_out.accuracy(now.params) or 0.0) >= (self.accuracy or 0.0):
                found.append(now)
            return bool(found)

        run = train(problem, config, engine=engine, every=self.every, on_eval=is_there)
        if not found:
            return np.inf, np.inf
        return (found[0].step if self.name == "steps" else found[0].seconds), run.bytes_sent


@dataclass
class Sweep:
    """The runs of one config: ``runs`` maps each learning rate to a row (metric, bytes sent) for each seed."""

    config: Config
    metric: Metric
    runs: dict[float, Array] = field(default_factory=dict)

    @property
    def rates(self) -> list[float]:
        """The learning rates, the least first."""
        return sorted(self.runs)

    def values(self, rate: float) -> Array:
        """The metric at this rate, a value for each seed. ValueError if the rate was not tried."""
        if rate not in self.runs:
            tried = join_names([f"{one:g}" for one in self.rates])
            raise ValueError(f"The learning rate {rate:g} was not tried. Tried: {tried}.")
        return np.asarray(self.runs[rate][:, 0])

    def cost(self, rate: float) -> tuple[int, float]:
        """The number of runs without a finite metric, and the mean of the others, such that less is better."""
        values = self.values(rate)
        finite = values[np.isfinite(values)]
        mean = float(finite.mean()) if finite.size else 0.0
        return len(values) - len(finite), -mean if self.metric.name == "accuracy" else mean

    @property
    def best(self) -> float:
        """The best rate; of several that are equally good, the middle one."""
        least = min(map(self.cost, self.rates))
        good = [rate for rate in self.rates if self.cost(rate) == least]
        return good[len(good) // 2]

    @property
    def settled(self) -> bool:
        """True if rates on both sides of the best one were tried, and a run had a finite metric there."""
        return self.beyond() is None and bool(np.isfinite(self.values(self.best)).any())

    def beyond(self) -> float | None:
        """The rate by which to widen the sweep, by the ratio of its last two; None if its best rate is inside."""
        rates = self.rates
        if self.best == rates[0]:
            return rates[0] ** 2 / rates[1]
        return rates[-1] ** 2 / rates[-2] if self.best == rates[-1] else None

    def rates_to_try(self, rates: Sequence[float]) -> Iterator[float]:
        """These rates and then, as long as the best of the runs so far is the first or the last, those beyond."""
        yield from rates
        while len(self.runs) < len(rates) + WIDER and (rate := self.beyond()):
            yield rate


class Best(Table):
    """Schemes at their best learning rates. As text it is a table; `difference` and `ratio` compare two schemes."""

    def __init__(self, by_name: Mapping[str, Sweep]) -> None:
        self.sweeps = dict(by_name)
        """Each scheme's sweep."""
        self.metric = next(iter(self.sweeps.values())).metric
        """The metric that is compared."""
        self.rates = {name: Figure(sweep.best) for name, sweep in self.sweeps.items()}
        """Each scheme's best learning rate."""
        self.rows = [self._row(name) for name in self.sweeps]

    @property
    def unsettled(self) -> list[str]:
        """The schemes whose best rate may lie outside the rates that were tried."""
        return [name for name, sweep in self.sweeps.items() if not sweep.settled]

    @property
    def caption(self) -> str:
        """The metric, and the rates that are not settled."""
        seeds = len(self.values(next(iter(self.sweeps))))
        words = f"The {self.metric}, each scheme at its best rate: means of {seeds} seeds, with 95 % intervals."
        for name in self.unsettled:
            tried = self.sweeps[name].rates
            words += f" The best rate of {name!r} may lie outside those tried, {tried[0]:g} to {tried[-1]:g}."
        return words

    @property
    def words(self) -> str:
        """A description of the picture that `show` shows."""
        ends = [f"{row['scheme']}: {row[self.metric.name]} at {row['rate']}" for row in self.rows]
        curves = "A curve for each scheme, with its best rate marked"
        return f"The {self.metric} against the learning rate, on a logarithmic axis. {curves}. {'; '.join(ends)}."

    def config(self, name: str) -> Config:
        """The scheme's config, with its best learning rate."""
        return at_rate(self._sweep(name).config, self.rates[name])

    def values(self, name: str, rate: float | None = None) -> Array:
        """The metric of each seed at the scheme's best rate, or at another that was tried."""
        return self._sweep(name).values(self.rates[name] if rate is None else rate)

    def bytes_sent(self, name: str, rate: float | None = None) -> Array:
        """The bytes that the workers sent, for each seed. With a target: until then; infinite if it was not reached."""
        self.values(name, rate)
        return np.asarray(self.sweeps[name].runs[self.rates[name] if rate is None else rate][:, 1])

    def mean(self, name: str, rate: float | None = None) -> Figure:
        """The mean metric over the seeds."""
        return Figure(float(self.values(name, rate).mean()))

    def reached(self, name: str, rate: float | None = None) -> Figure:
        """The number of runs with a finite metric: those that reached the target."""
        return Figure(float(np.isfinite(self.values(name, rate)).sum()))

    def difference(self, one: str, other: str, rate: float | None = None) -> Interval:
        """The metric of ``one`` minus that of ``other``, in pairs of the same seed: the mean, and half of its 95 %
        interval. NaN if a run has no finite metric. With a ``rate``, both schemes are taken at this rate.
        """
        return _paired(np.subtract, self.values(one, rate), self.values(other, rate))

    def ratio(self, one: str, other: str, rate: float | None = None) -> Interval:
        """The metric of ``one`` divided by that of ``other``, as in `difference`."""
        return _paired(np.divide, self.values(one, rate), self.values(other, rate))

    def bytes_ratio(self, one: str, other: str, rate: float | None = None) -> Interval:
        """The bytes sent by ``one`` divided by those of ``other``, as in `difference`."""
        return _paired(np.divide, self.bytes_sent(one, rate), self.bytes_sent(other, rate))

    def show(self) -> None:
        """Show a picture of the metric against the learning rate, and the table."""
        from IPython.display import display

        from minips.lab.panels.base import show_still
        from minips.lab.plots import rates

        curves = {name: {rate: sweep.values(rate) for rate in sweep.rates} for name, sweep in self.sweeps.items()}
        label, percent = str(self.metric), self.metric.name == "accuracy"
        show_still(
            f"{self.metric} against the learning rate",
            lambda figure: rates(curves, self.rates, label=label, percent=percent, ax=figure.subplots()),
            (6.4, 3.8),
            self.words,
        )
        display(self)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        return str(self)

    def _sweep(self, name: str) -> Sweep:
        if name not in self.sweeps:
            raise ValueError(f"There is no scheme {name!r}. {suggestion(name, self.sweeps)}")
        return self.sweeps[name]

    def _row(self, name: str) -> dict[str, Any]:
        first, sent, values = next(iter(self.sweeps)), self.bytes_sent(name), self.values(name)
        there = int(self.reached(name))
        mine = self.metric.text(*interval(values)) if there == len(values) else f"{there} of {len(values)} got there"
        less = self.difference(name, first)
        against = "equal" if np.array_equal(values, self.values(first)) else self.metric.text(*less, "+")
        return {
            "scheme": name,
            "rate": f"{self.rates[name]:g}",
            self.metric.name: mine,
            f"minus {first}": "–" if name == first or np.isnan(less.mean) else against,
            "sent (MB)": f"{sent.mean() / 1e6:.3g}" if np.isfinite(sent).all() else "–",
        }


def _paired(compare: Callable[[Array, Array], Array], one: Array, other: Array) -> Interval:
    """The mean of paired differences or ratios, and half of its interval; NaN if a value is infinite."""
    if not np.isfinite([one, other]).all():
        return Interval(Figure(np.nan), Figure(np.nan))
    return Interval(*map(Figure, interval(compare(one, other))))


def best_of(
    configs: Mapping[str, Config | Sequence[Config]],
    problem: Problem | Sequence[Problem],
    rates: Sequence[float],
    seeds: int = 5,
    metric: str = "accuracy",
    engine: Engine | str | None = None,
    *,
    accuracy: float | None = None,
    loss: float | None = None,
    every: int = 10,
    progress: bool | None = None,
) -> Best:
    """Train ``problem`` with each config, at each learning rate and with each seed, and return each config at its best.

    ``configs`` maps a name to a config, or to several that differ in what else decides, such as the momentum: the best
    of them counts. ``problem`` may be a sequence with a problem for each seed. ``rates`` are at least five; a sweep
    whose best rate is the first or the last is widened. The ``metric`` is the ``accuracy`` or the ``loss`` on held-out
    rows, or the ``steps`` or ``seconds`` to a target: ``accuracy=0.9``, tested after every ``every`` steps, or a
    training ``loss``. The default ``engine`` is `Simulated`: seconds are virtual, of the config's link and delays.

    ``progress`` is as in `train`. Ctrl-C or ■ ends the sweep; the configs that are done are kept. ValueError for fewer
    rates, fewer than two seeds, a metric without its target, or an optimizer without lr.

    >>> import minips as ps
    >>> problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=80, classes=3))
    >>> config = ps.Config(workers=2, steps=10)
    >>> schemes = {"all": config, "sign": config.with_({"push.quantizer": "sign"})}
    >>> best = best_of(schemes, problem, rates=(0.01, 0.1, 1, 10, 100), seeds=2, metric="steps", loss=0.5)
    >>> best.unsettled, best.reached("all"), best.ratio("sign", "all").mean > 0.1
    ([], 2.0, True)
    """
    measured = Metric(metric, accuracy, loss, every)
    measured.check()
    problems = [problem] * seeds if isinstance(problem, Problem) else [*problem]
    for one in problems:
        check_problem("best_of", one)
    if not 2 <= seeds == len(problems):
        got = f"{seeds} seeds and {len(problems)} problems"
        raise ValueError(f"best_of takes two seeds or more, and one problem or as many as seeds; got {got}.")
    tried = sorted({float(rate) for rate in rates})
    if len(tried) < LEAST or tried[0] <= 0:
        raise ValueError(f"best_of takes at least {LEAST} different learning rates above 0; got {rates!r}.")
    chosen: Engine = Simulated() if engine is None else build("engine", engine)
    plan = [(name, config) for name, several in _named(configs).items() for config in several]
    engine_fields = {name: value for name, value in chosen.to_dict().items() if name not in RESTARTS}
    given = {"metric": measured._asdict(), "rates": tried, "seeds": seeds, "engine": engine_fields}
    given |= {"problems": [*map(sweeps.digest, problems)]}
    found = dict[str, list[Sweep]]()
    with showing(progress) as show:
        for done, (name, config) in enumerate(plan):
            sweep, ready = Sweep(config, measured), at_rate(config, tried[0])
            code = sweeps.code_of(ready, chosen, *problems)
            asked = {"config": replace(ready, seed=0).to_dict(), **given, "code": code}
            sweep.runs = sweeps.load(asked)
            if not sweep.runs:
                for rate in sweep.rates_to_try(tried):
                    show(f"{name}, learning rate {rate:g}", done / len(plan))
                    ready = at_rate(config, rate)
                    rows = [measured.of(p, replace(ready, seed=seed), chosen) for seed, p in enumerate(problems)]
                    sweep.runs[rate] = np.array(rows, float)
                sweeps.keep(asked, sweep.runs)
            found.setdefault(name, []).append(sweep)
    return Best({name: min(several, key=lambda sweep: sweep.cost(sweep.best)) for name, several in found.items()})


def _named(configs: Mapping[str, Config | Sequence[Config]]) -> dict[str, list[Config]]:
    """Map each name to its configs. TypeError for anything else, and ValueError without configs."""
    check_type("best_of", configs, Mapping, "a mapping of names to configs")
    named = {name: [given] if isinstance(given, Config) else [*given] for name, given in configs.items()}
    for name, several in named.items():
        for config in several:
            check_type("best_of", config, Config, f"a Config, or several, under each name, also under {name!r}")
    if not named or not all(named.values()):
        raise ValueError("best_of takes at least one config, by name.")
    return named


def at_rate(config: Config, rate: float) -> Config:
    """The config with another learning rate. ValueError if its optimizer has none."""
    return config.with_({"optimizer.lr": float(rate)})
