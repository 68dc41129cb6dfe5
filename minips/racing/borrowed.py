"""An entry's own stages: their methods run in sandboxes, one for each party, and never in the judge's process.

`describe` and `call` run in a sandbox, on the entry's module. `Parties` has the sandboxes; `lend` registers a stage for
each of the entry's own, whose methods ask the sandbox of the party that is running. So an encoder and the decoder of
its message, or two workers, have nothing in common but what the message carries, whose bytes the judge counts.

An entry may have its own quantizers, memories, aggregators, optimizers and schedules. What they keep from step to step
is passed to them: a memory's and an optimizer's ``state``. Each run of a seed has new processes.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from minips.core.config import Config
from minips.sandbox import Limits, Sandbox, SandboxError
from minips.stage import Array, Stage, Tensors, build, kinds, names, option, register, stage_class, withdraw
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.memories import Memory
from minips.stages.optimizers import Optimizer
from minips.stages.quantizers import Parts, Quantizer
from minips.stages.schedules import Schedule

OWN_KINDS = ("quantizer", "memory", "aggregator", "optimizer", "schedule")
FLAGS = ("elementwise", "weighs", "stateless")
HERE = __name__


# In a sandbox: functions of the entry's module.


def describe(entry: Any) -> dict[str, Any]:
    """The entry's config as plain values, and a description of each stage of its own."""
    config = getattr(entry, "config", None)
    if not isinstance(config, Config):
        raise TypeError(f"an entry has a Config named config; got {type(config).__name__}")
    own = []
    for kind in kinds():
        classes: Any = [stage_class(kind, name) for name in names(kind)]
        own += [_described(cls) for cls in classes if cls.__module__ == entry.__name__]
    return {"config": config.to_dict(), "own": own}


def _described(cls: Any) -> dict[str, Any]:
    default = cls()
    fields = {name: value for name, value in default.to_dict().items() if name != "name"}
    words = {"kind": cls.kind, "name": cls.name, "class": cls.__name__, "fields": fields}
    words |= {flag: bool(getattr(cls, flag, False)) for flag in FLAGS}
    words["restores"] = cls.kind == "memory" and cls.restore is not Memory.restore
    words["varies"] = cls.kind == "quantizer" and cls.relative_variance is not Quantizer.relative_variance
    return words | {"least": int(default.least) if cls.kind == "aggregator" else 1}


@cache
def _built(kind: str, spec: str) -> Any:
    return build(kind, json.loads(spec))


def call(entry: Any, kind: str, spec: str, method: str, arguments: list[Any], state: Any) -> list[Any]:
    """Call a stage's method; ``spec`` is the stage as JSON. Return its result, and the state that it leaves."""
    if method == "encode":
        x, seed = arguments
        arguments = [x, np.random.default_rng(seed)]
    if method == "combine":
        arguments = [[Contribution(*one) for one in arguments[0]]]
    if state is not None:
        arguments = [*arguments, state]
    result = getattr(_built(kind, spec), method)(*arguments)
    if method == "step":
        result = arguments[0]
    return [None if method == "update" else result, state]


# In the judge's process.


class Parties:
    """The sandboxes of an entry's text: one for each party of a run. Use it with ``with``."""

    def __init__(self, text: str, file: str, limits: Limits | None = None) -> None:
        self._text, self._file, self._limits = text, file, limits or Limits()
        self._sandboxes: dict[str, Sandbox] = {}
        self._begun: set[str] = set()
        self.cluster: Any = None
        """The simulation whose ``running`` party asks."""
        self.error: SandboxError | None = None
        """The first error of a sandbox."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for sandbox in self._sandboxes.values():
            sandbox.close()

    def begin(self, cluster: Any = None) -> None:
        """Begin a run: each party gets a new process once it needs one."""
        self._begun.clear()
        self.cluster = cluster

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of this module in the sandbox of the party that is running."""
        who = getattr(self.cluster, "running", "")
        try:
            if who not in self._sandboxes:
                self._sandboxes[who] = Sandbox(self._limits, f"The entry, as {who}," if who else "The entry")
            if who not in self._begun:
                self._begun.add(who)
                self._sandboxes[who].begin(self._text, self._file)
            return self._sandboxes[who].ask(HERE, function, *arguments)
        except SandboxError as error:
            self.error = self.error or error
            raise


class Borrowed(Stage):
    """A stage whose methods run in a sandbox."""

    parties: ClassVar[Parties]

    def lent(self, method: str, *arguments: Any, state: Any = None) -> Any:
        """Call a method there. ``state`` is changed as the method changes it."""
        spec = json.dumps(self.to_dict())
        answer = self.parties.ask("call", self.kind, spec, method, list(arguments), state)
        if not isinstance(answer, list) or len(answer) != 2:
            raise TypeError(f"{method} gave no answer.")
        if state is not None:
            if not isinstance(answer[1], dict):
                raise TypeError(f"{method} left a state that is not a dict.")
            state.clear()
            state.update(answer[1])
        return answer[0]

    def lent_array(self, like: Array, method: str, *arguments: Any, state: Any = None) -> Array:
        """Call a method there that returns an array like this one."""
        return _like(like, self.lent(method, *arguments, state=state), method)


class _Quantizer(Borrowed, Quantizer):
    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        parts: Parts = self.lent("encode", x, int(rng.integers(2**63)) if rng else 0)
        return parts

    def decode(self, parts: Parts) -> Array:
        x: Any = self.lent("decode", dict(parts))
        if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
            raise TypeError("decode gave no array of floats.")
        return x


class _Varying(_Quantizer):
    def relative_variance(self, x: Array) -> float:
        return float(self.lent("relative_variance", x))


class _Memory(Borrowed, Memory):
    def compensate(self, x: Array, state: dict[str, Array]) -> Array:
        return self.lent_array(x, "compensate", x, state=state)

    def update(self, p: Array, sent: Array, state: dict[str, Array]) -> None:
        self.lent("update", p, sent, state=state)


class _Restoring(_Memory):
    def restore(self, received: Array, state: dict[str, Array]) -> Array:
        return self.lent_array(received, "restore", received, state=state)


class _Aggregator(Borrowed, Aggregator):
    smallest: ClassVar[int] = 1

    @property
    def least(self) -> int:
        return self.smallest

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        combined: Any = self.lent("combine", [[*one] for one in contributions])
        return _all_like(contributions[0].gradients, combined, "combine")


class _Optimizer(Borrowed, Optimizer):
    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        clock = state.get("clock")
        for name, x in _all_like(params, self.lent("step", params, grads, state=state), "step").items():
            params[name][...] = x
        if clock is not None:
            state["clock"] = clock


class _Schedule(Borrowed, Schedule):
    def factor(self, clock: int) -> float:
        return float(self.lent("factor", clock))


def _like(x: Array, given: Any, what: str) -> Array:
    """``given``, if it is an array with the shape and dtype of ``x``; else TypeError."""
    if not isinstance(given, np.ndarray) or (given.shape, given.dtype) != (x.shape, x.dtype):
        got = f"{given.dtype} of {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
        raise TypeError(f"{what} gave {got}, expected {x.dtype} of {x.shape}.")
    return given


def _all_like(tensors: Tensors, given: Any, method: str) -> Tensors:
    """``given``, if it has arrays with the names, shapes and dtypes of ``tensors``; else TypeError."""
    if not isinstance(given, dict) or {*given} != {*tensors}:
        raise TypeError(f"{method} gave no arrays with the names {', '.join(tensors)}.")
    return {name: _like(x, given[name], f"{method}, for {name},") for name, x in tensors.items()}


@contextmanager
def lend(parties: Parties) -> Iterator[Config]:
    """Ask a sandbox for the entry's config, and register its own stages while the block runs. ValueError if one of them
    is of another kind than `OWN_KINDS`, or has the name of a stage of minips.
    """
    described = parties.ask("describe")
    with ExitStack() as stack:
        for words in described["own"]:
            cls = _class_of(words, parties)
            register(cls)
            stack.callback(withdraw, cls)
        yield Config.from_dict(described["config"])


def _class_of(words: dict[str, Any], parties: Parties) -> type[Borrowed]:
    kind, name = words["kind"], words["name"]
    if kind not in OWN_KINDS:
        raise ValueError(f"The entry has its own {kind} {name!r}. It may have its own {', '.join(OWN_KINDS)} only.")
    if name in names(kind):
        raise ValueError(f"The entry's own {kind} is named {name!r}, as one of minips. Choose another name.")
    bases: dict[str, type[Borrowed]] = {
        "quantizer": _Varying if words["varies"] else _Quantizer,
        "memory": _Restoring if words["restores"] else _Memory,
        "aggregator": _Aggregator,
        "optimizer": _Optimizer,
        "schedule": _Schedule,
    }
    fields = [
        (field, object, option(lambda value=value: value, "as in the entry"))
        for field, value in words["fields"].items()
    ]
    of_class = {"name": name, "parties": parties, "smallest": int(words["least"]), "__module__": HERE}
    of_class |= {flag: bool(words[flag]) for flag in FLAGS}
    made: type[Borrowed] = dataclasses.make_dataclass(
        words["class"], fields, bases=(bases[kind],), namespace=of_class, frozen=True, repr=False
    )
    return made
