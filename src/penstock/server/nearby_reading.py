"""What the fetch of a consumer finds that names its rack (KIP-392): it may read from a follower near it.

A leader sends it to a replica in its rack that is in sync and has what it asks for. A follower gives what it knows to
be committed; what it does not have is OFFSET_OUT_OF_RANGE, which sends a consumer back to the leader.
"""

from penstock.replication.fetch_sessions import Fetching, Wanted
from penstock.server.partition import Partition, Readable
from penstock.server.partitions import Partitions
from penstock.server.reading import NO_RECORDS, Reading
from penstock.server.replica_runner import ReplicaRunner
from penstock.wire.hot.fetch import FetchedPartition


class NearbyReading(Reading):
    """One look at everything that a consumer in some rack wants."""

    __slots__ = ("_rack", "_replicas")

    def __init__(
        self,
        partitions: Partitions,
        fetching: Fetching,
        bytes_max: int,
        replicas: ReplicaRunner,
        rack: str,
        *,
        is_committed: bool,
    ) -> None:
        super().__init__(partitions, fetching, bytes_max, is_committed=is_committed)
        self._replicas = replicas
        self._rack = rack

    def partition_of(self, wanted: Wanted) -> Readable | None:
        """The partition, if it is led or followed here."""
        place: Readable | None = wanted.place
        if place is None or place.is_retired:
            place = self._partitions.find(wanted.topic, wanted.index)
            if place is None:
                place = self._partitions.followed(wanted.topic, wanted.index)
            wanted.place = place
        return place

    def _look_at(self, wanted: Wanted, bytes_left: int, *, at_least_one: bool) -> FetchedPartition:
        partition = self.partition_of(wanted)
        if isinstance(partition, Partition) and wanted.leader_epoch in (-1, partition.leader_epoch):
            reader_id = self._replicas.reader_near(self._rack, partition, wanted.offset)
            if reader_id is not None:
                return self._sent_to(reader_id, wanted, partition)
        return super()._look_at(wanted, bytes_left, at_least_one=at_least_one)

    def _sent_to(self, reader_id: int, wanted: Wanted, partition: Partition) -> FetchedPartition:
        self.is_final = True
        log = partition.log
        return FetchedPartition(
            wanted.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            [] if self.is_committed else None,
            NO_RECORDS,
            preferred_read_replica=reader_id,
        )
