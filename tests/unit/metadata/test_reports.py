"""Log lines of the controller: a few, whatever the number of partitions."""

from penstock.metadata.changes import changes_between
from penstock.metadata.draft import applied
from penstock.metadata.image import BROKER, TOPIC, Image
from penstock.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from penstock.metadata.reports import reports_of
from penstock.model.report import NAMED_MAX

ORDERS = b"o" * 16


def told(before: Image, *records: object) -> tuple[Image, list[str]]:
    after = applied(before, records)  # type: ignore[arg-type]
    return after, [str(report) for report in reports_of(changes_between(before, after), before, after)]


def broker(number: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=number,
        broker_epoch=epoch,
        incarnation_id=bytes(16),
        end_points=(),
        features=(),
        rack=None,
        fenced=True,
        log_dirs=(),
    )


def partition(index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=ORDERS,
        replicas=(1, 2),
        isr=(1, 2),
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(),
    )


def test_the_life_of_a_broker() -> None:
    image, lines = told(Image(), broker(1, 5))
    assert [line.partition(":")[0] for line in lines] == ["broker-registered"]
    image, lines = told(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    assert lines == ["broker-unfenced: Broker 1 takes part from now on, in epoch 5."]
    image, lines = told(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1))
    assert lines[0].startswith("broker-fenced: Broker 1 is fenced, in epoch 5: it was not heard")
    _, lines = told(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert lines == ["broker-unregistered: Broker 1 is registered no longer."]


def test_leaders_and_replicas_in_sync_of_many_partitions_are_a_line_each() -> None:
    image, lines = told(Image(), TopicRecord(name="orders", topic_id=ORDERS), *map(partition, range(20)))
    assert lines == ["topics-created: Topics created: orders (20 partitions, 2 replicas each)."]
    changes = [PartitionChangeRecord(partition_id=index, topic_id=ORDERS, isr=(2,), leader=2) for index in range(20)]
    image, lines = told(image, *changes)
    leaders, in_sync = lines
    assert leaders.startswith(
        "leaders-changed: Partitions with another leader: orders-0: broker 2 in epoch 1, before broker 1;"
    )
    assert in_sync.startswith("isr-changed: Partitions with other replicas in sync: orders-0: 2, before 1,2;")
    assert leaders.endswith(f"and {20 - NAMED_MAX} more.")
    image, lines = told(image, PartitionChangeRecord(partition_id=3, topic_id=ORDERS, leader=-1))
    assert lines == ["leaders-missing: Partitions without a leader: orders-3."]
    _, lines = told(image, RemoveTopicRecord(topic_id=ORDERS))
    assert lines == ["topics-deleted: Topics deleted: orders."]


def test_settings_are_named_and_their_values_are_not() -> None:
    secret = ConfigRecord(resource_type=BROKER, resource_name="", name="ssl.keystore.password", value="sesame")
    other = ConfigRecord(resource_type=TOPIC, resource_name="orders", name="retention.ms", value="5")
    _, lines = told(Image(), TopicRecord(name="orders", topic_id=ORDERS), partition(0), secret, other)
    assert "settings-changed: Settings of all brokers changed: ssl.keystore.password." in lines
    assert "settings-changed: Settings of topic orders changed: retention.ms." in lines
    assert "sesame" not in "".join(lines)


def test_settings_without_effect_are_a_warning_once_per_topic() -> None:
    policy = ConfigRecord(resource_type=TOPIC, resource_name="users", name="cleanup.policy", value="compact")
    image, lines = told(Image(), TopicRecord(name="users", topic_id=ORDERS), partition(0), policy)
    assert lines[-1] == (
        "settings-without-effect: Settings of topic users have no effect in this version, or not all of it: "
        "cleanup.policy (nothing is compacted yet, and with `compact` alone everything is kept)."
    )
    other = ConfigRecord(resource_type=TOPIC, resource_name="users", name="retention.ms", value="5")
    image, lines = told(image, policy, other)
    assert [line.partition(":")[0] for line in lines] == ["settings-changed"]
    threads = ConfigRecord(resource_type=BROKER, resource_name="", name="log.cleaner.threads", value="2")
    image, lines = told(image, threads)
    assert lines[-1].startswith("settings-without-effect: Settings of all brokers have no effect")
    gone = ConfigRecord(resource_type=TOPIC, resource_name="users", name="cleanup.policy", value=None)
    _, lines = told(image, gone)
    assert [line.partition(":")[0] for line in lines] == ["settings-changed"]


def test_an_internal_topic_has_settings_that_nobody_has_asked_for() -> None:
    name = "__consumer_offsets"
    policy = ConfigRecord(resource_type=TOPIC, resource_name=name, name="cleanup.policy", value="compact")
    _, lines = told(Image(), TopicRecord(name=name, topic_id=ORDERS), partition(0), policy)
    assert [line.partition(":")[0] for line in lines] == ["topics-created", "settings-changed"]
