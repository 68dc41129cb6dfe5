"""The milestones of a learner's own server: four papers, and the check of a server that does what each describes."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import refuse_if
from minips.lab.course.milestones import reaches
from minips.lab.course.own import method
from minips.stage import Tensors
from minips_course.arrays import copied

Answers = list[tuple[int, tuple[str, Any]]]


def _handled(server: Any, worker: int, kind: str, tensors: Tensors) -> Answers:
    """Return the server's answers to a message. Messages and answers travel as the bytes that the class makes."""
    answers: Answers = server.handle(worker, (kind, _carried(server, tensors)))
    for to, (said, values) in answers:
        refuse_if(said == "error", f"Your server refused worker {worker}'s {kind}: {values}")
        refuse_if(said not in ("applied", "params"), f"Your server answered worker {to} with {said!r}.")
    return [(to, (said, _carried(server, values))) for to, (said, values) in answers]


def _carried(server: Any, tensors: Tensors) -> Tensors:
    cls = type(server)
    return copied(method(cls, "unpack")(method(cls, "pack")(tensors)))


@reaches(
    "ssp",
    "Ho et al. 2013, NIPS",
    "https://proceedings.neurips.cc/paper/2013/hash/b7bb35b9c6ca2aee2df08cf09d7016c2-Abstract.html",
    lesson="wait",
    until="stale",
)
def bounded_staleness(cls: type, rng: np.random.Generator) -> str:
    """No read misses more than the last `staleness` clocks of any worker, and fast workers run ahead."""
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
