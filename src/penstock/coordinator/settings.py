"""Time-outs and limits of groups. Names and defaults are Kafka's `group.*` and `offsets.*` where Kafka has one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import InvalidSetting
from penstock.model.epochs import INT32_EPOCH_MAX
from penstock.model.limits import MIB

NEW_MEMBER_JOIN_MS: Final = 300_000
"""A new member waits no longer than this for the reply to its first JoinGroup (KAFKA-9752)."""
TOMBSTONES_MAX: Final = 1_000
"""Tombstones of one decision."""
TOMBSTONE_BYTES_MAX: Final = 65_536
"""Bytes of their keys: names of groups may be long, and a batch has a limit."""
GROUP_BYTES_MAX: Final = 8 * MIB
"""Metadata of all members of one classic group under all protocols; a generation is one record."""
CONSUMER_GROUP_BYTES_MAX: Final = 32 * MIB
"""Memory of what all members of one consumer group subscribe to; each member is a record of its own."""
GROUPS_BYTES_MAX: Final = 64 * MIB
"""The sum of both for all groups of a coordinator; members of at most SMALL_MEMBER_BYTES are exempt."""
NAME_BYTES: Final = 60
"""Memory that a subscribed topic name takes besides its letters: a string and its place in a tuple."""
SMALL_MEMBER_BYTES: Final = 16 * 1024
PATTERN_REFRESH_MS: Final = 10_000
"""Patterns of a group are matched again after this, if topics have changed."""

WAITING_MS: Final = 1_000
"""Heartbeat interval, at most, of a consumer group member that waits for a reconciliation step."""

JOINABLE_EPOCH_MAX: Final = INT32_EPOCH_MAX - 1_000_000
"""A consumer group in this epoch accepts no new members or subscriptions; members can still leave, and each departure
uses an epoch."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A broker's settings of groups."""

    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    """Bounds of a classic member's session time-out."""
    initial_delay_ms: int = 3_000
    """How long an empty classic group waits for more members."""
    members_max: int = 0x7FFFFFFF
    """Members of one classic group."""
    consumer_session_ms: int = 45_000
    consumer_heartbeat_ms: int = 5_000
    consumer_members_max: int = 0x7FFFFFFF
    taking_ms: int = 5_000
    """How long a member may take to report assigned partitions as owned."""
    assignment_interval_ms: int = 1_000
    """The least time between two assignments of a consumer group."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    migration: str = "bidirectional"
    """Whether groups with members may be converted between protocols: also upgrade, downgrade or disabled."""
    protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    """Group types that are served."""
    retention_ms: int = 7 * 24 * 3_600_000
    """How long an empty group keeps its offsets."""
    retention_check_ms: int = 600_000
    load_grace_ms: int = 300_000
    """After a load nothing expires for this long: members that were about to join must retry first (R25)."""
    metadata_bytes_max: int = 4_096
    """The longest metadata of a committed offset."""

    @classmethod
    def of(cls, settings: BrokerSettings) -> "GroupSettings":
        """The settings of groups among a broker's settings."""
        migration = settings.value("group.consumer.migration.policy")
        return cls(
            session_min_ms=settings.number("group.min.session.timeout.ms"),
            session_max_ms=settings.number("group.max.session.timeout.ms"),
            initial_delay_ms=settings.number("group.initial.rebalance.delay.ms"),
            members_max=settings.number("group.max.size"),
            consumer_session_ms=settings.number("group.consumer.session.timeout.ms"),
            consumer_heartbeat_ms=settings.number("group.consumer.heartbeat.interval.ms"),
            consumer_members_max=settings.number("group.consumer.max.size"),
            assignment_interval_ms=settings.number("group.consumer.assignment.interval.ms"),
            assignors=settings.names("group.consumer.assignors"),
            migration=str(migration).lower(),
            protocols=settings.names("group.coordinator.rebalance.protocols"),
            retention_ms=60_000 * settings.number("offsets.retention.minutes"),
            retention_check_ms=settings.number("offsets.retention.check.interval.ms"),
            metadata_bytes_max=settings.number("offset.metadata.max.bytes"),
        )

    def under(self, configs: Mapping[str, str]) -> "GroupSettings":
        """The same with a group's own settings; a value that does not parse is ignored."""
        changed: dict[str, int] = {}
        for name, field in _OF_A_GROUP.items():
            if name in configs:
                try:
                    value = GROUP_SETTINGS[name].parse(configs[name])
                except InvalidSetting:
                    continue
                assert isinstance(value, int)
                changed[field] = value
        return replace(self, **changed) if changed else self  # type: ignore[arg-type]


_OF_A_GROUP: Final = {
    "consumer.session.timeout.ms": "consumer_session_ms",
    "consumer.heartbeat.interval.ms": "consumer_heartbeat_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}
