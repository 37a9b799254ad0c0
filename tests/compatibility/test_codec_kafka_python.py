"""Our codec against kafka-python's: Produce, Fetch and Metadata, which all clients use, both ways and byte for byte.

Its codec reads the schemas that it ships, and we make the messages from them too. It still has versions that Kafka 4
removed; those are excluded by name.
"""

import secrets
import warnings
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from uuid import UUID

import pytest

from penstock.wire import codec
from penstock.wire.declare import Message
from tests.compatibility.schema import (
    FieldSpec,
    Json,
    Maker,
    Schema,
    build,
    differences,
    is_default,
    parse,
    plain,
    scalar,
)
from tests.declared import declared_messages

pytestmark = pytest.mark.peers

MESSAGES_EACH = 20
BASES = ("penstock", secrets.token_hex(4))
"""One seed that is always the same, and one that never is."""

with warnings.catch_warnings():
    # Its import reads the schemas in a way that Python 3.11 calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
    from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
    from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse
    from kafka.protocol.schemas import resources

CLASSES = (ProduceRequest, ProduceResponse, FetchRequest, FetchResponse, MetadataRequest, MetadataResponse)
REMOVED = {"Produce": range(3), "Fetch": range(4), "Metadata": range(0)}
"""Versions that Kafka 4.0 removed (KIP-896)."""


def cases() -> Iterator[tuple[Any, Schema, type[Message], int]]:
    for theirs in CLASSES:
        schema = parse((files(resources) / f"{theirs.__name__}.json").read_text())
        removed = REMOVED[schema.name.removesuffix("Request").removesuffix("Response")]
        for version in schema.versions:
            if version not in removed:
                yield theirs, schema, declared_messages()[schema.name], version


@pytest.mark.parametrize("base", BASES, ids=["fixed", "fresh"])
def test_random_messages_are_the_same_bytes_on_both_sides(base: str) -> None:
    findings = []
    for theirs, schema, message, version in cases():
        assert version in message.VERSIONS, f"{schema.name} v{version} is not declared"
        maker = Maker(f"{base} {schema.name} {version}")
        for index in range(MESSAGES_EACH):
            value = maker.message(schema, version)
            found = disagreements(theirs, schema, message, version, value)
            findings += [f"{schema.name} v{version} #{index}: {what}" for what in found]
    assert not findings, f"base seed {base}: {len(findings)} differences\n" + "\n".join(findings[:40])


def disagreements(theirs: Any, schema: Schema, message: type[Message], version: int, value: Json) -> Iterator[str]:
    """Differences when each side reads and writes the message."""
    written = bytes(their_message(theirs, schema.fields, value, version).encode(version=version))
    try:
        read = codec.decode(message, version, written)
        again = bytes(codec.encode(read, version))
        ours = bytes(codec.encode(build(message, schema.fields, value), version))  # type: ignore[arg-type]
    except Exception as error:
        yield f"we fail with {error!r}"
        return
    yield from differences(schema.fields, version, schema.versions, value, read)
    if again != written:
        yield f"read by us and written again it is {again.hex()[:200]} and not {written.hex()[:200]}"
    if ours != written:
        yield f"built by us it is {ours.hex()[:200]} and not {written.hex()[:200]}"
    yield from their_differences(theirs.decode(ours, version=version), schema.fields, version, value)


# --- their messages ---------------------------------------------------------------------------------------------------


def their_field(container: Any, field: FieldSpec) -> Any:
    """Their field of the same name. The authorized operations have another name and type on their side."""
    known = {plain(name): found for name, found in container.fields.items()}
    name = "AuthorizedOperations" if field.name.endswith("AuthorizedOperations") else field.name
    return known.get(plain(name)) or known[plain(field.name)]


def bits(number: int) -> set[int] | None:
    """An int32 as the set of its bits; the highest alone means that nothing was requested."""
    found = {bit for bit in range(32) if number >> bit & 1}
    return None if found == {31} else found


def their_value(own: Any, field: FieldSpec, value: Any) -> Any:
    """A JSON value other than a struct, as kafka-python represents it."""
    if field.is_array:
        return [scalar(field.type, v) for v in value]
    if own.type_str == "bitfield":
        return bits(value)
    if field.type == "uuid":
        identity = UUID(bytes=scalar(field.type, value))
        return identity if identity.int else None
    return scalar(field.type, value)


def their_message(container: Any, fields: tuple[FieldSpec, ...], value: Json, version: int) -> Any:
    given: dict[str, Any] = {}
    for field in fields:
        if field.json_name not in value:
            continue
        own, held = their_field(container, field), value[field.json_name]
        if version in field.tagged and is_default(field, version, held):
            continue  # they write every given value, default or not
        if held is None:
            given[own.name] = None
        elif field.fields is None:
            given[own.name] = their_value(own, field, held)
        elif field.is_array:
            given[own.name] = [their_message(own.data_class, field.fields, v, version) for v in held]
        else:
            given[own.name] = their_message(own.data_class, field.fields, held, version)
    return container(version=version, **given)


def their_differences(
    theirs: Any, fields: tuple[FieldSpec, ...], version: int, value: Json, path: str = ""
) -> Iterator[str]:
    for field in fields:
        if version not in field.versions:
            continue
        own, expected, place = their_field(type(theirs), field), value[field.json_name], f"{path}.{field.json_name}"
        got = getattr(theirs, own.name)
        if version in field.tagged and is_default(field, version, expected):
            expected = own.default
        if field.fields is None or expected is None or got is None:
            wanted = None if expected is None else their_value(own, field, expected)
            if (bytes(got) if isinstance(got, memoryview) else got) != wanted:
                yield f"{place}: they read {got!r} and not {wanted!r}"
        elif not field.is_array:
            yield from their_differences(got, field.fields, version, expected, place)
        elif len(got) != len(expected):
            yield f"{place}: they read {len(got)} elements and not {len(expected)}"
        else:
            for index, (one, other) in enumerate(zip(got, expected, strict=True)):
                yield from their_differences(one, field.fields, version, other, f"{place}[{index}]")
