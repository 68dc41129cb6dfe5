"""A column of the workbench: controls for a whole config, and the code that creates that config."""

import dataclasses
import html
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_type_hints

import ipywidgets

from minips.core.codec import Codec
from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.local import Delays, LocalSteps
from minips.lab.controls import Controls, Row, StagePicker, WithTooltip, bare, close, control, sentence
from minips.lab.source import code
from minips.stage import Stage
from minips.stages.consistency import ASP
from minips.stages.memories import ErrorFeedback
from minips.stages.quantizers import Sign, TopK, Uniform
from minips.stages.transports import Link

_CODEC = ("quantizer", "memory", "serializer", "compressor")
_WHOLE = ("exchange", "consistency", "aggregator", "optimizer", "shards", "transport")
STAGES: dict[str, tuple[str, ...]] = {
    **{kind: ("push", kind) for kind in _CODEC},
    **{f"pull {kind}": ("pull", kind) for kind in _CODEC},
    **{kind: (kind,) for kind in _WHOLE},
}
"""Maps each dropdown's label to the path of its stage in the config; the stage's kind comes last."""

SIZES = (
    *("workers", "servers", "placement", "steps", "epochs", "batch size", "sampling", "accumulate", "overlap", "seed"),
)
"""The config's other fields that have a control."""

LOCAL, INNER = "local", "inner optimizer"
"""The controls of the config's local steps: their number, if any, and their optimizer."""

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "fewer bits": {"B": {"push": Codec(Sign(), ErrorFeedback())}},
    "fewer values": {"B": {"push": Codec(TopK(0.05), ErrorFeedback())}},
    "a slow network": {"AB": {"link": Link(10e6, 1e-3)}, "B": {"push": Codec(Uniform(bits=8))}},
    "a straggler": {"AB": {"workers": 4, "delays": Delays(0.01, slow={3: 4.0})}, "B": {"consistency": ASP()}},
    "no server": {"B": {"exchange": RingAllReduce()}},
}
"""Maps each preset to its changes to the configs that a panel was opened with: to both, and only to B."""

BANDWIDTHS = {"no limit": 0.0, "1 Gbit/s": 1e9, "100 Mbit/s": 100e6, "10 Mbit/s": 10e6, "1 Mbit/s": 1e6}
SLOWER: dict[str, tuple[type, dict[str, Any]]] = {
    "bandwidth": (float, {"help": "bits per second, each way, of each machine's link"}),
    "latency": (float, {"help": "latency of a limited link in ms", "unit": "ms", "minimum": 0, "maximum": 1e6}),
    "compute": (float, {"help": "least ms that a step computes", "unit": "ms, at least", "minimum": 0, "maximum": 1e6}),
    "straggler": (
        float,
        {"help": "factor by which the last worker is slower", "unit": "× slower", "above": 0, "maximum": 1e6},
    ),
    "random compute": (bool, {"help": "draw each step's compute time at random, with that mean"}),
}
"""Maps each control of the config's link and delays to its type and metadata."""

FIRST = (
    *("quantizer", "memory", "serializer", "compressor", "transport", "aggregator", "consistency", "optimizer"),
    *("workers", "steps", "bandwidth", "straggler"),
)
"""The rows for a first run; the others are folded under More."""
CROWD = 16
"""The page warns if a config has more processes than this number and more than the machine has cores."""
REST = ", more"
"""The suffix for the row with a stage's other fields."""
NARROW = {"memory": 0, "transport": 0}
"""Maps a kind to the number of fields shown under its dropdown, if not 1. Its other fields are under More."""

STRAGGLER_MS = 10.0
"""The compute time that is added for a straggler, in ms."""


def slower_of(config: Config) -> dict[str, Any]:
    """Return the values of the controls in `SLOWER` for a config."""
    link, delays = config.link or Link(), config.delays or Delays(0.0)
    return {
        "bandwidth": link.bandwidth_bps if config.link else 0.0,
        "latency": 1e3 * link.latency_s,
        "compute": 1e3 * delays.seconds,
        "straggler": delays.slow.get(config.workers - 1, 1.0),
        "random compute": delays.exponential,
    }


def slower_by(base: Config, values: Mapping[str, Any]) -> tuple[Link | None, Delays | None]:
    """Return the link and the delays for values of ``workers`` and of the controls in `SLOWER`. Factors of workers
    other than the last are those of ``base``.
    """
    link = Link(values["bandwidth"], values["latency"] / 1e3) if values["bandwidth"] else None
    last = values["workers"] - 1
    known = base.delays.slow if base.delays else {}
    slow = {worker: factor for worker, factor in known.items() if worker < last and worker != base.workers - 1}
    if values["straggler"] != 1:
        slow[last] = values["straggler"]
    if values["compute"] > 0 or slow:
        return link, Delays(values["compute"] / 1e3, slow, values["random compute"])
    return link, None


def row_label(name: str) -> str:
    """A row's name with its unit, for the page."""
    unit = SLOWER[name][1].get("unit") if name in SLOWER else None
    return f"{name} ({unit})" if unit else name


class Column(Controls):
    """The controls of one config, and the code that makes it."""

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name)
        self._base = config
        self.on_change: Callable[[], None] = lambda: None
        """Called when a control changes."""
        self.error = ipywidgets.HTML()
        """The error in the controls' values, if any."""
        self.code = ipywidgets.HTML()
        self.rows: dict[str, Row] = {}
        """Maps a name to its row, in order; a stage's other fields have their own row."""
        for label, path in {**STAGES, INNER: ("optimizer",)}.items():
            owner: Any = None
            stage: Any = (config.local or LocalSteps()) if label == INNER else config
            for attribute in path:
                owner, stage = stage, getattr(stage, attribute)
            if not isinstance(stage, Stage):
                words = f"got one for each of {', '.join(stage)}"
                raise ValueError(f"The workbench has one {path[-1]} for all tensors; {words}.")
            words = type(owner).__dataclass_fields__[path[-1]].metadata["help"]
            picker = StagePicker(name, label, words, stage, self.changed, NARROW.get(label, 1))
            self.pickers[label], self.rows[label], self.rows[label + REST] = picker, picker.row, picker.rest
        self._lent = False
        """Whether the compute time was added for a straggler."""
        for label, widget in self._plain(config):
            self.fields[label] = bare(widget)
            self.rows[label] = Row(WithTooltip(widget), {"": widget})
            widget.observe(lambda change: self.changed(), "value")
        self.fields["straggler"].observe(self._straggle, "value")
        self.changed()

    def _plain(self, config: Config) -> Iterator[tuple[str, Any]]:
        """Return the controls of fields that are not stages."""
        hints, fields = get_type_hints(Config), {field.name: field for field in dataclasses.fields(Config)}
        for label in SIZES:
            name = label.replace(" ", "_")
            yield label, control(hints[name], fields[name].metadata, getattr(config, name), self.name, name)
        steps, limits = config.local and config.local.steps, LocalSteps.__dataclass_fields__["steps"].metadata
        yield LOCAL, control(int | None, limits, steps, self.name, LOCAL)
        values, bandwidths = slower_of(config), dict(BANDWIDTHS)
        if values["bandwidth"] not in bandwidths.values():
            bandwidths[f"{values['bandwidth'] / 1e6:g} Mbit/s"] = values["bandwidth"]
        for label, (kind, metadata) in SLOWER.items():
            choices = list(bandwidths.items()) if label == "bandwidth" else None
            yield label, control(kind, {**metadata, "choices": choices}, values[label], self.name, label)

    def load(self, config: Config) -> None:
        """Show another config. ValueError if its tensors have different stages, which the controls cannot show."""
        fresh = Column(self.name, config)
        self._base = config
        for label, picker in fresh.pickers.items():
            self.pickers[label].load(picker.stage())
        self.fields["bandwidth"].options = fresh.fields["bandwidth"].options
        for label, widget in fresh.fields.items():
            self.fields[label].value = widget.value
        self.fields["compute"].value, self._lent = fresh.fields["compute"].value, False
        close(fresh.error, fresh.code, *(row.panel for row in fresh.rows.values()))
        self.changed()

    def config(self) -> Config:
        """The config that the controls describe. ValueError, in a sentence, if that config is not possible."""
        values, base = self.read(), self._base
        link, delays = slower_by(base, values)
        sizes = {label.replace(" ", "_"): values[label] for label in SIZES}
        if sizes["epochs"] is not None:  # if epochs are given, they replace steps
            sizes["steps"] = Config.steps
        return dataclasses.replace(
            base,
            push=dataclasses.replace(base.push, **{kind: values[kind] for kind in _CODEC}),
            pull=dataclasses.replace(base.pull, **{kind: values[f"pull {kind}"] for kind in _CODEC}),
            **{label: values[label] for label in _WHOLE},
            **sizes,
            local=LocalSteps(values[LOCAL], values[INNER]) if values[LOCAL] else None,
            link=link,
            delays=delays,
        )

    def changed(self) -> None:
        """Show the new code after a control has changed, or a sentence that says why there is none."""
        self.on_change()
        self.error.value = self.code.value = ""
        if self.wrong:  # the error is shown under the field
            return
        try:
            text = code(config := self.config())
        except Exception as error:
            self.error.value = sentence(str(error))
            return
        processes, cores = config.workers + config.servers, os.cpu_count() or 1
        if processes > max(CROWD, cores):
            crowd = f"{processes} processes would share the {cores} cores of this machine, and its memory."
            self.error.value = sentence(crowd, "That is a lot.")
        copy = f"<button type='button' class='minips-copy' title='copy this code'>Copy {self.name}</button>"
        self.code.value = f"<div class='minips-code'><b>{self.name}</b> {copy}<pre>{html.escape(text)}</pre></div>"

    def _straggle(self, change: Any) -> None:
        """Add compute time with a straggler, which is slow only if steps take time; remove it with the straggler."""
        compute, straggler = self.fields["compute"], self.fields["straggler"]
        if compute.wrong or straggler.wrong:
            return
        if straggler.number != 1 and not compute.number:
            compute.value, self._lent = STRAGGLER_MS, True
        elif straggler.number == 1 and self._lent:
            compute.value, self._lent = (0 if compute.number == STRAGGLER_MS else compute.value), False
