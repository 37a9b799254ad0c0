"""DescribeConfigs (key 32): settings of topics, brokers and groups, with their origin."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int32


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = since(3, default=False)


class DescribeConfigsSynonym(Struct):
    name: str
    value: str | None
    source: Int8


class DescribeConfigsResourceResult(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsSynonym]
    config_type: Int8 = since(3, default=0, ignorable=True)
    documentation: str | None = since(3, default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: ErrorCode
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32
    results: Sequence[DescribeConfigsResult]
