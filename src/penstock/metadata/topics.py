"""How the controller decides on topics: CreateTopics, DeleteTopics, CreatePartitions.

Answers   codes, sentences and their order are Kafka 4.3's, held against a running one in tests/compatibility.
Departs   growing topics by more partitions than a batch may hold is POLICY_VIOLATION, where Kafka answers
          UNKNOWN_SERVER_ERROR and keeps a part of them. Results come in the order of the request, not shuffled.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.metadata.commands import (
    ZERO_ID,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    GrownTopic,
    MorePartitions,
    NewTopic,
    Refusal,
    TopicConfig,
)
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import TOPIC, Image, Partition
from penstock.metadata.names import METADATA_TOPIC, check_new_name
from penstock.metadata.placement import check_assignment, new_partition, place
from penstock.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from penstock.metadata.settings.checks import check_topic
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import InvalidSetting, Source, show
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.model.shard import Decision

RECORDS_PER_COMMAND_MAX: Final = 10_000
PARTITIONS_PER_COMMAND_MAX: Final = 10_000

_TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
_TOO_MANY_RECORDS = "Unable to perform excessively large batch operation."
_ALL_FENCED = "All brokers are currently fenced or in controlled shutdown."


@dataclass(frozen=True, slots=True)
class View:
    """What a decision may look at."""

    image: Image
    settings: BrokerSettings
    entropy: Entropy


def _repeated(names: Iterable[object]) -> dict[object, int]:
    """How often each appears, in order."""
    counts: dict[object, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


# --- CreateTopics -----------------------------------------------------------------------------------------------------


def create_topics(command: CreateTopics, view: View) -> Decision[MetadataRecord, tuple[CreatedTopic, ...]]:
    """New topics, each by itself: what is wrong with one does not stop the others."""
    counts = _repeated(topic.name for topic in command.topics)
    single = [topic for topic in command.topics if counts[topic.name] == 1 and topic.name != METADATA_TOPIC]
    if sum(_partitions_wanted(topic, view.settings) for topic in single) > PARTITIONS_PER_COMMAND_MAX:
        return Decision((), _refuse_all(command, _TOO_MANY_PARTITIONS))
    records: list[MetadataRecord] = []
    results = []
    for topic in single:
        try:
            made, result = _create(topic, view)
            records += made
        except Refusal as refusal:
            result = CreatedTopic(topic.name, refusal.code, refusal.message)
        results.append(result)
    if len(records) > RECORDS_PER_COMMAND_MAX:
        return Decision((), _refuse_all(command, _TOO_MANY_RECORDS))
    for name, count in counts.items():
        if count > 1:
            results.append(CreatedTopic(str(name), ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == METADATA_TOPIC:
            message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            results.append(CreatedTopic(METADATA_TOPIC, ErrorCode.INVALID_REQUEST, message))
    return Decision(() if command.validate_only else tuple(records), tuple(results))


def _refuse_all(command: CreateTopics, message: str) -> tuple[CreatedTopic, ...]:
    return tuple(CreatedTopic(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in command.topics)


def _partitions_wanted(topic: NewTopic, settings: BrokerSettings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.number("num.partitions") if topic.partitions == -1 else max(0, topic.partitions)


def _create(topic: NewTopic, view: View) -> tuple[list[MetadataRecord], CreatedTopic]:
    check_new_name(topic.name, view.image)
    configs = _checked_configs(topic, view.settings)
    partitions = _assigned(topic, view.image) if topic.assignments else _placed(topic, view)
    topic_id = _new_id(view)
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += [partition_record(topic_id, index, partition) for index, partition in enumerate(partitions)]
    return records, CreatedTopic(
        topic.name,
        topic_id=topic_id,
        partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=_effective(configs, view.settings),
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


def _assigned(topic: NewTopic, image: Image) -> list[Partition]:
    """Partitions where the asker wants them."""
    if topic.replication_factor != -1:
        message = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if topic.partitions != -1:
        message = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    made: dict[int, Partition] = {}
    replication_factor: int | None = None
    for index, replicas in topic.assignments:
        if index in made:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        made[index] = _assigned_partition(index, replicas, image, replication_factor)
        replication_factor = len(replicas)
    if sorted(made) != list(range(len(made))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [made[index] for index in sorted(made)]


def _assigned_partition(index: int, replicas: tuple[int, ...], image: Image, factor: int | None) -> Partition:
    check_assignment(replicas, image.brokers, factor)
    partition = new_partition(replicas, image.brokers)
    if partition is None:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return partition


def _placed(topic: NewTopic, view: View) -> list[Partition]:
    """Partitions where the placement puts them."""
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.partitions < -1 or topic.partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise Refusal(ErrorCode.INVALID_PARTITIONS, message)
    factor = topic.replication_factor
    factor = view.settings.number("default.replication.factor") if factor == -1 else factor
    try:
        return _place(_partitions_wanted(topic, view.settings), factor, view)
    except Refusal as refusal:
        message = f"Unable to replicate the partition {factor} time(s): {refusal.message}"
        raise Refusal(refusal.code, message) from None


def _place(count: int, replication_factor: int, view: View) -> list[Partition]:
    made = []
    for replicas in place(view.image.brokers, count, replication_factor, view.entropy):
        partition = new_partition(replicas, view.image.brokers)
        if partition is None:
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, _ALL_FENCED)
        made.append(partition)
    return made


def _new_id(view: View) -> bytes:
    """Random, not reserved, not taken; its text does not begin with a dash, which command lines take for an option."""
    while True:
        topic_id = view.entropy.token(16)
        is_reserved = topic_id[:8] == bytes(8) and int.from_bytes(topic_id[8:], "big") < 100
        if not is_reserved and topic_id[0] >> 2 != 62 and topic_id not in view.image.topic_names:
            return topic_id


def partition_record(topic_id: bytes, index: int, partition: Partition) -> PartitionRecord:
    """The record that makes a partition."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas or None,
        last_known_elr=partition.last_known_elr or None,
    )


# --- DeleteTopics -----------------------------------------------------------------------------------------------------


def delete_topics(command: DeleteTopics, view: View) -> Decision[MetadataRecord, tuple[DeletedTopic, ...]]:
    """Topics by name or id go, with everything in them."""
    image = view.image
    if not view.settings.is_on("delete.topic.enable"):
        code, message = ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
        return Decision((), tuple(DeletedTopic(t.name, t.topic_id, code, message) for t in command.topics))
    counts = _repeated((topic.name, topic.topic_id) for topic in command.topics)
    given_ids = {topic.topic_id: None for topic in command.topics if topic.name is None}
    records: list[MetadataRecord] = []
    results = []
    for reference, count in counts.items():
        assert isinstance(reference, tuple)
        name, topic_id = reference
        found = image.topics.get(name) if name is not None else image.topic_by_id(topic_id)
        trouble = _trouble_with(name, topic_id, count)
        if trouble is not None:
            answers = 1 if trouble.startswith("Duplicate") else count
            results += [DeletedTopic(name, topic_id, ErrorCode.INVALID_REQUEST, trouble)] * answers
        elif found is None and name is not None:
            message = "This server does not host this topic-partition."
            results.append(DeletedTopic(name, ZERO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
        elif found is None:
            message = "This server does not host this topic ID."
            results.append(DeletedTopic(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, message))
        elif name is not None and found.topic_id in given_ids:
            message = "The provided topic name maps to an ID that was already supplied."
            results.append(DeletedTopic(name, found.topic_id, ErrorCode.INVALID_REQUEST, message))
        elif name is None and counts.get((found.name, ZERO_ID)) == 1:
            continue  # answered under its name
        else:
            records.append(RemoveTopicRecord(topic_id=found.topic_id))
            results.append(DeletedTopic(found.name, found.topic_id))
    return Decision(tuple(records), tuple(results))


def _trouble_with(name: str | None, topic_id: bytes, count: int) -> str | None:
    if name is None and topic_id == ZERO_ID:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id != ZERO_ID:
        return "You may not specify both topic name and topic id."
    if count > 1:
        return "Duplicate topic name." if name is not None else "Duplicate topic id."
    return None


# --- CreatePartitions -------------------------------------------------------------------------------------------------


def create_partitions(command: CreatePartitions, view: View) -> Decision[MetadataRecord, tuple[GrownTopic, ...]]:
    """More partitions for topics that exist."""
    counts = _repeated(topic.name for topic in command.topics)
    duplicates = [name for name, count in counts.items() if count > 1]
    results = [GrownTopic(str(n), ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for n in duplicates]
    records: list[MetadataRecord] = []
    for topic in command.topics:
        if counts[topic.name] > 1:
            continue
        try:
            records += _grow(topic, view, RECORDS_PER_COMMAND_MAX - len(records))
            results.append(GrownTopic(topic.name))
        except Refusal as refusal:
            results.append(GrownTopic(topic.name, refusal.code, refusal.message))
    return Decision(() if command.validate_only else tuple(records), tuple(results))


def _grow(topic: MorePartitions, view: View, room: int) -> list[MetadataRecord]:
    found = view.image.topics.get(topic.name)
    if found is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    present = len(found.partitions)
    if topic.count == present:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if topic.count < present:
        message = (
            f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase."
        )
        raise Refusal(ErrorCode.INVALID_PARTITIONS, message)
    additional = topic.count - present
    if topic.assignments is not None and len(topic.assignments) != additional:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} assignment(s) "
            "were specified.",
        )
    if additional > room:
        raise Refusal(ErrorCode.POLICY_VIOLATION, _TOO_MANY_RECORDS)
    factor = len(next(iter(found.partitions.values())).replicas)
    if topic.assignments is None:
        partitions = _place(additional, factor, view)
    else:
        partitions = [
            _assigned_partition(index, replicas, view.image, factor)
            for index, replicas in enumerate(topic.assignments, start=present)
        ]
    return [
        partition_record(found.topic_id, index, partition) for index, partition in enumerate(partitions, start=present)
    ]
