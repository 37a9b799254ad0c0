"""The settings of one topic as values, with views for the log and for batch checks."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.log.settings import Durability, LogSettings
from penstock.metadata.settings.checks import check_topic
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import LONG_MAX, Value
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.check import Rules, Validation
from penstock.records.header import TimestampType

_DECOMPRESSED_FACTOR = DEFAULT_LIMITS.batch_decompressed_bytes_max // DEFAULT_LIMITS.batch_bytes_max


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Every setting of a topic by Kafka's name, and typed views of them."""

    values: Mapping[str, Value]
    producer_expiration_ms: int

    def number(self, name: str) -> int:
        """The value of an integer setting."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    @property
    def cleanup_policy(self) -> tuple[str, ...]:
        """Any of "compact" and "delete"; neither keeps everything."""
        value = self.values["cleanup.policy"]
        assert isinstance(value, tuple)
        return value

    @property
    def is_compacted(self) -> bool:
        """Whether the last record of each key survives."""
        return "compact" in self.cleanup_policy

    @property
    def compression(self) -> str:
        """The codec in which batches are stored, or "producer"."""
        return str(self.values["compression.type"])

    @property
    def min_insync_replicas(self) -> int:
        """In-sync replicas that acks=all requires."""
        return self.number("min.insync.replicas")

    @property
    def log(self) -> LogSettings:
        """The settings of the topic's logs."""
        deletes = "delete" in self.cleanup_policy
        retention_ms, retention_bytes = self.number("retention.ms"), self.number("retention.bytes")
        segment_bytes = self.values["internal.segment.bytes"] or self.values["segment.bytes"]
        assert isinstance(segment_bytes, int)
        return LogSettings(
            durability=Durability(self.values["durability"]),
            segment_bytes=segment_bytes,
            segment_ms=self.number("segment.ms"),
            index_interval_bytes=self.number("index.interval.bytes"),
            retention_ms=retention_ms if deletes and retention_ms >= 0 else None,
            retention_bytes=retention_bytes if deletes and retention_bytes >= 0 else None,
            producer_expiration_ms=self.producer_expiration_ms,
            flush_messages=_limited(self.number("flush.messages")),
            flush_ms=_limited(self.number("flush.ms")),
        )

    @property
    def rules(self) -> Rules:
        """The rules that a batch for the topic must satisfy."""
        is_log_append_time = self.values["message.timestamp.type"] == "LogAppendTime"
        batch_bytes_max = self.number("max.message.bytes")
        return Rules(
            validation=Validation(self.values["record.validation"]),
            batch_bytes_max=batch_bytes_max,
            batch_decompressed_bytes_max=_DECOMPRESSED_FACTOR * batch_bytes_max,
            is_compacted=self.is_compacted,
            timestamp_type=TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME,
            timestamp_before_ms_max=_limited(self.number("message.timestamp.before.max.ms")),
            timestamp_after_ms_max=_limited(self.number("message.timestamp.after.max.ms")),
        )


def _limited(number: int) -> int | None:
    return None if number == LONG_MAX else number


def parse_topic_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> TopicSettings:
    """The settings of a topic with these overrides; raises InvalidSetting."""
    defaults = {name: value for name, (value, _) in broker.topic_defaults.items()}
    values = check_topic(overrides, defaults, has_remote_storage=broker.is_on("remote.log.storage.system.enable"))
    return TopicSettings(values, broker.number("producer.id.expiration.ms"))
