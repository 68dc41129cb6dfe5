"""Deferred answers: the thread that has one sends it over another thread's wire, and does not wait for its peer."""

import threading
from functools import partial

from minips.stage import Frames
from minips.stages.transports.base import Rest
from minips.stages.transports.streams import refusal
from minips.stages.transports.wire import CALL, Wire


class Deferred:
    """The deferred answer to a call, which any thread may send, but after the one to an ``earlier`` call."""

    def __init__(self, wire: Wire, earlier: "Deferred | None" = None) -> None:
        self._wire, self._earlier, self._unknown, self._unsent = wire, earlier, threading.Lock(), threading.Lock()
        self._unknown.acquire(), self._unsent.acquire()  # until `reply` is called, and until the answer has been sent
        self.due = False
        """True if the answer is deferred."""

    def wait(self, sent: bool = True) -> None:
        """Wait until an answer that is due is known or, by default, until it has been sent or could not be."""
        if self.due:
            with self._unsent if sent else self._unknown:
                pass

    def reply(self, answer: Frames | Exception) -> Rest | None:
        """Send the answer as far as it need not wait. Return what sends the rest, if any."""
        self._unknown.release()
        earlier, self._earlier = self._earlier, None
        message = refusal(answer) if isinstance(answer, Exception) else (CALL, answer)
        if earlier and earlier._unsent.locked():
            return partial(self._finish, partial(self._wire.send, *message), earlier)
        try:
            rest = self._wire.begin(*message)
        except Exception as error:
            rest = partial(self._wire.send, *refusal(error))
        if rest:
            return partial(self._finish, rest)
        self._unsent.release()
        return None

    def _finish(self, rest: Rest, earlier: "Deferred | None" = None) -> None:
        try:
            if earlier:
                earlier.wait()
            try:
                rest()
            except RuntimeError as error:  # this side could not begin to send the answer
                self._wire.send(*refusal(error))
        except Exception:  # the peer is gone: the thread that reads ends the connection
            self._wire.shutdown()
        finally:
            self._unsent.release()
