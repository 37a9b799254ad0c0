"""What a follower's fetch finds: records up to the end of the log, committed or not, where the logs do not part.

Whether a follower's log is a prefix of this one is asked anew at every look, by the epochs of both (KIP-320, KIP-595):
the answer may be given much later than the fetch was noted.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.log.log import Log
from penstock.model.errors import CorruptBatch, ErrorCode, ProtocolError, TornBatch
from penstock.model.ports import FileSlice
from penstock.records.header import batches
from penstock.replication.fetch_sessions import Fetching, Wanted
from penstock.replication.leader import Verdict
from penstock.replication.ports import Key
from penstock.server.partition import Partition, Readable
from penstock.server.partitions import Partitions
from penstock.server.reading import NO_RECORDS, Reading
from penstock.server.replica_runner import ReplicaRunner
from penstock.server.waiters import Watchers
from penstock.wire.hot.fetch import FetchedPartition

TIMES_GIVEN_MAX: Final = 4
"""A follower may ask again because an answer was lost; after so many times, what it is given is held against its
checksums."""


class ReplicaReading(Reading):
    """One look at everything that a follower wants."""

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
        """`refused` is what could not be noted when the request came: that stays so until the next."""
        super().__init__(partitions, fetching, bytes_max, is_committed=False)
        self._replicas = replicas
        self._follower_id = follower_id
        self._refused = refused

    def partition_of(self, wanted: Wanted) -> Partition | None:
        """The partition, if it is led here; the follower's session is told of its changes from now on."""
        partition = super().partition_of(wanted)
        if not isinstance(partition, Partition):
            return None
        partition.followers.stand(self._follower_id, wanted)
        return partition

    def count(self, told: Sequence[tuple[Wanted, FetchedPartition]]) -> None:
        """Counts what goes out to a follower."""
        self._partitions.traffic.replication_bytes_out += sum(len(part.records or NO_RECORDS) for _, part in told)

    def watchers_of(self, partition: Readable) -> Watchers:
        """Where to wait for more of a partition."""
        assert isinstance(partition, Partition)
        return partition.followers

    def end_of(self, partition: Readable) -> int:
        """What may be read of a partition ends here."""
        return partition.log.written_end

    def _knows_all(self, wanted: Wanted) -> bool:
        partition: Partition | None = wanted.place
        if partition is None or partition.is_retired:
            return False
        log = partition.log
        return (
            log.written_end == wanted.offset
            and log.high_watermark == wanted.told_high_watermark
            and log.start_offset == wanted.told_log_start
            and log.offline_reason is None
            and wanted.leader_epoch == partition.leader_epoch
            and _key(wanted) not in self._refused
        )

    def _settle(self, wanted: Wanted) -> None:
        partition = self.partition_of(wanted)
        if partition is not None and partition.followers.stand(self._follower_id, wanted):
            self._fetching.settle(wanted)

    def _look_at(self, wanted: Wanted, bytes_left: int, *, at_least_one: bool) -> FetchedPartition:
        partition = self.partition_of(wanted)
        leader = None if partition is None else self._replicas.leader(_key(wanted))
        if partition is None or leader is None:
            return self._failed(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        if log.offline_reason is not None:
            return self._failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
        verdict = self._refused.get(_key(wanted)) or leader.examine(wanted)
        if not verdict.fits:
            self.is_final = True
            return FetchedPartition(
                wanted.index,
                verdict.error,
                log.high_watermark,
                -1,
                log.start_offset,
                records=NO_RECORDS,
                diverging_epoch=verdict.diverging,
            )
        self._look_at_start(wanted, log)
        if partition.is_read_nearby and wanted.session is not None and wanted.told_high_watermark < log.high_watermark:
            self.is_final = True  # its consumers wait for that
        return self._replicated(wanted, partition, bytes_left, at_least_one=at_least_one)

    def _look_at_start(self, wanted: Wanted, log: Log) -> None:
        """A log start that has moved is reported at once: a deletion may wait until the follower has it, too."""
        if wanted.session is None and wanted.told_log_start < 0:
            wanted.told_log_start = log.start_offset  # a full request reports it anyway, but need not for that alone
        elif wanted.told_log_start != log.start_offset:
            self.is_final = True

    def _replicated(
        self, wanted: Wanted, partition: Partition, bytes_left: int, *, at_least_one: bool
    ) -> FetchedPartition:
        log = partition.log
        bytes_max = max(0, min(wanted.bytes_max, bytes_left))
        try:
            part = None
            if bytes_max or at_least_one:
                part = log.read(wanted.offset, bytes_max, limit=log.written_end, at_least_one=at_least_one)
        except (ProtocolError, OSError):
            return self._failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
        if part is not None:
            if log.segments[-1].base_offset > wanted.offset:
                self.is_final = True  # a slice ends with its segment, and there is more behind it
            if partition.given.get(self._follower_id) == wanted.offset:
                self._doubt(partition, part)
            else:
                partition.given[self._follower_id] = wanted.offset
                partition.given_again.pop(self._follower_id, None)
        return FetchedPartition(
            wanted.index, 0, log.high_watermark, -1, log.start_offset, records=NO_RECORDS if part is None else part
        )

    def _doubt(self, partition: Partition, part: FileSlice) -> None:
        """The follower asks for what it was given. After some times it is looked at: the follower may find damage."""
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
            self._replicas.on_failed()
        except OSError:
            return  # reading it tells whoever asks


def _key(wanted: Wanted) -> Key:
    assert isinstance(wanted.topic, bytes)
    return wanted.topic, wanted.index
