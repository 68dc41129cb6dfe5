"""Runs the servers and workers of a training run as a supervisor's children, from their start to the results.

`Threads`, `Processes` and `Ray` start and end children differently; this module does everything else.
"""

import secrets
import time
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any, cast

from minips.core.exchange import PS
from minips.core.partition import join
from minips.core.states import Supervision
from minips.engines import roles
from minips.engines.base import NEVER, Engine, Restarts, TrainingJob
from minips.engines.replica import check_replicas, requantization_error
from minips.engines.supervisor import FAREWELL_S, Child, Start, Supervisor, send_all
from minips.engines.worker import shards_of
from minips.results.checkpoints import Checkpoint
from minips.results.run import Progress, Rows, Run
from minips.results.state import SavedState, WorkerState, state_of
from minips.results.trace import Trace

START_S = 60.0
"""The longest time in which all children must be ready, in seconds."""
REPORT_S = 60.0
"""The longest wait for the parameters' holders to report, in seconds; nothing else could replace these reports."""
GRACE_S = 2.0
"""The seconds to wait for the failure report of a worker that another worker has found gone."""


class LocalEngine(Engine):
    """An engine that runs servers and workers on this machine."""

    @property
    def restarts(self) -> Restarts:
        """The restarts of processes that have died."""
        return NEVER

    @abstractmethod
    def start(self, *names: str) -> list[Child]:
        """Start children that wait for their roles. If one cannot start, end all of them."""

    def run(self, job: TrainingJob) -> Run:
        with kept_for(self.restarts, job) as kept, RunSupervisor(self.start, kept, self.restarts) as supervisor:
            return supervisor.run()


@contextmanager
def kept_for(restarts: Restarts, job: TrainingJob) -> Iterator[TrainingJob]:
    """The job, kept in a folder of the run if it has no other, so that what dies can be started again."""
    if job.checkpoint or not restarts.times:
        yield job
        return
    with TemporaryDirectory(prefix="minips-run-") as folder:
        yield job._replace(checkpoint=Checkpoint(folder))


class _StoppedError(Exception):
    """The run was stopped before its updates were applied."""


class _LostRankError(Exception):
    """A rank of an all-reduce has died, and all of them start again."""


class RunSupervisor(Supervisor):
    """The supervisor of a run. ``holders`` are the children that hold parameters and know when the run has ended; the
    ``reporters`` among them count the updates.
    """

    def __init__(self, start: Start, job: TrainingJob, restarts: Restarts = NEVER) -> None:
        super().__init__(start, self._check_end)
        self.job, self.config, self.watch, self.restarts = job, job.config, job.watch, restarts
        self._assigned: dict[Child, tuple[Callable[..., Any], dict[str, Any]]] = {}
        """Each child's role and its arguments."""
        self._restarted = Counter[str]()
        self._told: list[str] = []
        """The words that ended the run, for a server that is started again."""
        self._evaluated = 0
        """The clock of the last evaluation."""
        self.rows: defaultdict[Child, Rows] = defaultdict(list)
        self.made: dict[Child, tuple[int, int, int]] = {}
        """Maps each reporter to its applied pushes, those expected at the run's end, and the clocks of all workers."""
        self.losses: Rows = []
        self.events: list[tuple[float, str]] = []
        self.called = self.began = time.monotonic()
        self.state = Supervision.BRIEFING
        self.stopped = False
        """True if the run was asked to end early, or failed."""
        self.lost_peer: tuple[float, str] | None = None
        """The time at which a worker first found another one gone, and its error."""
        self.diverged: str | None = None

    def run(self) -> Run:
        """Start all children, send go, wait until all updates are applied, and collect the reports."""
        try:
            while True:
                self._assign_roles()
                try:
                    self._connect()
                    self.wait(lambda: all("finished" in holder.received for holder in self.holders))
                    break
                except _LostRankError as lost:
                    self._end_ranks(lost)
        except _StoppedError:
            self._end_at_a_clock()
        except Exception as error:  # from a child or a callback
            if self.state in (Supervision.RUNNING, Supervision.ENDING):  # not if the parameters are lost
                with suppress(Exception):
                    self.stopped, self.watch = True, lambda progress: None  # the callback may have raised the error
                    if self.state is Supervision.RUNNING:
                        self._end_at_a_clock()
                    error.run = self._ended()  # type: ignore[attr-defined]
            raise
        return self._ended()

    def _ended(self) -> Run:
        """Collect the reports of all children, and return the results."""
        limit = FAREWELL_S if self.servers or self.state is Supervision.ENDING else REPORT_S
        self._on("end")
        self._tell_servers("end")  # so no worker waits for another; sent before a goodbye can complete a round
        self.wait(lambda: all("finished" in server.received or server.gone for server in self.servers), limit)
        self._collect(self.workers, limit)
        self._collect(self.servers, REPORT_S)
        self._on("report")
        return self._results()

    def _on(self, event: str) -> None:
        self.state = self.state.after(event)

    def _end_at_a_clock(self) -> None:
        """End all holders at one clock, unless the workers take too long to reach it."""
        if not self.servers:
            self._halt()
        elif self.state is Supervision.RUNNING:
            self._on("end")
            send_all(self.servers, "pause")
            if self.wait(lambda: all("pausing" in server.received for server in self.servers), FAREWELL_S):
                send_all(self.servers, "pause", max(server.received["pausing"] for server in self.servers))
            if not self.wait(lambda: all("finished" in server.received for server in self.servers), FAREWELL_S):
                words = f"not all servers reached one clock within {FAREWELL_S:g} seconds after the run was stopped"
                self._note(f"{words}: a run resumed from here may differ from an undisturbed one")

    def _assign_roles(self) -> None:
        """Start all children, and assign them their roles."""
        config, state, workers = self.config, self.job.state, range(self.config.workers)
        shards = [*map(shards_of(self.job.problem, config), workers)]
        servers = [f"server {index}" for index in range(config.servers) if isinstance(config.exchange, PS)]
        self.start(*servers, *(f"worker {worker}" for worker in workers))
        self.servers, self.workers = self.children[: len(servers)], self.children[len(servers) :]
        self.holders = self.servers or self.workers
        self.reporters = self.servers[:1] or self.workers  # the first server sees all pushes; a worker only its steps
        every = self.job.evaluation.every if self.job.evaluation else None
        common = {"config": config, "token": secrets.token_hex(16), "every": every}
        folder = self.job.checkpoint
        held = folder.secrets(config.workers) if folder else [secrets.token_hex(16) for _ in workers]
        whole = {**common, "params": self.job.params}
        for index, child in enumerate(self.servers):
            parts = {**whole, "index": index, "address": child.address, "tables": self.job.problem.tables}
            parts |= {"checkpoint": folder, "rank_secrets": held, "state": state and state["servers"][index]}
            self._assign(child, roles.serve, {**parts, "rejoin_s": self.restarts.rejoin_s})
        ranks = folder.ranks(config.workers) if folder and not self.servers else []
        for worker, child in enumerate(self.workers):
            meeting = {**whole, "address": child.address, "checkpoint": folder}
            if ranks:
                meeting |= {"params": ranks[worker]["params"], "losses": ranks[worker]["losses"]}
            known = {**common, "secrets": [held[worker]] * len(self.servers), "checkpoint": folder}
            role, parts = (roles.run_ps_worker, known) if self.servers else (roles.run_allreduce_worker, meeting)
            kept = ranks[worker]["state"] if ranks else state and state["workers"][worker]
            self._assign(child, role, {**parts, "problem": shards[worker], "worker": worker, "state": kept})
        self._on("brief")

    def _assign(self, child: Child, role: Callable[..., Any], parts: dict[str, Any]) -> None:
        self._assigned[child] = role, parts
        kill = self.job.faults.kill if self.job.faults else {}
        first = not self._restarted[child.who]
        dies = {"kill_at": kill[child.who]} if first and child.who in kill else {}
        child.assign(role, {**parts, **dies})

    def _connect(self) -> None:
        """Connect the workers to the holders of parameters, and send go."""
        words = f"did not start within {START_S:g} seconds. Is the machine overloaded?"
        self._all(self.holders, "ready", START_S, words)
        send_all(self.workers, "connect", [holder.received["ready"] for holder in self.holders])
        self._all(self.workers, "connected", START_S, words)
        self.began = time.monotonic()
        self._on("go")
        send_all(self.workers, "go")

    def _halt(self) -> None:
        """End all workers after the same step, so that their replicas stay identical."""
        send_all(self.workers, "halt")
        limit = self.config.timeout_s + FAREWELL_S
        words = f"did not end their step within {limit:g} seconds after the run was stopped."
        self._all(self.workers, "finished", limit, words)

    def _tell_servers(self, word: str) -> None:
        """Send the servers a word that ends the run."""
        self._told.append(word)
        send_all(self.servers, word)

    def _collect(self, children: list[Child], limit: float) -> None:
        if children is self.servers:
            self._tell_servers("stop")
        else:
            send_all(children, "stop")
        if not self.wait(lambda: all(child.done or child.gone for child in children), limit):
            late = [child.who for child in children if not (child.done or child.gone)]
            self._note(f"{', '.join(late)} sent no report within {limit:g} seconds after the end")

    def _all(self, children: list[Child], word: str, limit: float, words: str) -> None:
        """Wait until all children have sent the word. Otherwise raise RuntimeError, which names the late ones."""
        if not self.wait(lambda: all(word in child.received for child in children), limit):
            late = ", ".join(child.who for child in children if word not in child.received)
            raise RuntimeError(f"{late} {words}")

    def _check_end(self) -> None:
        """Raise if the run was stopped, or if a worker found another one gone and no failure report has arrived."""
        if self.state is Supervision.ENDING:
            return
        if not self.stopped and self.job.stop():
            self.stopped = True
            raise _StoppedError
        if self.lost_peer and time.monotonic() > self.lost_peer[0] + GRACE_S:
            self._on("fail")
            raise RuntimeError(self.lost_peer[1])

    def handle(self, child: Child, word: str, value: Any) -> None:
        if word == "diverged":
            self.diverged = self.diverged or value
            send_all(self.servers, "diverged", value)
        elif word == "progress" and child in self.reporters:
            self._progress(child, *value)
        elif word == "log":
            self._note(f"{child.who}: {value}")
        elif word == "alone":
            self.lost_peer = self.lost_peer or (time.monotonic(), f"{child.who} failed: {value}")
        elif word == "paused" and child in self.servers and value[-1] <= self._evaluated:
            child.send("end" if self.stopped else "go on")  # it was started again, and did not get the word
        else:
            child.received[word] = value
            if word == "paused" and all("paused" in holder.received for holder in self.holders):
                self._evaluate([holder.received.pop("paused") for holder in self.holders])

    def _evaluate(self, pauses: list[Any]) -> None:
        """Evaluate the parameters that all paused holders have sent, and send go on or end."""
        if self.stopped and self.servers:  # servers end without being told, at the clock that all of them reach
            return
        assert self.job.evaluation
        parts = [pause for pause in pauses if pause]  # among replicas, only the first sends its parameters
        params = join([part for part, _, _ in parts], [layout for _, layout, _ in parts])
        step = self._evaluated = parts[0][-1]
        seconds = time.monotonic() - self.began
        self.stopped = self.stopped or self.job.evaluation.call(step, params, self.losses, seconds)
        send_all(self.holders, "end" if self.stopped else "go on")

    def failed(self, child: Child, text: str, details: str) -> None:
        if self.state is not Supervision.ENDING:
            self._on("lose a server" if child in self.servers else "fail")
            super().failed(child, text, details)
        self._note(f"{child.who}, while it was ending: {text}")

    def lost(self, child: Child) -> None:
        serves = child in self.servers
        if self.state is Supervision.ENDING and not serves:
            return
        end = child.end(FAREWELL_S)
        if self._restarted[child.who] < self.restarts.times and self._may_restart():
            self._restarted[child.who] += 1
            if not self.servers:
                raise _LostRankError(f"{child.who} ended before its work was done: {end}")
            self._restart(child, end)
            return
        if self.state is Supervision.ENDING:
            return
        how = f"{child.who} ended before its work was done: {end}."
        self._note(how)
        if serves and (folder := self.job.checkpoint) and not self.restarts.times:
            how += f" Go on from what it has acknowledged: resume={folder.folder!r}."
        if child in self.holders or "connected" not in child.received or all(worker.gone for worker in self.workers):
            self._on("lose a server" if child in self.servers else "fail")
            raise RuntimeError(how)

    def _may_restart(self) -> bool:
        """True if a child that has left can go on where it was: in a run or, with servers, at its end."""
        return self.state is Supervision.RUNNING or (self.state is Supervision.ENDING and bool(self.servers))

    def _end_ranks(self, lost: _LostRankError) -> None:
        """End all ranks of an all-reduce, before they start again from the last snapshot that all of them have."""
        self.stop()
        for child in self.children:
            child.end(FAREWELL_S)
        self.children.clear()
        self.rows.clear()
        self.made.clear()
        self.lost_peer = None
        self._on("begin again")
        self._note(f"all workers were started again, since {lost}")

    def _restart(self, child: Child, end: str) -> None:
        """Start a child again, which goes on where it was."""
        addresses = [server.received["ready"] for server in self.servers]
        self.start_again(child)
        role, parts = self._assigned[child]
        if child in self.servers:
            child.received["ready"] = address = addresses[self.servers.index(child)]
            child.assign(role, {**parts, "address": address})
            self.rows[child].clear()  # it tells all of them again
            for word in self._told:
                child.send(word)
        else:
            child.assign(role, parts)
            child.received["connected"] = None
            child.send("connect", addresses)
            child.send("go")
        self._note(f"{child.who} was started again: {end}")

    def _progress(self, child: Child, applied: int, expected: int, clock: int, rows: Rows) -> None:
        self.made[child] = applied, expected, clock
        self.rows[child] += rows
        self.losses += self._means([self.rows[reporter][len(self.losses) :] for reporter in self.reporters])
        applied = sum(applied for applied, _, _ in self.made.values())
        expected = self.made[child][1] * len(self.reporters)
        self.watch(Progress.of(self.config, applied, expected, self.losses))

    def _means(self, reported: list[Rows]) -> Rows:
        """Return a row for each step that all reporters completed: the time of the last to do so, and the mean loss."""
        return [
            (max(at for at, _, _ in rows) - self.began, rows[0][1], sum(loss for _, _, loss in rows) / len(rows))
            for rows in zip(*reported, strict=False)
        ]

    def _note(self, text: str) -> None:
        self.events.append((time.monotonic() - self.began, text))

    def _state(self) -> SavedState:
        workers: list[Any] = [(child.received.get("result") or {}).get("state") for child in self.workers]
        if self.servers:
            return state_of([child.received["result"]["state"] for child in self.servers], workers)
        shard = self.workers[0].received["result"]["shard"]  # the same at all replicas
        return state_of([], [cast(WorkerState, {**worker, "replica": shard}) for worker in workers])

    def _results(self) -> Run:
        reports, work, counts, everybody = (
            [report for child in children if (report := child.received.get("result"))]
            for children in (self.holders, self.workers, self.reporters, self.children)
        )
        whole = len(reports) == len(self.holders)  # from replicas, the first report is enough
        if not whole and (self.servers or "params" not in (reports or [{}])[0]):
            who = "server" if self.servers else "worker"
            raise RuntimeError(f"A {who} ended without its report, so the parameters are lost.")
        parts = reports if self.servers else reports[:1]
        digests = [] if self.servers or not whole else [report["digest"] for report in reports]
        check_replicas(digests)
        updates, missing = counts[0]["applied"] * len(self.reporters), counts[0]["missing"]
        events = [
            (at - self.began, f"server {i}: {text}")
            for i, report in enumerate(reports)
            for at, text in report["events"]
        ]
        return Run(
            config=self.config,
            params=join([report["params"] for report in parts], [report["layout"] for report in parts]),
            losses=self._means([report["losses"] for report in counts]),
            seconds=max(max(report["changed_at"] for report in reports) - self.began, 0.0),
            start_s=self.began - self.called,
            updates=updates,
            missing=missing,
            late=sum(report["late"] for report in counts),
            bytes_sent=sum(report["bytes_sent"] for report in work),
            bytes_received=sum(report["bytes_received"] for report in work),
            staleness=sum((report["staleness"] for report in counts), Counter()),
            grants=[grant for report in counts for grant in report["grants"]],
            trace=Trace.joined([report["trace"] for report in everybody]).since(self.began),
            events=sorted([*self.events, *events]),
            server_rows=[rows for report in reports if (rows := report.get("rows")) is not None],
            state=self._state() if whole else None,
            stopped=self.stopped and updates + missing < self.config.workers * self.config.clocks,
            diverged=self.diverged,
            requantization_error=requantization_error([report["samples"] for report in reports]) if digests else None,
            replicas=digests,
        )
