"""Controller decisions on DeleteTopics: topics by name or by id.

Answers   codes and messages are Kafka 4.3's.
Departs   results come in the order of the request; Kafka shuffles them, so that their order reveals no hidden topics.
"""

from penstock.metadata.commands import (
    ZERO_ID,
    DeletedTopic,
    DeleteTopics,
)
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.records import RemoveTopicRecord
from penstock.metadata.view import View, repeated
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer


def delete_topics(command: DeleteTopics, view: View) -> Decision[MetadataRecord, tuple[DeletedTopic, ...]]:
    """Deletes topics by name or id, with all their data."""
    image = view.image
    if not view.settings.is_on("delete.topic.enable"):
        code, message = ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
        return answer((), tuple(DeletedTopic(t.name, t.topic_id, code, message) for t in command.topics))
    counts = repeated((topic.name, topic.topic_id) for topic in command.topics)
    given_ids = {topic.topic_id: None for topic in command.topics if topic.name is None}
    records: list[MetadataRecord] = []
    results = []
    for (name, topic_id), count in counts.items():
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
    return answer(tuple(records), tuple(results))


def _trouble_with(name: str | None, topic_id: bytes, count: int) -> str | None:
    if name is None and topic_id == ZERO_ID:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id != ZERO_ID:
        return "You may not specify both topic name and topic id."
    if count > 1:
        return "Duplicate topic name." if name is not None else "Duplicate topic id."
    return None
