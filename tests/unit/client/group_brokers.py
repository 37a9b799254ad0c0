"""Brokers in memory that also coordinate groups: the real group core on a log in memory and virtual time."""

import asyncio
from typing import Any

from penstock.coordinator.events import Answer, Asked, Committed, Effect, Elected, LogRead, ReadLog, Refuse, TimePassed
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.ports import Now
from penstock.coordinator.requests import Ask
from penstock.coordinator.runtime import ShardRuntime
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.topics import Topic, Topics
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.declare import Request, Response
from penstock.wire.messages import find_coordinator, offset_fetch
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from tests.unit.client.brokers import SERVED, Brokers
from tests.unit.coordinator.shard_driver import Counter, MemoryLog

CLASSIC = (
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
)
WALL_MS = 1_700_000_000_000
QUICK = GroupSettings(initial_delay_ms=100, assignment_interval_ms=0, consumer_heartbeat_ms=1_000)


class GroupBrokers(Brokers):
    """Brokers of which the first coordinates all groups."""

    def __init__(self, count: int = 1, *, is_new: bool = True, settings: GroupSettings = QUICK) -> None:
        super().__init__(count)
        self.served = (*SERVED, *CLASSIC, *((Api.CONSUMER_GROUP_HEARTBEAT,) if is_new else ()))
        self.coordinator = 0
        self.log = MemoryLog()
        self._settings = settings
        self._tickets: dict[int, asyncio.Future[Any]] = {}
        self._ticket = 0
        self._epoch = 1
        self._timer: asyncio.TimerHandle | None = None
        self.runtime = self._made()

    def _made(self) -> ShardRuntime[GroupShard]:
        return ShardRuntime(lambda: GroupShard(self._settings, Counter(), self._topics), self.log)

    def _topics(self) -> Topics:
        found = {name: Topic(name, topic_id, len(logs)) for name, (topic_id, logs) in self.topics.items()}
        return Topics(found, sum(len(topic.partitions * [0]) + 1 for topic in found.values()))

    @property
    def shard(self) -> Any:
        """The current state of the groups."""
        return self.runtime.shard

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Returns the committed offsets of a group."""
        return {where: offset.offset for where, offset in self.shard.offsets.of(group).items()}

    def elect(self, node_id: int) -> None:
        """Moves the coordinator to another broker, which loads the log."""
        self.coordinator = node_id
        self._epoch += 1
        self._step(Elected(self._epoch, 0))

    def _now(self) -> Now:
        ms = int(self.world.loop.time() * 1000)
        return Now(ms, WALL_MS + ms)

    def _step(self, event: Any) -> None:
        for effect in self.runtime.step(event, self._now()):
            self._carry_out(effect)
        for effect in self.runtime.step(Committed(self.log.end_offset), self._now()):
            self._carry_out(effect)
        if self._timer is not None:
            self._timer.cancel()
        at = self.runtime.wake_at
        self._timer = None if at is None else self.world.loop.call_at(at / 1000 + 0.001, self._step, TimePassed())

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReadLog(epoch, offset):
                self._step(LogRead(epoch, offset, self.log.records(offset), self.log.end_offset))
            case Answer(ticket, reply):
                self._tickets.pop(ticket).set_result(reply)
            case Refuse(ticket, code):
                self._tickets.pop(ticket).set_result(code)

    async def _ask(self, node_id: int, request: Any, version: int) -> Any:
        if node_id != self.coordinator:
            return ErrorCode.NOT_COORDINATOR
        if self.runtime.shard is None:
            self._step(Elected(self._epoch, 0))
        self._ticket += 1
        waiting = self._tickets[self._ticket] = asyncio.get_running_loop().create_future()
        self._step(Asked(self._ticket, Ask(request, version, "client", "/host")))
        return await waiting

    async def handle(self, node_id: int, version: int, request: Request, code: ErrorCode | None) -> Response | None:
        match request:
            case find_coordinator.FindCoordinatorRequest():
                name = self.names[self.coordinator]
                found = find_coordinator.Coordinator(
                    key="",
                    node_id=self.coordinator,
                    host=name,
                    port=9092,
                    error_code=ErrorCode.NONE,
                    error_message=None,
                )
                return find_coordinator.FindCoordinatorResponse(coordinators=[found])
            case offset_fetch.OffsetFetchRequest():
                (group,) = request.groups
                reply = code or await self._ask(node_id, group, version)
                if isinstance(reply, ErrorCode):
                    reply = offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=reply)
                return offset_fetch.OffsetFetchResponse(groups=[reply])
            case _ if Api(request.KEY) in (*CLASSIC, Api.CONSUMER_GROUP_HEARTBEAT):
                reply = code or await self._ask(node_id, request, version)
                return _refusal(request, reply) if isinstance(reply, ErrorCode) else reply
        return await super().handle(node_id, version, request, code)


def _refusal(request: Request, code: ErrorCode) -> Response:
    from penstock.coordinator import rebalance
    from penstock.wire.messages import leave_group, offset_commit

    match request:
        case JoinGroupRequest():
            refused: JoinGroupResponse = rebalance.refusal(code, 7, request.member_id)
            return refused
        case SyncGroupRequest():
            return rebalance.sync_refusal(code)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0
            )
        case OffsetCommitRequest():
            topics = [
                offset_commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_commit.OffsetCommitResponsePartition(
                            partition_index=part.partition_index, error_code=code
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            return offset_commit.OffsetCommitResponse(topics=topics)
    return leave_group.LeaveGroupResponse(error_code=code)
