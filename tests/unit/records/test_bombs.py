"""Decompression bombs: a small payload that would become a gigabyte is refused, with little memory.

Each bomb is opened in its own process, because a peak of resident memory never goes down again. The payload is made
here and passed on, so that making it leaves no peak behind that could hide the measured one.
"""

import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import pytest

from penstock.records.compression import Codec

MIB = 1024 * 1024
CAP_BYTES = 10 * MIB

PROBE = """
import sys
from penstock.records.compression import Codec, compress, decompress

# Not getrusage: its peak is inherited from the process that started this one.
def memory_kib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

codec, size_bytes, cap_bytes = Codec(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
payload = bytearray(size_bytes)
sys.stdin.buffer.readinto(payload)
decompress(codec, compress(codec, b"warm"), 10)
before_kib = memory_kib("VmRSS:")
try:
    decompress(codec, payload, cap_bytes)
    verdict = "nothing"
except BaseException as trouble:
    verdict = type(trouble).__name__
print(memory_kib("VmHWM:") - before_kib, verdict)
"""


def zeros(size_bytes: int) -> Iterator[bytes]:
    chunk = bytes(MIB)
    return (chunk for _ in range(size_bytes // MIB))


def gzip_of_zeros() -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, 31)
    return b"".join(map(deflater.compress, zeros(1024 * MIB))) + deflater.flush()


def lz4_of_zeros(block_size: int) -> bytes:
    packer = lz4.frame.LZ4FrameCompressor(block_size=block_size)
    return bytes(packer.begin() + b"".join(map(packer.compress, zeros(256 * MIB))) + packer.flush())


def zstd_of_zeros() -> bytes:
    packer = cramjam.zstd.Compressor(level=3)
    for chunk in zeros(1024 * MIB):
        packer.compress(chunk)
    return bytes(packer.finish())


def zstd_of_runs(window_log: int) -> bytes:
    """32 GB in a megabyte: every four bytes make a block of 128 KiB."""
    block = struct.pack("<I", 131072 << 3 | 1 << 1)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00" + bytes([window_log - 10 << 3]) + block * 249_999 + b"\x03\0\x10\0"


def zstd_of_matches(window_log: int) -> bytes:
    """Compressed blocks, whose size the headers do not show: the decoder itself must stop."""
    packer = cramjam.zstd.Compressor(level=3)
    for _ in range(1024):
        packer.compress(bytes(range(256)) * 4096)
    frame = bytearray(packer.finish())
    assert frame[4] & 0xE0 == 0, "the frame has a window byte and no content size"
    frame[5] = window_log - 10 << 3
    return bytes(frame)


def zstd_of_many_frames() -> bytes:
    """Every frame requests the largest window again."""
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([27 - 10 << 3]) + struct.pack("<I", 131072 << 3 | 3)[:3] + b"\0"
    return frame * 100_000


def xerial_of_zeros() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(32 * 1024)))
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 2_000


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, gzip_of_zeros),
    "lz4": (Codec.LZ4, lambda: lz4_of_zeros(lz4.frame.BLOCKSIZE_MAX64KB)),
    "lz4 of 4 MiB blocks": (Codec.LZ4, lambda: lz4_of_zeros(lz4.frame.BLOCKSIZE_MAX4MB)),
    "zstd": (Codec.ZSTD, zstd_of_zeros),
    "zstd of runs": (Codec.ZSTD, lambda: zstd_of_runs(21)),
    "zstd of runs, largest window": (Codec.ZSTD, lambda: zstd_of_runs(27)),
    "zstd of matches": (Codec.ZSTD, lambda: zstd_of_matches(21)),
    "zstd of many frames": (Codec.ZSTD, zstd_of_many_frames),
    "raw snappy": (Codec.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(50 * MIB)))),
    "raw snappy that lies": (Codec.SNAPPY, lambda: b"\x80\x80\x80\x80\x04" + bytes(MIB)),
    "xerial snappy": (Codec.SNAPPY, xerial_of_zeros),
}


def open_elsewhere(codec: Codec, payload: bytes) -> tuple[float, str]:
    """Returns the growth of a fresh process's peak memory in MiB, and the name of the error."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(int(codec)), str(len(payload)), str(CAP_BYTES)],
        input=payload,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    growth_kib, verdict = done.stdout.split()
    return int(growth_kib) / 1024, verdict.decode()


@pytest.mark.parametrize(("codec", "make"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_within_16_mib(codec: Codec, make: Callable[[], bytes]) -> None:
    payload = make()
    assert len(payload) < 5 * MIB
    growth_mib, verdict = open_elsewhere(codec, payload)
    print(f"{len(payload):,} bytes of {codec.name}: peak grew by {growth_mib:.1f} MiB")
    assert verdict == "BatchTooLarge"
    assert growth_mib <= 16


def test_the_largest_window_costs_at_most_the_cap_again() -> None:
    """The decoder keeps its output as the window: a frame as level 22 writes it costs at most twice the cap."""
    growth_mib, verdict = open_elsewhere(Codec.ZSTD, zstd_of_matches(27))
    assert verdict == "BatchTooLarge"
    assert growth_mib <= 2 * CAP_BYTES / MIB + 2
