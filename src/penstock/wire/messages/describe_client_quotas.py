"""DescribeClientQuotas (key 48): the quotas that match a filter."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Float64, Int8, Int32


class ComponentData(Struct):
    entity_type: str
    match_type: Int8
    match: str | None


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    components: Sequence[ComponentData]
    strict: bool


class EntityData(Struct):
    entity_type: str
    entity_name: str | None


class ValueData(Struct):
    key: str
    value: Float64


class EntryData(Struct):
    entity: Sequence[EntityData]
    values: Sequence[ValueData]


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
    entries: Sequence[EntryData] | None
