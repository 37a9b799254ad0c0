"""Unsigned varints, the lengths and tags of flexible messages: at most five bytes, seven bits each, low bits first."""

from penstock.model.errors import MalformedMessage

UVARINT_BYTES_MAX = 5


def read_uvarint(buffer: memoryview | bytes | bytearray, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it. Raises IndexError past the end of the buffer."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessage("a varint is longer than five bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends `value`."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
