"""Fetches of consumers that name their rack (KIP-392), which may read from a follower near them.

A leader sends the consumer to an in-sync replica in its rack that has the requested offset. A follower returns records
up to its high watermark; an offset that it does not have is OFFSET_OUT_OF_RANGE, which sends a consumer back to the
leader.
"""

from penstock.replication.fetch_sessions import Fetching, RequestedPartition
from penstock.server.fetching.reading import NO_RECORDS, Reading
from penstock.server.partitions.partition import Partition, Readable
from penstock.server.partitions.partitions import Partitions
from penstock.server.replicas.replica_runner import ReplicaRunner
from penstock.wire.hot.fetch import FetchedPartition


class FollowerFetching(Reading):
    """One read of all partitions that a consumer in some rack wants."""

    __slots__ = ("_listener", "_rack", "_replicas")

    def __init__(
        self,
        partitions: Partitions,
        fetching: Fetching,
        bytes_max: int,
        replicas: ReplicaRunner,
        rack: str,
        listener: str,
        *,
        is_committed: bool,
    ) -> None:
        """`listener` is where the request arrived; brokers that lack it cannot be reached by the consumer."""
        super().__init__(partitions, fetching, bytes_max, is_committed=is_committed)
        self._replicas = replicas
        self._rack = rack
        self._listener = listener

    def partition_of(self, requested: RequestedPartition) -> Readable | None:
        """The partition, if this node leads or follows it."""
        place: Readable | None = requested.place
        if place is None or place.is_retired:
            place = self._partitions.find(requested.topic, requested.index)
            if place is None:
                place = self._partitions.followed(requested.topic, requested.index)
            requested.place = place
        return place

    def _look_at(self, requested: RequestedPartition, bytes_left: int, *, at_least_one: bool) -> FetchedPartition:
        partition = self.partition_of(requested)
        if isinstance(partition, Partition) and requested.leader_epoch in (-1, partition.leader_epoch):
            reader_id = self._replicas.reader_near(self._rack, self._listener, partition, requested.offset)
            if reader_id is not None:
                return self._sent_to(reader_id, requested, partition)
        return super()._look_at(requested, bytes_left, at_least_one=at_least_one)

    def _sent_to(self, reader_id: int, requested: RequestedPartition, partition: Partition) -> FetchedPartition:
        self.is_final = True
        log = partition.log
        return FetchedPartition(
            requested.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            [] if self.is_committed else None,
            NO_RECORDS,
            preferred_read_replica=reader_id,
        )
