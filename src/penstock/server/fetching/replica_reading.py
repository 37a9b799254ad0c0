"""Reads the partitions of a follower's fetch: records up to the log end, committed or not, unless the logs diverge.

Whether a follower's log is a prefix of this one is checked at every read, by the leader epochs of both (KIP-320,
KIP-595): the response may be sent much later than the fetch was registered.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.log.log import Log
from penstock.model.errors import CorruptBatch, ErrorCode, ProtocolError, TornBatch
from penstock.model.ports import FileSlice
from penstock.records.header import batches
from penstock.replication.fetch_sessions import Fetching, RequestedPartition
from penstock.replication.leader import Verdict
from penstock.replication.ports import Key
from penstock.server.fetching.reading import NO_RECORDS, Reading
from penstock.server.loop.waiters import Watchers
from penstock.server.partitions.partition import Partition, Readable
from penstock.server.partitions.partitions import Partitions
from penstock.server.replicas.replica_runner import ReplicaRunner
from penstock.wire.hot.fetch import FetchedPartition

TIMES_GIVEN_MAX: Final = 4
"""A follower may repeat a fetch because a response was lost; after this many repetitions, the records are checked
against their checksums."""


class ReplicaReading(Reading):
    """One read of all partitions that a follower wants."""

    __slots__ = ("_follower_id", "_refused", "_replicas")

    def __init__(
        self,
        partitions: Partitions,
        fetching: Fetching,
        bytes_max: int,
        replicas: ReplicaRunner,
        follower_id: int,
        refused: Mapping[Key, Verdict],
    ) -> None:
        """`refused` are the partitions refused when the request arrived: they stay so until the next request."""
        super().__init__(partitions, fetching, bytes_max, is_committed=False)
        self._replicas = replicas
        self._follower_id = follower_id
        self._refused = refused

    def partition_of(self, requested: RequestedPartition) -> Partition | None:
        """The partition, if this node leads it; registers the follower's session for its changes."""
        partition = super().partition_of(requested)
        if not isinstance(partition, Partition):
            return None
        partition.followers.stand(self._follower_id, requested)
        return partition

    def count(self, told: Sequence[tuple[RequestedPartition, FetchedPartition]]) -> None:
        """Counts the bytes of a response to a follower."""
        self._partitions.traffic.replication_bytes_out += sum(len(part.records or NO_RECORDS) for _, part in told)

    def watchers_of(self, partition: Readable) -> Watchers:
        """The watchers through which to wait for more records."""
        assert isinstance(partition, Partition)
        return partition.followers

    def end_of(self, partition: Readable) -> int:
        """The offset at which readable records end."""
        return partition.log.written_end

    def _knows_all(self, requested: RequestedPartition) -> bool:
        partition: Partition | None = requested.place
        if partition is None or partition.is_retired:
            return False
        log = partition.log
        return (
            log.written_end == requested.offset
            and log.high_watermark == requested.told_high_watermark
            and log.start_offset == requested.told_log_start
            and log.offline_reason is None
            and requested.leader_epoch == partition.leader_epoch
            and _key(requested) not in self._refused
        )

    def _settle(self, requested: RequestedPartition) -> None:
        partition = self.partition_of(requested)
        if partition is not None and partition.followers.stand(self._follower_id, requested):
            self._fetching.settle(requested)

    def _look_at(self, requested: RequestedPartition, bytes_left: int, *, at_least_one: bool) -> FetchedPartition:
        partition = self.partition_of(requested)
        leader = None if partition is None else self._replicas.leader(_key(requested))
        if partition is None or leader is None:
            return self._failed(requested, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        if log.offline_reason is not None:
            return self._failed(requested, ErrorCode.KAFKA_STORAGE_ERROR)
        verdict = self._refused.get(_key(requested)) or leader.examine(requested)
        if not verdict.fits:
            self.is_final = True
            return FetchedPartition(
                requested.index,
                verdict.error,
                log.high_watermark,
                -1,
                log.start_offset,
                records=NO_RECORDS,
                diverging_epoch=verdict.diverging,
            )
        self._look_at_start(requested, log)
        if (
            partition.is_read_nearby
            and requested.session is not None
            and requested.told_high_watermark < log.high_watermark
        ):
            self.is_final = True  # the follower's consumers wait for it
        return self._replicated(requested, partition, bytes_left, at_least_one=at_least_one)

    def _look_at_start(self, requested: RequestedPartition, log: Log) -> None:
        """Has a moved log start reported at once: a deletion may wait until the follower has it, too."""
        if requested.session is None and requested.told_log_start < 0:
            requested.told_log_start = log.start_offset  # a full response has it anyway, but is not sent for it alone
        elif requested.told_log_start != log.start_offset:
            self.is_final = True

    def _replicated(
        self, requested: RequestedPartition, partition: Partition, bytes_left: int, *, at_least_one: bool
    ) -> FetchedPartition:
        log = partition.log
        bytes_max = max(0, min(requested.bytes_max, bytes_left))
        try:
            part = None
            if bytes_max or at_least_one:
                part = log.read(requested.offset, bytes_max, limit=log.written_end, at_least_one=at_least_one)
        except (ProtocolError, OSError):
            return self._failed(requested, ErrorCode.KAFKA_STORAGE_ERROR)
        if part is not None:
            if log.segments[-1].base_offset > requested.offset:
                self.is_final = True  # a slice ends with its segment, and more records follow
            if partition.given.get(self._follower_id) == requested.offset:
                self._doubt(partition, part)
            else:
                partition.given[self._follower_id] = requested.offset
                partition.given_again.pop(self._follower_id, None)
        return FetchedPartition(
            requested.index, 0, log.high_watermark, -1, log.start_offset, records=NO_RECORDS if part is None else part
        )

    def _doubt(self, partition: Partition, part: FileSlice) -> None:
        """Handles a repeated fetch. After several, the records are verified: the follower may have found damage."""
        times = partition.given_again.get(self._follower_id, 0) + 1
        partition.given_again[self._follower_id] = times % TIMES_GIVEN_MAX
        if times < TIMES_GIVEN_MAX:
            return
        try:
            for batch in batches(part.read()):
                if not batch.is_intact:
                    raise CorruptBatch(f"the batch at offset {batch.base_offset} does not match its checksum")
        except TornBatch:
            return  # a slice may end inside a batch
        except CorruptBatch as error:
            partition.log.suspicion = f"{part.file.path}: {error}"
            self._replicas.log_failed()
        except OSError:
            return  # the next read reports the error


def _key(requested: RequestedPartition) -> Key:
    assert isinstance(requested.topic, bytes)
    return requested.topic, requested.index
