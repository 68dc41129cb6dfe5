"""Controls made from what a value's fields say about themselves.

Every control has a description that is unique on the page (``"A quantizer"``, ``"B quantizer fraction"``): it is the
name by which a screen reader, and a test in a browser, finds it.
"""

import dataclasses
import html
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Union, get_args, get_origin, get_type_hints

import ipywidgets
from traitlets import TraitError

from minips.lab.source import default
from minips.stage import Stage, Value, names, stage_class

HELP = {
    "quantizer": "which values are sent, and in how many bits",
    "memory": "what a sender remembers of what it left out",
    "serializer": "how arrays become frames of bytes",
    "compressor": "how frames become smaller, without loss",
    "transport": "what carries the frames between processes",
    "aggregator": "how the gradients of a round become one",
    "consistency": "when a worker has to wait for the others",
    "exchange": "over servers, or among the workers alone",
    "optimizer": "how a gradient changes the parameters",
}
"""What each kind of stage decides, in a few words."""

STYLE = {"description_width": "196px"}
LAYOUT = {"width": "auto", "margin": "1px 4px"}


class StagePicker:
    """A dropdown of one kind's registered stages, and under it a control for each field of the chosen one.

    In a ``narrow`` one the dropdown's name is not shown, for it stands elsewhere, a field shows its own name alone, and
    all but the first ``narrow`` fields are in the panel ``rest``.
    """

    def __init__(
        self, label: str, kind: str, stage: Stage, changed: Callable[[], None], *, narrow: int | None = None
    ) -> None:
        self.label, self.kind, self._changed, self._narrow = label, kind, changed, narrow
        self._setting = False
        self._cls: type[Stage] = type(stage)
        self._base: Stage | None = stage
        self.dropdown: Any = ipywidgets.Dropdown(
            options=names(kind),
            value=stage.name,
            description=label,
            style=STYLE,
            layout=LAYOUT,
            tooltip=HELP.get(kind, kind),
        )
        if narrow is not None:
            bare(self.dropdown)
        self.fields: dict[str, Any] = {}
        self.panel: Any = ipywidgets.VBox()
        self.rest: Any = ipywidgets.VBox()
        self._show_fields(stage)
        self.dropdown.observe(self._chosen, "value")

    def stage(self) -> Any:
        """The stage that the controls describe. ValueError in a sentence where there can be no such stage."""
        values = {name: read(widget) for name, widget in self.fields.items()}
        if self._base is not None and type(self._base) is self._cls:
            return dataclasses.replace(self._base, **values)  # type: ignore[type-var]
        return self._cls(**values)

    def load(self, stage: Stage) -> None:
        """Show another stage."""
        self._setting = True
        self.dropdown.value = stage.name
        self._setting = False
        self._cls, self._base = type(stage), stage
        self._show_fields(stage)

    def refresh(self) -> None:
        """Take in what has been registered since, a class that was defined anew included."""
        known, chosen = tuple(names(self.kind)), self.dropdown.value
        if known != tuple(self.dropdown.options):
            self._setting = True
            self.dropdown.options = known
            self.dropdown.value = chosen
            self._setting = False
        if stage_class(self.kind, chosen) is not self._cls:  # its cell was run again
            before = {name: widget.value for name, widget in self.fields.items()}
            self._choose(chosen)
            for name, value in before.items():
                with suppress(KeyError, TraitError):
                    self.fields[name].value = value

    def _chosen(self, change: Any) -> None:
        if not self._setting:
            self._choose(change["new"])

    def _choose(self, name: str) -> None:
        self._cls, self._base = stage_class(self.kind, name), None
        self._show_fields(self._cls)
        self._changed()

    def _show_fields(self, stage: Stage | type[Stage]) -> None:
        self.fields = fields_of(stage, self.label, self._changed)
        if self._narrow is None:
            self.panel.children = [self.dropdown, *self.fields.values()]
            return
        shown = [named(name, widget) for name, widget in self.fields.items()]
        self.panel.children = [self.dropdown, *shown[: self._narrow]]
        self.rest.children = shown[self._narrow :]


def bare(widget: Any) -> Any:
    """The control without its name, which only a screen reader tells; the page shows it elsewhere."""
    widget.add_class("minips-bare")
    return widget


def named(name: str, widget: Any) -> Any:
    """A control whose shown name is shorter than the one that a screen reader tells."""
    words = f"<span aria-hidden='true' class='minips-name'>{html.escape(name.replace('_', ' '))}</span>"
    bare(widget).layout = {"flex": "1 1 60px", "width": "auto", "min_width": "0", "margin": "1px 4px"}
    return ipywidgets.HBox([ipywidgets.HTML(words), widget], layout={"align_items": "center"})


class Form:
    """A control for each field of a value, a stage picker where the field is a stage."""

    def __init__(self, label: str, value: Value, changed: Callable[[], None]) -> None:
        self._base = value
        self.pickers = {
            field.name: StagePicker(_words(label, field.name), stage.kind, stage, changed)
            for field in dataclasses.fields(value)  # type: ignore[arg-type]
            if isinstance(stage := getattr(value, field.name), Stage)
        }
        self.fields = fields_of(value, label, changed)

    @property
    def controls(self) -> dict[str, Any]:
        """The widgets by field; a field of the chosen stage as ``"quantizer.fraction"``."""
        return widgets_of(self.pickers) | self.fields

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


def widgets_of(pickers: Mapping[str, StagePicker]) -> dict[str, Any]:
    """The dropdowns by label; the fields of a chosen stage as ``"quantizer.fraction"``."""
    found: dict[str, Any] = {}
    for label, picker in pickers.items():
        found[label] = picker.dropdown
        found |= {f"{label}.{name}": widget for name, widget in picker.fields.items()}
    return found


def fields_of(value: Value | type[Value], label: str, changed: Callable[[], None]) -> dict[str, Any]:
    """A widget for each field that a simple widget can hold, with the value's own content or, for a class, the
    default. A field that contradicts itself has none: the class will say what is wrong when it is to be made.
    """
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(value if isinstance(value, type) else type(value))
    except Exception:  # an annotation may be any expression
        return fields
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        if field.metadata.get("operator"):
            continue
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
        "style": STYLE,
        "layout": LAYOUT,
    }
    minimum, maximum, step = (metadata.get(name) for name in ("minimum", "maximum", "step"))
    if metadata.get("choices") is not None:
        return ipywidgets.Dropdown(options=metadata["choices"], value=value, **common)
    if kind is bool:
        common["layout"] = {**LAYOUT, "height": "auto"}  # a long name takes two lines where the page is narrow
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
