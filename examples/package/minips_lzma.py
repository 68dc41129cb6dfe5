"""A stage in its own package: the entry point in ``pyproject.toml`` makes minips import this module.

Install it with ``pip install examples/package``, then try ``minips train --compressor lzma``.
"""

import lzma
from dataclasses import dataclass

import minips as ps


@ps.register
@dataclass(frozen=True)
class Lzma(ps.Compressor):
    """LZ77 with a range coder, as in .xz files: smaller than zlib, and slower."""

    name = "lzma"
    preset: int = ps.option(1, "effort: 0 is fast, 9 is small", minimum=0, maximum=9, step=1)

    def compress(self, buffer: ps.Buffer) -> ps.Buffer:
        return lzma.compress(buffer, preset=self.preset)

    def decompress(self, buffer: ps.Buffer, limit: int) -> ps.Buffer:
        decoder = lzma.LZMADecompressor(memlimit=2**27)  # a stream from the network may ask for gigabytes
        try:
            whole = decoder.decompress(buffer, limit + 1)
        except lzma.LZMAError as error:
            raise ValueError(f"These bytes are not an LZMA stream: {error}") from error
        if len(whole) > limit or not decoder.eof or decoder.unused_data:
            raise ValueError(f"This LZMA stream is cut short, or more than one, or makes more than {limit} bytes.")
        return whole


if __name__ == "__main__":
    ps.testing.check(Lzma())  # also with streams that are cut short, or would fill the memory
    print("All is well. The compressors that minips knows now:", ", ".join(ps.names("compressor")))
