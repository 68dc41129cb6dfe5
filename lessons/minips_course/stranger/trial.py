"""A stranger's message to a server: whether it was accepted, and whether the stranger's command ran."""

import os
import pickle
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = Path(tempfile.gettempdir(), f"minips-was-here-{os.getpid()}")
"""The file that shows that the command ran."""
COMMAND = f'echo hello > "{MARK}"'
"""A harmless command for the shell, which makes the file `MARK`."""


def tried(server: Callable[[bytes], Any], thing: Any) -> tuple[bool, bool]:
    """Send the pickle of ``{"W": thing}`` to a server. Return whether it accepted it, and whether `COMMAND` ran."""
    MARK.unlink(missing_ok=True)
    data = through_a_socket(pickle.dumps({"W": thing}))
    try:
        server(data)
        accepted = True
    except (ValueError, pickle.UnpicklingError):
        accepted = False
    ran = MARK.exists()
    MARK.unlink(missing_ok=True)
    return accepted, ran


def through_a_socket(data: bytes) -> bytes:
    """Return a message of a few kilobytes after it has travelled."""
    stranger, ours = socket.socketpair()
    with stranger, ours:
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)  # nothing more comes
        return b"".join(iter(lambda: ours.recv(65536), b""))
