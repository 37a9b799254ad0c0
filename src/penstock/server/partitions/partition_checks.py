"""Checks that every handler makes on a partition before it reads the log."""

from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.server.partitions.partition import NotLeader, Partition
from penstock.server.partitions.partitions import Partitions


class UnknownPartition(ProtocolError):
    """The topic or partition does not exist."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class FencedLeaderEpoch(ProtocolError):
    """The client's leader epoch is older than this leader's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(ProtocolError):
    """The client's leader epoch is newer than the one that this node has."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


def find_or_raise(partitions: Partitions, topic: str, index: int) -> Partition:
    """Returns the partition if this node leads it and its log is online."""
    partition = partitions.named(topic, index)
    if partition is None:
        code, _ = partitions.why_missing(topic, index)
        name = f"{topic}-{index}"
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise NotLeader(f"{name} is led by another node")
        raise UnknownPartition(f"there is no partition {name}")
    if partition.log.offline_reason is not None:
        raise StorageError(f"{partition.log.path} is offline: {partition.log.offline_reason}")
    return partition


def check_epoch(partition: Partition, leader_epoch: int) -> None:
    """Raises unless the client has the current leader epoch; -1 means that it sends none (KIP-320)."""
    if leader_epoch in (-1, partition.leader_epoch):
        return
    if leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"epoch {leader_epoch} is over, {partition.leader_epoch} has begun")
    raise UnknownLeaderEpoch(f"epoch {leader_epoch} is not known here yet, only {partition.leader_epoch}")
