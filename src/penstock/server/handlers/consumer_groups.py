"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: groups that need no meeting (KIP-848).

Serves    ConsumerGroupHeartbeat 0–1, ConsumerGroupDescribe 0–1.
Answers   what the group's coordinator decides (`coordinator/heartbeats.py`), once all that it rests on is committed;
          UNSUPPORTED_VERSION while the feature group.version is 0, or where `group.coordinator.rebalance.protocols`
          does not name `consumer`.
Departs   from Kafka 4.3: a heartbeat on a connection that is older than one on which its member was heard since closes
          that connection: it was delayed, and what it says is no longer so. A member of a group that is not there is
          UNKNOWN_MEMBER_ID, for GROUP_ID_NOT_FOUND is fatal to clients. A static member may go for a moment without
          its instance id, as franz-go's do. A group that is to be described several times is described once.
"""

from penstock.model.errors import ErrorCode
from penstock.server.group_answer import ask_group, check_latest, framed
from penstock.server.handlers.group_admin import ask_shards
from penstock.server.handlers.needs import node_of
from penstock.server.serving import Answer, Call, serves, serves_overlapping
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

FEATURE = "group.version"


@serves_overlapping(ConsumerGroupHeartbeatRequest, is_prompt=True)
def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call) -> Answer:
    """A member comes, stays or goes, and learns what it is to read."""
    groups = node_of(call).groups
    if not speaks_consumer_protocol(call):
        return framed(call, _refused(ErrorCode.UNSUPPORTED_VERSION))
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
    if not speaks_consumer_protocol(call):
        shown = [_unknown(name, ErrorCode.UNSUPPORTED_VERSION) for name in dict.fromkeys(request.group_ids)]
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=shown)
    includes = request.include_authorized_operations
    found: dict[str, DescribedGroup] = {}
    for part, reply, code in await ask_shards(
        call,
        request.group_ids,
        lambda part: ConsumerGroupDescribeRequest(group_ids=part, include_authorized_operations=includes),
    ):
        shown = [_unknown(name, code) for name in part] if reply is None else reply.groups
        found |= {each.group_id: each for each in shown}
    shown = [found[name] for name in dict.fromkeys(request.group_ids)]
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=shown)


def _unknown(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
