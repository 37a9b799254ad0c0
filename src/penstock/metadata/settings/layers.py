"""The settings of one broker in layers: its own dynamic ones, the cluster's dynamic ones, its file, the defaults.

The first layer that has a name wins. Layers hold texts as they were set. They were checked before, so a text that no
longer parses (for example, written by a newer version) is skipped instead of stopping the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.checks import check_broker_file
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.setting import InvalidSetting, Kind, Setting, Source, Value, show
from penstock.metadata.settings.topic import TOPIC_SETTINGS


@dataclass(frozen=True)
class BrokerSettings:
    """The settings of one broker. Compare by identity of its layers; make a new one when a layer changes."""

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    """For the whole cluster: resource type BROKER with an empty name."""
    dynamic: Mapping[str, str] = field(default_factory=dict)
    """For this broker alone."""

    @cached_property
    def layers(self) -> tuple[tuple[Source, Mapping[str, str]], ...]:
        """Layers by precedence: the strongest first, the defaults last."""
        return (
            (Source.DYNAMIC_BROKER, self.dynamic),
            (Source.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (Source.STATIC_BROKER, self.static),
            (Source.DEFAULT, DEFAULTS),
        )

    def with_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> "BrokerSettings":
        """The same static settings with other dynamic layers."""
        return BrokerSettings(self.static, default, own)

    def value(self, name: str) -> Value:
        """The value of one of the broker's settings; KeyError for a name that is not in the registry."""
        setting = BROKER_SETTINGS[name]
        for _, layer in self.layers:
            if name in layer:
                try:
                    return setting.parse(layer[name])
                except InvalidSetting:
                    continue
        return None

    def number(self, name: str) -> int:
        """The value of an integer setting that has a default."""
        value = self.value(name)
        assert isinstance(value, int)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """The value of a list setting that has a default."""
        value = self.value(name)
        assert isinstance(value, tuple)
        return value

    def is_on(self, name: str) -> bool:
        """The value of a boolean setting."""
        return self.value(name) is True

    def text(self, name: str) -> str | None:
        """The value of a setting as text, or None if it is not set."""
        return show(self.value(name))

    def resolve(self, setting: Setting) -> tuple[Value, Source]:
        """The value for a topic or group that does not set `setting` itself, and its source."""
        for source, layer in self.layers:
            for synonym in setting.synonyms:
                if synonym.name not in layer:
                    continue
                try:
                    value = BROKER_SETTINGS[synonym.name].parse(layer[synonym.name])
                    value = value * synonym.factor if setting.kind is Kind.LONG and isinstance(value, int) else value
                    return setting.parse(show(_forever(setting, value))), source
                except InvalidSetting:
                    continue
        return setting.parse(setting.default), Source.DEFAULT

    @cached_property
    def topic_defaults(self) -> Mapping[str, tuple[Value, Source]]:
        """Every setting of a topic without overrides, with its source."""
        return {name: self.resolve(setting) for name, setting in TOPIC_SETTINGS.items()}

    @cached_property
    def group_defaults(self) -> Mapping[str, tuple[Value, Source]]:
        """Every setting of a group without overrides, with its source."""
        return {name: self.resolve(setting) for name, setting in GROUP_SETTINGS.items()}


DEFAULTS: Mapping[str, str] = {s.name: s.default for s in BROKER_SETTINGS.values() if s.default is not None}


def _forever(setting: Setting, value: Value) -> Value:
    """Maps every negative retention to -1: minus one hour is as unlimited as minus one millisecond."""
    return -1 if setting.name == "retention.ms" and isinstance(value, int) and value < 0 else value


def parse_broker_settings(static: Mapping[str, str]) -> BrokerSettings:
    """The settings from a file; raises InvalidSetting with all errors of the file."""
    complaints = check_broker_file(static)
    if complaints:
        raise InvalidSetting("\n".join(complaints))
    return BrokerSettings(dict(static))
