"""Group members of both protocols on virtual time, and a client that only commits: over the wire, as real clients."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.model.errors import ErrorCode
from penstock.wire.codec import decode, encode
from penstock.wire.declare import Request, Response
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

R = TypeVar("R", bound=Response)

VERSION: Final = b"\0\0"
BY_NAME: Final = 9
"""The last versions of OffsetCommit and OffsetFetch that name topics."""


class Asking:
    """Sends requests to the coordinator of one group, on its own connection."""

    def __init__(self, cluster: Cluster, group_id: str, timeout_ms: int = 5_000) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.lane = cluster.new_lane("group")
        self._timeout_ms = timeout_ms
        self._connection: BrokerConnection | None = None

    async def ask(self, request: Request, answer: type[R], *, version: int | None = None) -> R:
        """Sends a request once. ClientError if there is no response."""
        if self._connection is None or self._connection.is_closed:
            node_id = await self.cluster.coordinator(self.group_id, timeout_ms=self._timeout_ms)
            self._connection = await self.cluster.connection(node_id, self.lane)
        return await self._connection.ask(request, answer, version=version, timeout_ms=self._timeout_ms)

    def look_elsewhere(self) -> None:
        """Drops the connection: the coordinator may have moved."""
        self._connection = None

    async def close(self) -> None:
        """Ends the connection."""
        await self.cluster.close_lane(self.lane)
        self._connection = None

    # --- offsets --------------------------------------------------------------------------------------------------

    async def commit(
        self, topic: str, offsets: dict[int, int], generation: int = -1, member_id: str = ""
    ) -> dict[int, ErrorCode]:
        """Commits offsets; returns the result by partition."""
        rows = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        response = await self.ask(request, OffsetCommitResponse, version=BY_NAME)
        return {each.partition_index: each.error_code for each in response.topics[0].partitions}

    async def committed(self, topic: str, indexes: Sequence[int]) -> tuple[ErrorCode, dict[int, int]]:
        """The committed offsets, by partition."""
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=wanted)])
        (group,) = (await self.ask(request, OffsetFetchResponse, version=BY_NAME)).groups
        found = {each.partition_index: each.committed_offset for topic in group.topics for each in topic.partitions}
        return group.error_code, found


class ClassicMember(Asking):
    """Joins, and receives its assignment from the group's leader."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str, partitions: int, **options: Any) -> None:
        super().__init__(cluster, group_id, **options)
        self.topic = topic
        self.partitions = partitions
        self.member_id = ""
        self.generation = -1
        self.assigned: tuple[int, ...] = ()
        self.session_ms = 6_000
        self.rebalance_ms = 3_000

    async def join(self) -> ErrorCode:
        """One round: joins, with an id if required, and receives its assignment."""
        self.assigned = ()
        joined = await self._join()
        if joined.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await self._join()
        if joined.error_code:
            return joined.error_code
        self.member_id, self.generation = joined.member_id, joined.generation_id
        dealt: list[SyncGroupRequestAssignment] = []
        if joined.leader == self.member_id:
            dealt = list(self._deal([each.member_id for each in joined.members]))
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=dealt,
        )
        synced = await self.ask(request, SyncGroupResponse)
        if not synced.error_code:
            found = decode(ConsumerProtocolAssignment, 0, synced.assignment, len(VERSION))
            self.assigned = tuple(each for topic in found.assigned_partitions for each in topic.partitions)
        return synced.error_code

    async def _join(self) -> JoinGroupResponse:
        metadata = VERSION + bytes(encode(ConsumerProtocolSubscription(topics=[self.topic], user_data=None), 0))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        return await self.ask(request, JoinGroupResponse)

    def _deal(self, members: Sequence[str]) -> Iterable[SyncGroupRequestAssignment]:
        for number, member_id in enumerate(members):
            mine = range(number, self.partitions, len(members))
            part = ConsumerProtocolAssignmentTopicPartition(topic=self.topic, partitions=mine)
            assignment = ConsumerProtocolAssignment(assigned_partitions=[part], user_data=None)
            yield SyncGroupRequestAssignment(member_id=member_id, assignment=VERSION + bytes(encode(assignment, 0)))

    async def heartbeat(self) -> ErrorCode:
        """Sends a heartbeat."""
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self.member_id)
        return (await self.ask(request, HeartbeatResponse)).error_code

    async def leave(self) -> ErrorCode:
        """Leaves the group."""
        request = LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)])
        return (await self.ask(request, LeaveGroupResponse)).error_code

    async def commit_own(self, offset: int) -> dict[int, ErrorCode]:
        """Commits as a member."""
        return await self.commit(self.topic, dict.fromkeys(self.assigned, offset), self.generation, self.member_id)


class ConsumerMember(Asking):
    """A member of a KIP-848 group."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str, member_id: str, **options: Any) -> None:
        super().__init__(cluster, group_id, **options)
        self.topic = topic
        self.member_id = member_id
        self.epoch = 0
        self.assigned: tuple[tuple[bytes, int], ...] = ()

    async def heartbeat(self) -> ErrorCode:
        """Joins, stays, and adopts or revokes partitions as told; reports all its partitions each time."""
        own: dict[bytes, list[int]] = {}
        for topic_id, index in self.assigned:
            own.setdefault(topic_id, []).append(index)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=3_000,
            subscribed_topic_names=[self.topic],
            topic_partitions=[TopicPartitions(topic_id=topic, partitions=found) for topic, found in own.items()],
        )
        said = await self.ask(request, ConsumerGroupHeartbeatResponse)
        if not said.error_code:
            self.epoch = said.member_epoch
            if said.assignment is not None:
                self.assigned = tuple(
                    (topic.topic_id, index) for topic in said.assignment.topic_partitions for index in topic.partitions
                )
        return said.error_code

    def drop_all(self) -> None:
        """Drops its partitions and starts over, after it was fenced."""
        self.epoch, self.assigned = 0, ()

    async def leave(self) -> ErrorCode:
        """Leaves the group."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=-1, topic_partitions=()
        )
        self.drop_all()
        return (await self.ask(request, ConsumerGroupHeartbeatResponse)).error_code


async def until_settled(*members: ConsumerMember, wait_s: float = 0.2, rounds: int = 60) -> None:
    """Sends heartbeats until partitions are assigned and all members are in one epoch."""
    for _ in range(rounds):
        for member in members:
            assert await member.heartbeat() is ErrorCode.NONE
        if sum(len(member.assigned) for member in members) and len({member.epoch for member in members}) == 1:
            return
        await asyncio.sleep(wait_s)
    raise AssertionError("members never came to rest")
