"""Kafka's command-line tools against a node, beyond the client matrix: their output is correct."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import confluent_kafka
import pytest

from harness.kafka.kafka_tools import KafkaTools, ToolFailed, run_alone
from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient
from penstock.records.compression import Codec
from penstock.records.rows import Record
from penstock.wire.api import Api
from tests.compatibility.raw_groups import RawGroups
from tests.compatibility.samples import NOW_MS, build

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("kafka_tools")]

API_LINE = re.compile(r"^\t\w+\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\],?$", re.MULTILINE)

WAIT_S: Final = 60.0


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    started = KafkaTools()
    yield started
    started.close()


def test_kafka_broker_api_versions_finds_every_api_usable(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    said = tools.run("kafka-broker-api-versions", "--bootstrap-server", penstock.bootstrap).decode()
    shown = {int(key): range(int(first), int(last or first) + 1) for key, first, last, _ in API_LINE.findall(said)}
    assert shown == penstock_client.served
    assert {Api.PRODUCE, Api.FETCH, Api.METADATA} <= set(shown)
    assert said.startswith(f"{penstock.bootstrap} (id: 1 ")


def test_kafka_cluster_names_the_cluster_and_its_nodes(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    said = tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", penstock.bootstrap).decode()
    assert said.strip() == f"Cluster ID: {penstock_client.metadata().cluster_id}"
    _, row = (
        tools.run("kafka-cluster", "list-endpoints", "--bootstrap-server", penstock.bootstrap).decode().splitlines()
    )
    host, _, port = penstock.bootstrap.rpartition(":")
    assert row.split() == ["1", host, port, "null", "unfenced", "broker"]


def test_kafka_features_describes_what_is_finalized(tools: KafkaTools, penstock: PenstockNode) -> None:
    said = tools.run("kafka-features", "--bootstrap-server", penstock.bootstrap, "describe").decode()
    assert re.search(
        r"Feature: eligible\.leader\.replicas\.version\s+SupportedMinVersion: 0\s.*FinalizedVersionLevel: 1", said
    )
    assert "Feature: metadata.version" in said


def test_offsets_and_sizes_are_those_of_what_was_produced(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("offsets-and-sizes")
    batches = [build([Record(0, NOW_MS + time, b"key", b"value")], Codec.NONE) for time in (5, 9, 7)]
    for batch in batches:
        penstock_client.produce(topic, 0, batch)
    bootstrap = ("--bootstrap-server", penstock.bootstrap)
    for moment, offset in ("earliest", 0), ("latest", 3), ("max-timestamp", 1), (str(NOW_MS + 9), 1):
        said = tools.run("kafka-get-offsets", *bootstrap, "--topic", topic.name, "--time", moment).decode()
        assert said.strip() == f"{topic.name}:0:{offset}", moment
    said = tools.run("kafka-log-dirs", *bootstrap, "--describe", "--topic-list", topic.name).decode()
    (broker,) = json.loads(said.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    (partition,) = directory["partitions"]
    assert partition == {
        "partition": f"{topic.name}-0",
        "size": sum(map(len, batches)),
        "offsetLag": 0,
        "isFuture": False,
    }


def test_kafka_producer_perf_test_stores_what_it_counts(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("perf")
    load = ["--num-records", "5000", "--record-size", "100", "--throughput", "-1"]
    said = tools.run("kafka-producer-perf-test", "--bootstrap-server", penstock.bootstrap, "--topic", topic.name, *load)
    assert said.decode().startswith("5000 records sent")
    assert penstock_client.fetch(topic, 0, 0).high_watermark == 5000


def test_kafka_verifiable_producer_sees_every_message_stored(
    penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("verifiable")
    said = run_alone(
        "kafka-verifiable-producer",
        *("--bootstrap-server", penstock.bootstrap, "--topic", topic.name, "--max-messages", "50", "--acks", "-1"),
    )
    events = [json.loads(line) for line in said.splitlines()]
    stored = {event["offset"]: event["value"] for event in events if event["name"] == "producer_send_success"}
    assert stored == {offset: str(offset) for offset in range(50)}
    (told,) = (event for event in events if event["name"] == "tool_data")
    assert (told["sent"], told["acked"]) == (50, 50)
    assert penstock_client.fetch(topic, 0, 0).high_watermark == 50


def test_kafka_configs_takes_a_setting_back(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("configs", settings={"retention.ms": "123456789", "segment.bytes": "22222222"})
    place = ("--bootstrap-server", penstock.bootstrap, "--topic", topic.name)

    def changed() -> list[str]:
        lines = tools.run("kafka-configs", *place, "--describe").decode().splitlines()[1:]
        return [line.split()[0] for line in lines]

    assert changed() == ["retention.ms=123456789", "segment.bytes=22222222"]
    tools.run("kafka-configs", *place, "--alter", "--delete-config", "retention.ms")
    assert changed() == ["segment.bytes=22222222"]


def test_kafka_configs_switches_the_log_of_requests_of_a_running_node(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    place = ("--bootstrap-server", penstock.bootstrap, "--entity-type", "broker-loggers", "--entity-name", "1")

    def requests_logged() -> int:
        before = penstock.log.count("DEBUG requests: ")
        penstock_client.metadata()
        return penstock.log.count("DEBUG requests: ") - before

    assert requests_logged() == 0
    tools.run("kafka-configs", *place, "--alter", "--add-config", "penstock.requests=DEBUG")
    assert "penstock.requests=DEBUG" in tools.run("kafka-configs", *place, "--describe").decode()
    assert requests_logged() >= 1
    tools.run("kafka-configs", *place, "--alter", "--delete-config", "penstock.requests")
    assert requests_logged() == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--create", "--topic", "there"], "Topic 'there' already exists."),
        (["--alter", "--topic", "there", "--partitions", "1"], "would not be an increase"),
        (["--create", "--topic", "a/b"], "Topic name is invalid"),
        (["--create", "--topic", "wide", "--replication-factor", "3"], "replication factor"),
    ],
    ids=["exists", "no increase", "bad name", "too few nodes"],
)
def test_kafka_topics_shows_the_nodes_refusal(
    arguments: list[str], sentence: str, tools: KafkaTools, penstock: PenstockNode
) -> None:
    bootstrap = ("--bootstrap-server", penstock.bootstrap)
    tools.run("kafka-topics", *bootstrap, "--create", "--if-not-exists", "--topic", "there", "--partitions", "2")
    with pytest.raises(ToolFailed) as failed:
        tools.run("kafka-topics", *bootstrap, *arguments)
    assert sentence.lower() in str(failed.value).lower()


def test_kafka_topics_lists_and_describes(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("described", 2, {"retention.ms": "123456789"})
    bootstrap = ("--bootstrap-server", penstock.bootstrap)
    assert topic.name in tools.run("kafka-topics", *bootstrap, "--list").decode().splitlines()
    head, *parts = tools.run("kafka-topics", *bootstrap, "--describe", "--topic", topic.name).decode().splitlines()
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=123456789" in head
    assert [re.findall(r"(?:Partition|Leader|Replicas|Isr): (\d+)", part) for part in parts] == [
        ["0", "1", "1", "1"],
        ["1", "1", "1", "1"],
    ]
    assert tools.run("kafka-topics", *bootstrap, "--describe", "--under-replicated-partitions") == b""


def test_groups_of_the_new_protocol_are_seen_set_back_and_taken_away(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic, group = penstock_client.create_topic("tools-consumer", 2), "tools-consumer-group"

    def ask(*arguments: str) -> str:
        command = ("--bootstrap-server", penstock.bootstrap, "--group", group, *arguments)
        return tools.run("kafka-consumer-groups", *command).decode()

    consumer: Any = confluent_kafka.Consumer(
        {"bootstrap.servers": penstock.bootstrap, "group.id": group, "group.protocol": "consumer"}
    )
    consumer.subscribe([topic.name])
    end_s = time.monotonic() + WAIT_S
    while len(consumer.assignment()) < 2:
        assert consumer.poll(0.1) is None
        assert time.monotonic() < end_s
    places = [confluent_kafka.TopicPartition(topic.name, index, 0) for index in range(2)]
    consumer.commit(offsets=places, asynchronous=False)
    assert f"{group} " in ask("--describe", "--members", "--verbose")
    assert "Stable" in ask("--describe", "--state")
    consumer.close()
    rows = [line.split()[:5] for line in ask("--describe").splitlines() if line.startswith(group)]
    assert sorted(rows) == [[group, topic.name, str(index), "0", "0"] for index in range(2)]
    assert topic.name in ask("--reset-offsets", "--to-latest", "--topic", topic.name, "--execute")
    listed = tools.run("kafka-consumer-groups", "--bootstrap-server", penstock.bootstrap, "--list").decode()
    assert group in listed.split()
    assert "Successful" in ask("--delete-offsets", "--topic", topic.name)
    assert "successful" in ask("--delete")


def test_kafka_consumer_groups_reads_resets_and_deletes(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic, raw, group = penstock_client.create_topic("grouped", 2), RawGroups(penstock_client), "of-tools"
    for partition in range(2):
        records = [Record(number, NOW_MS + 1000 * number, b"key", b"value") for number in range(10)]
        penstock_client.produce(topic, partition, build(records, Codec.NONE))
    raw.commit(group, topic.name, {0: 4, 1: 10})

    def run(*arguments: str) -> list[list[str]]:
        said = tools.run("kafka-consumer-groups", "--bootstrap-server", penstock.bootstrap, *arguments).decode()
        return [line.split() for line in said.splitlines() if line.strip()]

    place = ("--group", group, "--reset-offsets", "--topic", topic.name)

    def reset(*where: str) -> dict[int, int]:
        return {int(line[2]): int(line[3]) for line in run(*place, *where) if line[0] == group}

    member_id = raw.join(group, topic.name, 2)
    assert [group] in run("--list")
    described = [line for line in run("--describe", "--group", group) if line[0] == group]
    assert [line[2:6] for line in described] == [["0", "4", "10", "6"], ["1", "10", "10", "0"]]
    assert {line[6] for line in described} == {member_id}
    (seated,) = (line for line in run("--describe", "--group", group, "--members", "--verbose") if line[0] == group)
    assert member_id in seated
    assert f"{topic.name}:0,1" in "".join(seated)
    # It reports this in a message, and still exits with 0.
    assert any("inactive," in line for line in run(*place, "--to-earliest", "--execute"))
    assert raw.committed(group) == {0: 4, 1: 10}, "a group at work stays where it is"
    raw.leave(group, member_id)

    assert reset("--to-earliest", "--dry-run") == {0: 0, 1: 0}
    assert raw.committed(group) == {0: 4, 1: 10}, "who only looks changes nothing"
    for where, wanted in (
        (["--shift-by", "-3"], {0: 1, 1: 7}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-offset", "99"], {0: 10, 1: 10}),
        (["--by-duration", "P10000D"], {0: 0, 1: 0}),
    ):
        assert reset(*where, "--execute") == wanted, where
        assert raw.committed(group) == wanted, where
    run("--delete", "--group", group)
    assert group not in raw.names()


def test_kafka_consumer_perf_test_counts_what_is_there(
    tools: KafkaTools, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("perf-consumed", 2)
    load = ["--num-records", "5000", "--record-size", "100", "--throughput", "-1"]
    place = ["--bootstrap-server", penstock.bootstrap, "--topic", topic.name]
    tools.run("kafka-producer-perf-test", *place, *load)
    said = tools.run("kafka-consumer-perf-test", *place, "--num-records", "5000", "--hide-header").decode()
    assert said.split(",")[4].strip() == "5000", said
