"""DescribeGroups, ListGroups, DeleteGroups: administration of groups.

Serves    DescribeGroups 0–6, ListGroups 0–5, DeleteGroups 0–2.
Answers   the reply of each group's coordinator (`coordinator/listing.py`). A request about several groups is split by
          shard; DescribeGroups answers in the order of the request. ListGroups returns the groups that this node
          coordinates; COORDINATOR_LOAD_IN_PROGRESS while some of them are being loaded. A group with more offsets than
          fit into one batch is deleted in several batches.
Departs   from Kafka 4.3: a group that is named several times in one request is answered once; more than 1,000 filters
          of ListGroups (FILTERS_MAX) are INVALID_REQUEST. A DescribeGroups response describes at most 32 MiB of members
          (DESCRIBED_BYTES_MAX); groups that do not fit are POLICY_VIOLATION.
"""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.coordinator.requests import Ask, ListSomeGroups
from penstock.model.errors import ErrorCode
from penstock.model.limits import MIB
from penstock.server.connections.serving import Call, serves
from penstock.server.groups.group_answer import asked_by
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.groups.group_shard import DrivenShard, Reply
from penstock.server.loop.pieces import PIECE_ELEMENTS, TOO_LARGE, Turns, cut, cut_by_weight, each_once, weight_of
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

FILTERS_MAX: Final = 1_000
"""States and types in one ListGroups request; about ten exist."""
DESCRIBED_BYTES_MAX: Final = 32 * MIB
"""Size of all members in one response; groups beyond it are POLICY_VIOLATION."""
MEMBER_BYTES: Final = 100
"""Size of a member without its metadata and assignment."""
FIRST_WITH_MESSAGE: Final = 6


async def ask_shards(
    groups: GroupCoordinator, names: Iterable[str], make: Callable[[list[str]], Ask[Reply]], turns: Turns
) -> list[tuple[list[str], Reply | None, ErrorCode]]:
    """Splits a request about groups by shard and size; returns for each part the reply, or None and an error."""
    by_shard: dict[tuple[int, ErrorCode], tuple[DrivenShard | None, list[str]]] = {}
    for name in names:
        await turns.after(weight_of(name))
        shard, code = groups.place(name)
        by_shard.setdefault((-1 if shard is None else shard.index, code), (shard, []))[1].append(name)
    answers: list[tuple[list[str], Reply | None, ErrorCode]] = []
    for (_, why), (shard, named) in by_shard.items():
        if shard is None:
            answers += [(list(part), None, why) for part in cut(named, PIECE_ELEMENTS)]
            continue
        for part in await cut_by_weight(named, shard.size_of, turns):
            reply, code = await groups.ask(shard, make(part), sum(map(shard.size_of, part)))
            answers.append((part, reply, code))
            await turns.after(len(part))
    return answers


class GroupAdminHandler:
    """Serves operators who list, describe and delete groups."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    @serves(DescribeGroupsRequest)
    async def describe_groups(self, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
        """Describes classic groups and their members."""
        includes, turns = request.include_authorized_operations, Turns()
        found: dict[str, DescribedGroup] = {}
        left = DESCRIBED_BYTES_MAX
        why = TOO_LARGE if call.version >= FIRST_WITH_MESSAGE else None
        names = await each_once(request.groups, turns)
        for part, reply, code in await ask_shards(
            self._groups,
            names,
            lambda part: asked_by(call, DescribeGroupsRequest(groups=part, include_authorized_operations=includes)),
            turns,
        ):
            for each in [_unknown(name, code) for name in part] if reply is None else reply.groups:
                size_bytes = _described_bytes(each)
                fits = size_bytes <= left
                left -= size_bytes if fits else 0
                found[each.group_id] = each if fits else _unknown(each.group_id, ErrorCode.POLICY_VIOLATION, why)
                await turns.after(1 + len(each.members))
        return DescribeGroupsResponse(groups=[found[name] for name in names])

    @serves(ListGroupsRequest)
    async def list_groups(self, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
        """Lists all groups that are coordinated here."""
        groups = self._groups
        listed: list[ListedGroup] = []
        if len(request.states_filter) + len(request.types_filter) > FILTERS_MAX:
            return ListGroupsResponse(error_code=ErrorCode.INVALID_REQUEST, groups=())
        for shard in list(groups.shards.values()):
            names = () if shard.shard is None else tuple(shard.shard.groups)
            for part in list(cut(names, PIECE_ELEMENTS)) or [()]:
                reply, code = await groups.ask(shard, asked_by(call, ListSomeGroups(request, part)), 1 + len(part))
                if reply is not None:
                    listed += reply.groups
                elif code is not ErrorCode.NOT_COORDINATOR:
                    return ListGroupsResponse(error_code=code, groups=())
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)

    @serves(DeleteGroupsRequest)
    async def delete_groups(self, request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
        """Deletes empty groups; a request that takes more than one batch is repeated."""
        results: list[DeletableGroupResult] = []
        turns = Turns()
        left: Iterable[str] = await each_once(request.groups_names, turns)
        while left:
            again: list[str] = []
            for part, reply, code in await ask_shards(
                self._groups, left, lambda part: asked_by(call, DeleteGroupsRequest(groups_names=part)), turns
            ):
                failed = [DeletableGroupResult(group_id=name, error_code=code) for name in part]
                told = failed if reply is None else reply.results
                results += told
                again += part[len(told) :]  # results are in the order of the part
            left = again
        return DeleteGroupsResponse(throttle_time_ms=0, results=results)


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
