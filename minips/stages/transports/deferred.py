"""Deferred answers: the thread that has one sends it over another thread's wire, and does not wait for its peer."""

import threading
from functools import partial

from minips.stage import Frames
from minips.stages.transports.base import Rest
from minips.stages.transports.streams import refusal
from minips.stages.transports.wire import CALL, Wire


class Deferred:
    """The deferred answer to a call, which any thread may send, but after the one to the ``previous`` call.

    It has two locks since the connection's next request waits only until this answer is known, while the next answer
    waits until this one has been sent.
    """

    def __init__(self, wire: Wire, previous: "Deferred | None" = None) -> None:
        self._wire, self._previous, self._unknown, self._unsent = wire, previous, threading.Lock(), threading.Lock()
        self._unknown.acquire(), self._unsent.acquire()
        self.due = False
        """True if the answer is deferred."""

    def wait_until_known(self) -> None:
        """Wait until the answer is known, if it is due."""
        if self.due:
            with self._unknown:
                pass

    def wait_until_sent(self) -> None:
        """Wait until the answer has been sent or could not be, if it is due."""
        if self.due:
            with self._unsent:
                pass

    def reply(self, answer: Frames | Exception) -> Rest | None:
        """Send the answer as far as it need not wait. Return what sends the rest, if any."""
        self._unknown.release()
        previous, self._previous = self._previous, None
        message = refusal(answer) if isinstance(answer, Exception) else (CALL, answer)
        if previous and previous._unsent.locked():
            return partial(self._finish, partial(self._wire.send, *message), previous)
        try:
            rest = self._wire.begin(*message)
        except Exception as error:
            rest = partial(self._wire.send, *refusal(error))
        if rest:
            return partial(self._finish, rest)
        self._unsent.release()
        return None

    def _finish(self, rest: Rest, previous: "Deferred | None" = None) -> None:
        try:
            if previous:
                previous.wait_until_sent()
            try:
                rest()
            except RuntimeError as error:  # this side could not begin to send the answer
                self._wire.send(*refusal(error))
        except Exception:  # the peer is gone: the thread that reads ends the connection
            self._wire.shutdown()
        finally:
            self._unsent.release()
