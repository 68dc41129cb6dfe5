"""A config as a pipeline of boxes: the controls in each box, the values that a control offers, and their changes.

Every function takes and returns plain values, which a page can draw. A control is a dict: a ``select`` has options by
name, a ``slider`` has ``stops``, the values that it offers, as texts. The page answers with the control's path and with
an option, or with the number of a stop; `change` returns the config that this makes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.local import Delays
from minips.lab.columns import BANDWIDTHS, PRESETS, SLOWER, STAGES, slower_by, slower_of
from minips.lab.controls import SHOWN_IN
from minips.lab.source import show
from minips.stage import Stage, names, stage_class
from minips.stages.transports import Link
from minips.words import check_limits, default_of

SIDES = ("A", "B")
START = Config(steps=40, link=Link(10e6, 1e-3), delays=Delays(0.005))
"""The config that the playground opens with: its link and its computing time make messages and waits visible."""
SLOW = {"link": Link(1e6, 1e-3)}
PREDICTED = "predicted beside measured"
"""The setting that calibrates the stages, predicts the run, and then trains in processes."""
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "everybody waits or nobody": PRESETS["a straggler"],
    "32 bits or one": {"AB": SLOW, **PRESETS["fewer bits"]},
    "a server or a ring": {"AB": SLOW, **PRESETS["no server"]},
    PREDICTED: {"A": {}},
}
"""Maps each setting to its changes to the first config: to both sides, and to one."""

CODEC = ("memory", "quantizer", "serializer", "compressor")
SERVER = ("exchange", "aggregator", "optimizer", "consistency")
BOXES = ("workers", *CODEC, "transport", *SERVER)
"""The boxes, in the order of a push."""
FIELDS = {"workers": ("workers", "compute", "straggler"), "transport": ("bandwidth", "latency")}
"""The controls of a box that are not fields of its stage."""
BACK = "pull quantizer"
"""The one control of the way back."""
SHORT = {"bandwidth": "link", "straggler": "last worker", "compute": "computes"}
"""Names of controls on the page, if they differ."""
MOST_FIELDS = 2
"""The most sliders of a stage."""
MOST_STOPS = 32
SERIES = np.array([1, 2, 5])
"""The digits of the stops on a logarithmic slider."""


def sides_of(setting: str, start: Config) -> dict[str, Config]:
    """Return the sides of a setting, made from the ``start``. ValueError for an unknown setting, or if it does not fit.

    >>> sides_of("a server or a ring", START)["B"].exchange
    RingAllReduce()
    """
    if setting not in SETTINGS:
        raise ValueError(f"There is no setting {setting!r}. Known: {'; '.join(SETTINGS)}.")
    changes = SETTINGS[setting]
    sides = [side for side in SIDES if side in changes or "AB" in changes]
    return {side: dataclasses.replace(start, **(changes.get("AB", {}) | changes.get(side, {}))) for side in sides}


def controls(config: Config, box: str, side: str) -> list[dict[str, Any]]:
    """Return the controls of a box: the stage's select, and a slider for each of its main fields."""
    label = f"{side} {box}"
    found = []
    if box in STAGES:
        path = STAGES[box]
        stage = stage_at(config, path)
        words = f"{_field(config, path).metadata['help']}. {first_line(type(stage))}"
        select = {"type": "select", "options": names(stage.kind), "value": stage.name}
        found.append({"path": ".".join(path), "label": label, "name": "", "help": words, **select})
        if box != "transport":
            found += [_of_field(stage, field, (*path, field.name), label) for field in main_fields(stage)[:MOST_FIELDS]]
    return [*found, *(_of_network(config, name, label) for name in FIELDS.get(box, ()))]


def change(config: Config, path: str, to: Any) -> Config:
    """Return the config after a control was changed: to an option of this name, or to the stop of this number.

    Raises ValueError, in a sentence, for an unknown path or stop and for an impossible config.

    >>> change(START, "push.quantizer", "sign").push.quantizer
    Sign()
    """
    values = dict(_stops_at(config, path))
    if values:
        if not (isinstance(to, int) and 0 <= to < len(values)):
            raise ValueError(f"The control {path} has stops from 0 to {len(values) - 1}; got {to!r}.")
        to = list(values.values())[to]
    if path in SLOWER or path == "workers":
        network = {"workers": config.workers, **slower_of(config), path: to}
        link, delays = slower_by(config, network)
        return dataclasses.replace(config, workers=network["workers"], link=link, delays=delays)
    return config.with_({path: to})


def stage_choices() -> list[list[str]]:
    """Return the names of all stages that the boxes offer."""
    return [names(kind) for kind in dict.fromkeys(path[-1] for path in STAGES.values())]


def renew(config: Config) -> Config:
    """Return the config with the registered classes of its stages: a cell that runs again defines a class anew."""
    for path in STAGES.values():
        stage = stage_at(config, path)
        if stage_class(stage.kind, stage.name) is not type(stage):
            config = config.with_({".".join(path): stage.to_dict()})
    return config


def stage_at(config: Config, path: Sequence[str]) -> Stage:
    """Return the stage at a path. ValueError if the config has one for each tensor, which a box cannot show."""
    stage: Any = config
    for name in path:
        stage = getattr(stage, name)
    if not isinstance(stage, Stage):
        raise ValueError(
            f"The playground has one {path[-1]} for all tensors; got one for each of {', '.join(stage)}. "
            "Give the config one for all of them."
        )
    return stage


def main_fields(stage: Any) -> list[Any]:
    """Return a stage's fields that a slider or a select can hold: numbers, choices, and yes or no."""
    return [
        field
        for field in dataclasses.fields(stage)
        if not field.metadata.get("operator")
        and (field.metadata.get("choices") or type(getattr(stage, field.name)) in (int, float, bool))
    ]


def stops(kind: type, metadata: Mapping[str, Any], default: float, value: float) -> list[float]:
    """Return the values that a slider offers for a number: within the field's limits, ``value`` and default among them.

    A few even steps if the limits and the field's step allow it; else 1, 2, 5, 10, … times a power of ten or, for whole
    numbers, powers of two.
    """
    low, high = (next((metadata[key] for key in keys if metadata.get(key) is not None), None) for keys in _LIMITS)
    low, step = low or 0, metadata.get("step") or (1 if kind is int else 0.05)
    even = kind is int or (metadata.get("above") != 0 and (high is not None or default > step))
    high = max(low + 8 * step, 2 * default, value) if high is None else high
    if kind is float and default >= high / 4:
        step = max(step, round((high - low) / 20, 2))
    if even and (high - low) / step <= MOST_STOPS:
        found = [*(low + step * np.arange((high - low) // step + 1)), high]
    elif kind is int:
        found = [low, *2 ** np.arange(np.log2(high)), high]
    else:
        middle = np.floor(np.log10(default or step))
        found = [low, *np.outer(10 ** np.arange(middle - 2, middle + 3), SERIES).ravel()]
    offered = {kind(float(f"{each:.12g}")) for each in found} | {default, value}
    return sorted(each for each in offered if _holds(each, metadata))


_LIMITS = (("minimum", "above"), ("maximum", "below"))


def _default(field: Any, value: float) -> float:
    """Return a field's default; the value itself if the field has none."""
    default: Any = default_of(field)
    return value if default is dataclasses.MISSING else default


def _holds(value: float, metadata: Mapping[str, Any]) -> bool:
    try:
        check_limits("", value, metadata)
    except ValueError:
        return False
    return True


def first_line(cls: type) -> str:
    """Return the first sentence of a class's docstring."""
    return (cls.__doc__ or "").partition("\n")[0].replace("``", "")


def source_of(stage: object) -> dict[str, str]:
    """Return a stage's one-line help, its source code, and the place of the code."""
    try:
        listing = show(type(stage))
    except TypeError as error:  # a stage may be written in another language
        return {"help": first_line(type(stage)), "source": str(error), "place": ""}
    return {"help": first_line(type(stage)), "source": listing.source, "place": listing.place}


def differences(configs: Mapping[str, Config]) -> list[str]:
    """Return the boxes whose controls differ between A and B."""
    if len(configs) < len(SIDES):
        return []
    a, b = configs.values()
    return [box for box in (*BOXES, BACK) if _values(a, box) != _values(b, box)]


def ends(config: Config) -> dict[str, str]:
    """Return the names of a link's two ends."""
    workers = "1 worker" if config.workers == 1 else f"{config.workers} workers"
    if isinstance(config.exchange, AllReduce):
        return {"left": workers, "right": "the other workers"}
    return {"left": workers, "right": "server" if config.servers == 1 else f"{config.servers} servers"}


def back_controls(config: Config, side: str) -> list[dict[str, Any]]:
    """Return the control of the way back; none without a server."""
    return [] if isinstance(config.exchange, AllReduce) else controls(config, BACK, side)


def _values(config: Config, box: str) -> list[Any]:
    """Return the values that a box's controls show."""
    return [one["stops"][one["at"]] if "stops" in one else one["value"] for one in controls(config, box, "")]


def _of_field(stage: Stage, field: Any, path: Sequence[str], label: str) -> dict[str, Any]:
    name, value = field.name.replace("_", " "), getattr(stage, field.name)
    shown = {"path": ".".join(path), "label": f"{label} {name}", "name": name, "help": field.metadata["help"]}
    return shown | _choice(_field_stops(stage, field), value)


def _of_network(config: Config, name: str, label: str) -> dict[str, Any]:
    words = SLOWER[name][1]["help"] if name in SLOWER else Config.__dataclass_fields__[name].metadata["help"]
    shown = SHORT.get(name, name)
    text = {"path": name, "label": f"{label.partition(' ')[0]} {shown}", "name": shown, "help": words}
    value = config.workers if name == "workers" else slower_of(config)[name]
    return text | _choice(_network_stops(config, name), value)


def _choice(values: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Return a slider over these values by text."""
    return {"type": "slider", "stops": list(values), "at": list(values.values()).index(value)}


def _stops_at(config: Config, path: str) -> Mapping[str, Any]:
    """Return the values of the control at a path, by text; empty for a stage's select."""
    if path in SLOWER or path == "workers":
        return _network_stops(config, path)
    *owner, name = path.split(".")
    if tuple(path.split(".")) in STAGES.values():
        return {}
    for known in STAGES.values():
        if tuple(owner) == known:
            stage = stage_at(config, known)
            for field in main_fields(stage):
                if field.name == name:
                    return _field_stops(stage, field)
    raise ValueError(f"The playground has no control {path!r}.")


def _field_stops(stage: Stage, field: Any) -> dict[str, Any]:
    value = getattr(stage, field.name)
    if field.metadata.get("choices"):
        return {str(each): each for each in field.metadata["choices"]}
    if type(value) is bool:
        return {"no": False, "yes": True}
    unit, scale = SHOWN_IN.get(field.metadata.get("unit") or "", (field.metadata.get("unit") or "", 1.0))
    found = stops(type(value), field.metadata, _default(field, value), value)
    return {f"{each * scale:g} {unit}".strip(): each for each in found}


_TIMES = {
    "latency": (0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100),
    "compute": (0, 1, 2, 5, 10, 20, 50, 100),
    "straggler": (1, 2, 3, 4, 6, 8, 10),
}
"""The stops of the controls of time and of the slow worker, in the units of `SLOWER`."""


def _network_stops(config: Config, name: str) -> dict[str, Any]:
    if name == "workers":
        field = Config.__dataclass_fields__["workers"]
        return {str(each): each for each in stops(int, field.metadata, Config.workers, config.workers)}
    value = slower_of(config)[name]
    if name == "bandwidth":
        values = {rate: text for text, rate in BANDWIDTHS.items() if rate}
        values.setdefault(value or 1e9, f"{value / 1e6:g} Mbit/s")
        return {values[rate]: rate for rate in sorted(values)} | {"no limit": 0.0}
    words = "{:g} × slower" if name == "straggler" else "{:g} ms"
    found = {words.format(each): float(each) for each in sorted({*_TIMES[name], value})}
    return {"as fast" if text == "1 × slower" else text: each for text, each in found.items()}


def _field(config: Config, path: Sequence[str]) -> Any:
    owner: Any = config
    for name in path[:-1]:
        owner = getattr(owner, name)
    return type(owner).__dataclass_fields__[path[-1]]
