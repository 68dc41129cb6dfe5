"""The checks of a learner's own server, one for each lesson that extends it: rounds, a header, a quantizer, a memory,
a bound that replaces the rounds, and pushes that count once.
"""

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, case, refuse_if
from minips.lab.course.own import grows, method
from minips.stage import Array, Tensors
from minips.testing.base import same_bits, unwritable
from minips_course.arrays import array_bytes, copied, drawn_like, drawn_tensors, reordered


def _drawn(rng: np.random.Generator) -> Tensors:
    """Return random named arrays, shaped like gradients."""
    return {"W": rng.normal(size=(int(rng.integers(2, 9)), 3)).astype("f4"), "b": rng.normal(size=3).astype("f4")}


@grows("server", "handle", until="wait")
def check_rounds(cls: type, rng: np.random.Generator) -> None:
    """Refuse a server unless it applies a round's mean, added in the workers' order, then answers all its pushes."""
    rates = rng.permutation([0.02, 0.2, 2.0]) * rng.uniform(0.5, 2, 3)
    for workers, lr in zip((int(rng.integers(2, 6)), 1, int(rng.integers(6, 12))), rates.tolist(), strict=True):
        _holds_rounds(cls, workers, lr, rng)
    _same_in_any_order(cls, rng)
    _adds_in_order(cls, rng)


def _holds_rounds(cls: type, workers: int, lr: float, rng: np.random.Generator) -> None:
    """Refuse a server unless two of its kind, which serve two models by turns, both do what they should."""
    turns, seen = 4, 0
    models = [drawn_tensors(rng, 3, str(rng.choice(["float32", "float64"]))) for _ in range(2)]
    servers: list[Any] = [cls(copied(model), workers, lr) for model in models]
    for turn in range(turns):
        order = rng.permutation(workers).tolist()
        rounds = [[drawn_like(model, rng) for _ in range(workers)] for model in models]
        after = [_stepped(model, pushes, lr) for model, pushes in zip(models, rounds, strict=True)]
        for count, worker in enumerate(order, 1):
            where = f"{workers} workers, round {turn}, push {count} of {workers} (worker {worker}):"
            for server, pushes, old, new in zip(servers, rounds, models, after, strict=True):
                with case(where):
                    answers = _pushed(server, worker, pushes[worker], rng)
                    if count < workers:
                        refuse_if(answers, f"it answered {len(answers)} messages; the round is not whole yet.")
                        _has(server, old, order[count], "A part of a round may change nothing.")
                        continue
                    got = sorted((to, said, type(values).__name__) for to, (said, values) in answers)
                    everyone = [(to, "applied", "dict") for to in range(workers)]
                    refuse_if(got != everyone, f"it answered {got}, expected {everyone}.")
                    for asking in {order[0], order[-1]}:
                        _has(server, new, asking, "Subtract the mean of the gradients, times lr.")
        models = after
        held = sum(array_bytes(vars(server)) for server in servers)
        refuse_if(turn == turns - 1 and held > seen, f"After {turns} rounds it holds more arrays than after one round.")
        seen = seen or held


def _stepped(params: Tensors, pushes: list[Tensors], lr: float) -> Tensors:
    """Return the parameters after a step with the mean of the pushes."""
    return {name: np.asarray(p - lr * sum(push[name] for push in pushes) / len(pushes)) for name, p in params.items()}


def _pushed(server: Any, worker: int, gradients: Tensors, rng: np.random.Generator) -> Any:
    """Return the answers to a push, whose arrays are read-only, as those are that `numpy.frombuffer` makes of bytes."""
    return server.handle(worker, ("push", {name: unwritable(g) for name, g in reordered(gradients, rng).items()}))


def _has(server: Any, wanted: Tensors, asking: int, advice: str) -> None:
    """Refuse a server unless these are its parameters, and its answer to a pull."""
    answers = server.handle(asking, ("pull", {}))
    told = f"worker {asking}'s pull gets one answer at once; the server gave {len(answers)}."
    refuse_if(len(answers) != 1, told)
    ((to, (said, params)),) = answers
    refuse_if((to, said) != (asking, "params"), f"a pull was answered with {to, said}, expected {(asking, 'params')}.")
    for got, where in ((server.params, "in params"), (params, "in the answer to a pull")):
        refuse_if(got.keys() != wanted.keys(), f"{where} there is {list(got)}, expected {list(wanted)}.")
        for name, p in wanted.items():
            near = np.shape(got[name]) == p.shape and np.allclose(got[name], p, rtol=1e-4, atol=1e-4 * np.abs(p).max())
            refuse_if(not near, f"{name!r} is wrong {where}. {advice}")


def _same_in_any_order(cls: type, rng: np.random.Generator) -> None:
    workers = int(rng.integers(4, 12))
    start = {"w": rng.normal(size=50).astype("f4")}
    pushes = [{"w": (rng.normal(size=50) * 10.0 ** rng.integers(-3, 4)).astype("f4")} for _ in range(workers)]
    ends = []
    for order in (range(workers), range(workers)[::-1], rng.permutation(workers).tolist()):
        server: Any = cls(copied(start), workers, 0.25)
        for worker in order:
            _pushed(server, worker, pushes[worker], rng)
        ends.append(server.params["w"])
    alike = all(same_bits(ends[0], end) for end in ends)
    refuse_if(not alike, "Another order of arrival gives other bits. Add up the pushes in the workers' order.")


def _adds_in_order(cls: type, rng: np.random.Generator) -> None:
    """Refuse a server unless workers 1 and 2, whose large gradients cancel, are added one after the other."""
    workers, lr, large = 12, 0.25, np.full(5, 1e20)
    gradients = [np.zeros(5), large, -large, *rng.normal(size=(workers - 3, 5))]
    server: Any = cls({"w": np.zeros(5)}, workers, lr)
    for worker in rng.permutation(workers).tolist():
        _pushed(server, worker, {"w": gradients[worker]}, rng)
    near = np.allclose(server.params["w"], -lr * np.sum(gradients[3:], axis=0) / workers)
    refuse_if(not near, f"With {workers} workers, they are not added in the order 0, 1, 2, …, {workers - 1}.")


@grows("wire", "pack")
def check_pack(cls: Any, rng: np.random.Generator) -> None:
    """Refuse a class unless its bytes unpack to the same arrays, few of them are overhead, and none is pickled."""
    trials: list[Tensors] = [
        {},
        {"w": rng.normal(size=5).astype("f4")},
        _drawn(rng),
        {"s": np.asarray(rng.normal(), "f4"), "none": np.zeros((0, 3), "f8")},
        {"cube": rng.normal(size=(2, 3, 4)), "codes": rng.integers(-9, 9, 11).astype("i1"), "ünder": np.arange(3)},
        {"part": np.asfortranarray(rng.normal(size=(4, 6)))[1:, ::2], "big": rng.normal(size=3).astype(">f4")},
        {name: x.astype("f4") for name, x in drawn_tensors(rng, 4).items()},
    ]
    for tensors in trials:
        before = copied(tensors)
        with case(f"For {', '.join(f'{k} {x.dtype}{list(x.shape)}' for k, x in tensors.items()) or 'no arrays'}:"):
            data = cls.pack(tensors)
            refuse_if(not isinstance(data, bytes | bytearray), f"pack returned a {type(data).__name__}, not bytes.")
            is_no_pickle(bytes(data))
            back = cls.unpack(bytes(data))
            refuse_if(list(back) != list(before), f"the names came back as {list(back)}.")
            for name, x in before.items():
                refuse_if(not same_bits(np.asarray(back[name]), x), f"{name!r} is not the same to the bit.")
            arrays = sum(x.nbytes for x in before.values())
            limit = arrays + 100 + 100 * len(before)
            refuse_if(len(data) > limit, f"{len(data)} bytes for {arrays} bytes of arrays; the limit is {limit}.")


def is_no_pickle(data: bytes) -> None:
    """Raise `Refused` if pickle can load these bytes."""
    try:
        pickle.loads(data)  # safe: the learner's code made it
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
    kinds = {"normal values": normal, "zeros": zeros, "a tensor of zeros among others": one_of_zeros}
    for what, tensors in kinds.items():
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
    given = copied(tensors)  # which a later call of its methods may change
    with np.errstate(divide="raise", invalid="raise"):
        parts: Tensors = cls.encode(given)
    refuse_if(not isinstance(parts, dict), f"encode returned a {type(parts).__name__}, not a dict of arrays.")
    _are_unchanged(given, tensors, "encode")
    return parts


def decoded(cls: Any, parts: Tensors, tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """Return what the class's decode makes of parts that have travelled. It gets the names, shapes and dtypes of the
    tensors in another order, and other values. Raises `Refused` unless it returns new arrays that are like them.
    """
    order = rng.permutation(list(tensors))
    like: Tensors = {str(name): np.asarray(rng.normal(size=tensors[name].shape), tensors[name].dtype) for name in order}
    before = copied(like)
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
        self.arrived, self.memory = copied(self.meant), dict[str, Array]()

    def step(self, step: int, rng: np.random.Generator) -> None:
        """Make one step: compensate a gradient, send some of it, and remember the rest."""
        gradient = {
            name: np.asarray(self.scale * rng.normal(0.5, size=x.shape), self.dtype) for name, x in self.meant.items()
        }
        before, held = copied(gradient), copied(self.memory)
        compensated = self.cls.compensate(gradient, self.memory)
        _are_unchanged(gradient, before, "compensate")
        _are_unchanged(self.memory, held, "compensate")
        for name, x in before.items():
            self.meant[name] += x
            dtype = compensated[name].dtype
            refuse_if(dtype != x.dtype, f"compensate made {dtype} of {name!r}, a gradient of {x.dtype}.")
        sent = {name: _some_of(x, step, rng) for name, x in compensated.items()}
        given, brought = copied(compensated), copied(sent)
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
        sent: Array = np.sign(x) * np.abs(x).mean()
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
    bounds = (0, 1, 2, int(rng.integers(3, 7)), int(rng.integers(20, 40)))
    for staleness, many in zip(bounds, (int(rng.integers(6, 13)), 2, 6, 1, 3), strict=True):
        pairs = [_Bounded(cls, staleness, workers, rng) for workers in (many, int(rng.integers(2, 6)))]
        for turn in range(max(one.pushes for one in pairs)):
            for one in pairs:  # in turn, so that a state of the class is seen
                one.push(turn, rng)
    _does_not_grow(cls, rng)


class _Bounded:
    """A server with a bound, and what its clocks, its waiting workers and its parameters must be after each push."""

    def __init__(self, cls: type, staleness: int, workers: int, rng: np.random.Generator) -> None:
        self.staleness, self.workers, self.lr = staleness, workers, float(rng.uniform(0.01, 1))
        self.wanted = drawn_tensors(rng, int(rng.integers(1, 5)), str(rng.choice(["f4", "f8"])))
        self.clocks, self.waiting = [0] * workers, set[int]()
        self.largest = {name: np.abs(p).max() for name, p in self.wanted.items()}
        """The largest value that each parameter has had: rounding errors are a share of it, also near zero."""
        bounded = type("Server", (cls,), {"staleness": staleness})
        self.server: Any = bounded(copied(self.wanted), workers, self.lr)
        self.speeds, self.slow = rng.uniform(0.1, 1, workers), int(rng.integers(workers))
        self.often = 2 * workers if staleness < 3 else 10**6
        self.pushes = workers * (2 * workers if staleness < 3 else staleness + 10)

    def push(self, turn: int, rng: np.random.Generator) -> None:
        """Let a worker that does not wait push; then let one pull."""
        if turn % self.often == 0:
            self.slow = (self.slow + 1) % self.workers
        worker = self._free(rng)
        push = drawn_like(self.wanted, rng)
        given = copied(push)
        for name, p in self.wanted.items():
            p -= self.lr / self.workers * push[name]
            self.largest[name] = max(self.largest[name], np.abs(p).max())
        self.clocks[worker] += 1
        self.waiting.add(worker)
        free = {one for one in self.waiting if self.clocks[one] - min(self.clocks) <= self.staleness}
        self.waiting -= free
        what = f"staleness = {self.staleness}, push {turn} is worker {worker}'s, the clocks are then {self.clocks}:"
        with case(what):
            answers = self.server.handle(worker, ("push", given))
            got, due = sorted((to, said) for to, (said, _) in answers), [(to, "applied") for to in sorted(free)]
            refuse_if(got != due, f"it answered {got}, expected {due}.")
            for name, x in push.items():
                refuse_if(not same_bits(given[name], x), f"it changed the gradient {name!r} of the message.")
                given[name][...] = np.nan  # its memory is used again for the next message
            self._pull(rng)

    def _pull(self, rng: np.random.Generator) -> None:
        reader = self._free(rng)
        ((to, (said, params)),) = self.server.handle(reader, ("pull", {}))
        refuse_if((to, said) != (reader, "params"), f"it answered worker {reader}'s pull with {to, said}.")
        near = all(np.abs(params[name] - p).max() <= 1e-5 * self.largest[name] for name, p in self.wanted.items())
        refuse_if(not near, "each push must subtract lr / workers times its gradient from the parameters.")

    def _free(self, rng: np.random.Generator) -> int:
        """Draw a worker that does not wait."""
        able = np.array([speed * (one not in self.waiting) for one, speed in enumerate(self.speeds)])
        able[self.slow] *= 1e-6
        return int(rng.choice(self.workers, p=able / able.sum()))


def _does_not_grow(cls: type, rng: np.random.Generator) -> None:
    """Refuse a server that keeps something of each push, when both of its workers push again and again."""
    server: Any = cls({"w": rng.normal(size=5)}, 2, 0.25)
    sizes = []
    for _ in range(2):
        for _ in range(200):
            for worker in range(2):
                server.handle(worker, ("push", {"w": rng.normal(size=5)}))
        sizes.append(array_bytes(server))
    grown = sizes[1] - sizes[0]
    refuse_if(grown > 300, f"400 pushes made the server {grown} bytes larger. Keep nothing of a push that is answered.")


@grows("plug", "deliver")
def check_once(cls: type, rng: np.random.Generator) -> None:
    """Refuse a server unless a repeated push changes nothing, is answered again if it was answered before, and a server
    that starts again with the attributes of a killed one knows which pushes it has counted.
    """
    for staleness in (0, 1, int(rng.integers(2, 5))):
        pairs = [_Repeated(cls, staleness, int(rng.integers(2, 6)), rng) for _ in range(2)]
        for _ in range(120):
            for one in pairs:  # in turn, so that a state of the class is seen
                one.turn(rng)
    _keeps_little(cls, rng)


class _Repeated:
    """A server whose workers repeat pushes and pulls, and that is killed; and what it must have and answer."""

    def __init__(self, cls: type, staleness: int, workers: int, rng: np.random.Generator) -> None:
        self.staleness, self.workers, self.lr = staleness, workers, 2.0 ** float(rng.integers(-3, 1))
        self.wanted: Tensors = {name: rng.normal(size=2) for name in _names(rng, 2)}
        self.clocks, self.waiting, self.pushed = [0] * workers, set[int](), dict[int, Tensors]()
        self.make = partial(type("Server", (cls,), {"staleness": staleness}), copied(self.wanted), workers, self.lr)
        self.server: Any = self.make()
        self.speeds = rng.uniform(0.2, 1, workers)

    def turn(self, rng: np.random.Generator) -> None:
        """Let a worker push, or repeat its last push, or pull; or kill the server, and start another one."""
        deed = rng.random()
        if deed < 0.4:
            self._push(rng)
        elif deed < 0.7 and self.pushed:
            self._repeat(int(rng.choice([*self.pushed])))
        elif deed < 0.9:
            self._pull(rng)
        else:
            kept = copy.deepcopy(vars(self.server))
            self.server = self.make()
            vars(self.server).update(kept)

    def _push(self, rng: np.random.Generator) -> None:
        worker = self._free(rng)
        same = self.pushed.get(worker) if rng.random() < 0.3 else None
        gradients = same or {name: rng.normal(size=2) for name in self.wanted}
        self.pushed[worker] = gradients
        clock = self.clocks[worker]
        for name, p in self.wanted.items():
            self.wanted[name] = p - self.lr / self.workers * gradients[name]
        self.clocks[worker] += 1
        self.waiting.add(worker)
        free = {one for one in self.waiting if self.clocks[one] - min(self.clocks) <= self.staleness}
        self.waiting -= free
        with case(f"{self._now}: push {clock} of worker {worker}:"):
            self._deliver(worker, clock, gradients, sorted(free))

    def _repeat(self, worker: int) -> None:
        due = worker in self.waiting
        state = "whose answer is still due" if due else "which was answered"
        clock = self.clocks[worker] - 1
        with case(f"{self._now}: push {clock} of worker {worker}, {state}, comes again:"):
            self._deliver(worker, clock, self.pushed[worker], [] if due else [worker])

    @property
    def _now(self) -> str:
        return f"staleness = {self.staleness}, the next pushes are {self.clocks}"

    def _deliver(self, worker: int, clock: int, gradients: Tensors, free: list[int]) -> None:
        given = copied(gradients)
        answers = self.server.deliver(worker, clock, ("push", given))
        got, due = sorted((to, said) for to, (said, _) in answers), [(to, "applied") for to in free]
        refuse_if(got != due, f"it answered {got}, expected {due}.")
        for name, x in gradients.items():
            refuse_if(not same_bits(given[name], x), f"it changed the gradient {name!r} of the message.")
            given[name][...] = np.nan  # its memory is used again for the next message
        self._has(self.server.params)

    def _pull(self, rng: np.random.Generator) -> None:
        reader = self._free(rng)
        for times in range(1, 3):
            with case(f"{self._now}: a pull of worker {reader}, for the {('first', 'second')[times - 1]} time:"):
                answers = self.server.deliver(reader, self.clocks[reader], ("pull", {}))
                got = [(to, said) for to, (said, _) in answers]
                refuse_if(got != [(reader, "params")], f"it answered {got}, expected {[(reader, 'params')]}.")
                self._has(answers[0][1][1])

    def _has(self, params: Any) -> None:
        near = all(np.allclose(params[name], p, rtol=1e-6, atol=1e-6) for name, p in self.wanted.items())
        refuse_if(not near, "the parameters are wrong. Each push must count once.")

    def _free(self, rng: np.random.Generator) -> int:
        """Draw a worker that does not wait."""
        able = np.array([speed * (one not in self.waiting) for one, speed in enumerate(self.speeds)])
        return int(rng.choice(self.workers, p=able / able.sum()))


def _keeps_little(cls: type, rng: np.random.Generator) -> None:
    """Refuse a server that keeps something of each push."""
    server: Any = cls({"w": rng.normal(size=5)}, 2, 0.25)
    sizes = []
    for turn in range(2):
        for clock in range(200):
            for worker in range(2):
                server.deliver(worker, 200 * turn + clock, ("push", {"w": rng.normal(size=5)}))
        sizes.append(array_bytes(server))
    grown = sizes[1] - sizes[0]
    refuse_if(grown > 300, f"400 pushes made the server {grown} bytes larger. A worker repeats only its last push.")
