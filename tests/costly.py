"""Request bodies built from the declarations to cost the most.

Each array that a request can have is filled with as many of the smallest elements as fit, while the arrays around it
have one element; each string has its maximum length; unknown tagged fields fill the rest. The bytes are assembled
directly, because a body of 100 MiB has millions of elements.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.wire.declare import NEVER, Array, Field, FieldType, Message, Struct
from penstock.wire.types import STRING_BYTES_MAX, Blob, Fixed, Text
from penstock.wire.varint import write_uvarint

UNKNOWN_TAG = 99
GIVEN = {"acks": 1}
"""Field values other than zero: a producer with acks=0 gets no response."""
DISTINCT_MAX = 100_000
"""Elements beyond this number, which exceeds every budget, need not differ from each other."""
WIDE = "a" * (STRING_BYTES_MAX - 4) + "\U0001f600"
"""A string that takes four bytes of memory for each byte of UTF-8."""


class Costly(NamedTuple):
    """One way in which a request can be made to cost much."""

    name: str
    body: Callable[[int], bytes]
    """Builds the body, of about the given number of bytes."""


def uvarint(value: int) -> bytes:
    """A number encoded as the length of a compact field."""
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


class Shape:
    """A message at one version."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.is_flexible = version in message.FLEXIBLE

    def fields(self, kind: type[Struct]) -> list[Field]:
        return [f for f in kind.FIELDS if self.version in f.versions and f.tag is None]

    def tagged(self, kind: type[Struct]) -> list[Field]:
        found = [f for f in kind.FIELDS if self.version in f.versions and f.tag is not None]
        return sorted(found, key=lambda field: field.tag or 0)

    def count(self, field: Field, count: int) -> bytes:
        """The number of an array's elements, or of a blob's bytes."""
        return uvarint(count + 1) if self.is_flexible and field.flexible else struct.pack(">i", count)

    def text(self, field: Field, text: str) -> bytes:
        data = text.encode()
        length = uvarint(len(data) + 1) if self.is_flexible and field.flexible else struct.pack(">h", len(data))
        return length + data

    def least(self, field: Field, kind: FieldType, name: str = "") -> bytes:
        """The smallest value, except that strings are `name`."""
        match kind:
            case Fixed():
                return GIVEN.get(field.name, 0).to_bytes(kind.size_bytes, "big")
            case Text():
                return self.text(field, name)
            case Blob() | Array():
                return self.count(field, 0)
        if self.version in field.nullable:
            return b"\xff" if field.tag is None else b"\x00"
        return self.struct(kind, name=name)

    def struct(
        self, kind: type[Struct], *, name: str = "", only: Field | None = None, content: bytes = b"", tags: int = 0
    ) -> bytes:
        """A struct of smallest values, in which one field may have other content, with unknown tagged fields."""
        out = b"".join(content if field is only else self.least(field, field.type, name) for field in self.fields(kind))
        if not self.is_flexible:
            return out
        if only is not None and only.tag is not None:
            return out + b"\x01" + uvarint(only.tag) + uvarint(len(content)) + content
        return out + uvarint(tags) + bytes((UNKNOWN_TAG, 0)) * tags


def costly(message: type[Message], version: int) -> Iterator[Costly]:
    """All costly bodies that the declaration allows."""
    shape = Shape(message, version)
    if shape.is_flexible:
        yield Costly("unknown tags", lambda size: shape.struct(message, tags=size // 2))
    yield from _inside(shape, message, (), lambda content: content)


def _inside(
    shape: Shape, kind: type[Struct], path: Sequence[str], around: Callable[[bytes], bytes]
) -> Iterator[Costly]:
    for field in (*shape.fields(kind), *shape.tagged(kind)):
        yield from _field(shape, kind, field, (*path, field.name), around)


def _field(
    shape: Shape, kind: type[Struct], field: Field, path: Sequence[str], around: Callable[[bytes], bytes]
) -> Iterator[Costly]:
    def put(content: bytes) -> bytes:
        return around(shape.struct(kind, only=field, content=content))

    item, label = field.type, ".".join(path)
    if isinstance(item, Text):
        yield Costly(f"{label}: long", lambda _size: put(shape.text(field, WIDE)))
    elif isinstance(item, Blob):
        yield Costly(f"{label}: large", lambda size: put(shape.count(field, size) + bytes(size)))
    elif isinstance(item, Array):
        yield from _arrays(shape, field, item, path, put)
    elif isinstance(item, type):
        mark = b"\x01" if shape.version in field.nullable else b""
        yield from _inside(shape, item, path, lambda content: put(mark + content))


def _arrays(
    shape: Shape, field: Field, array: Array, path: Sequence[str], put: Callable[[bytes], bytes]
) -> Iterator[Costly]:
    item = array.item
    label = ".".join(path)

    def of(element: bytes, size: int) -> bytes:
        count = max(1, size // len(element))
        return put(shape.count(field, count) + element * count)

    def distinct(size: int) -> bytes:
        each = len(shape.least(_item(field), item, "0000000"))
        count = max(1, size // each)
        names = b"".join(shape.least(_item(field), item, f"{n:07x}") for n in range(min(count, DISTINCT_MAX)))
        whole, rest = divmod(count, DISTINCT_MAX)
        return put(shape.count(field, count) + names * whole + names[: rest * each])

    yield Costly(f"{label}: empty", lambda size: of(shape.least(_item(field), item), size))
    if isinstance(item, Fixed):
        return
    if _has_text(shape, item):
        yield Costly(f"{label}: short names", lambda size: of(shape.least(_item(field), item, "ab"), size))
        yield Costly(f"{label}: long names", lambda size: of(shape.least(_item(field), item, WIDE), size))
        yield Costly(f"{label}: distinct names", distinct)
    if isinstance(item, type):
        if shape.is_flexible:
            tags = 50
            yield Costly(f"{label}: unknown tags", lambda size: of(shape.struct(item, tags=tags), size))
        yield from _inside(shape, item, path, lambda content: put(shape.count(field, 1) + content))


def _item(field: Field) -> Field:
    """The field as an array element: elements are never null."""
    return replace(field, nullable=NEVER, tag=None)


def _has_text(shape: Shape, kind: FieldType) -> bool:
    if isinstance(kind, type):
        return any(isinstance(field.type, Text) for field in shape.fields(kind))
    return isinstance(kind, Text)
