"""One column of the workbench: a whole config as controls, and as the code that makes it."""

import dataclasses
import html
import os
from collections.abc import Callable
from typing import Any, get_type_hints

import ipywidgets

from minips.core.config import Config, Delays
from minips.lab.controls import (
    LAYOUT,
    STYLE,
    Number,
    StagePicker,
    bare,
    control,
    explanations,
    placed,
    read,
    sentence,
    widgets_of,
    wrong,
)
from minips.lab.source import code
from minips.stage import Stage
from minips.stages.transports import Link

_CODEC = ("quantizer", "memory", "serializer", "compressor")
_WHOLE = ("exchange", "consistency", "aggregator", "optimizer", "transport")
STAGES: dict[str, tuple[str, ...]] = {
    **{kind: ("push", kind) for kind in _CODEC},
    **{f"pull {kind}": ("pull", kind) for kind in _CODEC},
    **{kind: (kind,) for kind in _WHOLE},
}
"""The dropdowns: the label, and where the stage stands in the config; its kind comes last."""

SIZES = ("workers", "servers", "steps", "batch size", "accumulate", "overlap", "seed")
"""The config's other fields that have a control of their own."""

BANDWIDTHS = {"no limit": 0.0, "1 Gbit/s": 1e9, "100 Mbit/s": 100e6, "10 Mbit/s": 10e6, "1 Mbit/s": 1e6}

FIRST = (
    *("quantizer", "memory", "serializer", "compressor", "transport", "aggregator", "consistency", "optimizer"),
    *("workers", "steps", "bandwidth", "straggler"),
)
"""The rows that a first run needs; all others are folded under More."""
CROWD = 16
"""More processes than this are worth a warning, where they are more than the machine's cores."""
UNITS = {"latency": "ms", "compute": "ms, at least", "straggler": "× slower"}
"""Of the rows whose control is a bare number."""
REST = ", more"
"""What ends the name of the row with a stage's other fields."""
NARROW = {"memory": 0, "transport": 0}
"""How many fields of a chosen stage stand under it, if not one; the others are under More."""

STRAGGLER_MS = 10.0
"""The least compute time that comes with a straggler."""


def shown(name: str) -> str:
    """A row's name as the page shows it."""
    return f"{name} ({UNITS[name]})" if name in UNITS else name


class Column:
    """The controls of one config, and the code that makes it."""

    def __init__(self, name: str, config: Config) -> None:
        self.name, self._base = name, config
        self.on_change: Callable[[], None] = lambda: None
        """Called where a control has moved."""
        self.pickers: dict[str, StagePicker] = {}
        for label, path in STAGES.items():
            stage: Any = config
            for attribute in path:
                stage = getattr(stage, attribute)
            if not isinstance(stage, Stage):
                words = f"got one for each of {', '.join(stage)}"
                raise ValueError(f"The workbench has one {path[-1]} for all tensors; {words}.")
            self.pickers[label] = StagePicker(name, label, stage, self.changed, narrow=NARROW.get(label, 1))
        slow = config.delays.slow if config.delays else {}
        self._slow = {worker: factor for worker, factor in slow.items() if worker != config.workers - 1}
        """Of the workers other than the last, which have no control."""
        self._lent = False
        """Whether the compute time is there for the straggler's sake."""
        self._own = self._own_controls(config)
        for widget in self._own.values():
            widget.observe(lambda change: self.changed(), "value")
        self._own["straggler"].observe(self._straggle, "value")
        self._rows = {
            name: placed(widget) if isinstance(widget, Number) else widget for name, widget in self._own.items()
        }
        self.error: Any = ipywidgets.HTML()
        """What is wrong with what the controls say, if anything is."""
        self.code: Any = ipywidgets.HTML()
        self.changed()

    @property
    def controls(self) -> dict[str, Any]:
        """The widgets by label; a field of the chosen stage as ``"quantizer.fraction"``."""
        return widgets_of(self.pickers) | self._own

    def row(self, label: str) -> Any:
        """What this column shows beside a name: a dropdown with its fields, or one control."""
        if label.endswith(REST):
            return self.pickers[label.removesuffix(REST)].rest
        return self.pickers[label].panel if label in self.pickers else self._rows[label]

    def help(self, label: str) -> str:
        """What the controls beside a name mean."""
        if label.endswith(REST):
            return ""
        return str((self.pickers[label].dropdown if label in self.pickers else self._own[label]).tooltip)

    def explanations(self) -> dict[str, str]:
        """What each control means, by its name without the column's."""
        return explanations(self.name, self.controls.values())

    def names(self) -> list[str]:
        """The names of the rows, in their order."""
        return [*(name for label in self.pickers for name in (label, label + REST)), *self._own]

    def says(self, label: str) -> Any:
        """What the controls beside a name say, to tell whether it differs from the other column."""
        if label.endswith(REST):
            return {name: widget.value for name, widget in self._rest(label.removesuffix(REST))}
        if label not in self.pickers:
            return self._own[label].value
        picker, rest = self.pickers[label], {name for name, _ in self._rest(label)}
        return picker.dropdown.value, {name: widget.value for name, widget in picker.fields.items() if name not in rest}

    def _rest(self, label: str) -> list[tuple[str, Any]]:
        return list(self.pickers[label].fields.items())[NARROW.get(label, 1) :]

    def load(self, config: Config) -> None:
        """Show another config. ValueError where it has a stage for each tensor, for which there is no control."""
        fresh = Column(self.name, config)
        self._base, self._slow, self._lent = config, fresh._slow, False
        for label, picker in fresh.pickers.items():
            self.pickers[label].load(picker.stage())
        for name, widget in fresh._own.items():
            if name == "bandwidth":
                self._own[name].options = widget.options
            self._own[name].value = widget.value
        self._own["compute"].value, self._lent = fresh._own["compute"].value, False
        self.changed()

    def config(self) -> Config:
        """The config that the controls describe. ValueError in a sentence where there can be no such config."""
        stages: dict[str, Any] = {label: picker.stage() for label, picker in self.pickers.items()}
        own: dict[str, Any] = {label: read(widget) for label, widget in self._own.items()}
        base, link, delays = self._base, None, None
        if own["bandwidth"]:
            link = Link(bandwidth_bps=own["bandwidth"], latency_s=own["latency"] / 1e3)
        if own["compute"] > 0 or own["straggler"] != 1 or self._slow:
            last = own["workers"] - 1
            slow = {worker: factor for worker, factor in self._slow.items() if worker < last}
            slow |= {last: own["straggler"]} if own["straggler"] != 1 else {}
            delays = Delays(seconds=own["compute"] / 1e3, slow=slow, exponential=own["random compute"])
        return dataclasses.replace(
            base,
            push=dataclasses.replace(base.push, **{kind: stages[kind] for kind in _CODEC}),
            pull=dataclasses.replace(base.pull, **{kind: stages[f"pull {kind}"] for kind in _CODEC}),
            **{label: stages[label] for label in _WHOLE},
            **{label.replace(" ", "_"): own[label] for label in SIZES},
            link=link,
            delays=delays,
        )

    def refresh(self) -> None:
        """Offer what has been registered since."""
        for picker in self.pickers.values():
            picker.refresh()

    def changed(self) -> None:
        """A control has moved: show the new code, or the sentence that says why there is none."""
        if not hasattr(self, "code"):
            return
        self.on_change()
        self.error.value = self.code.value = ""
        if wrong(self.controls.values()):  # which stands under the field
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
        style = "margin:0 0 8px;white-space:pre-wrap;line-height:1.35;font-size:12px;overflow-wrap:anywhere"
        self.code.value = f"<pre style='{style}'>{html.escape(text)}</pre>"

    def _own_controls(self, config: Config) -> dict[str, Any]:
        bandwidths = dict(BANDWIDTHS)
        link, delays = config.link, config.delays
        if link and link.bandwidth_bps not in bandwidths.values():
            bandwidths[f"{link.bandwidth_bps / 1e6:g} Mbit/s"] = link.bandwidth_bps
        straggler = delays.slow.get(config.workers - 1, 1.0) if delays else 1.0
        own: dict[str, Any] = {}
        fields = {field.name: field for field in dataclasses.fields(Config)}
        for label in SIZES:
            field = fields[label.replace(" ", "_")]
            hint = get_type_hints(Config)[field.name]
            own[label] = bare(control(hint, field.metadata, getattr(config, field.name), self.name, field.name))
        own["bandwidth"] = ipywidgets.Dropdown(
            options=list(bandwidths.items()),
            value=link.bandwidth_bps if link else 0.0,
            tooltip="bits per second, each way, of each machine's link",
        )
        latency_ms = 1e3 * (link.latency_s if link else 1e-3)
        own["latency"] = _number("latency", latency_ms, "ms that a message travels, with a limit")
        own["compute"] = _number("compute", 1e3 * (delays.seconds if delays else 0.0), "least ms that a step computes")
        own["straggler"] = _number("straggler", straggler, "the last worker computes so many times slower", above=0)
        own["random compute"] = ipywidgets.Checkbox(
            value=delays.exponential if delays else False, tooltip="draw each step's compute time anew, with that mean"
        )
        for name in (name for name in own if name not in SIZES):
            own[name].description = own[name].full_name = f"{self.name} {shown(name)}"
            own[name].style, own[name].layout = STYLE, LAYOUT
            bare(own[name])
        for widget in own.values():
            if isinstance(widget, ipywidgets.Checkbox):
                widget.indent = False
        return own

    def _straggle(self, change: Any) -> None:
        """A straggler of no compute time would not be slow: give it some to multiply, and take it away with it."""
        compute, straggler = self._own["compute"], self._own["straggler"]
        if compute.wrong or straggler.wrong:
            return
        if straggler.number != 1 and not compute.number:
            compute.value, self._lent = STRAGGLER_MS, True
        elif straggler.number == 1 and self._lent:
            compute.value, self._lent = (0 if compute.number == STRAGGLER_MS else compute.value), False


def _number(name: str, value: float, tooltip: str, above: float | None = None) -> Any:
    limits = {"minimum": 0 if above is None else None, "maximum": 1e6, "above": above}
    return Number(shown(name), float, False, limits, value, tooltip=tooltip)
