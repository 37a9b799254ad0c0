"""Groups of real clients on a Penstock node: they share a topic, commit, rebalance, leave, and continue."""

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient

from penstock.client.blocking import SyncClient
from penstock.testing.node import NodeThread

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls outdated.
    warnings.simplefilter("ignore")
    from kafka import KafkaConsumer

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("penstock-groups")]

PARTITIONS: Final = 4
RECORDS: Final = 40
WAIT_S: Final = 60.0
"""Much longer than any step takes."""
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
}
EVERYTHING: Final = {str(number).encode() for number in range(RECORDS)}


class Member(Protocol):
    """A client's consumer in a group."""

    def poll(self) -> list[bytes]:
        """Values that arrived within a moment."""

    @property
    def assigned(self) -> set[int]:
        """Partitions that it reads."""

    def commit(self) -> None:
        """Commits everything polled."""

    def leave(self) -> None:
        """Leaves the group at once."""


class Librdkafka:
    """confluent-kafka, with the classic protocol."""

    protocol = "classic"

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": self.protocol,
        }
        if self.protocol == "classic":
            options |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
        self._consumer = confluent_kafka.Consumer(options)
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        found = []
        for message in self._consumer.consume(100, 0.2):
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                found.append(message.value() or b"")
        return found

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        with suppress(confluent_kafka.KafkaException):  # nothing was polled since it was assigned anew
            self._consumer.commit(asynchronous=False)

    def leave(self) -> None:
        self._consumer.close()


class LibrdkafkaConsumer(Librdkafka):
    """confluent-kafka, with the protocol of KIP-848."""

    protocol = "consumer"


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
        )

    def poll(self) -> list[bytes]:
        return [each.value for batch in self._consumer.poll(200).values() for each in batch]

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def leave(self) -> None:
        self._consumer.close()


class Aiokafka:
    """aiokafka, on a loop that runs only while it is polled: its heartbeats pause in between, though not for long."""

    loop: "asyncio.AbstractEventLoop"

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.loop = LOOPS[-1]
        self._consumer = self.loop.run_until_complete(self._start(bootstrap, group, topic))

    async def _start(self, bootstrap: str, group: str, topic: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
        )
        await consumer.start()
        return consumer

    def poll(self) -> list[bytes]:
        found = self.loop.run_until_complete(self._consumer.getmany(timeout_ms=200))
        return [each.value or b"" for batch in found.values() for each in batch]

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self.loop.run_until_complete(self._consumer.commit())

    def leave(self) -> None:
        self.loop.run_until_complete(self._consumer.stop())


LOOPS: Final[list[asyncio.AbstractEventLoop]] = []
CLIENTS: Final[dict[str, Callable[[str, str, str], Member]]] = {
    "librdkafka": Librdkafka,
    "librdkafka-consumer": LibrdkafkaConsumer,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    node = NodeThread(SETTINGS)
    node.start()
    yield node.bootstrap
    node.stop()


@pytest.fixture
def _loop() -> Iterator[None]:
    loop = asyncio.new_event_loop()
    LOOPS.append(loop)
    yield
    LOOPS.pop()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def write(bootstrap: str, topic: str) -> None:
    with SyncClient(bootstrap) as client:
        client.run(client.admin.create_topic(topic, PARTITIONS))
        for number in range(RECORDS):
            client.publish(topic, str(number).encode(), partition=number % PARTITIONS)


def poll_until(members: list[Member], seen: list[bytes], is_so: Any) -> None:
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s, f"never became true: {[member.assigned for member in members]}, {len(seen)}"
        for member in members:
            seen += member.poll()


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.usefixtures("_loop")
def test_members_come_and_go_and_nothing_is_read_twice_that_was_committed(name: str, bootstrap: str) -> None:
    topic, group, make = f"topic-{name}", f"group-{name}", CLIENTS[name]
    write(bootstrap, topic)
    everything = set(range(PARTITIONS))
    seen: list[bytes] = []
    one: Member = make(bootstrap, group, topic)
    poll_until([one], seen, lambda: len(seen) == RECORDS)
    assert set(seen) == EVERYTHING
    assert one.assigned == everything
    one.commit()
    two: Member = make(bootstrap, group, topic)
    both = [one, two]
    poll_until(both, seen, lambda: one.assigned and two.assigned and one.assigned | two.assigned == everything)
    assert not one.assigned & two.assigned
    assert len(seen) == RECORDS, "what was committed is not read again by whoever has the partition now"
    one.leave()
    poll_until([two], seen, lambda: two.assigned == everything)
    two.leave()
    assert len(seen) == RECORDS
    three: Member = make(bootstrap, group, topic)
    poll_until([three], seen, lambda: three.assigned == everything)
    three.poll()
    three.leave()
    assert len(seen) == RECORDS


def test_operators_see_groups_with_librdkafkas_admin(bootstrap: str) -> None:
    topic = "seen"
    write(bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    member = Librdkafka(bootstrap, "seen-group", topic)
    seen: list[bytes] = []
    poll_until([member], seen, lambda: len(seen) == RECORDS)
    member.commit()
    listed = {each.group_id: each for each in admin.list_consumer_groups().result().valid}
    assert listed["seen-group"].state is confluent_kafka.ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups(["seen-group"])["seen-group"].result()
    assert [len(each.assignment.topic_partitions) for each in described.members] == [PARTITIONS]
    wanted = confluent_kafka.ConsumerGroupTopicPartitions("seen-group")
    found = admin.list_consumer_group_offsets([wanted])["seen-group"].result()
    assert {each.partition: each.offset for each in found.topic_partitions} == dict.fromkeys(
        range(PARTITIONS), RECORDS // PARTITIONS
    )
    with pytest.raises(confluent_kafka.KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups(["seen-group"])["seen-group"].result()
    member.leave()
    admin.delete_consumer_groups(["seen-group"])["seen-group"].result()
    assert "seen-group" not in {each.group_id for each in admin.list_consumer_groups().result().valid}
