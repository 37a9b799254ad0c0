"""Kafka's message schemas as the peer ships them: parsed, filled with random values, compared with our messages.

This module does not consult our declarations to decide what a message contains, so a mistake in a declaration cannot
hide. A message is JSON in the form of Kafka's own converters: names begin in lower case, bytes are base64, an id is
URL-safe base64 without padding.
"""

import base64
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.wire.declare import Array, Field, Struct

FOREVER = 0x7FFF
NONE = range(0)

Json = dict[str, Any]


def versions(text: str | None) -> range:
    """Reads "3", "3+", "0-4", "none" or nothing."""
    if text is None or text == "none":
        return NONE
    if text.endswith("+"):
        return range(int(text[:-1]), FOREVER + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@dataclass(frozen=True)
class FieldSpec:
    """One field of a schema. `fields` are those of the struct that it holds, once or repeatedly."""

    name: str
    type: str
    is_array: bool
    versions: range
    nullable: range
    tagged: range
    tag: int | None
    default: Any
    ignorable: bool
    fields: tuple["FieldSpec", ...] | None

    @property
    def json_name(self) -> str:
        return self.name[:1].lower() + self.name[1:]

    @property
    def is_records(self) -> bool:
        return self.type == "records" and not self.is_array


@dataclass(frozen=True)
class Schema:
    """One schema file. `kind` is its type: request, response, header, data, coordinator-key or -value."""

    name: str
    kind: str
    api_key: int | None
    versions: range
    flexible: range
    is_latest_unstable: bool
    fields: tuple[FieldSpec, ...]


def parse(text: str) -> Schema:
    """Reads a schema file, which is JSON with comment lines."""
    raw = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    shared = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", [])}
    return Schema(
        name=raw["name"],
        kind=raw["type"],
        api_key=raw.get("apiKey"),
        versions=versions(raw["validVersions"]),
        flexible=versions(raw.get("flexibleVersions")),
        is_latest_unstable=raw.get("latestVersionUnstable", False),
        fields=tuple(_field(f, shared) for f in raw.get("fields", [])),
    )


def _field(raw: Json, shared: dict[str, list[Json]]) -> FieldSpec:
    kind = raw["type"].removeprefix("[]")
    is_array = raw["type"].startswith("[]")
    inner = raw.get("fields", shared.get(kind))
    fields = None if inner is None else tuple(_field(f, shared) for f in inner)
    return FieldSpec(
        name=raw["name"],
        type=kind,
        is_array=is_array,
        versions=versions(raw.get("versions", raw.get("taggedVersions"))),
        nullable=versions(raw.get("nullableVersions")),
        tagged=versions(raw.get("taggedVersions")),
        tag=raw.get("tag"),
        default=_default(kind, is_array, fields, raw.get("default")),
        ignorable=raw.get("ignorable", False),
        fields=fields,
    )


def _default(kind: str, is_array: bool, fields: tuple[FieldSpec, ...] | None, given: object) -> Any:
    """The value of an unset field. A bare null in a schema means that no default is given."""
    text = "" if given is None else str(given).lower()
    if text == "null" or (kind == "records" and not is_array):
        return None
    if is_array:
        return []
    if fields is not None:
        return {f.json_name: f.default for f in fields}
    match kind:
        case "string" | "bytes":
            return "" if given is None else given
        case "bool":
            return text == "true"
        case "float64":
            return float(text or 0)
        case "uuid":
            return _uuid_text(bytes(16))
        case _:
            return int(text or "0", 0)


def _uuid_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# --- making -----------------------------------------------------------------------------------------------------------

WIDTHS = {"int8": (8, True), "int16": (16, True), "uint16": (16, False), "int32": (32, True), "int64": (64, True)}
ALPHABETS = ("abcdefghij-._0123456789", "äöüßéñ", "日本語Кафка", "😀🚰𝔘")
FLOATS = (0.0, 1.0, -1.5, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 0.1)

VALUES_MAX = 1500
"""A message stops growing after this number of values."""


class Maker:
    """Makes messages from a seed. The first is minimal, the second leaves nothing out, others are mixed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.made = 0
        self.values = 0
        self.mood = "mixed"

    def message(self, schema: Schema, version: int) -> Json:
        self.begin()
        return self.struct(schema.fields, version)

    def begin(self) -> None:
        self.mood = {0: "least", 1: "most"}.get(self.made, "mixed")
        self.made += 1
        self.values = 0

    def struct(self, fields: tuple[FieldSpec, ...], version: int) -> Json:
        return {f.json_name: self.field(f, version) for f in fields if version in f.versions}

    def field(self, field: FieldSpec, version: int) -> Any:
        if self.mood == "least":
            return self.least(field, version)
        chance = 1.0 if self.mood == "most" else self.random.random()
        if version in field.tagged and chance < 0.4:
            return field.default if version in field.nullable or field.default is not None else []
        if version in field.nullable and chance < 0.6 and self.random.random() < 0.4:
            return None
        if not field.is_array:
            return self.item(field, version)
        return [self.item(field, version) for _ in range(self.count())]

    def least(self, field: FieldSpec, version: int) -> Any:
        if version in field.nullable:
            return None
        if field.is_array:
            return []
        if field.fields is not None:
            return self.struct(field.fields, version)
        if field.type == "records":
            return ""
        return "" if field.default is None else field.default

    def count(self) -> int:
        if self.mood == "least" or self.values > VALUES_MAX:
            return 0
        if self.mood == "most":
            return 2
        chance = self.random.random()
        if chance < 0.02 and self.values < VALUES_MAX // 4:
            self.values += VALUES_MAX // 4  # one array whose length needs two bytes, then short ones
            return self.random.choice((126, 127, 128, 150))
        return 0 if chance < 0.25 else self.random.randint(1, 3)

    def item(self, field: FieldSpec, version: int) -> Any:
        return self.scalar(field.type) if field.fields is None else self.struct(field.fields, version)

    def scalar(self, kind: str) -> Any:
        self.values += 1
        draw = self.random
        if kind in WIDTHS:
            bits, signed = WIDTHS[kind]
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            edge = draw.choice((low, high, 0, 1, high - 1, max(low, -1), min(high, 128)))
            return draw.choice((edge, draw.randint(low, high), draw.randint(0, 100)))
        match kind:
            case "bool":
                return draw.random() < 0.5
            case "float64":
                return draw.choice((draw.choice(FLOATS), draw.uniform(-1e9, 1e9)))
            case "uuid":
                return _uuid_text(bytes(16) if draw.random() < 0.2 else draw.randbytes(16))
            case "string":
                return self.text()
            case "bytes" | "records":
                return base64.b64encode(draw.randbytes(self.length())).decode()
        raise TypeError(f"a schema type that nobody told us of: {kind}")

    def length(self) -> int:
        chance = self.random.random()
        if chance < 0.001:
            return self.random.choice((16382, 16383, 16384, 20000))
        if chance < 0.05:
            return self.random.choice((126, 127, 128, 300))
        return 0 if chance < 0.15 else self.random.randint(1, 12)

    def text(self) -> str:
        length = self.length()
        alphabet = ALPHABETS[0] if self.random.random() < 0.6 else self.random.choice(ALPHABETS)
        made = "".join(self.random.choices(alphabet, k=length))
        # Lengths count bytes: cut at a character boundary so that the edges above are met, and 32,767 is not exceeded.
        return made if alphabet is ALPHABETS[0] else made.encode()[:length].decode(errors="ignore")


# --- comparing --------------------------------------------------------------------------------------------------------


def as_written(fields: tuple[FieldSpec, ...], version: int, value: Json) -> Json:
    """The message as Kafka's converter shows it: no tagged field at its default, of records only their size."""
    shown: Json = {}
    for field in fields:
        if version not in field.versions:
            continue
        held = value[field.json_name]
        if version in field.tagged and is_default(field, version, held):
            continue
        if field.is_records and held is not None:
            shown[field.json_name + "SizeInBytes"] = len(base64.b64decode(held))
        elif field.fields is None or held is None:
            shown[field.json_name] = held
        elif field.is_array:
            shown[field.json_name] = [as_written(field.fields, version, v) for v in held]
        else:
            shown[field.json_name] = as_written(field.fields, version, held)
    return shown


def is_default(field: FieldSpec, version: int, value: Any) -> bool:
    """Whether a tagged field with this value is left unwritten."""
    if field.fields is None or field.is_array or value is None or field.default is None:
        return bool(value == field.default)
    return as_written(field.fields, version, value) == as_written(field.fields, version, field.default)


def plain(name: str) -> str:
    """A field's name without case and underscores: their names and ours agree only in this form."""
    return name.replace("_", "").lower()


def by_plain_name(struct: type[Struct]) -> dict[str, Field]:
    """Our fields by plain name."""
    found = {plain(f.name): f for f in struct.FIELDS}
    assert len(found) == len(struct.FIELDS), f"{struct.__name__}: two fields have the same name but for underscores"
    return found


def held_struct(field: Field) -> type[Struct]:
    """The struct that one of our fields holds, once or repeatedly."""
    kind = field.type.item if isinstance(field.type, Array) else field.type
    assert isinstance(kind, type), f"{field.name} holds no struct"
    return kind


def scalar(kind: str, value: Any) -> Any:
    """A JSON value as one of our messages holds it."""
    if value is None:
        return None
    if kind == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    if kind in ("bytes", "records"):
        return base64.b64decode(value)
    return value


def build(struct: type[Struct], fields: tuple[FieldSpec, ...], value: Json) -> Struct:
    """Our message with the values of a JSON message. Fields that the JSON lacks keep our defaults."""
    ours = by_plain_name(struct)
    given: dict[str, Any] = {}
    for field in fields:
        if field.json_name not in value:
            continue
        own, held = ours[plain(field.name)], value[field.json_name]
        if held is None or field.fields is None:
            given[own.name] = _scalars(field, held)
        elif field.is_array:
            given[own.name] = [build(held_struct(own), field.fields, v) for v in held]
        else:
            given[own.name] = build(held_struct(own), field.fields, held)
    return struct(**given)


def _scalars(field: FieldSpec, value: Any) -> Any:
    if field.is_array and value is not None:
        return tuple(scalar(field.type, v) for v in value)
    return scalar(field.type, value)


def differences(
    fields: tuple[FieldSpec, ...], version: int, valid: range, value: Json, ours: Struct, path: str = ""
) -> Iterator[str]:
    """Differences between our message and the JSON, including missing and superfluous fields."""
    own_fields = by_plain_name(type(ours))
    for field in fields:
        own = own_fields.pop(plain(field.name), None)
        place = f"{path}.{field.json_name}"
        if own is None:
            if any(v in field.versions for v in valid):
                yield f"{place} is not declared"
            continue
        got = getattr(ours, own.name)
        if version not in field.versions:
            if not _same(field, version, valid, field.default, got):
                yield f"{place} is absent: {field.default!r} expected, got {got!r}"
            continue
        expected = value[field.json_name]
        if field.fields is None or expected is None or got is None:
            if not _same(field, version, valid, expected, got):
                yield f"{place}: {expected!r} expected, got {got!r}"
        elif not field.is_array:
            yield from differences(field.fields, version, valid, expected, got, place)
        elif len(got) != len(expected):
            yield f"{place}: {len(expected)} elements expected, got {len(got)}"
        else:
            for index, (one, other) in enumerate(zip(expected, got, strict=True)):
                yield from differences(field.fields, version, valid, one, other, f"{place}[{index}]")
    for extra in own_fields.values():
        yield f"{path}.{extra.name} is declared by us alone"


def _same(field: FieldSpec, version: int, valid: range, expected: Any, got: Any) -> bool:
    if expected is None or got is None:
        return expected is got
    if field.fields is not None and not field.is_array:
        return not list(differences(field.fields, version, valid, expected, got))
    if field.type == "bool" and not field.is_array and not isinstance(got, bool):
        return False
    return bool(_scalars(field, expected) == got)
