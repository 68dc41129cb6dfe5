"""Serializers: from a packet to frames, and back. The contract is `Serializer`."""

from minips.stages.serializers.base import MsgPack, Packet, Serializer, array_dtype, outline, raw, restore
from minips.stages.serializers.formats import Json, Npy, Pickle, Protobuf, SafeTensors

__all__ = ["Json", "MsgPack", "Npy", "Packet", "Pickle", "Protobuf", "SafeTensors", "Serializer"]
__all__ += ["array_dtype", "outline", "raw", "restore"]
