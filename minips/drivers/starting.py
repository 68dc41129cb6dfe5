"""The wait at the start, of servers and of workers that are started by hand: for those who do not come."""

import logging
import time

from minips.core.config import check_seconds

START_S = 600.0
"""Seconds for which a server and its workers wait for each other, where nothing else is said."""
SAY_S = 30.0
"""Seconds between two lines that say for whom a wait is."""


class StartWait:
    """A wait that has begun: at most ``timeout_s`` seconds, infinity for ever. ``who`` waits."""

    def __init__(self, who: str, timeout_s: float) -> None:
        self.who, self._timeout_s = who, timeout_s
        self._began = self._said_at = time.monotonic()

    def over(self) -> bool:
        """True once the time has passed."""
        return time.monotonic() - self._began > self._timeout_s

    def say(self, whom: str, at_once: bool = False) -> None:
        """Write a line to the log, every `SAY_S` seconds or ``at_once``, that says for whom this wait is."""
        now = time.monotonic()
        if at_once or now - self._said_at >= SAY_S:
            self._said_at = now
            left = max(self._began + self._timeout_s - now, 0.0)
            most = "for ever" if left == float("inf") else f"for at most {left:.0f} seconds more"
            logging.getLogger("minips").warning(f"{self.who} waits for {whom}, {most}.")

    def late(self, whom: str) -> str:
        """The sentence for those who have not come in time."""
        return (
            f"{self.who} waited {self._timeout_s:g} seconds for {whom} to come, and the run has not begun. Start what "
            "is missing, or wait for longer: start_timeout_s, on the command line --start-timeout-s."
        )


def check_start_timeout(seconds: object) -> None:
    """ValueError where these are no seconds to wait at the start."""
    if not (isinstance(seconds, float) and seconds == float("inf")):
        check_seconds("start_timeout_s", seconds, " (inf waits for ever)")
