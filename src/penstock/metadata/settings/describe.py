"""Settings as DescribeConfigs reports them: value, source, synonyms, type, documentation.

As in Kafka, a setting's source and synonyms begin with the first synonym of its own primary name: a retention that the
file sets in hours is reported with its value, but as a default. Sensitive values are never reported.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.metadata.settings.broker import BROKER_SETTINGS, SYNONYMS
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import InvalidSetting, Kind, Setting, Source, Update, Value, show
from penstock.metadata.settings.topic import TOPIC_SETTINGS


@dataclass(frozen=True, slots=True)
class SynonymRow:
    """One source that supplies, or could supply, the value."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Row:
    """One setting of one resource."""

    name: str
    value: str | None
    source: Source
    kind: Kind | None
    is_sensitive: bool
    read_only: bool
    synonyms: tuple[SynonymRow, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether the setting has its default value."""
        return self.source is Source.DEFAULT


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerSettings, names: Iterable[str] | None = None
) -> list[Row]:
    """The settings of a topic; `names` selects settings, None or no names selects all."""
    return [
        _owned_row(setting, overrides, broker.topic_defaults[setting.name][0], Source.TOPIC, broker)
        for setting in _asked(TOPIC_SETTINGS, names)
        if not setting.is_internal or setting.name in overrides
    ]


def describe_group(
    overrides: Mapping[str, str], broker: BrokerSettings, names: Iterable[str] | None = None
) -> list[Row]:
    """The settings of a group."""
    return [
        _owned_row(setting, overrides, broker.group_defaults[setting.name][0], Source.GROUP, broker)
        for setting in _asked(GROUP_SETTINGS, names)
    ]


def describe_broker(broker: BrokerSettings, names: Iterable[str] | None = None) -> list[Row]:
    """The settings of one broker, including dynamic ones that are not in the registry."""
    known = {**BROKER_SETTINGS, **{s: _unknown_setting(s) for s in (*broker.dynamic_default, *broker.dynamic)}}
    known |= BROKER_SETTINGS
    return [_broker_row(setting, broker, lambda _: True) for setting in _asked(known, names)]


def describe_cluster(broker: BrokerSettings, names: Iterable[str] | None = None) -> list[Row]:
    """The dynamic settings of all brokers together: resource type BROKER with an empty name."""
    known = {name: BROKER_SETTINGS.get(name) or _unknown_setting(name) for name in broker.dynamic_default}
    return [
        _broker_row(setting, broker, lambda source: source is Source.DYNAMIC_DEFAULT_BROKER)
        for setting in _asked(known, names)
    ]


def _asked(settings: Mapping[str, Setting], names: Iterable[str] | None) -> list[Setting]:
    wanted = None if names is None else frozenset(names)
    return [settings[name] for name in sorted(settings) if not wanted or name in wanted]


def _unknown_setting(name: str) -> Setting:
    """A setting outside the registry; treated as a password, because it may be one."""
    return Setting(name, Kind.PASSWORD, None, "", update=Update.CLUSTER_WIDE)


def _owned_row(
    setting: Setting, overrides: Mapping[str, str], default: Value, own: Source, broker: BrokerSettings
) -> Row:
    """Row for a setting of a topic or group, whose synonyms are broker settings."""
    value = show(default)
    synonyms = _broker_synonyms(setting.synonyms[0].name, broker) if setting.synonyms else []
    if own is Source.GROUP and not setting.synonyms:
        synonyms.append(SynonymRow(setting.name, value, Source.DEFAULT))
    if setting.name in overrides:
        try:
            value = show(setting.parse(overrides[setting.name]))
        except InvalidSetting:
            value = overrides[setting.name]
        synonyms.insert(0, SynonymRow(setting.name, value, own))
    return _row(setting, value, synonyms, read_only=False)


def _broker_row(setting: Setting, broker: BrokerSettings, is_wanted: Callable[[Source], bool]) -> Row:
    synonyms = [row for row in _broker_synonyms(setting.name, broker) if is_wanted(row.source)]
    value = broker.text(setting.name) if setting.name in BROKER_SETTINGS else None
    return _row(setting, value, synonyms, read_only=setting.update is Update.READ_ONLY)


def _broker_synonyms(name: str, broker: BrokerSettings) -> list[SynonymRow]:
    rows = [
        SynonymRow(each, layer[each], source)
        for source, layer in broker.layers
        for each in SYNONYMS.get(name, (name,))
        if each in layer
    ]
    first = next((index for index, row in enumerate(rows) if row.name == name), len(rows))
    return rows[first:]


def _row(setting: Setting, value: str | None, synonyms: list[SynonymRow], *, read_only: bool) -> Row:
    hides = setting.is_sensitive
    return Row(
        name=setting.name,
        value=None if hides else value,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        kind=setting.kind if setting.documentation else None,
        is_sensitive=hides,
        read_only=read_only,
        synonyms=tuple(SynonymRow(s.name, None if hides else s.value, s.source) for s in synonyms),
        documentation=setting.documentation or None,
    )
