"""The blocking producer: every record is delivered or its error is raised, and a caller that is too fast waits."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import (
    BufferFull,
    Client,
    Closed,
    Codec,
    PublishFailed,
    Refused,
    SyncClient,
    TimedOut,
    Unreachable,
)
from penstock.client.blocking_producer import QUEUE_BYTES_MAX, Entry, Pending
from penstock.model.errors import ErrorCode
from penstock.testing.plugin import Kafka

NOBODY = "127.0.0.1:1"


@pytest.fixture
def lonely() -> Iterator[SyncClient]:
    """A client that reaches no broker."""
    with Client.blocking(NOBODY, timeout_ms=60_000, connect_timeout_ms=60_000) as client:
        yield client


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in kafka.client.consume(topic, until_end=True)]


def test_ten_thousand_records_arrive_once_and_in_order(kafka: Kafka) -> None:
    topic = kafka.create("t", 3)
    with kafka.client.producer() as producer:
        pending = [producer.publish(topic, str(number), str(number % 7)) for number in range(10_000)]
    assert all(each.is_done for each in pending)
    found = list(kafka.client.consume(topic, until_end=True))
    assert len(found) == 10_000
    for key in range(7):
        numbers = [int(each.value or b"") for each in found if each.key == str(key).encode()]
        assert numbers == list(range(key, 10_000, 7))
    for number in (0, 4_999, 9_999):
        place = pending[number].result()
        (record,) = [each for each in found if each[1:3] == place]
        assert record.value == str(number).encode()


def test_ten_thousand_records_take_a_second_at_most(kafka: Kafka) -> None:
    """The figure of a program without an event loop. The best of a few rounds: this machine may be busy."""
    topic = kafka.create("t", 3)
    rounds = []
    for _ in range(5):
        began_s = time.perf_counter()
        with kafka.client.producer() as producer:
            for number in range(10_000):
                producer.publish(topic, b"x" * 100, str(number))
        rounds.append(time.perf_counter() - began_s)
        if rounds[-1] <= 1:
            break
    assert min(rounds) <= 1, rounds


def test_headers_timestamps_partitions_and_empty_values(kafka: Kafka) -> None:
    topic = kafka.create("t", 2)
    with kafka.client.producer(codec=Codec.ZSTD, linger_ms=5) as producer:
        producer.publish(topic, None, b"gone", headers={"h": "ü", "none": None}, partition=1, timestamp_ms=77)
    (record,) = kafka.client.consume(topic, until_end=True)
    assert record[1:6] == (1, 0, 77, b"gone", None)
    assert record.headers == (("h", "ü".encode()), ("none", None))


def test_flush_delivers_what_lingers(kafka: Kafka) -> None:
    topic = kafka.create("t")
    with kafka.client.producer(linger_ms=600_000) as producer:
        for number in range(10):
            producer.publish(topic, str(number))
        producer.flush()
        assert len(values(kafka, topic)) == 10
        assert producer.publish(topic, "more").is_done is False


def test_a_result_is_waited_for(kafka: Kafka) -> None:
    topic = kafka.create("t")
    with kafka.client.producer() as producer:
        assert producer.publish(topic, "a").result() == (0, 0)
        assert producer.publish(topic, "b").result(60_000).offset == 1


def test_an_error_names_its_record_at_the_end_of_the_block(kafka: Kafka) -> None:
    topic = kafka.create("small", configs={"max.message.bytes": "1000"})

    def write() -> None:
        with kafka.client.producer() as producer:
            producer.publish(topic, "before", "order-6")
            producer.flush()
            producer.publish(topic, b"x" * 2000, "order-7")

    with pytest.raises(PublishFailed, match=r"with the key 'order-7' was not published: .*MESSAGE_TOO_LARGE") as failed:
        write()
    (record,) = failed.value.failures
    assert (record.topic, record.key, record.value) == (topic, b"order-7", b"x" * 2000)
    assert isinstance(record.error, Refused)
    assert record.error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_error_that_was_asked_for_is_not_raised_again(kafka: Kafka) -> None:
    topic = kafka.create("small", configs={"max.message.bytes": "1000"})
    with kafka.client.producer() as producer:
        pending = producer.publish(topic, b"x" * 2000)
        with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
            pending.result()


def test_the_next_publish_raises_what_failed_and_sends_nothing(kafka: Kafka) -> None:
    topic = kafka.create("small", configs={"max.message.bytes": "1000"})
    with kafka.client.producer() as producer:
        failing = producer.publish(topic, b"x" * 2000, "first")
        while not failing.is_done:
            time.sleep(0.01)
        with pytest.raises(PublishFailed, match="'first'"):
            producer.publish(topic, "second")
        producer.publish(topic, "third")
    assert values(kafka, topic) == [b"third"]


def test_an_error_of_the_program_is_not_hidden(kafka: Kafka) -> None:
    topic = kafka.create("small", configs={"max.message.bytes": "1000"})

    def write() -> None:
        with kafka.client.producer() as producer:
            producer.publish(topic, b"x" * 2000, "first")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        write()
    assert "'first' was not published" in error.value.__notes__[0]


def test_many_errors_are_raised_at_once_but_those_that_were_asked_for(lonely: SyncClient) -> None:
    producer = lonely.producer()
    pending = [Pending(producer, Entry("t", b"%d" % number, None, [], None, None, 1)) for number in range(150)]
    for each in pending:
        producer._failed(each, Unreachable("gone"))
    for _ in range(2):
        with pytest.raises(Unreachable):
            pending[0].result()
    with pytest.raises(PublishFailed, match="with the value '1' was not published: gone; nor were 148 more") as failed:
        producer.flush()
    assert [each.value for each in failed.value.failures] == [b"%d" % number for number in range(1, 150)]
    with pytest.raises(Unreachable):
        pending[1].result()
    producer.close()


def test_a_caller_that_is_too_fast_waits_and_is_told(lonely: SyncClient) -> None:
    producer = lonely.producer(block_ms_max=3_000)
    producer._block_ms_max = 50  # of the caller only: the record before waits for a broker meanwhile
    producer.publish("t", b"x" * QUEUE_BYTES_MAX)
    with pytest.raises(BufferFull, match="1 record waits to be sent, and none was within 50 ms"):
        producer.publish("t", b"y")
    with pytest.raises(PublishFailed, match="with the value 'xxx"):
        producer.close()


def test_nobody_there_is_told_with_the_record() -> None:
    def write() -> None:
        with Client.blocking(NOBODY, connect_timeout_ms=200) as client, client.producer() as producer:
            producer.publish("t", "lost", "key")

    with pytest.raises(PublishFailed, match="nothing listens there") as failed:
        write()
    (record,) = failed.value.failures
    assert isinstance(record.error, Unreachable)


def test_a_flush_that_takes_too_long(lonely: SyncClient) -> None:
    producer = lonely.producer(block_ms_max=500, delivery_timeout_ms=500)
    producer.publish("t", "x")
    with pytest.raises(TimedOut, match="not all records are delivered after 10 ms"):
        producer.flush(10)
    with pytest.raises(PublishFailed):
        producer.close()


def test_closing_the_client_delivers_and_closes(kafka: Kafka) -> None:
    topic = kafka.create("t")
    with Client.blocking(kafka.bootstrap) as client:
        producer = client.producer(linger_ms=600_000)
        for number in range(100):
            producer.publish(topic, str(number))
    assert len(values(kafka, topic)) == 100
    for call in (lambda: producer.publish(topic, "late"), producer.flush):
        with pytest.raises(Closed):
            call()
    producer.close()


def test_several_threads_share_it(kafka: Kafka) -> None:
    topic = kafka.create("t", 2)
    with kafka.client.producer() as producer:

        def publish(name: str) -> None:
            for number in range(500):
                producer.publish(topic, f"{name}-{number}", name)

        threads = [threading.Thread(target=publish, args=(name,)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    found = [each.value or b"" for each in kafka.client.consume(topic, until_end=True)]
    for name in "abcd":
        mine = [each for each in found if each.startswith(name.encode())]
        assert mine == [f"{name}-{number}".encode() for number in range(500)]


def test_wrong_types_are_named_at_once(kafka: Kafka) -> None:
    client: Any = kafka.client
    with client.producer() as producer:
        with pytest.raises(TypeError, match="publish: value must be bytes, str or None, not a value of type dict"):
            producer.publish("t", {"id": 1})
        with pytest.raises(TypeError, match="publish: partition must be int or None, not '1'"):
            producer.publish("t", "x", partition="1")
    with pytest.raises(TypeError, match=r"Producer: linger_ms must be int, not 0\.5 \(float\)"):
        client.producer(linger_ms=0.5)
    with pytest.raises(ValueError, match="acks is 0, 1"):
        client.producer(acks=2)
