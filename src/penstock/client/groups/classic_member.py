"""A member of a classic group: joins, assigns partitions if it is the leader, and sends heartbeats.

It offers only cooperative-sticky, so it continues to read during a rebalance, and revokes only the partitions that it
loses; it then joins again, so that other members can get them.
"""

from typing import Final

from penstock.client.errors import ClientError, Refused, check
from penstock.client.groups import assigning
from penstock.client.groups.assigning import COOPERATIVE_STICKY, PROTOCOL_TYPE, Wish
from penstock.client.groups.coordinator_link import MOVED
from penstock.client.groups.membership import Membership, is_one_of
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_FIRST_LEAVING_MANY: Final = 3
_SLACK_MS: Final = 5_000


class ClassicMember(Membership):
    """See the module."""

    _counts: dict[str, int]
    """Partition count of each topic when this member, as leader, assigned them; empty if it is not the leader."""

    async def run(self) -> None:
        """See Membership."""
        self._counts = {}
        while True:
            await self._wait_for_reader()
            try:
                given = await self._join()
            except ClientError as error:
                await self._take(error)
            else:
                gives_up = any(each not in given for each in self._holder.owned())
                self._strive(given)
                await self._stay(joins_again=gives_up)

    async def _take(self, error: ClientError) -> None:
        """Handles a failed join."""
        if is_one_of(error, ErrorCode.UNKNOWN_MEMBER_ID):
            self.member_id = ""
            self._out()
        elif is_one_of(error, ErrorCode.ILLEGAL_GENERATION):
            self._out()
        else:
            await self._pause(error)

    # --- joining

    async def _join(self) -> tuple[TopicPartition, ...]:
        """Joins a new generation; returns the assignment of this member."""
        joined = await self._enter()
        if joined.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await self._enter()
        check(joined.error_code, None, f"group {self._group_id}")
        self.member_id = joined.member_id
        shares = await self._shares(joined)
        sent_ms = self._clock.monotonic_ms()
        synced = await self._link.ask(
            SyncGroupRequest(
                group_id=self._group_id,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.protocol_name,
                assignments=shares,
            ),
            SyncGroupResponse,
            timeout_ms=self._settings.rebalance_timeout_ms + _SLACK_MS,
        )
        check(synced.error_code, None, f"group {self._group_id}")
        self.epoch = joined.generation_id
        self._heard(sent_ms)
        try:
            return assigning.read_assignment(synced.assignment)
        except ProtocolError as error:
            raise Refused(error.code, f"what the group's leader assigned cannot be read: {error}") from error

    async def _enter(self) -> JoinGroupResponse:
        settings = self._settings
        wish = Wish(self._topics, tuple(self._holder.owned()), self.epoch)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=COOPERATIVE_STICKY, metadata=assigning.subscription_bytes(wish))],
        )
        limit_ms = settings.rebalance_timeout_ms + _SLACK_MS
        return await self._link.ask(request, JoinGroupResponse, timeout_ms=limit_ms)

    async def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The assignments of all members, if this member is the leader."""
        self._counts = {}
        if joined.leader != joined.member_id or joined.skip_assignment:
            return []
        try:
            wishes = {each.member_id: assigning.read_wish(each.metadata) for each in joined.members}
        except ProtocolError as error:
            raise Refused(error.code, f"what another member of the group wants cannot be read: {error}") from error
        self._counts = await self._count(sorted({topic for wish in wishes.values() for topic in wish.topics}))
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assigning.assignment_bytes(share))
            for member_id, share in assigning.assigned(wishes, self._counts).items()
        ]

    async def _count(self, topics: list[str]) -> dict[str, int]:
        await self._cluster.refresh(topics, timeout_ms=self._cluster.request_timeout_ms)
        known = self._cluster.view.topics
        return {topic: len(known[topic].partitions) if topic in known else 0 for topic in topics}

    # --- staying

    async def _stay(self, *, joins_again: bool) -> None:
        """Sends heartbeats until it is time to join again and no partition is being revoked or assigned."""
        checked_ms = self._clock.monotonic_ms()
        while not (joins_again and self.is_settled):
            await self.bell.wait(self._settings.heartbeat_ms)
            self._check_trouble()
            if self._is_reader_lost:
                return
            sent_ms = self._clock.monotonic_ms()
            if self._counts and sent_ms - checked_ms >= TOPICS_CHECKED_MS:
                checked_ms = sent_ms
                joins_again |= await self._have_topics_grown()
            try:
                code = await self._heartbeat()
            except ClientError as error:
                await self._pause(error)
                if self.epoch < 0:
                    return
                continue
            if code is ErrorCode.NONE or code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._heard(sent_ms)
                joins_again |= code is ErrorCode.REBALANCE_IN_PROGRESS
            elif code is ErrorCode.UNKNOWN_MEMBER_ID or code is ErrorCode.ILLEGAL_GENERATION:
                if code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                self._out()
                return
            else:
                check(code, None, f"group {self._group_id}")

    async def _heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
        )
        limit_ms = min(self._cluster.request_timeout_ms, self._settings.session_timeout_ms)
        response = await self._link.ask(request, HeartbeatResponse, timeout_ms=limit_ms)
        if response.error_code in MOVED:
            check(response.error_code, None, f"group {self._group_id}")
        return response.error_code

    async def _have_topics_grown(self) -> bool:
        try:
            return await self._count(list(self._counts)) != self._counts
        except ClientError:
            return False

    async def leave(self) -> None:
        """See Membership."""
        if not self.member_id or self._instance_id is not None:
            return
        connection = await self._link.connection(timeout_ms=self._cluster.request_timeout_ms)
        version = connection.version_for(LeaveGroupRequest)
        if version >= _FIRST_LEAVING_MANY:
            who = MemberIdentity(member_id=self.member_id, reason="the consumer is being closed")
            request = LeaveGroupRequest(group_id=self._group_id, members=[who])
        else:
            request = LeaveGroupRequest(group_id=self._group_id, member_id=self.member_id)
        await connection.ask(request, LeaveGroupResponse, version=version)
        self.member_id = ""


TOPICS_CHECKED_MS: Final = 60_000
"""How often the leader checks whether topics have more partitions."""
