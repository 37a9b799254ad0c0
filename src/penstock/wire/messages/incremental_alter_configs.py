"""IncrementalAlterConfigs (key 44): sets, removes, extends or shortens single settings."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int32


class AlterableConfig(Struct):
    name: str
    config_operation: Int8
    value: str | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: str
    configs: Sequence[AlterableConfig]


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(Struct):
    error_code: ErrorCode
    error_message: str | None
    resource_type: Int8
    resource_name: str


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    responses: Sequence[AlterConfigsResourceResponse]
