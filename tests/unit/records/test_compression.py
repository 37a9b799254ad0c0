"""The codecs: accepted and refused payloads, and the cost of a refusal."""

import gzip
import struct
import time
import zlib

import cramjam
import lz4.frame
import pytest

from penstock.model.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from penstock.records import zstd
from penstock.records.compression import GZIP_MEMBERS_MAX, Codec, codec_of, compress, decompress

TEXT = b"".join(b"line %d of a text that compresses well\n" % number for number in range(5_000))
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def xerial(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """Compresses as snappy-java does."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + block_bytes]))
        out += struct.pack(">i", len(block)) + block
    return out


def zstd_frame(*blocks: bytes, window_log: int = 21) -> bytes:
    """Builds a frame without content size or checksum from blocks of `zstd_block`."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + b"".join(blocks)


def zstd_block(kind: int, size_bytes: int, content: bytes, *, is_last: bool = False) -> bytes:
    return struct.pack("<I", size_bytes << 3 | kind << 1 | is_last)[:3] + content


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(300_000)], ids=["empty", "one byte", "text", "zeros"])
def test_what_goes_in_comes_out_up_to_the_last_byte_of_the_cap(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed), len(data) + 1_000_000) == data
    if data:
        with pytest.raises(BatchTooLarge):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 9), (Codec.ZSTD, 19)])
def test_levels(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), len(TEXT)) == TEXT


def test_a_number_that_is_no_codec() -> None:
    assert codec_of(4) is Codec.ZSTD
    for number in (5, 7, -1):
        with pytest.raises(UnsupportedCompression):
            codec_of(number)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_cut_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT[:500])
    for size_bytes in range(len(packed)):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size_bytes], 1_000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_after_the_end_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, TEXT[:500]) + b"?", 1_000)


def test_gzip_of_several_members() -> None:
    packed = b"".join(gzip.compress(part) for part in (b"one", b"", b"two"))
    assert decompress(Codec.GZIP, packed, 6) == b"onetwo"
    with pytest.raises(BatchTooLarge):
        decompress(Codec.GZIP, packed, 5)


def test_gzip_is_not_zlib() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, zlib.compress(TEXT), 10**6)


def test_a_flood_of_gzip_members_is_refused_at_once() -> None:
    flood = gzip.compress(b"") * 50_000
    started_s = time.process_time()
    with pytest.raises(CorruptBatch, match=str(GZIP_MEMBERS_MAX)):
        decompress(Codec.GZIP, flood, 10**6)
    assert time.process_time() - started_s < 0.05


@pytest.mark.parametrize("block_bytes", [100, 32 * 1024, 10**6])
def test_xerial_snappy(block_bytes: int) -> None:
    packed = xerial(TEXT, block_bytes)
    assert decompress(Codec.SNAPPY, packed, len(TEXT)) == TEXT
    with pytest.raises(BatchTooLarge):
        decompress(Codec.SNAPPY, packed, len(TEXT) - 1)


def test_xerial_snappy_without_blocks_is_empty() -> None:
    assert decompress(Codec.SNAPPY, xerial(b""), 0) == b""


@pytest.mark.parametrize("length", [0, -1, 2**31 - 1, -(2**31)])
def test_a_xerial_block_has_a_plausible_length(length: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, xerial(b"") + struct.pack(">i", length) + b"\0", 100)


def test_xerial_snappy_cut_anywhere_but_between_blocks_is_corrupt() -> None:
    whole = xerial(TEXT[:100], block_bytes=50)
    between = {16, 16 + 4 + struct.unpack_from(">i", whole, 16)[0]}
    for size_bytes in set(range(len(whole))) - between:
        # Cut inside the magic, the payload looks like raw snappy of 10,626 bytes.
        with pytest.raises(CorruptBatch):
            decompress(Codec.SNAPPY, whole[:size_bytes], 20_000)


def test_snappy_that_declares_more_than_it_can_hold() -> None:
    declares_a_mebibyte = b"\x80\x80\x40" + b"\x00a"
    with pytest.raises(CorruptBatch, match="cannot hold"):
        decompress(Codec.SNAPPY, declares_a_mebibyte, 10**7)
    with pytest.raises(BatchTooLarge):
        decompress(Codec.SNAPPY, declares_a_mebibyte, 10**5)


def test_lz4_as_java_writes_it_and_as_others_do() -> None:
    for block_size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
        for settings in (
            {"block_linked": False},
            {"block_linked": True},
            {"content_checksum": True, "block_checksum": True},
        ):
            packed = lz4.frame.compress(TEXT, block_size=block_size, store_size=False, **settings)
            assert decompress(Codec.LZ4, packed, len(TEXT)) == TEXT


def test_lz4_is_one_frame_because_java_reads_no_second() -> None:
    with pytest.raises(CorruptBatch, match="after the lz4 frame"):
        decompress(Codec.LZ4, compress(Codec.LZ4, b"one") + compress(Codec.LZ4, b"two"), 100)


def test_lz4_whose_frame_ends_where_an_input_step_does() -> None:
    for size_bytes in range(65_400, 65_600):
        data = bytes(cramjam.snappy.compress_raw(b"")) * size_bytes
        assert decompress(Codec.LZ4, compress(Codec.LZ4, data), size_bytes) == data


def test_zstd_with_and_without_content_size() -> None:
    streamed = cramjam.zstd.Compressor(level=3)
    streamed.compress(TEXT)
    without = bytes(streamed.finish())
    with_size = bytes(cramjam.zstd.compress(TEXT, level=3))
    assert without[4] & 0xE0 == 0
    for packed in (without, with_size, without + with_size):
        assert decompress(Codec.ZSTD, packed, 2 * len(TEXT)) == TEXT * (len(packed) // len(without) or 1)


def test_zstd_reads_past_skippable_frames() -> None:
    skippable = b"\x53\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"
    packed = skippable + compress(Codec.ZSTD, b"one") + skippable + compress(Codec.ZSTD, b"two")
    assert decompress(Codec.ZSTD, packed, 100) == b"onetwo"


def test_zstd_of_the_highest_level_is_read() -> None:
    """Level 22 requests a window of 128 MiB when the writer does not know the size, as Java's does not."""
    streamed = cramjam.zstd.Compressor(level=22)
    streamed.compress(TEXT)
    packed = bytes(streamed.finish())
    assert packed[5] >> 3 == 27 - 10
    assert decompress(Codec.ZSTD, packed, len(TEXT)) == TEXT


@pytest.mark.parametrize("window_log", [28, 31, 41])
def test_zstd_of_a_larger_window_is_refused(window_log: int) -> None:
    with pytest.raises(BatchTooLarge, match="window"):
        decompress(Codec.ZSTD, zstd_frame(zstd_block(0, 1, b"x", is_last=True), window_log=window_log), 10**6)
    assert zstd.WINDOW_BYTES_MAX == 1 << 27


@pytest.mark.parametrize(
    "frame",
    [
        zstd_frame(zstd_block(3, 1, b"x", is_last=True)),
        zstd_frame(zstd_block(1, 128 * 1024 + 1, b"x", is_last=True)),
        zstd_frame(zstd_block(2, 10, b"not a block", is_last=True)),
        zstd_frame(zstd_block(0, 1, b"x")),
        b"\x28\xb5\x2f\xfd\x03\x58" + b"\1\0\0\0" + zstd_block(0, 1, b"x", is_last=True),
        b"\x28\xb5\x2f\xfd\x20\x05" + zstd_block(1, 4, b"x", is_last=True),
        b"\x28\xb5\x2f\xfd\x20\x05" + zstd_block(1, 5, b"x") + zstd_block(1, 5, b"x", is_last=True),
        b"\x28\xb5\x2f\xfd\x08\x58" + zstd_block(0, 1, b"x", is_last=True),
        b"\x50\x2a\x4d\x18\xff\xff\xff\xff",
    ],
    ids=["kind", "block size", "block", "no last", "dictionary", "short", "long", "reserved bit", "skippable"],
)
def test_zstd_frames_that_contradict_themselves(frame: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, frame, 10**6)


def test_zstd_run_length_blocks() -> None:
    frame = zstd_frame(zstd_block(1, 100_000, b"a"), zstd_block(1, 3, b"b", is_last=True))
    assert decompress(Codec.ZSTD, frame, 100_003) == b"a" * 100_000 + b"bbb"
    with pytest.raises(BatchTooLarge):
        decompress(Codec.ZSTD, frame, 100_002)


def test_the_decoder_says_that_its_buffer_is_full_in_the_words_we_look_for() -> None:
    """This text distinguishes a zstd payload over the cap from a corrupt one."""
    with pytest.raises(cramjam.DecompressionError) as full:
        cramjam.zstd.decompress_into(compress(Codec.ZSTD, TEXT), bytearray(100))
    assert str(full.value) == "failed to write whole buffer"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_refusal_of_a_small_input_takes_no_time(codec: Codec) -> None:
    packed = compress(codec, bytes(10**6))
    started_s = time.process_time()
    with pytest.raises(BatchTooLarge):
        decompress(codec, packed, 10_000)
    assert time.process_time() - started_s < 0.05
