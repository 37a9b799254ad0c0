"""Our codec against kio's: all its schemas, both ways, byte for byte.

kio generates a class per message and version from the schemas of Kafka 4.2, and gives many fields richer types: times
and durations, ids that are None where they are zero. They are translated here according to the type of each field.
"""

import io
import secrets
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, get_args
from uuid import UUID

import pytest
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
)

from penstock.wire import codec
from penstock.wire.declare import Field, Struct
from tests.compatibility.schema import Maker, by_plain_name, held_struct, plain, scalar
from tests.declared import declared_messages

pytestmark = pytest.mark.peers

SCHEMAS = 625
MESSAGES_EACH = 20
BASES = ("penstock", secrets.token_hex(4))
"""One seed that is always the same, and one that never is."""

DURATION_MS_MAX = 1 << 40
"""kio counts durations in floating-point seconds, which are exact to the millisecond up to here at least."""
TIME_S_MAX = 253402300799
"""The last second of the year 9999, the last that kio can represent."""


def entities() -> Iterator[tuple[type[Any], int]]:
    """Every class that kio generated for a whole message, and its version."""
    for name, by_version in schema_name_map.items():
        for version, kinds in by_version.items():
            for kind in kinds:
                yield load_entity_schema(name, version, kind), version


def test_nothing_that_kio_knows_is_missing() -> None:
    ours = declared_messages()
    found = list(entities())
    assert len(found) == SCHEMAS
    assert [(e.__name__, v) for e, v in found if e.__name__ not in ours or v not in ours[e.__name__].VERSIONS] == []


@pytest.mark.parametrize("base", BASES, ids=["fixed", "fresh"])
def test_random_messages_are_the_same_bytes_on_both_sides(base: str) -> None:
    findings = []
    for entity, version in entities():
        maker = KioMaker(f"{base} {entity.__name__} {version}")
        for index in range(MESSAGES_EACH):
            theirs = maker.message(entity)
            findings += [f"{entity.__name__} v{version} #{index}: {what}" for what in disagreements(theirs, version)]
    assert not findings, f"base seed {base}: {len(findings)} differences\n" + "\n".join(findings[:40])


def disagreements(theirs: Any, version: int) -> Iterator[str]:
    """Differences when each side reads and writes the message."""
    message = declared_messages()[type(theirs).__name__]
    buffer = io.BytesIO()
    entity_writer(type(theirs))(buffer, theirs)
    written = buffer.getvalue()
    try:
        read = codec.decode(message, version, written)
        again = bytes(codec.encode(read, version))
        built = build(message, theirs)
        ours = bytes(codec.encode(built, version))  # type: ignore[arg-type]
    except Exception as error:
        yield f"we fail with {error!r}"
        return
    if again != written:
        yield f"read by us and written again it is {again.hex()[:200]} and not {written.hex()[:200]}"
    yield from differences(theirs, read)
    if ours != written:
        yield f"built by us it is {ours.hex()[:200]} and not {written.hex()[:200]}"
        return
    back, size = entity_reader(type(theirs))(ours, 0)
    if back != theirs or size != len(ours):
        yield f"they read {back} ({size} of {len(ours)} bytes) and not {theirs}"


# --- making -----------------------------------------------------------------------------------------------------------


def may_be_null(field: Any) -> bool:
    """Whether the field itself may be None; kio's own `is_optional` is also true for an array of ids."""
    return NoneType in get_args(field.type)


class KioMaker(Maker):
    """Makes kio's messages."""

    def message(self, entity: type[Any]) -> Any:  # type: ignore[override]
        self.begin()
        return self.entity(entity)

    def entity(self, entity: type[Any]) -> Any:
        return entity(**{f.name: self.value(f) for f in fields(entity)})

    def value(self, field: Any) -> Any:
        kind = classify_field(field)
        chance = {"least": 0.0, "most": 1.0}.get(self.mood, self.random.random())
        if get_field_tag(field) is not None:
            if field.default is not MISSING and chance < 0.4:
                return field.default
        elif may_be_null(field) and chance < 0.25:
            return None
        match kind:
            case PrimitiveField():
                return self.primitive(get_schema_field_type(field), may_be_null(field))
            case PrimitiveTupleField():
                kafka_type = get_schema_field_type(field)
                return tuple(self.primitive(kafka_type, is_nullable=True) for _ in range(self.count()))
            case EntityField(entity):
                return self.entity(entity)
            case EntityTupleField(entity):
                return tuple(self.entity(entity) for _ in range(self.count()))

    def primitive(self, kafka_type: str, is_nullable: bool) -> Any:
        match kafka_type:
            case "error_code":
                return self.random.choice(list(KioErrorCode))
            case "timedelta_i32":
                return timedelta(milliseconds=self.scalar("int32"))
            case "timedelta_i64":
                return timedelta(milliseconds=self.random.randint(-DURATION_MS_MAX, DURATION_MS_MAX))
            case "datetime_i64":
                return datetime.fromtimestamp(self.random.randint(0, TIME_S_MAX), UTC)
            case "uuid":
                value = UUID(bytes=scalar("uuid", self.scalar("uuid")))
                return value if value.int or not is_nullable else None
        return scalar(kafka_type, self.scalar(kafka_type))


# --- comparing --------------------------------------------------------------------------------------------------------


def our_field(fields_of_ours: dict[str, Field], field: Any) -> Field:
    """Our field of the same name, except for the unit that kio omits where the type implies it."""
    return fields_of_ours.get(plain(field.name)) or fields_of_ours[plain(field.name) + "ms"]


def translate(kafka_type: str, value: Any) -> Any:
    """A value of kio's in our representation."""
    match kafka_type:
        case "error_code":
            return int(value)
        case "timedelta_i32" | "timedelta_i64":
            return value // timedelta(milliseconds=1)
        case "datetime_i64":
            return -1 if value is None else int(value.timestamp()) * 1000
        case "uuid":
            return bytes(16) if value is None else value.bytes
    return value


def build(struct: type[Struct], theirs: Any) -> Struct:
    """Our message with the values of kio's."""
    ours = by_plain_name(struct)
    given: dict[str, Any] = {}
    for field in fields(theirs):
        own, value = our_field(ours, field), getattr(theirs, field.name)
        match classify_field(field):
            case PrimitiveField():
                given[own.name] = translate(get_schema_field_type(field), value)
            case _ if value is None:
                given[own.name] = None
            case PrimitiveTupleField():
                given[own.name] = [translate(get_schema_field_type(field), v) for v in value]
            case EntityField():
                given[own.name] = build(held_struct(own), value)
            case EntityTupleField():
                given[own.name] = [build(held_struct(own), v) for v in value]
    return struct(**given)


def differences(theirs: Any, ours: Struct, path: str = "") -> Iterator[str]:
    """Differences between our message and kio's."""
    own_fields = by_plain_name(type(ours))
    for field in fields(theirs):
        expected, got = getattr(theirs, field.name), getattr(ours, our_field(own_fields, field).name)
        place = f"{path}.{field.name}"
        match classify_field(field):
            case PrimitiveField():
                expected = translate(get_schema_field_type(field), expected)
            case PrimitiveTupleField() if expected is not None:
                expected = tuple(translate(get_schema_field_type(field), v) for v in expected)
            case EntityField() if expected is not None and got is not None:
                yield from differences(expected, got, place)
                continue
            case EntityTupleField() if expected is not None and got is not None and len(got) == len(expected):
                for index, (one, other) in enumerate(zip(expected, got, strict=True)):
                    yield from differences(one, other, f"{place}[{index}]")
                continue
        if expected != got:
            yield f"{place}: {expected!r} expected, got {got!r}"
