"""The presence of a server's workers: the client of each, its connections, and when the server last heard it.

A client has an identity, which it keeps when it connects again. No other client can be the same worker while this one
is connected and not silent. The server does not tell apart clients without an identity (version 1 of the protocol).
"""

from minips.core.message import Header
from minips.core.shard import Shard
from minips.results.status import WorkerStatus


class Attending:
    """A connection over which a worker may say hello."""

    client = ""
    """The identity from its hello."""


class Presence:
    """One worker as its server sees it: the connections on which it said hello, when the server last heard it, and the
    bytes between the two; and the rows of its shard, if it has told them.
    """

    def __init__(self, now: float) -> None:
        self.connections: set[Attending] = set()
        self.busy = 0
        """Requests under way."""
        self.heard = now
        self.client = ""
        """The identity of the worker's client."""
        self.lost = False
        """True where its connection closed without a goodbye."""
        self.parted = False
        """True where the client has said goodbye; the server then refuses a hello of it with ``again``."""
        self.informed = False
        """True once an answer has told it that the run is over."""
        self.leaves = False
        """True where it will leave its part of the run's state with its goodbye."""
        self.rows = 0.0
        self.received = self.sent = 0
        """Bytes of frames."""

    def leave(self, connection: Attending) -> None:
        """Take a goodbye over a connection; that of a client with an identity holds for all its connections."""
        self.connections.discard(connection)
        if self.client:
            self.connections.clear()
        self.lost, self.leaves, self.parted = False, False, bool(self.client)


class Attendance:
    """The presence of all the workers. The server's lock is held around each call; ``present`` may be read without."""

    def __init__(self, shard: Shard, silence_s: float) -> None:
        self.shard, self.silence_s = shard, silence_s
        self.present = [Presence(shard.now()) for _ in range(shard.workers)]
        self.waiting: set[int] = set()
        """The workers whose requests wait for other workers."""
        self.began_at: float | None = None
        """When all the workers were first connected or, until then, the first one."""
        self._complete = False
        self._clocks = [*shard.clocks]
        self._looked = shard.now()

    @property
    def connected(self) -> int:
        """The number of workers that have a connection."""
        return sum(1 for presence in self.present if presence.connections)

    def admit(self, connection: Attending, header: Header) -> None:
        """Admit a client that says hello over a connection: as the worker that it names or, where that is -1, as the
        first free one. ValueError where another client is that worker.
        """
        client, worker, now = header.get("client", ""), header.get("worker"), self.shard.now()
        if not isinstance(client, str):
            raise ValueError(f"A client's identity is a text of its own choice; got {client!r}.")
        if worker == -1 and client:
            worker = header["worker"] = self._free(client)
        presence = self.present[self.shard.validate_worker(worker)]
        if presence.client != client:
            if presence.connections and worker in self.shard.live:
                raise ValueError(
                    f"Worker {worker} is connected already, from another client, which was heard "
                    f"{now - presence.heard:.1f} s ago. Connect as another worker, or as the first that is free "
                    f"(worker=None, --rank auto). After {self.silence_s:g} s of silence this one is free, too."
                )
            presence.connections.clear()  # of the other client, which is silent
        elif presence.parted and header.get("again"):
            raise ValueError(f"This client was worker {worker}, and has said goodbye.")
        presence.rows = header.get("rows", presence.rows if presence.client == client else 0.0)
        presence.client = connection.client = client
        presence.connections.add(connection)
        presence.lost = presence.parted = False
        self.began_at = now if self.began_at is None else self.began_at
        if not self._complete and self.connected == self.shard.workers:
            self.began_at, self._complete = now, True

    def gone(self) -> bool:
        """True where workers have pushed here and all have left; for ``silence_s``, a lost one may still come back."""
        latest, live = self.shard.now() - self.silence_s, self.shard.live
        here = any(
            (presence.connections and worker in live)
            or ((presence.connections or presence.lost) and presence.heard > latest)
            for worker, presence in enumerate(self.present)
        )
        return self.shard.clocks != self._clocks and not here

    def silent(self) -> list[tuple[int, str]]:
        """The connected workers that were silent for ``silence_s``, and a sentence on each. The driver asks every
        quarter of that time; where this process was itself paused, the silence begins anew.
        """
        shard, now = self.shard, self.shard.now()
        paused, self._looked = now - self._looked > self.silence_s / 2, now
        gone = []
        for worker, presence in enumerate(self.present):
            if paused:
                presence.heard = now
            silent = now - presence.heard
            if presence.connections and not presence.busy and silent > self.silence_s and worker in shard.live:
                gone.append((worker, f"worker {worker} has been silent for {silent:.1f} s: it no longer counts"))
        return gone

    def lost(self, connection: Attending) -> list[int]:
        """Drop a connection that has closed. Returns the workers that have no other one; they may come back."""
        lost = []
        for worker, presence in enumerate(self.present):
            if connection in presence.connections:
                presence.connections.discard(connection)
                presence.lost = not presence.connections
                if presence.lost:
                    lost.append(worker)
        return lost

    def behind(self, worker: int) -> list[int]:
        """The other workers at the slowest clock."""
        shard, slowest = self.shard, self.shard.slowest()
        return [other for other in sorted(shard.live) if other != worker and shard.clocks[other] <= slowest]

    def status(self) -> list[WorkerStatus]:
        """A row for each worker."""
        now, shard = self.shard.now(), self.shard
        return [
            WorkerStatus(
                worker=worker,
                connected=bool(presence.connections),
                counts=worker in shard.live,
                clock=shard.clocks[worker],
                heard_s=now - presence.heard,
                waits_for=self.behind(worker) if worker in self.waiting else [],
                received=presence.received,
                sent=presence.sent,
            )
            for worker, presence in enumerate(self.present)
        ]

    def _free(self, client: str) -> int:
        """The worker of this client or else the first free one. A worker whose connection was lost comes last, as its
        client may come back. ValueError where there is none.
        """
        free = [
            worker
            for worker, presence in sorted(enumerate(self.present), key=lambda pair: pair[1].lost)
            if not presence.connections and (not presence.client or worker not in self.shard.live)
        ]
        mine = [worker for worker, presence in enumerate(self.present) if presence.client == client]
        if not (mine or free):
            raise ValueError(
                f"All {self.shard.workers} workers are connected already. Config.workers says how many there are."
            )
        return (mine or free)[0]
