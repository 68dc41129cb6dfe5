"""The messages between client and server.

A **Message** is a header of plain values and named arrays. The client says

    hello      {worker, secret, again, rows}              takes a rank; the answer has its secret and the layout
    push       {worker, clock, version, loss, of} + gradients  the answer has its outcome, perhaps before its round ends
    pull       {worker, names, rows}                      the answer has parameters, once consistency allows it
    push_pull  a push, and the pull after it, in one message
    alive      {worker}                                   shows that the worker is still connected
    state      {worker}                                   asks for the state that this worker left in the resumed run
    bye        {worker, diverged, failed, state} + arrays   leaves, with a reason or its part of the run's state
    status     {config}                                   asks for the progress of the run and its workers

and the server answers each message but the last with ``{version}`` and, for a pull, the parameters. An answer's
envelope contains a stamp for one worker, ``{clock, done, outcome, busy, waited}``, so the rest can be encoded once for
all workers. `minips.core.fields` defines the fields' valid values, which both sides check.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minips.stage import Array, Tensors, is_finite

PROTOCOL_VERSION = 3
"""The only version that minips speaks."""
Header = dict[str, Any]
Like = Mapping[str, Array] | None  # arrays with the expected names and shapes; None if any are accepted

ADVICE = "Lower the learning rate, or look for very large values, NaN or infinity in the data."
AT_FIRST = (
    "No update was made before, so the learning rate is not the cause: look for very large values, NaN or infinity in "
    "the data, and at the code that computes the gradient."
)


class NonFiniteError(ValueError):
    """An array contains NaN or infinity: no quantizer can encode it, and a memory would keep it forever."""


class DivergedError(ArithmeticError):
    """The run has diverged: its next update's gradient is not finite, or would make parameters NaN or infinite."""


def check_finite(tensors: Tensors, what: str, advice: str = "") -> None:
    """Raise NonFiniteError, with the tensor's name and ``advice``, if a tensor contains NaN or infinity."""
    for name, x in tensors.items():
        if not is_finite(x):
            words = f"{what} {name!r} holds NaN or infinity, so it was refused and nothing was changed."
            raise NonFiniteError(f"{words} {advice}".rstrip())


def mismatch(name: str, g: Array, dtype: object, shape: tuple[int, ...]) -> ValueError:
    """The error for a gradient whose shape or dtype differs from its parameter's."""
    advice = "" if g.dtype == dtype else f" Convert it with .astype(np.{dtype})."
    return ValueError(f"The gradient of {name!r} must be {dtype} of shape {shape}; got {g.dtype} of {g.shape}.{advice}")


@dataclass(eq=False, slots=True)
class Message:
    """A header of plain values (``kind`` says which message it is) and named arrays."""

    header: Header
    tensors: Tensors = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The message's kind, such as ``push``."""
        return str(self.header.get("kind"))
