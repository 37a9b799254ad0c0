"""A member of a consumer group (KIP-848): the coordinator sends the assignment, heartbeats report owned partitions.

It first revokes the partitions that it has lost and reports this; it takes new partitions at once. The group has no
synchronization barrier, and the partitions that a member keeps are read without a pause.
"""

from typing import Final

from penstock.client.errors import ClientError, Refused, advice, check
from penstock.client.groups.commits import NO_EPOCH
from penstock.client.groups.membership import Membership, is_one_of
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import by_topic
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING: Final = 0
LEAVING: Final = -1
AWAY: Final = -2
"""A static member that leaves temporarily."""
_OWN_IDS_SINCE: Final = 1

NOT_FOR_US: Final = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
)
"""The broker has KIP-848 turned off, or the group has members that keep it classic."""


class ConsumerMember(Membership):
    """See the module."""

    _said: list[TopicPartition] | None = None
    """The owned partitions last reported to the coordinator; None if the next heartbeat must be a full one."""
    _assigned: Assignment | None = None
    _interval_ms = 0

    async def run(self) -> None:
        """See Membership."""
        self._interval_ms = self._settings.heartbeat_ms
        while True:
            await self._wait_for_reader()
            sent_ms = self._clock.monotonic_ms()
            try:
                response = await self._heartbeat()
                await self._follow(response, sent_ms)
            except ClientError as error:
                self._said = None
                if is_one_of(error, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                    self._out()
                else:
                    await self._pause(error)
                continue
            await self.bell.wait(self._interval_ms)
            self._check_trouble()

    async def _heartbeat(self) -> ConsumerGroupHeartbeatResponse:
        connection = await self._link.connection(timeout_ms=self._cluster.request_timeout_ms)
        version = connection.version_for(ConsumerGroupHeartbeatRequest)
        if not self.member_id and version >= _OWN_IDS_SINCE:
            self.member_id = _new_id(self._cluster.ports.entropy.token(16))
        is_joining = self.epoch == NO_EPOCH
        owned = sorted(self._holder.owned())
        is_full = is_joining or self._said is None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=JOINING if is_joining else self.epoch,
            instance_id=self._instance_id,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=self._topics if is_full else None,
            topic_partitions=self._by_id(owned) if is_full or owned != self._said else None,
        )
        limit_ms = min(self._cluster.request_timeout_ms, self._settings.session_timeout_ms)
        response = await self._link.ask(request, ConsumerGroupHeartbeatResponse, timeout_ms=limit_ms)
        message = advice(response.error_code) or response.error_message
        check(response.error_code, message, f"group {self._group_id}")
        self._said = owned
        return response

    async def _follow(self, response: ConsumerGroupHeartbeatResponse, sent_ms: int) -> None:
        if response.member_id:
            self.member_id = response.member_id
        self.epoch = response.member_epoch
        self._heard(sent_ms)
        self._interval_ms = response.heartbeat_interval_ms or self._settings.heartbeat_ms
        if response.assignment is not None:
            self._assigned = response.assignment
        if self._assigned is not None:
            self._strive(await self._named(self._assigned))

    async def _named(self, assignment: Assignment) -> list[TopicPartition]:
        """The assigned partitions by name; those of topics that are still unknown are left out."""
        view = self._cluster.view
        if any(view.name_of(topic.topic_id) is None for topic in assignment.topic_partitions):
            await self._cluster.refresh(self._topics, timeout_ms=self._cluster.request_timeout_ms)
        return [
            TopicPartition(name, partition)
            for topic in assignment.topic_partitions
            if (name := view.name_of(topic.topic_id)) is not None
            for partition in topic.partitions
        ]

    def _by_id(self, partitions: list[TopicPartition]) -> list[TopicPartitions]:
        topics = self._cluster.view.topics
        return [
            TopicPartitions(topic_id=topics[name].topic_id, partitions=[each.partition for each in found])
            for name, found in by_topic(partitions).items()
            if name in topics
        ]

    def _out(self) -> None:
        self._assigned = None
        self._said = None
        super()._out()

    async def leave(self) -> None:
        """See Membership."""
        if self.epoch == NO_EPOCH:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=LEAVING if self._instance_id is None else AWAY,
            instance_id=self._instance_id,
        )
        await self._link.ask(request, ConsumerGroupHeartbeatResponse, timeout_ms=self._cluster.request_timeout_ms)


def _new_id(token: bytes) -> str:
    text = token.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_not_for_us(error: ClientError) -> bool:
    """Whether the group, or its broker, accepts only classic members."""
    return isinstance(error, Refused) and error.code in NOT_FOR_US
