"""The field types of the protocol, as annotations that a type checker reads as plain Python types.

In the declaration `generation_id: Int32`, mypy sees an int and the codec sees the wire format. Types without a name
here are written in Python: bool, str, bytes, ErrorCode, `X | None` for nullable, `Sequence[X]` for arrays.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-width type with its `struct` format."""

    name: str
    format: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Text:
    """A UTF-8 string of at most 32,767 bytes, or null where the field allows it."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes. `Records` stay a view of the frame in which they arrived; `bytes` are copied."""

    is_view: bool


STRING_BYTES_MAX = 0x7FFF

Int8: TypeAlias = Annotated[int, Fixed("int8", "b", 1)]
Int16: TypeAlias = Annotated[int, Fixed("int16", "h", 2)]
UInt16: TypeAlias = Annotated[int, Fixed("uint16", "H", 2)]
Int32: TypeAlias = Annotated[int, Fixed("int32", "i", 4)]
Int64: TypeAlias = Annotated[int, Fixed("int64", "q", 8)]
Float64: TypeAlias = Annotated[float, Fixed("float64", "d", 8)]

Uuid: TypeAlias = Annotated[bytes, Fixed("uuid", "16s", 16)]
"""Sixteen raw bytes: they are compared, hashed and copied far more often than printed."""

Records: TypeAlias = Annotated[memoryview | bytes | bytearray, Blob(is_view=True)]
"""Record batches, not decoded."""

BOOL = Fixed("bool", "?", 1)
ERROR_CODE = Fixed("error_code", "h", 2)

ZERO_UUID = bytes(16)
