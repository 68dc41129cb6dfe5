"""The checks of a learner's own server, one for each lesson that extends it: rounds, a header, a quantizer, a memory,
and a bound that replaces the rounds.
"""

import pickle
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, case, refuse_if
from minips.lab.course.own import grows, method
from minips.stage import Array, Tensors
from minips.testing.base import same_bits


def _drawn(rng: np.random.Generator) -> Tensors:
    """Return random named arrays, shaped like gradients."""
    return {"W": rng.normal(size=(int(rng.integers(2, 9)), 3)).astype("f4"), "b": rng.normal(size=3).astype("f4")}


def _copy(tensors: Tensors) -> Tensors:
    return {name: x.copy() for name, x in tensors.items()}


@grows("server", "handle", until="wait")
def check_rounds(cls: type, rng: np.random.Generator) -> None:
    """Refuse a server unless it applies a round's mean, added in the workers' order, then answers all its pushes."""
    workers, lr, start = int(rng.integers(2, 6)), 0.25, _drawn(rng)
    server: Any = cls(_copy(start), workers, lr)
    wanted = _copy(start)
    for turn in range(3):
        pushes = [{name: rng.normal(size=p.shape).astype(p.dtype) for name, p in start.items()} for _ in range(workers)]
        order = rng.permutation(workers).tolist()
        for name, p in wanted.items():
            p -= lr * sum(push[name] for push in pushes) / workers
        for count, worker in enumerate(order, 1):
            where = f"{workers} workers, round {turn}, push {count} of {workers} (worker {worker}):"
            with case(where):
                answers = server.handle(worker, ("push", _copy(pushes[worker])))
                if count < workers:
                    refuse_if(answers, f"it answered {len(answers)} messages; the round is not whole yet.")
                    continue
                got = sorted((to, said) for to, (said, _) in answers)
                everyone = [(to, "applied") for to in range(workers)]
                refuse_if(got != everyone, f"it answered {got}, expected {everyone}.")
                for name, p in wanted.items():
                    near = np.allclose(server.params[name], p, rtol=1e-5, atol=1e-6)
                    refuse_if(not near, f"{name!r} is wrong: subtract the mean of the gradients, times lr.")
        with case(f"{workers} workers, after round {turn}, a pull:"):
            ((to, (said, params)),) = server.handle(order[0], ("pull", {}))
            refuse_if((to, said) != (order[0], "params"), f"it answered {to, said}, expected {(order[0], 'params')}.")
            alike = all(np.allclose(params[name], p, rtol=1e-5, atol=1e-6) for name, p in wanted.items())
            refuse_if(not alike, "its answer does not contain the parameters after the round.")
    _same_in_any_order(cls, rng)


def _same_in_any_order(cls: type, rng: np.random.Generator) -> None:
    start = {"w": rng.normal(size=50).astype("f4")}
    pushes = [{"w": (rng.normal(size=50) * 10.0 ** rng.integers(-3, 4)).astype("f4")} for _ in range(4)]
    ends = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        server: Any = cls(_copy(start), 4, 0.25)
        for worker in order:
            server.handle(worker, ("push", _copy(pushes[worker])))
        ends.append(server.params["w"])
    alike = same_bits(*ends)
    refuse_if(not alike, "Another order of arrival gives other bits. Add up the pushes in the workers' order.")


@grows("wire", "pack")
def check_pack(cls: Any, rng: np.random.Generator) -> None:
    """Refuse a class unless its bytes unpack to the same arrays, few of them are overhead, and none is pickled."""
    trials: list[Tensors] = [
        {},
        {"w": rng.normal(size=5).astype("f4")},
        _drawn(rng),
        {"s": np.asarray(rng.normal(), "f4"), "none": np.zeros((0, 3), "f8")},
        {"cube": rng.normal(size=(2, 3, 4)), "codes": rng.integers(-9, 9, 11).astype("i1"), "ünder": np.arange(3)},
        {"part": np.asfortranarray(rng.normal(size=(4, 6)))[1:, ::2]},
    ]
    for tensors in trials:
        before = _copy(tensors)
        with case(f"For {', '.join(f'{k} {x.dtype}{list(x.shape)}' for k, x in tensors.items()) or 'no arrays'}:"):
            data = cls.pack(tensors)
            refuse_if(not isinstance(data, bytes | bytearray), f"pack returned a {type(data).__name__}, not bytes.")
            back = cls.unpack(bytes(data))
            refuse_if(list(back) != list(before), f"the names came back as {list(back)}.")
            for name, x in before.items():
                refuse_if(not same_bits(np.asarray(back[name]), x), f"{name!r} is not the same to the bit.")
            arrays = sum(x.nbytes for x in before.values())
            limit = arrays + 100 + 100 * len(before)
            refuse_if(len(data) > limit, f"{len(data)} bytes for {arrays} bytes of arrays; the limit is {limit}.")
    try:
        pickle.loads(data)
    except Exception:
        return
    raise Refused("These are pickle's bytes. Write the header yourself.")


@grows("bits", "encode")
def check_quantizer(cls: Any, rng: np.random.Generator) -> None:
    """Refuse a class unless it sends at most half the bytes, and decodes arrays closer to the gradient than zeros."""
    names = _names(rng)
    shapes = {names[0]: (40, int(rng.integers(2, 12))), names[1]: (int(rng.integers(90, 200)),), names[2]: (50, 2, 1)}
    normal: Tensors = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    zeros = {name: np.zeros_like(x) for name, x in normal.items()}
    one_of_zeros = {name: zeros[name] if name == names[1] else 1 - 3 * abs(x) for name, x in normal.items()}
    for what, tensors in (
        ("normal values", normal),
        ("zeros", zeros),
        ("a tensor of zeros among others", one_of_zeros),
    ):
        with case(f"For {what}, in {', '.join(names)}:"):
            parts = encoded(cls, tensors)
            sent, whole = nbytes(parts), nbytes(tensors)
            refuse_if(2 * sent > whole, f"the parts have {sent} of {whole} bytes; at most half is allowed.")
            back = decoded(cls, parts, tensors, rng)
            for name, x in tensors.items():
                error, size = float(((back[name] - x) ** 2).sum()), float((x**2).sum())
                refuse_if(error > size or (size and error == size), f"{name!r} is as far off as zeros would be.")


def _names(rng: np.random.Generator, count: int = 3) -> list[str]:
    """Return different names of tensors that no one can know beforehand."""
    return [f"{letter}{rng.integers(100)}" for letter in rng.permutation([*"abcdefghUVWXYZ"])[:count]]


def nbytes(arrays: Tensors) -> int:
    """Return the bytes of all arrays."""
    return sum(np.asarray(x).nbytes for x in arrays.values())


def encoded(cls: Any, tensors: Tensors) -> Tensors:
    """Return the parts that the class's encode makes. Raises `Refused` if it changes the tensors."""
    before = _copy(tensors)
    with np.errstate(divide="raise", invalid="raise"):
        parts: Tensors = cls.encode(tensors)
    refuse_if(not isinstance(parts, dict), f"encode returned a {type(parts).__name__}, not a dict of arrays.")
    _are_unchanged(tensors, before, "encode")
    return parts


def decoded(cls: Any, parts: Tensors, tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """Return what the class's decode makes of parts that have travelled. It gets the names, shapes and dtypes of the
    tensors in another order, and other values. Raises `Refused` unless it returns new arrays that are like them.
    """
    order = rng.permutation(list(tensors))
    like: Tensors = {str(name): np.asarray(rng.normal(size=tensors[name].shape), tensors[name].dtype) for name in order}
    before = _copy(like)
    back: Tensors = cls.decode(method(cls, "unpack")(method(cls, "pack")(parts)), like)
    _are_unchanged(like, before, "decode")
    for name, x in like.items():
        got = np.asarray(back[name])
        told = f"{name!r} came back as {got.dtype}{list(got.shape)}, expected {x.dtype}{list(x.shape)}."
        refuse_if((got.dtype, got.shape) != (x.dtype, x.shape), told)
        refuse_if(not np.isfinite(got).all(), f"{name!r} came back with NaN or infinity.")
        refuse_if(any(np.may_share_memory(got, other) for other in like.values()), "decode returned arrays of `like`.")
    return back


def _are_unchanged(tensors: Tensors, before: Tensors, by: str) -> None:
    """Raise `Refused` if a method changed arrays that it was given, or their names."""
    for name, x in before.items():
        refuse_if(name not in tensors or not same_bits(tensors[name], x), f"{by} changed {name!r}, which it was given.")
    refuse_if(len(tensors) > len(before), f"{by} added something to the arrays that it was given.")


@grows("remember", "compensate")
def check_memory(cls: Any, rng: np.random.Generator) -> None:
    """Refuse a class unless, at each step of each worker, all that was sent plus the memory equals the sum of all
    gradients.
    """
    shapes = ((int(rng.integers(2, 9)), 3), (1,), (2, 1, int(rng.integers(1, 5))))
    named = dict(zip(_names(rng), shapes, strict=True))
    kinds = (("f8", -5.0), ("f4", float(rng.uniform(-6, 6))), ("f8", 4.0))
    workers = [_Remembers(cls, named, dtype, scale=10 ** (power + rng.uniform(-1, 1))) for dtype, power in kinds]
    for step in range(40):
        for worker in rng.permutation(len(workers)).tolist():
            with case(f"Worker {worker} of {len(workers)}, step {step}:"):
                workers[worker].step(step, rng)


class _Remembers:
    """One worker's gradients, what arrived of them, and its memory."""

    def __init__(self, cls: Any, shapes: dict[str, tuple[int, ...]], dtype: str, scale: float) -> None:
        self.cls, self.dtype, self.scale = cls, dtype, scale
        self.meant = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.arrived, self.memory = _copy(self.meant), dict[str, Array]()

    def step(self, step: int, rng: np.random.Generator) -> None:
        """Make one step: compensate a gradient, send some of it, and remember the rest."""
        gradient = {
            name: np.asarray(self.scale * rng.normal(0.5, size=x.shape), self.dtype) for name, x in self.meant.items()
        }
        before, held = _copy(gradient), _copy(self.memory)
        compensated = self.cls.compensate(gradient, self.memory)
        _are_unchanged(gradient, before, "compensate")
        _are_unchanged(self.memory, held, "compensate")
        for name, x in before.items():
            self.meant[name] += x
            dtype = compensated[name].dtype
            refuse_if(dtype != x.dtype, f"compensate made {dtype} of {name!r}, a gradient of {x.dtype}.")
        sent = {name: _some_of(x, step, rng) for name, x in compensated.items()}
        given, brought = _copy(compensated), _copy(sent)
        memory = self.cls.remember(compensated, sent)
        _are_unchanged(compensated, given, "remember")
        _are_unchanged(sent, brought, "remember")
        for name in before:
            self.arrived[name] += sent[name]
            compensated[name][...] = sent[name][...] = np.nan  # their owner may use them for something else
        self.memory = memory
        near = self.scale * (1e-9 if self.dtype == "f8" else 1e-3)
        for name, meant in self.meant.items():
            kept = self.memory.get(name, 0)
            whole = np.allclose(self.arrived[name] + kept, meant, rtol=0, atol=near)
            refuse_if(not whole, f"of {name!r}, what was sent and what is remembered do not add up.")


def _some_of(x: Array, step: int, rng: np.random.Generator) -> Array:
    """Return what a quantizer might bring of ``x``: the largest value, its signs, nothing, or something else."""
    if step % 4 == 0:  # a part of every value
        sent = np.sign(x) * np.abs(x).mean()
    elif step % 4 == 1:
        sent = np.where(np.abs(x) >= np.abs(x).max(), x, 0)
    elif step % 4 == 2:  # too much, too little, or of the other sign
        sent = x * rng.uniform(-1, 2, x.shape)
    else:
        sent = x * rng.integers(0, 2) * (1 - 1e-6)
    return np.asarray(sent, x.dtype)


@grows("wait", "staleness")
def check_bound(cls: type, rng: np.random.Generator) -> None:
    """Refuse a server unless it applies each push immediately, and answers it as soon as its worker is at most
    ``staleness`` clocks ahead of the slowest one.
    """
    for staleness in (0, 2, int(rng.integers(3, 7)), 99):
        workers, lr, start = int(rng.integers(2, 6)), 0.25, _drawn(rng)
        server: Any = type("Server", (cls,), {"staleness": staleness})(_copy(start), workers, lr)
        clocks, waiting, wanted = [0] * workers, set[int](), _copy(start)
        speeds = rng.uniform(0.1, 1, workers)  # some workers rarely push
        for turn in range(12 * workers):
            able = np.array([speed * (one not in waiting) for one, speed in enumerate(speeds)])
            worker = int(rng.choice(workers, p=able / able.sum()))
            push = {name: rng.normal(size=p.shape).astype(p.dtype) for name, p in start.items()}
            for name, p in wanted.items():
                p -= lr / workers * push[name]
            clocks[worker] += 1
            with case(f"staleness = {staleness}, push {turn} is worker {worker}'s, the clocks are then {clocks}:"):
                answers = server.handle(worker, ("push", _copy(push)))
                waiting.add(worker)
                free = {one for one in waiting if clocks[one] - min(clocks) <= staleness}
                waiting -= free
                got, due = sorted((to, said) for to, (said, _) in answers), [(to, "applied") for to in sorted(free)]
                refuse_if(got != due, f"it answered {got}, expected {due}.")
                ((to, (said, params)),) = server.handle(worker, ("pull", {}))
                refuse_if((to, said) != (worker, "params"), f"it answered a pull with {to, said}.")
                near = all(np.allclose(params[name], p, rtol=1e-4, atol=1e-5) for name, p in wanted.items())
                refuse_if(not near, "each push must subtract lr / workers times its gradient from the parameters.")
