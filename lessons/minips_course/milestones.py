"""The milestones of a learner's own server: four papers, and the check of a server that does what each describes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course import own
from minips.lab.course.exercises import Refused, case, refuse_if
from minips.lab.course.milestones import reaches
from minips.lab.course.own import BATCH, method
from minips.stage import Tensors
from minips_course.arrays import copied, drawn_tensors, flat
from minips_course.own_server import check_memory, encoded, nbytes

Answers = list[tuple[int, tuple[str, Any]]]
Send = Callable[[int, list[Tensors]], Tensors]
"""Returns what a worker pushes, of the gradients of all workers."""
Lie = Callable[[np.random.Generator, Tensors, Sequence[Tensors]], Tensors]
"""Returns what a liar pushes in place of its gradient. It knows the honest workers' gradients."""


def _handled(server: Any, worker: int, kind: str, tensors: Tensors) -> Answers:
    """Return the server's answers to a message. Messages and answers travel as the bytes that the class makes."""
    answers: Answers = server.handle(worker, (kind, _carried(server, tensors)))
    for to, (said, values) in answers:
        if said not in ("applied", "params"):
            raise Refused(f"Your server answered worker {worker}'s {kind}, to worker {to}, with {said!r}: {values}")
    return [(to, (said, _carried(server, values))) for to, (said, values) in answers]


def _carried(server: Any, tensors: Tensors) -> Tensors:
    cls = type(server)
    carried: Tensors = method(cls, "unpack")(method(cls, "pack")(tensors))
    return copied(carried)


def _pulled(server: Any, worker: int) -> Tensors:
    """Return the answer to a pull, which comes at once, since no push of this worker waits for its answer."""
    answers = _handled(server, worker, "pull", {})
    got = [(to, said) for to, (said, _) in answers]
    refuse_if(got != [(worker, "params")], f"Worker {worker}'s pull was answered with {got or 'nothing'}.")
    params: Tensors = answers[0][1][1]
    return params


def _pushed(server: Any, pushes: Sequence[Tensors], order: Sequence[int]) -> None:
    """Push once from each worker. Raises `Refused` unless each has its answer when all have pushed."""
    waiting = {*order}
    for worker in order:
        waiting -= {to for to, _ in _handled(server, worker, "push", pushes[worker])}
    refuse_if(waiting, f"All {len(order)} workers have pushed, and no answer came to {sorted(waiting)}.")


def _gradients(problems: Sequence[Any], params: Tensors, rng: np.random.Generator) -> list[Tensors]:
    """Return a gradient of each worker, of a few of its rows."""
    rows = [rng.choice(one.rows, min(BATCH, one.rows), replace=False) for one in problems]
    return [one.gradient(params, batch) for one, batch in zip(problems, rows, strict=True)]


def _train(cls: Any, problem: Any, workers: int, steps: int, lr: float, seed: int, send: Send | None = None) -> Tensors:
    """Train in rounds, and return the parameters. Each worker pushes what ``send`` makes of the gradients, or its own
    gradient.
    """
    rng, shards = np.random.default_rng(seed), [problem.shard(worker, workers) for worker in range(workers)]
    server = cls(problem.init(rng), workers, lr)
    for _ in range(steps):
        gradients = _gradients(shards, _pulled(server, 0), rng)
        pushes = [send(worker, gradients) for worker in range(workers)] if send else gradients
        _pushed(server, pushes, np.random.default_rng(rng.integers(1 << 30)).permutation(workers).tolist())
    return _pulled(server, 0)


def _exact() -> type:
    """Return a server that applies the mean of each round."""
    return own.load(own.given(), "wire")


def _section(key: str) -> str:
    """Return the words that say where a milestone's methods stand."""
    return f"in server.py, in a class Server(Server) under the comment # Milestone {key}"


def _accuracy(problem: Any, params: Tensors) -> float:
    return float(problem.held_out().accuracy(params))


@reaches(
    "ps",
    "Li et al. 2014, OSDI",
    "https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu",
    lesson="wire",
    until="bits",
)
def key_ranges(cls: Any, rng: np.random.Generator) -> str:
    """Two servers hold half of the keys each; workers push and pull ranges of keys, as bytes."""
    missing = [name for name in ("pack", "unpack") if not hasattr(cls, name)]
    refuse_if(missing, f"Your server has no {' and no '.join(missing)}. Exercise wire.1 of lesson 05 adds them.")
    missing = [name for name in ("split", "join") if not hasattr(cls, name)]
    told = f"Put those of exercise wire.3, the homework of lesson 05, {_section('ps')}, as static methods."
    refuse_if(missing, f"Your server has no {' and no '.join(missing)}: they divide the keys among servers. {told}")
    for servers in (2, 3):
        tensors = drawn_tensors(rng, int(rng.integers(3, 7)), str(rng.choice(["f4", "f8"])))
        _divides(cls, tensors, servers)
    workers, steps, lr = 4, 12, float(rng.uniform(0.1, 0.5))
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=9, classes=4))
    seed = int(rng.integers(1 << 30))
    with case("With four workers and two servers:"):
        params, received = _train_with_two(cls, problem, workers, steps, lr, seed)
        wanted = _train(_exact(), problem, workers, steps, lr, seed)
        off = float(np.abs(flat(params) - flat(wanted)).max() / np.abs(flat(wanted)).max())
        refuse_if(not off < 1e-4, f"after {steps} rounds the parameters differ from one server's by {off:.1%}.")
        share = max(received) / sum(received)
        refuse_if(share > 0.6, f"one server receives {share:.0%} of the bytes.")
    return f"Two servers held the keys of {steps} rounds, and the busier one received {share:.0%} of the bytes."


def _divides(cls: Any, tensors: Tensors, servers: int) -> None:
    """Refuse a class unless each server gets its range of the keys, and `join` makes the arrays whole again."""
    keys = np.concatenate([x.ravel() for x in tensors.values()])
    ends = [len(keys) * i // servers for i in range(servers + 1)]
    with case(f"{len(keys)} keys on {servers} servers:"):
        pieces = cls.split(copied(tensors), servers)
        refuse_if(len(pieces) != servers, f"split made {len(pieces)} pieces.")
        for i, piece in enumerate(pieces):
            got = np.concatenate([np.ravel(x) for x in piece.values()]) if piece else keys[:0]
            right = np.array_equal(got, keys[ends[i] : ends[i + 1]])
            refuse_if(not right, f"server {i} must hold the keys from {ends[i]} up to {ends[i + 1]}, in their order.")
        back = cls.join(pieces, {name: np.zeros_like(x) for name, x in tensors.items()})
        whole = all(np.array_equal(back[name], x) for name, x in tensors.items())
        refuse_if(not whole, "join does not bring the arrays back.")


def _train_with_two(
    cls: Any, problem: Any, workers: int, steps: int, lr: float, seed: int
) -> tuple[Tensors, list[int]]:
    """Train as `_train` does, with two servers. Return the parameters, and the bytes that each server received."""
    rng, shards = np.random.default_rng(seed), [problem.shard(worker, workers) for worker in range(workers)]
    start = problem.init(rng)
    held = [cls(copied(piece), workers, lr) for piece in cls.split(start, 2)]
    received = [0, 0]
    for _ in range(steps):
        gradients = _gradients(shards, cls.join([_pulled(one, 0) for one in held], start), rng)
        orders = np.random.default_rng(rng.integers(1 << 30))
        for i, server in enumerate(held):
            pushes = [cls.split(gradient, 2)[i] for gradient in gradients]
            received[i] += sum(len(cls.pack(push)) for push in pushes)
            _pushed(server, pushes, orders.permutation(workers).tolist())
    return cls.join([_pulled(one, 0) for one in held], start), received


@reaches(
    "ssp",
    "Ho et al. 2013, NIPS",
    "https://proceedings.neurips.cc/paper/2013/hash/b7bb35b9c6ca2aee2df08cf09d7016c2-Abstract.html",
    lesson="wait",
    until="stale",
)
def bounded_staleness(cls: type, rng: np.random.Generator) -> str:
    """A worker at clock c reads all updates of the clocks before c − `staleness`, and fast workers run ahead."""
    lacks = not hasattr(cls, "staleness")
    refuse_if(lacks, "Your server has no `staleness`. Exercise wait.2 of lesson 16 adds it.")
    reads = 0
    for staleness in (0, 1, *rng.choice(range(2, 8), 2, replace=False).tolist()):
        for slow in (True, False):
            workers = int(rng.integers(3, 7))
            late = {int(rng.integers(workers)): 6.0} if slow else {}
            delays = ps.Delays(seconds=1.0, slow=late, exponential=True)
            run = _Race(cls, staleness, workers, delays, int(rng.integers(1 << 30)))
            reads += run.to_the_end()
            early = f"{run.told} no read misses more than {run.most} clocks: workers wait earlier than they must."
            refuse_if(slow and run.most < staleness, early)
    return f"Each of {reads} reads lay within its bound: 8 runs, staleness 0 to 7, with and without a slow worker."


class _Race:
    """A run in virtual time. The parameters count each worker's updates, so a read shows what it has missed."""

    def __init__(self, cls: type, staleness: int, workers: int, delays: ps.Delays, seed: int) -> None:
        bounded: Any = type("Server", (cls,), {"staleness": staleness})
        self.server = bounded({"count": np.zeros(workers)}, workers, 0.5)
        self.staleness, self.workers, self.delays, self.seed = staleness, workers, delays, seed
        self.clocks, self.ends = [0] * workers, dict[int, float]()
        self.now, self.most, self.reads, self.steps = 0.0, 0, 0, 10 + 4 * staleness
        self.sent = dict[int, str]()

    def to_the_end(self) -> int:
        """Return the number of reads. Raises `Refused` if one breaks the bound, or if a worker waits for ever."""
        for worker in range(self.workers):
            self.send(worker, "pull", {})
        while self.ends:
            worker = min(self.ends, key=self.ends.__getitem__)
            self.now = self.ends.pop(worker)
            self.clocks[worker] += 1
            self.send(worker, "push", {"count": -2.0 * self.workers * np.eye(self.workers)[worker]})
        stuck = [worker for worker in range(self.workers) if self.clocks[worker] < self.steps]
        refuse_if(stuck, f"{self.told} workers {stuck} wait for ever: their clocks are {self.clocks}.")
        return self.reads

    @property
    def told(self) -> str:
        return f"With staleness = {self.staleness} and {self.workers} workers,"

    def send(self, worker: int, kind: str, tensors: Tensors) -> None:
        """Send a message, and let each worker that gets an answer go on."""
        self.sent[worker] = kind
        for to, (said, values) in _handled(self.server, worker, kind, tensors):
            wanted = {"pull": "params", "push": "applied"}.get(self.sent.pop(to, ""))
            refuse_if(said != wanted, f"{self.told} worker {to} got {said!r}, and waits for {wanted or 'nothing'}.")
            if said == "params":
                self.read(to, values["count"])
                self.ends[to] = self.now + self.delays.of(to, self.clocks[to], self.seed)
            elif self.clocks[to] < self.steps:
                self.send(to, "pull", {})

    def read(self, worker: int, count: Any) -> None:
        """Refuse what a worker reads unless it holds enough of each worker's updates, and no more than there are."""
        clock, seen = self.clocks[worker], np.rint(count).astype(int).tolist()
        self.reads += 1
        where = f"{self.told} worker {worker} read {seen} updates of the workers at its clock {clock};"
        refuse_if(min(seen) < clock - self.staleness, f"{where} the bound is {clock - self.staleness} of each or more.")
        refuse_if(seen[worker] != clock, f"{where} its own are {clock}.")
        refuse_if(any(a > b for a, b in zip(seen, self.clocks, strict=True)), f"{where} there are only {self.clocks}.")
        self.most = max(self.most, clock - min(seen))


@reaches(
    "onebit",
    "Seide et al. 2014, Interspeech",
    "https://doi.org/10.21437/Interspeech.2014-274",
    lesson="remember",
    until="wait",
)
def one_bit(cls: Any, rng: np.random.Generator) -> str:
    """Gradients travel as one bit for each value, with error feedback; the model is as good as without compression."""
    for names, where in (
        (("encode", "decode"), "bits.2 of lesson 08"),
        (("compensate", "remember"), "remember.2 of lesson 10"),
    ):
        missing = [name for name in names if not hasattr(cls, name)]
        refuse_if(missing, f"Your server has no {' and no '.join(missing)}. Exercise {where} adds them.")
    rows = int(rng.integers(300, 600))
    tensors = {"W": rng.normal(size=(rows, 5)).astype("f4"), "b": rng.normal(size=5).astype("f4")}
    sent, values = nbytes(encoded(cls, tensors)), sum(x.size for x in tensors.values())
    limit = values / 8 + sum(16 + 8 * x.shape[-1] for x in tensors.values())
    refuse_if(
        sent > limit,
        f"Your encode makes {8 * sent / values:.1f} bits of each value. A value may have one bit, and each column of a "
        f"tensor two numbers. Write an encode and a decode with np.packbits, {_section('onebit')}.",
    )
    with case("Its memory, which is the error feedback:"):
        check_memory(cls, rng)
    return _as_good_as_exact(cls, rng)


def _as_good_as_exact(cls: Any, rng: np.random.Generator) -> str:
    """Refuse a class unless its runs end with the accuracy and the loss of exact runs, on the mean of three seeds."""
    workers, steps, lr, ends = 4, 150, 2.0, []
    for seed in rng.integers(1 << 30, size=3).tolist():
        problem = ps.SoftmaxRegression(*ps.datasets.digits(seed=seed))
        memories: list[Tensors] = [{} for _ in range(workers)]
        like = problem.init(rng)

        def send(
            worker: int, gradients: list[Tensors], memories: list[Tensors] = memories, like: Tensors = like
        ) -> Tensors:
            whole = cls.compensate(gradients[worker], memories[worker])
            parts = method(cls, "unpack")(method(cls, "pack")(cls.encode(whole)))
            brought: Tensors = cls.decode(parts, like)
            memories[worker] = cls.remember(whole, cls.decode(parts, gradients[worker]))
            return brought

        runs = [_train(one, problem, workers, steps, lr, seed, how) for one, how in ((_exact(), None), (cls, send))]
        ends.append([(_accuracy(problem, params), problem.loss_and_gradient(params)[0]) for params in runs])
    (right, loss), (reached, left) = np.mean(ends, axis=0)
    said = f"{reached:.1%} of the held-out digits with one bit, {right:.1%} exactly"
    refuse_if(not reached >= right - 0.015, f"Three runs of {steps} steps: {said}.")
    told = f"Three runs of {steps} steps end with a loss of {left:.3f}, exact ones with {loss:.3f}."
    refuse_if(not left <= 1.25 * loss, f"{told} Error feedback closes this gap.")
    return f"{said}: the means of three runs of {steps} steps."


def _noise(rng: np.random.Generator, gradient: Tensors, honest: Sequence[Tensors]) -> Tensors:
    return {name: 100 * rng.normal(size=x.shape) for name, x in gradient.items()}


def _uphill(rng: np.random.Generator, gradient: Tensors, honest: Sequence[Tensors]) -> Tensors:
    return {name: -10 * x for name, x in gradient.items()}


def _agreed(rng: np.random.Generator, gradient: Tensors, honest: Sequence[Tensors]) -> Tensors:
    """Both liars send this, in every step."""
    return {name: 50 * np.cos(np.arange(x.size)).reshape(x.shape) for name, x in gradient.items()}


def _turned(rng: np.random.Generator, gradient: Tensors, honest: Sequence[Tensors]) -> Tensors:
    """Two such pushes turn the mean of the round around."""
    return {name: -np.sum([one[name] for one in honest], axis=0) for name in gradient}


LIES: dict[str, Lie] = {
    "send noise": _noise,
    "go uphill": _uphill,
    "agree on a direction": _agreed,
    "turn the mean around": _turned,
}


@reaches(
    "lies",
    "Blanchard et al. 2017, NIPS",
    "https://arxiv.org/abs/1703.02757",
    lesson="trust",
    until="wait",
)
def two_of_seven_lie(cls: Any, rng: np.random.Generator) -> str:
    """Two of seven workers lie, and the model still trains."""
    workers, steps, lr, seed = 7, 40, 0.5, int(rng.integers(1 << 30))
    problem = ps.SoftmaxRegression(*ps.datasets.digits(seed=seed))
    honest = _accuracy(problem, _train(_exact(), problem, workers, steps, lr, seed))
    turns = rng.permutation(workers).tolist()
    pairs = [*zip(turns[::2], turns[1::2], strict=False), (turns[-1], turns[0])]  # each worker lies in some run
    least = 1.0
    for (what, lie), liars in zip(LIES.items(), rng.permutation(pairs).tolist(), strict=True):

        def send(worker: int, gradients: list[Tensors], lie: Lie = lie, liars: list[int] = liars) -> Tensors:
            if worker not in liars:
                return gradients[worker]
            told = lie(rng, gradients[worker], [g for one, g in enumerate(gradients) if one not in liars])
            return {name: np.asarray(x, gradients[worker][name].dtype) for name, x in told.items()}

        with case(f"Workers {liars[0]} and {liars[1]} of {workers} {what}:"):
            reached = _accuracy(problem, _train(cls, problem, workers, steps, lr, seed, send))
            refuse_if(
                not reached >= honest - 0.15,
                f"the model reads {reached:.0%} of the held-out digits, and {honest:.0%} if nobody lies. Combine a "
                "round's gradients by a rule of lesson 18, such as a median or Krum, in a handle that stands "
                f"{_section('lies')}.",
            )
        least = min(least, reached)
    said = f"the model read {least:.0%} of the held-out digits or more, and {honest:.0%} if nobody lies"
    return f"In four runs, each with other lies and liars, {said}."
