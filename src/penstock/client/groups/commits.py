"""Commits and fetches offsets of a group. A commit comes from a member in its generation, or has no member id."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.client.errors import ClientError, CommitFailed, Refused, check
from penstock.client.groups.coordinator_link import MOVED, CoordinatorLink
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import by_topic, refusal
from penstock.model.errors import ErrorCode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NO_EPOCH: Final = -1
_LAST_BY_NAME: Final = 9
_FIRST_OF_MANY_GROUPS: Final = 8
_FIRST_STABLE: Final = 7

OUTDATED: Final = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
)
"""The member is in the group, but in another generation by now: the same commit may succeed later."""
FENCED: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
)
"""The committer is not, or no longer, a member."""


class Identity(NamedTuple):
    """Identity of the committer. The default, no member, is allowed as long as the group has no members."""

    member_id: str = ""
    epoch: int = NO_EPOCH
    instance_id: str | None = None


async def commit_offsets(
    link: CoordinatorLink,
    offsets: Mapping[TopicPartition, int],
    who: Identity = Identity(),  # noqa: B008 - a value
    *,
    timeout_ms: int | None = None,
) -> None:
    """Commits all offsets; raises CommitFailed if the committer is fenced or outdated, Refused for other errors."""
    request = OffsetCommitRequest(
        group_id=link.group_id,
        generation_id_or_member_epoch=who.epoch,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=each.partition, committed_offset=offsets[each], committed_metadata=""
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(list(offsets)).items()
        ],
    )
    retry = link.cluster.retry(timeout_ms)
    while True:
        try:
            response = await link.ask(
                request, OffsetCommitResponse, version_max=_LAST_BY_NAME, timeout_ms=link.cluster.request_timeout_ms
            )
        except ClientError as error:
            await retry.after(error)
            continue
        refused = {
            TopicPartition(topic.name, part.partition_index): part.error_code
            for topic in response.topics
            for part in topic.partitions
            if part.error_code is not ErrorCode.NONE
        }
        if not refused:
            return
        partition, code = next(iter(refused.items()))
        if code in OUTDATED or code in FENCED:
            raise CommitFailed(code, link.group_id, partition, is_member=bool(who.member_id))
        if code in MOVED:
            link.forget()
        await retry.after(refusal(code, f"group {link.group_id}, {partition}"))


async def committed_offsets(
    link: CoordinatorLink, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int]:
    """Committed offsets of these partitions; partitions without one are left out."""
    wanted = by_topic(list(partitions))
    subject = f"group {link.group_id}"
    retry = link.cluster.retry(timeout_ms)
    while True:
        try:
            connection = await link.connection(timeout_ms=retry.left_ms)
            version = connection.version_for(OffsetFetchRequest, _LAST_BY_NAME)
            response = await connection.ask(
                _question(link.group_id, wanted, version), OffsetFetchResponse, version=version
            )
            codes, found = _read(response, version)
            for code in codes:
                check(code, None, subject)
        except ClientError as error:
            if isinstance(error, Refused) and error.code in MOVED:
                link.forget()
            await retry.after(error)
            continue
        return {partition: offset for partition, offset in sorted(found.items()) if offset >= 0}


def _question(group_id: str, wanted: Mapping[str, list[TopicPartition]], version: int) -> OffsetFetchRequest:
    numbers = {topic: [each.partition for each in partitions] for topic, partitions in wanted.items()}
    stable = version >= _FIRST_STABLE  # waits for pending transactional offset commits
    if version >= _FIRST_OF_MANY_GROUPS:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in numbers.items()]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=stable
        )
    old = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in numbers.items()]
    return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=stable)


def _read(response: OffsetFetchResponse, version: int) -> tuple[list[ErrorCode], dict[TopicPartition, int]]:
    """Error codes, and committed offsets (-1 where there is none)."""
    codes: list[ErrorCode] = []
    found: dict[TopicPartition, int] = {}
    if version >= _FIRST_OF_MANY_GROUPS:
        (group,) = response.groups
        codes.append(group.error_code)
        for topic in group.topics:
            for part in topic.partitions:
                codes.append(part.error_code)
                found[TopicPartition(topic.name, part.partition_index)] = part.committed_offset
    else:
        codes.append(response.error_code)
        for old in response.topics:
            for each in old.partitions:
                codes.append(each.error_code)
                found[TopicPartition(old.name, each.partition_index)] = each.committed_offset
    return codes, found
