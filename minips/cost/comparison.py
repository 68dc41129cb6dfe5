"""Compare a prediction with a run, span by span, with a reason for each span that one of the two does not count."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from minips.core.exchange import AllReduce
from minips.cost.cluster import matches
from minips.cost.predict import Prediction, milliseconds
from minips.machines.calibration import Calibration
from minips.results.run import Run
from minips.results.tables import fold, html_rows, html_table
from minips.results.trace import DECODE, ENCODE, SPANS, UPDATE, Trace
from minips.words import check_type, join_names

NETWORK = ("transfer", "wait")
"""The spans that have no line in a calibration, since the order of events determines their time."""
STAGES = (*ENCODE, *DECODE, *UPDATE)
NEGLIGIBLE = 1e-3
"""Times below this share of a measured step get no ratio."""


@dataclass(frozen=True)
class Comparison:
    """A prediction and a run, joined by span name. A row is (name, predicted seconds, measured seconds) of a step; None
    replaces the seconds of a span that one of the two does not count.
    """

    rows: list[tuple[str, float | None, float | None]]
    note: str = ""
    """The prediction's note."""
    reasons: tuple[str, ...] = ()
    """Sentences that explain each None."""

    @property
    def counted(self) -> list[tuple[str, float, float]]:
        """The rows without None."""
        return [(name, said, took) for name, said, took in self.rows if said is not None and took is not None]

    @property
    def ratios(self) -> dict[str, float | None]:
        """Predicted divided by measured time, by name; None if either is None or the measured time is negligible."""
        least = NEGLIGIBLE * (self.rows[-1][2] or 0.0)
        return {
            name: predicted / measured if predicted is not None and measured and measured >= least else None
            for name, predicted, measured in self.rows
        }

    def __str__(self) -> str:
        lines = [f"{name:<12}{said:>12}{took:>12}{ratio:>8}" for name, said, took, ratio in self._cells()]
        return "\n".join([*lines, *(line for text in (*self._words(), self.note) for line in fold(text))])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        caption = "\n".join(filter(None, [*self._words(), self.note]))
        return html_table(html_rows([head], len(head)) + html_rows(body), caption)

    def _words(self) -> Iterator[str]:
        """Return sentences that explain missing figures."""
        yield from self.reasons
        ratios = self.ratios
        if any(said and ratios[name] is None for name, said, _ in self.counted):
            yield f"Times below {NEGLIGIBLE:.1%} of a measured step have no ratio."

    def _cells(self) -> Iterator[tuple[str, str, str, str]]:
        yield "", "predicted", "measured", "ratio"
        ratios = self.ratios
        for name, predicted, measured in self.rows:
            said = "–" if predicted is None else f"{milliseconds(predicted, self.note)} ms"
            took = "–" if measured is None else f"{measured * 1e3:.3f} ms"
            ratio = ratios[name]
            yield name, said, took, "–" if ratio is None else f"{ratio:.2f}"


def compare(prediction: Prediction, run: Run) -> Comparison:
    """Compare predicted and measured seconds, by span name, for one update or, with local steps, one gradient step;
    ``total`` is for a step. If the trace lacks later spans, only those before the first missing span count.

    A figure that only one side counts is None on the other, and `Comparison.reasons` say why. Spans that the run does
    not count, such as those of a `Simulated` run without a calibration, are left out of the other predicted rows and of
    the total. If workers were started by hand, the run's trace contains only the servers' spans.
    """
    check_type("compare", prediction, Prediction, "a prediction, which ps.cost.predict makes, and then a run")
    check_type("compare", run, Run, "a prediction, and then the run that ps.train returns")
    trace, updates = run.trace, float(max(run.updates, 1) * run.config.local_steps)
    if 0 < trace.until < run.seconds:
        updates *= trace.until / run.seconds
        trace = Trace(spans=[span for span in trace if span.start < trace.until])
    measured = {name: seconds / updates for name, seconds in trace.seconds().items()}
    predicted, total, reasons = prediction.spans, prediction.seconds_per_step, []
    if hidden := _hidden_parties(run, trace):
        reasons.append(f"The run's trace has no spans of {hidden}, so rows that include their time cannot be compared.")
        of_servers = UPDATE if hidden == "workers" else ()
        measured = {name: seconds for name, seconds in measured.items() if name in of_servers}
        uncounted = {name for name in predicted if name not in measured}
    else:
        uncounted = {name for name, seconds in predicted.items() if seconds and name not in (*measured, *NETWORK)}
        if uncounted:
            predicted, total, words = _without(prediction, uncounted, measured)
            reasons.append(words)
    calibrated = prediction.calibration.subject and matches(prediction.calibration, run.config)
    free = (*ENCODE, *DECODE) if calibrated else ()  # spans for which the calibration measured no time
    unforeseen = {name for name, seconds in measured.items() if seconds and name not in (*predicted, *free)}
    if unforeseen:
        names = [name for name in SPANS if name in unforeseen]
        reasons.append(f"The prediction counts no time for {join_names(names)}, so there is no total to compare.")
        unforeseen |= {"total"}
        unforeseen |= set() if any(name in predicted for name in STAGES) else {*NETWORK}
    spans = [name for name in SPANS if name in predicted or name in measured]
    rows = [(name, predicted.get(name, 0.0), measured.get(name, 0.0)) for name in spans]
    rows.append(("total", total, run.seconds_per_step))
    return Comparison(
        [
            (name, None if name in unforeseen else predicted, None if name in uncounted else measured)
            for name, predicted, measured in rows
        ],
        prediction.note,
        tuple(reasons),
    )


def _hidden_parties(run: Run, trace: Trace) -> str:
    """Return the parties whose spans a run's trace does not contain, since they were started as separate processes."""
    seen = {span.who for span in trace}
    if not seen or isinstance(run.config.exchange, AllReduce) or any(who.startswith("worker") for who in seen):
        return ""
    return "workers" if len(seen) == run.config.servers else "workers and other servers"


def _without(
    prediction: Prediction, uncounted: Collection[str], measured: Mapping[str, float]
) -> tuple[dict[str, float], float, str]:
    """Return a prediction's spans and total without the spans that a run does not count, and a sentence about this."""
    calibration, names = prediction.calibration, [name for name in SPANS if name in uncounted]
    if any(name in measured for name in STAGES):
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
    model = prediction.model(calibration=free)
    spans = {name: seconds for name, seconds in model.spans.items() if name not in uncounted}
    return prediction.spans | spans, model.seconds_per_step, f"{words}: the other rows are predicted without it."
