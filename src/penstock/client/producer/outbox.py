"""Batches of one partition: the queue, the batches in flight, and the outcome of each. No I/O.

A batch is OPEN (accepts records), CLOSED, IN FLIGHT, and then done, failed, or CLOSED again for a retry. Invariants:

- batches are sent in the order in which they were opened, retries first; while a batch waits for a retry, none is sent
  until all others in flight are answered;
- a broker accepts any sequence from an unknown producer: until the first batch under a producer id and epoch is in the
  log, no second one is sent, or it could be appended first;
- a batch keeps its sequence until the broker has proven that it is not in the log: then, and when a batch of unknown
  outcome is given up, the producer epoch is raised and sequences restart at 0 (KIP-360), so that late ones are fenced;
- a batch that may be in the log, or may be appended late (an earlier attempt was lost with its connection), never gets
  another sequence: it would be stored twice. When sequences restart, its sender gets an error: the outcome is unknown.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any

from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode
from penstock.records.builder import BatchBuilder, HeaderEntries
from penstock.records.compression import Codec
from penstock.records.header import NO_PRODUCER_ID, seal

EPOCH_MAX = 0x7FFF
_SEQUENCE_MASK = 0x7FFFFFFF
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43


class Verdict(Enum):
    """The outcome of a response for a batch."""

    DONE = "it is in the log"
    REPEAT = "it will be sent again"
    FAILED = "it will not be sent again"


_LOST_STATE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_NOT_APPENDED = (*_LOST_STATE, ErrorCode.NOT_ENOUGH_REPLICAS)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """Settings shared by all partitions of a producer."""

    batch_bytes: int
    linger_ms: int
    codec: Codec
    level: int | None
    delivery_timeout_ms: int
    is_idempotent: bool
    in_flight_max: int
    """A batch is sent only if it is among this many from the oldest in flight on: the broker remembers no more."""


class Batch:
    """A record batch and its delivery state."""

    __slots__ = (
        "_identity",
        "attempts",
        "builder",
        "data",
        "deliveries",
        "held_bytes",
        "is_adrift",
        "number",
        "opened_ms",
        "sequence",
    )

    def __init__(self, builder: BatchBuilder, number: int, opened_ms: int) -> None:
        self.builder = builder
        self.number = number
        self.opened_ms = opened_ms
        self.deliveries: list[tuple[Any, int]] = []
        """For each record, the future of its delivery and its timestamp."""
        self.held_bytes = 0
        self.attempts = 0
        self.is_adrift = False
        """Whether an earlier attempt may have been appended, or may still be."""
        self.sequence: int | None = None
        self.data: bytearray | None = None
        self._identity: tuple[int, int, int] | None = None

    def stamp(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Builds the batch if necessary, and writes producer id, epoch and sequence into it."""
        if self.data is None:
            self.data = self.builder.build()
        if producer_id != NO_PRODUCER_ID and self._identity != (producer_id, epoch, sequence):
            self._identity = (producer_id, epoch, sequence)
            _PRODUCER.pack_into(self.data, _PRODUCER_POSITION, producer_id, epoch, sequence)
            seal(self.data)


class Outbox:
    """See the module."""

    def __init__(self, partition: TopicPartition, settings: OutboxSettings) -> None:
        self.partition = partition
        self.queue: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.identity: tuple[int, int] | None = None
        """Producer id and epoch for this partition: when its sequences restart, it raises its own epoch."""
        self.spent_id: int | None = None
        """A producer id that must not be used for this partition again."""
        self.not_before_ms = 0
        self._lost: list[Batch] = []
        self._settings = settings
        self._is_mending = False
        self._has_gap = False
        self._wants_reset = False
        self._is_known = False
        self._next_sequence = 0
        self._numbers = 0

    @property
    def is_idle(self) -> bool:
        """Whether no batch is queued, in flight or lost."""
        return not self.queue and not self.in_flight and not self._lost

    # --- adding records

    def add(
        self, key: bytes | None, value: bytes | None, headers: HeaderEntries, timestamp_ms: int, now_ms: int
    ) -> Batch:
        """Appends a record; returns its batch."""
        batch = self.queue[-1] if self.queue else None
        if batch is None or batch.data is not None or not batch.builder.has_room_for(key, value, headers):
            self._numbers += 1
            settings = self._settings
            builder = BatchBuilder(codec=settings.codec, level=settings.level, bytes_max=settings.batch_bytes)
            batch = Batch(builder, self._numbers, now_ms)
            self.queue.append(batch)
        batch.builder.append(key, value, headers, timestamp_ms)
        return batch

    # --- sending batches

    def ready_at_ms(self, *, is_flushing: bool) -> int | None:
        """When the next batch may be sent; None if the queue is empty or a response must arrive first."""
        if not self.queue:
            return None
        head = self.queue[0]
        if self.in_flight:
            if self._is_mending or self._wants_reset or not self._is_known:
                return None
            # Responses may arrive out of order, over two connections: what counts is the distance from the oldest.
            if head.number - self.in_flight[0].number >= self._settings.in_flight_max:
                return None
            if self._has_gap and head.sequence is None:
                return None
        is_closed = head.attempts > 0 or len(self.queue) > 1 or head.builder.is_full or is_flushing
        return self.not_before_ms if is_closed else max(self.not_before_ms, head.opened_ms + self._settings.linger_ms)

    def take(self) -> Batch:
        """Takes the next batch from the queue, assigns its sequence, and marks it as in flight."""
        batch = self.queue.popleft()
        batch.attempts += 1
        if self._settings.is_idempotent:
            assert self.identity is not None, "no producer id yet"
            if batch.sequence is None:
                batch.sequence = self._next_sequence
                self._next_sequence = (self._next_sequence + batch.builder.count) & _SEQUENCE_MASK
            batch.stamp(*self.identity, batch.sequence)
        else:
            batch.stamp(NO_PRODUCER_ID, -1, -1)
        self.in_flight.append(batch)
        return batch

    # --- responses

    def answered(self, batch: Batch, code: ErrorCode, now_ms: int, pause_ms: Callable[[int], int]) -> Verdict:
        """Processes the response to a batch in flight. Lost connections and timeouts are NETWORK_EXCEPTION."""
        self.in_flight.remove(batch)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            verdict = Verdict.DONE
            self._is_known = True
        elif self._may_repeat(batch, code) and now_ms < self._expires_ms(batch):
            verdict = Verdict.REPEAT
            self._is_mending = True
            batch.is_adrift = batch.is_adrift or code not in _NOT_APPENDED
            self.not_before_ms = now_ms + pause_ms(batch.attempts)
            self._put_back(batch)
        else:
            verdict = Verdict.FAILED
            self._has_gap = self._settings.is_idempotent
        self._settle()
        return verdict

    def _may_repeat(self, batch: Batch, code: ErrorCode) -> bool:
        if code in _LOST_STATE and self._settings.is_idempotent:
            # This is the expected response behind a missing batch. For the first batch, it means that the broker has
            # lost the producer's state, and that the batch is not in its log.
            self._wants_reset = self._wants_reset or self._is_first(batch)
            return True
        if code in _FENCED and self._settings.is_idempotent:
            self._wants_reset = True
            self._drop_identity()
            return batch.attempts == 1  # an earlier attempt may be in the log, under the fenced identity
        return code.is_retriable

    def _is_first(self, batch: Batch) -> bool:
        return all(each.number > batch.number for each in (*self.in_flight, *self.queue))

    def _put_back(self, batch: Batch) -> None:
        place = next((at for at, each in enumerate(self.queue) if each.number > batch.number), len(self.queue))
        self.queue.insert(place, batch)

    def expire(self, now_ms: int) -> list[Batch]:
        """Removes queued batches past the delivery timeout; those in flight wait for their response."""
        expired = []
        while self.queue and now_ms >= self._expires_ms(self.queue[0]):
            batch = self.queue.popleft()
            self._has_gap = self._has_gap or batch.sequence is not None
            expired.append(batch)
        if expired:
            self._settle()
        return expired

    def give_up(self) -> list[Batch]:
        """Empties the queue."""
        given_up = list(self.queue)
        self.queue.clear()
        self._has_gap = self._has_gap or any(batch.sequence is not None for batch in given_up)
        self._settle()
        return given_up

    def take_lost(self) -> list[Batch]:
        """Returns and clears the batches given up because it is unknown whether they are in the log."""
        lost, self._lost = self._lost, []
        return lost

    def expires_at_ms(self) -> int | None:
        """When the first queued batch expires."""
        return self._expires_ms(self.queue[0]) if self.queue else None

    def _expires_ms(self, batch: Batch) -> int:
        return batch.opened_ms + self._settings.delivery_timeout_ms

    def _settle(self) -> None:
        """If nothing is in flight, allows the next batch, and restarts sequences if necessary."""
        if self.in_flight:
            return
        self._is_mending = False
        is_resolved = all(batch.sequence is None for batch in self.queue)
        if self._wants_reset or (self._has_gap and is_resolved):
            self._wants_reset = self._has_gap = self._is_known = False
            self._next_sequence = 0
            if self._settings.is_idempotent:
                self._lost += [batch for batch in self.queue if batch.is_adrift]
                self.queue = deque(batch for batch in self.queue if not batch.is_adrift)
            for batch in self.queue:
                batch.sequence = None
            if self.identity is not None:
                producer_id, epoch = self.identity
                if epoch < EPOCH_MAX:
                    self.identity = (producer_id, epoch + 1)
                else:
                    self._drop_identity()

    def _drop_identity(self) -> None:
        if self.identity is not None:
            self.spent_id, self.identity = self.identity[0], None
