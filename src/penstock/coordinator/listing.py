"""DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups: administration of groups.

Serves    DescribeGroups 0–6, ConsumerGroupDescribe 0–1, ListGroups 0–5, DeleteGroups 0–2.
Answers   a group of the other type is GROUP_ID_NOT_FOUND; before version 6 of DescribeGroups it is Dead.
Departs   nowhere from Kafka 4.3.
"""

from collections.abc import Iterable, Iterator, Mapping

from penstock.coordinator.changes import Group
from penstock.coordinator.classic import CONSUMER_PROTOCOL, ClassicGroup, State
from penstock.coordinator.consumer import ConsumerGroup, Partitions, by_topic
from penstock.coordinator.offsets import Offsets, Piece
from penstock.coordinator.requests import ListSomeGroups
from penstock.coordinator.work import Work
from penstock.model.errors import ErrorCode
from penstock.wire.messages import consumer_group_describe as described
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_NOT_FOUND_SINCE = 6
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""All operations on a group, as bits: read, delete, describe, describe and alter settings."""
UNTOLD = -0x80000000


def describe(
    groups: Mapping[str, Group], request: DescribeGroupsRequest, version: int, ticket: int, work: Work
) -> None:
    """Describes classic groups and their members."""
    shown = [_described(groups.get(group_id), group_id, request, version) for group_id in request.groups]
    work.reply(ticket, DescribeGroupsResponse(groups=shown))


def _operations(request: DescribeGroupsRequest | described.ConsumerGroupDescribeRequest) -> int:
    return OPERATIONS if request.include_authorized_operations else UNTOLD


def _described(group: Group | None, group_id: str, request: DescribeGroupsRequest, version: int) -> DescribedGroup:
    if not isinstance(group, ClassicGroup):
        is_told = version >= _NOT_FOUND_SINCE
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.NONE,
            error_message=f"Group {group_id} not found." if is_told else None,
            group_id=group_id,
            group_state="Dead",
            protocol_type="",
            protocol_data="",
            members=(),
        )
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
        authorized_operations=_operations(request),
    )


def describe_consumer(
    groups: Mapping[str, Group], request: described.ConsumerGroupDescribeRequest, ticket: int, work: Work
) -> None:
    """Describes consumer groups and their members."""
    shown = [_described_consumer(groups.get(group_id), group_id, request, work) for group_id in request.group_ids]
    work.reply(ticket, described.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=shown))


def _described_consumer(
    group: Group | None, group_id: str, request: described.ConsumerGroupDescribeRequest, work: Work
) -> described.DescribedGroup:
    if not isinstance(group, ConsumerGroup):
        return described.DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a consumer group." if group else f"Group {group_id} not found.",
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
        )
    members = [
        described.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.topics,
            subscribed_topic_regex=member.pattern or None,
            assignment=_shown(member.assigned, work),
            target_assignment=_shown(group.targets.get(member.member_id, frozenset()), work),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )
        for member in group.members.values()
    ]
    return described.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor(work.view.settings.assignors[0]),
        members=members,
        authorized_operations=_operations(request),
    )


def _shown(partitions: Partitions, work: Work) -> described.Assignment:
    topics = work.view.topics.by_id
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=numbers)
            for topic_id, numbers in by_topic(partitions).items()
            if topic_id in topics
        ]
    )


def list_groups(
    groups: Mapping[str, Group], asked: ListGroupsRequest | ListSomeGroups, ticket: int, work: Work
) -> None:
    """Lists groups of this shard, all or some, that pass the filters; deleted ones are left out."""
    request, group_ids = asked if isinstance(asked, ListSomeGroups) else (asked, groups)
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    shown = [
        each
        for each in _listed(groups, group_ids)
        if (not states or each.group_state.lower() in states) and (not types or each.group_type.lower() in types)
    ]
    work.reply(ticket, ListGroupsResponse(error_code=ErrorCode.NONE, groups=shown))


def _listed(groups: Mapping[str, Group], group_ids: Iterable[str]) -> Iterator[ListedGroup]:
    for group_id in group_ids:
        group = groups.get(group_id)
        if group is None:
            continue
        if isinstance(group, ConsumerGroup):
            yield ListedGroup(
                group_id=group_id, protocol_type=CONSUMER_PROTOCOL, group_state=group.state, group_type="consumer"
            )
        else:
            yield ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type="classic",
            )


def delete(
    groups: Mapping[str, Group], offsets: Offsets, request: DeleteGroupsRequest, ticket: int, work: Work
) -> None:
    """Deletes empty groups with their offsets, as many as fit into a batch; the others must be requested again."""
    piece, results = Piece(work), []
    for group_id in request.groups_names:
        group = groups.get(group_id)
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty:
            code = ErrorCode.NON_EMPTY_GROUP
        elif _has_gone(group, offsets, piece):
            code = ErrorCode.NONE
        else:
            break
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    work.reply(ticket, DeleteGroupsResponse(throttle_time_ms=0, results=results))


def _has_gone(group: Group, offsets: Offsets, piece: Piece) -> bool:
    for place in offsets.places(group.group_id):
        if piece.is_full:
            return False
        piece.take(group.group_id, *place)
    if piece.is_full:
        return False
    piece.take_group(group)
    return True
