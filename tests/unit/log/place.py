"""A data directory with one log in memory, for the tests of this folder; and small batches to put into it."""

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
from tests.simulation.log_histories import FROM_COORDINATOR, ZeroEntropy, drive, wait_at

SETTINGS = LogSettings(segment_bytes=1000, index_interval_bytes=100, retention_ms=None)
NAME = "t-0"


def a_batch(
    count: int = 1, *, timestamp_ms: int | Sequence[int] = 1_000, value: bytes = b"v" * 40, **options: Any
) -> bytearray:
    """A batch of some records. One number is everybody's timestamp, a list gives each record its own."""
    times = [timestamp_ms] * count if isinstance(timestamp_ms, int) else list(timestamp_ms)
    builder = BatchBuilder(**options)
    for time_ms in times:
        builder.append(b"k", value, timestamp_ms=time_ms)
    return builder.build()


def from_producer(
    producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1, is_transactional: bool = False, **options: Any
) -> bytearray:
    """A batch as an idempotent or transactional producer sends it."""
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
    """The marker with which a coordinator ends a transaction."""
    return marker_batch(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=1_000,
        base_offset=base_offset,
    )


class Place:
    """One directory with one log on a disk that can lose power, and what its tests do all the time."""

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
        """Opens the directory; `log` is that of before."""
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
        """Opens the directory anew and goes on with what is found."""
        self.directory = self.open()
        self.log = self.directory.logs[NAME]
        return self.log

    def restart(self) -> Log:
        """A clean shutdown, and up again."""
        drive(self.directory.close())
        return self.reopen()

    def kill(self) -> Log:
        """The process dies and is started again."""
        self.disk.kill_process()
        return self.reopen()

    def cut_power(self) -> Log:
        """The power goes, comes back, and the node is started again."""
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
        """Ends a producer's transaction."""
        return self.append(a_marker(kind, producer_id, epoch=epoch), epoch=leader_epoch, rules=FROM_COORDINATOR)

    def replicate(self, *data: bytearray) -> int:
        """Appends batches as a follower does."""
        return self.log.append_replicated(memoryview(b"".join(data)), now_ms=self.now_ms)

    def commit(self) -> list[Log]:
        """A round of group commit; the logs that it covered."""
        return drive(self.directory.commit())

    def settle(self) -> None:
        """Seals what can be sealed."""
        drive(self.directory.settle())

    def truncate(self, end_offset: int) -> None:
        """Cuts the log's end off."""
        drive(self.directory.truncate(self.log, end_offset, now_ms=self.now_ms))

    def restart_at(self, offset: int) -> None:
        """Forgets everything, and goes on there."""
        drive(truncation.restart_at(self.log, self.disk, self.directory.ledger, offset))

    def delete_before(self, offset: int) -> None:
        """Moves the log's start; the high watermark follows the end first."""
        self.log.advance_high_watermark(self.log.written_end)
        drive(upkeep.delete_before(self.log, self.disk, offset))

    def stored(self) -> list[bytes]:
        """Every batch in the files of the log's segments, in file order."""
        found: list[bytes] = []
        for segment in self.log.segments:
            file = self.disk.open(self.log.path_of(segment, "log"))
            found += [bytes(batch.whole) for _, batch in scan_batches(file, 0, file.size())]
            file.close()
        return found

    def offsets(self) -> list[int]:
        """Every offset in the files, in file order."""
        return [
            o for data in self.stored() for o in range(BatchView(data).base_offset, BatchView(data).last_offset + 1)
        ]

    def files(self, ending: str) -> list[str]:
        """Names of the log's files with that ending."""
        return [name for name in self.disk.list(self.log.path) if name.endswith(ending)]

    def flip(self, path: str, position: int, bit: int = 0) -> None:
        """Flips a bit at rest, below whatever is cached."""
        drive(self.disk.sync_all())
        self.disk.flip_bit(path, position, bit)


def essence(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    """What must be the same of two states of producers."""
    return {
        producer_id: (known.epoch, known.coordinator_epoch, known.transaction_start, tuple(known.seen))
        for producer_id, known in states.producers.items()
    }


def merged(log: Log, disk: LossyDisk, old: Sequence[Segment]) -> Segment:
    """Files of one segment with the batches of several, as compaction would write them; nothing is synced."""
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
