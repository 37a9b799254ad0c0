"""ApiVersions: what this node speaks.

Serves    ApiVersions 0–4.
Answers   UNSUPPORTED_VERSION with the list, in the form of version 0, to a version that is not known here (KIP-511);
          INVALID_REQUEST to a client software name or version that is not one.
Departs   nowhere from Kafka 4.3. Produce is advertised from version 0 though served from 3: librdkafka would stop
          compressing without a word (KAFKA-18659).
"""

import re

from penstock.model.errors import ErrorCode
from penstock.server.serving import Call, serves
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
"""Older clients take a feature that begins at level 0 for a mistake (KAFKA-17011)."""
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@serves(ApiVersionsRequest)
async def api_versions(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    """Tells what is served, and notes which software asks."""
    if call.version not in ApiVersionsRequest.VERSIONS:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served(call))
    if call.version >= FIRST_WITH_SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
        call.client.software_name, call.client.software_version = name, version
    features = call.node.settings.features
    least = 0 if call.version >= FIRST_WITH_LEVEL_0 else 1
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_served(call),
        supported_features=[
            SupportedFeatureKey(name=f.name, min_version=max(least, f.min_version), max_version=f.max_version)
            for f in features
        ],
        finalized_features_epoch=max(0, call.node.controller.position - 1) if features else -1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in (call.node.controller.image.features.items() if features else ())
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
