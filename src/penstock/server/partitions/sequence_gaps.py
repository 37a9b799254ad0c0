"""Refused batches of idempotent producers: batches sent after a refused one wait until it has been retried.

A producer that pipelines may have several batches in flight when the first of them is refused, because this node does
not lead the partition yet, or too few replicas are in sync. If that has changed before the second arrives, a log that
has state of the producer reports the second as out of order, after which some producers (librdkafka) give up their
epoch; and a log without such state would accept the second as the first, because the state may have expired (KIP-360),
and could never append the first. So batches sent after a refused one are refused with the same error, to be retried
after it.

Just after a change of leader, earlier batches may still be in flight to the previous one (`is_settling`). Then a batch
behind a gap is refused in the same way, and so is an unknown producer's batch that is not its first. Later, the former
is reported as out of order, and the latter is accepted as the first batch after long idleness.
"""

from collections import OrderedDict
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.records.header import HEADER_BYTES, BatchView
from penstock.server.partitions.partition import Partition
from penstock.wire.hot.produce import ProducedPartition

REMEMBERED_MAX: Final = 10_000
"""Refused batches that are remembered; beyond this number the oldest are dropped."""
REMEMBERED_MS: Final = 120_000
"""The time for which producers retry by default."""
BEHIND: Final = ErrorCode.NOT_ENOUGH_REPLICAS
"""The error for a batch that has overtaken another: all producers retry after it, and none looks for another leader."""
_PRODUCER_ID: Final = Struct(">q")
_PRODUCER_ID_AT: Final = 43

Key: TypeAlias = tuple[str | bytes, int, int, int]
"""Topic, partition, producer id and epoch."""


class RefusedBatch(NamedTuple):
    """The earliest refused batch of a producer."""

    sequence: int
    code: ErrorCode
    time_ms: int


class SequenceGaps:
    """See the module."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: OrderedDict[Key, RefusedBatch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refused)

    # --- outcomes of batches

    def was_refused(self, part: ProducedPartition, code: ErrorCode, now_ms: int) -> None:
        """Records that a batch was not appended."""
        batch = _idempotent(part)
        if batch is None or not code.is_retriable:
            return
        key = _key(part, batch)
        while self._refused and (len(self._refused) >= REMEMBERED_MAX or self._oldest_ms < now_ms - REMEMBERED_MS):
            self._refused.popitem(last=False)
        known = self._refused.get(key)
        if known is None or batch.base_sequence <= known.sequence:
            self._refused[key] = RefusedBatch(batch.base_sequence, code, now_ms)
            self._refused.move_to_end(key)

    def was_appended(self, part: ProducedPartition) -> None:
        """Records that a batch was appended. Needs to be called only where a batch was refused."""
        batch = _idempotent(part)
        if batch is not None:
            self._refused.pop(_key(part, batch), None)

    @property
    def _oldest_ms(self) -> int:
        return next(iter(self._refused.values())).time_ms

    # --- whether an earlier batch must come first

    def code_for_unknown_producer(self, part: ProducedPartition, partition: Partition, now_ms: int) -> ErrorCode | None:
        """The error for a batch of an unknown producer, if it must not become the producer's first in the log."""
        records = part[2]
        if records is None or len(records) < HEADER_BYTES:
            return None
        (producer_id,) = _PRODUCER_ID.unpack_from(records, _PRODUCER_ID_AT)
        if producer_id < 0 or producer_id in partition.log.producers.producers:
            return None
        batch = BatchView(records)
        if batch.base_sequence == 0:
            return None
        return BEHIND if partition.is_settling(now_ms) else self._code_before(part, batch, now_ms)

    def code_for_gap(self, part: ProducedPartition, partition: Partition, now_ms: int) -> ErrorCode | None:
        """The error for a batch that the log reports as out of order, if the missing batches may still arrive."""
        batch = _idempotent(part)
        if batch is None:
            return None
        known = partition.log.producers.producers[batch.producer_id]
        is_ahead = batch.producer_epoch > known.epoch or batch.base_sequence > known.seen[-1].last_sequence
        if is_ahead and partition.is_settling(now_ms):
            return BEHIND
        return self._code_before(part, batch, now_ms)

    def _code_before(self, part: ProducedPartition, batch: BatchView, now_ms: int) -> ErrorCode | None:
        """The error of an earlier batch that was refused and has not been retried yet."""
        known = self._refused.get(_key(part, batch))
        if known is None or batch.base_sequence <= known.sequence or now_ms - known.time_ms > REMEMBERED_MS:
            return None
        return known.code


def _key(part: ProducedPartition, batch: BatchView) -> Key:
    return part[0], part[1], batch.producer_id, batch.producer_epoch


def _idempotent(part: ProducedPartition) -> BatchView | None:
    records = part[2]
    if records is None or len(records) < HEADER_BYTES:
        return None
    batch = BatchView(records)
    return batch if batch.producer_id >= 0 else None
