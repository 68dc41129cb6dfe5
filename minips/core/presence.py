"""The presence of a server's workers: each worker's connections, and when the server last heard from it.

The server accepts a worker's requests only over connections that said hello as that worker. `membership` admits them.
"""

from minips.core.message import Header
from minips.core.shard import Shard


class Attending:
    """A connection over which a worker may say hello."""

    worker = -1
    """The worker in its last hello; -1 before any hello."""


class Presence:
    """One worker as its server sees it: the connections on which it said hello, when the server last heard from it, the
    bytes sent and received, and the rows of its shard, if its hello gave them.
    """

    def __init__(self, now: float) -> None:
        self.connections: set[Attending] = set()
        self.busy = 0
        """The number of requests under way."""
        self.heard = now
        self.secret = ""
        """The secret of the session that holds this rank or held it last."""
        self.lost_at: float | None = None
        """The time at which its last connection closed, if that was without a goodbye."""
        self.parted = False
        """True once it has said goodbye; the server then refuses the session's hellos with ``again``."""
        self.informed = False
        """True once an answer has told the worker that the run is over."""
        self.leaves = False
        """True if its goodbye will contain its part of the run's state."""
        self.rows = 0.0
        self.received = self.sent = 0
        """The bytes of frames."""

    def leave(self) -> None:
        """Note a goodbye, which ends all connections of the worker."""
        self.connections.clear()
        self.lost_at, self.leaves, self.parted = None, False, True


class Attendance:
    """The presence of all the workers. Callers hold the server's lock for each call, but not to read ``present``."""

    def __init__(self, shard: Shard, silence_s: float) -> None:
        self.shard, self.silence_s = shard, silence_s
        self.present = [Presence(shard.now()) for _ in range(shard.workers)]
        self.waiting: set[int] = set()
        """The workers whose requests wait for other workers."""
        self.began_at: float | None = None
        """The time at which all the workers were first connected or, until then, at which the first one connected."""
        self._complete = False
        self._clocks = [*shard.clocks]
        self._looked = shard.now()

    @property
    def connected(self) -> int:
        """The number of connected workers."""
        return sum(1 for presence in self.present if presence.connections)

    def attend(self, connection: Attending, worker: int, hello: Header) -> None:
        """Note a connection over which a worker has said ``hello``."""
        presence, now = self.present[worker], self.shard.now()
        presence.rows = hello.get("rows", presence.rows)
        connection.worker = worker
        presence.connections.add(connection)
        presence.lost_at, presence.parted = None, False
        self.began_at = now if self.began_at is None else self.began_at
        if not self._complete and self.connected == self.shard.workers:
            self.began_at, self._complete = now, True

    def gone(self) -> bool:
        """True if workers have pushed here and all have left; a lost worker may come back within ``silence_s``."""
        latest, live = self.shard.now() - self.silence_s, self.shard.live
        here = any(
            (presence.connections and worker in live)
            or ((presence.connections or presence.lost_at is not None) and presence.heard > latest)
            for worker, presence in enumerate(self.present)
        )
        return self.shard.clocks != self._clocks and not here

    def silent(self) -> list[tuple[int, str]]:
        """The connected workers that have been silent for ``silence_s``, each with a sentence. The driver asks every
        quarter of that time. If it asks later, this process itself was delayed, and the delay does not count; after a
        delay of more than a quarter, the silence starts again from zero.
        """
        shard, now, quarter = self.shard, self.shard.now(), self.silence_s / 4
        late, self._looked = max(now - self._looked - quarter, 0.0), now
        gone = []
        for worker, presence in enumerate(self.present):
            presence.heard = now if late > quarter else min(presence.heard + late, now)
            silent = now - presence.heard
            if presence.connections and not presence.busy and silent > self.silence_s and worker in shard.live:
                gone.append((worker, f"worker {worker} has been silent for {silent:.1f} s: it no longer counts"))
        return gone

    def lost(self, connection: Attending) -> float | None:
        """Drop a closed connection. Returns the time if it was its worker's last one: the worker may come back."""
        presence = self.present[connection.worker]
        if presence.connections == {connection}:
            presence.lost_at = self.shard.now()
        elif connection not in presence.connections:
            return None
        presence.connections.discard(connection)
        return presence.lost_at

    def behind(self, worker: int) -> list[int]:
        """The other workers at the slowest clock."""
        shard, slowest = self.shard, self.shard.slowest()
        return [other for other in sorted(shard.live) if other != worker and shard.clocks[other] <= slowest]
