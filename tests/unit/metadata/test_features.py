"""Feature levels rise when every node supports them, and fall only on request."""

import pytest

from penstock.metadata.cluster_commands import FeatureUpdate, UpdateFeatures
from penstock.metadata.records import BrokerFeature
from penstock.metadata.view import ELR_FEATURE
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld

MORE = (
    BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1),
    BrokerFeature(name="group.version", min_supported_version=0, max_supported_version=1),
)


def test_up_and_down() -> None:
    world = ClusterWorld(brokers=())
    world.register(1, features=MORE)
    assert world.ask(UpdateFeatures((FeatureUpdate("group.version", 1),), validate_only=True)).code is ErrorCode.NONE
    assert "group.version" not in world.image.features
    assert world.ask(UpdateFeatures((FeatureUpdate("group.version", 1),))).code is ErrorCode.NONE
    assert world.image.features["group.version"] == 1
    lower = FeatureUpdate("group.version", 0)
    assert world.ask(UpdateFeatures((lower,))).code is ErrorCode.INVALID_UPDATE_VERSION
    assert world.ask(UpdateFeatures((lower._replace(allows_downgrade=True),))).code is ErrorCode.NONE
    assert "group.version" not in world.image.features


@pytest.mark.parametrize(
    "update", [FeatureUpdate("group.version", 2), FeatureUpdate("group.version", -1), FeatureUpdate("new.version", 1)]
)
def test_one_that_cannot_be_refuses_all(update: FeatureUpdate) -> None:
    world = ClusterWorld(brokers=())
    world.register(1, features=MORE)
    fine = FeatureUpdate("group.version", 1)
    updates = (update,) if update.name == fine.name else (fine, update)
    assert world.ask(UpdateFeatures(updates)).code is ErrorCode.INVALID_UPDATE_VERSION
    assert "group.version" not in world.image.features


def test_a_node_that_cannot_follow_is_named() -> None:
    world = ClusterWorld()
    refused = world.ask(UpdateFeatures((FeatureUpdate("group.version", 1),)))
    assert refused.message is not None
    assert "Broker 1 supports none" in refused.message
    assert world.ask(UpdateFeatures((FeatureUpdate("a", 1),) * 2)).code is ErrorCode.INVALID_REQUEST
