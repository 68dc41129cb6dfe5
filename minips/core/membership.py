"""Membership: one session holds a rank, a worker's number.

A session is identified by its secret, from the answer to hello or from the engine. Another session can get the rank
once this one has said goodbye, has been silent for too long, or has had no connection for ``rejoin_s`` seconds.
"""

import hmac
import re
import secrets
from collections.abc import Sequence

from minips.core.liveness import ClientConnection, Liveness, Member
from minips.core.message import Header
from minips.core.shard import Shard
from minips.core.states import MemberState

REJOIN_S = 0.25
"""By default, the seconds for which a worker still counts after its last connection broke."""
SOON_S = 0.5
"""A hello waits for a rank that will be free within this many seconds, as when a process restarts immediately."""
_SECRET = re.compile("[0-9a-f]{32}")


def check_secret(secret: object) -> None:
    """ValueError if this is not a session's secret; the error's text does not repeat it."""
    if not (isinstance(secret, str) and _SECRET.fullmatch(secret)):
        got = f"another text, of {len(secret)} characters" if isinstance(secret, str) else type(secret).__name__
        raise ValueError(f"A session's secret is the 32 hexadecimal digits in the answer to hello; got {got}.")


class Membership(Liveness):
    """The workers, and the sessions that hold their ranks. ``rank_secrets`` reserve ranks for later sessions."""

    def __init__(self, shard: Shard, silence_s: float, rejoin_s: float, rank_secrets: Sequence[str] = ()) -> None:
        super().__init__(shard, silence_s)
        self.rejoin_s, self.awaits = rejoin_s, False
        """``awaits``: true if the server waits for all the workers before the run begins."""
        if len(rank_secrets) not in (0, shard.workers):
            raise ValueError(f"rank_secrets are one for each of {shard.workers} workers; got {len(rank_secrets)}.")
        for member, secret in zip(self.members, rank_secrets, strict=False):
            check_secret(secret)
            member.secret = secret

    def admit(self, connection: ClientConnection, header: Header) -> int:
        """Admit a session that says hello over a connection: as the worker that it names or, for -1, as the first free
        one. Returns the worker. ValueError, with nothing changed, if another session holds that rank.
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
            member.secret, member.rows = secret or secrets.token_hex(16), 0.0
        elif member.state is MemberState.PARTED and header.get("again"):
            raise ValueError(f"This session was worker {worker}, and has said goodbye.")
        self.connect(connection, worker, header)
        return worker

    def awaited(self) -> list[int]:
        """The workers yet to connect, if the server ``awaits`` them: none once all were connected, or one pushed."""
        begun = self._complete or self.shard.done or self.shard.clocks != self._clocks
        absent = [worker for worker, member in enumerate(self.members) if not member.connections]
        return absent if self.awaits and not begun else []

    def free_soon(self, connection: ClientConnection, header: Header) -> bool:
        """True if a hello should wait: the rank that it names or, for -1, every rank is taken, and a lost session among
        the holders will free its rank within `SOON_S`.
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

    def stranger(self, connection: ClientConnection, worker: int) -> ValueError:
        """The error for a request as this worker, over a connection of another session or of no session."""
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
        """This session's rank, else the first free one, lost workers' ranks last. ValueError if none is free."""
        ranks = sorted(enumerate(self.members), key=lambda pair: pair[1].state is MemberState.LOST)
        mine = [worker for worker, member in ranks if self._is(member, connection, secret)]
        free = [worker for worker, _ in ranks if not self._is_taken(worker)]
        if not (mine or free):
            raise ValueError(f"All {len(ranks)} workers are connected already. Config.workers says how many there are.")
        return (mine or free)[0]

    def _is(self, member: Member, connection: ClientConnection, secret: str | None) -> bool:
        """True if a hello with this secret, or without a secret over this connection, is from the rank's session."""
        return connection in member.connections if secret is None else hmac.compare_digest(member.secret, secret)
