"""A producer among failing brokers: batches, order, retries, back-pressure, and each record once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.client.cluster import Cluster
from penstock.client.errors import BufferFull, Closed, DeliveryTimedOut, Refused, TimedOut
from penstock.client.ports import ClientPorts
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import Delivery
from penstock.model.errors import ErrorCode
from penstock.records.compression import Codec
from penstock.records.header import BatchView
from penstock.simulator.options import FaultOptions
from penstock.wire.api import Api
from penstock.wire.messages.produce import ProduceRequest
from tests.unit.client.brokers import Brokers, Fault, PartitionLog, play

Story = Callable[[Producer, Cluster], Awaitable[Any]]


def produce(brokers: Brokers, story: Story, *, request_timeout_ms: int = 2000, seed: int = 1, **options: Any) -> Any:
    async def main(ports: ClientPorts) -> Any:
        cluster = Cluster(brokers.names, ports=ports, request_timeout_ms=request_timeout_ms)
        producer = Producer(cluster, **options)
        try:
            return await story(producer, cluster)
        finally:
            await producer.close(60_000)
            await cluster.close()

    return play(brokers, main, seed=seed)


async def send_many(producer: Producer, count: int, topic: str = "t", partition: int = 0) -> list[Delivery]:
    sent = [await producer.send(topic, b"%d" % number, partition=partition) for number in range(count)]
    return list(await asyncio.gather(*sent))


def values(brokers: Brokers, topic: str = "t", partition: int = 0) -> list[int]:
    return [int(record.value or b"-1") for record in brokers.topics[topic][1][partition].records()]


def sizes(brokers: Brokers) -> list[int]:
    return [BatchView(data).count for data in brokers.topics["t"][1][0].batches]


def requests(brokers: Brokers) -> int:
    return sum(api is Api.PRODUCE for _, api, _ in brokers.seen)


# --- batches


def test_records_that_come_together_travel_together() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    deliveries = produce(brokers, lambda producer, _: send_many(producer, 100))
    assert values(brokers) == list(range(100))
    assert [delivery.offset for delivery in deliveries] == list(range(100))
    assert sizes(brokers) == [100]


def test_linger_waits_for_more() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(producer: Producer, cluster: Cluster) -> float:
        await cluster.topic("t")
        loop = asyncio.get_running_loop()
        before = loop.time()
        first = await producer.send("t", b"0", partition=0)
        await asyncio.sleep(0.05)
        second = await producer.send("t", b"1", partition=0)
        await asyncio.gather(first, second)
        return loop.time() - before

    assert produce(brokers, story, linger_ms=100) == pytest.approx(0.1, abs=0.02)
    assert sizes(brokers) == [2]


def test_flush_does_not_linger() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(producer: Producer, _: Cluster) -> None:
        sent = [await producer.send("t", b"0", partition=0) for _ in range(3)]
        await producer.flush(1000)
        assert all(each.done() for each in sent)

    produce(brokers, story, linger_ms=100_000)


def test_a_full_batch_does_not_linger() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(producer: Producer, _: Cluster) -> None:
        sent = [await producer.send("t", b"%d" % number + b" " * 400, partition=0) for number in range(5)]
        await asyncio.gather(*sent[:4])
        assert not sent[4].done()

    produce(brokers, story, linger_ms=10_000, batch_bytes=1000)
    assert sizes(brokers) == [2, 2, 1]


@pytest.mark.parametrize("codec", list(Codec))
def test_codecs(codec: Codec) -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    produce(brokers, lambda producer, _: send_many(producer, 50), codec=codec)
    assert values(brokers) == list(range(50))
    assert BatchView(brokers.topics["t"][1][0].batches[0]).codec is codec


def test_partitions_of_one_leader_share_a_request() -> None:
    brokers = Brokers(2)
    brokers.add_topic("t", 4)

    async def story(producer: Producer, _: Cluster) -> None:
        sent = [await producer.send("t", b"1", partition=number) for number in range(4)]
        await asyncio.gather(*sent)

    produce(brokers, story)
    assert requests(brokers) == 2


def test_keys_and_spread_decide_the_partition() -> None:
    brokers = Brokers()
    brokers.add_topic("t", 7)

    async def story(producer: Producer, _: Cluster) -> None:
        by_key = await producer.publish("t", b"1", key=b"21")
        assert by_key.partition == (-973932308 & 0x7FFFFFFF) % 7
        spread = [(await producer.publish("t", b"1")).partition for _ in range(7)]
        assert spread == list(range(7))
        with pytest.raises(Refused, match="the topic has 7 partitions, counted from 0"):
            await producer.publish("t", b"1", partition=7)

    produce(brokers, story, spread="round-robin")


def test_a_partition_that_was_added_meanwhile_is_found() -> None:
    brokers = Brokers()
    brokers.add_topic("t", 1)

    async def story(producer: Producer, _: Cluster) -> None:
        await producer.publish("t", b"0", partition=0)
        brokers.topics["t"][1].append(PartitionLog(0))
        assert (await producer.publish("t", b"1", partition=1)).partition == 1

    produce(brokers, story)
    assert values(brokers, partition=1) == [1]


# --- responses


def test_a_delivery_tells_offset_and_timestamp() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(producer: Producer, _: Cluster) -> None:
        await producer.publish("t", b"0", partition=0)
        assert await producer.publish("t", b"1", timestamp_ms=77) == Delivery("t", 0, 1, 77)

    produce(brokers, story)
    assert brokers.topics["t"][1][0].records()[1].timestamp_ms == 77


def test_without_acks_nobody_is_asked() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(producer: Producer, _: Cluster) -> list[Delivery]:
        deliveries = await send_many(producer, 10)
        await asyncio.sleep(1)  # with acks=0 the client cannot wait for the append
        return deliveries

    deliveries = produce(brokers, story, acks=0)
    assert {delivery.offset for delivery in deliveries} == {-1}
    assert values(brokers) == list(range(10))
    assert not any(api is Api.INIT_PRODUCER_ID for _, api, _ in brokers.seen)


def test_what_cannot_be_is_refused_at_once() -> None:
    brokers = Brokers()

    async def story(producer: Producer, cluster: Cluster) -> None:
        with pytest.raises(ValueError, match="acks is 0, 1"):
            Producer(cluster, acks=2)
        with pytest.raises(ValueError, match="needs acks"):
            Producer(cluster, acks=1, is_idempotent=True)
        with pytest.raises(Refused, match="topic gone: UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.send("gone", b"")
        assert producer.held_bytes == 0

    produce(brokers, story, creates_topics=False)


def test_a_refused_batch_fails_alone() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.fail(Api.PRODUCE, None, ErrorCode.MESSAGE_TOO_LARGE)

    async def story(producer: Producer, _: Cluster) -> None:
        await producer.publish("t", b"0")
        with pytest.raises(Refused, match=r"t\[0\]: MESSAGE_TOO_LARGE: the topic takes no batch as large"):
            await producer.publish("t", b"1")
        assert (await producer.publish("t", b"2")).offset == 1

    produce(brokers, story)
    assert values(brokers) == [0, 2]
    assert BatchView(brokers.topics["t"][1][0].batches[1]).producer_epoch == 1


def test_a_topic_that_is_created_on_first_use_is_waited_for() -> None:
    brokers = Brokers()
    brokers.creates_topics = True
    assert produce(brokers, lambda producer, _: producer.publish("new", b"1")).offset == 0
    brokers.creates_topics = False

    async def story(producer: Producer, _: Cluster) -> None:
        with pytest.raises(Refused, match="the broker creates none"):
            await producer.publish("other", b"1")

    produce(brokers, story)


# --- faults


@pytest.mark.parametrize(
    "fault",
    [
        Fault.CLOSE,
        Fault.CLOSE_AFTER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_each_record_is_there_once_and_in_order(fault: Fault | ErrorCode, at: int) -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.produce_delay_s = 0.01
    brokers.fail(Api.PRODUCE, *[None] * at, fault, None, fault)
    deliveries = produce(brokers, lambda producer, _: send_many(producer, 60), batch_bytes=100)
    assert values(brokers) == list(range(60))
    assert [delivery.offset for delivery in deliveries] == list(range(60))
    assert len(sizes(brokers)) > 5


def test_an_answer_that_never_comes_is_not_waited_for_for_ever() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.fail(Api.PRODUCE, Fault.SILENCE)
    produce(brokers, lambda producer, _: send_many(producer, 5), request_timeout_ms=500)
    assert values(brokers) == list(range(5))
    assert requests(brokers) == 2


@pytest.mark.parametrize("fault", [Fault.CLOSE_AFTER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_without_idempotence_order_holds_but_a_lost_answer_means_twice(fault: Fault | ErrorCode) -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.fail(Api.PRODUCE, None, fault)
    brokers.produce_delay_s = 0.01
    produce(brokers, lambda producer, _: send_many(producer, 30), batch_bytes=100, acks=1)
    found = values(brokers)
    assert list(dict.fromkeys(found)) == list(range(30))
    assert (len(found) > 30) is (fault is Fault.CLOSE_AFTER)


def test_a_partition_that_moves_is_followed() -> None:
    brokers = Brokers(3)
    brokers.add_topic("t")

    async def story(producer: Producer, _: Cluster) -> None:
        for number in range(20):
            if number % 5 == 4:
                brokers.move("t", 0, number % 3)
            await producer.publish("t", b"%d" % number, partition=0)

    produce(brokers, story)
    assert values(brokers) == list(range(20))


def test_a_broker_that_is_down_for_a_while_is_waited_for() -> None:
    brokers = Brokers(2)
    brokers.add_topic("t", 2)

    async def story(producer: Producer, _: Cluster) -> None:
        await producer.publish("t", b"0", partition=0)
        brokers.world.kill("broker-0")
        sent = await producer.send("t", b"1", partition=0)
        await producer.publish("t", b"0", partition=1)
        await asyncio.sleep(5)
        assert not sent.done()
        brokers.world.start("broker-0")
        assert (await sent).offset == 1

    produce(brokers, story)


def test_a_leader_that_is_gone_is_looked_up_anew() -> None:
    brokers = Brokers(2)
    brokers.add_topic("t")

    async def story(producer: Producer, cluster: Cluster) -> None:
        await cluster.topic("t")
        brokers.world.kill("broker-0")
        brokers.move("t", 0, 1)
        await producer.publish("t", b"0")

    produce(brokers, story, delivery_timeout_ms=20_000)


def test_a_partition_without_a_leader_is_waited_for_patiently() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    log.leader = -1

    async def story(producer: Producer, _: Cluster) -> None:
        sent = await producer.send("t", b"0")
        await asyncio.sleep(10)
        assert not sent.done()
        assert 10 < sum(api is Api.METADATA for _, api, _ in brokers.seen) < 30
        log.leader = 0
        await sent

    produce(brokers, story)


def test_what_cannot_be_delivered_is_given_up_in_time() -> None:
    brokers = Brokers(2)
    brokers.add_topic("t", 2)

    async def story(producer: Producer, _: Cluster) -> None:
        await producer.publish("t", b"0", partition=0)
        brokers.world.kill("broker-0")
        await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(DeliveryTimedOut, match=r"t\[0\]: not delivered within 3000 ms \(it was never sent\)") as e:
            await producer.publish("t", b"1", partition=0)
        assert e.value.is_unsent
        assert loop.time() - before == pytest.approx(3, abs=0.1)
        assert producer.held_bytes == 0

    produce(brokers, story, delivery_timeout_ms=3000)


def test_a_producer_id_that_is_refused_fails_what_waits() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.fail(Api.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def story(producer: Producer, _: Cluster) -> None:
        with pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.publish("t", b"0")
        await producer.publish("t", b"1")

    produce(brokers, story)


def test_a_seed_repeats_itself() -> None:
    assert through_a_bad_network(3) == through_a_bad_network(3)
    assert through_a_bad_network(3) != through_a_bad_network(4)


@pytest.mark.parametrize("seed", range(10))
def test_a_bad_network_changes_nothing(seed: int) -> None:
    through_a_bad_network(seed)


def through_a_bad_network(seed: int) -> str:
    brokers = Brokers(3)
    brokers.add_topic("t", 3)
    brokers.produce_delay_s = 0.005

    async def main(ports: ClientPorts) -> None:
        cluster = Cluster(brokers.names, ports=ports, request_timeout_ms=2000)
        producer = Producer(cluster, batch_bytes=120)
        chance = ports.entropy
        sent = []
        for number in range(300):
            sent.append(await producer.send("t", b"%d" % number, partition=number % 3))
            if number % 10 == 0:
                await asyncio.sleep(0.02)
            match chance.below(40):
                case 0:
                    brokers.world.network.reset("client", brokers.names[chance.below(3)])
                case 1:
                    brokers.move("t", chance.below(3), chance.below(3))
                case 2:
                    brokers.fail(Api.PRODUCE, Fault.CLOSE_AFTER, None, Fault.CLOSE)
        await asyncio.gather(*sent)
        await producer.close()
        await cluster.close()

    options = FaultOptions(loss=0.02, fragment=0.2, delay_s_mean=0.003)
    play(brokers, main, seed=seed, options=options)
    for partition in range(3):
        assert values(brokers, partition=partition) == list(range(partition, 300, 3))
    return brokers.world.trace_hash


# --- bounds


def test_whoever_sends_too_fast_waits() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.produce_delay_s = 0.1
    most = 0

    async def story(producer: Producer, _: Cluster) -> None:
        nonlocal most
        sent = []
        for number in range(40):
            sent.append(await producer.send("t", b"%d" % number + b" " * 500, partition=0))
            most = max(most, producer.held_bytes)
        await asyncio.gather(*sent)

    produce(brokers, story, batch_bytes=1000, buffer_bytes_max=5000)
    assert 4000 < most <= 5000
    assert values(brokers) == list(range(40))


def test_who_waits_too_long_is_told() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.produce_delay_s = 5

    async def story(producer: Producer, _: Cluster) -> None:
        await producer.send("t", b"x" * 1000)
        with pytest.raises(BufferFull, match="bytes wait to be delivered"):
            await producer.send("t", b"y" * 1000)

    produce(brokers, story, buffer_bytes_max=1500, block_ms_max=1000, request_timeout_ms=20_000)


@pytest.mark.parametrize("partitions", [1, 20])
def test_requests_under_way_are_bounded(partitions: int) -> None:
    brokers = Brokers()
    brokers.add_topic("t", partitions)
    brokers.produce_delay_s = 0.01

    async def send_to_all(producer: Producer) -> None:
        await asyncio.gather(*[send_many(producer, 60 // partitions, partition=each) for each in range(partitions)])

    async def story(producer: Producer, _: Cluster) -> None:
        await producer.publish("t", b"0", partition=0)
        (sender_node,) = producer._sender._nodes.values()
        most = 0
        sending = asyncio.ensure_future(send_to_all(producer))
        while not sending.done():
            most = max(most, sender_node.requests)
            await asyncio.sleep(0.001)
        assert most == 5

    produce(brokers, story, batch_bytes=100, request_bytes_max=1)


# --- flush and close


def test_flush_tells_what_is_not_delivered() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.produce_delay_s = 3

    async def story(producer: Producer, _: Cluster) -> None:
        sent = [await producer.send("t", b"1") for _ in range(3)]
        with pytest.raises(TimedOut, match="3 records are not delivered after 1000 ms"):
            await producer.flush(1000)
        await producer.flush(10_000)
        assert all(each.done() for each in sent)

    produce(brokers, story, request_timeout_ms=10_000)


def test_close_delivers_what_it_can_and_tells_of_the_rest() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.produce_delay_s = 3

    async def story(producer: Producer, cluster: Cluster) -> None:
        sent = await producer.send("t", b"1")
        with pytest.raises(TimedOut):
            await producer.close(1000)
        with pytest.raises(Closed):
            await sent
        with pytest.raises(Closed):
            await producer.send("t", b"1")
        other = Producer(cluster)
        sent = await other.send("t", b"2")
        await other.close()
        assert sent.done()

    produce(brokers, story, request_timeout_ms=10_000)


def test_old_brokers_get_names_and_new_ones_ids() -> None:
    for newest, metadata, by_id in ((12, 13, False), (13, 13, True), (13, 9, False)):
        brokers = Brokers()
        brokers.newest = {Api.PRODUCE: newest, Api.METADATA: metadata}
        brokers.add_topic("t")
        produce(brokers, lambda producer, _: producer.publish("t", b"1"))
        (request,) = (request for _, request in brokers.requests if isinstance(request, ProduceRequest))
        assert bool(request.topic_data[0].name) is not by_id
        assert values(brokers) == [1]
