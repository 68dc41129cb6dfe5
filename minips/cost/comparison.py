"""A prediction and a run beside each other, span by span; a reason stands where one of them does not count a span."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from minips.core.exchange import AllReduce
from minips.cost.cluster import fits
from minips.cost.predict import Prediction, milliseconds
from minips.machines.calibration import Calibration
from minips.results.run import Run
from minips.results.tables import captioned, folded, html_rows
from minips.results.trace import DECODE, ENCODE, SPANS, UPDATE, Trace
from minips.words import check_type, join_names

NETWORK = ("transfer", "wait")
"""The spans whose time is not a line of a calibration: they come from the order of events."""
STAGES = (*ENCODE, *DECODE, *UPDATE)
NEGLIGIBLE = 1e-3
"""The share of a measured step below which a time is not divided by."""


@dataclass(frozen=True)
class Comparison:
    """A prediction and a run, joined by span name: rows of (name, predicted and measured seconds per step), None for
    what one of the two does not count.
    """

    rows: list[tuple[str, float | None, float | None]]
    note: str = ""
    """The prediction's."""
    reasons: tuple[str, ...] = ()
    """Sentences on what is None, and why."""

    @property
    def counted(self) -> list[tuple[str, float, float]]:
        """The rows without None."""
        return [(name, said, took) for name, said, took in self.rows if said is not None and took is not None]

    @property
    def ratios(self) -> dict[str, float | None]:
        """Predicted over measured, by name; None where one of the two is, or next to nothing was measured."""
        least = NEGLIGIBLE * (self.rows[-1][2] or 0.0)
        return {
            name: predicted / measured if predicted is not None and measured and measured >= least else None
            for name, predicted, measured in self.rows
        }

    def __str__(self) -> str:
        lines = [f"{name:<12}{said:>12}{took:>12}{ratio:>8}" for name, said, took, ratio in self._cells()]
        return "\n".join([*lines, *(line for text in (*self._words(), self.note) for line in folded(text))])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        caption = "\n".join(filter(None, [*self._words(), self.note]))
        return captioned(html_rows([head], len(head)) + html_rows(body), caption)

    def _words(self) -> Iterator[str]:
        """Sentences on the figures that are missing."""
        yield from self.reasons
        ratios = self.ratios
        if any(said and ratios[name] is None for name, said, _ in self.counted):
            yield f"There is no ratio to less than {NEGLIGIBLE:.1%} of a measured step."

    def _cells(self) -> Iterator[tuple[str, str, str, str]]:
        yield "", "predicted", "measured", "ratio"
        ratios = self.ratios
        for name, predicted, measured in self.rows:
            said = "–" if predicted is None else f"{milliseconds(predicted, self.note)} ms"
            took = "–" if measured is None else f"{measured * 1e3:.3f} ms"
            ratio = ratios[name]
            yield name, said, took, "–" if ratio is None else f"{ratio:.2f}"


def compare(prediction: Prediction, run: Run) -> Comparison:
    """Predicted and measured seconds of one update by span name, and seconds per step as ``total``; of one gradient
    step, with local ones. Of a run with more spans than a trace keeps, those up to the first missing one count.

    Both sides count the same, or a figure is None and `Comparison.reasons` say why. What a run does not count, such as
    one that is `Simulated` without a calibration, the other rows and the total are predicted without. The trace of a
    run whose workers were started by hand has the servers' spans alone.
    """
    check_type("compare", prediction, Prediction, "a prediction, which ps.cost.predict makes, and then a run")
    check_type("compare", run, Run, "a prediction, and then the run that ps.train returns")
    trace, updates = run.trace, float(max(run.updates, 1) * run.config.local_steps)
    if 0 < trace.until < run.seconds:
        updates *= trace.until / run.seconds
        trace = Trace(spans=[span for span in trace if span.start < trace.until])
    took = {name: seconds / updates for name, seconds in trace.seconds().items()}
    said, total, reasons = prediction.spans, prediction.seconds_per_step, []
    if hidden := _hidden(run, trace):
        reasons.append(f"The run's trace has no spans of {hidden}: rows with a time of theirs cannot be compared.")
        of_servers = UPDATE if hidden == "workers" else ()
        took = {name: seconds for name, seconds in took.items() if name in of_servers}
        uncounted = {name for name in said if name not in took}
    else:
        uncounted = {name for name, seconds in said.items() if seconds and name not in (*took, *NETWORK)}
        if uncounted:
            said, total, words = _without(prediction, uncounted, took)
            reasons.append(words)
    calibrated = prediction.calibration.subject and fits(prediction.calibration, run.config)
    free = (*ENCODE, *DECODE) if calibrated else ()  # without a line, since the calibration found no time for them
    unforeseen = {name for name, seconds in took.items() if seconds and name not in (*said, *free)}
    if unforeseen:
        names = [name for name in SPANS if name in unforeseen]
        reasons.append(f"The prediction counts no time for {join_names(names)}: there is no total to compare.")
        unforeseen |= {"total"}
        unforeseen |= set() if any(name in said for name in STAGES) else {*NETWORK}
    rows = [(name, said.get(name, 0.0), took.get(name, 0.0)) for name in SPANS if name in said or name in took]
    rows.append(("total", total, run.seconds_per_step))
    return Comparison(
        [
            (name, None if name in unforeseen else predicted, None if name in uncounted else measured)
            for name, predicted, measured in rows
        ],
        prediction.note,
        tuple(reasons),
    )


def _hidden(run: Run, trace: Trace) -> str:
    """The parties whose spans are not in the trace of a run: they were processes of their own."""
    seen = {span.who for span in trace}
    if not seen or isinstance(run.config.exchange, AllReduce) or any(who.startswith("worker") for who in seen):
        return ""
    return "workers" if len(seen) == run.config.servers else "workers and other servers"


def _without(
    prediction: Prediction, uncounted: Collection[str], took: Mapping[str, float]
) -> tuple[dict[str, float], float, str]:
    """Spans and total of a prediction, but for spans that a run does not count, and words on that."""
    calibration, names = prediction.calibration, [name for name in SPANS if name in uncounted]
    if any(name in took for name in STAGES):
        worker, server = (
            {name: line for name, line in lines.items() if name not in uncounted}
            for lines in (calibration.worker, calibration.server)
        )
        free = replace(calibration, worker=worker, server=server)
    else:
        names = [*(name for name in names if name not in STAGES), "stages", "calls", "waits for a core"]
        cores = prediction.cores if prediction.cluster else prediction.config.workers + prediction.config.servers
        free = Calibration(cores=cores, gradient=calibration.gradient, next_gradient=calibration.next_gradient)
    words = f"The run counts no time for {join_names(names)}"
    if "compute" in uncounted:
        free = replace(free, gradient=None, next_gradient=None)
    walk = prediction.walk(calibration=free)
    spans = {name: seconds for name, seconds in walk.spans.items() if name not in uncounted}
    return prediction.spans | spans, walk.seconds_per_step, f"{words}: the other rows are predicted without."
