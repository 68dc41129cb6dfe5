"""Both sides prove that they know the run's token; neither sends it.

    server → client   PROTOCOL, nonce_s
    client → server   nonce_c, HMAC(token, "client" nonce_s nonce_c)
    server → client   HMAC(token, "server" nonce_c nonce_s)

HMAC is RFC 2104 with SHA-256. The words client and server prevent a proof from being replayed to the side that made it.
Until a server has checked the client's proof, it accepts only messages of up to 1,024 bytes.
"""

import hmac
import secrets
from collections.abc import Generator
from typing import TypeVar

from minips.stage import Buffer, Frames
from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.framing import ALIGNMENT
from minips.stages.transports.patience import receive_within
from minips.stages.transports.wire import AUTH, ERROR, Wire

PROTOCOL = b"minips/1"
NONCE_BYTES, LIMIT_BYTES = 32, 1024
HANDSHAKE_BYTES = LIMIT_BYTES + 4 * ALIGNMENT
"""The largest body that is accepted from a peer before it has proved that it knows the token."""


W = TypeVar("W", bound=Wire)
Proof = Generator[tuple[int, Frames], tuple[int, Frames] | None, None]


def prove(token: str) -> Proof:
    """Run the server's side without I/O: yield its two messages, and receive the client's message between them.

    If the client does not know the token, the second message is an error, and PermissionError follows.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    tag, frames = (yield AUTH, [PROTOCOL, nonce]) or (ERROR, [])
    proves = (tag, len(frames)) == (AUTH, 2)
    if not proves or not hmac.compare_digest(frames[1], _proof(token, b"client", nonce, frames[0])):
        text = "The server does not know this token. Pass the token that the server was started with."
        yield ERROR, [b"PermissionError", text.encode()]
        raise PermissionError("The client does not know the token.")
    yield AUTH, [_proof(token, b"server", frames[0], nonce)]


def challenge(wire: Wire, token: str, timeout: float) -> None:
    """Run the server's side. PermissionError, on both sides, if the client does not know the token."""
    steps = prove(token)
    wire.send(*next(steps))
    wire.send(*steps.send(receive_within(timeout, wire, LIMIT_BYTES)))
    next(steps, None)


def authenticate(wire: W, token: str, address: str, timeout: float) -> W:
    """Return ``wire`` once both sides have proved that they know the token. Close it if `answer_challenge` raises."""
    try:
        answer_challenge(wire, token, address, min(timeout, HANDSHAKE_S))
    except BaseException:
        wire.close()
        raise
    return wire


def answer_challenge(wire: Wire, token: str, address: str, timeout: float) -> None:
    """Run the client's side. PermissionError if the tokens differ, ConnectionError if this is not a minips server."""
    try:
        tag, frames = receive_within(timeout, wire, LIMIT_BYTES)
        if tag == ERROR and frames:
            raise ValueError(bytes(frames[-1]).decode(errors="replace"))
        if tag != AUTH or len(frames) != 2 or frames[0] != PROTOCOL:
            raise ValueError(f"It does not speak {PROTOCOL.decode()}.")
        theirs, ours = bytes(frames[1]), secrets.token_bytes(NONCE_BYTES)
        wire.send(AUTH, [ours, _proof(token, b"client", theirs, ours)])
        tag, frames = receive_within(timeout, wire, LIMIT_BYTES)
    except TimeoutError:
        raise ConnectionError(f"The peer at {address} did not answer within {timeout:g} seconds.") from None
    except (EOFError, OSError, ValueError) as error:
        raise ConnectionError(
            f"The peer at {address} is not a minips server, is closing, or has reached a limit. {error}".strip()
        ) from None
    if tag == ERROR and frames:
        raise PermissionError(f"{address} refused: {bytes(frames[-1]).decode(errors='replace')}")
    if tag != AUTH or len(frames) != 1 or not hmac.compare_digest(frames[0], _proof(token, b"server", ours, theirs)):
        raise PermissionError(f"The server at {address} could not prove that it knows the token.")


def _proof(token: str, role: bytes, first: Buffer, second: Buffer) -> bytes:
    return hmac.digest(token.encode(), role + bytes(first) + bytes(second), "sha256")
