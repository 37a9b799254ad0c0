"""Controller decisions on features and on controllers: UpdateFeatures, ControllerRegistration.

Answers   codes are Kafka 4.3's. A level is raised only if every registered broker and controller supports it, and
          lowered only if the request allows a downgrade. An error in one update refuses all of them.
"""

from collections.abc import Iterable

from penstock.metadata.cluster_commands import FeatureUpdate, RegisterController, Result, UpdateFeatures
from penstock.metadata.commands import Refusal
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Image
from penstock.metadata.records import (
    BrokerFeature,
    ControllerFeature,
    FeatureLevelRecord,
    RegisterControllerRecord,
)
from penstock.metadata.view import View, repeated
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer


def update_features(command: UpdateFeatures, view: View) -> Decision[MetadataRecord, Result]:
    """Sets feature levels, all of them or none."""
    records: list[MetadataRecord] = []
    counts = repeated(update.name for update in command.updates)
    try:
        for update in command.updates:
            if counts[update.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"Feature {update.name} appears more than once.")
            records += _update(update, view.image)
    except Refusal as refusal:
        return answer((), Result(refusal.code, refusal.message))
    return answer(() if command.validate_only else tuple(records), Result())


def _update(update: FeatureUpdate, image: Image) -> list[MetadataRecord]:
    current = image.features.get(update.name, 0)
    if update.level < 0:
        message = f"Invalid update version {update.level} for feature {update.name}: it cannot be negative."
        raise Refusal(ErrorCode.INVALID_UPDATE_VERSION, message)
    if update.level == current:
        return []
    if update.level < current and not update.allows_downgrade:
        message = (
            f"Invalid update version {update.level} for feature {update.name}: it is at {current}; to lower it, ask "
            "for a downgrade."
        )
        raise Refusal(ErrorCode.INVALID_UPDATE_VERSION, message)
    _check_supported(update, image)
    return [FeatureLevelRecord(name=update.name, feature_level=update.level)]


def _check_supported(update: FeatureUpdate, image: Image) -> None:
    """Refuses a level that a registered node does not support; nodes without the feature support level 0."""
    nodes: list[tuple[str, Iterable[BrokerFeature | ControllerFeature]]] = [
        *((f"Broker {number}", broker.features) for number, broker in sorted(image.brokers.items())),
        *((f"Controller {number}", node.features) for number, node in sorted(image.controllers.items())),
    ]
    for who, features in nodes:
        found = next((each for each in features if each.name == update.name), None)
        if found is None and update.level == 0:
            continue
        if found is None or not found.min_supported_version <= update.level <= found.max_supported_version:
            knows = "none" if found is None else f"{found.min_supported_version}-{found.max_supported_version}"
            what = f"Invalid update version {update.level} for feature {update.name}"
            message = f"{what}: {who} supports {knows}; upgrade it first."
            raise Refusal(ErrorCode.INVALID_UPDATE_VERSION, message)


def register_controller(command: RegisterController, view: View) -> Decision[MetadataRecord, Result]:
    """Registers the endpoints of a controller; an equal registration changes nothing."""
    record = RegisterControllerRecord(
        controller_id=command.controller_id,
        incarnation_id=command.incarnation_id,
        zk_migration_ready=False,
        end_points=command.end_points,
        features=command.features,
    )
    if view.image.controllers.get(command.controller_id) == record:
        return answer((), Result())
    return answer((record,), Result())
