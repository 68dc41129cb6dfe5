"""Results of the workbench's finished runs: text, tables and CSV."""

import csv
import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minips.core.config import Config
from minips.cost import Prediction
from minips.lab.source import code
from minips.results.run import Run
from minips.results.tables import html_rows


class Record(NamedTuple):
    """A run in the history."""

    number: int
    side: str
    run: Run
    prediction: Prediction | None

    def row(self) -> dict[str, Any]:
        """Return the run as a line of CSV: plain values in seconds and bytes, and the config as JSON."""
        run = self.run.to_dict()
        config, losses, spans, stale = (run.pop(name) for name in ("config", "losses", "spans", "staleness"))
        run = {name: value for name, value in run.items() if name not in ("events", "evaluations", "name")}
        pushes = max(sum(stale.values()), 1)
        return {
            "number": self.number,
            "column": self.side,
            "training_loss": losses[-1][2] if losses else None,
            **run,
            "mean_staleness": sum(int(versions) * count for versions, count in stale.items()) / pushes,
            "predicted_seconds_per_step": self.prediction.seconds_per_step if self.prediction else None,
            **{f"{name}_s": seconds for name, seconds in spans.items()},
            "config": json.dumps(config),
        }


def in_words(runs: Mapping[str, Run]) -> str:
    """Return the results of the runs in one line."""
    parts = []
    for side, run in runs.items():
        parts.append(f"{side}{_ending(run)}: {_outcome(run)}, {run.seconds:.2f} s, {run.bytes_sent / 1e6:.3f} MB sent.")
        if run.diverged:
            parts.append(f"{run.diverged} These are the parameters before that.")
    if len(runs) == 2:
        a, b = runs.values()
        if a.bytes_sent and a.seconds:
            parts.append(
                f"B sent {b.bytes_sent / a.bytes_sent:.2f} × A's bytes and took {b.seconds / a.seconds:.2f} × A's time."
            )
    return " ".join(parts)


def predicted_step(prediction: Prediction, run: Run) -> str:
    """Compare the predicted and the measured step, and say whether the latter is within the predicted limits."""
    predicted, measured = prediction.seconds_per_step, run.seconds_per_step
    low, high = prediction.interval_s
    verdict = "inside" if low <= measured <= high else "outside"
    between = f"{predicted * 1e3:.2f} ms (between {low * 1e3:.2f} and {high * 1e3:.2f})"
    return f"a step was predicted to take {between} and took {measured * 1e3:.2f} ms, {verdict} these limits"


def table(runs: Mapping[str, Run]) -> str:
    """Return an HTML table of the runs, side by side."""
    columns: dict[str, dict[tuple[str, int], str]] = {side: {} for side in runs}
    for side, run in runs.items():
        for name, value in run.rows():  # several events can share a name
            columns[side][name, sum(name == known for known, _ in columns[side])] = value
    order = dict.fromkeys(key for column in columns.values() for key in column)
    rows = [[key[0], *(column.get(key, "–") for column in columns.values())] for key in order]
    return _html(["Results", *columns], rows)


def history(records: Sequence[Record]) -> str:
    """Return an HTML table of all runs so far, newest first."""
    rows = [
        {
            "Run": str(record.number),
            "Column": record.side,
            "Config": changes(record.run.config),
            "Outcome": _outcome(record.run) + _ending(record.run),
            "Time": f"{record.run.seconds:.2f} s",
            "Step": f"{record.run.seconds_per_step * 1e3:.2f} ms",
            "Step, predicted": f"{record.prediction.seconds_per_step * 1e3:.2f} ms" if record.prediction else "–",
            "Sent": f"{record.run.bytes_sent / 1e6:.3f} MB",
        }
        for record in reversed(records)
    ]
    return _html([*rows[0]], [[*row.values()] for row in rows])


def changes(config: Config) -> str:
    """Return, as a line of code, a config's fields that differ from the defaults."""
    text = " ".join(code(config).split()).replace("( ", "(").replace(", )", ")")
    return text.removeprefix("ps.Config(").removesuffix(")") or "as it comes"


def to_csv(records: Sequence[Record]) -> str:
    """Return the history as CSV, with a line for each run."""
    rows = [record.row() for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row if name != "config"))
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "config"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _ending(run: Run) -> str:
    """Return the reason why a run ended early; empty if it did not."""
    return " (stopped)" if run.stopped else " (diverged)" if run.diverged else ""


def _outcome(run: Run) -> str:
    if run.accuracy is not None:
        return f"accuracy {run.accuracy:.3f}"
    return f"loss {run.losses[-1][2]:.4f}" if run.losses else "no loss yet"


def _html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = html_rows([head], len(head)) + html_rows(rows, cell=_breakable)
    return f"<div class='minips-table'><table>{table}</table></div>"


def _breakable(text: str) -> str:
    """Let code break after a bracket, a comma or an equals sign, and keep numbers with their units."""
    text = re.sub(r"([(=,])(?=\S)", r"\1<wbr>", html.escape(text))
    return re.sub(r"(\d) (?=(?:s|ms|MB)\b)", r"\1&nbsp;", text)
