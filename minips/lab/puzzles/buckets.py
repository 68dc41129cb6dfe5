"""A puzzle: which gradients to send together, and when, while the backward pass still computes.

One link sends one message at a time. The next forward pass begins at the first layer, whose gradient is ready last.
Times are whole virtual milliseconds.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from minips.lab.puzzles.base import IllegalMoveError, Played, Puzzle, only_the_game_makes

if TYPE_CHECKING:
    from minips.lab.charts import Drawing

LATENCY_MS = 4


class Layer(NamedTuple):
    """The milliseconds of a layer."""

    forward_ms: int
    backward_ms: int
    link_ms: int
    """For which its gradient uses the link."""


LAYERS = tuple(
    Layer(*times)
    for times in [
        *((8, 14, 2), (8, 14, 3), (6, 12, 4), (6, 12, 6), (5, 10, 8), (5, 10, 9)),
        *((4, 8, 12), (4, 8, 14), (3, 6, 18), (2, 4, 24), (2, 4, 30), (2, 4, 6)),
    ]
)
"""From the input to the output: the backward pass goes from the last one to the first one."""


class LayerGradient:
    """The gradient of a layer: its ``layer``, from 0 at the input, and ``link_ms``, for which it uses the link."""

    __slots__ = ("layer", "link_ms")
    layer: int
    link_ms: int

    def __new__(cls) -> "LayerGradient":
        raise only_the_game_makes("A gradient", "Send gradients that are in ready.")

    def __setattr__(self, name: str, value: object) -> None:
        raise IllegalMoveError(f"A gradient's {name} cannot be changed. Only its message is yours to choose.")

    def __repr__(self) -> str:
        return f"the gradient of layer {self.layer}, {self.link_ms} ms"


class Bucket(NamedTuple):
    """A message: its layers, and the milliseconds at which it leaves and arrives."""

    layers: tuple[int, ...]
    start_ms: int
    end_ms: int


class BucketsPuzzle(Puzzle):
    """Buckets that hide behind the backward pass and the next forward pass."""

    name, title, function, unit, par, best = "buckets", "hide the exchange of gradients", "next_bucket", "ms", 177, 172
    task = f"""
    A network has {len(LAYERS)} layers. The backward pass computes their gradients from layer {len(LAYERS) - 1} down to
    layer 0. A gradient must cross the link before the next forward pass can use its layer, and the forward pass begins
    with layer 0. The link sends one message at a time: {LATENCY_MS} ms, and link_ms for each gradient in it.

    Whenever the link is free, your function gets ready, a tuple of the gradients that are computed and not yet sent,
    and now, in ms since the backward pass began. It returns the gradients to send as one message, in a list; an empty
    list waits for the next gradient. A gradient has .layer and .link_ms.

    The score is the time from the start of the backward pass to the end of the next forward pass. Together they compute
    for {sum(one.backward_ms + one.forward_ms for one in LAYERS)} ms. One message for each gradient, or few large ones?
    """
    start = """
def next_bucket(ready, now):
    \"\"\"Send everything as one message, after the backward pass.\"\"\"
    return ready if len(ready) == 12 else []
"""

    def play(self, function: Callable[..., Any]) -> "Bucketed":
        ready_ms, now = {}, 0
        for number in reversed(range(len(LAYERS))):
            now += LAYERS[number].backward_ms
            ready_ms[number] = now
        gradients = {number: _gradient(number) for number in ready_ms}
        buckets: list[Bucket] = []
        arrived: dict[int, int] = {}
        now = ready_ms[len(LAYERS) - 1]
        while len(arrived) < len(LAYERS):
            computed = {n: gradients[n] for n, at in ready_ms.items() if at <= now}
            ready = tuple(one for n, one in computed.items() if n not in arrived)
            later = [at for at in ready_ms.values() if at > now]
            layers = _checked(function(ready, now), computed, arrived) if ready else ()
            if layers:
                end = now + LATENCY_MS + sum(LAYERS[n].link_ms for n in layers)
                buckets.append(Bucket(layers, now, end))
                arrived |= dict.fromkeys(layers, end)
                now = end
            elif later:
                now = min(later)
            else:
                raise IllegalMoveError(
                    f"All gradients are computed, and {len(ready)} of them are not sent: waiting would never end. "
                    "Return at least one of ready."
                )
        forward, now = [], ready_ms[0]
        for number, layer in enumerate(LAYERS):
            begin = max(now, arrived[number])
            now = begin + layer.forward_ms
            forward.append((begin, now))
        return Bucketed(self, now, tuple(buckets), tuple(forward))


def _gradient(number: int) -> LayerGradient:
    one = object.__new__(LayerGradient)
    object.__setattr__(one, "layer", number)
    object.__setattr__(one, "link_ms", LAYERS[number].link_ms)
    return one


def _checked(given: object, computed: Mapping[int, LayerGradient], sent: Collection[int]) -> tuple[int, ...]:
    """Return the layers of a bucket. `IllegalMoveError` if it cannot be sent now."""
    if not isinstance(given, (list, tuple)):
        raise IllegalMoveError(f"Return a list of gradients from ready, or an empty list to wait; got {given!r}.")
    known, layers = {id(one): layer for layer, one in computed.items()}, list[int]()
    for one in given:
        layer = known.get(id(one))
        if layer is None:
            got = "another gradient" if isinstance(one, LayerGradient) else repr(one)
            raise IllegalMoveError(f"Expected gradients of this play, from ready; got {got}.")
        if layer in sent:
            raise IllegalMoveError(f"The gradient of layer {layer} has been sent. Send gradients that are in ready.")
        if layer in layers:
            raise IllegalMoveError(f"The gradient of layer {layer} is in this message twice. Send it once.")
        layers.append(layer)
    return tuple(layers)


@dataclass(frozen=True, repr=False)
class Bucketed(Played):
    """A backward pass, its messages and the next forward pass."""

    buckets: tuple[Bucket, ...]
    forward: tuple[tuple[int, int], ...]

    @property
    def words(self) -> str:
        computed = sum(one.backward_ms + one.forward_ms for one in LAYERS)
        sent = sum(one.end_ms - one.start_ms for one in self.buckets)
        waited = self.score - computed
        messages = f"{len(self.buckets)} messages use" if len(self.buckets) > 1 else "1 message uses"
        return f"{messages} the link for {sent} ms, of which {sent - waited:g} ms hide behind computing."

    def lanes(self) -> dict[str, list[tuple[int, int, str]]]:
        """Return the lanes of the picture: begin, end and name of each box, in ms."""
        backward, now = [], 0
        for number in reversed(range(len(LAYERS))):
            backward.append((now, now + LAYERS[number].backward_ms, str(number)))
            now = backward[-1][1]
        link = [(one.start_ms, one.end_ms, " ".join(map(str, one.layers))) for one in self.buckets]
        forward = [(begin, end, str(number)) for number, (begin, end) in enumerate(self.forward)]
        return {"backward": backward, "link": link, "forward": forward}

    def text(self) -> str:
        """The three lanes, a column for every 2 ms, and each message with its layers."""
        rows = []
        for name, boxes in self.lanes().items():
            row = [" "] * (int(self.score) // 2 + 1)
            for number, (begin, end, _) in enumerate(boxes):
                row[begin // 2 : end // 2] = "▓▒"[number % 2] * (end // 2 - begin // 2)
            rows.append(f"{name:9} {''.join(row).rstrip()}")
        sent = [f"{one.start_ms:3}–{one.end_ms:3} ms: layers {' '.join(map(str, one.layers))}" for one in self.buckets]
        return "\n".join([*rows, "A column is 2 ms.", *sent])

    def drawing(self, width: float) -> "Drawing":
        from minips.lab.puzzles.pictures import draw_lanes

        return draw_lanes(self.lanes(), "ms", self.goals, width)
