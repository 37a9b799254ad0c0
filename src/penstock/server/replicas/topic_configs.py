"""Topic settings in the form that logs and partitions of this node use."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.log.settings import LogSettings
from penstock.metadata.image import TOPIC
from penstock.metadata.settings.setting import InvalidSetting
from penstock.metadata.settings.typed import TopicSettings, parse_topic_settings
from penstock.records.check import Rules
from penstock.server.controller.controller_runner import ControllerRunner

logger = logging.getLogger("penstock.logs")

KEPT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The topic settings of a log and its partition."""

    log: LogSettings
    rules: Rules
    can_delete: bool
    in_sync_min: int


class TopicConfigs:
    """Caches configs: topics with the same overrides share one, so a thousand topics without any cost one."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller
        self._kept: dict[tuple[tuple[str, str], ...], TopicConfig] = {}

    def config_of(self, topic: str) -> TopicConfig:
        """The config of a topic, by name."""
        overrides = self._controller.image.config(TOPIC, topic)
        key = tuple(sorted(overrides.items()))
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = self._kept[key] = _made_of(self._parse(topic, overrides))
        return found

    def forget(self) -> None:
        """Clears the cache, because the broker settings, which are the topic defaults, have changed."""
        self._kept.clear()

    def _parse(self, topic: str, overrides: Mapping[str, str]) -> TopicSettings:
        """Ignores overrides that do not parse, such as those of a later version: a default is better than no topic."""
        broker = self._controller.settings
        try:
            return parse_topic_settings(overrides, broker)
        except InvalidSetting:
            good: dict[str, str] = {}
            for name, text in overrides.items():
                try:
                    parse_topic_settings({**good, name: text}, broker)
                    good[name] = text
                except InvalidSetting as complaint:
                    logger.warning("Topic %s goes without a setting of its own: %s", topic, complaint)
            return parse_topic_settings(good, broker)


def _made_of(settings: TopicSettings) -> TopicConfig:
    policy = settings.cleanup_policy
    return TopicConfig(
        log=settings.log,
        rules=settings.rules,
        can_delete="delete" in policy or "compact" not in policy,
        in_sync_min=settings.min_insync_replicas,
    )
