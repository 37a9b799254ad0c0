"""ApiVersions: the request versions that this node serves, and its features.

Serves    ApiVersions 0–4.
Answers   UNSUPPORTED_VERSION with the list of versions, encoded as version 0, to an unknown version (KIP-511);
          INVALID_REQUEST to a malformed client software name or version.
Departs   nowhere from Kafka 4.3. Produce is advertised from version 0 though served from 3, because librdkafka would
          otherwise silently stop compressing (KAFKA-18659).
"""

import re
from collections.abc import Sequence
from typing import Protocol

from penstock.metadata.image import Image
from penstock.model.errors import ErrorCode
from penstock.server.connections.serving import Call, serves
from penstock.server.settings import Feature
from penstock.wire.api import Api
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

ADVERTISED_FROM = {Api.PRODUCE: 0}
FIRST_WITH_SOFTWARE = 3
FIRST_WITH_LEVEL_0 = 4
"""Older clients reject a feature whose minimum level is 0 (KAFKA-17011)."""
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Finalized(Protocol):
    """Source of the finalized feature levels: the controller of this node."""

    @property
    def position(self) -> int:
        """Everything before this offset of the metadata log is in `image`."""

    @property
    def image(self) -> Image:
        """The cluster's image, with its features."""


class ApiVersionsHandler:
    """Reports the APIs that the client's listener serves, and the features of this node and its cluster."""

    def __init__(self, features: Sequence[Feature], finalized: Finalized) -> None:
        """`features` are those that this node supports."""
        self._features = features
        self._finalized = finalized

    @serves(ApiVersionsRequest)
    async def api_versions(self, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
        """Reports the APIs served, and records the client's software."""
        if call.version not in ApiVersionsRequest.VERSIONS:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served(call))
        if call.version >= FIRST_WITH_SOFTWARE:
            name, version = request.client_software_name, request.client_software_version
            if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
            call.client.software_name, call.client.software_version = name, version
        features = self._features
        least = 0 if call.version >= FIRST_WITH_LEVEL_0 else 1
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=_served(call),
            supported_features=[
                SupportedFeatureKey(name=f.name, min_version=max(least, f.min_version), max_version=f.max_version)
                for f in features
            ],
            finalized_features_epoch=max(0, self._finalized.position - 1) if features else -1,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in (self._finalized.image.features.items() if features else ())
            ],
        )


def _served(call: Call) -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=route.api,
            min_version=ADVERTISED_FROM.get(route.api, route.first),
            max_version=route.last,
        )
        for route in call.client.routes.values()
    ]
