"""penstock.Client: the common calls, the cost of `import penstock`, and the blocking client."""

import asyncio
import inspect
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast, get_type_hints

import pytest

import penstock
from penstock.client.admin.admin import NewTopic
from penstock.client.blocking import SyncClient
from penstock.client.client import Client
from penstock.client.configuration.options import ClientOptions, ConsumerOptions, GroupConsumerOptions, ProducerOptions
from penstock.client.consumer.consumer import At, Consumer
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import Closed, Refused, Unreachable
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.groups.membership import GroupSettings
from penstock.client.ports import ClientPorts
from penstock.client.producer.producer import Producer
from penstock.model.errors import ErrorCode
from penstock.testing.plugin import Kafka
from tests.unit.client.brokers import Brokers, play


def test_a_story_in_a_few_words() -> None:
    brokers = Brokers()

    async def story(ports: ClientPorts) -> None:
        async with Client("broker-0", ports=ports) as client:
            await client.create_topic("t", partitions=3)
            partition, offset = await client.publish("t", "välue", "ключ", headers={"h": "ü", "none": None})
            assert offset == 0
            await client.publish("t", b"\xff", partition=partition)
            found = [record async for record in client.consume("t", until_end=True)]
            assert [(record.key, record.value) for record in found] == [
                ("ключ".encode(), "välue".encode()),
                (None, b"\xff"),
            ]
            assert found[0].headers == (("h", "ü".encode()), ("none", None))
            pieces = [piece async for piece in client.consume_batches("t", max_batch=1, until_end=True)]
            assert [len(piece.records) for piece in pieces] == [1, 1]
            assert [topic.name for topic in await client.topics()] == ["t"]

    play(brokers, story)


def test_a_topic_that_exists_is_an_error_unless_it_is_allowed(kafka: Kafka) -> None:
    client, name = kafka.client, kafka.topic("orders")
    made = client.create_topic(name, 3, exist_ok=True)
    assert (made.is_new, made.partitions, made.replication_factor) == (True, 3, 1)
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
        client.create_topic(name, 3)
    client.publish(name, "kept")
    for found in (client.create_topic(name, exist_ok=True), client.create_topic(name, 3, exist_ok=True)):
        assert found == replace(made, is_new=False)
    with pytest.raises(
        Refused, match=f"topic {name}: TOPIC_ALREADY_EXISTS: it has 3 partitions, not 4: leave"
    ) as other:
        client.create_topic(name, 4, exist_ok=True)
    assert other.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert [record.value for record in client.consume(name, until_end=True)] == [b"kept"]
    with pytest.raises(Refused, match="INVALID_TOPIC_EXCEPTION"):
        client.create_topic("no/name", exist_ok=True)


def test_the_value_stands_before_the_key(kafka: Kafka) -> None:
    topic = kafka.create("t")
    kafka.client.publish(topic, "value")
    kafka.client.publish(topic, "value", "key")
    kafka.client.publish(topic, None, key=b"key")
    found = [(record.key, record.value) for record in kafka.client.consume(topic, until_end=True)]
    assert found == [(None, b"value"), (b"key", b"value"), (b"key", None)]


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a value": (
        lambda c: c.publish("t", {"id": 1}),
        "publish: value must be bytes, str or None, not a value of type dict",
    ),
    "a key": (lambda c: c.publish("t", "x", 7), r"publish: key must be bytes, str or None, not 7 \(int\)"),
    "headers": (lambda c: c.publish("t", "x", headers=["a"]), "publish: headers must be a mapping of str to"),
    "a partition": (lambda c: c.publish("t", "x", partition="1"), "publish: partition must be int or None, not '1'"),
    "a topic": (lambda c: c.publish(b"t", "x"), r"publish: topic must be str, not b't' \(bytes\)"),
    "partitions": (lambda c: c.create_topic("t", "3"), "create_topic: partitions must be int, not '3'"),
    "a setting": (
        lambda c: c.create_topic("t", configs={"a": 1}),
        "create_topic: configs must be a mapping of str to str",
    ),
    "whether": (lambda c: c.create_topic("t", exist_ok="yes"), "create_topic: exist_ok must be bool, not 'yes'"),
    "a name": (lambda c: c.delete_topic(3), "delete_topic: name must be str, not 3"),
    "a start": (lambda c: c.consume("t", 1.5), "start must be int, At, 'earliest' or 'latest', not 1.5"),
    "a time": (lambda c: c.consume("t", At(cast("Any", 1.5))), r"At: timestamp_ms must be int, not 1\.5 \(float\)"),
    "an end": (lambda c: c.consume("t", until_end="no"), "until_end must be bool, not 'no'"),
    "numbers": (lambda c: c.consume("t", partitions="01"), "partitions must be an iterable of int or None, not '01'"),
    "a batch": (lambda c: c.consume_batches("t", max_batch="9"), "max_batch must be int, not '9'"),
    "a group": (lambda c: c.consume("t", group=7), "group must be str or None, not 7"),
    "an offset": (lambda c: c.commit_offset("t", "g", 0, "7"), "commit_offset: offset must be int, not '7'"),
    "linger": (lambda c: c.producer(linger_ms="5"), "Producer: linger_ms must be int, not '5'"),
    "codec": (lambda c: c.producer(codec="zstd"), "Producer: codec must be Codec, not 'zstd'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_value_of_a_wrong_type_is_named_before_anything_is_sent(case: str) -> None:
    call, sentence = WRONG[case]
    with SyncClient("127.0.0.1:1") as client, pytest.raises(TypeError, match=sentence):
        call(client)

    async def story(ports: ClientPorts) -> None:
        async with Client("broker-0", ports=ports) as asynchronous:
            with pytest.raises(TypeError, match=sentence):
                call(asynchronous)
            if case in {"linger", "codec"}:
                return
            assert asynchronous._opened == {}

    play(Brokers(), story)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"timeout_ms": "9"}, r"Client: timeout_ms must be int or None, not '9' \(str\)"),
        ({"bootstrap": 9092}, "Client: bootstrap must be str, a sequence of str or None, not 9092"),
        (
            {"sasl": ("PLAIN", "alice")},
            "Client: sasl must be Credentials, a tuple .* or None, not a value of type tuple",
        ),
        ({"tls": True}, "Client: tls must be SSLContext, not True"),
        ({"producer": {"linger": 5}}, "Client: producer has no option 'linger': did you mean linger_ms"),
        ({"producer": {"linger_ms": 0.5}}, r"Client: producer\['linger_ms'\] must be int, not 0\.5"),
        ({"config": 3}, "config must be the path of a file or a mapping, not 3"),
        ({"timeout": 3}, "unexpected keyword argument 'timeout'"),
    ],
)
def test_a_wrong_option_of_the_client_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        SyncClient(**options)


def test_wrong_settings_are_named() -> None:
    made: Any = FetchSettings
    with pytest.raises(TypeError, match=r"FetchSettings: wait_ms_max must be int, not '5' \(str\)"):
        made(wait_ms_max="5")
    made = GroupSettings
    with pytest.raises(TypeError, match=r"GroupSettings: heartbeat_ms must be int, not 0\.5 \(float\)"):
        made(heartbeat_ms=0.5)
    made = NewTopic
    with pytest.raises(TypeError, match="NewTopic: partitions must be int, not None"):
        made("t", None)


@pytest.mark.parametrize(
    ("options", "constructor", "left_out"),
    [
        (ProducerOptions, Producer, {"cluster"}),
        (ConsumerOptions, Consumer, {"cluster", "settings"}),
        (GroupConsumerOptions, GroupConsumer, {"cluster", "group_id", "topics"}),
        (ClientOptions, Client, {"bootstrap", "config"}),
    ],
)
def test_options_are_those_of_the_constructor(options: Any, constructor: Any, left_out: set[str]) -> None:
    parameters = inspect.signature(constructor).parameters
    expected = {name: each.annotation for name, each in parameters.items() if name not in left_out}
    names = vars(sys.modules[constructor.__init__.__module__]) | {"SSLContext": ssl.SSLContext}
    resolved = {name: eval(each, names) if isinstance(each, str) else each for name, each in expected.items()}
    assert get_type_hints(options, localns={"SSLContext": ssl.SSLContext}) == resolved


def test_a_reader_that_breaks_off_leaves_nothing_behind() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(ports: ClientPorts) -> None:
        async with Client("broker-0", ports=ports) as client:
            for number in range(5):
                await client.publish("t", str(number))
            async for record in client.consume("t"):
                if record.offset == 2:
                    break
            await asyncio.sleep(1)
            assert [type(each).__name__ for each in client._opened] == ["Producer"]
            idle = [record async for record in client.consume("t", start=3, partitions=[0], idle_ms_max=700)]
            assert [record.offset for record in idle] == [3, 4]

    play(brokers, story)


def test_closing_delivers_what_was_sent() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")

    async def story(ports: ClientPorts) -> None:
        async with Client("broker-0", ports=ports) as client:
            producer = client.producer(linger_ms=60_000)
            for number in range(10):
                await producer.send("t", b"%d" % number)
        with pytest.raises(Closed):
            await client.publish("t", b"late")

    play(brokers, story)
    assert len(log.records()) == 10


def test_importing_penstock_costs_nothing_until_the_client_is_asked_for() -> None:
    program = (
        "import sys, penstock, penstock.records.rows, penstock.wire.codec\n"
        "heavy = [name for name in ('asyncio', 'penstock.client', 'penstock.host') if name in sys.modules]\n"
        "assert not heavy, heavy\n"
        "assert penstock.Client.__name__ == 'Client'\n"
        "assert penstock.SyncClient.__name__ == 'SyncClient'\n"
        "try:\n    penstock.Nothing\nexcept AttributeError: pass\nelse: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert penstock.Client is Client


def test_the_twin_that_blocks_says_the_same_and_ends_its_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="not an address"):
        SyncClient("kafka://nowhere")
    client = Client.blocking("127.0.0.1:1", timeout_ms=200)
    with pytest.raises(Unreachable, match="nothing listens there"):
        client.topics()
    with pytest.raises(Unreachable):
        client.publish("t", b"")
    with pytest.raises(Unreachable):
        next(client.consume("t"))
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.topics()
    assert threading.active_count() == before
