"""The supervisor of a run on one machine: it starts the members, runs them, and ends them, whatever happens.

`Threads` and `Processes` differ in how a member is started and ended; everything else stands here.
"""

import secrets
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from minips.core.collectives import AllReduce
from minips.core.config import Config
from minips.core.partition import join
from minips.core.trace import Trace
from minips.engines import roles
from minips.engines.base import Engine, Outcome, Progress
from minips.engines.replica import check_same, requantization_error
from minips.problems import Problem
from minips.stage import Tensors

START_S = 60.0
"""How long the crew may take to be ready."""
FAREWELL_S = 5.0
"""How long a member may take to report and leave after it was told to stop."""
GRACE_S = 2.0
"""How long the reason may take to come in after a worker has found another one gone."""


class Member(ABC):
    """One role that was started, and this side of its pipe."""

    def __init__(self, who: str, pipe: Any) -> None:
        self.who, self.pipe = who, pipe
        self.ready: Any = None
        self.met = self.finished = self.gone = False
        self.applied = 0
        self.rows: list[tuple[float, int, float]] = []
        self.result: dict[str, Any] | None = None

    @abstractmethod
    def brief(self, role: Callable[..., Any], parts: dict[str, Any]) -> None:
        """Tell the member what it is."""

    def say(self, word: str, value: Any = None) -> None:
        """Tell the member meet, go or stop. Where it is gone, its pipe tells."""
        with suppress(OSError):
            self.pipe.send((word, value))

    @abstractmethod
    def end(self, timeout: float) -> str:
        """Wait for the member's end, enforce it after ``timeout`` seconds, let go of all it held; how it ended, in
        words.
        """


class LocalEngine(Engine):
    """An engine whose crew lives on this machine."""

    @abstractmethod
    def start(self, *names: str) -> list[Member]:
        """Start members, which wait for their briefings."""

    def run(
        self,
        problem: Problem,
        config: Config,
        params: Tensors,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Outcome:
        exchange = config.exchange if isinstance(config.exchange, AllReduce) else None
        shards = [problem.shard(worker, config.workers) for worker in range(config.workers)]
        crew = _Crew(config, watch, stop)
        try:
            servers = [f"server {index}" for index in range(0 if exchange else config.servers)]
            with ctrl_c_later():
                members = self.start(*servers, *(f"worker {worker}" for worker in range(config.workers)))
                crew.servers, crew.workers = members[: len(servers)], members[len(servers) :]
            common = {"config": config, "token": secrets.token_hex(16)}
            for index, member in enumerate(crew.servers):
                member.brief(roles.serve, {**common, "params": params, "index": index})
            for worker, member in enumerate(crew.workers):
                parts = {**common, "problem": shards[worker], "worker": worker}
                if exchange:
                    member.brief(roles.run_allreduce_worker, {**parts, "params": params, "exchange": exchange})
                else:
                    member.brief(roles.run_ps_worker, parts)
            return crew.conduct()
        finally:
            crew.dismiss()


def multiprocess() -> Any:
    """The library of that name. RuntimeError where it does not work, as in a browser's Python."""
    try:
        import multiprocess.connection
        import multiprocess.resource_tracker  # from Python 3.13 on the part above works without what this one needs
    except ImportError as error:
        raise RuntimeError(
            f"Servers and workers need the library multiprocess, and here it does not work: {error}. "
            "The engine Simulated() needs neither processes nor threads."
        ) from error
    return multiprocess


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Hold a Ctrl-C, and a SIGTERM, back until the block has ended, so that no member of the crew is left half started
    and none is forgotten.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not None}
    if threading.current_thread() is not threading.main_thread():
        yield  # Python interrupts the main thread alone
        return
    came: list[int] = []
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for held in came:
            signal.raise_signal(held)


class _Crew:
    def __init__(self, config: Config, watch: Callable[[Progress], None], stop: Callable[[], bool]) -> None:
        self.config, self.watch, self.stop = config, watch, stop
        self.servers: list[Member] = []
        self.workers: list[Member] = []
        self.losses: list[tuple[float, int, float]] = []
        self.events: list[tuple[float, str]] = []
        self.began = time.monotonic()
        self.ending = False
        self.alone: tuple[float, str] | None = None
        self.diverged: str | None = None

    @property
    def hosts(self) -> list[Member]:
        """Those who serve, hold parameters and know when the run is over: the servers or, without any, the workers."""
        return self.servers or self.workers

    @property
    def tellers(self) -> list[Member]:
        """Those who count what was applied: the first server, which sees all pushes, or every worker its own steps."""
        return self.servers[:1] or self.workers

    def conduct(self) -> Outcome:
        """The whole run: all members ready, go, all updates applied, reports."""
        stopped = not (self._gather() and self._listen(lambda: all(host.finished for host in self.hosts)))
        if stopped and not self.servers:
            self._halt()
        self.ending = True
        self._collect(self.workers)
        self._collect(self.servers)
        return self._outcome(stopped)

    def _gather(self) -> bool:
        """Bring hosts and workers together, and say go; False where the run is to be stopped before."""
        if not self._listen(lambda: all(host.ready for host in self.hosts), START_S):
            return False
        for worker in self.workers:
            worker.say("meet", [host.ready for host in self.hosts])
        if not self._listen(lambda: all(worker.met for worker in self.workers), START_S):
            return False
        self.began = time.monotonic()
        for worker in self.workers:
            worker.say("go")
        return True

    def _halt(self) -> None:
        """Replicas stay the same: the workers end together, after the step that they are in."""
        for worker in self.workers:
            worker.say("halt")
        limit = self.config.timeout_s + FAREWELL_S
        self._listen(lambda: all(worker.finished for worker in self.workers), limit, halting=True)

    def _collect(self, members: list[Member]) -> None:
        for member in members:
            member.say("stop")
        self._listen(lambda: all(member.result or member.gone for member in members), FAREWELL_S)

    def dismiss(self) -> None:
        """End all members, workers first."""
        members = [*self.workers, *self.servers]
        for member in members:
            member.say("stop")
        for member in members:
            member.end(FAREWELL_S)

    def _listen(self, until: Callable[[], bool], limit: float | None = None, halting: bool = False) -> bool:
        """Hear the crew out until ``until()`` holds: True; False where the run is to be stopped.

        RuntimeError after ``limit`` seconds, and where a member failed.
        """
        deadline = time.monotonic() + limit if limit else float("inf")
        while not until():
            if self.stop() and not (self.ending or halting):
                return False
            if time.monotonic() > deadline:
                if self.ending:
                    return False
                raise RuntimeError(self._overdue(halting, limit or 0))
            if self.alone and time.monotonic() > self.alone[0] + GRACE_S:
                raise RuntimeError(self.alone[1])
            present = {member.pipe: member for member in (*self.servers, *self.workers) if not member.gone}
            for pipe in multiprocess().connection.wait(list(present), 0.1):
                self._hear(present[pipe])
        return True

    def _overdue(self, halting: bool, limit: float) -> str:
        if halting:
            late = [worker for worker in self.workers if not worker.finished]
            words = f"did not end their step within {limit:g} seconds after the run was stopped."
        else:
            late = [host for host in self.hosts if not host.ready] or [one for one in self.workers if not one.met]
            words = f"did not start within {limit:g} seconds. Is the machine overloaded?"
        return f"{', '.join(member.who for member in late)} {words}"

    def _hear(self, member: Member) -> None:
        try:
            word, value = member.pipe.recv()
        except (EOFError, OSError):
            member.gone = True
            if not (member.result or self.ending):
                self._lost(member)
            return
        if word == "ready":
            member.ready = value
        elif word == "met":
            member.met = True
        elif word == "finished":
            member.finished = True
        elif word == "result":
            member.result = value
        elif word == "diverged":
            self.diverged = self.diverged or value
            for server in self.servers:
                server.say("diverged", value)
        elif word == "progress" and member in self.tellers:
            self._progress(member, *value)
        elif word == "log":
            self._note(f"{member.who}: {value}")
        elif word == "alone":
            self.alone = self.alone or (time.monotonic(), f"{member.who} failed: {value}")
        elif word == "failed":
            text, details = value
            if self.ending:
                self._note(f"{member.who}, while it was ending: {text}")
                member.gone = True
                return
            error = RuntimeError(f"{member.who} failed: {text}")
            error.add_note(details)
            raise error

    def _progress(self, member: Member, applied: int, rows: list[tuple[float, int, float]]) -> None:
        member.applied = applied
        member.rows += rows
        told = sum(teller.applied for teller in self.tellers)
        self.losses += self._rows([teller.rows[len(self.losses) :] for teller in self.tellers])
        self.watch(Progress(told, self.config.workers * self.config.steps, self.losses))

    def _rows(self, told: list[list[tuple[float, int, float]]]) -> list[tuple[float, int, float]]:
        """One row for each step that all the tellers have told: when the last one had made it, the mean loss."""
        return [
            (max(at for at, _, _ in rows) - self.began, rows[0][1], sum(loss for _, _, loss in rows) / len(rows))
            for rows in zip(*told, strict=False)
        ]

    def _lost(self, member: Member) -> None:
        how = f"{member.who} ended before its work was done: {member.end(FAREWELL_S)}."
        self._note(how)
        if member in self.hosts or not member.met or all(worker.gone for worker in self.workers):
            raise RuntimeError(how)

    def _note(self, text: str) -> None:
        self.events.append((time.monotonic() - self.began, text))

    def _outcome(self, stopped: bool) -> Outcome:
        reports = [host.result for host in self.hosts if host.result]
        if len(reports) < len(self.hosts):
            who = "server" if self.servers else "worker"
            raise RuntimeError(f"A {who} ended without its report, so the parameters are lost.")
        everybody = [member.result for member in (*self.servers, *self.workers) if member.result]
        work = [worker.result for worker in self.workers if worker.result]
        counts = [teller.result for teller in self.tellers if teller.result]
        parts = reports if self.servers else reports[:1]
        digests = [] if self.servers else [report["digest"] for report in reports]
        check_same(digests)
        events = [
            (at - self.began, f"server {i}: {text}")
            for i, report in enumerate(reports)
            for at, text in report["events"]
        ]
        return Outcome(
            params=join([report["params"] for report in parts], [report["layout"] for report in parts]),
            seconds=max(max(report["changed_at"] for report in reports) - self.began, 0.0),
            losses=self._rows([report["losses"] for report in counts]),
            applied=sum(report["applied"] for report in counts),
            late=sum(report["late"] for report in counts),
            stopped=stopped,
            diverged=self.diverged,
            bytes_sent=sum(report["bytes_sent"] for report in work),
            bytes_received=sum(report["bytes_received"] for report in work),
            staleness=sum((report["staleness"] for report in counts), Counter()),
            grants=[grant for report in counts for grant in report["grants"]],
            events=sorted([*self.events, *events]),
            trace=sum((report["trace"] for report in everybody), Trace()).since(self.began),
            requantization_error=None if self.servers else requantization_error([one["samples"] for one in reports]),
            replicas=digests,
        )
