"""Controller decisions on CreateTopics, each topic independently.

Answers   codes, messages and their order are Kafka 4.3's, compared with a running Kafka in tests/compatibility.
Departs   more than REPLICAS_PER_COMMAND_MAX replicas of one topic are POLICY_VIOLATION; the error for an unknown
          setting suggests a similar name.
"""

from typing import Final

from penstock.metadata.commands import (
    CreatedTopic,
    CreateTopics,
    NewTopic,
    Refusal,
    TopicConfig,
)
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import TOPIC, Image, Partition
from penstock.metadata.names import METADATA_TOPIC, check_new_name
from penstock.metadata.placement import assign_all, hosts, partition_records, place_all
from penstock.metadata.records import ConfigRecord, TopicRecord
from penstock.metadata.settings.checks import check_topic
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import InvalidSetting, Source, show
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.metadata.view import (
    PARTITIONS_PER_COMMAND_MAX,
    RECORDS_PER_COMMAND_MAX,
    TOO_MANY_RECORDS,
    Pieces,
    View,
    repeated,
)
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer

TOO_MANY_PARTITIONS: Final = "Excessively large number of partitions per request."


def create_topics(command: CreateTopics, view: View) -> Pieces[Decision[MetadataRecord, tuple[CreatedTopic, ...]]]:
    """Creates topics, each independently: an error in one does not stop the others."""
    counts = repeated(topic.name for topic in command.topics)
    single = [topic for topic in command.topics if counts[topic.name] == 1 and topic.name != METADATA_TOPIC]
    if sum(partitions_wanted(topic, view.settings) for topic in single) > PARTITIONS_PER_COMMAND_MAX:
        return answer((), _refuse_all(command, TOO_MANY_PARTITIONS))
    records: list[MetadataRecord] = []
    results = []
    defaults = _effective({}, view.settings)
    for topic in single:
        try:
            made, result = yield from _create(topic, view, defaults)
            records += made
        except Refusal as refusal:
            result = CreatedTopic(topic.name, refusal.code, refusal.message)
        results.append(result)
    if len(records) > RECORDS_PER_COMMAND_MAX:
        return answer((), _refuse_all(command, TOO_MANY_RECORDS))
    for name, count in counts.items():
        if count > 1:
            results.append(CreatedTopic(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == METADATA_TOPIC:
            message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            results.append(CreatedTopic(METADATA_TOPIC, ErrorCode.INVALID_REQUEST, message))
    return answer(() if command.validate_only else tuple(records), tuple(results))


def _refuse_all(command: CreateTopics, message: str) -> tuple[CreatedTopic, ...]:
    return tuple(CreatedTopic(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in command.topics)


def partitions_wanted(topic: NewTopic, settings: BrokerSettings) -> int:
    """Number of partitions of a new topic."""
    if topic.assignments:
        return len(topic.assignments)
    return settings.number("num.partitions") if topic.partitions == -1 else max(0, topic.partitions)


def _create(
    topic: NewTopic, view: View, defaults: tuple[TopicConfig, ...]
) -> Pieces[tuple[list[MetadataRecord], CreatedTopic]]:
    check_new_name(topic.name, view.image)
    configs = _checked_configs(topic, view.settings)
    partitions = yield from _assigned(topic, view.image) if topic.assignments else _placed(topic, view)
    topic_id = _new_id(view)
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += yield from partition_records(topic_id, partitions, 0)
    return records, CreatedTopic(
        topic.name,
        topic_id=topic_id,
        partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=_effective(configs, view.settings) if configs else defaults,
    )


def _checked_configs(topic: NewTopic, settings: BrokerSettings) -> dict[str, str]:
    nulls = [name for name, value in topic.configs if value is None]
    if nulls:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
    configs = {name: value for name, value in topic.configs if value is not None}
    if configs:
        check_topic_configs(configs, settings)
    return configs


def check_topic_configs(configs: dict[str, str], settings: BrokerSettings) -> None:
    """Refuses settings that a topic cannot have."""
    defaults = {name: value for name, (value, _) in settings.topic_defaults.items()}
    try:
        check_topic(configs, defaults, has_remote_storage=settings.is_on("remote.log.storage.system.enable"))
    except InvalidSetting as complaint:
        raise Refusal(complaint.code, str(complaint)) from None


def _effective(configs: dict[str, str], settings: BrokerSettings) -> tuple[TopicConfig, ...]:
    rows = []
    for name, (value, source) in settings.topic_defaults.items():
        setting = TOPIC_SETTINGS[name]
        if name in configs:
            rows.append(TopicConfig(name, configs[name], Source.TOPIC, setting.is_sensitive))
        elif not setting.is_internal:
            rows.append(TopicConfig(name, show(value), source, setting.is_sensitive))
    return tuple(rows)


def _assigned(topic: NewTopic, image: Image) -> Pieces[list[Partition]]:
    """Partitions on the brokers named in the request."""
    if topic.replication_factor != -1:
        message = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if topic.partitions != -1:
        message = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    made = yield from assign_all(topic.assignments, image.brokers, None)
    if sorted(made) != list(range(len(made))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [made[index] for index in sorted(made)]


def _placed(topic: NewTopic, view: View) -> Pieces[list[Partition]]:
    """Partitions on the brokers chosen by the placement."""
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.partitions < -1 or topic.partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise Refusal(ErrorCode.INVALID_PARTITIONS, message)
    factor = topic.replication_factor
    factor = view.settings.number("default.replication.factor") if factor == -1 else factor
    try:
        return (yield from place_all(partitions_wanted(topic, view.settings), factor, hosts(view.image), view.entropy))
    except Refusal as refusal:
        if refusal.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        message = f"Unable to replicate the partition {factor} time(s): {refusal.message}"
        raise Refusal(refusal.code, message) from None


def _new_id(view: View) -> bytes:
    """A random, unreserved, unused id whose text does not begin with a dash, which command lines read as an option."""
    while True:
        topic_id = view.entropy.token(16)
        is_reserved = topic_id[:8] == bytes(8) and int.from_bytes(topic_id[8:], "big") < 100
        if not is_reserved and topic_id[0] >> 2 != 62 and topic_id not in view.image.topic_names:
            return topic_id
