"""Our registry of settings against a running Kafka: names, types, defaults, synonyms, and errors for bad values."""

from collections.abc import Mapping

import pytest

from harness.kafka.kafka_node import KafkaNode
from harness.raw_client import RawClient
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.checks import check_dynamic_broker, check_group, check_topic
from penstock.metadata.settings.describe import Row, describe_broker, describe_group, describe_topic
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import InvalidSetting, Value
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

TOPIC, BROKER, GROUP = 2, 4, 32
OURS = {
    "durability",
    "record.validation",
    "log.durability",
    "log.record.validation",
    "broker.decommission",
    "auto.balance.enable",
    "reassignment.leader.interval.ms",
    "reassignment.replicas.per.broker.max",
    "reassignment.bytes.per.second.max",
    "metrics.listener",
    "metrics.partitions.max",
}
SOONER = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""Our defaults that differ from Kafka's: a dead broker has to be detected within three seconds."""
INTERNAL = {"internal.segment.bytes"}
TEXTS = (
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "-2",
        "-3",
        "5",
        " 5 ",
        "+5",
        "05",
        "1_000",
        "0x10",
        "1.5",
        "0.5",
        ".5",
        "1e-1d",
        "-0.1",
    ),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1048575", "1048576", "Infinity", "x"),
    *("true", "TRUE", "False", "yes", "*", "0:1", "0:1,1:2", "a:b", "delete", "compact", "compact,delete", "Compact"),
    *("compact , delete", "compact,,delete", "compact,compact", "05", "gzip", "GZIP", "snappy", "producer", "none"),
    *("CreateTime", "LogAppendTime", "createtime", "10", "17", "18", "22", "23", "100000", "-131073"),
    *("earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S", "read_committed", "READ_COMMITTED"),
)
"""Valid for one setting, invalid for another."""


def described(client: RawClient, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    (result,) = client.ask(request, DescribeConfigsResponse).results
    assert result.error_code is ErrorCode.NONE
    return {row.name: row for row in result.configs}


def told(row: DescribeConfigsResourceResult) -> tuple[object, ...]:
    synonyms = tuple((s.name, s.value, s.source) for s in row.synonyms)
    return row.name, row.value, row.config_source, row.config_type, row.read_only, row.is_sensitive, synonyms


def told_by_us(row: Row) -> tuple[object, ...]:
    synonyms = tuple((s.name, s.value, s.source) for s in row.synonyms)
    return row.name, row.value, row.source, row.kind or 0, row.read_only, row.is_sensitive, synonyms


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows if row.name not in OURS}


@pytest.fixture(scope="module")
def broker(kafka: KafkaNode, kafka_client: RawClient) -> BrokerSettings:
    """The settings of their broker in our representation."""
    static = {**kafka.properties, "broker.id": kafka.properties["node.id"]}
    cluster = {name: row.value for name, row in described(kafka_client, BROKER, "").items() if row.value is not None}
    own = {
        synonym.name: synonym.value
        for row in described(kafka_client, BROKER, "1").values()
        for synonym in row.synonyms
        if synonym.source == 2 and synonym.value is not None
    }
    return BrokerSettings(static, cluster, own)


def test_a_topic_is_described_alike(kafka_client: RawClient, broker: BrokerSettings) -> None:
    overrides = {"retention.ms": "+5", "cleanup.policy": "compact , delete", "preallocate": "TRUE"}
    for name, given in {"settings-plain": {}, "settings-own": overrides}.items():
        kafka_client.create_topic(name, settings=given)
        theirs = described(kafka_client, TOPIC, name)
        ours = by_name(describe_topic(given, broker))
        assert {n: told_by_us(row) for n, row in ours.items()} == {n: told(row) for n, row in theirs.items()}
        assert all(row.documentation for row in ours.values())
        assert not [n for n, row in ours.items() if row.documentation == theirs[n].documentation], "in our own words"


def test_a_broker_is_described_alike(kafka_client: RawClient, broker: BrokerSettings) -> None:
    theirs = described(kafka_client, BROKER, "1")
    ours = by_name(describe_broker(broker))
    ours.pop("log.dir")  # we do not use a default outside of the project
    assert {name: ours.pop(name).value for name in SOONER} == SOONER
    unknown = set(ours) - set(theirs)
    assert not unknown
    assert [told_by_us(row) for row in ours.values()] == [told(theirs[name]) for name in ours]
    assert not [n for n, row in ours.items() if row.documentation == theirs[n].documentation], "in our own words"


def test_a_group_is_described_alike(kafka_client: RawClient, broker: BrokerSettings) -> None:
    for name, given in {"settings-plain": {}, "settings-own": {"share.auto.offset.reset": "earliest"}}.items():
        for key, value in given.items():
            assert altered(kafka_client, GROUP, name, key, value, validate_only=False) == (ErrorCode.NONE, None)
        _wait_until_told(kafka_client, name, given)
        theirs = described(kafka_client, GROUP, name)
        ours = by_name(describe_group(given, broker))
        assert {n: told_by_us(row) for n, row in ours.items()} == {n: told(row) for n, row in theirs.items()}


def _wait_until_told(client: RawClient, group: str, given: Mapping[str, str]) -> None:
    while any(described(client, GROUP, group)[key].value != value for key, value in given.items()):
        pass


@pytest.fixture(scope="module")
def topic(kafka_client: RawClient) -> str:
    """A topic whose settings are validated and never changed."""
    return kafka_client.create_topic("settings-values").name


def altered(
    client: RawClient, kind: int, name: str, key: str, value: str, *, validate_only: bool = True
) -> tuple[ErrorCode, str | None]:
    """Their response to a change."""
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = client.ask(request, IncrementalAlterConfigsResponse).responses
    return answer.error_code, answer.error_message


def said_by_us(complaint: InvalidSetting) -> tuple[ErrorCode, str]:
    return complaint.code, str(complaint).partition("; did you mean")[0]


@pytest.mark.parametrize("name", [n for n in TOPIC_SETTINGS if n not in OURS | INTERNAL] + ["retention.mss", "bogus"])
def test_a_topic_takes_and_refuses_the_same_texts(
    kafka_client: RawClient, broker: BrokerSettings, topic: str, name: str
) -> None:
    defaults: dict[str, Value] = {key: value for key, (value, _) in broker.topic_defaults.items()}
    differences = []
    for value in TEXTS:
        try:
            check_topic({name: value}, defaults)
            ours: tuple[ErrorCode, str | None] = (ErrorCode.NONE, None)
        except InvalidSetting as complaint:
            ours = said_by_us(complaint)
        theirs = altered(kafka_client, TOPIC, topic, name, value)
        if ours != theirs:
            differences.append((value, ours, theirs))
    assert not differences


@pytest.mark.parametrize("name", [*GROUP_SETTINGS, "bogus"])
def test_a_group_takes_and_refuses_the_same_texts(kafka_client: RawClient, broker: BrokerSettings, name: str) -> None:
    defaults: dict[str, Value] = {key: value for key, (value, _) in broker.group_defaults.items()}
    values = {key: broker.value(key) for key in BROKER_SETTINGS}
    differences = []
    for value in (*TEXTS, "44999", "45000", "60000", "60001", "4999", "15001", "14999", "2000", "100"):
        try:
            check_group({name: value}, defaults, values)
            ours: tuple[ErrorCode, str | None] = (ErrorCode.NONE, None)
        except InvalidSetting as complaint:
            ours = said_by_us(complaint)
        theirs = altered(kafka_client, GROUP, "settings-values", name, value)
        if ours != theirs:
            differences.append((value, ours, theirs))
    assert not differences


def test_a_running_broker_takes_and_refuses_the_same_names(kafka_client: RawClient) -> None:
    """Uses a text that only strings accept, so that the name is checked first."""
    differences = []
    for name, setting in BROKER_SETTINGS.items():
        if name in OURS or setting.kind.name in ("STRING", "LIST", "PASSWORD"):
            continue  # we cannot know how a plug-in judges a text
        for resource in ("", "1"):
            try:
                check_dynamic_broker({name: "x"}, is_per_broker=bool(resource))
                ours: tuple[ErrorCode, str | None] = (ErrorCode.NONE, None)
            except InvalidSetting as complaint:
                ours = said_by_us(complaint)
            theirs = altered(kafka_client, BROKER, resource, name, "x")
            if ours != theirs:
                differences.append((name, resource, ours, theirs))
    assert not differences
