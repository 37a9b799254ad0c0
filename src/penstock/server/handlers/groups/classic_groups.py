"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: membership in classic groups.

Serves    JoinGroup 0–9, SyncGroup 0–5, Heartbeat 0–4, LeaveGroup 0–5.
Answers   the decision of the group's coordinator (`coordinator/rebalance.py`, `staying.py`), once everything that it
          depends on is committed; NOT_COORDINATOR if another broker coordinates the group. A join waits for the other
          members, possibly for minutes; later requests on its connection are decided meanwhile, and answered in order.
Departs   from Kafka 4.3: a join that is too large for one record (JOIN_BYTES_MAX, 1 MiB) is INVALID_REQUEST; a static
          member that returns with other topics starts a rebalance; a coordinator that was stalled reads waiting
          heartbeats before it expires members; a join on a connection older than that of the member's last join closes
          the older connection. More than 1,000 protocols of a member (PROTOCOLS_MAX), or 10,000 assignments of a group
          leader (ASSIGNMENTS_MAX), are INVALID_REQUEST. More than 250 members (LEAVING_AT_ONCE) leave in several steps,
          and one that is named several times is then answered once.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.coordinator import rebalance
from penstock.model.errors import ErrorCode
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.serving import Answer, Buffers, Call, Unfinished, serves_overlapping
from penstock.server.groups.group_answer import ask_group, asked_by, check_latest, framed, framed_by_worker
from penstock.server.groups.group_coordinator import Answered, GroupCoordinator
from penstock.server.loop.pieces import Turns, by_name, cut
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from penstock.wire.messages.sync_group import SyncGroupRequest

JOIN_BYTES_MAX: Final = DEFAULT_LIMITS.batch_bytes_max
"""A member's metadata is stored in one record."""
PROTOCOLS_MAX: Final = 1_000
"""Protocols of one member; consumers name one per assignor."""
ASSIGNMENTS_MAX: Final = 10_000
"""Assignments of one generation; they are stored in one record."""
LEAVING_AT_ONCE: Final = 250
"""Members that leave in one decision."""


class ClassicGroupsHandler:
    """Serves members of classic groups."""

    def __init__(self, groups: GroupCoordinator, codec: CodecWorker) -> None:
        self._groups = groups
        self._codec = codec

    @serves_overlapping(JoinGroupRequest, is_prompt=True)
    def join_group(self, request: JoinGroupRequest, call: Call) -> Answer:
        """Joins or rejoins a member."""
        if call.request_bytes > JOIN_BYTES_MAX or len(request.protocols) > PROTOCOLS_MAX:
            return framed(call, rebalance.refusal(ErrorCode.INVALID_REQUEST, call.version, request.member_id))
        groups = self._groups
        check_latest(groups, call, request.group_id, request.member_id)
        return ask_group(
            groups,
            call,
            request.group_id,
            asked_by(call, request),
            lambda code: rebalance.refusal(code, call.version, request.member_id),
        )

    @serves_overlapping(SyncGroupRequest, is_prompt=True)
    def sync_group(self, request: SyncGroupRequest, call: Call) -> Answer:
        """Returns a member's assignment; the group leader supplies all assignments."""
        if len(request.assignments) > ASSIGNMENTS_MAX:
            return framed(call, rebalance.sync_refusal(ErrorCode.INVALID_REQUEST))
        return ask_group(self._groups, call, request.group_id, asked_by(call, request), rebalance.sync_refusal)

    @serves_overlapping(HeartbeatRequest, is_prompt=True)
    def heartbeat(self, request: HeartbeatRequest, call: Call) -> Answer:
        """Renews a member's session."""
        ask = asked_by(call, request)
        return ask_group(self._groups, call, request.group_id, ask, lambda code: HeartbeatResponse(error_code=code))

    @serves_overlapping(LeaveGroupRequest, is_prompt=True)
    def leave_group(self, request: LeaveGroupRequest, call: Call) -> Answer | Unfinished:
        """Removes members."""
        if len(request.members) > LEAVING_AT_ONCE:
            return Unfinished(self._leave_in_parts(call, request))
        ask = asked_by(call, request)
        return ask_group(self._groups, call, request.group_id, ask, lambda code: LeaveGroupResponse(error_code=code))

    async def _leave_in_parts(self, call: Call, request: LeaveGroupRequest) -> Answer:
        shard, code = self._groups.place(request.group_id)
        if shard is None:
            return framed(call, LeaveGroupResponse(error_code=code))
        turns = Turns()
        named = await by_name((((each.member_id, each.group_instance_id), each) for each in request.members), turns)
        parts = list(cut([found[0] for found in named.values()], LEAVING_AT_ONCE))
        asked = []
        for part in parts:
            command = LeaveGroupRequest(group_id=request.group_id, members=part)
            asked.append(self._groups.begin(shard, asked_by(call, command), len(part)))
            await turns.after(len(part))
        return self._left(call, asked)

    async def _left(self, call: Call, asked: "Sequence[asyncio.Future[Answered[LeaveGroupResponse]]]") -> Buffers:
        members: list[MemberResponse] = []
        refusal = ErrorCode.NONE
        for each in asked:
            reply, code = await each
            refusal = refusal or code or (ErrorCode.NONE if reply is None else reply.error_code)
            members += () if reply is None else reply.members
        return await framed_by_worker(
            self._codec, call, LeaveGroupResponse(error_code=refusal, members=() if refusal else members)
        )
