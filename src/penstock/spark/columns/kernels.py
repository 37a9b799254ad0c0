"""The loops that Numba compiles to machine code: records in, the buffers of Arrow columns out.

Numba checks no bounds, so these functions do. Invariants for any input: nothing is read outside of the payload that the
table names, because every position is compared with an end before it is used; nothing is written outside of the given
arrays, because a payload gives no more rows than its count, and a field no more bytes than its length. A refusal needs
no reason: the plain decoder then reports the error. Both accept the same batches.

The functions are also valid Python, and tests run them uncompiled on arrays that check every index. All functions and
constants are in this one file, because Numba's cache detects changes of a kernel's own file only.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba.core import cgutils, types
from numba.extending import intrinsic, overload, register_jitable

Array = Any
"""One-dimensional, except for the table of batches."""

# Columns of that table: the position of a payload in the data, fields of its header, and the valid timestamp deltas of
# any record and of a wanted one, whose timestamp must also fit into 64 bits of microseconds.
START, END, COUNT, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_MS, TIMESTAMP_TYPE = range(7)
DELTA_MS_MIN, DELTA_MS_MAX, WANTED_DELTA_MS_MIN, WANTED_DELTA_MS_MAX = range(7, 11)

# Totals written so far, carried from call to call.
ROWS, KEY_BYTES, VALUE_BYTES, KEY_NULLS, VALUE_NULLS = range(5)
ENTRIES, ENTRY_KEY_BYTES, ENTRY_VALUE_BYTES, ENTRY_VALUE_NULLS, ROWS_WITHOUT = range(5, 10)
TOTALS = 10

NOWHERE = -1
"""The position after a number that cannot be read, or of the headers of a row without headers."""

Function = TypeVar("Function", bound=Callable[..., Any])


def callable_by_kernels(function: Function) -> Function:
    """Lets Numba compile the function into its callers."""
    return cast("Function", register_jitable(function))


def pointer_to(array: Array) -> Array:
    """The raw memory of an array: compiled code counts no references to it and checks nothing, as in C."""
    return array


def copy_bytes(target: Array, to: int, source: Array, start: int, length: int) -> None:
    """Copy bytes from pointer to pointer; both ranges have been checked."""
    target[to : to + length] = source[start : start + length]


def _emit_pointer(_context: Any, array: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), emit


def _emit_memcpy(_context: Any, target: Any, to: Any, source: Any, start: Any, length: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, to, source, start, length = arguments
        cgutils.raw_memcpy(builder, builder.gep(target, [to]), builder.gep(source, [start]), length, 1)
        return context.get_dummy_value()

    return types.void(target, to, source, start, length), emit


_pointer = intrinsic(_emit_pointer)
_memcpy = intrinsic(_emit_memcpy)


def _compiled_pointer_to(array: Any) -> Any:  # noqa: ARG001
    return lambda array: _pointer(array)  # noqa: PLW0108


def _compiled_copy_bytes(target: Any, to: Any, source: Any, start: Any, length: Any) -> Any:  # noqa: ARG001
    return lambda target, to, source, start, length: _memcpy(target, to, source, start, length)  # noqa: PLW0108


# Not strict: these functions have annotations, the functions they return have none.
overload(pointer_to, strict=False)(_compiled_pointer_to)
overload(copy_bytes, strict=False)(_compiled_copy_bytes)


@callable_by_kernels
def read_number(data: Array, position: int, end: int, bits: int) -> tuple[int, int]:
    """A zigzag varint that ends before `end`, and the position after it: NOWHERE if there is none."""
    # Nearly all numbers of a record take one byte or two.
    if position < end:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        if position + 1 < end:
            second = data[position + 1]
            if second < 0x80:
                zigzag = (byte & 0x7F) | (second << 7)
                return (zigzag >> 1) ^ -(zigzag & 1), position + 2
    return read_long_number(data, position, end, bits)


@callable_by_kernels
def read_long_number(data: Array, position: int, end: int, bits: int) -> tuple[int, int]:
    """A number of any length."""
    zigzag = 0
    shift = 0
    while shift < bits and position < end:
        byte = data[position]
        position += 1
        if shift + 7 > bits and (byte & 0x7F) >> (bits - shift):
            break
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((zigzag >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(zigzag & 1), position
        shift += 7
    return 0, NOWHERE


@callable_by_kernels
def skip_headers(data: Array, position: int, end: int) -> tuple[int, int, int, int]:
    """The number of headers, the bytes of their keys and of their values, and the position after them."""
    key_bytes = 0
    value_bytes = 0
    count, position = read_number(data, position, end, 32)
    if position < 0 or count < 0 or 2 * count > end - position:
        return 0, 0, 0, NOWHERE
    for _ in range(count):
        length, position = read_number(data, position, end, 32)
        if position < 0 or length < 0 or length > end - position:
            return 0, 0, 0, NOWHERE
        key_bytes += length
        length, position = read_number(data, position + length, end, 32)
        if position < 0 or length < -1 or length > end - position:
            return 0, 0, 0, NOWHERE
        if length > 0:
            value_bytes += length
            position += length
    return count, key_bytes, value_bytes, position


@callable_by_kernels
def clear_bit(bitmap: Array, index: int) -> None:
    """Mark a row as null."""
    bitmap[index >> 3] = bitmap[index >> 3] & (0xFF ^ (1 << (index & 7)))


def fill(
    data: Array,
    batches: Array,
    first: int,
    end: int,
    key_offsets: Array,
    keys: Array,
    key_validity: Array,
    value_offsets: Array,
    values: Array,
    value_validity: Array,
    offsets: Array,
    timestamps_us: Array,
    timestamp_types: Array,
    header_positions: Array,
    totals: Array,
) -> bool:
    """Append the wanted rows of all batches in the table to the columns; False if a batch is invalid.

    `header_positions` is empty, unless headers are wanted: then it receives the position of the headers of each row.
    """
    records, key_bytes, value_bytes = pointer_to(data), pointer_to(keys), pointer_to(values)
    key_bits, value_bits = pointer_to(key_validity), pointer_to(value_validity)
    row = totals[ROWS]
    key_at = totals[KEY_BYTES]
    value_at = totals[VALUE_BYTES]
    for number in range(len(batches)):
        position = batches[number, START]
        payload_end = batches[number, END]
        base_offset = batches[number, BASE_OFFSET]
        last_offset_delta = batches[number, LAST_OFFSET_DELTA]
        base_ms = batches[number, BASE_MS]
        timestamp_type = batches[number, TIMESTAMP_TYPE]
        delta_ms_min = batches[number, DELTA_MS_MIN]
        delta_ms_max = batches[number, DELTA_MS_MAX]
        wanted_delta_ms_min = batches[number, WANTED_DELTA_MS_MIN]
        wanted_delta_ms_max = batches[number, WANTED_DELTA_MS_MAX]
        for _ in range(batches[number, COUNT]):
            length, position = read_number(records, position, payload_end, 32)
            if position < 0 or length <= 0 or length > payload_end - position:
                return False
            record_end = position + length
            # The first byte holds attributes, none of which are in use.
            delta_ms, position = read_number(records, position + 1, record_end, 64)
            if position < 0 or delta_ms < delta_ms_min or delta_ms > delta_ms_max:
                return False
            offset_delta, position = read_number(records, position, record_end, 32)
            if position < 0 or offset_delta < 0 or offset_delta > last_offset_delta:
                return False
            key_length, position = read_number(records, position, record_end, 32)
            if position < 0 or key_length < -1 or key_length > record_end - position:
                return False
            key_start = position
            if key_length > 0:
                position += key_length
            value_length, position = read_number(records, position, record_end, 32)
            if position < 0 or value_length < -1 or value_length > record_end - position:
                return False
            value_start = position
            if value_length > 0:
                position += value_length
            if position >= record_end:
                return False
            headers_start = position
            header_count = header_key_bytes = header_value_bytes = 0
            if records[position]:
                header_count, header_key_bytes, header_value_bytes, position = skip_headers(
                    records, position, record_end
                )
            else:
                position += 1
            if position != record_end:
                return False

            offset = base_offset + offset_delta
            if offset < first or offset >= end:
                continue
            if delta_ms < wanted_delta_ms_min or delta_ms > wanted_delta_ms_max:
                return False
            offsets[row] = offset
            timestamps_us[row] = (base_ms if timestamp_type else base_ms + delta_ms) * 1000
            timestamp_types[row] = timestamp_type
            if key_length >= 0:
                copy_bytes(key_bytes, key_at, records, key_start, key_length)
                key_at += key_length
            else:
                clear_bit(key_bits, row)
                totals[KEY_NULLS] += 1
            if value_length >= 0:
                copy_bytes(value_bytes, value_at, records, value_start, value_length)
                value_at += value_length
            else:
                clear_bit(value_bits, row)
                totals[VALUE_NULLS] += 1
            if len(header_positions):
                header_positions[row] = headers_start if header_count else NOWHERE
                totals[ENTRIES] += header_count
                totals[ENTRY_KEY_BYTES] += header_key_bytes
                totals[ENTRY_VALUE_BYTES] += header_value_bytes
            row += 1
            key_offsets[row] = key_at
            value_offsets[row] = value_at
        if position != payload_end:
            return False
    totals[ROWS] = row
    totals[KEY_BYTES] = key_at
    totals[VALUE_BYTES] = value_at
    return True


def fill_headers(
    data: Array,
    header_positions: Array,
    row: int,
    end_row: int,
    entry_offsets: Array,
    row_validity: Array,
    key_offsets: Array,
    keys: Array,
    value_offsets: Array,
    values: Array,
    value_validity: Array,
    totals: Array,
) -> bool:
    """Append the headers of the rows that `fill` has written, to arrays of the sizes that it has counted.

    The caller may let the bytes change between the calls, so all bounds are checked again; False if a check fails.
    """
    records, key_bytes, value_bytes = pointer_to(data), pointer_to(keys), pointer_to(values)
    row_bits, value_bits = pointer_to(row_validity), pointer_to(value_validity)
    entry = totals[ENTRIES]
    key_at = totals[ENTRY_KEY_BYTES]
    value_at = totals[ENTRY_VALUE_BYTES]
    end = len(data)
    while row < end_row:
        position = header_positions[row]
        count = 0
        if position < 0:
            clear_bit(row_bits, row)
            totals[ROWS_WITHOUT] += 1
        else:
            count, position = read_number(records, position, end, 32)
            if position < 0 or count < 0 or count >= len(key_offsets) - entry:
                return False
        for _ in range(count):
            length, position = read_number(records, position, end, 32)
            if position < 0 or length < 0 or length > end - position or length > len(keys) - key_at:
                return False
            copy_bytes(key_bytes, key_at, records, position, length)
            key_at += length
            length, position = read_number(records, position + length, end, 32)
            if position < 0 or length < -1 or length > end - position or length > len(values) - value_at:
                return False
            if length >= 0:
                copy_bytes(value_bytes, value_at, records, position, length)
                position += length
                value_at += length
            else:
                clear_bit(value_bits, entry)
                totals[ENTRY_VALUE_NULLS] += 1
            entry += 1
            key_offsets[entry] = key_at
            value_offsets[entry] = value_at
        row += 1
        entry_offsets[row] = entry
    totals[ENTRIES] = entry
    totals[ENTRY_KEY_BYTES] = key_at
    totals[ENTRY_VALUE_BYTES] = value_at
    return True
