"""Controls made from the metadata of a value's fields.

Every control has a name that is unique in its panel (``"A quantizer"``, ``"B quantizer fraction"``), for screen readers
and for tests in a browser; the page shows only the field's own name, with the field's help as its tooltip. If a typed
text is not a number, or is out of range, it stays, and a sentence appears under it. A whole number that is typed as
``1e3`` becomes 1000. In a form, a number with a range has a slider beside it.
"""

import dataclasses
import html
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Union, get_args, get_origin, get_type_hints

import ipywidgets
import numpy as np
from traitlets import CUnicode, TraitError, Unicode, dlink

from minips.lab.views import View
from minips.results.tables import html_rows
from minips.stage import Stage, Value, names, stage_class
from minips.words import BOUNDS, check_limits, default_of

SHOWN_IN = {"bit/s": ("Mbit/s", 1e-6), "s": ("ms", 1e3)}
"""Maps a field's unit to the unit that a control shows instead, and the factor between them."""

USUAL = {"bit/s": (1.0, 1e4), "Mbit/s": (1.0, 1e4), "s": (0.0, 200.0), "ms": (0.0, 200.0)}
"""Maps a unit to the range of a slider, in the unit that is shown, if the field has no largest value."""
ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
"""The stops of a logarithmic slider between powers of ten."""
MOST_STOPS, OPEN_STOPS = 128, 10
"""The most stops of a slider, and the steps of one whose field has no largest value."""

STYLE = {"description_width": "152px"}
PARTS = ("layout", "style")
"""The attributes of a widget, other than its children, that may be widgets."""
LAYOUT = {"width": "auto", "margin": "1px 4px"}


class _Typed(CUnicode[Any, Any]):
    """A text field whose value can also be set to a number."""

    def validate(self, obj: Any, value: Any) -> Any:
        return super().validate(obj, "" if value is None else str(value).removesuffix(".0"))


class Number(ipywidgets.Text):  # type: ignore[misc]
    """A field for a number, in the unit in its name, with a ``note`` under it if something is wrong, and perhaps with a
    ``slider`` beside it.
    """

    value: Any = _Typed(help="the typed text").tag(sync=True)

    def __init__(
        self, shown: str, kind: type, optional: bool, metadata: Mapping[str, Any], value: Any, **options: Any
    ) -> None:
        self.shown = shown
        unit, self._scale = SHOWN_IN.get(metadata.get("unit", ""), ("", 1.0))
        self.metadata, self._kind, self._optional = metadata, kind, optional
        bounds = {name: metadata.get(name) for name in BOUNDS}
        self._limits = {name: None if bound is None else bound * self._scale for name, bound in bounds.items()}
        self.note: Any = ipywidgets.HTML(layout={"display": "none"})
        self.slider: Slider | None = None
        start = value if value is None or not unit else float(f"{value * self._scale:.12g}")
        super().__init__(start, continuous_update=False, placeholder="none" if optional else "", **options)
        self.observe(lambda change: self._say(), "value")
        self.add_class("minips-number")

    @property
    def stops(self) -> list[float]:
        """The stops of a slider for the number, in the unit in its name; none if its range is not known."""
        return [] if self._optional else stops_of(self._kind, self._limits, self.metadata)

    def own(self, typed: float) -> Any:
        """Return a number in the unit in the name in the field's own unit."""
        return self._kind(typed) if self._scale == 1 else typed / self._scale

    @property
    def number(self) -> Any:
        """The number in the field's own unit; None if empty. ValueError if it is not a number, or out of range."""
        text = self.value.strip()
        if self._optional and text in ("", "none", "None"):
            return None
        typed = _number(text)
        if typed is None or (self._kind is int and not isinstance(typed, int)):
            wanted = "a whole number" if self._kind is int else "a number"
            none = ", or nothing for none" if self._optional else ""
            raise ValueError(f"{self.shown} takes {wanted}{none}; got {text!r}.")
        check_limits(self.shown, typed, self._limits)
        return self.own(typed)

    @property
    def wrong(self) -> str:
        """The error in the typed text; empty if there is none."""
        try:
            _ = self.number
        except ValueError as error:
            return str(error)
        return ""

    def _say(self) -> None:
        wrong = self.wrong
        self.note.value = wrong and f"<span role='alert' class='minips-wrong'>{html.escape(wrong)}</span>"
        self.note.layout.display = None if wrong else "none"
        if self._kind is int and not wrong and self.number is not None:
            self.value = self.number  # typed as 1e3 or 1_000, it is shown as it was understood


def _number(text: str) -> int | float | None:
    """Return the number that a text stands for, an int if it is whole; None if it is not a number.

    >>> _number("1e3"), _number("1_000"), _number("1.5"), _number("many"), _number("nan")
    (1000, 1000, 1.5, None, None)
    """
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        found = float(text)
        if found == found:
            return int(found) if found.is_integer() else found
    return None


def stops_of(kind: type, limits: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[float]:
    """Return the stops of a slider for a field with these limits: at equal steps, or round ones if they span decades.

    >>> stops_of(int, {"minimum": 0}, {"step": 1})
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    >>> stops_of(float, {"above": 0, "maximum": 1}, {"step": 0.01})[-4:]
    [0.5, 0.6, 0.8, 1]
    """
    unit, step = metadata.get("unit"), metadata.get("step")
    low, high = (limits.get(name) for name in ("minimum", "maximum"))
    if low is None and (above := limits.get("above")) is not None:
        low = above + (step or 0)
    if high is None and unit in USUAL:
        low, high = USUAL[unit]
    elif high is None and low is not None and step:
        high = low + OPEN_STOPS * step
    if low is None or high is None or low >= high:
        return []
    if unit in ("s", "ms") and not low:  # latencies differ by decades, and may be zero
        return [0, *_round_stops(high / 1e3, high)]
    if low > 0 and high / low >= (1000 if kind is int else 100):
        return [stop for stop in _round_stops(low, high) if kind is float or stop == int(stop)]
    each = step or (1 if kind is int else (high - low) / 50)
    each *= max(-(-(high - low) // (MOST_STOPS * each)), 1)
    found = [*np.arange(low, high, each), high]
    return [_plain(stop) for stop in found]


def _round_stops(low: float, high: float) -> list[float]:
    powers = range(int(np.floor(np.log10(low))), int(np.log10(high)) + 1)
    found = (_plain(factor * 10.0**power) for power in powers for factor in ROUND)
    return sorted({_plain(low), _plain(high), *(stop for stop in found if low < stop < high)})


def _plain(stop: float) -> float:
    """Return a number without the noise of its last digits, as a whole one if it is one."""
    rounded = float(f"{stop:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


class Slider:
    """A slider beside a `Number`, each of which moves the other. ``moved`` is called when a learner has moved it."""

    def __init__(self, number: Number, live: bool, moved: Callable[["Slider"], None]) -> None:
        self.number, self._stops, self._moved, self._live = number, number.stops, moved, live
        self._answered = 0
        number.slider = self
        self.view = View("slider", self._data(), "", "")
        self.view.panel.layout = {"flex": "1 1 64px", "min_width": "0"}
        self.view.on_asked(self._on_asked)
        number.observe(lambda change: self._show(), "value")

    @property
    def place(self) -> int:
        """The place of the stop nearest to the number, or 0 if that is not one."""
        typed = 0.0 if self.number.wrong else float(self.number.value)
        return int(np.abs(np.array(self._stops) - typed).argmin())

    def others(self) -> Iterator[Any]:
        """Yield the numbers of the other stops in the field's own unit, the nearest first."""
        here = self.place
        for place in sorted(range(len(self._stops)), key=lambda place: abs(place - here))[1:]:
            yield self.number.own(self._stops[place])

    def _on_asked(self, asked: Mapping[str, Any]) -> None:
        self._answered = asked["number"]
        self._moved(self)
        self.number.value = self._stops[min(max(int(asked["place"]), 0), len(self._stops) - 1)]
        self._show()

    def _show(self) -> None:
        self.view.data = self._data()

    def _data(self) -> dict[str, Any]:
        return {
            "name": f"{self.number.full_name}, slider",
            "live": self._live,
            "stops": [f"{stop:g}" for stop in self._stops],
            "place": self.place,
            "words": self.number.value,
            "answered": self._answered,
        }


@dataclasses.dataclass
class Row:
    """Controls that are shown together."""

    panel: Any
    controls: dict[str, Any]
    """Maps names to controls; a dropdown of stages, or a single control, has the name ``""``."""


class StagePicker:
    """A dropdown of one kind's registered stages, and under it a control for each field of the selected stage.

    With ``narrow``, the dropdown's name is hidden, since it is shown elsewhere, a field shows only its own name, and
    all but the first ``narrow`` fields are in a separate row, ``rest``. ``place`` makes a field's widget for the page.
    """

    def __init__(
        self,
        before: str,
        shown: str,
        help: str,
        stage: Stage,
        changed: Callable[[], None],
        narrow: int | None = None,
        place: "Callable[[Any], WithTooltip] | None" = None,
    ) -> None:
        self.label, self.kind = f"{before} {shown}", stage.kind
        self._help, self._changed, self._narrow, self._place = help, changed, narrow, place or with_tooltip
        self.dropdown = ipywidgets.Dropdown(options=names(self.kind), value=stage.name, **_label(before, shown))
        self.dropdown.full_name = self.label
        self._placed = WithTooltip(self.dropdown)
        self.row, self.rest = Row(ipywidgets.VBox(), {}), Row(ipywidgets.VBox(), {})
        if narrow is not None:
            bare(self.dropdown)
        self._show(stage)
        self.dropdown.observe(self._on_select, "value")

    def stage(self) -> Any:
        """The stage that the controls describe. ValueError, in a sentence, if that stage is not possible."""
        try:
            values = {name: read(widget) for name, widget in self.fields.items()}
        except ValueError as error:  # the error's text begins with the field's name
            raise ValueError(f"{self._cls.__name__}.{error}") from None
        if isinstance(self._base, Stage):
            return dataclasses.replace(self._base, **values)  # type: ignore[type-var]
        return self._base(**values)

    def load(self, stage: Stage) -> None:
        """Show another stage."""
        self._show(stage)
        self.dropdown.value = stage.name

    def refresh(self) -> None:
        """Offer also stages registered since the last call, and use the new class if one was defined again."""
        known, chosen = tuple(names(self.kind)), self.dropdown.value
        if known != self.dropdown.options:
            self.dropdown.unobserve(self._on_select, "value")
            self.dropdown.options = known  # assigning options selects the first one
            self.dropdown.value = chosen
            self.dropdown.observe(self._on_select, "value")
        if stage_class(self.kind, chosen) is not self._cls:  # the class's cell was run again
            before = {name: widget.value for name, widget in self.fields.items()}
            self._select(chosen)
            for name, value in before.items():
                with suppress(KeyError, TraitError):
                    fresh = self.fields[name].value
                    self.fields[name].value = value
                    if getattr(self.fields[name], "wrong", ""):  # for example, a default that was corrected
                        self.fields[name].value = fresh

    def _on_select(self, change: Any) -> None:
        if change["new"] != self._cls.name:
            self._select(change["new"])

    def _select(self, name: str) -> None:
        self._show(stage_class(self.kind, name))
        self._changed()

    def _show(self, stage: Stage | type[Stage]) -> None:
        """Show the fields of a stage or, for a class, the defaults."""
        self._base = stage
        self._cls = stage if isinstance(stage, type) else type(stage)
        self.fields = fields_of(stage, self.label, self._changed)
        words = (self._cls.__doc__ or "").partition("\n")[0]
        self.dropdown.tooltip = f"{self._help}. {self._cls.name}: {words}"
        if self._narrow is not None:
            for widget in self.fields.values():
                widget.style.description_width = "initial"
                widget.add_class("minips-slim")
        fields = list(self.fields.items())
        split = len(fields) if self._narrow is None else self._narrow
        self.row.controls, self.rest.controls = {"": self.dropdown, **dict(fields[:split])}, dict(fields[split:])
        for row in (self.row, self.rest):
            gone = [one for one in row.panel.children if one is not self._placed]
            row.panel.children = [
                self._placed if widget is self.dropdown else self._place(widget) for widget in row.controls.values()
            ]
            close(*gone)


def close(*widgets: Any) -> None:
    """Close widgets and everything in them; ipywidgets and the page keep widgets that are not closed."""
    for widget in widgets:
        close(*getattr(widget, "children", ()), *(getattr(widget, part) for part in PARTS if hasattr(widget, part)))
        widget.close()


def bare(widget: Any) -> Any:
    """Hide the control's name, except from screen readers; the page shows it elsewhere."""
    widget.add_class("minips-bare")
    return widget


class WithTooltip(ipywidgets.VBox):  # type: ignore[misc]
    """A control with its note, if it has one. Its tooltip covers the whole control; ipywidgets shows it only on the
    control's name.
    """

    description = Unicode(help="empty; the view of a box asks for it").tag(sync=True)

    def __init__(self, widget: Any, shown: Any = None) -> None:
        super().__init__([shown or widget, *([widget.note] if isinstance(widget, Number) else [])])
        dlink((widget, "tooltip"), (self, "tooltip"))


def with_tooltip(widget: Any) -> WithTooltip:
    """A control for the page; a checkbox has its name beside it."""
    if not isinstance(widget, ipywidgets.Checkbox):
        return WithTooltip(widget)
    words = ipywidgets.HTML(f"<span aria-hidden='true'>{html.escape(widget.shown)}</span>")
    row = ipywidgets.HBox([bare(widget), words], layout={"align_items": "center"})
    row.add_class("minips-check")
    return WithTooltip(widget, row)


def labelled_html(before: str, shown: str) -> str:
    """Return a description that the page shows only in part: ``shown``, without ``before``."""
    return f"<span class='minips-told'>{html.escape(before)} </span>{html.escape(shown)}"


def _label(before: str, shown: str) -> dict[str, Any]:
    text = labelled_html(before, shown)
    return {"description": text, "description_allow_html": True, "style": STYLE, "layout": LAYOUT}


class Controls:
    """Controls that share a name: stage pickers, and widgets for other fields."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pickers: dict[str, StagePicker] = {}
        self.fields: dict[str, Any] = {}

    @property
    def controls(self) -> dict[str, Any]:
        """The widgets by label; a field of a selected stage is ``"quantizer.fraction"``."""
        found: dict[str, Any] = {}
        for label, picker in self.pickers.items():
            found |= {label: picker.dropdown, **{f"{label}.{name}": one for name, one in picker.fields.items()}}
        return found | self.fields

    @property
    def wrong(self) -> bool:
        """True if a typed number is wrong."""
        return any(getattr(widget, "wrong", "") for widget in self.controls.values())

    def read(self) -> dict[str, Any]:
        """The stages and the other values by label. ValueError, in a sentence, for an impossible one."""
        stages = {label: picker.stage() for label, picker in self.pickers.items()}
        return stages | {label: read(widget) for label, widget in self.fields.items()}

    def refresh(self) -> None:
        """Offer also stages registered since the last call."""
        for picker in self.pickers.values():
            picker.refresh()


class Form(Controls):
    """A control for each field of a value; a stage picker if the field is a stage. ``labels`` maps fields to their
    names on the page, if these differ. ``live`` sliders change the value while they are moved, others afterwards.
    """

    def __init__(
        self,
        name: str,
        value: Value,
        changed: Callable[[], None],
        labels: Mapping[str, str] | None = None,
        live: bool = True,
    ) -> None:
        super().__init__(name)
        self._base, self._live = value, live
        self._moved: tuple[str, Slider] | None = None
        labels = labels or {}
        self.fields = fields_of(value, name, changed, labels)
        shown = {label: self._place(widget) for label, widget in self.fields.items()}
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            if isinstance(stage := getattr(value, field.name), Stage):
                words = labels.get(field.name, field.name.replace("_", " "))
                picker = StagePicker(name, words, field.metadata["help"], stage, changed, place=self._place)
                self.pickers[field.name], shown[field.name] = picker, picker.row.panel
        panels = [shown[field.name] for field in dataclasses.fields(value) if field.name in shown]  # type: ignore[arg-type]
        self.panel = ipywidgets.VBox(panels)
        """The widgets for the page, in field order."""
        self.panel.add_class("minips-form")

    def value(self) -> Any:
        """The value that the controls describe. ValueError, in a sentence, if that value is not possible."""
        return dataclasses.replace(self._base, **self.read())  # type: ignore[type-var]

    def other_stops(self, value: Any) -> Iterator[Any]:
        """Yield the value with the slider that a learner moved last at its other stops, the nearest first."""
        if self._moved is None:
            return
        field, _, part = self._moved[0].partition(".")
        for number in self._moved[1].others():
            with suppress(ValueError, TypeError):  # not possible, or the selected stage has no such field
                found = dataclasses.replace(getattr(value, field), **{part: number}) if part else number
                yield dataclasses.replace(value, **{field: found})

    def _place(self, widget: Any) -> "WithTooltip":
        """Return a control for the page, with a slider if it is a number with a range."""
        if not (isinstance(widget, Number) and len(widget.stops) > 1):
            return with_tooltip(widget)
        slider = Slider(widget, self._live, self._on_move)
        if not slider.view.moves:
            return with_tooltip(widget)
        return WithTooltip(widget, ipywidgets.HBox([widget, slider.view.panel]))

    def _on_move(self, slider: Slider) -> None:
        self._moved = next((label, slider) for label, one in self.controls.items() if one is slider.number)


def help_html(*parts: Controls) -> str:
    """Return a folded HTML table of all controls: their names, without the name of their part, and their help."""
    words = {
        one.full_name.removeprefix(f"{part.name} "): one.tooltip for part in parts for one in part.controls.values()
    }
    return f"<details><summary>What the controls mean</summary><table>{html_rows(words.items())}</table></details>"


def fields_of(
    value: Value | type[Value], label: str, changed: Callable[[], None], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a widget for each field that a simple widget can hold, with the value's content or a class's default. A
    field that contradicts itself has no widget; the class raises the error when a stage is made. ``labels`` as in
    `Form`.
    """
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(value if isinstance(value, type) else type(value))
    except Exception:  # an annotation may be any expression
        return fields
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        if field.metadata.get("operator"):
            continue
        start = default_of(field) if isinstance(value, type) else getattr(value, field.name)
        start = None if start is dataclasses.MISSING else start
        try:
            shown = (labels or {}).get(field.name, field.name)
            widget = control(hints[field.name], field.metadata, start, label, shown)
        except (TraitError, ValueError, TypeError):
            continue
        if widget is not None:
            widget.observe(lambda change: changed(), "value")
            fields[field.name] = widget
    return fields


def control(hint: Any, metadata: Any, value: Any, label: str, field: str) -> Any:
    """Return a widget for a field of this type and metadata; None if no simple widget can hold the type."""
    arms = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    kind = next((arm for arm in arms if arm is not type(None)), hint)
    unit = metadata.get("unit") or ""
    shown = (field.removesuffix("_bps").removesuffix("_s") if unit in SHOWN_IN else field).replace("_", " ")
    unit = SHOWN_IN.get(unit, (unit, 1.0))[0]
    shown += f" ({unit})" if unit and unit not in shown else ""
    common = {**_label(label, shown), "tooltip": metadata.get("help") or shown}
    if metadata.get("choices") is not None:
        widget = ipywidgets.Dropdown(options=metadata["choices"], value=value, **common)
    elif kind is bool:
        common |= {"description": f"{label} {shown}", "description_allow_html": False}
        widget = ipywidgets.Checkbox(value=value, indent=False, **common)
        widget.shown = shown
    elif kind in (int, float):
        widget = Number(shown, kind, type(None) in arms, metadata, value, **common)
    elif kind is str:
        widget = ipywidgets.Text(value=value, continuous_update=False, **common)
    else:
        return None
    widget.full_name = f"{label} {shown}"
    return widget


def read(widget: Any) -> Any:
    """Return the value of a widget made by `control`. ValueError, with a sentence, if it is not a number in range."""
    return widget.number if isinstance(widget, Number) else widget.value


def sentence(text: str, verdict: str = "That does not work.") -> str:
    """Return an error or a warning as HTML that screen readers announce."""
    return f"<div role='alert' class='minips-alert'><b>{verdict}</b> {html.escape(text)}</div>"
