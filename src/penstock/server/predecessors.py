"""Batches of idempotent producers that were refused and come again: what was sent behind them has to wait for them.

A producer that pipelines may have several batches under way when the first of them is refused, because this node does
not lead the partition yet, or too few replicas are in sync. When that has changed before the second arrives, a log that
knows the producer calls the second out of order, for which some producers (librdkafka) give up their epoch; and a log
that does not know it would take the second for the first, because it may have forgotten the producer (KIP-360), and
could never append the first. So what was sent behind a refused batch is refused likewise, to come again after it.

Just after leaders have changed, what was sent before may still be on its way to the last one (`is_settling`). Then a
batch behind a gap is refused in the same way, and so is a stranger's that is not its first; later they are what they
seem to be, out of order and the first after long idleness.
"""

from collections import OrderedDict
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.records.header import HEADER_BYTES, BatchView
from penstock.server.partition import Partition
from penstock.wire.hot.produce import ProducedPartition

REMEMBERED_MAX: Final = 10_000
"""Refusals; beyond it the oldest are forgotten."""
REMEMBERED_MS: Final = 120_000
"""As long as producers try by default."""
BEHIND: Final = ErrorCode.NOT_ENOUGH_REPLICAS
"""To a batch that has overtaken another: of the codes after which all producers try again, one that does not send them
elsewhere."""
_PRODUCER_ID: Final = Struct(">q")
_PRODUCER_ID_AT: Final = 43

Key: TypeAlias = tuple[str | bytes, int, int, int]
"""Topic, partition, producer id and epoch."""


class Refused(NamedTuple):
    """The earliest batch of a producer that was refused."""

    sequence: int
    code: ErrorCode
    time_ms: int


class Predecessors:
    """See the module."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: OrderedDict[Key, Refused] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refused)

    # --- what became of batches

    def was_refused(self, part: ProducedPartition, code: ErrorCode, now_ms: int) -> None:
        """A batch was not appended."""
        batch = _idempotent(part)
        if batch is None or not code.is_retriable:
            return
        key = _key(part, batch)
        while self._refused and (len(self._refused) >= REMEMBERED_MAX or self._oldest_ms < now_ms - REMEMBERED_MS):
            self._refused.popitem(last=False)
        known = self._refused.get(key)
        if known is None or batch.base_sequence <= known.sequence:
            self._refused[key] = Refused(batch.base_sequence, code, now_ms)
            self._refused.move_to_end(key)

    def was_appended(self, part: ProducedPartition) -> None:
        """A batch was appended. Needs to be called only where something was refused."""
        batch = _idempotent(part)
        if batch is not None:
            self._refused.pop(_key(part, batch), None)

    @property
    def _oldest_ms(self) -> int:
        return next(iter(self._refused.values())).time_ms

    # --- whether something is to come first

    def code_for_stranger(self, part: ProducedPartition, partition: Partition, now_ms: int) -> ErrorCode | None:
        """With what to refuse a batch of a producer that the log does not know, if it must not be its first there."""
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
        """With what to refuse a batch that the log calls out of order, if what it misses may still come."""
        batch = _idempotent(part)
        if batch is None:
            return None
        known = partition.log.producers.producers[batch.producer_id]
        is_ahead = batch.producer_epoch > known.epoch or batch.base_sequence > known.seen[-1].last_sequence
        if is_ahead and partition.is_settling(now_ms):
            return BEHIND
        return self._code_before(part, batch, now_ms)

    def _code_before(self, part: ProducedPartition, batch: BatchView, now_ms: int) -> ErrorCode | None:
        """With what a batch was refused that this one was sent behind, and that is still to come."""
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
