"""Settings of groups of all kinds. A group that does not set one uses the broker's value."""

import re

from penstock.metadata.settings.setting import InvalidSetting, Kind, Setting, Synonym, Value, at_least, one_of

_DURATION = re.compile(
    r"(?=.*\d)[+-]?P(?:[+-]?\d+D)?(?:T(?=.)(?:[+-]?\d+H)?(?:[+-]?\d+M)?(?:[+-]?\d+(?:[.,]\d{0,9})?S)?)?", re.IGNORECASE
)


def _offset_reset(name: str, value: Value) -> None:
    """`earliest`, `latest`, or `by_duration:` and an ISO 8601 duration."""
    kind, is_by_duration, duration = str(value).partition("by_duration:")
    if value in ("earliest", "latest") or (is_by_duration and not kind and _is_duration(duration)):
        return
    why = (
        f"Invalid value `{value}` for configuration {name}. "
        "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )
    raise InvalidSetting.value(name, value, why)


def _is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text) is not None and "-" not in text


_ALL = (
    Setting(
        "consumer.assignment.interval.ms",
        Kind.INT,
        "1000",
        "The least time between two assignments of this consumer group.",
        check=at_least(0),
        synonyms=(Synonym("group.consumer.assignment.interval.ms"),),
    ),
    Setting(
        "consumer.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of this consumer group send a heartbeat.",
        check=at_least(1),
        synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
    ),
    Setting(
        "consumer.session.timeout.ms",
        Kind.INT,
        "45000",
        "Silence after which a member of this consumer group is removed.",
        check=at_least(1),
        synonyms=(Synonym("group.consumer.session.timeout.ms"),),
    ),
    Setting(
        "share.assignment.interval.ms",
        Kind.INT,
        "1000",
        "The least time between two assignments of this share group.",
        check=at_least(0),
        synonyms=(Synonym("group.share.assignment.interval.ms"),),
    ),
    Setting(
        "share.auto.offset.reset",
        Kind.STRING,
        "latest",
        "Where this share group begins: earliest, latest, or by_duration: and an ISO 8601 duration into the past.",
        check=_offset_reset,
    ),
    Setting(
        "share.delivery.count.limit",
        Kind.INT,
        "5",
        "How often a record is delivered to this share group before it is given up.",
        check=at_least(2),
        synonyms=(Synonym("group.share.delivery.count.limit"),),
    ),
    Setting(
        "share.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of this share group send a heartbeat.",
        check=at_least(1),
        synonyms=(Synonym("group.share.heartbeat.interval.ms"),),
    ),
    Setting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether this share group sees records of open and aborted transactions.",
        check=one_of("read_committed", "read_uncommitted"),
    ),
    Setting(
        "share.partition.max.record.locks",
        Kind.INT,
        "2000",
        "Records of one partition that this share group may work on at once.",
        check=at_least(100),
        synonyms=(Synonym("group.share.partition.max.record.locks"),),
    ),
    Setting(
        "share.record.lock.duration.ms",
        Kind.INT,
        "30000",
        "How long a member of this share group may work on a record.",
        check=at_least(1_000),
        synonyms=(Synonym("group.share.record.lock.duration.ms"),),
    ),
    Setting(
        "share.renew.acknowledge.enable",
        Kind.BOOLEAN,
        "true",
        "Whether members may ask for more time to work on a record.",
    ),
    Setting(
        "share.session.timeout.ms",
        Kind.INT,
        "45000",
        "Silence after which a member of this share group is removed.",
        check=at_least(1),
        synonyms=(Synonym("group.share.session.timeout.ms"),),
    ),
    Setting(
        "streams.assignment.interval.ms",
        Kind.INT,
        "1000",
        "The least time between two assignments of this streams group.",
        check=at_least(0),
        synonyms=(Synonym("group.streams.assignment.interval.ms"),),
    ),
    Setting(
        "streams.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of this streams group send a heartbeat.",
        check=at_least(1),
        synonyms=(Synonym("group.streams.heartbeat.interval.ms"),),
    ),
    Setting(
        "streams.initial.rebalance.delay.ms",
        Kind.INT,
        "3000",
        "How long this streams group, when empty, waits for more members before its first assignment.",
        check=at_least(0),
        synonyms=(Synonym("group.streams.initial.rebalance.delay.ms"),),
    ),
    Setting(
        "streams.num.standby.replicas",
        Kind.INT,
        "0",
        "Standby copies of each stateful task of this streams group.",
        check=at_least(0),
        synonyms=(Synonym("group.streams.num.standby.replicas"),),
    ),
    Setting(
        "streams.session.timeout.ms",
        Kind.INT,
        "45000",
        "Silence after which a member of this streams group is removed.",
        check=at_least(1),
        synonyms=(Synonym("group.streams.session.timeout.ms"),),
    ),
)

GROUP_SETTINGS = {setting.name: setting for setting in _ALL}
"""Every setting of a group, by name."""
