"""The wait of servers and workers at the start of a run by hand, for those that have not come."""

import logging
import math
import time
from collections.abc import Sequence

from minips.core.config import check_seconds
from minips.core.protocol import ServerProtocol
from minips.stages.transports.patience import Limit
from minips.words import workers_of

START_S = 600.0
"""Seconds for which a server and its workers wait for each other, where nothing else is said."""
SAY_S = 30.0
"""Seconds between two lines that say for whom a wait is."""
LOOK_S = 0.2
"""Seconds within which a process that runs looks again."""


class StartWait:
    """The wait of ``who``: at most ``timeout_s`` seconds, or for ever where that is infinity, as a `Limit` counts them
    whose looks may take ``call_s`` seconds. ValueError for any other ``timeout_s``.
    """

    def __init__(self, who: str, timeout_s: float, call_s: float = 0.0) -> None:
        if not (isinstance(timeout_s, float) and timeout_s == math.inf):
            check_seconds("start_timeout_s", timeout_s, " (inf waits for ever)")
        self.who, self._timeout_s = who, timeout_s
        self._limit, self._said_at = Limit(timeout_s, call_s + LOOK_S), time.monotonic()

    def over(self) -> bool:
        """Look: True once the time has passed."""
        return self._limit.over()

    def say(self, whom: str, at_once: bool = False) -> None:
        """Write a line to the log, every `SAY_S` seconds or ``at_once``, that says for whom this wait is."""
        now = time.monotonic()
        if at_once or now - self._said_at >= SAY_S:
            self._said_at = now
            left = max(self._limit.left, 0.0)
            most = "for ever" if left == math.inf else f"for at most {left:.0f} seconds more"
            logging.getLogger("minips").warning(f"{self.who} waits for {whom}, {most}.")

    def look(self, absent: Sequence[int]) -> str:
        """The sentence that ends the wait for workers that have not come in time; until then, say for whom it is."""
        if not absent:
            return ""
        if self.over():
            return (
                f"{self.who} waited {self._timeout_s:g} seconds for {workers_of(absent)} to come, and the run has not "
                "begun. Start what is missing, or wait for longer: start_timeout_s, on the command line "
                "--start-timeout-s."
            )
        self.say(workers_of(absent))
        return ""


class ServerStart(StartWait):
    """The wait of a server for all of its workers."""

    def __init__(self, protocol: ServerProtocol, timeout_s: float) -> None:
        super().__init__(f"Server {protocol.index}", timeout_s)
        self._protocol = protocol

    def check(self) -> None:
        """From the first call on, the server's status names the workers that it awaits. TimeoutError where one has not
        come in time; the run is stuck then, and clients that ask or wait are told why.
        """
        shard, attendance = self._protocol.shard, self._protocol.attendance
        attendance.awaits = shard.updates is not None
        if late := self.look(attendance.awaited()):
            shard.stuck = late
            self._protocol.events.append((shard.now(), late))
            raise TimeoutError(late)
