"""Our controller against a running Kafka: the same commands in the same order get the same codes and messages."""

from collections.abc import Sequence

import pytest

from harness.kafka.kafka_node import KafkaNode
from harness.metadata_world import ControllerWorld
from harness.raw_client import RawClient
from penstock.metadata.changes import changes_between
from penstock.metadata.commands import (
    ZERO_ID,
    AlterConfigs,
    AlteredConfigs,
    ConfigChanges,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewConfigs,
    NewTopic,
    TopicRef,
)
from penstock.metadata.settings.layers import BrokerSettings
from penstock.wire.messages import alter_configs as legacy
from penstock.wire.messages import create_partitions as growing
from penstock.wire.messages import create_topics as creating
from penstock.wire.messages import delete_topics as deleting
from penstock.wire.messages import incremental_alter_configs as incremental

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

NODE = 1
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OURS = ("durability", "record.validation")

Answer = tuple[object, ...]


class Both:
    """Sends a command to both sides, and compares the results."""

    def __init__(self, client: RawClient, world: ControllerWorld) -> None:
        self.client = client
        self.world = world
        self.their_ids: dict[bytes, bytes] = {}
        """Ids from CreateTopics responses: metadata may show them a moment later."""

    def create(self, *topics: NewTopic, validate_only: bool = False) -> None:
        request = creating.CreateTopicsRequest(
            topics=[
                creating.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[
                        creating.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                        for index, brokers in topic.assignments
                    ],
                    configs=[creating.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
                )
                for topic in topics
            ],
            validate_only=validate_only,
        )
        theirs = self.client.ask(request, creating.CreateTopicsResponse).topics
        self.their_ids.update((t.name.encode(), t.topic_id) for t in theirs if not validate_only)
        ours = self.world.ask(CreateTopics(topics, validate_only))
        assert [(t.name, t.code, said(t.message), t.partitions, t.replication_factor, configs_of(t)) for t in ours] == [
            (
                t.name,
                t.error_code,
                t.error_message,
                t.num_partitions,
                t.replication_factor,
                sorted((c.name, c.value, c.config_source, c.is_sensitive, c.read_only) for c in t.configs or ()),
            )
            for t in theirs
        ]

    def grow(self, *topics: MorePartitions, validate_only: bool = False) -> None:
        request = growing.CreatePartitionsRequest(
            topics=[
                growing.CreatePartitionsTopic(
                    name=topic.name,
                    count=topic.count,
                    assignments=None
                    if topic.assignments is None
                    else [growing.CreatePartitionsAssignment(broker_ids=brokers) for brokers in topic.assignments],
                )
                for topic in topics
            ],
            timeout_ms=5000,
            validate_only=validate_only,
        )
        theirs = self.client.ask(request, growing.CreatePartitionsResponse).results
        ours = self.world.ask(CreatePartitions(topics, validate_only))
        assert sorted((t.name, t.code, str(t.message)) for t in ours) == sorted(
            (t.name, t.error_code, str(t.error_message)) for t in theirs
        )

    def delete(self, *topics: TopicRef) -> None:
        """Ids are random on both sides: a topic is given by name, and each side uses its own id."""
        request = deleting.DeleteTopicsRequest(
            topics=[deleting.DeleteTopicState(name=t.name, topic_id=self._their_id(t.topic_id)) for t in topics],
            timeout_ms=5000,
        )
        own = tuple(TopicRef(t.name, self._our_id(t.topic_id)) for t in topics)
        theirs = self.client.ask(request, deleting.DeleteTopicsResponse).responses
        ours = self.world.ask(DeleteTopics(own))
        shown = sorted((str(t.name), t.topic_id == ZERO_ID, t.code, str(t.message)) for t in ours)
        assert shown == sorted((str(t.name), t.topic_id == ZERO_ID, t.error_code, str(t.error_message)) for t in theirs)

    def _their_id(self, name: bytes) -> bytes:
        return name if name in (ZERO_ID, UNKNOWN) else self.their_ids[name]

    def _our_id(self, name: bytes) -> bytes:
        return name if name in (ZERO_ID, UNKNOWN) else self.world.controller.image.topics[name.decode()].topic_id

    def change(self, *resources: ConfigChanges, validate_only: bool = False) -> None:
        request = incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type=resource.kind,
                    resource_name=resource.name,
                    configs=[
                        incremental.AlterableConfig(name=name, config_operation=operation, value=value)
                        for name, operation, value in resource.changes
                    ],
                )
                for resource in resources
            ],
            validate_only=validate_only,
        )
        theirs = self.client.ask(request, incremental.IncrementalAlterConfigsResponse).responses
        ours = self.world.ask(IncrementalAlterConfigs(resources, NODE, validate_only))
        assert altered(ours) == [(t.resource_type, t.resource_name, t.error_code, t.error_message) for t in theirs]

    def replace(self, *resources: NewConfigs, validate_only: bool = False) -> None:
        request = legacy.AlterConfigsRequest(
            resources=[
                legacy.AlterConfigsResource(
                    resource_type=resource.kind,
                    resource_name=resource.name,
                    configs=[legacy.AlterableConfig(name=name, value=value) for name, value in resource.configs],
                )
                for resource in resources
            ],
            validate_only=validate_only,
        )
        theirs = self.client.ask(request, legacy.AlterConfigsResponse).responses
        ours = self.world.ask(AlterConfigs(resources, NODE, validate_only))
        assert altered(ours) == [(t.resource_type, t.resource_name, t.error_code, t.error_message) for t in theirs]


UNKNOWN = b"nobody's own id."


def said(message: str | None) -> str | None:
    return None if message is None else message.partition("; did you mean")[0]


def altered(results: tuple[AlteredConfigs, ...]) -> list[Answer]:
    return [(r.kind, r.name, r.code, said(r.message)) for r in results]


def configs_of(topic: CreatedTopic) -> list[Answer]:
    return sorted((c.name, c.value, c.source, c.is_sensitive, c.read_only) for c in topic.configs if c.name not in OURS)


@pytest.fixture
def both(kafka: KafkaNode, kafka_client: RawClient) -> Both:
    world = ControllerWorld(BrokerSettings(dict(kafka.properties)), brokers=(NODE,))
    # Kafka keeps this one for the whole cluster, as long as it keeps eligible leader replicas (KIP-966).
    world.ask(IncrementalAlterConfigs((ConfigChanges(BROKER, "", (("min.insync.replicas", SET, "1"),)),), NODE))
    return Both(kafka_client, world)


def topic(name: str, *configs: tuple[str, str | None]) -> NewTopic:
    return NewTopic(name, configs=configs)


def test_names(both: Both) -> None:
    both.create(topic("ctl.names"))
    for name in ("ctl.names", "ctl_names", "", ".", "..", "x" * 249 + "y", "a b", "ä", "a/b", "__cluster_metadata"):
        both.create(topic(name))
    both.create(topic("ctl-twice"), topic("ctl-once"), topic("ctl-twice"), topic("ctl-twice"))
    both.create(topic("ctl.same"), topic("ctl_same"), topic("ctl_names"))
    both.create(topic("ctl_same"), topic("__cluster_metadata"), topic("..."))
    both.delete(TopicRef("ctl.same"))
    both.create(NewTopic("ctl_names"), NewTopic("ctl.names", partitions=0))


@pytest.mark.parametrize(
    "numbers",
    [(-1, -1), (3, 1), (0, 1), (-2, 1), (1, 0), (1, -2), (0, 0), (1, 2), (10_000, 1), (10_001, 1), (9_999, 1)],
)
def test_numbers(both: Both, numbers: tuple[int, int]) -> None:
    both.create(NewTopic("ctl-numbers", *numbers), validate_only=True)


def test_numbers_in_sum(both: Both) -> None:
    for counts in ((6000, 6000), (9000, 1000), (5000, 4990), (9000, 1000, 1)):
        topics = [NewTopic(f"ctl-sum-{index}", count) for index, count in enumerate(counts)]
        both.create(*topics, validate_only=True)
    both.create(NewTopic("ctl-sum-a", 9000), NewTopic("ctl-sum-b", 9000), NewTopic("ctl-sum-b"), validate_only=True)


@pytest.mark.parametrize(
    "assignments",
    [
        ((0, (1,)),),
        ((1, (1,)), (0, (1,))),
        ((0, (7,)),),
        ((0, (1, 1)),),
        ((0, ()),),
        ((0, (1,)), (0, (1,))),
        ((1, (1,)),),
        ((0, (1,)), (2, (1,))),
        ((0, (1,)), (1, (1, 2))),
        ((-1, (1,)),),
    ],
)
def test_assignments(both: Both, assignments: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
    both.create(NewTopic("ctl-assigned", assignments=assignments), validate_only=True)
    both.create(NewTopic("ctl-assigned", 1, 1, assignments), validate_only=True)
    both.create(NewTopic("ctl-assigned", 1, -1, assignments), validate_only=True)


@pytest.mark.parametrize(
    "configs",
    [
        (("retention.ms", " 5 "), ("cleanup.policy", "compact")),
        (("retention.ms", None), ("retention.bytes", None), ("bogus", "1")),
        (("bogus", "1"),),
        (("retention.mss", "1"),),
        (("retention.ms", "x"),),
        (("retention.ms", "x"), ("bogus", "5")),
        (("retention.ms", "10"), ("retention.ms", "5")),
        (("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")),
        (("remote.storage.enable", "true"),),
        (("internal.segment.bytes", "100"),),
    ],
)
def test_settings_of_new_topics(both: Both, configs: tuple[tuple[str, str | None], ...]) -> None:
    both.create(topic("ctl-configs", *configs), validate_only=True)
    both.create(NewTopic("ctl-configs", 0, configs=configs), validate_only=True)


def test_partitions(both: Both) -> None:
    both.create(topic("ctl-grow"))

    def grow(count: int, assignments: Sequence[tuple[int, ...]] | None = None, name: str = "ctl-grow") -> None:
        given = None if assignments is None else tuple(assignments)
        both.grow(MorePartitions(name, count, given), validate_only=True)

    grow(2, name="ctl-nobody")
    for count in (-1, 0, 1, 2, 10_000):
        grow(count)
    grow(3, [(1,)])
    grow(3, [(1,), (1,)])
    grow(2, [])
    grow(2, [(1,), (1,)])
    for brokers in ((7,), (), (1, 1), (1, 7)):
        grow(2, [brokers])
    both.grow(MorePartitions("ctl-grow", 2), MorePartitions("ctl-grow", 3), MorePartitions("ctl-nobody", 3))
    both.grow(MorePartitions("ctl-grow", 3, ((1,), (1,))))
    for count in (2, 3, 4):
        grow(count)


def test_deletion(both: Both) -> None:
    both.create(topic("ctl-a"), topic("ctl-b"), topic("ctl-c"))
    a, a_id, b = TopicRef("ctl-a"), TopicRef(None, b"ctl-a"), TopicRef("ctl-b")
    both.delete(TopicRef("ctl-nobody"))
    both.delete(TopicRef(None), TopicRef(None))
    both.delete(TopicRef(None, UNKNOWN))
    both.delete(TopicRef("ctl-a", b"ctl-a"))
    both.delete(a, a)
    both.delete(a_id, a_id)
    both.delete(a, a_id)
    both.delete(a, a_id, a_id)
    both.delete(b, TopicRef("ctl-nobody"), TopicRef(""), TopicRef("__cluster_metadata"))
    both.delete(b)
    both.delete(a, a, a_id)
    both.delete(TopicRef("ctl-c"))


def test_changed_settings(both: Both) -> None:
    both.create(topic("ctl-change"))

    def change(*changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "ctl-change") -> None:
        both.change(ConfigChanges(kind, name, changes))

    for name in ("ctl-nobody", "", "a b"):
        change(("retention.ms", SET, "5"), name=name)
        change(("bogus", SET, "5"), name=name)
    change(("retention.ms", SET, "5"))
    change(("bogus", SET, "5"))
    change(("bogus", DELETE, None))
    change(("retention.ms", APPEND, "5"))
    change(("retention.ms", SUBTRACT, "5"))
    change(("bogus", SUBTRACT, "5"))
    change(("cleanup.policy", APPEND, "compact"))
    change(("cleanup.policy", APPEND, "compact,delete,x"))
    change(("cleanup.policy", SUBTRACT, "delete,x"))
    change(("cleanup.policy", SUBTRACT, "compact"))
    change(("retention.ms", SET, None), ("segment.ms", SET, None))
    change(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    change(("retention.ms", SET, "1"), ("segment.ms", SET, "x"))
    change(("retention.ms", DELETE, None), ("segment.ms", DELETE, "x"))
    change(("min.compaction.lag.ms", SET, "10"))
    change(("max.compaction.lag.ms", SET, "5"))
    same = ConfigChanges(TOPIC, "ctl-change", (("retention.ms", SET, "1"),))
    both.change(same, same, ConfigChanges(TOPIC, "ctl-nobody", ()))
    for kind in (0, 1, 3, 64):
        change(kind=kind)
        change(("a", SET, "b"), kind=kind)
        change(("a", SET, None), kind=kind)
    for text in ("consumer.session.timeout.ms", "bogus"):
        for group in ("ctl-group", ""):
            change((text, SET, "1"), kind=GROUP, name=group)


def test_changed_settings_of_brokers(both: Both) -> None:
    def change(name: str, *changes: tuple[str, int, str | None]) -> None:
        both.change(ConfigChanges(BROKER, name, changes), validate_only=True)

    for name in ("9", "x", "-1", "01", "1", ""):
        change(name, ("log.retention.ms", SET, "5"))
    change("1", ("node.id", SET, "6"))
    change("1", ("log.retention.hours", SET, "6"))
    change("", ("listeners", SET, "PLAINTEXT://:1"))
    change("1", ("num.io.threads", SET, "x"))
    change("1", ("num.io.threads", SET, "0"))
    change("", ("log.segment.bytes", SET, "200"))
    change("", ("log.cleanup.policy", APPEND, "compact"))
    change("", ("log.cleanup.policy", SUBTRACT, "delete"))
    change("", ("log.retention.ms", APPEND, "5"))
    change("", ("log.retention.ms", SUBTRACT, "5"))
    change("1", ("log.cleanup.policy", SET, "x"))
    change("1", ("ssl.keystore.password", SET, "x"))
    change("1", ("bogus", SET, "x"))
    change("1", ("log.retention.ms", SET, None))
    change("1", ("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "1"))


def test_replaced_settings(both: Both) -> None:
    both.create(topic("ctl-replace", ("retention.ms", "5"), ("segment.ms", "7")))

    def replace(*configs: tuple[str, str | None], kind: int = TOPIC, name: str = "ctl-replace") -> None:
        both.replace(NewConfigs(kind, name, configs))

    before = both.world.controller.image
    replace(("retention.ms", "7"))
    assert both.world.controller.image.config(TOPIC, "ctl-replace") == {"retention.ms": "7"}
    assert changes_between(before, both.world.controller.image).topics_with_new_settings == ("ctl-replace",)
    replace(("bogus", "7"))
    replace(("retention.ms", None))
    replace(("a", "1"), ("a", "2"))
    replace(("a", "1"), kind=3)
    replace(("node.id", "6"), kind=BROKER, name="1")
    replace(("bogus", "6"), kind=GROUP, name="ctl-group")
    replace(name="ctl-nobody")
    replace()
    assert not both.world.controller.image.config(TOPIC, "ctl-replace")
