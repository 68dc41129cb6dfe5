"""Controls made from what a stage's fields say about themselves, and a config put together from them.

Every control has a description that is unique on the page (``"A quantizer"``, ``"B quantizer fraction"``): it is the
name by which a screen reader, and a test in a browser, finds it.
"""

import dataclasses
import html
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

import ipywidgets
from traitlets import TraitError

from minips.lab.source import code, default
from minips.runtime.config import Config, Delays
from minips.stage import Stage, Value, names, stage_class
from minips.stages.transports import Link

_STYLE = {"description_width": "196px"}
_LAYOUT = {"width": "auto", "margin": "1px 4px"}

STAGES: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "What the workers send": {
        "quantizer": ("quantizer", ("push", "quantizer")),
        "memory": ("memory", ("push", "memory")),
        "serializer": ("serializer", ("push", "serializer")),
        "compressor": ("compressor", ("push", "compressor")),
    },
    "What comes back": {"pull quantizer": ("quantizer", ("pull", "quantizer"))},
    "Who decides, and how it travels": {
        "consistency": ("consistency", ("consistency",)),
        "aggregator": ("aggregator", ("aggregator",)),
        "optimizer": ("optimizer", ("optimizer",)),
        "transport": ("transport", ("transport",)),
    },
}
"""The dropdowns under their headings: label, kind of stage, and where it stands in the config."""

BANDWIDTHS = {"no limit": 0.0, "1 Gbit/s": 1e9, "100 Mbit/s": 100e6, "10 Mbit/s": 10e6, "1 Mbit/s": 1e6}


class StagePicker:
    """A dropdown of one kind's registered stages, and under it a control for each field of the chosen one."""

    def __init__(self, label: str, kind: str, stage: Stage, changed: Callable[[], None]) -> None:
        self.label, self.kind, self._changed = label, kind, changed
        self._setting = False
        self._cls: type[Stage] = type(stage)
        self._base: Stage | None = stage
        self.dropdown: Any = ipywidgets.Dropdown(
            options=names(kind), value=stage.name, description=label, style=_STYLE, layout=_LAYOUT
        )
        self.fields: dict[str, Any] = {}
        self.panel: Any = ipywidgets.VBox()
        self._show_fields(stage)
        self.dropdown.observe(self._chosen, "value")

    def stage(self) -> Any:
        """The stage that the controls describe. ValueError in a sentence where there can be no such stage."""
        values = {name: read(widget) for name, widget in self.fields.items()}
        if self._base is not None and type(self._base) is self._cls:
            return dataclasses.replace(self._base, **values)  # type: ignore[type-var]
        return self._cls(**values)

    def refresh(self) -> None:
        """Take in what has been registered since, a class that was defined anew included."""
        known, chosen = tuple(names(self.kind)), self.dropdown.value
        if known != tuple(self.dropdown.options):
            self._setting = True
            self.dropdown.options = known
            self.dropdown.value = chosen
            self._setting = False
        if stage_class(self.kind, chosen) is not self._cls:
            self._choose(chosen)

    def _chosen(self, change: Any) -> None:
        if not self._setting:
            self._choose(change["new"])

    def _choose(self, name: str) -> None:
        self._cls, self._base = stage_class(self.kind, name), None
        self._show_fields(self._cls)
        self._changed()

    def _show_fields(self, stage: Stage | type[Stage]) -> None:
        self.fields = _fields(stage, self.label, self._changed)
        self.panel.children = [self.dropdown, *self.fields.values()]


class Form:
    """A control for each field of a value, a stage picker where the field is a stage."""

    def __init__(self, label: str, value: Value, changed: Callable[[], None]) -> None:
        self._base = value
        self.pickers = {
            field.name: StagePicker(_words(label, field.name), stage.kind, stage, changed)
            for field in dataclasses.fields(value)  # type: ignore[arg-type]
            if isinstance(stage := getattr(value, field.name), Stage)
        }
        self.fields = _fields(value, label, changed)

    @property
    def controls(self) -> dict[str, Any]:
        """The widgets by field; a field of the chosen stage as ``"quantizer.fraction"``."""
        return _of_pickers(self.pickers) | self.fields

    @property
    def panels(self) -> list[Any]:
        """What to put on the page, in the order of the fields."""
        shown = {name: picker.panel for name, picker in self.pickers.items()} | self.fields
        return [shown[field.name] for field in dataclasses.fields(self._base) if field.name in shown]  # type: ignore[arg-type]

    def value(self) -> Any:
        """The value that the controls describe. ValueError in a sentence where there can be no such value."""
        stages = {name: picker.stage() for name, picker in self.pickers.items()}
        own = {name: read(widget) for name, widget in self.fields.items()}
        return dataclasses.replace(self._base, **stages, **own)  # type: ignore[type-var]

    def refresh(self) -> None:
        """Offer what has been registered since."""
        for picker in self.pickers.values():
            picker.refresh()


class Column:
    """The controls of one config, and the code that makes it."""

    def __init__(self, side: str, config: Config) -> None:
        self.side, self._base = side, config
        self.pickers: dict[str, StagePicker] = {}
        groups = []
        for heading, pickers in STAGES.items():
            for label, (kind, path) in pickers.items():
                stage: Any = config
                for attribute in path:
                    stage = getattr(stage, attribute)
                if not isinstance(stage, Stage):
                    words = f"got one for each of {', '.join(stage)}"
                    raise ValueError(f"The workbench has one {kind} for all tensors; {words}.")
                self.pickers[label] = StagePicker(f"{side} {label}", kind, stage, self.changed)
            groups.append((heading, [self.pickers[label].panel for label in pickers]))
        self._own = self._own_controls(config)
        for widget in self._own.values():
            widget.observe(lambda change: self.changed(), "value")
        self._own["straggler"].observe(self._straggle, "value")
        sizes = ("workers", "servers", "steps", "batch size")
        groups.append(("How much", [self._own[name] for name in sizes]))
        groups.append(("The network and the machines", [w for name, w in self._own.items() if name not in sizes]))
        self.error: Any = ipywidgets.HTML()
        self.code: Any = ipywidgets.HTML()
        parts = [part for heading, members in groups for part in (_heading(heading), *members)]
        title = ipywidgets.HTML(f"<h3 style='margin:0'>{side}</h3>")
        tail = [self.error, _heading("As code"), self.code]
        layout = {"border": "1px solid #bbb", "padding": "6px", "min_width": "0"}
        self.panel: Any = ipywidgets.VBox([title, *parts, *tail], layout=layout)
        self.changed()

    @property
    def controls(self) -> dict[str, Any]:
        """The widgets by label; a field of the chosen stage as ``"quantizer.fraction"``."""
        return _of_pickers(self.pickers) | self._own

    def config(self) -> Config:
        """The config that the controls describe. ValueError in a sentence where there can be no such config."""
        stages: dict[str, Any] = {label: picker.stage() for label, picker in self.pickers.items()}
        own: dict[str, Any] = {label: read(widget) for label, widget in self._own.items()}
        codec = {name: stages[name] for name in ("quantizer", "memory", "serializer", "compressor")}
        base, link, delays = self._base, None, None
        if own["bandwidth"]:
            link = Link(bandwidth_bps=own["bandwidth"], latency_s=own["latency"] / 1e3)
        if own["compute"] > 0 or own["straggler"] != 1:
            slow = {own["workers"] - 1: own["straggler"]} if own["straggler"] != 1 else {}
            exponential = base.delays.exponential if base.delays else False
            delays = Delays(seconds=own["compute"] / 1e3, slow=slow, exponential=exponential)
        return dataclasses.replace(
            base,
            push=dataclasses.replace(base.push, **codec),
            pull=dataclasses.replace(base.pull, quantizer=stages["pull quantizer"]),
            **{name: stages[name] for name in ("consistency", "aggregator", "optimizer", "transport")},
            **{name: own[name] for name in ("workers", "servers", "steps")},
            batch_size=own["batch size"],
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
        try:
            text = code(self.config())
        except Exception as error:
            self.error.value = sentence(str(error))
            return
        self.error.value = ""
        style = "margin:0;white-space:pre-wrap;line-height:1.35;font-size:12px;overflow-wrap:anywhere"
        self.code.value = f"<pre style='{style}'>{html.escape(text)}</pre>"

    def _own_controls(self, config: Config) -> dict[str, Any]:
        bandwidths = dict(BANDWIDTHS)
        link, delays = config.link, config.delays
        if link and link.bandwidth_bps not in bandwidths.values():
            bandwidths[f"{link.bandwidth_bps / 1e6:g} Mbit/s"] = link.bandwidth_bps
        straggler = delays.slow.get(config.workers - 1, 1.0) if delays else 1.0
        own: dict[str, Any] = {}
        fields = {field.name: field for field in dataclasses.fields(Config)}
        for label in ("workers", "servers", "steps", "batch size"):
            field = fields[label.replace(" ", "_")]
            hint = get_type_hints(Config)[field.name]
            own[label] = control(hint, field.metadata, getattr(config, field.name), f"{self.side} {label}")
        own["bandwidth"] = ipywidgets.Dropdown(
            options=list(bandwidths.items()),
            value=link.bandwidth_bps if link else 0.0,
            tooltip="bits per second, each way, of each machine's link",
        )
        own["latency"] = _number(1e3 * (link.latency_s if link else 1e-3), "ms that a message travels, with a limit", 1)
        own["compute"] = _number(1e3 * (delays.seconds if delays else 0.0), "least ms that a step computes", 1)
        own["straggler"] = _number(straggler, "the last worker computes so many times slower", 0.5)
        labels = {"latency": "latency (ms)", "compute": "least compute (ms)", "straggler": "straggler (× slower)"}
        for name in ("bandwidth", "latency", "compute", "straggler"):
            own[name].description = f"{self.side} {labels.get(name, name)}"
            own[name].style, own[name].layout = _STYLE, _LAYOUT
        return own

    def _straggle(self, change: Any) -> None:
        """A straggler of no compute time would not be slow: give it some to multiply."""
        if change["new"] != 1 and not self._own["compute"].value:
            self._own["compute"].value = 10.0


def _of_pickers(pickers: Mapping[str, StagePicker]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for label, picker in pickers.items():
        found[label] = picker.dropdown
        found |= {f"{label}.{name}": widget for name, widget in picker.fields.items()}
    return found


def _fields(value: Value | type[Value], label: str, changed: Callable[[], None]) -> dict[str, Any]:
    """A widget for each field that a simple widget can hold, with the value's own content or, for a class, the
    default. A field that contradicts itself has none: the class will say what is wrong when it is to be made.
    """
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(value if isinstance(value, type) else type(value))
    except Exception:  # an annotation may be any expression
        return fields
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        start = default(field) if isinstance(value, type) else getattr(value, field.name)
        try:
            widget = control(hints[field.name], field.metadata, start, _words(label, field.name))
        except (TraitError, ValueError, TypeError):
            continue
        if widget is not None:
            widget.observe(lambda change: changed(), "value")
            fields[field.name] = widget
    return fields


def _words(label: str, field: str) -> str:
    return f"{label} {field.replace('_', ' ')}"


def control(hint: Any, metadata: Any, value: Any, description: str) -> Any:
    """A widget for a field of this type and metadata; None for a type that no simple widget can hold."""
    arms = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    kind = next((arm for arm in arms if arm is not type(None)), hint)
    unit = metadata.get("unit")
    common: dict[str, Any] = {
        "description": f"{description} ({unit})" if unit and unit not in description else description,
        "tooltip": metadata.get("help") or description,
        "style": _STYLE,
        "layout": _LAYOUT,
    }
    minimum, maximum, step = (metadata.get(name) for name in ("minimum", "maximum", "step"))
    if metadata.get("choices") is not None:
        return ipywidgets.Dropdown(options=metadata["choices"], value=value, **common)
    if kind is bool:
        return ipywidgets.Checkbox(value=value, indent=True, **common)
    if type(None) in arms and kind in (int, float):
        widget = ipywidgets.Text(value="" if value is None else f"{value:g}", placeholder="none", **common)
        widget.continuous_update = False
        widget.kind = kind
        return widget
    if kind in (int, float):
        bounded = minimum is not None and maximum is not None
        name = ("Bounded" if bounded else "") + ("IntText" if kind is int else "FloatText")
        limits = {"min": minimum, "max": maximum} if bounded else {}
        return getattr(ipywidgets, name)(
            value=value, step=int(step or 1) if kind is int else step, continuous_update=False, **limits, **common
        )
    if kind is str:
        return ipywidgets.Text(value=value, continuous_update=False, **common)
    return None


def read(widget: Any) -> Any:
    """What a control made by `control` says. ValueError where the text is not a number."""
    kind = getattr(widget, "kind", None)
    if kind is None:
        return widget.value
    text = widget.value.strip()
    try:
        return None if text in ("", "none", "None") else kind(text)
    except ValueError:
        raise ValueError(f"{widget.description} takes a number, or nothing for none; got {text!r}.") from None


def sentence(text: str) -> str:
    """An error as HTML that a screen reader announces."""
    style = "border-left:4px solid #D55E00;padding:4px 8px;overflow-wrap:anywhere;line-height:1.35"
    return f"<div role='alert' style='{style}'><b>That does not work.</b> {html.escape(text)}</div>"


def _number(value: float, tooltip: str, step: float) -> Any:
    return ipywidgets.BoundedFloatText(value=value, min=0, max=1e6, step=step, tooltip=tooltip, continuous_update=False)


def _heading(text: str) -> Any:
    return ipywidgets.HTML(f"<div style='font-weight:600;margin-top:4px'>{text}</div>")
