"""Wrong memories, serializers and compressors, and the words with which `ps.testing.check` refuses each."""

import bz2
import json
import pickle
import zlib
from dataclasses import dataclass

import msgpack
import numpy as np
import pytest
from wrong import Wrong, refuse

import minips as ps
from minips.stages.serializers import outline, restore

WRONG = Wrong()
refused = WRONG.refused


# Memories


@dataclass(frozen=True)
class Kept(ps.Memory):
    """Adds the error of the last step: a right one."""

    name = "kept"

    def compensate(self, x, state):
        return np.asarray(x + state["error"]) if "error" in state else x

    def update(self, p, sent, state):
        state["error"] = np.asarray(p - sent)


@refused("a fresh state gives another result; keep everything in the state")
class InTheClass(Kept):
    errors = {}

    def compensate(self, x, state):
        return super().compensate(x, self.errors) if x.shape == self.errors.get("error", x).shape else x

    def update(self, p, sent, state):
        super().update(p, sent, self.errors)


@refused("a fresh state gives another result; keep everything in the state|compensate returned")
class ByTheStatesPlace(Kept):
    """Forgets where the states are copies, as after a resume."""

    errors = {}

    def compensate(self, x, state):
        return super().compensate(x, self.kept(state))

    def update(self, p, sent, state):
        super().update(p, sent, self.kept(state))

    def kept(self, state):
        """The state is kept as well, so that no other one gets its place."""
        return self.errors.setdefault(id(state), (state, {}))[1]


@refused("a fresh state gives another result; keep everything in the state")
class ClearedWhereTheStateIsEmpty(Kept):
    """Looks like a fresh start, but another tensor is sent meanwhile."""

    errors = {}

    def compensate(self, x, state):
        if not state:
            self.errors.clear()
        state["used"] = np.ones(1)
        return super().compensate(x, self.errors) if x.shape == self.errors.get("error", x).shape else x

    def update(self, p, sent, state):
        super().update(p, sent, self.errors)


@refused("a fresh state gives another result")
class Noisy(Kept):
    def compensate(self, x, state):
        return np.asarray(x + np.random.default_rng().normal(), x.dtype)


@refused("writes into an array that was passed to it; copy first")
class AddsInPlace(Kept):
    def compensate(self, x, state):
        x += state.get("error", 0)
        return x


@refused("writes into an array that was passed to it; copy first")
class WritesIntoTheOldState(Kept):
    def update(self, p, sent, state):
        state.setdefault("error", np.zeros_like(p))[...] = p - sent


@refused("the state keeps, as 'last', an array that belongs to the caller; keep a copy")
class KeepsTheGradient(Kept):
    def compensate(self, x, state):
        state["last"] = x
        return super().compensate(x, state)


@refused("the state keeps, as 'known', an array that belongs to the caller; keep a copy")
class KeepsWhatCameIn(ps.Delta):
    def update(self, p, sent, state):
        state["known"] = np.asarray(state["known"] + sent) if "known" in state else sent


@refused("the state keeps a list as 'errors', not an array")
class KeepsAList(Kept):
    def update(self, p, sent, state):
        state["errors"] = [*state.get("errors", []), p - sent]


@refused("compensate returned float64 of shape")
class Widens(Kept):
    def compensate(self, x, state):
        return np.asarray(x + state.get("error", np.zeros(x.shape)))


@refused("compensate returned a float32, not an array")
class GivesAScalar(Kept):
    def compensate(self, x, state):
        return x + state.get("error", x.dtype.type(0))


@refused(r"compensate returned float32 of shape \(4,\) for float32 of shape \(2, 2\)")
class Flattens(Kept):
    def compensate(self, x, state):
        return super().compensate(x.reshape(-1), state)


@refused("divide by zero|invalid value")
class Normalises(Kept):
    def compensate(self, x, state):
        return np.asarray(x / (state["error"] if "error" in state else x.dtype.type(1)))


@refused("it is marked stateless but wrote")
class CalledStateless(Kept):
    stateless = True


@refused("it is marked stateless but changed the array to send")
class HalvesStatelessly(ps.NoMemory):
    stateless = True

    def compensate(self, x, state):
        return np.asarray(x / 2)


@refused("restore reads the memory's own fields: .* a receiver with another 'rate', restores other values")
class RateOfTheReceiver(ps.Delta):
    rate: float = ps.option(1.0, "share of a difference", minimum=0, maximum=1)

    def update(self, p, sent, state):
        state["known"] = np.asarray(state.get("known", 0) + sent * sent.dtype.type(self.rate))


@refused("the receiver restored an array that is not in the sender's state")
class ForgetsAtTheReceiver(ps.Delta):
    def restore(self, received, state):
        return received.copy()


@refused("it raised KeyError: 'error'")
class NeedsAState(Kept):
    def compensate(self, x, state):
        return np.asarray(x + state["error"])


# Serializers


def to_json(packet):
    index, _ = outline(packet, lambda x: [x.dtype.name, x.shape, np.ascontiguousarray(x).tobytes().hex()])
    return [json.dumps([packet.header, index]).encode()]


def of_json(frames):
    def array(entry):
        dtype, shape, text = entry
        return np.frombuffer(bytes.fromhex(text), dtype).reshape(shape)

    try:
        header, index = json.loads(bytes(frames[0]))
        return restore(header, index, array)
    except Exception as error:
        raise ValueError(f"not such a message: {error}") from error


@dataclass(frozen=True)
class Hexadecimal(ps.Serializer):
    """A right one."""

    name = "hexadecimal"

    def dumps(self, packet):
        return to_json(packet)

    def loads(self, frames):
        return of_json(frames)


def changed(packet, change):
    """The packet with other arrays."""
    tensors = {
        name: (quantizer, {part: change(x) for part, x in parts.items()})
        for name, (quantizer, parts) in packet.tensors.items()
    }
    return ps.Packet(packet.header, tensors)


@refused(r"the part '\(\)' was .* and became .* of shape \(1,\)")
class LosesZeroDimensions(Hexadecimal):
    def dumps(self, packet):
        return to_json(changed(packet, np.atleast_1d))


@refused("the part .* was float16 of shape .* and became float32")
class LosesHalfFloats(Hexadecimal):
    def dumps(self, packet):
        return to_json(changed(packet, lambda x: x.astype("f4") if x.dtype == np.float16 else x))


@refused("the part .* was bool of shape .* and became uint8")
class LosesTruths(Hexadecimal):
    def dumps(self, packet):
        return to_json(changed(packet, lambda x: x.view("u1") if x.dtype == bool else x))


@refused("parts that are not contiguous.*the part 'transposed'|parts that are not contiguous.*the part 'strided'")
class ForgetsTheOrder(Hexadecimal):
    def dumps(self, packet):
        return to_json(changed(packet, lambda x: x if x.flags.c_contiguous else np.ravel(x, "K").reshape(x.shape)))


@refused("the header's 'floats' was")
class RoundsTheHeader(ps.MsgPack):
    def dumps(self, packet):
        first, *rest = super().dumps(packet)
        return [msgpack.packb(msgpack.unpackb(first), use_single_float=True), *rest]


@refused(r"the tensors are \['layer/0.b', 'w', 'γ'\]")
class SortsTheTensors(Hexadecimal):
    def dumps(self, packet):
        return to_json(ps.Packet(packet.header, dict(sorted(packet.tensors.items()))))


@refused("dumps changed the packet: the header's .* was .* and became None")
class EmptiesTheHeader(Hexadecimal):
    def dumps(self, packet):
        frames = to_json(packet)
        packet.header.clear()
        return frames


@refused("after others were dumped.*the header's")
class KeepsTheOutline(Hexadecimal):
    last = {}

    def dumps(self, packet):
        self.last["header"] = packet.header
        return to_json(ps.Packet({}, packet.tensors))

    def loads(self, frames):
        return ps.Packet(self.last["header"], of_json(frames).tensors)


@refused("a later dumps wrote into the frames of an earlier one")
class OneBufferForAll(Hexadecimal):
    buffer = bytearray(2**20)

    def dumps(self, packet):
        (frame,) = to_json(packet)
        self.buffer[: len(frame)] = frame
        return [memoryview(self.buffer)[: len(frame)]]


@refused("loads reads the serializer's own fields. One with another 'key'")
class KeyOfTheReceiver(Hexadecimal):
    key: int = ps.option(7, "what each byte is mixed with", minimum=0, maximum=255)

    def dumps(self, packet):
        return [bytes(byte ^ self.key for byte in frame) for frame in to_json(packet)]

    def loads(self, frames):
        return of_json([bytes(byte ^ self.key for byte in bytes(frame)) for frame in frames])


@refused("loads ran code from the frames")
class PicklesUnsaid(ps.Serializer):
    def dumps(self, packet):
        return [pickle.dumps((packet.header, packet.tensors))]

    def loads(self, frames):
        try:
            return ps.Packet(*pickle.loads(frames[0]))
        except Exception as error:
            raise ValueError("not pickled") from error


@refused("loads ran code from the frames")
class Evaluates(Hexadecimal):
    def dumps(self, packet):
        (frame,) = to_json(ps.Packet({}, packet.tensors))
        return [frame, repr(packet.header).replace("nan", "float('nan')").replace("inf", "float('inf')").encode()]

    def loads(self, frames):
        try:
            header = eval(bytes(frames[1]).decode())
            return ps.Packet(restore(header, [], None).header, of_json(frames).tensors)
        except Exception as error:
            raise ValueError("not evaluated") from error


@refused("loads with .*: expected ValueError, got TypeError")
class TrustsItsFrames(Hexadecimal):
    def loads(self, frames):
        header, index = json.loads(b"".join(map(bytes, frames)))
        return restore(header, index, lambda entry: np.frombuffer(bytes.fromhex(entry[2]), entry[0]).reshape(entry[1]))


@refused("dumps returned a bytes, not a list of frames")
class GivesOneFrame(Hexadecimal):
    def dumps(self, packet):
        return to_json(packet)[0]


# Compressors


@dataclass(frozen=True)
class Bz2(ps.Compressor):
    """A right one."""

    name = "bz2"
    level: int = ps.option(1, "effort", minimum=1, maximum=9)

    def compress(self, buffer):
        return bz2.compress(buffer, self.level)

    def decompress(self, buffer, limit):
        reader = bz2.BZ2Decompressor()
        try:
            data = reader.decompress(bytes(buffer), limit + 1)
        except OSError as error:
            raise ValueError("not compressed by bz2") from error
        if len(data) > limit or not reader.eof:
            raise ValueError("more than the limit, or cut off")
        return data


@refused(
    "a bomb of 10000000 zeros with a limit of 1000 bytes: expected ValueError, and nothing was raised|one byte too"
)
class IgnoresTheLimit(Bz2):
    def decompress(self, buffer, limit):
        return super().decompress(buffer, 10**9)


@refused(r"a bomb of .*: it is refused, but only after \d+ bytes were made; stop at the limit")
class LooksTooLate(Bz2):
    def decompress(self, buffer, limit):
        data = super().decompress(buffer, 10**9)
        if len(data) > limit:
            raise ValueError("more than the limit")
        return data


@refused("a limit that is one byte too small: expected ValueError, and nothing was raised")
class CutsAtTheLimit(Bz2):
    def decompress(self, buffer, limit):
        return super().decompress(buffer, 10**9)[:limit]


@refused("it raised ValueError: more than the limit")
class StopsAByteEarly(Bz2):
    def decompress(self, buffer, limit):
        return super().decompress(buffer, limit - 1)


@refused("expected ValueError, got error: Error -3")
class LetsTheLibrarySpeak(ps.Zlib):
    def decompress(self, buffer, limit):
        reader = zlib.decompressobj()
        data = reader.decompress(buffer, limit + 1)
        if len(data) > limit or not reader.eof:
            raise ValueError("more than the limit, or cut off")
        return data


@refused("compressed bytes cut to .*: expected ValueError, and nothing was raised")
class TakesWhatIsCut(Bz2):
    def decompress(self, buffer, limit):
        reader = bz2.BZ2Decompressor()
        try:
            data = reader.decompress(bytes(buffer), limit + 1)
        except OSError as error:
            raise ValueError("not compressed by bz2") from error
        if len(data) > limit:
            raise ValueError("more than the limit")
        return data


@refused("compress changed its input")
class WipesItsInput(Bz2):
    def compress(self, buffer):
        packed = super().compress(buffer)
        if not memoryview(buffer).readonly:
            memoryview(buffer)[:] = bytes(len(buffer))
        return packed


@refused("after others were compressed.*came back as")
class KeepsTheLength(Bz2):
    lengths = []

    def compress(self, buffer):
        self.lengths.append(len(buffer))
        return super().compress(bytes(buffer) + b"padding")

    def decompress(self, buffer, limit):
        return super().decompress(buffer, limit + 7)[: self.lengths[-1]]


@refused("a later compress wrote into the bytes of an earlier one")
class OneBufferForAllBytes(Bz2):
    buffer = bytearray(2**20)

    def compress(self, buffer):
        packed = super().compress(buffer)
        self.buffer[: len(packed)] = packed
        return memoryview(self.buffer)[: len(packed)]


@refused("decompress reads the compressor's own fields. By one with another 'level'")
class LevelOfTheReceiver(Bz2):
    def compress(self, buffer):
        return bytes([self.level]) + super().compress(buffer)

    def decompress(self, buffer, limit):
        if bytes(buffer[:1]) != bytes([self.level]):
            raise ValueError("another level")
        return super().decompress(buffer[1:], limit)


@refused("identity is True, but compress returns other bytes")
class CalledTheSame(Bz2):
    identity = True


@refused("compress returned a list, not bytes")
class GivesNumbers(Bz2):
    def compress(self, buffer):
        return list(super().compress(buffer))


@refused("with nothing: it raised IndexError")
class FailsAtNothing(Bz2):
    def compress(self, buffer):
        return super().compress(bytes([buffer[0]]) + buffer[1:])


@refused("decompress returned a str, not bytes")
class GivesText(Bz2):
    def decompress(self, buffer, limit):
        return super().decompress(buffer, limit).decode("latin-1")


@pytest.mark.parametrize(("cls", "said"), WRONG)
def test_a_wrong_one_is_refused(registry, cls, said):
    refuse(cls, said)


@pytest.mark.parametrize("cls", [Kept, Hexadecimal, Bz2])
def test_a_right_one_is_accepted(registry, cls):
    ps.testing.check(ps.register(cls)())


def test_a_wrong_serializer_spoils_no_later_check(registry):
    refuse(EmptiesTheHeader, "dumps changed the packet")
    refuse(RoundsTheHeader, "the header's 'floats' was")
