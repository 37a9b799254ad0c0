"""Compiles a declaration to straight-line Python: one reader and one writer per message and version.

Runs of fixed-width fields (and the length that follows them) become one `struct` call; nested structs are inlined as
loops. Nothing is allocated from a declared count: a count is first checked against the remaining bytes, divided by the
minimum size of one element. Reading past the end raises IndexError or struct.error, which `codec` translates.

A budgeted reader also takes the elements and bytes of memory that are left, and charges them as it reads (`budget`). It
and a patient writer call `breathe` after every few elements, so that a long-running codec thread yields to others.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.model.errors import ErrorCode, MalformedMessage, RequestTooCostly, UnsupportedVersion
from penstock.wire import budget
from penstock.wire.declare import NEVER, Array, Field, FieldType, Message, Struct
from penstock.wire.types import BOOL, ERROR_CODE, STRING_BYTES_MAX, Blob, Fixed, Text
from penstock.wire.varint import read_uvarint, write_uvarint

Reader = Callable[[memoryview | bytes | bytearray, int], tuple[Any, int]]
Breathe = Callable[[], None]
BudgetedReader = Callable[[memoryview | bytes | bytearray, int, int, int, Breathe], tuple[Any, int]]
Writer = Callable[[Any, bytearray], None]
PatientWriter = Callable[[Any, bytearray, Breathe], None]

BREATH_ELEMENTS = 16
"""Array elements between two calls of `breathe`; a power of two."""


class _ErrorCodes(dict[int, ErrorCode]):
    """Known codes by number; an unknown code is created on demand and not cached."""

    def __missing__(self, code: int) -> ErrorCode:
        return ErrorCode(code)


ERROR_CODES = _ErrorCodes((int(code), code) for code in ErrorCode)


def _bad_count(count: int, name: str) -> MalformedMessage:
    return MalformedMessage(f"{name}: {count} elements cannot fit into the bytes that remain")


def _bad_length(length: int, name: str) -> MalformedMessage:
    return MalformedMessage(f"{name}: a length of {length} bytes is not allowed or exceeds the bytes that remain")


def _bad_null(name: str) -> MalformedMessage:
    return MalformedMessage(f"{name}: null is not allowed here")


def _bad_tag(name: str) -> MalformedMessage:
    return MalformedMessage(f"{name}: a tagged field does not fill its announced size")


def _too_costly(elements_left: int, name: str) -> RequestTooCostly:
    what = "has more elements" if elements_left < 0 else "takes more memory"
    return RequestTooCostly(f"{name}: with it the request {what} than is allowed")


def _not_carried(message: str, version: int, name: str) -> UnsupportedVersion:
    return UnsupportedVersion(f"{message} v{version} cannot carry {name}")


def _string_too_long(name: str) -> ValueError:
    return ValueError(f"{name}: a string of more than {STRING_BYTES_MAX} bytes cannot be written")


class _Source:
    """Lines of a function under construction, and the objects that they refer to."""

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.depth = 1
        self.names = 0
        self.scope: dict[str, Any] = {
            "uv": read_uvarint,
            "put_uv": write_uvarint,
            "codes": ERROR_CODES,
            "unpack": struct.unpack_from,
            "pack": struct.pack,
            "bad_count": _bad_count,
            "bad_length": _bad_length,
            "bad_null": _bad_null,
            "bad_tag": _bad_tag,
            "too_costly": _too_costly,
            "not_carried": _not_carried,
            "string_too_long": _string_too_long,
        }

    def breath(self, number: str) -> None:
        self.line(f"if {number} & {BREATH_ELEMENTS - 1} == {BREATH_ELEMENTS - 1}: breathe()")

    def line(self, text: str) -> None:
        self.lines.append(" " * self.depth + text)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def constant(self, stem: str, value: object) -> str:
        name = self.name(stem)
        self.scope[name] = value
        return name

    def function(self, label: str) -> Any:
        exec(compile("\n".join(self.lines), label, "exec"), self.scope)  # noqa: S102 - made of declared names only
        return self.scope["function"]


class _Layout:
    """Layout of a message at one version, shared by reader and writer."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.is_flexible = version in message.FLEXIBLE

    def is_compact(self, field: Field) -> bool:
        return self.is_flexible and field.flexible

    def inline(self, struct_type: type[Struct]) -> list[Field]:
        return [f for f in struct_type.FIELDS if self.version in f.versions and f.tag is None]

    def tagged(self, struct_type: type[Struct]) -> list[Field]:
        found = [f for f in struct_type.FIELDS if self.version in f.versions and f.tag is not None]
        return sorted(found, key=lambda f: f.tag or 0)

    def absent(self, struct_type: type[Struct]) -> list[Field]:
        return [f for f in struct_type.FIELDS if self.version not in f.versions]

    def least_size(self, kind: FieldType) -> int:
        """Minimum size of a value of this type in bytes; never zero, so that a count is always bounded."""
        match kind:
            case Fixed():
                return kind.size_bytes
            case Text():
                return 1 if self.is_flexible else 2
            case Blob() | Array():
                return 1 if self.is_flexible else 4
        size = sum(
            1 if isinstance(f.type, type) and self.version in f.nullable else self.least_size(f.type)
            for f in self.inline(kind)
        )
        return max(1, size + (1 if self.is_flexible else 0))

    def memory_bytes(self, kind: FieldType) -> int:
        """Memory of a value without its strings, blobs and arrays, which are charged as they are read."""
        match kind:
            case Fixed():
                if kind == BOOL:
                    return 0
                if kind == ERROR_CODE:
                    return budget.ERROR_CODE_BYTES
                return budget.UUID_BYTES if kind.name == "uuid" else budget.NUMBER_BYTES
            case Text() | Blob() | Array():
                return 0
        fields = [f for f in kind.FIELDS if self.version in f.versions]
        return budget.OBJECT_BYTES + kind.__basicsize__ + sum(self.memory_bytes(f.type) for f in fields)


# --- reading ----------------------------------------------------------------------------------------------------------


class _ReaderSource(_Source):
    """Generates `function(b, p) -> (message, p)`: b is the buffer, e its end, p the position.

    With a budget it is `function(b, p, x, m, breathe)`: x elements and m bytes of memory are left.
    """

    def __init__(self, layout: _Layout, *, is_budgeted: bool) -> None:
        super().__init__("def function(b, p, x, m, breathe):" if is_budgeted else "def function(b, p):")
        self.layout = layout
        self.is_budgeted = is_budgeted
        self.line("e = len(b)")
        root = self.struct(layout.message)
        self.line(f"return {root}, p")

    def struct(self, kind: type[Struct]) -> str:
        layout = self.layout
        target = self.name("o")
        made = self.constant("T", kind)
        make = self.constant("new", kind.__new__)
        self.line(f"{target} = {make}({made})")
        run: list[tuple[str, Field | None]] = []
        for field in layout.inline(kind):
            if isinstance(field.type, Fixed):
                run.append((f"{target}.{field.name}", field))
            elif isinstance(field.type, Text) and not layout.is_compact(field):
                length = self.name("n")
                run.append((length, None))
                self.fixed(run)
                self.text(field, f"{target}.{field.name}", length)
            else:
                self.fixed(run)
                self.value(field, field.type, f"{target}.{field.name}")
        self.fixed(run)
        for field in layout.absent(kind):
            self.line(f"{target}.{field.name} = {self.default(field)}")
        if layout.is_flexible:
            self.tags(kind, target)
        return target

    def default(self, field: Field) -> str:
        if field.default is None or (
            isinstance(field.default, bool | int) and not isinstance(field.default, ErrorCode)
        ):
            return repr(field.default)
        return self.constant("D", field.default)

    def fixed(self, run: list[tuple[str, Field | None]]) -> None:
        """Reads a run of fixed-width values with one call; an entry without a field is the int16 length of a string."""
        if not run:
            return
        kinds = [f.type if f is not None else Fixed("int16", "h", 2) for _, f in run]
        layout = struct.Struct(">" + "".join(k.format for k in kinds if isinstance(k, Fixed)))
        places, after = [], []
        for (place, _), kind in zip(run, kinds, strict=True):
            if kind == ERROR_CODE:
                code = self.name("c")
                places.append(code)
                after.append(f"{place} = codes[{code}]")
            else:
                places.append(place)
        reader = self.constant("S", layout.unpack_from)
        self.line(f"{', '.join(places)}{',' if len(places) == 1 else ''} = {reader}(b, p)")
        self.line(f"p += {layout.size}")
        for text in after:
            self.line(text)
        run.clear()

    def length(self, field: Field, fixed_format: str) -> str:
        """Reads a length or count; -1 is null in both encodings."""
        count = self.name("n")
        if self.layout.is_compact(field):
            self.line(f"{count} = b[p]")
            self.line("p += 1")
            self.line(f"if {count} > 127: {count}, p = uv(b, p - 1)")
            self.line(f"{count} -= 1")
        else:
            layout = struct.Struct(fixed_format)
            self.line(f"{count}, = {self.constant('S', layout.unpack_from)}(b, p)")
            self.line(f"p += {layout.size}")
        return count

    def value(self, field: Field, kind: FieldType, place: str) -> None:
        match kind:
            case Fixed():
                self.fixed([(place, field)])
            case Text():
                self.text(field, place, self.length(field, ">h"))
            case Blob():
                self.blob(field, kind, place)
            case Array():
                self.array(field, kind, place)
            case _:
                self.nested(field, kind, place)

    def null_or(self, field: Field, place: str, count: str) -> None:
        if self.layout.version in field.nullable:
            self.line(f"if {count} < 0: {place} = None")
        else:
            self.line(f"if {count} < 0: raise bad_null({field.name!r})")

    def text(self, field: Field, place: str, length: str) -> None:
        self.null_or(field, place, length)
        end = self.name("q")
        self.line("else:")
        self.line(f" {end} = p + {length}")
        limit = f" or {length} > {STRING_BYTES_MAX}" if self.layout.is_compact(field) else ""
        self.line(f" if {end} > e{limit}: raise bad_length({length}, {field.name!r})")
        self.line(f" {place} = str(b[p:{end}], 'utf-8')")
        self.line(f" p = {end}")
        if self.is_budgeted:
            wide = f"{budget.WIDE_TIMES} * {length} + {budget.WIDE_STRING_BYTES}"
            self.line(f" m -= {length} + {budget.STRING_BYTES} if {place}.isascii() else {wide}")
            self.line(f" if m < 0: raise too_costly(x, {field.name!r})")

    def blob(self, field: Field, kind: Blob, place: str) -> None:
        length = self.length(field, ">i")
        self.null_or(field, place, length)
        end = self.name("q")
        self.line("else:")
        self.line(f" {end} = p + {length}")
        self.line(f" if {end} > e: raise bad_length({length}, {field.name!r})")
        self.line(f" {place} = {'b[p:%s]' if kind.is_view else 'bytes(b[p:%s])'}" % end)
        self.line(f" p = {end}")
        if self.is_budgeted:
            self.line(f" m -= {budget.VIEW_BYTES if kind.is_view else budget.BLOB_BYTES}")
            self.line(f" if m < 0: raise too_costly(x, {field.name!r})")

    def nested(self, field: Field, kind: type[Struct], place: str) -> None:
        if self.layout.version not in field.nullable:
            self.line(f"{place} = {self.struct(kind)}")
            return
        if field.tag is None:
            self.line("p += 1")
            self.line(f"if b[p - 1] > 127: {place} = None")
        else:  # in a tagged field Kafka encodes null as the varint 0 instead of the byte -1
            present = self.name("n")
            self.line(f"{present}, p = uv(b, p)")
            self.line(f"if not {present}: {place} = None")
        self.line("else:")
        self.depth += 1
        self.line(f"{place} = {self.struct(kind)}")
        self.depth -= 1

    def array(self, field: Field, kind: Array, place: str) -> None:
        count = self.length(field, ">i")
        self.null_or(field, place, count)
        least = self.layout.least_size(kind.item)
        self.line(f"elif {count} * {least} > e - p: raise bad_count({count}, {field.name!r})")
        self.line("else:")
        self.depth += 1
        if self.is_budgeted:
            each = budget.SLOT_BYTES + self.layout.memory_bytes(kind.item)
            self.line(f"if {count}:")
            self.line(f" x -= {count}")
            self.line(f" m -= {count} * {each} + {budget.TUPLE_BYTES}")
            self.line(f" if x < 0 or m < 0: raise too_costly(x, {field.name!r})")
        if isinstance(kind.item, Fixed) and kind.item.name != "uuid":
            self.line(f"{place} = unpack(f'>{{{count}}}{kind.item.format}', b, p) if {count} else ()")
            self.line(f"p += {kind.item.size_bytes} * {count}")
        else:
            items, item, number = self.name("l"), self.name("i"), self.name("k")
            self.line(f"{items} = []")
            self.line(f"for {number} in range({count}):")
            self.depth += 1
            if self.is_budgeted:
                self.breath(number)
            if isinstance(kind.item, type):
                item = self.struct(kind.item)
            else:
                self.value(_item_of(field, kind), kind.item, item)
            self.line(f"{items}.append({item})")
            self.depth -= 1
            self.line(f"{place} = tuple({items})")
        self.depth -= 1

    def tags(self, kind: type[Struct], target: str) -> None:
        known = self.layout.tagged(kind)
        for field in known:
            self.line(f"{target}.{field.name} = {self.default(field)}")
        count, tag, size, end = self.name("n"), self.name("t"), self.name("n"), self.name("q")
        self.line(f"{count} = b[p]")
        self.line("p += 1")
        self.line(f"if {count}:")
        self.depth += 1
        self.line(f"if {count} > 127: {count}, p = uv(b, p - 1)")
        self.line(f"if {count} * 2 > e - p: raise bad_count({count}, 'tagged fields')")
        if self.is_budgeted:
            self.line(f"x -= {count}")
            self.line("if x < 0: raise too_costly(x, 'tagged fields')")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, p = uv(b, p)")
        self.line(f"{size}, p = uv(b, p)")
        self.line(f"{end} = p + {size}")
        self.line(f"if {end} > e: raise bad_length({size}, 'tagged field')")
        for position, field in enumerate(known):
            self.line(f"{'if' if position == 0 else 'elif'} {tag} == {field.tag}:")
            self.depth += 1
            self.value(field, field.type, f"{target}.{field.name}")
            self.line(f"if p != {end}: raise bad_tag({field.name!r})")
            self.depth -= 1
        self.line(f"else: p = {end}" if known else f"p = {end}")
        self.depth -= 2


def _item_of(field: Field, kind: Array) -> Field:
    """The field of an array's elements, which are never null even if the array may be."""
    return replace(field, type=kind.item, nullable=NEVER)


# --- writing ----------------------------------------------------------------------------------------------------------


class _WriterSource(_Source):
    """Generates `function(m, out)`. Fixed-width values collect in `run` until a variable-width value flushes them."""

    def __init__(self, layout: _Layout, *, is_patient: bool) -> None:
        super().__init__("def function(m, out, breathe):" if is_patient else "def function(m, out):")
        self.layout = layout
        self.is_patient = is_patient
        self.out = "out"
        self.run: list[tuple[str, str]] = []
        self.struct(layout.message, "m")
        self.flush()
        self.line("return")

    def flush(self) -> None:
        if not self.run:
            return
        formats = "".join(f for f, _ in self.run)
        values = ", ".join(v for _, v in self.run)
        self.run = []
        if formats == "B":
            self.line(f"{self.out}.append({values})")
        else:
            self.line(f"{self.out} += {self.constant('S', struct.Struct('>' + formats).pack)}({values})")

    def struct(self, kind: type[Struct], value: str) -> None:
        for field in self.layout.absent(kind):
            if not field.ignorable:
                self.flush()
                self.guard(field, f"{value}.{field.name}")
        for field in self.layout.inline(kind):
            self.value(field, field.type, f"{value}.{field.name}")
        if self.layout.is_flexible:
            self.tags(kind, value)

    def differs(self, field: Field, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        if isinstance(field.default, bool | int):
            return f"{value} != {int(field.default)}"
        default = self.constant("D", field.default)
        return f"{value} is not {default} and {value} != {default}"

    def guard(self, field: Field, value: str) -> None:
        layout = self.layout
        self.line(
            f"if {self.differs(field, value)}: "
            f"raise not_carried({layout.message.__name__!r}, {layout.version}, {field.name!r})"
        )

    def value(self, field: Field, kind: FieldType, value: str) -> None:
        match kind:
            case Fixed():
                self.run.append((kind.format, value))
            case Text():
                self.text(field, value)
            case Blob():
                self.blob(field, value)
            case Array():
                self.array(field, kind, value)
            case _:
                self.nested(field, kind, value)

    def length(self, field: Field, count: str, fixed_format: str) -> None:
        """Appends a length; `count` names a variable of the generated function."""
        if self.layout.is_compact(field):
            self.flush()
            self.line(f"if {count} < 127: {self.out}.append({count} + 1)")
            self.line(f"else: put_uv({self.out}, {count} + 1)")
        else:
            self.run.append((fixed_format, count))

    def nullable(self, field: Field, value: str, fixed_format: str) -> bool:
        """Opens `if null … else …` for a nullable field; the caller ends it with `close`."""
        if self.layout.version not in field.nullable:
            return False
        self.flush()
        self.line(f"if {value} is None:")
        self.depth += 1
        if self.layout.is_compact(field):
            self.line(f"{self.out}.append(0)")
        else:
            self.line(f"{self.out} += {self.constant('N', struct.pack('>' + fixed_format, -1))}")
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        return True

    def close(self, is_open: bool) -> None:
        if is_open:
            self.flush()
            self.depth -= 1

    def text(self, field: Field, value: str) -> None:
        is_open = self.nullable(field, value, "h")
        data, count = self.name("s"), self.name("n")
        self.line(f"{data} = {value}.encode()")
        self.line(f"{count} = len({data})")
        self.line(f"if {count} > {STRING_BYTES_MAX}: raise string_too_long({field.name!r})")
        self.length(field, count, "h")
        self.flush()
        self.line(f"{self.out} += {data}")
        self.close(is_open)

    def blob(self, field: Field, value: str) -> None:
        is_open = self.nullable(field, value, "i")
        count = self.name("n")
        self.line(f"{count} = len({value})")
        self.length(field, count, "i")
        self.flush()
        self.line(f"{self.out} += {value}")
        self.close(is_open)

    def nested(self, field: Field, kind: type[Struct], value: str) -> None:
        if self.layout.version not in field.nullable:
            self.struct(kind, value)
            return
        self.flush()
        self.line(f"if {value} is None: {self.out}.append({255 if field.tag is None else 0})")
        self.line("else:")
        self.depth += 1
        self.run.append(("B", "1"))
        self.struct(kind, value)
        self.close(is_open=True)

    def array(self, field: Field, kind: Array, value: str) -> None:
        is_open = self.nullable(field, value, "i")
        count = self.name("n")
        self.line(f"{count} = len({value})")
        self.length(field, count, "i")
        self.flush()
        if isinstance(kind.item, Fixed) and kind.item.name != "uuid":
            self.line(f"if {count}: {self.out} += pack(f'>{{{count}}}{kind.item.format}', *{value})")
        else:
            item, number = self.name("i"), self.name("k")
            self.line(f"for {number}, {item} in enumerate({value}):" if self.is_patient else f"for {item} in {value}:")
            self.depth += 1
            if self.is_patient:
                self.breath(number)
            if isinstance(kind.item, type):
                self.struct(kind.item, item)
            else:
                self.value(_item_of(field, kind), kind.item, item)
            self.flush()
            self.depth -= 1
        self.close(is_open)

    def tags(self, kind: type[Struct], value: str) -> None:
        known = self.layout.tagged(kind)
        if not known:
            self.run.append(("B", "0"))
            return
        self.flush()
        parts, part = self.name("l"), self.name("x")
        conditions = [self.differs(f, f"{value}.{f.name}") for f in known]
        self.line(f"if not ({' or '.join(f'({c})' for c in conditions)}): {self.out}.append(0)")
        self.line("else:")
        self.depth += 1
        outer = self.out
        self.line(f"{parts} = []")
        for field, condition in zip(known, conditions, strict=True):
            self.line(f"if {condition}:")
            self.depth += 1
            self.out = self.name("y")
            self.line(f"{self.out} = bytearray()")
            self.value(field, field.type, f"{value}.{field.name}")
            self.flush()
            self.line(f"{parts}.append(({field.tag}, {self.out}))")
            self.out = outer
            self.depth -= 1
        self.line(f"put_uv({outer}, len({parts}))")
        self.line(f"for {part} in {parts}:")
        self.line(f" put_uv({outer}, {part}[0])")
        self.line(f" put_uv({outer}, len({part}[1]))")
        self.line(f" {outer} += {part}[1]")
        self.depth -= 1


def compile_reader(message: type[Message], version: int) -> Reader:
    """The reader of one message at one version."""
    source = _ReaderSource(_Layout(message, version), is_budgeted=False)
    reader: Reader = source.function(f"<read {message.__name__} v{version}>")
    return reader


def compile_budgeted_reader(message: type[Message], version: int) -> BudgetedReader:
    """The reader of one message at one version that charges a budget."""
    source = _ReaderSource(_Layout(message, version), is_budgeted=True)
    reader: BudgetedReader = source.function(f"<read {message.__name__} v{version} within a budget>")
    return reader


def compile_writer(message: type[Message], version: int) -> Writer:
    """The writer of one message at one version."""
    source = _WriterSource(_Layout(message, version), is_patient=False)
    writer: Writer = source.function(f"<write {message.__name__} v{version}>")
    return writer


def compile_patient_writer(message: type[Message], version: int) -> PatientWriter:
    """The writer of one message at one version that calls `breathe`."""
    source = _WriterSource(_Layout(message, version), is_patient=True)
    writer: PatientWriter = source.function(f"<write {message.__name__} v{version} patiently>")
    return writer
