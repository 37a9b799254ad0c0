"""DescribeGroups, ListGroups, DeleteGroups: what operators see of groups, and what they take away.

Serves    DescribeGroups 0–6, ListGroups 0–5, DeleteGroups 0–2.
Answers   per group what its coordinator says (`coordinator/listing.py`); a request about several groups is cut by shard
          and joined again, in its order. ListGroups tells of the groups that are coordinated here;
          COORDINATOR_LOAD_IN_PROGRESS while some of them are still being read. A group with more offsets than a batch
          holds is deleted in several.
Departs   from Kafka 4.3: a group that is named several times in one request is told of once; more than FILTERS_MAX
          filters of ListGroups are INVALID_REQUEST. What DescribeGroups tells of members has a limit
          (DESCRIBED_BYTES_MAX); groups behind it are POLICY_VIOLATION.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.coordinator.listing import ListSome
from penstock.model.errors import ErrorCode
from penstock.model.limits import MIB
from penstock.server.group_answer import asked_by
from penstock.server.group_shard import DrivenShard
from penstock.server.handlers.needs import node_of
from penstock.server.pieces import PIECE_ELEMENTS, TOO_LARGE, Turns, cut, cut_by_weight, each_once, weight_of
from penstock.server.serving import Call, serves
from penstock.wire.declare import Request
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

FILTERS_MAX: Final = 1_000
"""States and types that ListGroups is asked for; there are about ten."""
DESCRIBED_BYTES_MAX: Final = 32 * MIB
"""What one answer tells of the members of all its groups; the groups behind that are POLICY_VIOLATION."""
MEMBER_BYTES: Final = 100
"""What a member takes besides its metadata and assignment."""
FIRST_WITH_MESSAGE: Final = 6


async def ask_shards(
    call: Call, names: Iterable[str], make: Callable[[list[str]], Request], turns: Turns
) -> list[tuple[list[str], Any, ErrorCode]]:
    """Cuts a request about groups by shard and size; what was said of which, or None and why nothing was."""
    groups = node_of(call).groups
    by_shard: dict[tuple[int, ErrorCode], tuple[DrivenShard | None, list[str]]] = {}
    for name in names:
        await turns.after(weight_of(name))
        shard, code = groups.place(name)
        by_shard.setdefault((-1 if shard is None else shard.index, code), (shard, []))[1].append(name)
    answers: list[tuple[list[str], Any, ErrorCode]] = []
    for (_, why), (shard, named) in by_shard.items():
        if shard is None:
            answers += [(list(part), None, why) for part in cut(named, PIECE_ELEMENTS)]
            continue
        for part in await cut_by_weight(named, shard.size_of, turns):
            reply, code = await groups.ask(shard, asked_by(call, make(part)), sum(map(shard.size_of, part)))
            answers.append((part, reply, code))
            await turns.after(len(part))
    return answers


@serves(DescribeGroupsRequest)
async def describe_groups(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    """Classic groups and their members."""
    includes, turns = request.include_authorized_operations, Turns()
    found: dict[str, DescribedGroup] = {}
    left = DESCRIBED_BYTES_MAX
    why = TOO_LARGE if call.version >= FIRST_WITH_MESSAGE else None
    names = await each_once(request.groups, turns)
    for part, reply, code in await ask_shards(
        call,
        names,
        lambda part: DescribeGroupsRequest(groups=part, include_authorized_operations=includes),
        turns,
    ):
        for each in [_unknown(name, code) for name in part] if reply is None else reply.groups:
            size_bytes = _described_bytes(each)
            fits = size_bytes <= left
            left -= size_bytes if fits else 0
            found[each.group_id] = each if fits else _unknown(each.group_id, ErrorCode.POLICY_VIOLATION, why)
            await turns.after(1 + len(each.members))
    return DescribeGroupsResponse(groups=[found[name] for name in names])


def _described_bytes(group: DescribedGroup) -> int:
    return sum(MEMBER_BYTES + len(each.member_metadata) + len(each.member_assignment) for each in group.members)


def _unknown(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=(),
    )


@serves(ListGroupsRequest)
async def list_groups(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    """All groups that are coordinated here."""
    groups = node_of(call).groups
    listed: list[ListedGroup] = []
    if len(request.states_filter) + len(request.types_filter) > FILTERS_MAX:
        return ListGroupsResponse(error_code=ErrorCode.INVALID_REQUEST, groups=())
    for shard in list(groups.shards.values()):
        names = () if shard.shard is None else tuple(shard.shard.groups)
        for part in list(cut(names, PIECE_ELEMENTS)) or [()]:
            reply, code = await groups.ask(shard, asked_by(call, ListSome(request, part)), 1 + len(part))
            if not code:
                listed += reply.groups
            elif code is not ErrorCode.NOT_COORDINATOR:
                return ListGroupsResponse(error_code=code, groups=())
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)


@serves(DeleteGroupsRequest)
async def delete_groups(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    """Empty groups go; a coordinator that is not through with them after a batch is asked again."""
    results: list[DeletableGroupResult] = []
    turns = Turns()
    left: Iterable[str] = await each_once(request.groups_names, turns)
    while left:
        again: list[str] = []
        for part, reply, code in await ask_shards(
            call, left, lambda part: DeleteGroupsRequest(groups_names=part), turns
        ):
            failed = [DeletableGroupResult(group_id=name, error_code=code) for name in part]
            told = failed if reply is None else reply.results
            results += told
            again += part[len(told) :]  # they are told of in the order of the part
        left = again
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
