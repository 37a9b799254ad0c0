"""Fast check that the records of a batch are ordinary: whole, in order, without attributes or headers.

Twin of `rows.walk`, for a broker that opens every record and keeps none. A result equals what a walk would have found.
If anything is out of the ordinary there is no result, and a walk finds the error, or that there is none.

Each Python step is slow, so there are few. Consecutive records of one size are checked together: a slice with that size
as its stride holds the same byte of each. Other records are unpacked by one or two calls each.
"""

import struct
from struct import Struct
from typing import NamedTuple

_DELTAS_ONE_BYTE = 64
_DELTAS_MAX = 8192
"""Offset deltas and lengths from here on need a third byte, which is out of the ordinary."""
_DELTA_LOWS = bytes(2 * delta & 0x7F | 0x80 * (delta >= _DELTAS_ONE_BYTE) for delta in range(_DELTAS_MAX))
_DELTA_HIGHS = bytes(delta >> 6 for delta in range(_DELTAS_MAX))
_POSITIVE = bytes(range(0, 128, 2))
"""Non-negative zigzag numbers of one byte."""
_NOT_POSITIVE_BITS = 0x81
"""Bits that none of them has set."""
_DELTAS = tuple(low << 8 | high if high else low for low, high in zip(_DELTA_LOWS, _DELTA_HIGHS, strict=True))
"""The bytes of a delta as one number."""
_NULL = 1
"""The zigzag encoding of the length -1."""
_WIDTHS = ((1, "B"), (2, "H"))
_NUMBER = Struct(">H")
_NO_LENGTH = -(1 << 20)
"""For bytes that are not a length, or a length encoded in more bytes than needed: no sum with it matches."""
_LENGTHS = [_NO_LENGTH] * (1 << 16)
"""Length by its two encoded bytes as one number."""
_VALUES = [size for byte in range(0x80) for size in [_NO_LENGTH if byte & 1 else 1 + (byte >> 1)] * 256]
_VALUES += [_NO_LENGTH] * (1 << 15)
"""Size of a value including its length, by the two bytes that begin with its length."""
for _length in range(_DELTAS_ONE_BYTE, _DELTAS_MAX):
    _LENGTHS[_DELTAS[_length]] = _length
    _VALUES[_DELTAS[_length]] = 2 + _length
# Length, attributes, stamp, delta, length of the key; without a key also two bytes that begin with the value's length.
_KEYED = {size: (Struct(f">BBB{delta}B").unpack_from, Struct(f">HBB{delta}B").unpack_from) for size, delta in _WIDTHS}
_KEYLESS = {
    size: (Struct(f">BBB{delta}BH").unpack_from, Struct(f">HBB{delta}BH").unpack_from) for size, delta in _WIDTHS
}
_RUN_MIN = 8
"""Fewer records of one size are checked faster one by one."""
_PATIENCE = 4
"""Failed attempts to find a run after which no more are made."""


class Glance(NamedTuple):
    """Summary of the records of a batch. Timestamps are deltas, none of them negative."""

    timestamp_min: int
    timestamp_max: int
    keyless: int
    """Number of records without a key."""


class _Stretch(NamedTuple):
    """Consecutive ordinary records: their end, their number, and their lowest and highest zigzag timestamp."""

    end: int
    records: int
    low: int
    high: int
    keyless: int


def glance(data: bytes, count: int) -> Glance | None:
    """Summary of `count` ordinary records that fill `data` exactly, with deltas from 0 on; None for any others."""
    if not 0 < count <= _DELTAS_MAX:
        return None
    low, high, keyless = 0xFF, 0, 0
    position = delta = 0
    patience = _PATIENCE
    try:
        while delta < count:
            most = (count if delta >= _DELTAS_ONE_BYTE else min(count, _DELTAS_ONE_BYTE)) - delta
            found = _run(data, position, delta, most) if patience and most >= _RUN_MIN else None
            if found is None or found.records < _RUN_MIN:
                patience -= patience > 0
                found = _one_by_one(data, position, delta, most)
            if not found.records:
                return None
            position, delta = found.end, delta + found.records
            low, high = min(low, found.low), max(high, found.high)
            keyless += found.keyless
    except (IndexError, struct.error):
        return None
    return Glance(low >> 1, high >> 1, keyless) if position == len(data) else None


def _run(data: bytes, begin: int, delta: int, most: int) -> _Stretch:
    """Records with the same lengths as the first; none if the first is not ordinary."""
    first = _one_by_one(data, begin, delta, 1)
    if not first.records:
        return first
    size = first.end - begin
    stamp_at = 2 if data[begin] < 0x80 else 3
    key_at = stamp_at + (2 if delta < _DELTAS_ONE_BYTE else 3)
    value_at = key_at + 1 + (0 if first.keyless else data[begin + key_at] >> 1)
    value_length_at = (value_at,) if data[begin + value_at] < 0x80 else (value_at, value_at + 1)
    run = min(most, (len(data) - begin) // size)
    for at in (*range(stamp_at), key_at, *value_length_at, size - 1):  # the last byte is the number of headers
        column = data[begin + at : begin + run * size : size]
        if column != column[:1] * run:
            run -= len(column.lstrip(column[:1]))
    end = begin + run * size
    stamps = data[begin + stamp_at : end : size]
    lows = data[begin + stamp_at + 1 : end : size]
    highs = b"" if delta < _DELTAS_ONE_BYTE else data[begin + stamp_at + 2 : end : size]
    if (
        lows != _DELTA_LOWS[delta : delta + run]
        or highs != _DELTA_HIGHS[delta : delta + len(highs)]
        or stamps.translate(None, _POSITIVE)
    ):
        return first
    low = high = stamps[0]
    while stamps:  # few of them are distinct
        low, high = min(low, stamps[0]), max(high, stamps[0])
        stamps = stamps.translate(None, stamps[:1])
    return _Stretch(end, run, low, high, run * first.keyless)


def _one_by_one(data: bytes, position: int, first: int, most: int) -> _Stretch:
    """Records of any lengths; all have a key, or none has."""
    is_short_delta = first < _DELTAS_ONE_BYTE
    key_at = position + (4 if is_short_delta else 5) + (data[position] >= 0x80)
    if data[key_at] == _NULL:
        return _keyless(data, position, first, most, 1 if is_short_delta else 2)
    return _keyed(data, position, first, most, 1 if is_short_delta else 2)


def _keyless(data: bytes, position: int, first: int, most: int, delta_bytes: int) -> _Stretch:
    unpack_short, unpack_long = _KEYLESS[delta_bytes]
    lengths, values, deltas = _LENGTHS, _VALUES, _DELTAS
    # Attributes, stamp, delta, the length of no key, and the number of headers.
    others_bytes = 4 + delta_bytes
    low, high = 0xFF, 0
    for delta in range(first, first + most):
        size, attributes, stamp, found, key, value = unpack_long(data, position)
        if size < 0x8000:
            size, attributes, stamp, found, key, value = unpack_short(data, position)
            size_bytes, end = size >> 1, position + 1 + (size >> 1)
            attributes |= size & 1
        else:
            size_bytes = lengths[size]
            end = position + 2 + size_bytes
        if (
            values[value] + others_bytes != size_bytes
            or found != deltas[delta]
            or key != _NULL
            or attributes
            or stamp & _NOT_POSITIVE_BITS
            or data[end - 1]
        ):
            return _Stretch(position, delta - first, low, high, delta - first)
        position = end
        if stamp > high:
            high = stamp
        if stamp < low:
            low = stamp
    return _Stretch(position, most, low, high, most)


def _keyed(data: bytes, position: int, first: int, most: int, delta_bytes: int) -> _Stretch:
    unpack_short, unpack_long = _KEYED[delta_bytes]
    lengths, values, deltas, unpack_value = _LENGTHS, _VALUES, _DELTAS, _NUMBER.unpack_from
    others_bytes = 4 + delta_bytes
    low, high = 0xFF, 0
    for delta in range(first, first + most):
        size, attributes, stamp, found, key = unpack_long(data, position)
        if size < 0x8000:
            size, attributes, stamp, found, key = unpack_short(data, position)
            size_bytes, begin = size >> 1, position + 1
            attributes |= size & 1
        else:
            size_bytes, begin = lengths[size], position + 2
        end = begin + size_bytes
        key_bytes = key >> 1
        (value,) = unpack_value(data, begin + 3 + delta_bytes + key_bytes)
        if (
            values[value] + others_bytes + key_bytes != size_bytes
            or found != deltas[delta]
            or (key | stamp) & _NOT_POSITIVE_BITS
            or attributes
            or data[end - 1]
        ):
            return _Stretch(position, delta - first, low, high, 0)
        position = end
        if stamp > high:
            high = stamp
        if stamp < low:
            low = stamp
    return _Stretch(position, most, low, high, 0)
