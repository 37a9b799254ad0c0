"""Decodes keys and values, a whole column at a time, and separates the bad records.

A record without a value is a tombstone and never bad. JSON is parsed strictly, because a partly parsed value loses
data: one object, nothing after it, and each field that the schema names has the type in the schema, or is null. Fields
that the schema does not name are left out. An object without any field of the schema is bad: its row would be empty.

Every value is parsed by orjson before Arrow parses it: Arrow's own reader is fast, but aborts the process at `null`
where it expects an object.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.spark.lake.dead_letters import Letter, letters_of

_BLOCK_BYTES_MIN = 64
NAMES_SHOWN_MAX = 10


class Wrong(NamedTuple):
    """The error of a bad value."""

    kind: str
    reason: str


class DecodedColumn(NamedTuple):
    """The decoded values of a column, null if bad, and the errors by row."""

    values: pa.Array
    wrong: Mapping[int, Wrong]


@dataclass(frozen=True, slots=True)
class Decoder:
    """How keys and values are decoded: `none`, `text`, or `json` with the wanted fields."""

    key: str = "none"
    value: str = "none"
    fields: pa.Schema | None = None

    @property
    def key_type(self) -> pa.DataType:
        """The type of decoded keys."""
        return pa.binary() if self.key == "none" else pa.string()

    @property
    def value_type(self) -> pa.DataType:
        """The type of decoded values."""
        if self.fields is not None:
            return pa.struct(list(self.fields))
        return pa.binary() if self.value == "none" else pa.string()

    def decode(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Letter]]:
        """The good rows, decoded, and the bad ones unchanged."""
        wrong: dict[int, Wrong] = {}
        decoded = batch
        for name, how in (("key", self.key), ("value", self.value)):
            if how != "none":
                column = self._decode_column(batch.column(name), name)
                index = decoded.schema.get_field_index(name)
                decoded = decoded.set_column(index, pa.field(name, column.values.type), column.values)
                wrong = {**column.wrong, **wrong}
        if not wrong:
            return decoded, []
        rows = sorted(wrong)
        letters = letters_of(batch.take(pa.array(rows)), [wrong[row] for row in rows])
        return decoded.filter(_all_but(rows, batch.num_rows)), letters

    def _decode_column(self, column: pa.Array, name: str) -> DecodedColumn:
        if name == "value" and self.value == "json":
            return _documents(column, self.fields)
        return _texts(column, name)


# --- texts


def _texts(column: pa.Array, name: str) -> DecodedColumn:
    try:
        return DecodedColumn(column.cast(pa.string()), {})
    except pa.ArrowInvalid:
        return _each(column, lambda value: value.decode(), pa.string(), Wrong("NotText", f"the {name} is not UTF-8"))


def _each(column: pa.Array, read: Callable[[bytes], object], kind: pa.DataType, otherwise: Wrong) -> DecodedColumn:
    """Decodes row by row, after a column as a whole has failed."""
    values: list[object] = []
    wrong: dict[int, Wrong] = {}
    for row, value in enumerate(column.to_pylist()):
        try:
            values.append(None if value is None else read(value))
        except ValueError:
            values.append(None)
            wrong[row] = otherwise
    return DecodedColumn(pa.array(values, kind), wrong)


# --- JSON


def _documents(column: pa.Array, fields: pa.Schema | None) -> DecodedColumn:
    names = None if fields is None else frozenset(fields.names)
    lines, wrong = _lines(column.to_pylist(), names)
    rows = [row for row, line in enumerate(lines) if line is not None]
    if fields is None:
        kept = column if not wrong else pc.if_else(_all_but(sorted(wrong), len(column)), column, None)
        return DecodedColumn(kept.cast(pa.string()), wrong)
    texts = pa.array([lines[row] for row in rows], pa.binary())
    kind = pa.struct(list(fields))
    parts: list[pa.Array] = []
    _parse_parts(texts, rows, fields, parts, wrong)
    values = pa.concat_arrays([each.cast(kind) for each in parts]) if parts else pa.array([], kind)
    places = {row: place for place, row in enumerate(row for row in rows if row not in wrong)}
    return DecodedColumn(values.take(pa.array([places.get(row) for row in range(len(column))], pa.int64())), wrong)


def _lines(values: Sequence[bytes | None], names: frozenset[str] | None) -> tuple[list[bytes | None], dict[int, Wrong]]:
    """Each document in one line; None for a value that is null or bad. `names` are the fields of the schema, if any."""
    lines: list[bytes | None] = []
    wrong: dict[int, Wrong] = {}
    for row, value in enumerate(values):
        line = None
        if value is not None:
            try:
                document = orjson.loads(value)
            except ValueError as error:
                wrong[row] = Wrong("NotJson", f"the value is not JSON: {error}")
            else:
                if not isinstance(document, dict):
                    wrong[row] = Wrong("NotJson", "the value is JSON, but not an object")
                elif names is not None and names.isdisjoint(document):
                    wrong[row] = Wrong("NotOfSchema", _stray(document, names))
                else:
                    line = orjson.dumps(document) if b"\n" in value or b"\r" in value else value
        lines.append(line)
    return lines, wrong


def _stray(document: Mapping[str, object], names: Iterable[str]) -> str:
    wanted, found = (", ".join(sorted(each)[:NAMES_SHOWN_MAX]) for each in (names, document))
    return f"the value has no field of the schema: it has {found or 'none at all'}, the schema {wanted}"


def _parse_parts(
    texts: pa.Array, rows: Sequence[int], fields: pa.Schema, parts: list[pa.Array], wrong: dict[int, Wrong]
) -> None:
    """Parses all at once; if that fails, each half, until the documents that do not fit are found."""
    if not rows:
        return
    try:
        parts.append(_parsed(texts, fields))
    except pa.ArrowInvalid as error:
        if len(rows) == 1:
            wrong[rows[0]] = Wrong("NotOfSchema", f"the value does not fit the schema: {error}")
            return
        half = len(rows) // 2
        _parse_parts(texts.slice(0, half), rows[:half], fields, parts, wrong)
        _parse_parts(texts.slice(half), rows[half:], fields, parts, wrong)


def _parsed(texts: pa.Array, fields: pa.Schema) -> pa.Array:
    """Parses documents that are known to be objects in one line each."""
    count = len(texts)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), texts), b"\n")[0].as_buffer()
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(_BLOCK_BYTES_MIN, joined.size + 1))
    asked = pa.schema([pa.field(each.name, _readable(each.type)) for each in fields])
    parse = pyarrow.json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore")
    table = pyarrow.json.read_json(pa.BufferReader(joined), read, parse)
    if table.num_rows != count:
        raise pa.ArrowInvalid(f"{count} documents gave {table.num_rows} rows")
    return table.select(fields.names).to_struct_array().combine_chunks().cast(pa.struct(list(fields)))


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type to parse from JSON: a string for a date, which Arrow does not parse."""
    if pa.types.is_date32(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _readable(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return kind


def _all_but(rows: Sequence[int], count: int) -> pa.Array:
    mask = [True] * count
    for row in rows:
        mask[row] = False
    return pa.array(mask)
