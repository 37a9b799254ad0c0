"""AssignReplicasToDirs: brokers report the directories of their replicas, and which replicas are damaged.

Serves    AssignReplicasToDirs 0 on controller listeners.
Answers   once the change is committed; error codes are the controller's. Replicas that are named more than once, and
          those beyond the first 10,000, are left out of the response: their broker reports them again.
Departs   from Kafka 4.3: a replica that its broker reports as damaged (directory LOST) stays an eligible leader if no
          other replica is in the ISR or the ELR; each new report of damage starts a leader epoch. A node has one
          directory.
"""

from collections.abc import Iterable

from penstock.metadata.cluster_commands import Assigned, AssignedReplicas, AssignReplicas
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX
from penstock.model.errors import ProtocolError
from penstock.server.connections.peer_connections import recognize_broker
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.loop.pieces import Turns, partitions_once
from penstock.wire.messages import assign_replicas_to_dirs as assigning


class AssignedReplicasHandler:
    """Records the directories of brokers' replicas."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    @serves(assigning.AssignReplicasToDirsRequest)
    async def assign_replicas_to_dirs(
        self, request: assigning.AssignReplicasToDirsRequest, call: Call
    ) -> assigning.AssignReplicasToDirsResponse:
        """Records a broker's report of directories and damaged replicas."""
        recognize_broker(call.client, self._controller.image, request.broker_id, request.broker_epoch)
        turns = Turns()
        named = (
            (topic.topic_id, part.partition_index, directory.id)
            for directory in request.directories
            for topic in directory.topics
            for part in topic.partitions
        )
        once = await partitions_once(named, turns)
        single = (await once.single(turns))[:RECORDS_PER_COMMAND_MAX]
        replicas = tuple(Assigned(directory, topic_id, index) for topic_id, index, directory in single)
        command = AssignReplicas(request.broker_id, request.broker_epoch, replicas)
        try:
            assigned = await self._controller.ask(command)
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
