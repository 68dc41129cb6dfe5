"""Compressors: the same data in fewer bytes. The contract is `Compressor`."""

from minips.stages.compressors.base import Compressor, NoCompression
from minips.stages.compressors.libraries import Blosc, Gzip, Lz4, Zlib, Zstd, itemsize

__all__ = ["Blosc", "Compressor", "Gzip", "Lz4", "NoCompression", "Zlib", "Zstd", "itemsize"]
