"""The learner's own server, which grows from lesson to lesson.

    Server = lab.own("server", lesson="bits")   # the learner's, from the lessons before "bits", or the given one

    class Server(Server):                       # a cell adds the lesson's methods
        ...

    lab.keep(Server)                            # writes it to server.py, beside the notebooks
    run = lab.train_own(Server, problem)        # trains with four workers, over pipes

A `Server` has ``params``, and ``handle(worker, message)``, which returns the answers to send: pairs of a worker and an
answer. A message or an answer is a pair of a kind and named arrays. Messages are of the kinds ``push`` and ``pull``,
answers of the kinds ``applied``, ``params`` and ``error``. A server may also have static methods: ``pack`` and
``unpack`` (named arrays to bytes, and back), ``encode`` and ``decode`` (a quantizer), ``compensate`` and ``remember``
(a worker's memory). With ``staleness`` it applies each push on arrival, and delays answers to workers too far ahead.

``server.py`` has a section for each lesson that extends the server, in the lessons' order, under a comment with the
lesson's name; so has ``given_server.py`` in the course's package. A lesson uses the learner's sections from earlier
lessons if they pass those lessons' checks, which `grows` adds. A section under the comment ``# Milestone ssp`` belongs
to a milestone, see `minips.lab.course.milestones`; no lesson uses it.
"""

import dis
import linecache
import pickle
import re
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minips import files
from minips.core.local import Delays
from minips.lab.course import state
from minips.lab.course.courses import chosen, folders
from minips.lab.course.exercises import TooLong, limited
from minips.lab.course.questions import full_key
from minips.lab.source import show
from minips.problems import SoftmaxRegression
from minips.stage import Tensors
from minips.training.progress import Wait, showing
from minips.words import suggestion

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

FILE = "server.py"
LESSON, MILESTONE = "Lesson ", "Milestone "
"""The words with which the title of a section begins."""
WAIT_S = 20.0
"""The most seconds that a worker waits for an answer."""
BATCH = 32
"""The rows of a worker's step, or all rows of its shard if it has fewer."""

Check = Callable[[type, np.random.Generator], None]


class Growth(NamedTuple):
    """A lesson that extends the server: the attribute that identifies its class, the check of such a class, and the
    later lesson, if any, from which the check no longer applies.
    """

    name: str
    check: Check
    until: str | None = None


GROWTH: dict[str, Growth] = {}
"""Maps each lesson's name to its growth, in order. A class belongs to the last lesson whose ``name`` it defines."""


def grows(lesson: str, name: str, until: str | None = None) -> Callable[[Check], Check]:
    """Decorate the function that checks the class of this lesson, see `Growth`."""

    def add(check: Check) -> Check:
        GROWTH[lesson] = Growth(name, check, until)
        return check

    return add


def given() -> Path:
    """Return the file of the given server. ValueError if no installed course has one."""
    for folder in folders():
        if (path := folder / "given_server.py").is_file():
            return path
    raise ValueError("No course that is installed has a server that grows: there is no given_server.py in its package.")


@dataclass
class OwnRun:
    """The outcome of `train_own`."""

    params: Tensors
    accuracy: float
    """The accuracy on held-out rows, if the problem has any."""
    bytes_sent: int
    """The bytes of all pushes."""
    log: list[tuple[int, str]]
    """The worker and the kind of each message, in the order in which the server handled them."""
    seconds: float
    """The seconds from the start of the threads to the end of the last worker."""


def own(name: str, lesson: str) -> type:
    """Return the learner's class from ``server.py``, as the lessons before this one left it, if it passes their checks;
    otherwise the given class. Prints which it returns. ValueError for another name or an unknown lesson.
    """
    if name != "server":
        raise ValueError(f'There is no server named {name!r}; the only name is "server".')
    path, other, place = Path(FILE), given(), _place(lesson)
    if state.autoplay() or not path.exists():
        print(f'The given server, as of the lessons before "{full_key(lesson)}".')
        return load(other, lesson)
    try:
        with limited():
            mine = load(path, lesson)
            for word, growth in GROWTH.items():
                if _place(word) < place <= _place(growth.until or lesson):
                    growth.check(mine, np.random.default_rng(0))
    except (Exception, SystemExit, TooLong) as error:
        print(f"The given server: yours does not pass. {type(error).__name__}: {error}")
        return load(other, lesson)
    print(f"Your own server, from {FILE}.")
    return mine


def keep(cls: type) -> None:
    """Write a class that passes its lesson's check to ``server.py``, in the section of that lesson.

    Earlier lessons that are missing get the given sections. ValueError if the class defines no lesson's ``name``, or
    uses something that only the notebook has.
    """
    parts = sections(given())
    word = next((word for word, growth in reversed(GROWTH.items()) if growth.name in vars(cls)), None)
    if word is None:
        names = ", ".join(growth.name for growth in GROWTH.values())
        raise ValueError(f"Expected a class with one of {names}; {cls.__name__} has none.")
    text = "\n".join([*_imports(cls), "", "", show(cls).source.strip()]).strip()
    text = re.sub(r"^class \w+", "class Server", text, flags=re.MULTILINE)
    if state.autoplay():
        print(f"In a run with a learner the class would be kept in {FILE}, if it passes the check.")
        return
    try:
        with limited():
            GROWTH[word].check(cls, np.random.default_rng())
    except (Exception, TooLong) as error:
        print(f'It is not kept: it does not pass the check of lesson "{word}". {type(error).__name__}: {error}')
        return
    title = f"{LESSON}{word}"
    parts = {known: part for known, part in parts.items() if _rank(known) < _rank(title)}
    path = Path(FILE)
    if path.is_file():
        parts |= sections(path)
    parts[title] = text
    body = [f"# {known}\n{part}\n" for known, part in sorted(parts.items(), key=lambda one: _rank(one[0]))]
    files.write(path, "\n\n".join(['"""My parameter server."""\n', *body]))
    linecache.checkcache(str(path))
    print(f"It is kept in {FILE}.")


def sections(path: Path) -> dict[str, str]:
    """Map each section's title to its text."""
    text = path.read_text(encoding="utf-8")
    return {title: text[head.end() : end].strip() for title, head, end in _heads(text)}


def _heads(text: str) -> Iterator[tuple[str, re.Match[str], int]]:
    """Yield each section's title, such as "Lesson wire" or "Milestone ps", the comment above it, and the section's end.
    An earlier edition's comments have the lesson's number.
    """
    heads = []
    for head in re.finditer(rf"^# ({LESSON}|{MILESTONE})(\w+)\n", text, re.MULTILINE):
        word = full_key(head[2]) if head[1] == LESSON else head[2]
        if head[1] == MILESTONE or word in chosen().lessons:
            heads.append((head[1] + word, head))
    ends = [*(head.start() for _, head in heads), len(text)][1:]
    for (title, head), end in zip(heads, ends, strict=True):
        yield title, head, end


def _rank(title: str) -> int:
    """Return the place of a section: those of milestones are after all lessons."""
    return _place(title.removeprefix(LESSON)) if title.startswith(LESSON) else len(chosen().lessons)


def _place(lesson: str) -> int:
    """Return a lesson's index in the course. ValueError for an unknown lesson."""
    word, words = full_key(lesson), chosen().lessons
    if word not in words:
        raise ValueError(f"There is no lesson {lesson!r}. {suggestion(word, words)}")
    return words.index(word)


def is_used(title: str, lesson: str, milestone: str = "") -> bool:
    """Return True for the section of a lesson before this one, and for that of this milestone."""
    return title == MILESTONE + milestone or _rank(title) < _place(lesson)


def load(path: Path, lesson: str, milestone: str = "") -> type:
    """Return the last class in the sections before this lesson and, if one is named, in that of a milestone. ValueError
    if there is none.
    """
    text = path.read_text(encoding="utf-8")
    for title, head, end in [*_heads(text)]:
        if not is_used(title, lesson, milestone):  # its lines stay, so that errors name the file's lines
            text = text[: head.end()] + re.sub(r"[^\n]", " ", text[head.end() : end]) + text[end:]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, str(path), "exec"), names)
    if "Server" not in names:
        raise ValueError(f"{path.name} has no class Server in the lessons before {lesson}.")
    found: type = names["Server"]
    return found


def _imports(cls: type) -> list[str]:
    """Return import lines for the globals that a class uses. ValueError if only the notebook defines one of them."""
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
    """Return the global names that this code, and the code inside it, reads."""
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
"""The methods that replace those that a class does not define."""


def method(cls: type, name: str) -> Callable[..., Any]:
    """Return the class's method, or the default one if the class does not define it."""
    return getattr(cls, name, DEFAULTS[name])


@showing(None, first=Wait("training with your own server"))
def train_own(
    cls: type,
    problem: SoftmaxRegression,
    workers: int = 4,
    steps: int = 100,
    lr: float = 0.5,
    seed: int = 0,
    delays: Delays | None = None,
) -> OwnRun:
    """Train with a server of this class, in a thread for the server and one for each worker, joined by pipes.

    Each worker makes ``steps`` steps; ``delays`` sets the least time that each step computes. RuntimeError if the
    server or a worker stops with an error, or an answer takes longer than 20 seconds.
    """
    from multiprocessing import Pipe  # not every system supports it

    server, sent = cls(problem.init(np.random.default_rng(seed)), workers, lr), [0] * workers
    log: list[tuple[int, str]] = []
    failed: list[Exception] = []
    at_server, at_workers = zip(*(Pipe() for _ in range(workers)), strict=True)

    def carry(ends: "tuple[Connection, ...]", role: Callable[..., None], *given: Any) -> None:
        """Run a role, then close only its own ends of the pipes, so that the threads at the other ends see the end."""
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
                if failed:  # without this worker, the others' round would never be complete
                    return
                open_pipes.remove(pipe)
                continue
            worker, tensors = pipes.index(pipe), method(cls, "unpack")(data)
            log.append((worker, kind))
            if kind == "push":
                tensors = method(cls, "decode")(tensors, server.params)
            for to, (said, values) in server.handle(worker, (kind, tensors)):
                pipes[to].send_bytes(said.encode())
                pipes[to].send_bytes(values.encode() if said == "error" else method(cls, "pack")(values))


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
            raise RuntimeError(f"The server refused a {kind} from worker {worker}: {values.decode()}")
        answer: Tensors = method(cls, "unpack")(values)
        return answer

    pack = method(cls, "pack")
    memory: Tensors = {}
    for clock in range(steps):
        params, began = ask("pull", pack({})), time.monotonic()
        gradient = problem.gradient(params, rng.choice(problem.rows, min(BATCH, problem.rows), replace=False))
        if least_s:
            time.sleep(max(least_s(clock) - (time.monotonic() - began), 0))
        gradient = method(cls, "compensate")(gradient, memory)
        parts = method(cls, "encode")(gradient)
        memory = method(cls, "remember")(gradient, method(cls, "decode")(parts, gradient))
        data = pack(parts)
        sent[worker] += len(data)
        ask("push", data)
