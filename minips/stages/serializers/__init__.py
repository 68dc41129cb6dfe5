"""Serializers: a packet as frames, and back. The contract is `Serializer`."""

from minips.stages.serializers.base import MsgPack, Packet, Serializer, outline, raw, restore
from minips.stages.serializers.formats import Json, Npy, Pickle, Protobuf, SafeTensors
from minips.stages.serializers.wellformed import array_dtype

__all__ = ["Json", "MsgPack", "Npy", "Packet", "Pickle", "Protobuf", "SafeTensors", "Serializer"]
__all__ += ["array_dtype", "outline", "raw", "restore"]
