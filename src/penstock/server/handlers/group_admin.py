"""DescribeGroups, ListGroups, DeleteGroups: what operators see of groups, and what they take away.

Serves    DescribeGroups 0–6, ListGroups 0–5, DeleteGroups 0–2.
Answers   per group what its coordinator says (`coordinator/listing.py`); a request about several groups is cut by shard
          and joined again, in its order. ListGroups tells of the groups that are coordinated here;
          COORDINATOR_LOAD_IN_PROGRESS while some of them are still being read. A group with more offsets than a batch
          holds is deleted in several.
Departs   from Kafka 4.3: a group that is named several times in one request is told of once.
"""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.server.group_answer import asked_by
from penstock.server.group_shard import DrivenShard
from penstock.server.handlers.needs import node_of
from penstock.server.serving import Call, serves
from penstock.wire.declare import Request
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def ask_shards(
    call: Call, names: Sequence[str], make: Callable[[list[str]], Request]
) -> list[tuple[list[str], Any, ErrorCode]]:
    """Cuts a request about groups by shard, each group once; what was said of which, or None and why nothing was."""
    groups = node_of(call).groups
    cut: dict[tuple[int, ErrorCode], tuple[DrivenShard | None, list[str]]] = {}
    for name in dict.fromkeys(names):
        shard, code = groups.place(name)
        cut.setdefault((-1 if shard is None else shard.index, code), (shard, []))[1].append(name)
    answers: list[tuple[list[str], Any, ErrorCode]] = []
    for (_, why), (shard, part) in cut.items():
        reply, code = (None, why) if shard is None else await groups.ask(shard, asked_by(call, make(part)))
        answers.append((part, reply, code))
    return answers


@serves(DescribeGroupsRequest)
async def describe_groups(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    """Classic groups and their members."""
    includes = request.include_authorized_operations
    found: dict[str, DescribedGroup] = {}
    for part, reply, code in await ask_shards(
        call,
        request.groups,
        lambda part: DescribeGroupsRequest(groups=part, include_authorized_operations=includes),
    ):
        shown = [_unknown(name, code) for name in part] if reply is None else reply.groups
        found |= {each.group_id: each for each in shown}
    return DescribeGroupsResponse(groups=[found[name] for name in dict.fromkeys(request.groups)])


def _unknown(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=()
    )


@serves(ListGroupsRequest)
async def list_groups(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    """All groups that are coordinated here."""
    groups = node_of(call).groups
    listed: list[ListedGroup] = []
    for shard in list(groups.shards.values()):
        reply, code = await groups.ask(shard, asked_by(call, request))
        if not code:
            listed += reply.groups
        elif code is not ErrorCode.NOT_COORDINATOR:
            return ListGroupsResponse(error_code=code, groups=())
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)


@serves(DeleteGroupsRequest)
async def delete_groups(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    """Empty groups go; a coordinator that is not through with them after a batch is asked again."""
    results: list[DeletableGroupResult] = []
    left = dict.fromkeys(request.groups_names)
    while left:
        for part, reply, code in await ask_shards(
            call, list(left), lambda part: DeleteGroupsRequest(groups_names=part)
        ):
            failed = [DeletableGroupResult(group_id=name, error_code=code) for name in part]
            told = failed if reply is None else reply.results
            results += told
            for each in told:
                del left[each.group_id]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
