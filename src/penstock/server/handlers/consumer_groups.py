"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: groups that need no meeting (KIP-848).

Serves    ConsumerGroupHeartbeat 0–1, ConsumerGroupDescribe 0–1.
Answers   what the group's coordinator decides (`coordinator/heartbeats.py`), once all that it rests on is committed;
          UNSUPPORTED_VERSION while the feature group.version is 0, or where `group.coordinator.rebalance.protocols`
          does not name `consumer`.
Departs   from Kafka 4.3: a heartbeat on a connection that is older than one on which its member was heard since closes
          that connection: it was delayed, and what it says is no longer so. A member of a group that is not there is
          UNKNOWN_MEMBER_ID, for GROUP_ID_NOT_FOUND is fatal to clients. A static member may go for a moment without
          its instance id, as franz-go's do. A group that is to be described several times is described once. More than
          TOPICS_MAX topics or PARTITIONS_MAX partitions of a member are INVALID_REQUEST. An answer describes members
          up to DESCRIBED_BYTES_MAX; groups behind that are POLICY_VIOLATION.
"""

from typing import Final

from penstock.model.errors import ErrorCode
from penstock.server.group_answer import ask_group, check_latest, framed
from penstock.server.handlers.group_admin import DESCRIBED_BYTES_MAX, MEMBER_BYTES, ask_shards
from penstock.server.handlers.needs import node_of
from penstock.server.pieces import TOO_LARGE, Turns, each_once
from penstock.server.serving import Answer, Call, serves, serves_overlapping
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
"""That one member names; they lie in one record."""
PARTITIONS_MAX: Final = 20_000
"""That one member has."""


@serves_overlapping(ConsumerGroupHeartbeatRequest, is_prompt=True)
def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call) -> Answer:
    """A member comes, stays or goes, and learns what it is to read."""
    groups = node_of(call).groups
    if not speaks_consumer_protocol(call):
        return framed(call, _refused(ErrorCode.UNSUPPORTED_VERSION))
    owned = request.topic_partitions or ()
    if (
        len(request.subscribed_topic_names or ()) > TOPICS_MAX
        or len(owned) > TOPICS_MAX
        or sum(len(each.partitions) for each in owned) > PARTITIONS_MAX
    ):
        return framed(call, _refused(ErrorCode.INVALID_REQUEST))
    check_latest(groups, call, request.group_id, request.member_id)
    return ask_group(groups, call, request.group_id, request, _refused)


def speaks_consumer_protocol(call: Call) -> bool:
    """Whether this node is to, and the cluster has agreed on it; one that agrees on nothing has not refused."""
    node = call.node
    if "consumer" not in node_of(call).groups.protocols:
        return False
    return not node.settings.features or node.controller.image.features.get(FEATURE, 0) >= 1


def _refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0)


@serves(ConsumerGroupDescribeRequest)
async def consumer_group_describe(request: ConsumerGroupDescribeRequest, call: Call) -> ConsumerGroupDescribeResponse:
    """Groups and their members, in the order of the request, each once."""
    turns = Turns()
    names = await each_once(request.group_ids, turns)
    if not speaks_consumer_protocol(call):
        shown = [_unknown(name, ErrorCode.UNSUPPORTED_VERSION) async for name in turns.through(names)]
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=shown)
    includes = request.include_authorized_operations
    found: dict[str, DescribedGroup] = {}
    left = DESCRIBED_BYTES_MAX
    for part, reply, code in await ask_shards(
        call,
        names,
        lambda part: ConsumerGroupDescribeRequest(group_ids=part, include_authorized_operations=includes),
        turns,
    ):
        for each in [_unknown(name, code) for name in part] if reply is None else reply.groups:
            size_bytes = sum(map(_described_bytes, each.members))
            fits = size_bytes <= left
            left -= size_bytes if fits else 0
            found[each.group_id] = each if fits else _unknown(each.group_id, ErrorCode.POLICY_VIOLATION, TOO_LARGE)
            await turns.after(1 + len(each.members))
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[found[name] for name in names])


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
