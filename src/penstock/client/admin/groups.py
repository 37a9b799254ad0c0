"""Groups, their members and committed offsets. Each group belongs to one broker, its coordinator."""

import asyncio
import struct
from contextlib import suppress
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import ClientError, Refused, Unsupported, check
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.wire.codec import read_from
from penstock.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

_FIRST_OFFSETS_OF_MANY_GROUPS = 8
_LAST_OFFSETS_BY_NAME = 9
_VERSION = struct.Struct(">h")
_ELSEWHERE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it; state and type are empty if an old broker does not report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. The epoch is -1 for a classic group."""

    group_id: str
    type: str
    state: str
    assignor: str
    epoch: int
    members: tuple[GroupMember, ...]


class _Gone(ClientError):
    """A broker has left the cluster."""


async def list_groups(cluster: Cluster, *, timeout_ms: int | None = None) -> list[GroupListing]:
    """All groups of all coordinators, by name. If a broker leaves meanwhile, all brokers are queried again."""
    retry = cluster.retry(timeout_ms)
    while True:
        await cluster.refresh(timeout_ms=retry.left_ms)
        asked = (_groups_of(cluster, node_id, retry.left_ms) for node_id in sorted(cluster.view.brokers))
        found = await asyncio.gather(*asked)
        if None not in found:
            groups = {group.group_id: group for groups in found for group in groups or ()}
            return [groups[name] for name in sorted(groups)]


async def _groups_of(cluster: Cluster, node_id: int, timeout_ms: int) -> list[GroupListing] | None:
    """The groups that a broker coordinates; None if it has left the cluster meanwhile."""

    def broker() -> int:
        if node_id not in cluster.view.brokers:
            raise _Gone(f"broker {node_id} has left the cluster")
        return node_id

    try:
        response = await cluster.ask_checked(
            ListGroupsRequest(),
            ListGroupsResponse,
            lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
            node_id=broker,
            timeout_ms=timeout_ms,
        )
    except _Gone:
        return None
    check(response.error_code, None, f"broker {node_id}")
    return [
        GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type, node_id)
        for each in response.groups
    ]


async def describe_group(cluster: Cluster, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription:
    """A group, either a consumer group (KIP-848) or a classic one; raises Refused if there is none."""
    response = None
    with suppress(Unsupported):
        response = await cluster.ask_coordinator(
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
            ConsumerGroupDescribeResponse,
            lambda answer: [group.error_code for group in answer.groups if group.error_code is not ErrorCode.NONE],
            timeout_ms=timeout_ms,
        )
    if response is not None:
        (new,) = response.groups
        if new.error_code not in _ELSEWHERE:
            check(new.error_code, new.error_message, f"group {group_id}")
            members = tuple(
                GroupMember(each.member_id, each.instance_id, each.client_id, each.client_host, _by_id(each.assignment))
                for each in new.members
            )
            return GroupDescription(group_id, "consumer", new.group_state, new.assignor_name, new.group_epoch, members)
    return await _describe_classic(cluster, group_id, timeout_ms)


async def _describe_classic(cluster: Cluster, group_id: str, timeout_ms: int | None) -> GroupDescription:
    response = await cluster.ask_coordinator(
        group_id,
        DescribeGroupsRequest(groups=[group_id]),
        DescribeGroupsResponse,
        lambda answer: [group.error_code for group in answer.groups if group.error_code is not ErrorCode.NONE],
        timeout_ms=timeout_ms,
    )
    (found,) = response.groups
    check(found.error_code, found.error_message, f"group {group_id}")
    if found.group_state == "Dead":  # how brokers before 4.0 report an unknown group
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group", f"group {group_id}")
    members = tuple(
        GroupMember(
            each.member_id, each.group_instance_id, each.client_id, each.client_host, _classic(each.member_assignment)
        )
        for each in found.members
    )
    return GroupDescription(group_id, "classic", found.group_state, found.protocol_data, -1, members)


async def group_offsets(cluster: Cluster, group_id: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
    """The offsets that a group has committed, in all topics."""
    retry = cluster.retry(timeout_ms)
    while True:
        try:
            connection = await cluster.connection(await cluster.coordinator(group_id, timeout_ms=retry.left_ms))
            found = await _offsets_at(connection, group_id)
        except ClientError as error:
            await retry.after(error)
        else:
            break
    for partition, (problem, _) in found.items():
        check(problem, None, f"group {group_id}, {partition}")
    return {partition: offset for partition, (_, offset) in sorted(found.items()) if offset >= 0}


async def _offsets_at(connection: BrokerConnection, group_id: str) -> dict[TopicPartition, tuple[ErrorCode, int]]:
    """Error code and committed offset of each partition; raises Refused if the coordinator reports a group error."""
    version = connection.version_for(OffsetFetchRequest, _LAST_OFFSETS_BY_NAME)
    if version >= _FIRST_OFFSETS_OF_MANY_GROUPS:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        response = await connection.ask(request, OffsetFetchResponse, version=version)
        (group,) = response.groups
        code = group.error_code
        parts = [(topic.name, part) for topic in group.topics for part in topic.partitions]
        found = {
            TopicPartition(name, part.partition_index): (part.error_code, part.committed_offset) for name, part in parts
        }
    else:
        request = OffsetFetchRequest(group_id=group_id, topics=None)
        response = await connection.ask(request, OffsetFetchResponse, version=version)
        code = response.error_code
        found = {
            TopicPartition(topic.name, part.partition_index): (part.error_code, part.committed_offset)
            for topic in response.topics
            for part in topic.partitions
        }
    if code is not ErrorCode.NONE:
        raise Refused(code, None, f"group {group_id}")
    return found


async def delete_group(cluster: Cluster, group_id: str, *, timeout_ms: int | None = None) -> None:
    """Deletes an empty group and its offsets."""
    response = await cluster.ask_coordinator(
        group_id,
        DeleteGroupsRequest(groups_names=[group_id]),
        DeleteGroupsResponse,
        lambda answer: [each.error_code for each in answer.results if each.error_code is not ErrorCode.NONE],
        timeout_ms=timeout_ms,
    )
    (result,) = response.results
    check(result.error_code, None, f"group {group_id}")


def _by_id(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic(data: bytes) -> tuple[TopicPartition, ...]:
    """The assignment of a classic group's member; empty if it is not in the consumer protocol's format."""
    if len(data) < _VERSION.size:
        return ()
    version = min(_VERSION.unpack_from(data)[0], ConsumerProtocolAssignment.VERSIONS.last)
    try:
        assignment, _ = read_from(ConsumerProtocolAssignment, version, data, _VERSION.size)
    except ProtocolError:
        return ()
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )
