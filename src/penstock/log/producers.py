"""Producer state of a log: sequences, producer epochs, open transactions.

A batch whose sequence was seen is answered as before and not appended again; a batch that skips a sequence is refused.
An unknown producer (never seen, or expired after long idleness) may use any sequence, because refusing it would stop a
producer that did nothing wrong (KIP-360); the server refuses known exceptions (`sequence_gaps`). Idleness counts from
the append, not from the timestamps that the producer chose (R24). State is a pure function of the batches in the log,
so a snapshot plus a replay restores it. A snapshot shares its entries with the state: an entry is copied when its
producer writes for the first time after the snapshot.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

from penstock.log.index import AbortedTransaction
from penstock.model.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
)
from penstock.records.control import ControlType, EndTransactionMarker, read_control_key, read_marker
from penstock.records.header import BatchView
from penstock.records.rows import rows

BATCHES_REMEMBERED = 5
"""The maximum number of in-flight requests of a producer."""

CONTROL_BATCH_BYTES_MAX = 64 * 1024

_SEQUENCE_END = 2**31


class SeenBatch(NamedTuple):
    """The sequences and offsets of a batch in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


_EPOCH_BY_MARKER = SeenBatch(-1, -1, -1, -1, -1)
"""Placeholder for a batch: a marker fenced the producer's last epoch, and the new one must begin with sequence 0."""


class Producer:
    """State of one producer id. Snapshots taken since its version share it; from then on it does not change."""

    __slots__ = ("coordinator_epoch", "epoch", "seen", "transaction_start", "updated_ms", "version")

    def __init__(self, epoch: int, updated_ms: int, version: int = 0) -> None:
        self.version = version
        self.epoch = epoch
        self.seen: list[SeenBatch] = []
        self.transaction_start: int | None = None
        self.coordinator_epoch = -1
        self.updated_ms = updated_ms

    def copy(self, version: int) -> "Producer":
        """Returns a copy that ProducerStates of that version may change."""
        fresh = Producer(self.epoch, self.updated_ms, version)
        fresh.seen = list(self.seen)
        fresh.transaction_start = self.transaction_start
        fresh.coordinator_epoch = self.coordinator_epoch
        return fresh


class ProducerSnapshot(NamedTuple):
    """All producers of one log at one offset; immutable."""

    producers: dict[int, Producer]
    ended: tuple[tuple[int, int], ...]

    @property
    def has_content(self) -> bool:
        """Whether there is anything to store in a file."""
        return bool(self.producers or self.ended)

    def to_list(self) -> list[Any]:
        """Encodes the snapshot for its file."""
        return [
            [
                producer_id,
                known.epoch,
                known.coordinator_epoch,
                known.transaction_start,
                known.updated_ms,
                [list(seen) for seen in known.seen],
            ]
            for producer_id, known in self.producers.items()
        ] + [["ended", *self.ended]]


class ProducerStates:
    """All producers of one log."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self._version = 0
        """Rises with each snapshot; entries of an older version are shared with snapshots."""
        # Both in offset order: transactions begin in the order of the log.
        self._open: OrderedDict[int, int] = OrderedDict()
        self._ended: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.producers)

    # --- checks ---------------------------------------------------------------------------------------------------

    def check(self, batch: BatchView) -> SeenBatch | None:
        """Raises if a client's batch may not be appended; returns the earlier batch that it duplicates, if any."""
        known = self.producers.get(batch.producer_id)
        if known is None:
            return None
        if batch.producer_epoch < known.epoch:
            raise StaleProducerEpoch(
                f"producer {batch.producer_id} wrote with epoch {batch.producer_epoch}, but {known.epoch} is in use"
            )
        if batch.producer_epoch > known.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id} starts epoch {batch.producer_epoch} with sequence "
                    f"{batch.base_sequence} instead of 0"
                )
        else:
            last_sequence = batch.last_sequence
            for seen in known.seen:
                if seen.base_sequence == batch.base_sequence and seen.last_sequence == last_sequence:
                    return seen
            if known.seen:
                expected = (known.seen[-1].last_sequence + 1) % _SEQUENCE_END
                if batch.base_sequence != expected:
                    raise OutOfOrderSequence(
                        f"producer {batch.producer_id} sent sequence {batch.base_sequence}, expected {expected}"
                    )
        if known.transaction_start is not None and not batch.is_transactional:
            raise InvalidTransactionState(f"producer {batch.producer_id} sent a plain batch inside its transaction")
        return None

    def check_marker(self, batch: BatchView) -> None:
        """Raises if a transaction coordinator's marker may not be appended."""
        known = self.producers.get(batch.producer_id)
        if known is None:
            return
        if batch.producer_epoch < known.epoch:
            raise StaleProducerEpoch(
                f"a marker for producer {batch.producer_id} has epoch {batch.producer_epoch}, "
                f"but {known.epoch} is in use"
            )
        marker = marker_of(batch)
        if marker is not None and marker.coordinator_epoch < known.coordinator_epoch:
            raise StaleCoordinatorEpoch(
                f"a marker comes from coordinator epoch {marker.coordinator_epoch}, "
                f"but {known.coordinator_epoch} has written"
            )

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset of the earliest transaction whose end is not replicated yet."""
        while self._ended and self._ended[0][1] < high_watermark:
            self._ended.pop(0)
        first = next(iter(self._open.values()), None)
        if self._ended:
            ended = min(start for start, _ in self._ended)
            return ended if first is None else min(first, ended)
        return first

    # --- updates --------------------------------------------------------------------------------------------------

    def apply(self, batch: BatchView, now_ms: int, last_stable_offset: int) -> AbortedTransaction | None:
        """Applies a batch that is now in the log; returns the transaction that it aborted, if any."""
        producer_id = batch.producer_id
        assert producer_id >= 0, f"the batch at {batch.base_offset} is nobody's"
        known = self.producers.get(producer_id)
        if known is None:
            known = self.producers[producer_id] = Producer(batch.producer_epoch, now_ms, self._version)
        elif known.version != self._version:
            known = self.producers[producer_id] = known.copy(self._version)
        known.updated_ms = now_ms
        if batch.producer_epoch > known.epoch:
            known.epoch = batch.producer_epoch
            known.seen = [_EPOCH_BY_MARKER] if batch.is_control else []
        if batch.is_control:
            return self._end(producer_id, known, batch, last_stable_offset)
        known.seen.append(
            SeenBatch(
                batch.base_sequence,
                batch.last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp_ms,
            )
        )
        if len(known.seen) > BATCHES_REMEMBERED:
            del known.seen[0]
        if batch.is_transactional and known.transaction_start is None:
            known.transaction_start = batch.base_offset
            self._open[producer_id] = batch.base_offset
        return None

    def _end(
        self, producer_id: int, known: Producer, batch: BatchView, last_stable_offset: int
    ) -> AbortedTransaction | None:
        marker = marker_of(batch)
        if marker is None:
            return None
        known.coordinator_epoch = max(known.coordinator_epoch, marker.coordinator_epoch)
        start, known.transaction_start = known.transaction_start, None
        if start is None:
            return None
        del self._open[producer_id]
        self._ended.append((start, batch.last_offset))
        if marker.type is ControlType.ABORT:
            return AbortedTransaction(producer_id, start, batch.last_offset, last_stable_offset)
        return None

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Removes producers that were idle for longer than `expiration_ms` and have no open transaction."""
        gone = [
            producer_id
            for producer_id, known in self.producers.items()
            if known.transaction_start is None and now_ms - known.updated_ms > expiration_ms
        ]
        for producer_id in gone:
            del self.producers[producer_id]

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self) -> ProducerSnapshot:
        """Takes a snapshot. Costs a pointer per producer; entries are copied when their producers write again."""
        self._version += 1
        return ProducerSnapshot(self.producers.copy(), tuple(self._ended))

    @classmethod
    def from_list(cls, rows_: list[Any]) -> "ProducerStates":
        """Decodes a snapshot's file."""
        states = cls()
        for row in rows_:
            if row[0] == "ended":
                states._ended = [(start, last) for start, last in row[1:]]
                continue
            producer_id, epoch, coordinator_epoch, transaction_start, updated_ms, seen = row
            known = Producer(epoch, updated_ms)
            known.coordinator_epoch = coordinator_epoch
            known.transaction_start = transaction_start
            known.seen = [SeenBatch(*entry) for entry in seen]
            states.producers[producer_id] = known
        started = [(p.transaction_start, i) for i, p in states.producers.items() if p.transaction_start is not None]
        for start, producer_id in sorted(started):
            states._open[producer_id] = start
        return states


def marker_of(batch: BatchView) -> EndTransactionMarker | None:
    """The transaction marker in a control batch, None for a control record of another kind."""
    for record in rows(batch, CONTROL_BATCH_BYTES_MAX):
        if read_control_key(record.key) in (ControlType.COMMIT, ControlType.ABORT):
            return read_marker(record.key, record.value)
    return None
