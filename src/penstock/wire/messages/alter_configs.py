"""AlterConfigs (key 33): replaces all settings of a resource."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int32


class AlterableConfig(Struct):
    name: str
    value: str | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: str
    configs: Sequence[AlterableConfig]


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(Struct):
    error_code: ErrorCode
    error_message: str | None
    resource_type: Int8
    resource_name: str


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    responses: Sequence[AlterConfigsResourceResponse]
