"""A run's trace, played back: a lane for each process, its spans, and messages that travel between the lanes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from minips import files
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.lab.source import code
from minips.lab.views.base import View, format_bytes, format_seconds
from minips.lab.views.packing import pack
from minips.lab.views.recording import Down, Recording, Window, axis_of, rank
from minips.lab.views.still import draw_still
from minips.results.run import Run
from minips.stage import Value
from minips.words import check_type, join_names

MOST_EVENTS = 5
"""The most events of a run that the replay's words tell."""
A_RUN = "a Run, such as the result of ps.train; that of a prediction is trained on ps.Simulated(calibration=…)"


def replay(run: Run, other: Run | None = None, *, seconds: Window | None = None) -> "Replay":
    """Play a run's trace back. In a notebook: play and pause, a speed down to 1/1000 of real time, the previous and the
    next event, and windows of eight steps, of the longest wait and of the whole run. A click on a wait shows for whom
    it was, and the chain of events that ended it.

    A lane shows the spans of a process, and a line between two lanes a message, along which a dot travels. ``other`` is
    played below the run, on the same clock. ``seconds`` are two times between which to play; a run with very many rows
    is drawn as shares of time, and such a part of it one by one. `Replay.to_html` writes a page that needs no kernel.

    Raises TypeError if it gets no run, and ValueError if a run has nothing to play.
    """
    runs = [run] if other is None else [run, other]
    for one in runs:
        check_type("replay", one, Run, A_RUN)
    check_window(seconds)
    recordings = [Recording(one, title, seconds) for one, title in zip(runs, titles(runs), strict=True)]
    for recording in recordings:
        check_playable(recording)
    return Replay(recordings)


class Replay(View):
    """One or two runs, played back."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        super().__init__("replay", pack(recordings), draw_still(recordings), describe(recordings))

    def to_html(self, path: str | Path) -> None:
        """Write a page that plays without a kernel and without a network. Raises OSError if it cannot be written."""
        check_type("to_html", path, str | Path, "the path of a file")
        files.write(path, self.html("A run, played back"))


def check_window(seconds: object) -> None:
    """Raise TypeError or ValueError unless ``seconds`` is None or two times, the first of them earlier."""
    if seconds is None:
        return
    try:
        first, last = (float(moment) for moment in seconds)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise TypeError(f"replay takes seconds=(start, stop), two times of the run; got {seconds!r}.") from None
    if not first < last:
        raise ValueError(f"replay takes seconds=(start, stop), with start before stop; got {seconds!r}.")


def check_playable(recording: Recording) -> None:
    """Raise ValueError if a run has no trace, none in the time that was asked for, or takes no time."""
    run, start, stop = recording.run, recording.start, recording.stop
    if not recording.parties:
        raise ValueError("The run has no trace: neither spans nor messages. Train again, and replay the new run.")
    if start == stop:
        raise ValueError(
            "Nothing takes time in this simulated run. Give Simulated a compute_s or a calibration, or the config a "
            "link."
        )
    if not recording.spans and not recording.messages:
        raise ValueError(f"The run has nothing to play from {start:g} to {stop:g} s: it took {run.seconds:g} s.")


def titles(runs: Sequence[Run]) -> list[str]:
    """Return a title for each run: its name, or the fields in which the configs differ.

    >>> import minips as ps
    >>> titles([Run(ps.Config(consistency=rule, steps=9), {}, [], 1.0, 1) for rule in ("bsp", "asp")])
    ['A: BSP', 'B: ASP']
    """
    configs = [run.config for run in runs]
    differ = [name for name in vars(configs[0]) if len({repr(getattr(one, name)) for one in configs}) > 1]
    titles = [run.name or ", ".join(words_of(run.config, differ or default_fields(run.config))) for run in runs]
    return [f"{letter}: {title}" for letter, title in zip("AB", titles, strict=True)] if len(runs) > 1 else titles


def default_fields(config: Config) -> list[str]:
    """Return the fields that say how the workers of a config work together."""
    return ["exchange"] if isinstance(config.exchange, AllReduce) else ["consistency"]


def words_of(config: Config, names: Iterable[str]) -> Iterator[str]:
    """Yield the values of a config's fields in words: a stage as code, another value with the field's name."""
    for name in names:
        value = getattr(config, name)
        yield code(value, package=False).removesuffix("()") if isinstance(value, Value) else f"{name}={value!r}"


# ---- words ----


def describe(recordings: Sequence[Recording]) -> str:
    """Return the picture in words."""
    origin = axis_of(recordings).start
    sentences = [sentence for one in recordings for sentence in sentences_of(one, origin)]
    if len(recordings) > 1:
        a, b = (one.run for one in recordings)
        if a.seconds and a.bytes_sent:
            took, sent = b.seconds / a.seconds, b.bytes_sent / a.bytes_sent
            sentences.append(f"B takes {took:.2f} × A's time and sends {sent:.2f} × A's bytes.")
    return " ".join(sentences)


def sentences_of(recording: Recording, origin: float) -> Iterator[str]:
    """Yield sentences about one run: its parties, messages and waits, and what the picture lacks."""
    run, messages = recording.run, recording.messages
    roles = [rank(party)[1] for party in reversed(recording.parties)]
    counts = [f"{roles.count(role):,} {role}{'s' * (roles.count(role) > 1)}" for role in dict.fromkeys(roles)]
    nbytes = format_bytes(sum(message.nbytes for message in messages))
    does = "makes" if len(recording.parties) == 1 else "make"
    sent = f", with {len(messages):,} messages of {nbytes}" if messages else ""
    steps = f"{run.clocks:,} steps in {format_seconds(run.seconds)}"
    yield f"{recording.title}. {join_names(counts)} {does} {steps}{sent}."
    if wait := recording.longest:
        whom = f" for {wait.partners[0]}" if wait.partners else ""
        ended = format_seconds(wait.start + wait.seconds - origin)
        took = format_seconds(wait.seconds)
        yield (
            f"The longest of {len(recording.waits):,} waits takes {took}: {wait.who} waits{whom} in step {wait.step}, "
            f"until {ended}."
        )
    else:
        yield "No worker waits."
    if lost := sum(message.start is None or message.end is None for message in messages):
        many = f"Of {lost:,} messages only one end is known: their lines break off."
        yield many if lost > 1 else "Of one message only one end is known: its line breaks off."
    yield from happened(recording, origin)
    if run.clock_error_s:
        yield f"Its machines' clocks agree to ± {format_seconds(run.clock_error_s)}."
    if recording.folded:
        yield "Lanes are shares of time: lab.replay(run, seconds=(start, stop)) shows a part of the run in full."
    if run.trace.until < recording.stop:
        yield f"From {format_seconds(run.trace.until - origin)} on, the trace has not kept everything."


def happened(recording: Recording, origin: float = 0.0) -> Iterator[str]:
    """Yield sentences about the parties that were down and the run's events. ``origin`` is the zero of their times."""
    run = recording.run
    together = defaultdict[tuple[float, bool], list[Down]](list)
    for down in sorted(recording.downs, key=lambda down: rank(down.who)):
        together[down.start, down.back].append(down)
    for (start, back), downs in sorted(together.items())[:MOST_EVENTS]:
        names, stop = join_names([down.who for down in downs]), max(down.stop for down in downs)
        who = f"{names} is" if len(downs) == 1 else f"{names} are"
        who = "All processes are" if len(downs) == len(recording.parties) > 1 else who
        until = f"to {format_seconds(stop - origin)}" if back else "on"
        yield f"{who[0].upper()}{who[1:]} down from {format_seconds(start - origin)} {until}."
    for at, text in run.events[:MOST_EVENTS]:
        yield f"At {format_seconds(max(at - origin, 0.0))}, {text.rstrip('.')}."
    if len(run.events) > MOST_EVENTS:
        yield f"{len(run.events) - MOST_EVENTS:,} more events are in Run.events."
