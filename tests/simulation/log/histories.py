"""Random histories of a log on a lossy disk, compared with a plain Python list.

A history appends, commits, rolls, truncates, deletes and reads; sometimes the power is cut, also during a commit, a
truncation or a recovery, and the log is opened again. The list holds every batch in the log, and the end up to which
the log has reported them durable.
"""

from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log import upkeep
from penstock.log.directory import DataDirectory, open_directory
from penstock.log.log import Log
from penstock.log.producers import ProducerStates
from penstock.log.segment import scan_batches
from penstock.log.settings import Durability, LogSettings
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView
from tests.simulation.kit.invariants import broken

T = TypeVar("T")
FROM_COORDINATOR = Rules(is_from_client=False)
TRANSACTIONAL_ID = 7


class PowerCut(BaseException):
    """The power was cut while an operation waited for the disk."""


class _Wait:
    """One suspension: a point where the power can be cut."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def wait_at(_operation: str, _path: str) -> None:
    await _Wait()


def drive(work: Coroutine[Any, Any, T], waits_before_cut: int | None = None) -> T:
    """Runs a coroutine to its end, or up to the given suspension and no further."""
    waits = 0
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        if waits_before_cut is not None and waits >= waits_before_cut:
            work.close()
            raise PowerCut
        waits += 1


class ZeroEntropy:
    """Entropy that gives the same ids in every run."""

    def token(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)

    def below(self, _end: int) -> int:
        return 0


@dataclass
class Expected:
    """The content that the log must have."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """(base offset, bytes) of every batch in the log, oldest first."""
    promised_end: int = 0
    start_candidates: list[int] = field(default_factory=lambda: [0])
    """Offsets where the log may start: the present start, or the target of an interrupted deletion."""

    @property
    def end(self) -> int:
        return self._end_of(self.batches[-1][1]) if self.batches else 0

    @staticmethod
    def _end_of(data: bytes) -> int:
        return BatchView(data).last_offset + 1

    def cut(self, end: int) -> None:
        self.batches = [b for b in self.batches if self._end_of(b[1]) <= end]


def open_small(
    disk: LossyDisk, settings: LogSettings, now_ms: int, waits_before_cut: int | None = None
) -> DataDirectory:
    """Opens a directory whose ledger, reserve and pool are small, so that they fill up within a history."""
    return drive(
        open_directory(
            disk,
            cluster_id="c",
            node_id=1,
            entropy=ZeroEntropy(),
            now_ms=now_ms,
            settings_for=lambda _topic, _partition: settings,
            ledger_bytes=1024,
            reserve_bytes=512,
            files_open_max=2,
            maps_open_max=1,
        ),
        waits_before_cut,
    )


def a_random_batch(random: Random, producer_id: int, sequence: int, now_ms: int) -> bytearray:
    """A batch of one to five records. Producer 7 is transactional, a negative id is no producer."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        is_transactional=producer_id == TRANSACTIONAL_ID,
    )
    for _ in range(random.choice([1, 1, 2, 5])):
        size = random.choice([0, 10, 100, 700])
        builder.append(random.randbytes(4), random.randbytes(size), timestamp_ms=now_ms)
    return builder.build()


def a_random_marker(random: Random, now_ms: int) -> bytearray:
    """The marker that ends the transaction of producer 7."""
    kind = random.choice([ControlType.COMMIT, ControlType.ABORT])
    return marker_batch(
        EndTransactionMarker(kind, 0), producer_id=TRANSACTIONAL_ID, producer_epoch=0, timestamp_ms=now_ms
    )


def stored_batches(log: Log, disk: LossyDisk) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of every batch in the files of a log."""
    found = []
    for segment in log.segments:
        file = disk.open(log.path_of(segment, "log"))
        assert file.size() == segment.size_bytes
        found += [(b.base_offset, bytes(b.whole)) for _, b in scan_batches(file, 0, file.size())]
        file.close()
    return found


def check_derived(log: Log, found: list[tuple[int, bytes]]) -> None:
    """Checks that epochs, producers and high watermark agree with the batches."""
    if not log.start_offset <= log.high_watermark <= log.written_end:
        broken("HighWatermark", f"{log.high_watermark} is outside {log}")
    for base, data in found:
        if base >= log.start_offset and log.epochs.epoch_at(base) != BatchView(data).leader_epoch:
            broken("Epochs", f"{log}: offset {base} is of epoch {BatchView(data).leader_epoch}")
    if log.segments[0].base_offset == 0:
        again = ProducerStates()
        for _, data in found:
            batch = BatchView(data)
            if batch.producer_id >= 0:
                again.apply(batch, 0, 0)
        if _essence(again) != _essence(log.producers):
            broken("Producers", f"{log}: producers are not what the batches make of them")


class History:
    """One history."""

    def __init__(self, seed: int, durability: Durability, faults: Faults | None = None) -> None:
        self.random = Random(seed)
        self.settings = LogSettings(
            durability=durability,
            segment_bytes=self.random.choice([600, 2000, 8000]),
            index_interval_bytes=self.random.choice([64, 256, 1024]),
            segment_ms=self.random.choice([50, 10_000]),
            retention_ms=None,
        )
        self.faults = faults if faults is not None else Faults(is_torn=self.random.random() < 0.7)
        self.disk = LossyDisk(MemoryDisk(), Random(seed + 1), self.faults, delay=wait_at)
        self.expected = Expected()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open_transactions: set[int] = set()
        self.cuts = 0
        self.directory: DataDirectory = self.open()
        self.log: Log = drive(self.directory.create("t", "id", 0, self.settings))

    # --- operations -----------------------------------------------------------------------------------------------

    def open(self, waits_before_cut: int | None = None) -> DataDirectory:
        return open_small(self.disk, self.settings, self.now_ms, waits_before_cut)

    def append(self) -> None:
        random = self.random
        producer_id = random.choice([-1, -1, 5, 6, 7])
        data = a_random_batch(random, producer_id, self.sequences.get(producer_id, 0), self.now_ms)
        count = BatchView(data).count
        self.now_ms += random.choice([0, 1, 20])
        self._append(data, Rules())
        if producer_id >= 0:
            self.sequences[producer_id] = self.sequences.get(producer_id, 0) + count
        if producer_id == TRANSACTIONAL_ID:
            self.open_transactions.add(producer_id)

    def end_transaction(self) -> None:
        if not self.open_transactions:
            return
        self.open_transactions.clear()
        self._append(a_random_marker(self.random, self.now_ms), FROM_COORDINATOR)

    def _append(self, data: bytearray, rules: Rules) -> None:
        base = self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms, rules=rules).base_offset
        self.expected.batches.append((base, bytes(data)))
        self._note_promise()

    def _note_promise(self) -> None:
        self.expected.promised_end = max(self.expected.promised_end, self.log.durable_end)

    def commit(self, waits: int | None = None) -> None:
        self.directory.hurry()
        drive(self.directory.commit(), waits)
        self._note_promise()

    def settle(self, waits: int | None = None) -> None:
        drive(self.directory.settle(), waits)

    def begin_epoch(self, waits: int | None = None) -> None:
        self.epoch += 1
        drive(self.directory.begin_epoch(self.log, self.epoch), waits)

    def truncate(self, waits: int | None = None) -> None:
        if not self.expected.batches:
            return
        end, data = self.random.choice(self.expected.batches)
        end += self.random.choice(
            [0, BatchView(data).last_offset_delta]
        )  # also inside a batch, which is then removed as a whole
        end = max(end, self.log.high_watermark, self.log.start_offset)
        boundaries = [base for base, data in self.expected.batches if base <= end]
        self.expected.promised_end = min(self.expected.promised_end, boundaries[-1] if boundaries else 0)
        drive(self.directory.truncate(self.log, end, now_ms=self.now_ms), waits)
        self.expected.cut(self.log.written_end)
        self._resume_producers()

    def delete_before(self, waits: int | None = None) -> None:
        self.log.advance_high_watermark(self.random.randint(0, self.log.durable_end))
        offset = self.random.randint(self.log.start_offset, self.log.high_watermark)
        self.expected.start_candidates = [self.log.start_offset, offset]
        drive(upkeep.delete_before(self.log, self.disk, offset), waits)
        self.expected.start_candidates = [self.log.start_offset]

    def roll(self) -> None:
        self.log.roll()

    def close_and_open(self, waits: int | None = None) -> None:
        drive(self.directory.close(), waits)
        self._note_promise()
        self.directory = self.open()
        assert self.directory.findings.scanned_bytes == 0, "a clean shutdown leaves nothing to scan"
        self._adopt(has_lost_power=False)

    def close_and_open_full(self) -> None:
        """A shutdown without room to be a clean one loses nothing either."""
        drive(self.directory.close())
        self._note_promise()
        self.directory = self.open()
        self._adopt(has_lost_power=False)

    def kill_and_open(self) -> None:
        """The process dies; the page cache survives, so everything written is still there."""
        self.disk.kill_process()
        self.directory = self.open()
        self._adopt(has_lost_power=False)

    def cut_and_open(self) -> None:
        self.cuts += 1
        self.disk = self.disk.power_cut()
        while True:
            try:
                # The power may be cut again during recovery.
                waits = self.random.randrange(8) if self.random.random() < 0.3 else None
                self.directory = self.open(waits)
                break
            except PowerCut:
                self.cuts += 1
                self.disk = self.disk.power_cut()
        self._adopt(has_lost_power=True)

    def _adopt(self, *, has_lost_power: bool) -> None:
        """Compares the opened log with the expected content, and continues from what was found."""
        findings = self.directory.findings
        assert findings.damage == [], findings.damage
        self.log = self.directory.logs["t-0"]
        assert self.log.offline_reason is None
        self._check_contents(has_lost_power=has_lost_power)
        self.epoch = max(self.epoch, self.log.epochs.latest)
        self.expected.cut(self.log.written_end)
        self.expected.promised_end = self.log.durable_end
        self._resume_producers()

    def _resume_producers(self) -> None:
        """Sets each producer's next sequence from its last batch in the log."""
        self.sequences, self.open_transactions = {}, set()
        for _, data in self.expected.batches:
            batch = BatchView(data)
            if batch.is_control:
                self.open_transactions.discard(batch.producer_id)
            elif batch.producer_id >= 0:
                self.sequences[batch.producer_id] = batch.last_sequence + 1
                if batch.is_transactional:
                    self.open_transactions.add(batch.producer_id)

    # --- invariants -----------------------------------------------------------------------------------------------

    def _check_contents(self, *, has_lost_power: bool) -> None:
        log, expected = self.log, self.expected
        assert log.start_offset in expected.start_candidates
        expected.start_candidates = [log.start_offset]
        if not has_lost_power:
            assert log.written_end >= expected.end, "a process crash loses nothing that was written"
        if self.settings.durability is Durability.FSYNC:
            assert log.written_end >= expected.promised_end, f"lost {log.written_end} < {expected.promised_end}"
        found = stored_batches(log, self.disk)
        known = [b for b in expected.batches if BatchView(b[1]).last_offset >= log.segments[0].base_offset]
        assert found == known[: len(found)], "a hole, a duplicate or a wrong byte"
        self.check_reads()
        check_derived(log, found)

    def check_reads(self) -> None:
        """Any offset can be read, with the right bytes, and nothing at or after the limit is returned."""
        log = self.log
        live = [b for b in self.expected.batches if log.start_offset <= BatchView(b[1]).last_offset < log.written_end]
        if not live:
            return
        base, data = self.random.choice(live)
        last = BatchView(data).last_offset
        offset = self.random.randint(max(base, log.start_offset), last)
        limit = self.random.choice([log.written_end, last + 1])
        part = log.read(offset, self.random.choice([1, 100, 10_000]), limit=limit)
        assert part is not None
        content = part.read()
        part.release()
        assert content[: len(data)] == data
        if limit == last + 1:
            assert len(content) == len(data)

    def resend_is_recognised(self) -> None:
        """A producer that got no response sends again: the log must not append the batch twice."""
        for base, data in reversed(self.expected.batches[-5:]):
            batch = BatchView(data)
            if base < self.log.segments[0].base_offset:
                return
            if batch.producer_id >= 0 and not batch.is_control:
                again = bytearray(data)
                again[0:8] = bytes(8)  # a client sends base offset 0
                answer = self.log.append(again, leader_epoch=self.epoch, now_ms=self.now_ms)
                assert answer.is_duplicate
                assert answer.base_offset == base
                return

    # --- one history ----------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        """Draws operations; the power may be cut in any that waits for the disk."""
        random = self.random
        waiting = [self.commit, self.commit, self.commit, self.settle, self.begin_epoch, self.truncate]
        waiting += [self.delete_before, self.close_and_open]
        plain = [self.append] * 12 + [self.end_transaction, self.roll, self.check_reads, self.resend_is_recognised]
        for _ in range(steps):
            draw = random.random()
            try:
                if draw < 0.62:
                    random.choice(plain)()
                elif draw < 0.92:
                    waits = random.randrange(6) if random.random() < 0.15 else None
                    random.choice(waiting)(waits)
                elif draw < 0.95:
                    self.kill_and_open()
                else:
                    self.cut_and_open()
            except PowerCut:
                self._note_promise()  # the log may have reported this end as durable before the cut
                self.cut_and_open()
        self.cut_and_open()


def _essence(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    return {i: (p.epoch, p.transaction_start, tuple(p.seen)) for i, p in states.producers.items()}


def run_history(seed: int, durability: Durability, steps: int = 30) -> int:
    """Runs one history; returns the number of power cuts in it."""
    history = History(seed, durability)
    history.live(steps)
    return history.cuts
