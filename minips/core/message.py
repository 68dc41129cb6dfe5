"""The messages between client and server.

A **Message** is what is meant: a header of plain values and named arrays. The client says

    hello      {worker, client}                           who it is, and what are the tensors?
    push       {worker, clock, version, loss} + gradients   acknowledged once they count
    pull       {worker, names, rows}                      answered with parameters once the consistency model allows it
    push_pull  a push, and the pull after it, in one message
    alive      {worker}                                   nothing to say, still here
    state      {worker}                                   what has this worker left in the run that goes on?
    bye        {worker, diverged, failed, state} + arrays   leaves, and perhaps why; and leaves what going on needs
    status     {}                                         how far is the run, and who is there?

and the server answers each but the last with ``{version, clock, done, outcome}`` and, for a pull, the parameters. What
is said to one worker alone (clock, done, outcome) stands in the envelope: the rest is encoded once for all.
"""

from dataclasses import dataclass, field
from typing import Any

from minips.stage import Array, Tensors, is_finite

PROTOCOL_VERSION = 3
VERSIONS = (1, 2, 3)
"""Those that are understood; a server answers each client in its own."""
Header = dict[str, Any]


ADVICE = "Lower the learning rate, or look for very large values, NaN or infinity in the data."


class NonFiniteError(ValueError):
    """An array holds NaN or infinity, which no quantizer could carry and no memory forget."""


class DivergedError(ArithmeticError):
    """The run has diverged: the next update would make parameters NaN or infinite, or there is no finite gradient for
    it.
    """


def check_finite(tensors: Tensors, what: str) -> None:
    """NonFiniteError with the tensor's name where one holds NaN or infinity."""
    for name, x in tensors.items():
        if not is_finite(x):
            raise NonFiniteError(
                f"{what} {name!r} holds NaN or infinity, so it was refused and nothing was changed. {ADVICE}"
            )


def unlike(name: str, g: Array, dtype: object, shape: tuple[int, ...]) -> ValueError:
    """The error for a gradient that is not like its parameter."""
    advice = "" if g.dtype == dtype else f" Convert it with .astype(np.{dtype})."
    return ValueError(f"The gradient of {name!r} must be {dtype} of shape {shape}; got {g.dtype} of {g.shape}.{advice}")


@dataclass(eq=False, slots=True)
class Message:
    """A header of plain values (``kind`` says which message it is) and named arrays."""

    header: Header
    tensors: Tensors = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of the message."""
        return str(self.header.get("kind"))
