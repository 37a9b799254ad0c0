import pytest

from penstock.metadata.declare import MetadataRecord
from penstock.metadata.draft import APPLY, InconsistentRecord, applied
from penstock.metadata.frames import RECORD_TYPES
from penstock.metadata.image import BROKER, TOPIC, Image
from penstock.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

ORDERS, BILLS = b"o" * 16, b"b" * 16


def partition(topic_id: bytes, index: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=(1, 2, 3),
        isr=(1, 2, 3),
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        eligible_leader_replicas=(2,),
    )


def config(kind: int, resource: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def broker(epoch: int = 7, *, fenced: bool = True) -> RegisterBrokerRecord:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    return RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=bytes(16),
        broker_epoch=epoch,
        end_points=(endpoint,),
        features=(),
        rack=None,
        fenced=fenced,
        log_dirs=(b"d" * 16,),
    )


def image(*records: MetadataRecord) -> Image:
    return applied(Image(), records)


def orders(*records: MetadataRecord) -> Image:
    return image(TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS), partition(ORDERS, 1), *records)


def test_every_kind_of_record_is_understood() -> None:
    assert set(APPLY) == set(RECORD_TYPES.values())


def test_a_topic_is_found_by_name_and_by_id() -> None:
    found = orders()
    assert found.topics["orders"] is found.topic_by_id(ORDERS)
    assert list(found.topics["orders"].partitions) == [0, 1]
    assert found.partition_count == 2
    assert found.topic_by_id(BILLS) is None


def test_partitions_may_come_in_any_order() -> None:
    found = image(
        TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 2), partition(ORDERS), partition(ORDERS, 1)
    )
    assert list(found.topics["orders"].partitions) == [0, 1, 2]


def test_a_new_leader_begins_a_new_epoch_and_every_change_counts() -> None:
    changed = orders(
        PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=2, isr=(2, 3)),
        PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=(2,)),
        PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=2),
    )
    now = changed.topics["orders"].partitions[0]
    assert (now.leader, now.leader_epoch, now.partition_epoch, now.isr) == (2, 2, 3, (2,))
    assert changed.topics["orders"].partitions[1] == orders().topics["orders"].partitions[1]


def test_the_old_image_stays_as_it_was() -> None:
    before = orders(config(TOPIC, "orders", "retention.ms", "5"))
    copy = orders(config(TOPIC, "orders", "retention.ms", "5"))
    applied(before, [RemoveTopicRecord(topic_id=ORDERS)])
    applied(before, [PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=3)])
    applied(before, [config(TOPIC, "orders", "retention.ms", None)])
    assert before == copy


def test_a_deleted_topic_takes_everything_with_it() -> None:
    assert orders(config(TOPIC, "orders", "retention.ms", "5"), RemoveTopicRecord(topic_id=ORDERS)) == Image()
    one_by_one = applied(orders(config(TOPIC, "orders", "retention.ms", "5")), [RemoveTopicRecord(topic_id=ORDERS)])
    assert one_by_one == Image()


def test_a_name_may_be_taken_again_in_the_same_batch() -> None:
    again = applied(
        orders(),
        [
            config(TOPIC, "orders", "retention.ms", "5"),
            RemoveTopicRecord(topic_id=ORDERS),
            TopicRecord(name="orders", topic_id=BILLS),
            partition(BILLS),
            config(TOPIC, "orders", "segment.ms", "6"),
        ],
    )
    assert again.topics["orders"].topic_id == BILLS
    assert again.topic_by_id(ORDERS) is None
    assert again.config(TOPIC, "orders") == {"segment.ms": "6"}
    assert (len(again.topics), again.partition_count) == (1, 1)


def test_names_that_collide_are_remembered_until_the_last_is_gone() -> None:
    both = image(TopicRecord(name="a.b", topic_id=ORDERS), TopicRecord(name="a_b", topic_id=BILLS))
    assert both.unified_names["a_b"] == ("a.b", "a_b")
    one = applied(both, [RemoveTopicRecord(topic_id=ORDERS)])
    assert one.unified_names["a_b"] == ("a_b",)
    assert "a_b" not in applied(one, [RemoveTopicRecord(topic_id=BILLS)]).unified_names
    assert not len(image(TopicRecord(name="ab", topic_id=ORDERS)).unified_names)


def test_settings_come_and_go() -> None:
    found = image(config(BROKER, "", "a", "1"), config(BROKER, "", "b", "2"), config(BROKER, "", "a", None))
    assert found.config(BROKER, "") == {"b": "2"}
    assert applied(found, [config(BROKER, "", "b", None)]) == Image()
    assert found.config(BROKER, "1") == {}


def test_a_broker_is_fenced_and_unfenced() -> None:
    found = image(broker())
    assert not found.brokers[1].is_active
    up: list[MetadataRecord] = [
        UnfenceBrokerRecord(id=1, epoch=7),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1),
    ]
    for record in up:
        assert applied(found, [record]).brokers[1].is_active
    active = image(broker(fenced=False))
    down: list[MetadataRecord] = [
        FenceBrokerRecord(id=1, epoch=7),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1),
    ]
    for record in down:
        assert not applied(active, [record]).brokers[1].is_active
    kept = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7)
    assert applied(active, [kept]) == active
    assert not applied(active, [UnregisterBrokerRecord(broker_id=1, broker_epoch=7)]).brokers


def test_a_metadata_transaction_counts_when_it_ends() -> None:
    begun = image(BeginTransactionRecord(name="x"), TopicRecord(name="orders", topic_id=ORDERS))
    assert not len(begun.topics)
    later = applied(begun, [partition(ORDERS), partition(ORDERS, 1)])
    assert applied(later, [EndTransactionRecord()]) == orders()
    assert applied(later, [AbortTransactionRecord(reason="y")]) == Image()


def test_eligible_leaders_are_cleared_for_one_topic_or_all() -> None:
    two = orders(TopicRecord(name="bills", topic_id=BILLS), partition(BILLS))
    one = applied(two, [ClearElrRecord(topic_name="orders")])
    assert not one.topics["orders"].partitions[0].eligible_leader_replicas
    assert one.topics["bills"].partitions[0].eligible_leader_replicas == (2,)
    none = applied(two, [ClearElrRecord(topic_name="")])
    assert not none.topics["bills"].partitions[0].eligible_leader_replicas


def test_features_and_quotas() -> None:
    found = image(FeatureLevelRecord(name="group.version", feature_level=1))
    assert found.features == {"group.version": 1}
    assert applied(found, [FeatureLevelRecord(name="group.version", feature_level=0)]) == Image()
    user = (EntityData(entity_type="user", entity_name=None),)
    limited = image(ClientQuotaRecord(entity=user, key="producer_byte_rate", value=5.0, remove=False))
    assert limited.quotas == {(("user", None),): {"producer_byte_rate": 5.0}}
    gone = applied(limited, [ClientQuotaRecord(entity=user, key="producer_byte_rate", value=0.0, remove=True)])
    assert gone == Image()


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="again", topic_id=ORDERS),
        partition(BILLS),
        PartitionChangeRecord(partition_id=9, topic_id=ORDERS, leader=1),
        RemoveTopicRecord(topic_id=BILLS),
        UnfenceBrokerRecord(id=1, epoch=6),
        FenceBrokerRecord(id=2, epoch=7),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=7),
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=999),
        EndTransactionRecord(),
        AbortTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_does_not_fit_stops_everything(record: MetadataRecord) -> None:
    before = orders(broker(), ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000))
    with pytest.raises(InconsistentRecord):
        applied(before, [record])


def test_a_new_topic_copies_one_shelf_and_shares_the_rest() -> None:
    """A cluster of 100,000 partitions adds a topic in tens of microseconds; benchmarks/micro/bench_metadata.py."""
    records = [TopicRecord(name=f"topic-{n}", topic_id=n.to_bytes(16, "big")) for n in range(5000)]
    before = image(*records)
    after = applied(before, [TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS)])
    for old, new in ((before.topics, after.topics), (before.topic_names, after.topic_names)):
        shelves = zip(old._shelves, new._shelves, strict=True)
        assert sum(one is not other for one, other in shelves) == 1
    assert after.configs is before.configs
    assert after.brokers is before.brokers
