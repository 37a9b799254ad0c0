"""ListConfigResources (key 74): the resources that have settings of their own."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int32


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    resource_types: Sequence[Int8] = since(1, default=())


class ConfigResource(Struct):
    resource_name: str
    resource_type: Int8 = since(1, default=16, ignorable=True)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    config_resources: Sequence[ConfigResource]
