"""The waits of servers and workers for each other, in a run whose processes are started by hand."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from minips.core.config import check_seconds
from minips.core.protocol import ServerProtocol
from minips.stages.transports.patience import Limit
from minips.words import workers_of

START_S = 600.0
"""The seconds for which a server and its workers wait for each other by default."""
SAY_S = 30.0
"""The seconds between two log lines about a wait."""
LOOK_S = 0.2
"""The most seconds until a running process checks the wait again."""


class StartWait:
    """The wait of ``who``, for at most ``timeout_s`` seconds (infinity: for ever). A `Limit` counts them; each of its
    checks may take ``call_s`` seconds. ValueError for an invalid ``timeout_s``.
    """

    def __init__(self, who: str, timeout_s: float, call_s: float = 0.0) -> None:
        if not (isinstance(timeout_s, float) and timeout_s == math.inf):
            check_seconds("start_timeout_s", timeout_s, " (inf waits for ever)")
        self.who, self._timeout_s = who, timeout_s
        self._limit, self._logged_at = Limit(timeout_s, call_s + LOOK_S), time.monotonic()

    def over(self) -> bool:
        """Check the clock. Returns True once the wait has used up its time."""
        return self._limit.over()

    def log(self, whom: str, at_once: bool = False) -> None:
        """Log who is awaited: every `SAY_S` seconds or, with ``at_once``, immediately."""
        now = time.monotonic()
        if at_once or now - self._logged_at >= SAY_S:
            self._logged_at = now
            left = max(self._limit.left, 0.0)
            most = "for ever" if left == math.inf else f"for at most {left:.0f} seconds more"
            logging.getLogger("minips").warning(f"{self.who} waits for {whom}, {most}.")

    def look(self, absent: Sequence[int]) -> str:
        """Return the sentence that ends the wait if these workers are late, else "". Logs who is awaited."""
        if not absent:
            return ""
        if self.over():
            return (
                f"{self.who} waited {self._timeout_s:g} seconds for {workers_of(absent)} to come, and the run has not "
                "begun. Start what is missing, or wait for longer: start_timeout_s, on the command line "
                "--start-timeout-s."
            )
        self.log(workers_of(absent))
        return ""


class ServerStart(StartWait):
    """A server's wait for all of its workers. ``lock`` is the server's; ``changing()`` also holds it, and then lets the
    server go on with the sessions that wait.
    """

    def __init__(
        self,
        protocol: ServerProtocol,
        lock: AbstractContextManager[Any],
        changing: Callable[[], AbstractContextManager[None]],
        timeout_s: float,
    ) -> None:
        super().__init__(f"Server {protocol.index}", timeout_s)
        self._protocol, self._lock, self._changing = protocol, lock, changing

    def check(self) -> None:
        """Check the wait. After the first call, the server's status names the workers that it awaits. TimeoutError if a
        worker has not connected in time; the run is then stuck, and clients that ask or wait learn why.
        """
        shard, membership = self._protocol.shard, self._protocol.membership
        with self._lock:
            membership.awaits = shard.updates is not None
            absent = membership.awaited()
        late = self.look(absent)  # without the lock, since a log's handler may ask the server for its status
        if not late:
            return
        with self._changing():
            if not membership.awaited():  # the last worker has come meanwhile
                return
            shard.strand(late)
            self._protocol.events.append((shard.now(), late))
        raise TimeoutError(late)
