"""An image as records, and an index that follows images."""

import pytest

from penstock.metadata.cluster_commands import DecommissionBroker
from penstock.metadata.commands import CreateTopics, DeleteTopics, NewTopic, TopicRef
from penstock.metadata.draft import applied
from penstock.metadata.frames import decode_record, encode_record
from penstock.metadata.image import Image
from penstock.metadata.index import PartitionIndex
from penstock.metadata.records import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    ProducerIdsRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from penstock.metadata.snapshot import records_of
from penstock.metadata.view import TopicRules
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld


@pytest.fixture
def world() -> ClusterWorld:
    """A cluster with every kind of state."""
    world = ClusterWorld(brokers=(1, 2, 3, 4))
    world.create((1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2))
    world.create((1, 2), name="bills.eu", retention_ms="5")
    world.reassign((1, 2, 4))
    world.kill(3)
    world.sync(4, index=2)
    world.beat(4, stop=True)
    world.tick()
    world.ask(DecommissionBroker(2))
    world.fill(1)
    for record in (
        RegisterControllerRecord(
            controller_id=9, incarnation_id=b"i" * 16, zk_migration_ready=False, end_points=(), features=()
        ),
        ProducerIdsRecord(broker_id=1, broker_epoch=world.broker(1).epoch, next_producer_id=2_000),
        ClientQuotaRecord(
            entity=(EntityData(entity_type="user", entity_name=None),),
            key="producer_byte_rate",
            value=5.0,
            remove=False,
        ),
        UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096),
        AccessControlEntryRecord(
            id=b"a" * 16,
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:u",
            host="*",
            operation=3,
            permission_type=3,
        ),
        DelegationTokenRecord(
            owner="u",
            requester="u",
            renewers=(),
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="t",
        ),
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="7"),
    ):
        world.write(record)
    return world


def test_a_snapshot_is_the_image(world: ClusterWorld) -> None:
    stored = [encode_record(record) for record in records_of(world.image)]
    assert applied(Image(), map(decode_record, stored)) == world.image
    assert [encode_record(record) for record in records_of(world.image)] == stored


def test_a_controller_that_read_a_snapshot_believes_as_much_as_one_that_read_the_log(world: ClusterWorld) -> None:
    """A broker that missed the response to its last registration names an earlier epoch: the last active one."""
    active_epoch = world.broker(3).epoch
    world.register(3, previous_epoch=active_epoch)
    assert world.broker(3).epoch > active_epoch
    image = applied(Image(), records_of(world.image))
    assert image == world.image
    world.controller.revert(image)
    assert world.register(3, previous_epoch=active_epoch).code is ErrorCode.NONE


def test_what_happens_meanwhile_is_not_in_it(world: ClusterWorld) -> None:
    before = world.image
    writer = records_of(before)
    first = [next(writer) for _ in range(8)]
    world.ask(DeleteTopics((TopicRef("orders"),)))
    world.ask(CreateTopics((NewTopic("later"),)))
    assert applied(Image(), [*first, *writer]) == before
    assert applied(Image(), records_of(world.image)) == world.image


def test_half_a_transaction_belongs_to_no_snapshot(world: ClusterWorld) -> None:
    world.write(BeginTransactionRecord())
    with pytest.raises(AssertionError, match="has not ended"):
        list(records_of(world.image))


def test_an_index_is_the_same_however_it_came_to_its_image(world: ClusterWorld) -> None:
    followed = world.controller.index
    fresh = PartitionIndex()
    fresh.follow(world.image, TopicRules(world.image, world.controller.settings))
    assert telling(followed) == telling(fresh)
    world.controller.revert(Image())
    assert telling(world.controller.index) == telling(PartitionIndex())


def telling(index: PartitionIndex) -> list[object]:
    """Returns every answer of the index; brokers without partitions do not count."""
    counts = (index.led, index.preferred, index.held, index.arriving)
    brokers = sorted({number for count in counts for number in count})
    return [
        index.active,
        *({number: count for number, count in each.items() if count} for each in counts),
        *(list(each) for each in (index.leaderless, index.astray, index.returnable(99), index.moving)),
        list(index.troubled()),
        *(list(index.of_broker(number)) for number in brokers if index.replicas_on(number)),
    ]
