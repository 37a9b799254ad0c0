"""Controller decisions on CreatePartitions: more partitions for existing topics.

Answers   codes and messages are Kafka 4.3's.
Departs   more partitions than one batch of records may hold are POLICY_VIOLATION, where Kafka answers
          UNKNOWN_SERVER_ERROR for the topic but keeps those of its partitions that still fitted. So are more than
          REPLICAS_PER_COMMAND_MAX replicas of one topic.
"""

from penstock.metadata.commands import (
    CreatePartitions,
    GrownTopic,
    MorePartitions,
    Refusal,
)
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.placement import assign_all, hosts, partition_records, place_all
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX, TOO_MANY_RECORDS, Pieces, View, repeated
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer


def create_partitions(
    command: CreatePartitions, view: View
) -> Pieces[Decision[MetadataRecord, tuple[GrownTopic, ...]]]:
    """Adds partitions to existing topics."""
    counts = repeated(topic.name for topic in command.topics)
    duplicates = [name for name, count in counts.items() if count > 1]
    results = [GrownTopic(n, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for n in duplicates]
    records: list[MetadataRecord] = []
    for topic in command.topics:
        if counts[topic.name] > 1:
            continue
        try:
            records += yield from _grow(topic, view, RECORDS_PER_COMMAND_MAX - len(records))
            results.append(GrownTopic(topic.name))
        except Refusal as refusal:
            results.append(GrownTopic(topic.name, refusal.code, refusal.message))
    return answer(() if command.validate_only else tuple(records), tuple(results))


def _grow(topic: MorePartitions, view: View, room: int) -> Pieces[list[MetadataRecord]]:
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
        raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
    factor = len(next(iter(found.partitions.values())).replicas)
    if topic.assignments is None:
        partitions = yield from place_all(additional, factor, hosts(view.image), view.entropy)
    else:
        given = enumerate(topic.assignments, start=present)
        partitions = [*(yield from assign_all(given, view.image.brokers, factor)).values()]
    return (yield from partition_records(found.topic_id, partitions, present))
