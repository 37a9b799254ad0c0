"""UpdateFeatures (key 57): raises or lowers finalized feature levels."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, until
from penstock.wire.types import Int8, Int16, Int32


class FeatureUpdateKey(Struct):
    feature: str
    max_version_level: Int16
    allow_downgrade: bool = until(0, default=False)
    upgrade_type: Int8 = since(1, default=1)


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = 60000
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: bool = since(1, default=False)


class UpdatableFeatureResult(Struct):
    feature: str
    error_code: ErrorCode
    error_message: str | None


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
    results: Sequence[UpdatableFeatureResult] = until(1, default=(), ignorable=True)
