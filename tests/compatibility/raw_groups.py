"""Groups as a raw client sees them: members, epoch and committed offsets, and a member operated by hand."""

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from harness.raw_client import RawClient, Topic
from penstock.coordinator.placement import OFFSETS_TOPIC, partition_of
from penstock.coordinator.records import decode_record
from penstock.coordinator.subscriptions import assignment, assignment_bytes
from penstock.model.errors import ErrorCode
from penstock.records.rows import rows
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from penstock.wire.stored.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from tests.compatibility.rows.row import Protocol

SESSION_MS = 30_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch in which topics have names."""
WAIT_S: Final = 30.0
RETRY_S: Final = 0.02
NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors that every client retries."""


class Sitting(NamedTuple):
    """One member of a group."""

    member_id: str
    instance_id: str | None
    partitions: frozenset[int]


class Assembly(NamedTuple):
    """A group at one moment."""

    state: str
    epoch: int
    """The generation of a classic group."""
    members: Mapping[str, Sitting]

    def shares(self) -> list[frozenset[int]]:
        """The partitions of each member."""
        return [each.partitions for each in self.members.values()]

    def of_instance(self, instance_id: str) -> Sitting:
        """The static member with this instance id."""
        (found,) = (each for each in self.members.values() if each.instance_id == instance_id)
        return found


class RawGroups:
    """Groups of a cluster of one node."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    def look(self, group: str, protocol: Protocol) -> Assembly:
        """The current state of a group of one topic; a group that does not exist is Dead."""
        return self._classic(group) if protocol == "classic" else self._consumer(group)

    def _classic(self, group: str) -> Assembly:
        (found,) = self._client.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse).groups
        if found.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
            return Assembly("Dead", 0, {})
        assert found.error_code is ErrorCode.NONE, found
        members = {}
        for each in found.members:
            given = assignment(each.member_assignment)
            parts = given.assigned_partitions if given is not None else ()
            partitions = frozenset(number for part in parts for number in part.partitions)
            members[each.member_id] = Sitting(each.member_id, each.group_instance_id, partitions)
        return Assembly(found.group_state, max(self.generations(group), default=0), members)

    def _consumer(self, group: str) -> Assembly:
        asked = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        (found,) = self._client.ask(asked, ConsumerGroupDescribeResponse).groups
        if found.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
            return Assembly("Dead", 0, {})
        assert found.error_code is ErrorCode.NONE, found
        members = {}
        for each in found.members:
            parts = each.assignment.topic_partitions
            partitions = frozenset(number for part in parts for number in part.partitions)
            members[each.member_id] = Sitting(each.member_id, each.instance_id, partitions)
        return Assembly(found.group_state, found.group_epoch, members)

    def generations(self, group: str) -> list[int]:
        """Every generation of a classic group in the log, in order: no API reports them."""
        offsets = self._client.topic(OFFSETS_TOPIC)
        partition = partition_of(group, len(offsets.partitions))
        found = []
        for batch in self._client.fetch_batches(Topic(OFFSETS_TOPIC, offsets.topic_id), partition):
            for row in rows(batch, BATCH_BYTES_MAX):
                record = decode_record(row.key, row.value)
                if record is None or record.key != GroupMetadataKey(group=group):
                    continue
                if isinstance(record.value, GroupMetadataValue):
                    found.append(record.value.generation)
        return found

    def names(self) -> set[str]:
        """All groups."""
        answer = self._client.ask(ListGroupsRequest(), ListGroupsResponse)
        assert answer.error_code is ErrorCode.NONE
        return {each.group_id for each in answer.groups}

    def committed(self, group: str) -> dict[int, int]:
        """Offsets of a group of one topic, by partition."""
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True)
        (found,) = self._client.ask(asked, OffsetFetchResponse, BY_NAME).groups
        assert found.error_code is ErrorCode.NONE, found
        return {each.partition_index: each.committed_offset for topic in found.topics for each in topic.partitions}

    def find(self, group: str) -> None:
        """Waits until the node coordinates the group: the first request causes the creation of the offsets topic."""
        end_s = time.monotonic() + WAIT_S
        while True:
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            (found,) = self._client.ask(asked, FindCoordinatorResponse).coordinators
            (shown,) = self._client.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse).groups
            if found.error_code is ErrorCode.NONE and shown.error_code not in NOT_YET:
                return
            assert time.monotonic() < end_s, (found, shown)
            time.sleep(RETRY_S)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits for a group without members."""
        self.find(group)
        parts = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
            for partition, offset in offsets.items()
        ]
        wanted = [OffsetCommitRequestTopic(name=topic, partitions=parts)]
        asked = OffsetCommitRequest(group_id=group, member_id="", topics=wanted)
        (answer,) = self._client.ask(asked, OffsetCommitResponse, BY_NAME).topics
        assert {each.error_code for each in answer.partitions} == {ErrorCode.NONE}, answer

    def join(self, group: str, topic: str, partitions: int) -> str:
        """Joins a member by hand, alone in a classic group, with all partitions; it stays for a session."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        member_id = ""
        while True:
            asked = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            joined = self._client.ask(asked, JoinGroupResponse)
            member_id = joined.member_id
            if joined.error_code is not ErrorCode.MEMBER_ID_REQUIRED:
                break
        assert joined.error_code is ErrorCode.NONE, joined
        given = assignment_bytes({topic: list(range(partitions))}, 0)
        synced = self._client.ask(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=given)],
            ),
            SyncGroupResponse,
        )
        assert synced.error_code is ErrorCode.NONE, synced
        return member_id

    def leave(self, group: str, member_id: str) -> None:
        """Makes the member leave."""
        asked = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
        answer = self._client.ask(asked, LeaveGroupResponse)
        assert answer.error_code is ErrorCode.NONE, answer
