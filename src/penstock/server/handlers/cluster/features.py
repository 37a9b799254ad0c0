"""UpdateFeatures: raises or lowers the levels of cluster features.

Serves    UpdateFeatures 0–2.
Answers   once the change is committed; error codes and messages are the controller's. All updates are made, or none.
Departs   from Kafka 4.3: more than 1,000 updates in one request (UPDATES_MAX) are INVALID_REQUEST.
"""

from typing import Final

from penstock.metadata.cluster_commands import FeatureUpdate, Result, UpdateFeatures
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE = 1
FIRST_WITH_TYPE = 1
LAST_WITH_RESULTS = 1
UPDATES_MAX: Final = 1_000


class FeaturesHandler:
    """Has the controller change the levels of features."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    @serves(UpdateFeaturesRequest, is_for_controller=True)
    async def update_features(self, request: UpdateFeaturesRequest, call: Call) -> UpdateFeaturesResponse:
        """Changes feature levels."""
        if len(request.feature_updates) > UPDATES_MAX:
            message = f"{len(request.feature_updates)} updates in one request, at most {UPDATES_MAX} are allowed."
            return UpdateFeaturesResponse(
                throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, error_message=message, results=()
            )
        has_type = call.version >= FIRST_WITH_TYPE
        updates = tuple(
            FeatureUpdate(
                each.feature,
                each.max_version_level,
                each.upgrade_type != UPGRADE if has_type else each.allow_downgrade,
            )
            for each in request.feature_updates
        )
        try:
            result = await self._controller.ask(UpdateFeatures(updates, request.validate_only))
        except ProtocolError as error:
            result = Result(error.code, str(error))
        has_results = call.version <= LAST_WITH_RESULTS and result.code is ErrorCode.NONE
        return UpdateFeaturesResponse(
            throttle_time_ms=0,
            error_code=result.code,
            error_message=result.message,
            results=[
                UpdatableFeatureResult(feature=each.name, error_code=ErrorCode.NONE, error_message=None)
                for each in (updates if has_results else ())
            ],
        )
