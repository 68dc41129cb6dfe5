"""Membership: one session holds a rank, a worker's number.

A session is identified by its secret, from the answer to hello or from the engine. Another session can get the rank
once this one has said goodbye, has been silent for too long, or has had no connection for ``rejoin_s`` seconds.
"""

import hmac
import re
import secrets
from collections.abc import Sequence

from minips.core.message import Header
from minips.core.presence import Attendance, Attending, Presence
from minips.core.shard import Shard

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


class Membership(Attendance):
    """The attendance, and the sessions that hold the ranks. ``rank_secrets`` reserve ranks for later sessions."""

    def __init__(self, shard: Shard, silence_s: float, rejoin_s: float, rank_secrets: Sequence[str] = ()) -> None:
        super().__init__(shard, silence_s)
        self.rejoin_s, self.awaits = rejoin_s, False
        """``awaits``: true if the server waits for all the workers before the run begins."""
        if len(rank_secrets) not in (0, shard.workers):
            raise ValueError(f"rank_secrets are one for each of {shard.workers} workers; got {len(rank_secrets)}.")
        for presence, secret in zip(self.present, rank_secrets, strict=False):
            check_secret(secret)
            presence.secret = secret

    def admit(self, connection: Attending, header: Header) -> int:
        """Admit a session that says hello over a connection: as the worker that it names or, for -1, as the first free
        one. Returns the worker. ValueError, with nothing changed, if another session holds that rank.
        """
        worker, secret, other = header.get("worker"), header.get("secret"), connection.worker
        if secret is not None:
            check_secret(secret)
        worker = self.shard.validate_worker(self._first_free(connection, secret) if worker == -1 else worker)
        presence = self.present[worker]
        if other != worker and connection in self.present[other].connections:
            raise ValueError(f"This connection is worker {other}'s. Say hello as worker {worker} over another one.")
        mine = self._is(presence, connection, secret)
        if not mine and self._is_held(worker):
            came = presence.connections or presence.lost_at is not None
            heard = f"was heard {self.shard.now() - presence.heard:.1f} s ago" if came else "has not come yet"
            raise ValueError(
                f"Worker {worker} is held by another session, which {heard}, and this hello did not bring its secret. "
                "Connect as another worker, or as the first that is free (worker=None, --rank auto). The rank is free "
                f"after {self.silence_s:g} s of silence, or {self.rejoin_s:g} s after its last connection breaks."
            )
        if not mine:
            presence.connections.clear()  # of another session that is silent
            presence.secret, presence.rows = secret or secrets.token_hex(16), 0.0
        elif presence.parted and header.get("again"):
            raise ValueError(f"This session was worker {worker}, and has said goodbye.")
        self.attend(connection, worker, header)
        return worker

    def awaited(self) -> list[int]:
        """The workers yet to connect, if the server ``awaits`` them: none once all were connected, or one pushed."""
        begun = self._complete or self.shard.done or self.shard.clocks != self._clocks
        absent = [worker for worker, presence in enumerate(self.present) if not presence.connections]
        return absent if self.awaits and not begun else []

    def free_soon(self, connection: Attending, header: Header) -> bool:
        """True if a hello should wait: the rank that it names or, for -1, every rank is taken, and a lost session among
        the holders will free its rank within `SOON_S`.
        """
        worker, secret = header.get("worker"), header.get("secret")
        if secret is not None:
            check_secret(secret)
        ranks = range(len(self.present)) if worker == -1 else [self.shard.validate_worker(worker)]
        if any(self._is(self.present[rank], connection, secret) or not self._is_taken(rank) for rank in ranks):
            return False
        latest = self.shard.now() + SOON_S - self.rejoin_s
        lost = [self.present[rank].lost_at for rank in ranks]
        return any(at is not None and at <= latest for at in lost)

    def stranger(self, connection: Attending, worker: int) -> ValueError:
        """The error for a request as this worker, over a connection of another session or of no session."""
        words = "is no longer that" if connection.worker == worker else "is not that"
        return ValueError(f"This connection {words} of worker {worker}: say hello first, with the session's secret.")

    def _is_held(self, worker: int) -> bool:
        """True if a session holds this rank and so keeps others out."""
        presence = self.present[worker]
        if presence.connections:
            return worker in self.shard.live  # otherwise it is silent
        lost = presence.lost_at is not None and self.shard.now() - presence.lost_at >= self.rejoin_s
        return bool(presence.secret) and not (presence.parted or lost)

    def _is_taken(self, worker: int) -> bool:
        """True if a session holds this rank, or a silent session is still connected."""
        return bool(self.present[worker].connections) or self._is_held(worker)

    def _first_free(self, connection: Attending, secret: str | None) -> int:
        """This session's rank, else the first free one, lost workers' ranks last. ValueError if none is free."""
        ranks = sorted(enumerate(self.present), key=lambda pair: pair[1].lost_at is not None)
        mine = [worker for worker, presence in ranks if self._is(presence, connection, secret)]
        free = [worker for worker, _ in ranks if not self._is_taken(worker)]
        if not (mine or free):
            raise ValueError(f"All {len(ranks)} workers are connected already. Config.workers says how many there are.")
        return (mine or free)[0]

    def _is(self, presence: Presence, connection: Attending, secret: str | None) -> bool:
        """True if a hello with this secret, or without a secret over this connection, is from the rank's session."""
        return connection in presence.connections if secret is None else hmac.compare_digest(presence.secret, secret)
