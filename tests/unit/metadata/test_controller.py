"""Cases that a single Kafka node cannot show; the rest is compared with a running Kafka in tests/compatibility."""

import pytest

from harness.metadata_world import NOW_MS, ControllerWorld
from penstock.metadata.commands import (
    AllocateProducerIds,
    ConfigChanges,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    Operation,
    ProducerIds,
    TopicRef,
)
from penstock.metadata.image import BROKER, TOPIC
from penstock.metadata.records import ConfigRecord, PartitionRecord, ProducerIdsRecord, TopicRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import Source
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command

INT64_MAX = 2**63 - 1


def test_a_topic_is_recorded_before_its_settings_and_partitions() -> None:
    world = ControllerWorld()
    command = CreateTopics((NewTopic("orders", 2, configs=(("retention.ms", "5"),)),))
    decision = world.controller.decide(command, NOW_MS)
    assert [type(record) for record in decision.records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    partition = decision.records[-1]
    assert isinstance(partition, PartitionRecord)
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
    assert partition.directories == (b"d" * 15 + b"\x01",)


def test_deciding_changes_nothing() -> None:
    world = ControllerWorld()
    before = world.controller.image
    world.controller.decide(CreateTopics((NewTopic("orders"),)), NOW_MS)
    assert world.controller.image is before
    assert world.ask(CreateTopics((NewTopic("orders"),), validate_only=True))[0].code is ErrorCode.NONE
    assert world.controller.image is before


def test_defaults_are_the_brokers() -> None:
    world = ControllerWorld(BrokerSettings({"num.partitions": "3", "default.replication.factor": "2"}), brokers=(1, 2))
    (made,) = world.ask(CreateTopics((NewTopic("orders"),)))
    assert (made.partitions, made.replication_factor) == (3, 2)


def test_dynamic_settings_of_brokers_reach_new_topics() -> None:
    world = ControllerWorld(BrokerSettings({"log.retention.hours": "2"}))

    def retention() -> tuple[str | None, Source]:
        (made,) = world.ask(CreateTopics((NewTopic("orders"),), validate_only=True))
        (row,) = (row for row in made.configs if row.name == "retention.ms")
        return row.value, row.source

    assert retention() == ("7200000", Source.STATIC_BROKER)
    for name, value, source in (("", "5", Source.DYNAMIC_DEFAULT_BROKER), ("1", "6", Source.DYNAMIC_BROKER)):
        change = ConfigChanges(BROKER, name, (("log.retention.ms", Operation.SET, value),))
        world.ask(IncrementalAlterConfigs((change,), asked_at=1))
        assert retention() == (value, source)


def test_topic_ids_are_never_reserved_nor_taken_nor_awkward() -> None:
    class Rigged:
        def __init__(self, tokens: list[bytes]) -> None:
            self.tokens = tokens

        def token(self, size_bytes: int) -> bytes:
            return self.tokens.pop(0)

        def below(self, end: int) -> int:
            return 0

    world = ControllerWorld()
    (made,) = world.ask(CreateTopics((NewTopic("first"),)))
    tokens = [bytes(16), bytes(15) + b"\x01", bytes(15) + b"\x63", b"\xf8" + bytes(15), made.topic_id, b"good" * 4]
    world.controller._entropy = Rigged(tokens)
    (second,) = world.ask(CreateTopics((NewTopic("second"),)))
    assert second.topic_id == b"good" * 4


def test_deletion_may_be_switched_off() -> None:
    world = ControllerWorld(BrokerSettings({"delete.topic.enable": "false"}))
    world.ask(CreateTopics((NewTopic("orders"),)))
    (kept,) = world.ask(DeleteTopics((TopicRef("orders"),)))
    assert kept.code is ErrorCode.TOPIC_DELETION_DISABLED
    assert "orders" in world.controller.image.topics


def test_growing_too_much_at_once_is_refused_whole() -> None:
    """Kafka answers with an unknown error here, and creates the partitions that still fit."""
    world = ControllerWorld()
    world.ask(CreateTopics((NewTopic("a"), NewTopic("b"))))
    grown = world.ask(CreatePartitions((MorePartitions("a", 6001), MorePartitions("b", 6001))))
    assert [result.code for result in grown] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert len(world.controller.image.topics["a"].partitions) == 6001
    assert len(world.controller.image.topics["b"].partitions) == 1
    assert world.controller.image.partition_count == 6002


def test_an_unknown_operation_is_refused() -> None:
    world = ControllerWorld()
    world.ask(CreateTopics((NewTopic("orders"),)))
    change = ConfigChanges(TOPIC, "orders", (("retention.ms", 9, "5"),))
    (refused,) = world.ask(IncrementalAlterConfigs((change,), asked_at=1))
    assert (refused.code, refused.message) == (ErrorCode.INVALID_REQUEST, "Unknown operations type 9")


def test_a_setting_that_is_nearly_right_is_told_the_right_name() -> None:
    (refused,) = ControllerWorld().ask(CreateTopics((NewTopic("orders", configs=(("retention.mss", "5"),)),)))
    assert refused.message == "Unknown topic config name: retention.mss; did you mean retention.ms?"


def test_a_broker_that_asks_again_is_told_its_epoch_again() -> None:
    world = ControllerWorld(brokers=())
    first = world.register(1)
    world.register(2)
    assert world.register(1) == first
    assert len(world.log) == 2
    assert world.controller.image.brokers[2].epoch > first.epoch


def test_blocks_of_producer_ids_never_overlap() -> None:
    world = ControllerWorld(brokers=(1, 2))
    epochs = {number: broker.epoch for number, broker in world.controller.image.brokers.items()}
    blocks = [world.ask(AllocateProducerIds(number, epochs[number])) for number in (1, 2, 1)]
    assert blocks == [ProducerIds(0, 1000), ProducerIds(1000, 1000), ProducerIds(2000, 1000)]


def test_producer_ids_are_for_brokers_that_are_who_they_say() -> None:
    world = ControllerWorld()
    for broker_id, epoch in ((2, 0), (1, 99)):
        refused = world.ask(AllocateProducerIds(broker_id, epoch))
        assert refused.code is ErrorCode.STALE_BROKER_EPOCH
    epoch = world.controller.image.brokers[1].epoch
    world.write(ProducerIdsRecord(broker_id=1, broker_epoch=epoch, next_producer_id=INT64_MAX - 999))
    assert world.ask(AllocateProducerIds(1, epoch)).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_stranger_among_the_commands() -> None:
    with pytest.raises(TypeError):
        ControllerWorld().ask(Command[None]())
