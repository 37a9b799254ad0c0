"""What every handler asks of a partition before it looks into its log."""

from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.server.partition import NotLeader, Partition
from penstock.server.partitions import Partitions


class UnknownPartition(ProtocolError):
    """There is no such topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class FencedLeaderEpoch(ProtocolError):
    """The client's metadata is older than this leader."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(ProtocolError):
    """The client's metadata is newer than what this node knows."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


def find_or_raise(partitions: Partitions, topic: str, index: int) -> Partition:
    """The partition, if it is led here and its log is online."""
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
    """Raises unless the client knows this leader; -1 is a client that does not say (KIP-320)."""
    if leader_epoch in (-1, partition.leader_epoch):
        return
    if leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"epoch {leader_epoch} is over, {partition.leader_epoch} has begun")
    raise UnknownLeaderEpoch(f"epoch {leader_epoch} is not known here yet, only {partition.leader_epoch}")
