"""AssignReplicasToDirs: brokers tell the controller where their replicas lie, and which of them are damaged.

Serves    AssignReplicasToDirs 0 on listeners of controllers.
Answers   once a change is committed; codes are the controller's. Replicas that are named twice, and those beyond the
          first few hundred, are not answered: their broker tells of them again.
Departs   from Kafka 4.3: a replica that its broker reports as damaged (the directory "lost") stays eligible as a leader
          if no other replica is in sync or eligible; every such report begins a leader epoch. A node has one directory.
"""

from collections.abc import Iterable

from penstock.metadata.cluster_commands import Assigned, AssignedReplicas, AssignReplicas
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX
from penstock.model.errors import ProtocolError
from penstock.server.handlers.needs import node_of
from penstock.server.peer_connections import recognize_broker
from penstock.server.pieces import Turns, partitions_once
from penstock.server.serving import Call, serves
from penstock.wire.messages import assign_replicas_to_dirs as assigning


@serves(assigning.AssignReplicasToDirsRequest)
async def assign_replicas_to_dirs(
    request: assigning.AssignReplicasToDirsRequest, call: Call
) -> assigning.AssignReplicasToDirsResponse:
    """A broker says where its replicas lie, or that they are damaged."""
    recognize_broker(call.client, node_of(call).controller.image, request.broker_id, request.broker_epoch)
    turns = Turns()
    named = (
        (topic.topic_id, part.partition_index, directory.id)
        for directory in request.directories
        for topic in directory.topics
        for part in topic.partitions
    )
    once = await partitions_once(named, turns)
    replicas = [Assigned(directory, topic_id, index) for topic_id, index, directory in await once.single(turns)]
    command = AssignReplicas(request.broker_id, request.broker_epoch, tuple(replicas[:RECORDS_PER_COMMAND_MAX]))
    try:
        assigned = await node_of(call).controller.ask(command)
    except ProtocolError as error:
        assigned = AssignedReplicas(code=error.code)
    directories: dict[bytes, list[Assigned]] = {}
    for each in assigned.replicas:
        directories.setdefault(each.directory, []).append(each)
    return assigning.AssignReplicasToDirsResponse(
        throttle_time_ms=0,
        error_code=assigned.code,
        directories=[_assigned(directory, replicas) for directory, replicas in directories.items()],
    )


def _assigned(directory: bytes, replicas: Iterable[Assigned]) -> assigning.AssignReplicasToDirsResponseDirectoryData:
    topics: dict[bytes, list[assigning.AssignReplicasToDirsResponsePartitionData]] = {}
    for each in replicas:
        topics.setdefault(each.topic_id, []).append(
            assigning.AssignReplicasToDirsResponsePartitionData(partition_index=each.index, error_code=each.code)
        )
    return assigning.AssignReplicasToDirsResponseDirectoryData(
        id=directory,
        topics=[
            assigning.AssignReplicasToDirsResponseTopicData(topic_id=topic_id, partitions=parts)
            for topic_id, parts in topics.items()
        ],
    )
