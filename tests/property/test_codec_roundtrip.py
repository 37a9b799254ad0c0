"""Any message that can be encoded decodes to itself, at every version of every declaration."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.errors import ErrorCode
from penstock.wire import codec
from penstock.wire.budget import Budget
from penstock.wire.declare import Array, Field, FieldType, Message, Struct
from penstock.wire.types import Blob, Fixed, Text
from tests.declared import declared_messages

AMPLE = Budget(elements=1_000_000, memory_bytes=1_000_000_000)
WIDTHS = {"int8": (8, True), "int16": (16, True), "uint16": (16, False), "int32": (32, True), "int64": (64, True)}


def fixed(kind: Fixed) -> st.SearchStrategy[Any]:
    if kind.name in WIDTHS:
        bits, signed = WIDTHS[kind.name]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "error_code": st.integers(-32768, 32767).map(ErrorCode),
    }[kind.name]


def items(kind: FieldType, version: int) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed():
            return fixed(kind)
        case Text():
            return st.text(max_size=150)
        case Blob():
            return st.binary(max_size=150)
        case Array():
            return st.lists(items(kind.item, version), max_size=3)
    return structs(kind, version)


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    some = items(field.type, version)
    return st.none() | some if version in field.nullable else some


def structs(struct: type[Struct], version: int) -> st.SearchStrategy[Struct]:
    carried = {f.name: values(f, version) for f in struct.FIELDS if version in f.versions}
    return st.builds(struct, **carried)


@pytest.mark.parametrize("message", declared_messages().values(), ids=lambda message: message.__name__)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_message_reads_back_as_itself(message: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(message.VERSIONS)), label="version")
    written = data.draw(structs(message, version), label="message")
    assert isinstance(written, message)
    encoded = codec.encode(written, version)
    for wrapped in (bytes(encoded), encoded, memoryview(encoded)):
        assert codec.decode(message, version, wrapped) == written
    read, end = codec.read_from(message, version, b"before" + encoded + b"behind", len(b"before"))
    assert (read, end) == (written, len(b"before") + len(encoded))
    assert codec.encode(read, version) == encoded
    assert codec.read_from(message, version, encoded, 0, AMPLE) == (written, len(encoded))


def test_not_a_number_survives_too() -> None:
    """NaN differs from itself, so the property above leaves it out."""
    from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasResponse, EntryData, ValueData

    entry = EntryData(entity=(), values=(ValueData(key="k", value=math.nan),))
    response = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, entries=(entry,)
    )
    read = codec.decode(DescribeClientQuotasResponse, 1, codec.encode(response, 1))
    assert read.entries is not None
    assert math.isnan(read.entries[0].values[0].value)
