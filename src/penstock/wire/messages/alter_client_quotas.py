"""AlterClientQuotas (key 49): sets or removes quotas."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Float64, Int32


class EntityData(Struct):
    entity_type: str
    entity_name: str | None


class OpData(Struct):
    key: str
    value: Float64
    remove: bool


class EntryData(Struct):
    entity: Sequence[EntityData]
    ops: Sequence[OpData]


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    entries: Sequence[EntryData]
    validate_only: bool


class AlterClientQuotasResponseEntityData(Struct):
    entity_type: str
    entity_name: str | None


class AlterClientQuotasResponseEntryData(Struct):
    error_code: ErrorCode
    error_message: str | None
    entity: Sequence[AlterClientQuotasResponseEntityData]


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    entries: Sequence[AlterClientQuotasResponseEntryData]
