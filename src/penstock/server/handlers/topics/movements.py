"""ElectLeaders, AlterPartition, AlterPartitionReassignments, ListPartitionReassignments: leaders and replicas.

Serves    ElectLeaders 0–2, AlterPartitionReassignments 0–1, ListPartitionReassignments 0; AlterPartition 2–3 on
          controller listeners.
Answers   once a change is committed; error codes and messages are the controller's. INVALID_REQUEST for an unknown
          election type. A large request is decided in pieces.
Departs   from Kafka 4.3: a leader may remove itself from the ISR, as it does when its log has failed; another replica
          then leads. A partition that is named several times is answered once, with INVALID_REQUEST except in
          ElectLeaders and ListPartitionReassignments.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from penstock.metadata.cluster_commands import (
    AlteredPartition,
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
from penstock.model.shard import Command
from penstock.server.connections.peer_connections import recognize_broker
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.loop.pieces import Turns, cut, partitions_once
from penstock.wire.messages import alter_partition as altering
from penstock.wire.messages import alter_partition_reassignments as moving
from penstock.wire.messages import elect_leaders as electing
from penstock.wire.messages import list_partition_reassignments as listing

PREFERRED = 0
UNCLEAN = 1
FIRST_WITH_EPOCHS = 3

PARTITIONS_AT_ONCE: Final = 200
"""Partitions in one decision."""
ONCE: Final = "Each partition must appear at most once."

Item = TypeVar("Item")
Key = TypeVar("Key", str, bytes)
Reply = TypeVar("Reply")


async def _grouped(items: Iterable[tuple[Key, Item]], turns: Turns) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = {}
    async for key, item in turns.through(items):
        groups.setdefault(key, []).append(item)
    return groups


class MovementsHandler:
    """Has the controller elect leaders, move partitions and change in-sync replicas."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    @serves(electing.ElectLeadersRequest, is_for_controller=True)
    async def elect_leaders(self, request: electing.ElectLeadersRequest, _call: Call) -> electing.ElectLeadersResponse:
        """Elects preferred leaders, or any remaining replica (unclean)."""
        wanted, turns = request.topic_partitions, Turns()
        is_unclean = request.election_type == UNCLEAN
        code, elected = ErrorCode.NONE, list[Elected]()
        if request.election_type not in (PREFERRED, UNCLEAN):
            code = ErrorCode.INVALID_REQUEST
        else:
            commands = [ElectLeaders(None, is_unclean)]
            if wanted is not None:
                asked = await partitions_once(((t.topic, index, None) for t in wanted for index in t.partitions), turns)
                every = ((topic, index) for topic, found in asked.topics.items() for index in found)
                refs = [PartitionRef(*each) async for each in turns.through(every)]
                commands = [ElectLeaders(tuple(part), is_unclean) for part in cut(refs, PARTITIONS_AT_ONCE)]
            try:
                for command, reply in zip(commands, await self._ask(commands), strict=True):
                    if isinstance(reply, ProtocolError):
                        elected += [Elected(ref, reply.code, str(reply)) for ref in command.partitions or ()]
                    else:
                        elected += reply
            except ProtocolError as error:
                code = error.code
        results = await _grouped(
            (
                (
                    each.partition.topic,
                    electing.PartitionResult(
                        partition_id=each.partition.number, error_code=each.code, error_message=each.message
                    ),
                )
                for each in elected
            ),
            turns,
        )
        return electing.ElectLeadersResponse(
            throttle_time_ms=0,
            error_code=code,
            replica_election_results=[
                electing.ReplicaElectionResult(topic=topic, partition_result=parts)
                async for topic, parts in turns.through(results.items())
            ],
        )

    @serves(moving.AlterPartitionReassignmentsRequest, is_for_controller=True)
    async def alter_partition_reassignments(
        self, request: moving.AlterPartitionReassignmentsRequest, _call: Call
    ) -> moving.AlterPartitionReassignmentsResponse:
        """Starts or cancels reassignments."""
        turns, allows = Turns(), request.allow_replication_factor_change
        entries = ((topic.name, each.partition_index, each) for topic in request.topics for each in topic.partitions)
        asked = await partitions_once(entries, turns)
        reassigned = [
            Reassigned(PartitionRef(*each), ErrorCode.INVALID_REQUEST, ONCE)
            async for each in turns.through(asked.repeated)
        ]
        code, message = ErrorCode.NONE, None
        parts = [
            [
                Reassignment(PartitionRef(topic, index), None if each.replicas is None else tuple(each.replicas))
                for topic, index, each in part
            ]
            async for part in turns.through(cut(await asked.single(turns), PARTITIONS_AT_ONCE), PARTITIONS_AT_ONCE)
        ]
        try:
            replies = await self._ask([AlterReassignments(tuple(part), allows) for part in parts])
            for part, reply in zip(parts, replies, strict=True):
                if isinstance(reply, ProtocolError):
                    reassigned += [Reassigned(each.partition, reply.code, str(reply)) for each in part]
                else:
                    reassigned += reply
        except ProtocolError as error:
            code, message, reassigned = error.code, str(error), []
        results = await _grouped(
            (
                (
                    each.partition.topic,
                    moving.ReassignablePartitionResponse(
                        partition_index=each.partition.number, error_code=each.code, error_message=each.message
                    ),
                )
                for each in reassigned
            ),
            turns,
        )
        return moving.AlterPartitionReassignmentsResponse(
            throttle_time_ms=0,
            allow_replication_factor_change=allows,
            error_code=code,
            error_message=message,
            responses=[
                moving.ReassignableTopicResponse(name=topic, partitions=found)
                async for topic, found in turns.through(results.items())
            ],
        )

    @serves(listing.ListPartitionReassignmentsRequest, is_for_controller=True)
    async def list_partition_reassignments(
        self, request: listing.ListPartitionReassignmentsRequest, _call: Call
    ) -> listing.ListPartitionReassignmentsResponse:
        """Lists ongoing reassignments."""
        turns, asked = Turns(), None
        if request.topics is not None:
            entries = ((topic.name, index, None) for topic in request.topics for index in topic.partition_indexes)
            asked = await partitions_once(entries, turns)
        try:
            found = await self._controller.ask(ListReassignments(None))
        except ProtocolError as error:
            return listing.ListPartitionReassignmentsResponse(
                throttle_time_ms=0, error_code=error.code, error_message=str(error), topics=()
            )
        topics = await _grouped(
            (
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
                if asked is None or each.partition.number in asked.topics.get(each.partition.topic, ())
            ),
            turns,
        )
        return listing.ListPartitionReassignmentsResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            error_message=None,
            topics=[listing.OngoingTopicReassignment(name=name, partitions=parts) for name, parts in topics.items()],
        )

    @serves(altering.AlterPartitionRequest)
    async def alter_partition(
        self, request: altering.AlterPartitionRequest, call: Call
    ) -> altering.AlterPartitionResponse:
        """Changes the ISR at a leader's request."""
        recognize_broker(call.client, self._controller.image, request.broker_id, request.broker_epoch)
        turns = Turns()
        entries = (
            (topic.topic_id, part.partition_index, part) for topic in request.topics for part in topic.partitions
        )
        asked = await partitions_once(entries, turns)
        code = ErrorCode.NONE
        altered = [AlteredPartition(*each, ErrorCode.INVALID_REQUEST) async for each in turns.through(asked.repeated)]
        commands = [
            AlterPartition(
                request.broker_id,
                request.broker_epoch,
                tuple(
                    NewIsr(
                        topic_id,
                        index,
                        part.leader_epoch,
                        part.partition_epoch,
                        _in_sync(part, call.version),
                        part.leader_recovery_state,
                    )
                    for topic_id, index, part in some
                ),
            )
            async for some in turns.through(cut(await asked.single(turns), PARTITIONS_AT_ONCE), PARTITIONS_AT_ONCE)
        ]
        try:
            for reply in await self._ask(commands or [AlterPartition(request.broker_id, request.broker_epoch, ())]):
                if isinstance(reply, ProtocolError):
                    raise reply
                altered += reply.partitions
                code = reply.code or code
        except ProtocolError as error:
            code = error.code
        topics = await _grouped(((each.topic_id, _altered(each)) for each in (() if code else altered)), turns)
        return altering.AlterPartitionResponse(
            throttle_time_ms=0,
            error_code=code,
            topics=[
                altering.AlterPartitionResponseTopicData(topic_id=topic_id, partitions=parts)
                for topic_id, parts in topics.items()
            ],
        )

    async def _ask(self, commands: Sequence[Command[Reply]]) -> list[Reply | ProtocolError]:
        replies = await self._controller.ask_in_turn(commands)
        if len(replies) == 1 and isinstance(replies[0], ProtocolError):
            raise replies[0]
        return replies


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
