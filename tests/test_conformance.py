"""Every registered stage, some with other fields than the default ones, and a learner's own, meet their contracts."""

import json
import math
import threading
from dataclasses import dataclass

import msgpack
import numpy as np
import pytest

import minips as ps
from minips.stage import build, kinds, missing, names, stage_class
from minips.stages.quantizers.base import part, shape_tag, zeros_for
from minips.stages.serializers import outline, restore
from minips.testing import check, check_quantizer, check_serializer, check_transport

VARIANTS = [
    *(ps.Uniform(bits=bits) for bits in range(1, 8)),
    *(ps.TopK(fraction=fraction) for fraction in (1e-6, 0.1, 0.5, 1.0)),
    *(ps.RandomK(fraction=fraction) for fraction in (1e-6, 0.1, 0.9)),
    *(ps.QSGD(levels=levels) for levels in (1, 127)),
    ps.PowerSGD(rank=1),
    ps.Adaptive(target_error=0.5),
    ps.MomentumCorrection(momentum=0.5),
    ps.TrimmedMean(trim=3),
    ps.Krum(bad=2, select=2),
    ps.BSP(backup=20),
    *(ps.Zlib(level=level) for level in (6, 9)),
    ps.Lz4(acceleration=64),
    ps.ErrorFeedback(decay=0.5),
    ps.ErrorFeedback(decay=0.0),
    ps.BSP(backup=1),
    ps.SSP(staleness=0),
    ps.SSP(staleness=5),
    ps.SGD(momentum=0.9),
    ps.SGD(momentum=0.9, nesterov=True, weight_decay=0.01),
    ps.Adagrad(lr=0.5),
    ps.Adam(lr=0.05, beta1=0.0),
    ps.Tcp(max_message_bytes=2**27),
]


def registered():
    """Each registered stage with its default fields; one whose library is not installed is skipped."""
    for kind in kinds():
        for name in names(kind):
            lacking = missing(stage_class(kind, name))
            if lacking:
                yield pytest.param(None, id=name, marks=pytest.mark.skip(f"{', '.join(lacking)} is not installed"))
            elif kind != "transport":
                yield build(kind, name)


def transports():
    """Those whose library is installed; those with a pool also with other pools."""
    yield from (build("transport", name) for name in names("transport") if not missing(stage_class("transport", name)))
    yield from (ps.Tcp(pool=1), ps.Tcp(pool=3))
    if not missing(ps.Http):
        yield from (pytest.param(ps.Http(pool=pool), marks=pytest.mark.soak) for pool in (0, 1))


def quick_first():
    """The same transports; that of Pyro, which takes the most time, is tried by the soak tests."""
    for one in transports():
        slow = getattr(one, "name", "") == "pyro"
        yield pytest.param(one, marks=pytest.mark.soak) if slow else one


@pytest.mark.parametrize("stage", [*registered(), *VARIANTS], ids=repr)
def test_stage_meets_its_contract(stage):
    check(stage)


@pytest.mark.parametrize("name", names("quantizer"))
def test_every_quantizer_takes_half_floats(name):
    if missing(stage_class("quantizer", name)):
        pytest.skip("its library is not installed")
    check_quantizer(build("quantizer", name), dtypes=(np.float16,))


@pytest.mark.parametrize("transport", [*quick_first()], ids=repr)
def test_transport_meets_its_contract(transport):
    check_transport(transport, cycles=10 if transport.name == "pyro" else 50)


def by_time():
    """The same transports, marked: Pyro's connections take the most time."""
    for one in transports():
        transport = one.values[0] if hasattr(one, "values") else one
        yield pytest.param(transport, marks=pytest.mark.campaign if transport.name == "pyro" else pytest.mark.soak)


@pytest.mark.parametrize("transport", [*by_time()], ids=repr)
def test_a_thousand_connections_leave_nothing_behind(transport):
    check_transport(transport, cycles=200 if transport.name == "pyro" else 1000)


def test_all_kinds_are_there():
    eight = {"quantizer", "memory", "serializer", "compressor", "transport", "aggregator", "consistency", "optimizer"}
    assert eight <= set(kinds())


@pytest.fixture
def learners(registry):
    """A quantizer and a serializer as a learner writes them."""

    @ps.register
    @dataclass(frozen=True)
    class Rounded(ps.Quantizer):
        name = "rounded"
        step: float = ps.option(0.25, "the distance between two levels", above=0)

        def encode(self, x, rng):
            if x.size and np.abs(x).max() / self.step > 2**31:
                return {"raw": x, "step": np.zeros(1), "like": shape_tag(x)}
            return {
                "raw": np.asarray(np.rint(x / self.step), "i4"),
                "step": np.array([self.step]),
                "like": shape_tag(x),
            }

        def decode(self, parts):
            x, raw, step = zeros_for(parts), part(parts, "raw"), part(parts, "step").reshape(-1)
            if raw.size != x.size or step.size != 1:
                raise ValueError("The parts do not fit together.")
            x.reshape(-1)[...] = raw.reshape(-1) * (step[0] or 1)
            return x

        def error_bound(self, x):
            return self.step / 2

    @ps.register
    @dataclass(frozen=True)
    class Hex(ps.Serializer):
        name = "hex"

        def dumps(self, packet):
            index, _ = outline(packet, lambda x: [x.dtype.name, x.shape, x.tobytes().hex()])
            return [json.dumps([packet.header, index]).encode()]

        def loads(self, frames):
            def array(entry):
                dtype, shape, text = entry
                return np.frombuffer(bytes.fromhex(text), dtype).reshape(shape)

            try:
                header, index = json.loads(bytes(frames[0]))
                return restore(header, index, array)
            except Exception as error:
                raise ValueError(f"not hex: {error}") from error

    return Rounded, Hex


def test_learners_stages_meet_the_contract(learners):
    rounded, hexadecimal = learners
    check_quantizer(rounded())
    check_quantizer(rounded(step=2.0))
    check_serializer(hexadecimal())


def wrong_shape(self, x, rng):
    return {"values": x.reshape(-1)}


def changes_input(self, x, rng):
    x *= 2
    return {"values": x}


def draws_globally(self, x, rng):
    return {"values": np.asarray(x + np.random.default_rng().random(), x.dtype)}


def half_of_it(self, x, rng):
    return {"values": np.asarray(x / 2)}


def no_array(self, x, rng):
    return {"values": x.tolist()}


@pytest.mark.parametrize(
    ("encode", "said"),
    [
        (wrong_shape, r"ordinary values, float32 of shape \(0, 3\).*: decode returned the shape \(0,\)"),
        (changes_input, "read-only"),
        (draws_globally, "differs for the same seed"),
        (half_of_it, "the error is .*, error_bound says 0"),
        (no_array, "is a list, not an array"),
    ],
)
def test_a_wrong_quantizer_is_told_why(registry, encode, said):
    Wrong = type("Wrong", (ps.Exact,), {"name": "wrong", "encode": encode})
    wrong = ps.register(dataclass(frozen=True)(Wrong))()
    with pytest.raises(AssertionError, match=said):
        check(wrong)


def test_a_quantizer_that_reads_its_own_fields_is_told_why(registry):
    @ps.register
    @dataclass(frozen=True)
    class Scaled(ps.Quantizer):
        name = "scaled"
        scale: float = ps.option(2.0, "a factor that the receiver does not know")

        def encode(self, x, rng):
            return {"values": np.asarray(x * self.scale)}

        def decode(self, parts):
            return np.asarray(part(parts, "values") / self.scale)

        def error_bound(self, x):
            return 1e-6 * float(np.abs(x).max(initial=0))

    for scale, other in ((2.0, "another 'scale'"), (4.0, "default fields")):
        said = rf"Scaled\(scale={scale}\) with ordinary values.*decode reads the quantizer's own fields.*with {other}"
        with pytest.raises(AssertionError, match=said):
            check(Scaled(scale=scale))


def test_a_quantizer_that_believes_any_shape_is_told_why(registry):
    @ps.register
    @dataclass(frozen=True)
    class Trusting(ps.Quantizer):
        name = "trusting"

        def encode(self, x, rng):
            return {"values": x, "like": shape_tag(x)}

        def decode(self, parts):
            values, like = part(parts, "values"), part(parts, "like")
            if math.prod(like.shape[1:]) > 2**31:
                raise MemoryError("as np.zeros would, where the machine promises no more than it has")
            return values.reshape(like.shape[1:]).astype(like.dtype)

    said = r"the part 'like' claiming the shape \(0, 1048576, 1048576\): expected ValueError, got MemoryError"
    with pytest.raises(AssertionError, match=said):
        check(Trusting())


def test_an_unregistered_stage_is_told_why():
    @dataclass(frozen=True)
    class Stray(ps.Exact):
        name = "stray"

    with pytest.raises(AssertionError, match="put @register above it"):
        check(Stray())


def test_a_stage_that_is_not_frozen_is_told_why(registry):
    class Loose(ps.Stage):
        kind, name = "loose", "loose"

    with pytest.raises(AssertionError, match="Loose is not frozen: put @dataclass"):
        check(ps.register(dataclass(Loose))())


def test_a_transport_that_reverses_frames_is_told_why(registry):
    class _Backwards:
        def __init__(self, channel):
            self._channel = channel
            self.close = channel.close

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

        def call(self, frames):
            return self._channel.call(frames[::-1])

    @ps.register
    @dataclass(frozen=True)
    class Reversed(ps.InProc):
        name = "reversed"

        def connect(self, address, token="", timeout=10.0):
            return _Backwards(super().connect(address, token, timeout))

    with pytest.raises(AssertionError, match=r"Reversed\(\): Frames come back in order.*empty frames among others"):
        check(Reversed())


RING, TWO = ps.RingAllReduce(), ps.TwoShot()


def test_a_learners_all_reduce_meets_the_contract(registry):
    @ps.register
    @dataclass(frozen=True)
    class ToTheFirst(ps.AllReduce):
        """All values straight to rank 0, and the sums straight to all; no piece for the others to own."""

        name = "tothefirst"
        direct = True

        def pieces(self, workers):
            return 1

        def schedule(self, rank, workers):
            whole = range(1)
            if rank == 0:
                up = [ps.Hop(source=other, receives=whole) for other in range(1, workers)]
            else:
                up = [ps.Hop(to=0, sends=whole) if other == rank else ps.Hop() for other in range(1, workers)]
            return [*up, *(ps.Hop(one.source, one.receives, one.to, one.sends, adds=False) for one in up)]

    check(ToTheFirst())


def first(hops, **changes):
    """The hops, the first of them with other fields."""
    return [hops[0]._replace(**changes), *hops[1:]]


def direct_ring(rank, workers):
    return RING.schedule(rank, workers)


def uneven(rank, workers):
    return RING.schedule(rank, workers)[rank == 1 :]


def one_lost(rank, workers):
    hops = TWO.schedule(rank, workers)
    if rank == 0:
        return first(hops, to=None, sends=range(0))
    return first(hops, source=None, receives=range(0)) if rank == 1 else hops


def added_twice(rank, workers):
    return [*TWO.schedule(rank, workers)[: workers - 1], *TWO.schedule(rank, workers)]


def handed_round_early(rank, workers):
    return TWO.schedule(rank, workers)[workers - 1 :]


def not_awaited(rank, workers):
    hops = TWO.schedule(rank, workers)
    return first(hops, source=None, receives=range(0)) if rank == 1 else hops


def not_sent(rank, workers):
    hops = TWO.schedule(rank, workers)
    return first(hops, to=None, sends=range(0)) if rank == 0 else hops


def other_pieces(rank, workers):
    hops = TWO.schedule(rank, workers)
    return first(hops, sends=range(0, 1)) if rank == 0 else hops


def everyone_owns(rank, workers):
    """Swapped halves with a partner each time, so that every rank adds up by itself: exact, and else not the same."""
    if workers & (workers - 1):
        raise ValueError("a power of two")
    whole = range(workers)
    partners = (rank ^ 2**level for level in range(workers.bit_length() - 1))
    return [ps.Hop(partner, whole, partner, whole) for partner in partners]


def never(rank, workers):
    raise ValueError("not so many")


def elsewhere_longer(rank, workers):
    """A worker's thread sends one message more."""
    more = ps.Hop(to=(rank + 1) % workers, source=(rank - 1) % workers)
    here = threading.current_thread() is threading.main_thread()
    return [*RING.schedule(rank, workers), *([] if here else [more])]


@pytest.mark.parametrize(
    ("schedule", "direct", "said"),
    [
        (direct_ring, True, r"among 3 workers: .*rank 0 ends with 0 g0 \+ 1 g1 \+ 1 g2 in piece 0"),
        (uneven, False, r"the ranks have \{1, 2\} hops; all need the same number"),
        (one_lost, True, r"among 2 workers: .*rank 0 ends with 0 g0 \+ 1 g1 in piece 1"),
        (added_twice, True, r"rank 0 ends with 1 g0 \+ 2 g1 in piece 0"),
        (handed_round_early, True, r"rank 0 ends with 1 g0 \+ 0 g1 in piece 0"),
        (not_awaited, True, r"no rank receives the messages sent at \(hop, from, to\): \['\(0, 0, 1\)'\]"),
        (not_sent, True, "in hop 0 rank 1 waits for rank 0, which does not send to it"),
        (other_pieces, True, "Expected the pieces 1/w; got 0/w"),
        (everyone_owns, False, "Uniform.* gives the ranks different"),
        (elsewhere_longer, False, r"a run of 3 steps sends \d+ bytes, and \d+ are predicted"),
        (never, False, "has no schedule for 2, 3, 4, 5 and 8 workers"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_all_reduce_is_told_why(registry, schedule, direct, said):
    class Wrong(ps.AllReduce):
        name = "wrong"

        def schedule(self, rank, workers):
            return schedule(rank, workers)

    Wrong.direct = direct
    with pytest.raises(AssertionError, match=said):
        check(ps.register(dataclass(frozen=True)(Wrong))())


def test_an_optimizer_that_climbs_is_told_why(registry):
    @ps.register
    @dataclass(frozen=True)
    class Climb(ps.Optimizer):
        name = "climb"

        def step(self, params, grads, state):
            for name, p in params.items():
                p += 0.01 * grads[name]

    with pytest.raises(AssertionError, match="is the sign right"):
        check(Climb())


def test_an_aggregator_that_is_not_elementwise_is_told_why(registry):
    @ps.register
    @dataclass(frozen=True)
    class Geometric(ps.Aggregator):
        """Weights by the distance to the mean of the whole gradient, which no half of it knows."""

        name = "geometric"
        elementwise = True

        def combine(self, contributions):
            flat = np.stack([np.concatenate([g.ravel() for g in one.gradients.values()]) for one in contributions])
            weights = 1 / (1e-3 + np.linalg.norm(flat - flat.mean(axis=0), axis=1))
            weights /= weights.sum()
            return {
                name: np.asarray(
                    sum(w * one.gradients[name] for w, one in zip(weights, contributions, strict=True)), g.dtype
                )
                for name, g in contributions[0].gradients.items()
            }

    with pytest.raises(AssertionError, match="elementwise is True, but half of"):
        ps.testing.check(Geometric())


def test_an_optimizer_is_told_the_clock_that_its_contract_promises(registry):
    @ps.register
    @dataclass(frozen=True)
    class Warming(ps.Optimizer):
        """Steps that grow for ten clocks."""

        name = "warming"

        def step(self, params, grads, state):
            for name, p in params.items():
                p -= 0.1 * min((state["clock"] + 1) / 10, 1) * grads[name]

    ps.testing.check(Warming())


def test_a_serializer_that_loses_floats_is_told_why(registry):
    @ps.register
    @dataclass(frozen=True)
    class Rough(ps.MsgPack):
        name = "rough"

        def dumps(self, packet):
            first, *rest = super().dumps(packet)
            return [msgpack.packb(msgpack.unpackb(first), use_single_float=True), *rest]

    with pytest.raises(AssertionError, match="the header's 'floats' was"):
        check(Rough())


def test_a_model_that_waits_for_ever_is_told_why(registry):
    @ps.register
    @dataclass(frozen=True)
    class Never(ps.Consistency):
        name = "never"

        def quorum(self, workers):
            return None

        def may_pull(self, clock, slowest):
            return clock < slowest

    with pytest.raises(AssertionError, match="even the slowest worker would wait"):
        check(Never())
