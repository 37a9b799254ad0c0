"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: consumer groups, whose partitions the coordinator assigns.

Serves    ConsumerGroupHeartbeat 0–1, ConsumerGroupDescribe 0–1 (KIP-848).
Answers   the decision of the group's coordinator (`coordinator/heartbeats.py`), once everything that it depends on is
          committed; UNSUPPORTED_VERSION while the feature `group.version` is 0, or if
          `group.coordinator.rebalance.protocols` does not contain `consumer`.
Departs   from Kafka 4.3: a heartbeat on a connection older than that of the member's last heartbeat closes the older
          connection: it was delayed, and is outdated. A member of an unknown group gets UNKNOWN_MEMBER_ID, because
          GROUP_ID_NOT_FOUND is fatal to clients. A static member may leave temporarily without its instance id, as
          franz-go's do. A group that is named several times is described once. More than 10,000 topics (TOPICS_MAX) or
          20,000 partitions (PARTITIONS_MAX) of a member are INVALID_REQUEST. A response describes at most 32 MiB of
          members (DESCRIBED_BYTES_MAX); groups that do not fit are POLICY_VIOLATION.
"""

from collections.abc import Sequence
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.server.connections.serving import Answer, Call, serves, serves_overlapping
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.groups.group_answer import ask_group, asked_by, check_latest, framed
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.handlers.groups.group_admin import DESCRIBED_BYTES_MAX, MEMBER_BYTES, ask_shards
from penstock.server.loop.pieces import TOO_LARGE, Turns, each_once
from penstock.server.settings import Feature
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

FEATURE = "group.version"
TOPICS_MAX: Final = 10_000
"""Topics that one member names; they are stored in one record."""
PARTITIONS_MAX: Final = 20_000
"""Partitions that one member owns."""


class ConsumerGroupsHandler:
    """Serves members of consumer groups (KIP-848)."""

    def __init__(self, groups: GroupCoordinator, controller: ControllerRunner, features: Sequence[Feature]) -> None:
        self._groups = groups
        self._controller = controller
        self._features = features

    @serves_overlapping(ConsumerGroupHeartbeatRequest, is_prompt=True)
    def consumer_group_heartbeat(self, request: ConsumerGroupHeartbeatRequest, call: Call) -> Answer:
        """Joins, renews or removes a member, and returns its assignment."""
        groups = self._groups
        if not self._speaks_consumer_protocol:
            return framed(call, _refused(ErrorCode.UNSUPPORTED_VERSION))
        owned = request.topic_partitions or ()
        if (
            len(request.subscribed_topic_names or ()) > TOPICS_MAX
            or len(owned) > TOPICS_MAX
            or sum(len(each.partitions) for each in owned) > PARTITIONS_MAX
        ):
            return framed(call, _refused(ErrorCode.INVALID_REQUEST))
        check_latest(groups, call, request.group_id, request.member_id)
        return ask_group(groups, call, request.group_id, asked_by(call, request), _refused)

    @property
    def _speaks_consumer_protocol(self) -> bool:
        """Whether the settings and group.version enable the protocol; a node without features ignores the latter."""
        if "consumer" not in self._groups.protocols:
            return False
        return not self._features or self._controller.image.features.get(FEATURE, 0) >= 1

    @serves(ConsumerGroupDescribeRequest)
    async def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, call: Call
    ) -> ConsumerGroupDescribeResponse:
        """Describes groups and their members, in the order of the request, each once."""
        turns = Turns()
        names = await each_once(request.group_ids, turns)
        if not self._speaks_consumer_protocol:
            shown = [_unknown(name, ErrorCode.UNSUPPORTED_VERSION) async for name in turns.through(names)]
            return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=shown)
        includes = request.include_authorized_operations
        found: dict[str, DescribedGroup] = {}
        left = DESCRIBED_BYTES_MAX
        for part, reply, code in await ask_shards(
            self._groups,
            names,
            lambda part: asked_by(
                call, ConsumerGroupDescribeRequest(group_ids=part, include_authorized_operations=includes)
            ),
            turns,
        ):
            for each in [_unknown(name, code) for name in part] if reply is None else reply.groups:
                size_bytes = sum(map(_described_bytes, each.members))
                fits = size_bytes <= left
                left -= size_bytes if fits else 0
                found[each.group_id] = each if fits else _unknown(each.group_id, ErrorCode.POLICY_VIOLATION, TOO_LARGE)
                await turns.after(1 + len(each.members))
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[found[name] for name in names])


def _refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0)


def _described_bytes(member: Member) -> int:
    said = sum(map(len, member.subscribed_topic_names)) + len(member.subscribed_topic_regex or "")
    topics = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return MEMBER_BYTES + said + sum(20 + len(each.topic_name) + 4 * len(each.partitions) for each in topics)


def _unknown(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
