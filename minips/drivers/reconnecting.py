"""A connection that reconnects when it breaks: the driver of `minips.core.resending` with a thread and real channels.

As long as the connection works, its channel sends the requests and receives the answers, and nothing else is asked.
When it breaks, a queue takes the place of the channel, and a thread carries out the session `Resending.reconnect`.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from minips.core.resending import Dial, Pause, Request, Resend, Resending
from minips.core.sessions import carry_out
from minips.stage import Frames
from minips.stages.transports import Channel
from minips.stages.transports.base import Closable

Meet = Mapping[type, Callable[[Any], Any]]
"""The functions that meet a session's needs, by the needs' kinds: see `carry_out`."""


class Reconnecting(Closable):
    """A connection whose ``channel`` takes the requests; during reconnection, ``channel`` is a queue.

    ``connect()`` returns a channel, and ``meet(channel)`` the functions that carry out hello on a new one. Once all
    attempts have failed, every request fails with the error that first broke the connection. ``stepping`` is held while
    ``resending`` decides; it is not held while anything is sent.
    """

    def __init__(
        self,
        connect: Callable[[], Channel],
        resending: Resending,
        meet: Callable[[Channel], Meet],
        stepping: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.resending, self._connect, self._meet = resending, connect, meet
        self._stepping, self._closing = stepping or threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._connected = connect()
        self.channel: Channel | _Queue = self._connected

    def failed(self, request: Request, error: Exception) -> Exception | None:
        """Take a failed request. Returns the error to report, or None if the request will be sent again."""
        with self._stepping:
            connected = not self.resending.broken
            failure = self.resending.failed(request, error)
            if connected and self.resending.broken:
                self.channel = _Queue(self)
                self._thread = threading.Thread(target=self._reconnect, name="minips-reconnect", daemon=True)
                self._thread.start()
        return failure

    def close(self) -> None:
        self.resending.over = True
        self._closing.set()
        self._connected.close()
        thread = self._thread
        if thread and thread is not threading.current_thread():
            thread.join()
            self._connected.close()

    def _reconnect(self) -> None:
        meet: dict[type, Callable[[Any], Any]] = {}

        def dial(need: Dial) -> None:
            self._connected.close()
            self._connected = self._connect()
            meet.update(self._meet(self._connected))

        def resend(need: Resend) -> None:
            self._connected.ask(need.request.frames, need.request)

        meet |= {Pause: lambda need: self._closing.wait(need.seconds), Dial: dial, Resend: resend}
        failing = carry_out(self.resending.reconnect(), meet, self._stepping)
        with self._stepping:
            if not self.resending.broken:  # it may have broken again
                self.channel = self._connected
        self.channel.attend()  # threads that wait for an answer read the broken connection
        for request in failing:
            assert self.resending.broken
            request.failed(self.resending.broken)


class _Queue:
    """A substitute for a missing channel: it keeps requests until the connection is restored."""

    def __init__(self, owner: Reconnecting) -> None:
        self._owner = owner

    def ask(self, frames: Frames, request: Request) -> None:
        """Keep the request or, if a connection exists by now, send it. ConnectionError if all attempts have failed."""
        with self._owner._stepping:
            channel = self._owner._connected if self._owner.resending.ask(request) else None
        if channel:
            channel.ask(frames, request)

    def read(self, until: Callable[[], bool], deadline: float | None) -> None:
        """Do nothing: no answer can arrive."""

    def attend(self) -> None:
        """Do nothing: no answer can arrive."""
