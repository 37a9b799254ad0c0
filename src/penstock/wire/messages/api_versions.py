"""ApiVersions (key 18): the APIs and versions that a broker serves, and the finalized features."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, tagged
from penstock.wire.types import Int16, Int32, Int64


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    client_software_name: str = since(3, default="", ignorable=True)
    client_software_version: str = since(3, default="", ignorable=True)


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: str
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: str
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    error_code: ErrorCode
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: Sequence[SupportedFeatureKey] = tagged(0, since=3, default=(), ignorable=True)
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1, ignorable=True)
    finalized_features: Sequence[FinalizedFeatureKey] = tagged(2, since=3, default=(), ignorable=True)
    zk_migration_ready: bool = tagged(3, since=3, default=False, ignorable=True)
