"""Every request that kafbat's UI sends through Kafka's admin client is answered, so that none of its pages breaks."""

import pytest

from harness.kafka.oracle import Oracle
from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient
from tests.compatibility.raw_groups import RawGroups

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("java")]

WANTED = {
    "describeCluster": "1",
    "describeConfigs of a broker": "true",
    "describeLogDirs": "1",
    "describeMetadataQuorum": "1",
    "describeFeatures": "true",
    "createTopics": "done",
    "listTopics": "true",
    "createPartitions": "done",
    "describeTopics": "2",
    "incrementalAlterConfigs": "done",
    "describeConfigs of a topic": "123456789",
    "listOffsets EarliestSpec": "0",
    "listOffsets LatestSpec": "0",
    "listOffsets MaxTimestampSpec": "-1",
    "describeProducers": "0",
    "deleteRecords": "done",
    "alterPartitionReassignments": "done",
    "listPartitionReassignments": "0",
    "listGroups": "true",
    "listGroups of consumers": "true",
    "describeConsumerGroups": "Empty",
    "listConsumerGroupOffsets": "2",
    "alterConsumerGroupOffsets": "done",
    "deleteConsumerGroupOffsets": "done",
    "deleteConsumerGroups": "done",
    "describeAcls": "SecurityDisabledException",
    "createAcls": "SecurityDisabledException",
    "deleteAcls": "SecurityDisabledException",
    "deleteTopics": "done",
}
LATER = {"alterReplicaLogDirs", "describeClientQuotas", "alterClientQuotas"}
"""Not served yet, and not advertised: the client reports this without a request."""


def test_every_call_is_answered(oracle: Oracle, penstock: PenstockNode, penstock_client: RawClient) -> None:
    penstock_client.create_topic("read", 2)
    RawGroups(penstock_client).commit("reading", "read", {0: 0, 1: 0})
    settings = {"bootstrap.servers": penstock.bootstrap}
    said = oracle.ask("ask_like_kafbat", settings=settings, topic="new", group="reading")
    assert said == WANTED | dict.fromkeys(LATER, "UnsupportedVersionException")
