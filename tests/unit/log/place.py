"""A data directory with one log in memory, for the tests of this folder; builders of small batches."""

from collections.abc import Sequence
from random import Random
from typing import Any

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log import truncation, upkeep
from penstock.log.directory import DataDirectory, open_directory
from penstock.log.index import ActiveIndex
from penstock.log.log import Appended, Log
from penstock.log.producers import ProducerStates
from penstock.log.segment import Segment, scan_batches
from penstock.log.settings import LogSettings
from penstock.records.builder import BatchBuilder
from penstock.records.check import DEFAULT_RULES, Rules
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView
from tests.simulation.log.histories import FROM_COORDINATOR, ZeroEntropy, drive, wait_at

SETTINGS = LogSettings(segment_bytes=1000, index_interval_bytes=100, retention_ms=None)
NAME = "t-0"


def a_batch(
    count: int = 1, *, timestamp_ms: int | Sequence[int] = 1_000, value: bytes = b"v" * 40, **options: Any
) -> bytearray:
    """Builds a batch. `timestamp_ms` is one timestamp for all records, or one per record."""
    times = [timestamp_ms] * count if isinstance(timestamp_ms, int) else list(timestamp_ms)
    builder = BatchBuilder(**options)
    for time_ms in times:
        builder.append(b"k", value, timestamp_ms=time_ms)
    return builder.build()


def from_producer(
    producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1, is_transactional: bool = False, **options: Any
) -> bytearray:
    """Builds a batch as an idempotent or transactional producer sends it."""
    return a_batch(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
        **options,
    )


def a_marker(
    kind: ControlType, producer_id: int, *, epoch: int = 0, coordinator_epoch: int = 0, base_offset: int = 0
) -> bytearray:
    """Builds the marker with which a coordinator ends a transaction."""
    return marker_batch(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=1_000,
        base_offset=base_offset,
    )


class Place:
    """A data directory with one log on a disk that can lose power, and the common steps of its tests."""

    def __init__(
        self,
        settings: LogSettings = SETTINGS,
        *,
        suspends: bool = False,
        is_torn: bool = False,
        seed: int = 1,
        **bounds: int,
    ) -> None:
        self.settings = settings
        self.bounds = {"ledger_bytes": 1024, "reserve_bytes": 512, **bounds}
        self.inner = MemoryDisk()
        self.disk = LossyDisk(self.inner, Random(seed), Faults(is_torn=is_torn), delay=wait_at if suspends else None)
        self.now_ms = 1_000
        self.directory = self.open()
        self.log = drive(self.directory.create("t", "id", 0, settings))

    def open(self, waits_before_cut: int | None = None) -> DataDirectory:
        """Opens the directory; `log` is not replaced."""
        opening = open_directory(
            self.disk,
            cluster_id="c",
            node_id=1,
            entropy=ZeroEntropy(),
            now_ms=self.now_ms,
            settings_for=lambda _topic, _partition: self.settings,
            **self.bounds,
        )
        return drive(opening, waits_before_cut)

    def reopen(self) -> Log:
        """Opens the directory again and continues with the log found there."""
        self.directory = self.open()
        self.log = self.directory.logs[NAME]
        return self.log

    def restart(self) -> Log:
        """Shuts down cleanly and starts again."""
        drive(self.directory.close())
        return self.reopen()

    def kill(self) -> Log:
        """Kills the process and starts again."""
        self.disk.kill_process()
        return self.reopen()

    def cut_power(self) -> Log:
        """Cuts the power and starts again."""
        self.disk = self.disk.power_cut()
        return self.reopen()

    def append(self, data: bytearray | None = None, *, epoch: int = 0, rules: Rules = DEFAULT_RULES) -> Appended:
        """Appends a batch, by default of one small record."""
        return self.log.append(data or a_batch(), leader_epoch=epoch, now_ms=self.now_ms, rules=rules)

    def append_many(self, count: int, *, epoch: int = 0) -> None:
        """Appends that many small batches."""
        for _ in range(count):
            self.append(epoch=epoch)

    def end(self, kind: ControlType, producer_id: int, *, epoch: int = 0, leader_epoch: int = 0) -> Appended:
        """Ends a producer's transaction with a marker."""
        return self.append(a_marker(kind, producer_id, epoch=epoch), epoch=leader_epoch, rules=FROM_COORDINATOR)

    def replicate(self, *data: bytearray) -> int:
        """Appends batches as a follower does."""
        return self.log.append_replicated(memoryview(b"".join(data)), now_ms=self.now_ms)

    def commit(self) -> list[Log]:
        """Runs a round of group commit and returns the logs it covered."""
        return drive(self.directory.commit())

    def settle(self) -> None:
        """Seals all segments that can be sealed."""
        drive(self.directory.settle())

    def truncate(self, end_offset: int) -> None:
        """Truncates the end of the log."""
        drive(self.directory.truncate(self.log, end_offset, now_ms=self.now_ms))

    def restart_at(self, offset: int) -> None:
        """Discards the log and restarts it at an offset."""
        drive(truncation.restart_at(self.log, self.disk, self.directory.ledger, offset))

    def delete_before(self, offset: int) -> None:
        """Moves the log start offset, after advancing the high watermark to the log end."""
        self.log.advance_high_watermark(self.log.written_end)
        drive(upkeep.delete_before(self.log, self.disk, offset))

    def stored(self) -> list[bytes]:
        """Returns every batch in the files of the log's segments, in file order."""
        found: list[bytes] = []
        for segment in self.log.segments:
            file = self.disk.open(self.log.path_of(segment, "log"))
            found += [bytes(batch.whole) for _, batch in scan_batches(file, 0, file.size())]
            file.close()
        return found

    def offsets(self) -> list[int]:
        """Returns every offset in the files, in file order."""
        return [
            o for data in self.stored() for o in range(BatchView(data).base_offset, BatchView(data).last_offset + 1)
        ]

    def files(self, ending: str) -> list[str]:
        """Returns the names of the log's files with that ending."""
        return [name for name in self.disk.list(self.log.path) if name.endswith(ending)]

    def flip(self, path: str, position: int, bit: int = 0) -> None:
        """Flips a bit on the device, below all caches."""
        drive(self.disk.sync_all())
        self.disk.flip_bit(path, position, bit)


def essence(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    """Returns the part of the producer state that must survive recovery."""
    return {
        producer_id: (known.epoch, known.coordinator_epoch, known.transaction_start, tuple(known.seen))
        for producer_id, known in states.producers.items()
    }


def merged(log: Log, disk: LossyDisk, old: Sequence[Segment]) -> Segment:
    """Writes the files of one segment with the batches of several, as compaction would; nothing is synced."""
    index = ActiveIndex()
    new = Segment(old[0].base_offset, old[0].generation + 1).start_again(old[0].header_seed)
    file = disk.open(log.path_of(new, "log"), create=True)
    for segment in old:
        part = disk.open(log.path_of(segment, "log"))
        for _, batch in scan_batches(part, 0, part.size()):
            index.add(batch.base_offset - new.base_offset, new.size_bytes, batch.max_timestamp_ms)
            file.write(new.size_bytes, batch.whole)
            new.take(batch, batch.whole)
        part.close()
    file.close()
    file = disk.open(log.path_of(new, "index"), create=True)
    file.write(0, index.sealed())
    file.close()
    return new
