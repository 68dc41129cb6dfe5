"""The learner's own server, which grows: rounds in lesson 03, a header in 05, a quantizer in 08, a memory in 10, a
bound in place of the rounds in 14.

    Server = lab.own("server", lesson="08")     # the learner's, as far as the lessons before 08, or the given one

    class Server(Server):                       # a cell adds what the lesson is about
        ...

    lab.keep(Server)                            # in server.py, beside the notebooks
    run = lab.train_own(Server, problem)        # four workers, over pipes

A `Server` has ``params``, and ``handle(worker, message)``, which returns the answers to send: pairs of a worker and an
answer. Messages and answers are pairs of a kind and named arrays: ``push`` and ``pull``; ``applied``, ``params`` and
``error``. What else it may have are static methods: ``pack`` and ``unpack`` (bytes of named arrays, and back),
``encode`` and ``decode`` (a quantizer), ``compensate`` and ``remember`` (a worker's memory). With ``staleness`` it
makes no rounds: it applies each push on arrival, and answers late where a worker is too far ahead.

``server.py`` has a section for each of these lessons, under a comment with its number, in their order; so has the given
server, ``given_server.py``. A class is taken as far as the lessons before the one that asks, if it passes their checks.
"""

import dis
import linecache
import pickle
import re
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from minips import files
from minips.core.local import Delays
from minips.lab.course import state
from minips.lab.course.exercises import Refused, TooLong, case, limited, refuse_if
from minips.lab.source import show
from minips.problems import SoftmaxRegression
from minips.stage import Tensors
from minips.testing.base import same_bits

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

FILE = "server.py"
GIVEN = Path(__file__).with_name("given_server.py")
WAIT_S = 20.0
"""A worker's longest wait for an answer."""
BATCH = 32
"""Rows of a worker's step, where its shard has so many."""

Check = Callable[[type, np.random.Generator], None]


@dataclass
class OwnRun:
    """The outcome of `train_own`."""

    params: Tensors
    accuracy: float
    """On held-out rows, where the problem has some."""
    bytes_sent: int
    """Of all pushes."""
    log: list[tuple[int, str]]
    """The worker and the kind of each message, in the order in which the server took them."""
    seconds: float
    """From the start of the threads until the last worker was done."""


def own(name: str, lesson: str) -> type:
    """The learner's class from ``server.py`` as of the lessons before this one, where it passes their checks; else the
    given one. It prints which. ValueError for another name.
    """
    if name != "server":
        raise ValueError(f'There is no {name!r} of your own; there is "server".')
    path = Path(FILE)
    if state.autoplay() or not path.exists():
        print(f"The given server, as of the lessons before {lesson}.")
        return _load(GIVEN, lesson)
    try:
        with limited():
            mine = _load(path, lesson)
            for number, check in CHECKS.items():
                if number < lesson <= REPLACED.get(number, lesson):
                    check(mine, np.random.default_rng(0))
    except (Exception, SystemExit, TooLong) as error:
        print(f"The given server: yours does not pass. {type(error).__name__}: {error}")
        return _load(GIVEN, lesson)
    print(f"Your own server, from {FILE}.")
    return mine


def keep(cls: type) -> None:
    """Write a class that passes its lesson's check to ``server.py``, in the section of that lesson.

    Lessons that are missing before it get the given sections. ValueError where it has none of the names by which such a
    class is known, or uses what only the notebook has.
    """
    number = next((number for number, name in reversed(NAMES.items()) if name in vars(cls)), None)
    if number is None:
        raise ValueError(f"Expected a class with one of {', '.join(NAMES.values())}; {cls.__name__} has none.")
    text = "\n".join([*_imports(cls), "", "", show(cls).source.strip()]).strip()
    text = re.sub(r"^class \w+", "class Server", text, flags=re.MULTILINE)
    if state.autoplay():
        print(f"In a run with a learner the class would be kept in {FILE}, if it passes the check.")
        return
    try:
        with limited():
            CHECKS[number](cls, np.random.default_rng())
    except (Exception, TooLong) as error:
        print(f"It is not kept: it does not pass the check of lesson {number}. {type(error).__name__}: {error}")
        return
    sections = {known: part for known, part in _sections(GIVEN).items() if known < number}
    path = Path(FILE)
    if path.is_file():
        sections |= _sections(path)
    sections[number] = text
    body = [f"# Lesson {known}\n{part}\n" for known, part in sorted(sections.items())]
    files.write(path, "\n\n".join(['"""My parameter server."""\n', *body]))
    linecache.checkcache(str(path))
    print(f"It is kept in {FILE}.")


def _sections(path: Path) -> dict[str, str]:
    """The parts of the file, by the numbers of their lessons."""
    _, *parts = re.split(r"^# Lesson (\d\d)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {number: part.strip() for number, part in zip(parts[::2], parts[1::2], strict=True)}


def _load(path: Path, lesson: str) -> type:
    """The last class of the sections before this lesson. ValueError where there is none."""
    text = path.read_text(encoding="utf-8")
    cut = next((m.start() for m in re.finditer(r"^# Lesson (\d\d)\n", text, re.MULTILINE) if m[1] >= lesson), None)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text[:cut], str(path), "exec"), names)
    if "Server" not in names:
        raise ValueError(f"{path.name} has no class Server in the lessons before {lesson}.")
    found: type = names["Server"]
    return found


def _imports(cls: type) -> list[str]:
    """The import lines of what the methods of a class use. ValueError where something stands in the notebook alone."""
    lines: set[str] = set()
    for member in vars(cls).values():
        function = getattr(member, "__func__", member)
        if not isinstance(function, types.FunctionType):
            continue
        for name in _globals_of(function.__code__) & {*function.__globals__} - {"Server"}:
            thing = function.__globals__[name]
            if isinstance(thing, types.ModuleType):
                lines.add(f"import {thing.__name__}" + (f" as {name}" if thing.__name__ != name else ""))
            elif callable(thing) and thing.__module__ != "__main__":
                lines.add(f"from {thing.__module__} import {thing.__name__} as {name}")
            elif isinstance(thing, int | float | str | bytes):
                lines.add(f"{name} = {thing!r}")
            else:
                raise ValueError(f"{cls.__name__} uses {name!r}, which only the notebook has. Put it in the class.")
    return sorted(lines)


def _globals_of(code: types.CodeType) -> set[str]:
    """The global names that code reads, and the code within it."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return own.union(*(_globals_of(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


DEFAULTS: dict[str, Callable[..., Any]] = {
    "pack": pickle.dumps,
    "unpack": pickle.loads,
    "encode": lambda tensors: tensors,
    "decode": lambda parts, like: parts,
    "compensate": lambda tensors, memory: tensors,
    "remember": lambda compensated, sent: {},
}
"""The stand-ins for methods that a class lacks."""


def _method(cls: type, name: str) -> Callable[..., Any]:
    return getattr(cls, name, DEFAULTS[name])


def train_own(
    cls: type,
    problem: SoftmaxRegression,
    workers: int = 4,
    steps: int = 100,
    lr: float = 0.5,
    seed: int = 0,
    delays: Delays | None = None,
) -> OwnRun:
    """Train with a server of this class: a thread for it and for each worker, pipes between them.

    Each worker makes so many steps; with ``delays`` a step computes for at least as long as they say. RuntimeError
    where the server or a worker stopped with an error, or an answer did not come within 20 seconds.
    """
    from multiprocessing import Pipe  # not everywhere does it work

    server, sent = cls(problem.init(np.random.default_rng(seed)), workers, lr), [0] * workers
    log: list[tuple[int, str]] = []
    failed: list[Exception] = []
    at_server, at_workers = zip(*(Pipe() for _ in range(workers)), strict=True)

    def carry(ends: "tuple[Connection, ...]", role: Callable[..., None], *given: Any) -> None:
        """Each thread closes its own ends, and no other: the one at the other end notices."""
        try:
            role(*given)
        except Exception as error:
            failed.append(error)
        finally:
            for end in ends:
                end.close()

    roles: list[tuple[Any, ...]] = [(at_server, _serve, server, at_server, log, failed)]
    for i, pipe in enumerate(at_workers):
        rng = np.random.default_rng([seed, i])
        least_s = partial(delays.of, i, seed=seed) if delays else None
        roles.append(((pipe,), _work, cls, problem.shard(i, workers), pipe, steps, rng, sent, i, least_s))
    threads = [Thread(target=carry, args=role, daemon=True) for role in roles]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    seconds = time.monotonic() - began
    threads[0].join(WAIT_S)  # the learner's code may never end
    if failed:
        raise RuntimeError(f"The run ended early. {type(failed[0]).__name__}: {failed[0]}") from failed[0]
    held_out = problem.held_out() or problem
    return OwnRun(server.params, held_out.accuracy(server.params), sum(sent), log, seconds)


def _serve(server: Any, pipes: "tuple[Connection, ...]", log: list[tuple[int, str]], failed: list[Exception]) -> None:
    from multiprocessing.connection import Connection, wait

    cls, open_pipes = type(server), list(pipes)
    while open_pipes:
        ready = [one for one in wait(open_pipes, timeout=WAIT_S) if isinstance(one, Connection)]
        if not ready:
            raise TimeoutError(f"No worker sent anything for {WAIT_S:g} seconds. Was a push never answered?")
        for pipe in ready:
            try:
                kind, data = pipe.recv_bytes().decode(), pipe.recv_bytes()
            except (EOFError, OSError):
                if failed:  # then the round of the others is never whole
                    return
                open_pipes.remove(pipe)
                continue
            worker, tensors = pipes.index(pipe), _method(cls, "unpack")(data)
            log.append((worker, kind))
            if kind == "push":
                tensors = _method(cls, "decode")(tensors, server.params)
            for to, (said, values) in server.handle(worker, (kind, tensors)):
                pipes[to].send_bytes(said.encode())
                pipes[to].send_bytes(values.encode() if said == "error" else _method(cls, "pack")(values))


def _work(
    cls: type,
    problem: SoftmaxRegression,
    pipe: "Connection",
    steps: int,
    rng: np.random.Generator,
    sent: list[int],
    worker: int,
    least_s: Callable[[int], float] | None,
) -> None:
    def ask(kind: str, data: bytes) -> Tensors:
        pipe.send_bytes(kind.encode())
        pipe.send_bytes(data)
        if not pipe.poll(WAIT_S):
            raise TimeoutError(f"The server did not answer worker {worker}'s {kind} within {WAIT_S:g} seconds.")
        said, values = pipe.recv_bytes().decode(), pipe.recv_bytes()
        if said == "error":
            raise RuntimeError(f"The server refused a {kind} of worker {worker}: {values.decode()}")
        answer: Tensors = _method(cls, "unpack")(values)
        return answer

    pack = _method(cls, "pack")
    memory: Tensors = {}
    for clock in range(steps):
        params, began = ask("pull", pack({})), time.monotonic()
        gradient = problem.gradient(params, rng.choice(problem.rows, min(BATCH, problem.rows), replace=False))
        if least_s:
            time.sleep(max(least_s(clock) - (time.monotonic() - began), 0))
        gradient = _method(cls, "compensate")(gradient, memory)
        parts = _method(cls, "encode")(gradient)
        memory = _method(cls, "remember")(gradient, _method(cls, "decode")(parts, gradient))
        data = pack(parts)
        sent[worker] += len(data)
        ask("push", data)


def _drawn(rng: np.random.Generator) -> Tensors:
    """Named arrays, as gradients are."""
    return {"W": rng.normal(size=(int(rng.integers(2, 9)), 3)).astype("f4"), "b": rng.normal(size=3).astype("f4")}


def _copy(tensors: Tensors) -> Tensors:
    return {name: x.copy() for name, x in tensors.items()}


def check_rounds(cls: type, rng: np.random.Generator) -> None:
    """Refused unless it answers all pushes of a round at once, with the mean in the workers' order applied."""
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
                    refuse_if(not near, f"{name!r} is not what the mean of the gradients, times lr, makes of it.")
        with case(f"{workers} workers, after round {turn}, a pull:"):
            ((to, (said, params)),) = server.handle(order[0], ("pull", {}))
            refuse_if((to, said) != (order[0], "params"), f"it answered {to, said}, expected {(order[0], 'params')}.")
            alike = all(np.allclose(params[name], p, rtol=1e-5, atol=1e-6) for name, p in wanted.items())
            refuse_if(not alike, "it answered other parameters than those after the round.")
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
    refuse_if(not alike, "The same pushes in another order of arrival end at other bits. Add in the workers' order.")


def check_pack(cls: Any, rng: np.random.Generator) -> None:
    """Refused unless bytes that it packs come back as the same arrays, with little beside the arrays, and no pickle."""
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
            refuse_if(len(data) > limit, f"{len(data)} bytes for arrays of {arrays}; at most {limit} are asked for.")
    try:
        pickle.loads(data)
    except Exception:
        return
    raise Refused("These are pickle's bytes. Write the header yourself.")


def check_quantizer(cls: Any, rng: np.random.Generator) -> None:
    """Refused unless it sends at most half the bytes, and what comes back is nearer to the gradient than nothing is."""
    large = {"W": rng.normal(size=(40, 10)).astype("f4"), "b": rng.normal(size=10).astype("f4")}
    for what, tensors in (("normal values", large), ("zeros", {name: 0 * x for name, x in large.items()})):
        with case(f"For {what}:"):
            before = _copy(tensors)
            parts = cls.encode(tensors)
            refuse_if(not isinstance(parts, dict), f"encode returned a {type(parts).__name__}, not a dict of arrays.")
            sent, whole = (sum(np.asarray(x).nbytes for x in one.values()) for one in (parts, before))
            refuse_if(2 * sent > whole, f"the parts have {sent} bytes of {whole}; at most half is asked for.")
            travelled = _method(cls, "unpack")(_method(cls, "pack")(parts))
            back = cls.decode(travelled, before)
            for name, x in before.items():
                got = np.asarray(back[name])
                told = f"{name!r} came back as {got.dtype}{list(got.shape)}, expected {x.dtype}{list(x.shape)}."
                refuse_if((got.dtype, got.shape) != (x.dtype, x.shape), told)
                refuse_if(not np.isfinite(got).all(), f"{name!r} came back with NaN or infinity.")
                refuse_if(not same_bits(tensors[name], x), f"encode changed {name!r}.")
                error, size = float(((got - x) ** 2).sum()), float((x**2).sum())
                refuse_if(error > size or (size and error == size), f"{name!r} is as far off as zeros would be.")


def check_memory(cls: Any, rng: np.random.Generator) -> None:
    """Refused unless what was sent and what is remembered add up to all gradients, at each step."""
    memory: Tensors = {}
    total = {"W": np.zeros((6, 3)), "b": np.zeros(3)}
    arrived = _copy(total)
    for step in range(12):
        gradient = {name: rng.normal(size=x.shape) for name, x in total.items()}
        before = _copy(gradient)
        with case(f"Step {step}:"):
            compensated = cls.compensate(gradient, memory)
            if step % 2:  # the largest value alone, or signs: nothing whole, and nothing left out
                sent = {name: np.where(np.abs(x) >= np.abs(x).max(), x, 0) for name, x in compensated.items()}
            else:
                sent = {name: np.sign(x) * np.abs(x).mean() for name, x in compensated.items()}
            memory = cls.remember(compensated, sent)
            for name, x in before.items():
                refuse_if(not same_bits(gradient[name], x), f"compensate changed the gradient {name!r}.")
                total[name] += x
                arrived[name] += sent[name]
                kept = memory.get(name, 0)
                whole = np.allclose(arrived[name] + kept, total[name], atol=1e-9)
                refuse_if(not whole, f"of {name!r}, what was sent and what is remembered do not add up.")


def check_bound(cls: type, rng: np.random.Generator) -> None:
    """Refused unless it applies each push at once, and answers it once its worker is at most ``staleness`` clocks ahead
    of the slowest one.
    """
    for staleness in (0, 2, int(rng.integers(3, 7)), 99):
        workers, lr, start = int(rng.integers(2, 6)), 0.25, _drawn(rng)
        server: Any = type("Server", (cls,), {"staleness": staleness})(_copy(start), workers, lr)
        clocks, waiting, wanted = [0] * workers, set[int](), _copy(start)
        speeds = rng.uniform(0.1, 1, workers)  # some push seldom
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
                refuse_if(not near, "the parameters are not what lr / workers times each gradient makes of them.")


NAMES = {"03": "handle", "05": "pack", "08": "encode", "10": "compensate", "14": "staleness"}
"""The name by which the class of each lesson is known: the latest one that it has."""
CHECKS: dict[str, Check] = {
    "03": check_rounds,
    "05": check_pack,
    "08": check_quantizer,
    "10": check_memory,
    "14": check_bound,
}
"""The check of each lesson's class."""
REPLACED = {"03": "14"}
"""The checks that hold up to a later lesson only: its server makes no rounds."""
