"""The liveness of a server's workers: each worker's connections, and when the server last heard from it.

The server accepts a worker's requests only over connections that said hello as that worker. `membership` admits them.
"""

from minips.core.message import Header
from minips.core.shard import Shard
from minips.core.states import MemberState


class ClientConnection:
    """A connection over which a worker may say hello."""

    worker = -1
    """The worker in its last hello; -1 before any hello."""


class Member:
    """One worker as its server sees it: the connections on which it said hello, when the server last heard from it, the
    bytes sent and received, and the rows of its shard, if its hello gave them.
    """

    def __init__(self, now: float) -> None:
        self.state = MemberState.NEW
        self.connections: set[ClientConnection] = set()
        """Not empty while it is present or silent, and until the server has read all of its goodbye."""
        self.busy = 0
        """The number of requests under way."""
        self.heard = now
        self.secret = ""
        """The secret of the session that holds this rank or held it last."""
        self.lost_at: float | None = None
        """The time at which it was lost, while it is lost."""
        self.informed = False
        """True once an answer has told the worker that the run is over."""
        self.leaves = False
        """True if its goodbye will contain its part of the run's state."""
        self.rows = 0.0
        self.received = self.sent = 0
        """The bytes of frames."""

    def part(self) -> None:
        """End all connections of a worker that has said goodbye, unless it has come back meanwhile."""
        if self.state is MemberState.PARTED:
            self.connections.clear()
            self.leaves = False


class Liveness:
    """The liveness of all the workers. Callers hold the server's lock for each call, but not to read ``members``."""

    def __init__(self, shard: Shard, silence_s: float) -> None:
        self.shard, self.silence_s = shard, silence_s
        self.members = [Member(shard.now()) for _ in range(shard.workers)]
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
        return sum(1 for member in self.members if member.connections)

    def connect(self, connection: ClientConnection, worker: int, hello: Header) -> None:
        """Note a connection over which a worker has said ``hello``."""
        member, now = self.members[worker], self.shard.now()
        member.rows = hello.get("rows", member.rows)
        connection.worker = worker
        member.connections.add(connection)
        member.state, member.lost_at = member.state.after("hello"), None
        self.began_at = now if self.began_at is None else self.began_at
        if not self._complete and self.connected == self.shard.workers:
            self.began_at, self._complete = now, True

    def gone(self) -> bool:
        """True if workers have pushed here and all have left; a lost worker may come back within ``silence_s``."""
        latest = self.shard.now() - self.silence_s
        here = any(
            member.state is MemberState.PRESENT
            or ((member.connections or member.state is MemberState.LOST) and member.heard > latest)
            for member in self.members
        )
        return self.shard.clocks != self._clocks and not here

    def silent(self) -> list[tuple[int, str]]:
        """The workers that have become silent, for ``silence_s`` seconds, each with a sentence. The driver asks every
        quarter of that time. If it asks later, this process itself was delayed, and the delay does not count; after a
        delay of more than a quarter, the silence starts again from zero.
        """
        now, quarter = self.shard.now(), self.silence_s / 4
        late, self._looked = max(now - self._looked - quarter, 0.0), now
        gone = []
        for worker, member in enumerate(self.members):
            member.heard = now if late > quarter else min(member.heard + late, now)
            silent = now - member.heard
            if member.state is MemberState.PRESENT and not member.busy and silent > self.silence_s:
                member.state = member.state.after("silence")
                gone.append((worker, f"worker {worker} has been silent for {silent:.1f} s: it no longer counts"))
        return gone

    def lost(self, connection: ClientConnection) -> float | None:
        """Drop a closed connection. Returns the time if its worker is now lost: the worker may come back."""
        member = self.members[connection.worker]
        last = member.connections == {connection}
        member.connections.discard(connection)
        if last and member.state is not MemberState.PARTED:
            member.state, member.lost_at = member.state.after("break"), self.shard.now()
        return member.lost_at if last else None

    def behind(self, worker: int) -> list[int]:
        """The other workers at the slowest clock."""
        shard, slowest = self.shard, self.shard.slowest()
        return [other for other in sorted(shard.live) if other != worker and shard.clocks[other] <= slowest]
