"""Settings of topics, brokers and groups: values, sources, and incremental changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import check
from penstock.model.errors import ErrorCode
from penstock.model.setting_gap import GAPS_SETTING, SettingGap, gaps_from_json
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class ConfigKind(IntEnum):
    """The type of the resource that has the settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value was set."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, _value: object) -> "ConfigSource":
        return cls.UNKNOWN


class Change(IntEnum):
    """The operation on a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. The value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether the value is the built-in default."""
        return self.source is ConfigSource.DEFAULT


async def describe_configs(
    cluster: Cluster,
    kind: ConfigKind,
    name: str,
    *,
    names: Sequence[str] | None = None,
    timeout_ms: int | None = None,
) -> dict[str, ConfigEntry]:
    """Settings by name: all, or only those in `names`."""
    response = await cluster.ask_checked(
        _question(kind, [name], names),
        DescribeConfigsResponse,
        lambda answer: [each.error_code for each in answer.results if each.error_code is not ErrorCode.NONE],
        node_id=lambda: _home(kind, name),
        timeout_ms=await _know_brokers(cluster, kind, timeout_ms),
    )
    (result,) = response.results
    check(result.error_code, result.error_message, f"{kind.name.lower()} {name}")
    return _entries(result)


async def describe_configs_at(
    connection: BrokerConnection, kind: ConfigKind, name: str, names: Sequence[str]
) -> dict[str, ConfigEntry]:
    """Settings in `names`, from the node at the other end. Makes one attempt."""
    (result,) = (await connection.ask(_question(kind, [name], names), DescribeConfigsResponse)).results
    check(result.error_code, result.error_message, f"{kind.name.lower()} {name}")
    return _entries(result)


async def describe_topic_configs(
    cluster: Cluster, topics: Sequence[str], *, names: Sequence[str] | None = None, timeout_ms: int | None = None
) -> dict[str, dict[str, ConfigEntry]]:
    """Settings of several topics; topics with an error, such as deleted ones, are left out."""
    request = _question(ConfigKind.TOPIC, topics, names)
    response = await cluster.ask_any(request, DescribeConfigsResponse, timeout_ms=timeout_ms)
    return {each.resource_name: _entries(each) for each in response.results if each.error_code is ErrorCode.NONE}


async def setting_gaps(cluster: Cluster, *, timeout_ms: int | None = None) -> dict[str, SettingGap]:
    """Settings that this version of the cluster accepts without effect; none where a cluster does not report them."""
    found = await describe_configs(cluster, ConfigKind.BROKER, "", names=[GAPS_SETTING], timeout_ms=timeout_ms)
    entry = found.get(GAPS_SETTING)
    return {} if entry is None or entry.value is None else gaps_from_json(entry.value)


def _question(kind: ConfigKind, subjects: Sequence[str], names: Sequence[str] | None) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=each, configuration_keys=names)
            for each in subjects
        ]
    )


def _entries(result: DescribeConfigsResult) -> dict[str, ConfigEntry]:
    entries = [
        ConfigEntry(
            each.name,
            each.value,
            ConfigSource(each.config_source),
            each.read_only,
            each.is_sensitive,
            each.documentation or None,
        )
        for each in result.configs
    ]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}


async def alter_configs(
    cluster: Cluster,
    kind: ConfigKind,
    name: str,
    changes: Mapping[str, tuple[Change, str | None]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Changes single settings; the others keep their values."""
    configs = [
        AlterableConfig(name=key, config_operation=change, value=value) for key, (change, value) in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=validate_only,
    )
    response = await cluster.ask_checked(
        request,
        IncrementalAlterConfigsResponse,
        lambda answer: [each.error_code for each in answer.responses if each.error_code is not ErrorCode.NONE],
        node_id=lambda: _home(kind, name),
        timeout_ms=await _know_brokers(cluster, kind, timeout_ms),
    )
    (result,) = response.responses
    check(result.error_code, result.error_message, f"{kind.name.lower()} {name}")


def _home(kind: ConfigKind, name: str) -> int | None:
    """The broker to query: only a broker itself holds its own settings; any broker (None) holds the others."""
    return int(name) if kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER) and name else None


async def _know_brokers(cluster: Cluster, kind: ConfigKind, timeout_ms: int | None) -> int | None:
    if kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER) and not cluster.view.brokers:
        await cluster.refresh(timeout_ms=timeout_ms)
    return timeout_ms
