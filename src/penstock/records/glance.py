"""Sees at a glance that the records of a batch are as nearly all are: whole, in order, without attributes or headers.

Twin of `rows.walk`, for a broker that opens every record and keeps none. What it says is what a walk would have found.
Where anything is out of the ordinary it says nothing, and the walk finds out what is wrong, or that nothing is.

Python takes its time per step, so there are few. Records of one size in a row are looked at together: a slice with that
size as its stride holds the same byte of each. Others whose numbers are as wide are unpacked one call each.
"""

import struct
from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import NamedTuple

_DELTAS_ONE_BYTE = 64
_DELTAS_MAX = 8192
"""Offset deltas from here on need a third byte, which is out of the ordinary; so are such lengths."""
_DELTA_LOWS = bytes(2 * delta & 0x7F | 0x80 * (delta >= _DELTAS_ONE_BYTE) for delta in range(_DELTAS_MAX))
_DELTA_HIGHS = bytes(delta >> 6 for delta in range(_DELTAS_MAX))
_POSITIVE = bytes(range(0, 128, 2))
"""Zigzag numbers of one byte that are not negative."""
_NOT_POSITIVE_BITS = 0x81
"""What none of them has set."""
_DELTAS = tuple(low << 8 | high if high else low for low, high in zip(_DELTA_LOWS, _DELTA_HIGHS, strict=True))
"""The bytes of a delta as one number."""
_NULL = 1
"""As a length: the zigzag of -1."""
_LETTERS = {1: "B", 2: "H"}
_NUMBERS = {width: Struct(f">{letter}") for width, letter in _LETTERS.items()}
_NO_LENGTH = -(1 << 20)
"""For bytes that are no length, or one that is written in more bytes than it needs: no sum with it comes out right."""
_LENGTHS = {
    1: tuple(_NO_LENGTH if byte & _NOT_POSITIVE_BITS else byte >> 1 for byte in range(1 << 8)),
    2: tuple(
        (number & 0x7F) << 6 | (number >> 8 & 0x7F) >> 1 if number & 0x8180 == 0x8000 and number & 0x7F else _NO_LENGTH
        for number in range(1 << 16)
    ),
}
"""What the bytes of a length, as one number, stand for."""
_RUN_MIN = 8
"""Fewer records of one size are looked at faster one by one."""
_PATIENCE = 4
"""So many runs may end early before no more are looked for."""


class Glance(NamedTuple):
    """What is to be known of the records of a batch. Timestamps are deltas, none of them negative."""

    timestamp_min: int
    timestamp_max: int
    keyless: int
    """How many have no key."""


class _Shape(NamedTuple):
    """How wide the numbers of a record are; timestamp delta and key length have one byte."""

    length_bytes: int
    delta_bytes: int
    value_length_bytes: int
    has_key: bool


class _Stretch(NamedTuple):
    """Ordinary records in a row: where they end, how many there are, and their least and highest zigzag timestamp."""

    end: int
    records: int
    low: int
    high: int


def glance(data: bytes, count: int) -> Glance | None:
    """`count` ordinary records that fill `data` exactly, with offset deltas from 0 on; None if they may be anything."""
    if not 0 < count <= _DELTAS_MAX:
        return None
    low, high, keyless = 0xFF, 0, 0
    position = delta = 0
    patience = _PATIENCE
    try:
        while delta < count:
            shape = _shape(data, position, delta)
            most = min(count, _DELTAS_ONE_BYTE) - delta if shape.delta_bytes == 1 else count - delta
            found = _run(data, position, shape, delta, most) if patience else None
            if found is None or found.records < _RUN_MIN:
                patience -= patience > 0
                found = _one_by_one(data, position, shape, delta, most)
            if not found.records:
                return None
            position, delta = found.end, delta + found.records
            low, high = min(low, found.low), max(high, found.high)
            keyless += 0 if shape.has_key else found.records
    except (IndexError, struct.error):
        return None
    return Glance(low >> 1, high >> 1, keyless) if position == len(data) else None


def _shape(data: bytes, position: int, delta: int) -> _Shape:
    """Of the record at a position, if it is an ordinary one."""
    length_bytes = 1 if data[position] < 0x80 else 2
    delta_bytes = 1 if delta < _DELTAS_ONE_BYTE else 2
    key_at = position + length_bytes + 2 + delta_bytes
    key_length = data[key_at]
    has_key = key_length != _NULL
    value_at = key_at + 1 + (key_length >> 1 if has_key else 0)
    return _Shape(length_bytes, delta_bytes, 1 if data[value_at] < 0x80 else 2, has_key)


def _run(data: bytes, begin: int, shape: _Shape, delta: int, most: int) -> _Stretch | None:
    """Records of the very same lengths; None if the first is not ordinary."""
    first = _one_by_one(data, begin, shape, delta, 1)
    if not first.records:
        return None
    size = first.end - begin
    stamp_at = shape.length_bytes + 1
    key_at = stamp_at + 1 + shape.delta_bytes
    value_at = key_at + 1 + (data[begin + key_at] >> 1 if shape.has_key else 0)
    lengths_at = (*range(stamp_at), key_at, *range(value_at, value_at + shape.value_length_bytes), size - 1)
    run = min(most, (len(data) - begin) // size)
    for at in lengths_at:
        column = data[begin + at : begin + run * size : size]
        run -= len(column.lstrip(column[:1]))
    end = begin + run * size
    stamps = data[begin + stamp_at : end : size]
    lows = data[begin + stamp_at + 1 : end : size]
    highs = data[begin + stamp_at + 2 : end : size] if shape.delta_bytes == 2 else b""
    if (
        lows != _DELTA_LOWS[delta : delta + run]
        or highs != _DELTA_HIGHS[delta : delta + len(highs)]
        or stamps.translate(None, _POSITIVE)
    ):
        return first
    return _Stretch(end, run, min(stamps), max(stamps))


def _one_by_one(data: bytes, position: int, shape: _Shape, delta: int, most: int) -> _Stretch:
    """Records of one shape, whatever their lengths are."""
    return (_keyed if shape.has_key else _keyless)(data, position, shape, delta, most)


def _keyless(data: bytes, position: int, shape: _Shape, first: int, most: int) -> _Stretch:
    unpack = _head(shape)
    lengths, values, deltas = _LENGTHS[shape.length_bytes], _LENGTHS[shape.value_length_bytes], _DELTAS
    head_bytes = shape.length_bytes
    # Attributes, stamp, delta, both lengths and the number of headers.
    others_bytes = 4 + shape.delta_bytes + shape.value_length_bytes
    low, high = 0xFF, 0
    for delta in range(first, first + most):
        size, attributes, stamp, found, key, value = unpack(data, position)
        size_bytes = lengths[size]
        end = position + head_bytes + size_bytes
        if (
            values[value] + others_bytes != size_bytes
            or found != deltas[delta]
            or key != _NULL
            or attributes
            or stamp & _NOT_POSITIVE_BITS
            or data[end - 1]
        ):
            return _Stretch(position, delta - first, low, high)
        position = end
        if stamp > high:
            high = stamp
        if stamp < low:
            low = stamp
    return _Stretch(position, most, low, high)


def _keyed(data: bytes, position: int, shape: _Shape, first: int, most: int) -> _Stretch:
    unpack, unpack_value = _head(shape), _NUMBERS[shape.value_length_bytes].unpack_from
    lengths, values, deltas = _LENGTHS[shape.length_bytes], _LENGTHS[shape.value_length_bytes], _DELTAS
    head_bytes = shape.length_bytes
    others_bytes = 4 + shape.delta_bytes + shape.value_length_bytes
    before_key_bytes = head_bytes + 3 + shape.delta_bytes
    low, high = 0xFF, 0
    for delta in range(first, first + most):
        size, attributes, stamp, found, key = unpack(data, position)
        size_bytes = lengths[size]
        end = position + head_bytes + size_bytes
        key_bytes = key >> 1
        (value,) = unpack_value(data, position + before_key_bytes + key_bytes)
        if (
            values[value] + others_bytes + key_bytes != size_bytes
            or found != deltas[delta]
            or (key | stamp) & _NOT_POSITIVE_BITS
            or attributes
            or data[end - 1]
        ):
            return _Stretch(position, delta - first, low, high)
        position = end
        if stamp > high:
            high = stamp
        if stamp < low:
            low = stamp
    return _Stretch(position, most, low, high)


@cache
def _head(shape: _Shape) -> Callable[[bytes, int], tuple[int, ...]]:
    """Unpacks length, attributes, stamp, delta and key length, and without a key the length of the value, too."""
    value = "" if shape.has_key else _LETTERS[shape.value_length_bytes]
    return Struct(f">{_LETTERS[shape.length_bytes]}BB{_LETTERS[shape.delta_bytes]}B{value}").unpack_from
