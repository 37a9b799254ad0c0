"""Creates the data directories of a format, and documents what they hold.

    python -m tests.golden.make

creates the directories of the present FORMAT_VERSION, and refuses if they exist: each was written by the program of its
time and is never written again, or it would prove nothing. A new format adds a new directory beside the old ones.

Each format has two data directories, `clean` (shut down properly) and `crashed` (the process died in the middle of a
write), and `expected.json`: what every program that reads this format must find in them.
"""

import json
from contextlib import closing
from pathlib import Path
from random import Random

from penstock.host.memory import MemoryDisk
from penstock.log import upkeep
from penstock.log.directory import FORMAT_VERSION, DataDirectory, open_directory
from penstock.log.index import ActiveIndex
from penstock.log.log import Log
from penstock.log.segment import Segment, scan_batches
from penstock.log.settings import LogSettings
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules
from penstock.records.compression import Codec
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView, TimestampType
from tests.golden.portrait import LEDGER_BYTES, SETTINGS, digest, portrait
from tests.simulation.log.histories import ZeroEntropy, drive

HERE = Path(__file__).parent
NOW_MS = 1_700_000_000_000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
FROM_CLIENT = Rules()
FROM_COORDINATOR = Rules(is_from_client=False)
APPEND_TIME = Rules(timestamp_type=TimestampType.LOG_APPEND_TIME)


class Writer:
    """Fills a data directory, always in the same way."""

    def __init__(self) -> None:
        self.random = Random(1)
        self.disk = MemoryDisk()
        self.directory = self.open()
        self.sequences: dict[tuple[str, int], int] = {}
        self.written: dict[str, list[bytes]] = {}
        """Every batch of every log as it was appended, to check what is read."""
        self.now_ms = NOW_MS

    def open(self) -> DataDirectory:
        return drive(
            open_directory(
                self.disk,
                cluster_id="golden",
                node_id=3,
                entropy=ZeroEntropy(),
                now_ms=NOW_MS,
                settings_for=lambda _topic, _partition: SETTINGS,
                ledger_bytes=LEDGER_BYTES,
            )
        )

    def create(self, topic: str, partition: int, settings: LogSettings = SETTINGS) -> Log:
        self.written[f"logs/{topic}-{partition}"] = []
        return drive(self.directory.create(topic, f"{topic:0<22}", partition, settings))

    def batch(self, log: Log, codec: Codec, producer_id: int = -1, *, is_transactional: bool = False) -> bytearray:
        has_producer = producer_id >= 0
        sequence = self.sequences.get((log.path, producer_id), 0) if has_producer else -1
        builder = BatchBuilder(
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        for number in range(self.random.choice([1, 2, 5])):
            key = b"key-%d" % self.random.randrange(5) if self.random.random() < 0.8 else None
            value = bytes(self.random.choices(b"abc", k=self.random.choice([0, 20, 90])))
            headers = [("trace", b"%d" % number), ("empty", None)] if self.random.random() < 0.3 else []
            builder.append(key, value, headers, timestamp_ms=self.now_ms + self.random.randrange(-50, 50))
        if has_producer:
            self.sequences[log.path, producer_id] = sequence + builder.count
        return builder.build()

    def append(self, log: Log, data: bytearray, *, epoch: int = 0, rules: Rules = FROM_CLIENT) -> None:
        self.now_ms += 10
        log.append(data, leader_epoch=epoch, now_ms=self.now_ms, rules=rules)
        self.written[log.path].append(bytes(data))

    def end(self, log: Log, kind: ControlType, producer_id: int, epoch: int) -> None:
        marker = EndTransactionMarker(kind, 2)
        data = marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=self.now_ms)
        self.append(log, data, epoch=epoch, rules=FROM_COORDINATOR)

    def commit(self) -> None:
        drive(self.directory.commit())

    # --- the logs -------------------------------------------------------------------------------------------------

    def write_orders(self) -> Log:
        """All codecs, idempotent producers, three epochs of which the last has written nothing."""
        log = self.create("orders", 0)
        for number in range(30):
            data = self.batch(log, CODECS[number % 5], producer_id=number % 4 - 1)
            self.append(log, data, epoch=1 + number // 15)
        log.advance_high_watermark(log.written_end - 3)
        drive(self.directory.begin_epoch(log, 7))
        return log

    def write_payments(self) -> Log:
        """Transactions that overlap, some committed, some aborted, one still open."""
        log = self.create("payments", 12)
        for turn in range(6):
            for producer_id in (1001, 1002):
                for _ in range(2):
                    data = self.batch(log, Codec.LZ4, producer_id, is_transactional=True)
                    self.append(log, data, epoch=4)
            for producer_id in (1002, 1001):
                kind = ControlType.ABORT if (turn + producer_id) % 2 else ControlType.COMMIT
                self.end(log, kind, producer_id, epoch=4)
        self.append(log, self.batch(log, Codec.NONE, 1003, is_transactional=True), epoch=5)
        self.append(log, self.batch(log, Codec.ZSTD, 1001, is_transactional=True), epoch=5)
        self.append(log, self.batch(log, Codec.NONE), epoch=5)
        log.advance_high_watermark(log.written_end)
        return log

    def write_clicks(self) -> Log:
        """Log append time, gaps as compaction leaves them, and a deleted front."""
        log = self.create("clicks.by-user", 3)
        for number in range(24):
            data = self.batch(log, CODECS[number % 5])
            if number % 6 == 5:  # as in a follower's log, after a gap
                leader = BatchBuilder(base_offset=log.written_end + 10, leader_epoch=2)
                leader.append(b"gap", b"%d" % number, timestamp_ms=self.now_ms)
                data = leader.build()
                log.append_replicated(memoryview(data), now_ms=self.now_ms)
                self.written[log.path].append(bytes(data))
            else:
                self.append(log, data, epoch=2, rules=APPEND_TIME)
        log.advance_high_watermark(log.written_end)
        drive(upkeep.delete_before(log, self.disk, log.segments[1].base_offset + 1))
        return log

    def write_all(self) -> None:
        self.write_orders()
        self.write_payments()
        self.write_clicks()
        self.create("empty", 0)
        self.commit()

    def replace_two(self, log: Log) -> None:
        """Replaces the first two segments with one, as compaction does."""
        old, index = log.segments[:2], ActiveIndex()
        new = Segment(old[0].base_offset, 1).start_again(old[0].header_seed)
        with closing(self.disk.open(log.path_of(new, "log"), create=True)) as file:
            for segment in old:
                for position, batch in scan_batches(self.disk.open(log.path_of(segment, "log")), 0, segment.size_bytes):
                    if position:
                        index.add(batch.base_offset - new.base_offset, new.size_bytes, new.max_timestamp_ms)
                    file.write(new.size_bytes, batch.whole)
                    new.take(batch, batch.whole)
                index.aborted += log.index_in_memory(segment).aborted
        with closing(self.disk.open(log.path_of(new, "index"), create=True)) as file:
            file.write(0, index.sealed())
        drive(upkeep.replace_segments(log, self.disk, old, new))

    def export(self, folder: Path) -> None:
        """Copies every file out of memory."""
        for path in _files(self.disk, ""):
            file = self.disk.open(path)
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read(0, file.size()))
            file.close()


def _files(disk: MemoryDisk, path: str) -> list[str]:
    found: list[str] = []
    for name in disk.list(path):
        below = f"{path}/{name}" if path else name
        try:
            disk.open(below).close()
            found.append(below)
        except IsADirectoryError:
            found += _files(disk, below)
    return found


def make_clean(folder: Path) -> Writer:
    """Seals everything that can be, appends once more after a restart, and shuts down."""
    writer = Writer()
    writer.write_all()
    drive(writer.directory.settle())
    writer.replace_two(writer.directory.logs["payments-12"])
    drive(writer.directory.close())
    writer.directory = writer.open()
    log = writer.directory.logs["orders-0"]
    writer.append(log, writer.batch(log, Codec.SNAPPY, 1), epoch=7)
    drive(writer.directory.close())
    writer.export(folder)
    return writer


def make_crashed(folder: Path) -> Writer:
    """Some segments are sealed, some not; the tail is not covered by the ledger, and ends with a torn batch."""
    writer = Writer()
    writer.write_all()
    orders, payments = writer.directory.logs["orders-0"], writer.directory.logs["payments-12"]
    drive(upkeep.settle(payments, writer.disk))
    for number in range(8):
        writer.append(orders, writer.batch(orders, CODECS[number % 5], 2), epoch=7)
    writer.append(payments, writer.batch(payments, Codec.GZIP, 1003, is_transactional=True), epoch=5)
    writer.commit()
    writer.append(orders, writer.batch(orders, Codec.NONE, 2), epoch=7)  # whole, and not covered by the ledger
    torn = writer.batch(orders, Codec.NONE)
    file = writer.disk.open(orders.path_of(orders.active, "log"))
    file.write(file.size(), torn[: len(torn) // 2])
    file.close()
    writer.export(folder)
    return writer


def main() -> None:
    folder = HERE / f"format-{FORMAT_VERSION}"
    if folder.exists():
        raise SystemExit(f"{folder.name} exists, and what exists is never made again")
    expected = {}
    for name, make in (("clean", make_clean), ("crashed", make_crashed)):
        writer = make(folder / name)
        expected[name] = portrait(folder / name)
        for log_name, log in expected[name]["logs"].items():
            written = [
                data for data in writer.written[f"logs/{log_name}"] if BatchView(data).last_offset >= log["start"]
            ]
            assert [batch[3] for batch in log["batches"]] == [digest(data) for data in written], log_name
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder.name}: {size_bytes} bytes")


if __name__ == "__main__":
    main()
