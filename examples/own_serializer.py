"""A serializer of your own, a NumPy archive: ``minips --load own_serializer.py train --serializer npz``."""

import io
import json
from dataclasses import dataclass

import numpy as np

import minips as ps


@ps.register
@dataclass(frozen=True)
class Npz(ps.Serializer):
    """Header and names are JSON in the first array; all parts follow."""

    name = "npz"

    def dumps(self, packet: ps.Packet) -> ps.Frames:
        names = [[name, quantizer, list(parts)] for name, (quantizer, parts) in packet.tensors.items()]
        head = np.frombuffer(json.dumps([packet.header, names]).encode(), np.uint8)
        np.savez(file := io.BytesIO(), head, *[x for _, parts in packet.tensors.values() for x in parts.values()])
        return [file.getvalue()]

    def loads(self, frames: ps.Frames) -> ps.Packet:
        try:
            head, *arrays = np.load(io.BytesIO(frames[0]), allow_pickle=False).values()
            (header, names), left = json.loads(head.tobytes()), iter(arrays)
            tensors = {name: (quantizer, {key: next(left) for key in keys}) for name, quantizer, keys in names}
            return ps.Packet(header, tensors)
        except Exception as error:  # bytes from the network may be anything
            raise ValueError(f"This is not a message in an archive: {error!r}") from error


if __name__ == "__main__":
    ps.testing.check(Npz())  # also with messages that are cut short
    for serializer in ps.MsgPack(), Npz():
        frames = ps.Codec(serializer=serializer).sender().encode({"w": np.zeros(1000)})
        print(f"{sum(map(len, frames))} B for a gradient of 8000 B with {serializer}")
