"""Membership: one session holds a rank, a worker's number, over one or more connections.

A secret, from the answer to hello or from the engine, identifies a session. Another session can get the rank once its
holder has said goodbye, has been silent for too long, or has had no connection for ``rejoin_s`` seconds.
The server accepts a worker's requests only over connections that said hello as that worker.
"""

import hmac
import re
import secrets
from collections.abc import Sequence

from minips.core.message import Header
from minips.core.shard import Shard
from minips.core.states import MemberState
from minips.results.state import MemberRecord

REJOIN_S = 0.25
"""By default, the seconds for which a worker still counts after its last connection broke."""
SILENCE_S = 30.0
"""By default, the seconds of silence after which a worker no longer counts."""
SOON_S = 0.5
"""A hello waits for a rank that will be free within this time, in seconds, as after a process's immediate restart."""
_SECRET = re.compile("[0-9a-f]{32}")


def check_secret(secret: object) -> None:
    """ValueError if this is not a session's secret; the error's text does not repeat it."""
    if not (isinstance(secret, str) and _SECRET.fullmatch(secret)):
        got = f"another text, of {len(secret)} characters" if isinstance(secret, str) else type(secret).__name__
        raise ValueError(f"A session's secret is the 32 hexadecimal digits in the answer to hello; got {got}.")


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
        """Not empty while the worker is present or silent, and until the server has read its whole goodbye."""
        self.busy = 0
        """The number of requests under way."""
        self.heard = now
        self.secret = ""
        """The secret of the session that holds this rank or held it last."""
        self.lost_at: float | None = None
        """The time at which the worker was lost; None unless it is lost."""
        self.informed = False
        """True once an answer has told the worker that the run is over."""
        self.leaves = False
        """True if the worker's goodbye will contain its part of the run's state."""
        self.rows = 0.0
        self.received = self.sent = 0
        """The bytes of the frames received from the worker, and sent to it."""

    def disconnect(self) -> None:
        """End all connections of a worker that has said goodbye, unless the worker has come back meanwhile."""
        if self.state is MemberState.PARTED:
            self.connections.clear()
            self.leaves = False


class Membership:
    """All the workers, and the sessions that hold their ranks. ``rank_secrets`` reserve ranks for later sessions.

    Callers hold the server's lock for each call, but not to read ``members``.
    """

    def __init__(self, shard: Shard, silence_s: float, rejoin_s: float, rank_secrets: Sequence[str] = ()) -> None:
        self.shard, self.silence_s, self.rejoin_s = shard, silence_s, rejoin_s
        self.members = [Member(shard.now()) for _ in range(shard.workers)]
        self.awaits = False
        """True if the server waits for all the workers before the run begins."""
        self.waiting: set[int] = set()
        """The workers whose requests wait for other workers."""
        self.began_at: float | None = None
        """The time at which all the workers were first connected or, until then, at which the first one connected."""
        self.resumed_at: float | None = None
        """In a run that goes on after a restart of the server, the time at which it began."""
        self._complete = False
        self._clocks = [*shard.clocks]
        self._looked = shard.now()
        if len(rank_secrets) not in (0, shard.workers):
            raise ValueError(f"rank_secrets are one for each of {shard.workers} workers; got {len(rank_secrets)}.")
        for member, secret in zip(self.members, rank_secrets, strict=False):
            check_secret(secret)
            member.secret = secret

    def admit(self, connection: ClientConnection, header: Header) -> int:
        """Admit a session that says hello over a connection: as the worker that it names or, for -1, as the first free
        one. Returns the worker. If another session holds that rank, ValueError is raised and nothing changes.
        """
        worker, secret, other = header.get("worker"), header.get("secret"), connection.worker
        if secret is not None:
            check_secret(secret)
        worker = self.shard.validate_worker(self._first_free(connection, secret) if worker == -1 else worker)
        member = self.members[worker]
        if other != worker and connection in self.members[other].connections:
            raise ValueError(f"This connection is worker {other}'s. Say hello as worker {worker} over another one.")
        mine = self._is(member, connection, secret)
        if not mine and self._is_held(worker):
            new = member.state is MemberState.NEW
            heard = "has not come yet" if new else f"was heard {self.shard.now() - member.heard:.1f} s ago"
            raise ValueError(
                f"Worker {worker} is held by another session, which {heard}, and this hello did not bring its secret. "
                "Connect as another worker, or as the first that is free (worker=None, --rank auto). The rank is free "
                f"after {self.silence_s:g} s of silence, or {self.rejoin_s:g} s after its last connection breaks."
            )
        if not mine:
            member.connections.clear()  # of another session that is silent
            member.secret, member.rows, member.leaves = secret or secrets.token_hex(16), 0.0, False
        elif member.state is MemberState.PARTED and header.get("again"):
            raise ValueError(f"This session was worker {worker}, and has said goodbye.")
        self.connect(connection, worker, header)
        return worker

    def awaited(self) -> list[int]:
        """The workers yet to connect, if the server ``awaits`` them. Empty once all were connected or one pushed."""
        begun = self._complete or self.shard.done or self.shard.clocks != self._clocks
        absent = [worker for worker, member in enumerate(self.members) if not member.connections]
        return absent if self.awaits and not begun else []

    def free_soon(self, connection: ClientConnection, header: Header) -> bool:
        """True if a hello should wait: the rank that it names or, for -1, every rank is taken, but a holder is a lost
        session and will free its rank within `SOON_S`.
        """
        worker, secret = header.get("worker"), header.get("secret")
        if secret is not None:
            check_secret(secret)
        ranks = range(len(self.members)) if worker == -1 else [self.shard.validate_worker(worker)]
        if any(self._is(self.members[rank], connection, secret) or not self._is_taken(rank) for rank in ranks):
            return False
        latest = self.shard.now() + SOON_S - self.rejoin_s
        lost = [self.members[rank].lost_at for rank in ranks]
        return any(at is not None and at <= latest for at in lost)

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

    def state(self) -> list[MemberRecord]:
        """The workers' sessions, for a checkpoint."""
        return [
            MemberRecord(state=m.state.word, secret=m.secret, rows=m.rows, received=m.received, sent=m.sent)
            for m in self.members
        ]

    def restore(self, sessions: Sequence[MemberRecord]) -> None:
        """Restore the workers' sessions from a checkpoint."""
        for member, kept in zip(self.members, sessions, strict=True):
            member.state, member.secret, member.rows = MemberState[kept["state"].upper()], kept["secret"], kept["rows"]
            member.received, member.sent = kept["received"], kept["sent"]

    def restarted(self) -> float:
        """Count each worker that came before the server's restart as lost since now: any of them may come back, even
        one that said goodbye when the run was stopped. Returns the time.
        """
        now = self.shard.now()
        for member in self.members:
            member.heard = now
            if member.state is not MemberState.NEW:
                member.state, member.lost_at = MemberState.LOST, now
        return now

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
        quarter of that time. If the driver asks later, this process was delayed, and the delay does not count; after
        a delay of more than a quarter, the silence is counted from zero again.
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
        """Drop a closed connection. Returns the time if its worker is now lost, though it may come back; else None."""
        member = self.members[connection.worker]
        last = member.connections == {connection}
        member.connections.discard(connection)
        if last and member.state is not MemberState.PARTED:
            member.state, member.lost_at = member.state.after("break"), self.shard.now()
        return member.lost_at if last else None

    def behind(self, worker: int) -> list[int]:
        """The workers at the slowest clock, without this one."""
        shard, slowest = self.shard, self.shard.slowest()
        return [other for other in sorted(shard.live) if other != worker and shard.clocks[other] <= slowest]

    def stranger(self, connection: ClientConnection, worker: int) -> ValueError:
        """The error for a request that claims to be this worker's, over a connection that is not its session's."""
        words = "is no longer that" if connection.worker == worker else "is not that"
        return ValueError(f"This connection {words} of worker {worker}: say hello first, with the session's secret.")

    def _is_held(self, worker: int) -> bool:
        """True if a session holds this rank and so keeps others out."""
        member = self.members[worker]
        if member.state is MemberState.NEW:
            return bool(member.secret)  # a reserved rank
        if member.lost_at is not None:
            return self.shard.now() - member.lost_at < self.rejoin_s
        return member.state is MemberState.PRESENT

    def _is_taken(self, worker: int) -> bool:
        """True if a session holds this rank, or a silent session is still connected."""
        return bool(self.members[worker].connections) or self._is_held(worker)

    def _first_free(self, connection: ClientConnection, secret: str | None) -> int:
        """This session's rank or else a free one, those of lost workers last. ValueError if no rank is free."""
        ranks = sorted(enumerate(self.members), key=lambda pair: pair[1].state is MemberState.LOST)
        mine = [worker for worker, member in ranks if self._is(member, connection, secret)]
        free = [worker for worker, _ in ranks if not self._is_taken(worker)]
        if not (mine or free):
            raise ValueError(f"All {len(ranks)} workers are connected already. Config.workers says how many there are.")
        return (mine or free)[0]

    def _is(self, member: Member, connection: ClientConnection, secret: str | None) -> bool:
        """True if a hello with this secret, or without a secret over this connection, is from the rank's session."""
        return connection in member.connections if secret is None else hmac.compare_digest(member.secret, secret)
