"""Limits, other people's tools, and what compresses at all."""

import contextlib
import gzip
import zlib

import lz4.block
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minips as ps
from minips.stage import build, missing, names, stage_class
from minips.stages.compressors import itemsize
from minips.stages.serializers import raw


def compressors():
    return [build("compressor", name) for name in names("compressor") if not missing(stage_class("compressor", name))]


@pytest.mark.parametrize("compressor", compressors(), ids=repr)
@given(data=st.binary(max_size=300), repeats=st.integers(1, 50))
@settings(deadline=None, max_examples=50)
def test_any_bytes_come_back_at_exactly_their_limit(compressor, data, repeats):
    data = data * repeats
    packed = compressor.compress(data)
    assert bytes(compressor.decompress(packed, len(data))) == data
    if data:
        with pytest.raises(ValueError, match=f"more than the {len(data) - 1} bytes"):
            compressor.decompress(packed, len(data) - 1)


@pytest.mark.parametrize("compressor", compressors(), ids=repr)
@given(data=st.binary(max_size=100))
@settings(deadline=None, max_examples=100)
def test_any_bytes_decompress_or_are_a_value_error(compressor, data):
    with contextlib.suppress(ValueError):
        assert len(compressor.decompress(data, 1000)) <= 1000


def test_no_compression_passes_the_buffer_itself():
    data = bytearray(b"abc")
    assert ps.NoCompression().compress(data) is data
    assert ps.NoCompression().decompress(data, 3) is data


def test_zlib_is_what_everybodys_zlib_reads():
    data = b"gradient " * 100
    assert zlib.decompress(ps.Zlib().compress(data)) == data
    assert ps.Zlib().decompress(zlib.compress(data, 9), len(data)) == data


def test_zlib_makes_more_effort_at_a_higher_level():
    data = np.random.default_rng(0).integers(0, 4, 100_000).astype(np.uint8).tobytes()
    assert len(ps.Zlib(level=9).compress(data)) < len(ps.Zlib(level=1).compress(data)) < len(data) / 2


def test_zlib_stops_inflating_at_the_limit():
    bomb = zlib.compress(bytes(10**8), 9)
    with pytest.raises(ValueError, match="more than the 1000 bytes"):
        ps.Zlib().decompress(bomb, 1000)


def test_zlib_says_what_is_wrong():
    packed = ps.Zlib().compress(b"gradient " * 100)
    with pytest.raises(ValueError, match="cut short"):
        ps.Zlib().decompress(packed[:-1], 10_000)
    with pytest.raises(ValueError, match="not a zlib stream"):
        ps.Zlib().decompress(b"garbage", 10_000)


def test_lz4_is_what_everybodys_lz4_reads():
    data = b"gradient " * 100
    assert lz4.block.decompress(ps.Lz4().compress(data)) == data


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**32 - 1])
def test_lz4_believes_no_size_above_the_limit(size):
    with pytest.raises(ValueError, match="more than the 1000 bytes"):
        ps.Lz4().decompress(size.to_bytes(4, "little") + b"\0" * 10, 1000)


def test_lz4_says_what_is_wrong():
    packed = ps.Lz4().compress(b"gradient " * 100)
    for wrong in (packed[:-1], packed[:2], b"", packed[:4] + b"\xff" * 20):
        with pytest.raises(ValueError, match="not an LZ4 block"):
            ps.Lz4().decompress(wrong, 10_000)


def test_random_mantissas_do_not_compress_and_zeros_do():
    x = np.random.default_rng(0).standard_normal(100_000).astype("f4")
    assert len(ps.Lz4().compress(x.view(np.uint8).data)) > 0.99 * x.nbytes
    assert len(ps.Lz4().compress(np.zeros_like(x).view(np.uint8).data)) < 0.01 * x.nbytes


def test_gzip_is_what_everybodys_gzip_reads():
    data = b"gradient " * 100
    assert gzip.decompress(ps.Gzip().compress(data)) == data
    assert ps.Gzip().decompress(gzip.compress(data, 9), len(data)) == data
    assert len(ps.Gzip().compress(data)) == len(ps.Zlib().compress(data)) + 12


@pytest.mark.parametrize("compressor", [ps.Zlib(), ps.Gzip(), ps.Zstd()], ids=repr)
def test_a_stream_that_was_cut_or_goes_on_is_refused(compressor):
    whole = bytes(compressor.compress(b"gradient " * 100))
    for damaged in (whole[:-1], whole + b"more", whole + whole):
        with pytest.raises(ValueError, match="frame is"):
            compressor.decompress(damaged, 10_000)


def test_zstd_levels_reach_from_fast_to_small():
    data = np.random.default_rng(0).integers(0, 4, 100_000).astype(np.uint8).tobytes()
    sizes = [len(ps.Zstd(level=level).compress(data)) for level in (-7, 1, 19)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_shuffled_bytes_of_floats_compress_where_lz4_alone_finds_nothing():
    x = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    lz4, blosc = (len(one.compress(raw(x))) / x.nbytes for one in (ps.Lz4(), ps.Blosc()))
    assert lz4 > 0.99
    assert blosc < 0.95


@pytest.mark.parametrize(("dtype", "size"), [("f8", 8), ("f4", 4), ("f2", 2), ("u1", 1)])
def test_blosc_asks_the_array_how_large_a_value_is(dtype, size):
    x = np.arange(1000).astype(dtype)
    assert itemsize(raw(x), otherwise=3) == size
    assert itemsize(raw(x[::2]), otherwise=3) == size
    assert itemsize(bytes(raw(x)), otherwise=3) == 3
    assert ps.Blosc().compress(raw(x))[3] == size  # the chunk's header, byte 3


def test_blosc_believes_no_size_above_the_limit():
    bomb = ps.Blosc().compress(bytes(10**7))
    with pytest.raises(ValueError, match="more than the 1000 bytes"):
        ps.Blosc().decompress(bomb, 1000)
