"""Zigzag varints of record fields: small numbers of either sign in few bytes.

Readers take (data, position) and return (value, next position). They raise IndexError if the bytes end early; the
walk over a batch converts that to CorruptBatch once, instead of checking for the end at every byte.
"""

from penstock.model.errors import CorruptBatch

_SMALL_MAX = 4096


def encode(value: int) -> bytes:
    """The zigzag varint of a number of at most 64 bits."""
    if 0 <= value < _SMALL_MAX:
        return _SMALL[value]
    return _encode(value)


def read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A 32-bit number of at most five bytes."""
    # Most numbers that do not fit one byte fit two.
    if (first := data[position]) >= 0x80 and (second := data[position + 1]) < 0x80:
        zigzag = first & 0x7F | second << 7
        return zigzag >> 1 ^ -(zigzag & 1), position + 2
    return _read(data, position, 32)


def read_varlong(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A 64-bit number of at most ten bytes."""
    if (first := data[position]) >= 0x80 and (second := data[position + 1]) < 0x80:
        zigzag = first & 0x7F | second << 7
        return zigzag >> 1 ^ -(zigzag & 1), position + 2
    return _read(data, position, 64)


def _read(data: bytes | bytearray | memoryview, position: int, bits: int) -> tuple[int, int]:
    zigzag = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> bits:
                break
            return zigzag >> 1 ^ -(zigzag & 1), position
    raise CorruptBatch(f"a varint of more than {bits} bits")


def _encode(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL = tuple(_encode(value) for value in range(_SMALL_MAX))
