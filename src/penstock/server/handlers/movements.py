"""ElectLeaders, AlterPartition, AlterPartitionReassignments, ListPartitionReassignments: who leads, and where.

Serves    ElectLeaders 0–2, AlterPartitionReassignments 0–1, ListPartitionReassignments 0; AlterPartition 2–3 on
          listeners of controllers.
Answers   once a change is committed; codes and sentences are the controller's. INVALID_REQUEST for a kind of election
          that nobody knows.
Departs   from Kafka 4.3: a leader may leave itself out of the in-sync replicas, as one does whose log has failed;
          another one leads then.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from penstock.metadata.cluster_commands import (
    AlteredPartition,
    AlteredPartitions,
    AlterPartition,
    AlterReassignments,
    Elected,
    ElectLeaders,
    ListReassignments,
    NewIsr,
    PartitionRef,
    Reassigned,
    Reassignment,
)
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.handlers.needs import node_of
from penstock.server.serving import Call, serves
from penstock.wire.messages import alter_partition as altering
from penstock.wire.messages import alter_partition_reassignments as moving
from penstock.wire.messages import elect_leaders as electing
from penstock.wire.messages import list_partition_reassignments as listing

PREFERRED = 0
UNCLEAN = 1
FIRST_WITH_EPOCHS = 3

Item = TypeVar("Item")
Key = TypeVar("Key", str, bytes)


def _grouped(items: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = {}
    for key, item in items:
        groups.setdefault(key, []).append(item)
    return groups


@serves(electing.ElectLeadersRequest, is_for_controller=True)
async def elect_leaders(request: electing.ElectLeadersRequest, call: Call) -> electing.ElectLeadersResponse:
    """Preferred leaders, or any that is left."""
    wanted = request.topic_partitions
    refs = None if wanted is None else tuple(PartitionRef(t.topic, index) for t in wanted for index in t.partitions)
    code, elected = ErrorCode.NONE, tuple[Elected, ...]()
    if request.election_type not in (PREFERRED, UNCLEAN):
        code = ErrorCode.INVALID_REQUEST
    else:
        try:
            elected = await node_of(call).controller.ask(ElectLeaders(refs, request.election_type == UNCLEAN))
        except ProtocolError as error:
            code = error.code
    results = _grouped(
        (
            each.partition.topic,
            electing.PartitionResult(
                partition_id=each.partition.number, error_code=each.code, error_message=each.message
            ),
        )
        for each in elected
    )
    return electing.ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code,
        replica_election_results=[
            electing.ReplicaElectionResult(topic=topic, partition_result=parts) for topic, parts in results.items()
        ],
    )


@serves(moving.AlterPartitionReassignmentsRequest, is_for_controller=True)
async def alter_partition_reassignments(
    request: moving.AlterPartitionReassignmentsRequest, call: Call
) -> moving.AlterPartitionReassignmentsResponse:
    """Partitions move, or stop moving."""
    wanted = tuple(
        Reassignment(
            PartitionRef(topic.name, each.partition_index), None if each.replicas is None else tuple(each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    )
    code, message, reassigned = ErrorCode.NONE, None, tuple[Reassigned, ...]()
    try:
        reassigned = await node_of(call).controller.ask(
            AlterReassignments(wanted, request.allow_replication_factor_change)
        )
    except ProtocolError as error:
        code, message = error.code, str(error)
    results = _grouped(
        (
            each.partition.topic,
            moving.ReassignablePartitionResponse(
                partition_index=each.partition.number, error_code=each.code, error_message=each.message
            ),
        )
        for each in reassigned
    )
    return moving.AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[moving.ReassignableTopicResponse(name=topic, partitions=parts) for topic, parts in results.items()],
    )


@serves(listing.ListPartitionReassignmentsRequest, is_for_controller=True)
async def list_partition_reassignments(
    request: listing.ListPartitionReassignmentsRequest, call: Call
) -> listing.ListPartitionReassignmentsResponse:
    """What is on the move."""
    wanted = request.topics
    refs = (
        None if wanted is None else tuple(PartitionRef(t.name, index) for t in wanted for index in t.partition_indexes)
    )
    try:
        found = await node_of(call).controller.ask(ListReassignments(refs))
    except ProtocolError as error:
        return listing.ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=str(error), topics=()
        )
    topics = _grouped(
        (
            each.partition.topic,
            listing.OngoingPartitionReassignment(
                partition_index=each.partition.number,
                replicas=each.replicas,
                adding_replicas=each.adding,
                removing_replicas=each.removing,
            ),
        )
        for each in found
    )
    return listing.ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[listing.OngoingTopicReassignment(name=name, partitions=parts) for name, parts in topics.items()],
    )


@serves(altering.AlterPartitionRequest)
async def alter_partition(request: altering.AlterPartitionRequest, call: Call) -> altering.AlterPartitionResponse:
    """A leader says who is in sync."""
    command = AlterPartition(
        request.broker_id,
        request.broker_epoch,
        tuple(
            NewIsr(
                topic.topic_id,
                part.partition_index,
                part.leader_epoch,
                part.partition_epoch,
                _in_sync(part, call.version),
                part.leader_recovery_state,
            )
            for topic in request.topics
            for part in topic.partitions
        ),
    )
    try:
        altered = await node_of(call).controller.ask(command)
    except ProtocolError as error:
        altered = AlteredPartitions(code=error.code)
    topics = _grouped((each.topic_id, _altered(each)) for each in altered.partitions)
    return altering.AlterPartitionResponse(
        throttle_time_ms=0,
        error_code=altered.code,
        topics=[
            altering.AlterPartitionResponseTopicData(topic_id=topic_id, partitions=parts)
            for topic_id, parts in topics.items()
        ],
    )


def _in_sync(part: altering.PartitionData, version: int) -> tuple[tuple[int, int], ...]:
    if version < FIRST_WITH_EPOCHS:
        return tuple((broker_id, -1) for broker_id in part.new_isr)
    states: Sequence[altering.BrokerState] = part.new_isr_with_epochs
    return tuple((state.broker_id, state.broker_epoch) for state in states)


def _altered(partition: AlteredPartition) -> altering.AlterPartitionResponsePartitionData:
    return altering.AlterPartitionResponsePartitionData(
        partition_index=partition.index,
        error_code=partition.code,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
