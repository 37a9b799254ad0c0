"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources in every version."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from penstock.host.lossy import LossyDisk
from penstock.metadata.commands import NewTopic
from penstock.metadata.image import BROKER, GROUP, TOPIC
from penstock.metadata.settings.effects import GAPS
from penstock.model.errors import ErrorCode
from penstock.model.setting_gap import GAPS_SETTING, gaps_from_json
from penstock.server.connections.client_warnings import REMEMBERED_S
from penstock.server.handlers.topics import describe_configs as describing
from penstock.server.handlers.topics.configs import BROKER_LOGGER, CLIENT_METRICS
from penstock.server.handlers.topics.log_levels import levels
from penstock.server.loop.pieces import TOO_LARGE
from penstock.server.quorum.metadata_log import METADATA_LOG
from penstock.wire.messages import alter_configs as replacing
from penstock.wire.messages import incremental_alter_configs as changing
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.unit.server.handlers.bare_node import NONE
from tests.unit.server.handlers.cluster import Cluster, clustered

SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID = ErrorCode.INVALID_REQUEST
UNSUPPORTED_LEVEL = (
    "Cannot set the log level of root to info as it is not a supported log level. "
    "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
)

Changes = Sequence[tuple[str, int, str | None]]


async def describe(cluster: Cluster, *asked: tuple[Any, ...], version: int = 4, **options: Any) -> Any:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys[0] if keys else None)
        for kind, name, *keys in asked
    ]
    request = DescribeConfigsRequest(resources=resources, **options)
    return (await cluster.ask(cluster.describing_configs.describe_configs, request, version)).results


async def values(cluster: Cluster, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    (result,) = await describe(cluster, (kind, name, keys or None))
    assert result.error_code is NONE
    return {config.name: (config.value, config.config_source) for config in result.configs}


async def change(cluster: Cluster, *resources: tuple[int, str, Changes], version: int = 1, **options: Any) -> Any:
    request = changing.IncrementalAlterConfigsRequest(
        resources=[
            changing.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[changing.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in configs],
            )
            for kind, name, configs in resources
        ],
        **{"validate_only": False} | options,
    )
    return (await cluster.ask(cluster.configs.incremental_alter_configs, request, version)).responses


async def change_all(
    cluster: Cluster, *resources: tuple[int, str, Mapping[str, str | None]], version: int = 2, **options: Any
) -> Any:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[replacing.AlterableConfig(name=n, value=v) for n, v in configs.items()],
            )
            for kind, name, configs in resources
        ],
        **{"validate_only": False} | options,
    )
    return (await cluster.ask(cluster.configs.alter_configs, request, version)).responses


def told(results: Any) -> list[tuple[int, str, ErrorCode]]:
    return [(result.resource_type, result.resource_name, result.error_code) for result in results]


# --- describing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", configs=(("segment.bytes", "2000000"),)))
        options: dict[str, Any] = {"include_synonyms": True}
        if version >= 3:
            options["include_documentation"] = True
        (result,) = await describe(cluster, (TOPIC, "t", ["segment.bytes"]), version=version, **options)
        assert (result.error_code, result.error_message, result.resource_name) == (NONE, "", "t")
        (config,) = result.configs
        assert (config.name, config.value, config.config_source) == ("segment.bytes", "2000000", 1)
        assert (config.read_only, config.is_sensitive) == (False, False)
        assert [(s.name, s.value, s.source) for s in config.synonyms] == [
            ("segment.bytes", "2000000", 1),
            ("log.segment.bytes", "1073741824", 5),
        ]
        assert config.config_type == (3 if version >= 3 else 0)
        assert bool(config.documentation) == (version >= 3)
        (result,) = await describe(cluster, (TOPIC, "t"), version=version)
        assert len(result.configs) > 30
        assert not any(config.synonyms for config in result.configs)
        assert not any(config.documentation for config in result.configs)
        (same,) = await describe(cluster, (TOPIC, "t", []), version=version)
        assert same.configs == result.configs

    clustered(story)


def test_brokers_groups_and_all_brokers_together() -> None:
    async def story(cluster: Cluster) -> None:
        own = await values(cluster, BROKER, "1")
        assert own["num.io.threads"] == ("8", 5)
        assert own["log.segment.bytes"] == ("5000000", 4)
        assert len(own) > 100
        assert await values(cluster, BROKER, "") == {}
        await change(cluster, (BROKER, "", [("log.segment.bytes", SET, "4000000")]))
        assert await values(cluster, BROKER, "") == {"log.segment.bytes": ("4000000", 3)}
        assert (await values(cluster, BROKER, "1", "log.segment.bytes")) == {"log.segment.bytes": ("4000000", 3)}
        await change(cluster, (BROKER, "1", [("log.segment.bytes", SET, "3000000")]))
        assert (await values(cluster, BROKER, "1", "log.segment.bytes")) == {"log.segment.bytes": ("3000000", 2)}
        group = await values(cluster, GROUP, "g")
        assert group["consumer.session.timeout.ms"] == ("45000", 5)
        await change(cluster, (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]))
        assert (await values(cluster, GROUP, "g"))["consumer.session.timeout.ms"] == ("50000", 8)

    clustered(story, settings={"log.segment.bytes": "5000000"})


def test_what_cannot_be_described() -> None:
    async def story(cluster: Cluster) -> None:
        results = await describe(
            cluster,
            (TOPIC, "nobody"),
            (TOPIC, "a b"),
            (TOPIC, ""),
            (BROKER, "7"),
            (BROKER, "x"),
            (BROKER_LOGGER, ""),
            (BROKER_LOGGER, "7"),
            (BROKER_LOGGER, "x"),
            (GROUP, ""),
            (CLIENT_METRICS, "m"),
            (BROKER, "1", ["bogus"]),
        )
        wrong = "Topic name is invalid: "
        assert [(result.error_code, result.error_message) for result in results] == [
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
            (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                wrong + "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, wrong + "the empty string is not allowed"),
            (INVALID, "Unexpected broker id, expected 1 or empty string, but received 7"),
            (INVALID, "Broker id must be an integer, but it is: x"),
            (INVALID, "Broker id must not be empty"),
            (INVALID, "Unexpected broker id, expected 1 but received 7"),
            (INVALID, "Broker id must be an integer, but it is: x"),
            (INVALID, "Group name must not be empty"),
            (INVALID, "This broker keeps no client metrics"),
            (NONE, ""),
        ]
        assert not any(result.configs for result in results)

    clustered(story)


@pytest.mark.parametrize("kind", [0, 1, 3, 64])
def test_an_unknown_type_spoils_the_whole_request(kind: int) -> None:
    async def story(cluster: Cluster) -> None:
        results = await describe(cluster, (kind, "x"), (BROKER, "1"))
        assert told(results) == [(kind, "x", INVALID), (BROKER, "1", INVALID)]
        assert results[0].error_message.startswith("This most likely occurs because")

    clustered(story)


# --- changing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_every_version_replaces(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", configs=(("retention.ms", "5"), ("segment.ms", "6"))))
        asked = (TOPIC, "t", {"retention.ms": "7"})
        assert told(await change_all(cluster, asked, version=version, validate_only=True)) == [(TOPIC, "t", NONE)]
        assert cluster.controller.image.config(TOPIC, "t") == {"retention.ms": "5", "segment.ms": "6"}
        assert told(await change_all(cluster, asked, version=version)) == [(TOPIC, "t", NONE)]
        assert cluster.controller.image.config(TOPIC, "t") == {"retention.ms": "7"}
        results = await change_all(
            cluster,
            (TOPIC, "t", {"bogus": "1"}),
            (TOPIC, "nobody", {}),
            (BROKER, "7", {}),
            (BROKER_LOGGER, "1", {"root": "INFO"}),
            version=version,
        )
        assert [result.error_code for result in results] == [
            ErrorCode.INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            INVALID,
            INVALID,
        ]
        assert results[3].error_message == "Unknown resource type 8"
        assert await change_all(cluster, version=version) == ()

    clustered(story)


@pytest.mark.parametrize("version", range(2))
def test_every_version_changes(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", configs=(("retention.ms", "5"),)))
        partition = cluster.partitions.named("t", 0)
        assert partition is not None
        asked = (TOPIC, "t", [("retention.ms", SET, "9"), ("cleanup.policy", APPEND, "compact")])
        assert told(await change(cluster, asked, version=version, validate_only=True)) == [(TOPIC, "t", NONE)]
        assert partition.log.settings.retention_ms == 5
        assert told(await change(cluster, asked, version=version)) == [(TOPIC, "t", NONE)]
        assert partition.log.settings.retention_ms == 9, "it is in force when the answer comes"
        assert partition.rules.is_compacted
        results = await change(
            cluster,
            (TOPIC, "t", [("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "compact")]),
            (TOPIC, "x y", [("retention.ms", SET, "1")]),
            (TOPIC, "nobody", [("retention.ms", SET, "1")]),
            (BROKER, "1", [("node.id", SET, "5")]),
            (CLIENT_METRICS, "m", [("interval.ms", SET, "5")]),
            version=version,
        )
        assert [result.error_code for result in results] == [
            NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            INVALID,
            INVALID,
        ]
        assert cluster.controller.image.config(TOPIC, "t") == {"cleanup.policy": "delete"}
        assert await change(cluster, version=version) == ()

    clustered(story)


def test_a_controller_that_is_offline_is_a_storage_error_for_every_resource() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        disk = cluster.disk
        assert isinstance(disk, LossyDisk)
        disk.fail_next("write", f"logs/{METADATA_LOG}/{0:020d}-0.log")
        broken = ErrorCode.KAFKA_STORAGE_ERROR
        assert told(await change(cluster, (TOPIC, "t", [("retention.ms", SET, "1")]))) == [(TOPIC, "t", broken)]
        assert told(await change_all(cluster, (TOPIC, "t", {}), (BROKER, "", {}))) == [
            (TOPIC, "t", broken),
            (BROKER, "", broken),
        ]
        assert (await describe(cluster, (TOPIC, "t")))[0].error_code is NONE

    clustered(story)


# --- loggers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def quiet() -> Iterator[None]:
    """Restores the log levels."""
    loggers = [logging.getLogger(), logging.getLogger("penstock.node"), logging.getLogger("penstock")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("quiet")
def test_levels_of_loggers_are_told_and_changed() -> None:
    async def story(cluster: Cluster) -> None:
        (result,) = await describe(cluster, (BROKER_LOGGER, "1"))
        names = [config.name for config in result.configs]
        assert names == sorted(names)
        assert {"root", "penstock.node"} <= {*names}
        assert not [name for name in names if name != "root" and not name.startswith("penstock")]
        assert all(config.config_source == 6 for config in result.configs)
        asked = (BROKER_LOGGER, "1", [("penstock.node", SET, "DEBUG")])
        assert told(await change(cluster, asked, validate_only=True)) == [(BROKER_LOGGER, "1", NONE)]
        assert levels()["penstock.node"] != "DEBUG"
        assert told(await change(cluster, asked)) == [(BROKER_LOGGER, "1", NONE)]
        assert await values(cluster, BROKER_LOGGER, "1", "penstock.node") == {"penstock.node": ("DEBUG", 6)}
        await change(cluster, (BROKER_LOGGER, "1", [("root", SET, "FATAL"), ("penstock.node", DELETE, None)]))
        assert levels()["penstock.node"] == "FATAL"

    clustered(story)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("name", "changes", "code", "sentence"),
    [
        ("", [], INVALID, "Node id must be an integer, but it is: "),
        ("x", [], INVALID, "Node id must be an integer, but it is: x"),
        ("7", [], INVALID, "Unexpected node id. Expected 1, but received 7"),
        ("1", [("nobody", SET, "INFO")], ErrorCode.INVALID_CONFIG, "Logger nobody does not exist!"),
        (
            "1",
            [("penstock.node", SET, "DEBUG"), ("root", SET, "info")],
            ErrorCode.INVALID_CONFIG,
            UNSUPPORTED_LEVEL,
        ),
        ("1", [("root", DELETE, None)], INVALID, "Removing the log level of the root logger is not allowed"),
        ("1", [("root", APPEND, "X")], INVALID, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("1", [("root", SUBTRACT, "X")], INVALID, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ("1", [("root", 9, "X")], INVALID, "Unknown operations type 9"),
    ],
)
def test_what_cannot_be_done_to_loggers(name: str, changes: Changes, code: ErrorCode, sentence: str) -> None:
    async def story(cluster: Cluster) -> None:
        before = levels()
        (result,) = await change(cluster, (BROKER_LOGGER, name, changes))
        assert (result.error_code, result.error_message) == (code, sentence)
        assert levels() == before

    clustered(story)


@pytest.mark.usefixtures("quiet")
def test_answers_keep_the_order_of_the_request_and_tell_of_each_resource_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        results = await change(
            cluster,
            (TOPIC, "t", [("retention.ms", SET, "1")]),
            (BROKER_LOGGER, "1", [("nobody", SET, "INFO")]),
            (TOPIC, "nobody", []),
            (BROKER_LOGGER, "2", []),
            (BROKER_LOGGER, "2", []),
        )
        assert told(results) == [
            (TOPIC, "t", NONE),
            (BROKER_LOGGER, "1", ErrorCode.INVALID_CONFIG),
            (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (BROKER_LOGGER, "2", INVALID),
        ]
        assert results[3].error_message == "Each resource must appear at most once."

    clustered(story)


# --- listing ----------------------------------------------------------------------------------------------------------


async def listed(cluster: Cluster, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=kinds)
    response = await cluster.ask(cluster.configs.list_config_resources, request, version)
    assert response.error_code is NONE
    return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]


def test_resources_are_listed_by_type() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("b", "a")
        await change(cluster, (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]))
        topics, broker, logger, group = [(TOPIC, "a"), (TOPIC, "b")], (BROKER, "1"), (BROKER_LOGGER, "1"), (GROUP, "g")
        assert await listed(cluster) == [*topics, broker, logger, group]
        assert await listed(cluster, GROUP, TOPIC, GROUP) == [group, *topics]
        assert await listed(cluster, BROKER) == [broker]
        assert await listed(cluster, CLIENT_METRICS) == []
        assert await listed(cluster, version=0) == []

    clustered(story)


@pytest.mark.parametrize("kind", [0, 1, 3, 64])
def test_what_cannot_be_listed(kind: int) -> None:
    async def story(cluster: Cluster) -> None:
        request = ListConfigResourcesRequest(resource_types=[TOPIC, kind])
        response = await cluster.ask(cluster.configs.list_config_resources, request, 1)
        assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())

    clustered(story)


def test_clock_and_complaints_are_told_to_who_asks_for_them_by_name() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.client_warnings.say("tls", "somebody began with TLS")
        cluster.client_warnings.say("tls", "somebody else began with TLS")
        cluster.client_warnings.tick()
        asked = await values(cluster, BROKER, "1", "penstock.clock.ms", "penstock.complaints", "num.partitions")
        assert int(str(asked["penstock.clock.ms"][0])) == cluster.clock.wall_ms()
        (said,) = json.loads(str(asked["penstock.complaints"][0]))
        assert said == {"kind": "tls", "sentence": "somebody else began with TLS", "times": 2, "seconds_ago": 1}
        assert not [name for name in await values(cluster, BROKER, "1") if name.startswith("penstock.")]
        for _ in range(REMEMBERED_S):
            cluster.client_warnings.tick()
        assert await values(cluster, BROKER, "1", "penstock.complaints") == {"penstock.complaints": ("[]", 5)}

    clustered(story)


@pytest.mark.parametrize("name", ["1", ""])
def test_settings_without_effect_are_reported_by_name(name: str) -> None:
    async def story(cluster: Cluster) -> None:
        (value, _) = (await values(cluster, BROKER, name, GAPS_SETTING))[GAPS_SETTING]
        gaps = gaps_from_json(str(value))
        assert gaps == GAPS
        assert gaps["cleanup.policy"].concerns("compact")
        assert not gaps["cleanup.policy"].concerns("delete")

    clustered(story)


def test_the_documentation_of_a_setting_without_effect_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        (result,) = await describe(
            cluster, (TOPIC, "t", ["preallocate", "retention.ms"]), version=4, include_documentation=True
        )
        inert, other = (str(config.documentation) for config in result.configs)
        assert inert.endswith("preallocate has no effect in this version: files take the room that their records need.")
        assert "no effect" not in other

    clustered(story)


def test_a_resource_that_is_named_many_times_is_described_once_and_an_answer_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        await cluster.create("u")
        found = await describe(
            cluster, *[(TOPIC, "t")] * 500, (TOPIC, "u", ["retention.ms"]), (TOPIC, "u", ["segment.ms"])
        )
        assert [(each.resource_name, each.error_code) for each in found] == [("t", NONE), ("u", NONE)]
        assert [config.name for config in found[1].configs] == ["retention.ms", "segment.ms"]
        monkeypatch.setattr(describing, "CONFIGS_BYTES_MAX", 2_000)
        found = await describe(cluster, (TOPIC, "t"), (TOPIC, "u"))
        assert [each.error_code for each in found] == [NONE, ErrorCode.POLICY_VIOLATION]
        assert found[1].error_message == TOO_LARGE

    clustered(story)
