"""Produce: a producer sends record batches, one per partition.

Serves    Produce 3–13, acks 0, 1 and all (-1), topic names and ids.
Answers   once the records are durable on this node (acks=1), once the high watermark has passed them (acks=all), or
          with REQUEST_TIMED_OUT. A duplicate batch is answered like the original, and waits like it. acks=0 is never
          answered; an error closes the connection, which is how the producer learns of it. Batches that an idempotent
          producer sent after one that it must retry are refused with the same error, not as out of order. Internal
          topics are INVALID_TOPIC_EXCEPTION. Large batches whose records must be decompressed and checked are opened by
          workers; later requests of the connection wait for that. Requests of many partitions or bytes are appended in
          pieces; a partition that is named several times is refused once, with INVALID_REQUEST.
Departs   from Kafka 4.3: acks=1 waits for the leader's disk, unless the topic's `durability` is `replicated`;
          transactional batches are INVALID_TXN_STATE until there are transactions; of a partition that is named several
          times, Kafka appends one batch; a request has at most 10,000 topics and partitions (`produce_partitions_max`);
          `error_message` names the rule that a batch broke, `record_errors` stays empty.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.model.errors import ErrorCode, OutOfOrderSequence, ProtocolError
from penstock.model.limits import MIB
from penstock.model.ports import Clock
from penstock.records.check import DEFAULT_RULES, Rules, check_batch, without_opening
from penstock.records.header import HEADER_BYTES, TRANSACTIONAL_BIT, BatchView
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.serving import Answer, Buffers, Call, Unfinished, serves_frames
from penstock.server.handlers.records.produce_answer import ProduceResult, write_results
from penstock.server.handlers.records.produce_wait import (
    ALL,
    LEADER,
    NO_ANSWER,
    Confirmation,
    ManyConfirmed,
    is_reached,
    too_few,
)
from penstock.server.loop.deadlines import Deadlines
from penstock.server.loop.pieces import Turns
from penstock.server.partitions.opening import Opener, is_small
from penstock.server.partitions.partitions import Partitions
from penstock.server.partitions.sequence_gaps import SequenceGaps
from penstock.wire.hot.produce import ProducedPartition, read_produce
from penstock.wire.messages.produce import ProduceRequest

_ATTRIBUTES_LOW_BYTE = 22
AT_ONCE_PARTITIONS: Final = 500
AT_ONCE_BYTES: Final = 8 * MIB
"""Larger requests are appended in pieces, with turns for other tasks."""
ELEMENT_SHIFT: Final = 14
"""Appending 2 to this power bytes takes as long as an element of `pieces`."""
REPEATED: Final = "the partition is named several times in one request; send one batch for it"
OPENED_AT_ONCE: Final = 16
"""Small batches opened on the event loop; workers open all batches of a request with more partitions."""
SENT_BEFORE = "what the producer sent before has to come first; send both again, in order"


class UnansweredProduceFailed(ProtocolError):
    """A batch with acks=0 could not be appended: the connection is to be closed."""


class ProduceHandler:
    """Appends batches to partitions that are led here."""

    def __init__(
        self,
        partitions: Partitions,
        sequence_gaps: SequenceGaps,
        deadlines: Deadlines,
        opener: Opener,
        codec: CodecWorker,
        clock: Clock,
    ) -> None:
        self._partitions = partitions
        self._sequence_gaps = sequence_gaps
        self._deadlines = deadlines
        self._opener = opener
        self._codec = codec
        self._clock = clock

    @serves_frames(ProduceRequest, is_prompt=True)
    def produce(self, call: Call, frame: memoryview, position: int) -> Answer | Unfinished:
        """Appends all batches now, in order; the response may have to wait."""
        _, acks, timeout_ms, parts = read_produce(call.version, frame, position)
        if acks not in (NO_ANSWER, LEADER, ALL):
            sentence = f"acks is {acks}, but only 0, 1 and -1 have a meaning"
            refused = [_refused(topic, index, ErrorCode.INVALID_REQUIRED_ACKS, sentence) for topic, index, _ in parts]
            if len(parts) > AT_ONCE_PARTITIONS:
                return self._write_many(call, refused)
            return write_results(call.version, call.correlation_id, call.client.listener, refused)
        if len(parts) > 1:
            repeated = _repeated(parts)
            if repeated or len(parts) > AT_ONCE_PARTITIONS or call.request_bytes > AT_ONCE_BYTES:
                return Unfinished(self._append_in_pieces(call, parts, [], acks, timeout_ms, repeated))
        now_ms = self._clock.wall_ms()
        results: list[ProduceResult] = []
        opens_small = len(parts) <= OPENED_AT_ONCE
        for part in parts:
            result = self._append(part, acks, now_ms, opens_small=opens_small)
            if result is None:
                return Unfinished(self._append_in_pieces(call, parts, results, acks, timeout_ms, {}))
            results.append(result)
        return self._answer(call, results, acks, timeout_ms)

    async def _append_in_pieces(
        self,
        call: Call,
        parts: Sequence[ProducedPartition],
        results: list[ProduceResult],
        acks: int,
        timeout_ms: int,
        repeated: dict[tuple[str | bytes, int], None],
    ) -> Answer:
        """Appends the rest of a request that has many partitions or bytes, or large batches to open."""
        turns, refused = Turns(), dict.fromkeys(repeated, False)
        for part in parts[len(results) :]:
            topic, index, records = part
            await turns.after(1 + (len(records or b"") >> ELEMENT_SHIFT))
            if repeated and (topic, index) in repeated:
                if not refused[topic, index]:
                    refused[topic, index] = True
                    results.append(_refused(topic, index, ErrorCode.INVALID_REQUEST, REPEATED))
                continue
            result = self._append(part, acks, self._clock.wall_ms(), opens_small=False)
            if result is None:
                verdict = await self._open(part)
                result = self._append(part, acks, self._clock.wall_ms(), verdict, opens_small=False)
            assert result is not None
            results.append(result)
        if len(results) <= AT_ONCE_PARTITIONS or acks == NO_ANSWER:
            return self._answer(call, results, acks, timeout_ms)
        return self._answer_many(call, results, acks, timeout_ms)

    async def _answer_many(self, call: Call, results: Sequence[ProduceResult], acks: int, timeout_ms: int) -> Buffers:
        await ManyConfirmed(call, results, acks, timeout_ms, self._deadlines).wait()
        return await self._write_many(call, results)

    async def _write_many(self, call: Call, results: Sequence[ProduceResult]) -> Buffers:
        codec = self._codec
        where = call.version, call.correlation_id, call.client.listener
        return await codec.run(partial(write_results, *where, results, codec.breathe))

    async def _open(self, part: ProducedPartition) -> ProtocolError | Rules:
        """Checks a batch by opening its records; returns its error, or the rules that it has passed."""
        topic, index, records = part
        partition = self._partitions.find(topic, index)
        assert records is not None
        rules = DEFAULT_RULES if partition is None else partition.rules
        try:
            batch = BatchView(records)
            await self._opener.open(batch, partial(check_batch, records, rules, self._clock.wall_ms()))
        except ProtocolError as error:
            return error
        return rules

    def _answer(self, call: Call, results: Sequence[ProduceResult], acks: int, timeout_ms: int) -> Answer:
        if acks == NO_ANSWER:
            _raise_if_failed(results)
            return None
        for result in results:
            if result.partition is not None and not is_reached(result.partition, result.end_offset, acks):
                return Confirmation(call, results, acks, timeout_ms, self._deadlines)
        return write_results(call.version, call.correlation_id, call.client.listener, results)

    def _append(
        self,
        part: ProducedPartition,
        acks: int,
        now_ms: int,
        verdict: ProtocolError | Rules | None = None,
        *,
        opens_small: bool,
    ) -> ProduceResult | None:
        """Appends a batch; None if it has to be opened first, which takes too long for the event loop."""
        result = self._try_to_append(part, acks, now_ms, verdict, opens_small=opens_small)
        if result is None:
            return None
        if result.error_code:
            self._sequence_gaps.was_refused(part, result.error_code, now_ms)
            partition = self._partitions.find(part[0], part[1])
            self._partitions.traffic.produce_failed(None if partition is None else partition.traffic, result.error_code)
        elif self._sequence_gaps:
            self._sequence_gaps.was_appended(part)
        return result

    def _try_to_append(
        self,
        part: ProducedPartition,
        acks: int,
        now_ms: int,
        verdict: ProtocolError | Rules | None,
        *,
        opens_small: bool,
    ) -> ProduceResult | None:
        topic, index, records = part
        partition = self._partitions.find(topic, index)
        if partition is None:
            code, leader = self._partitions.why_missing(topic, index)
            return ProduceResult(topic, index, code, leader=leader)
        if partition.is_internal:
            sentence = f"{partition.topic} is written by coordinators alone"
            return _refused(topic, index, ErrorCode.INVALID_TOPIC_EXCEPTION, sentence)
        if records is None:
            return _refused(topic, index, ErrorCode.INVALID_RECORD, "no batch where exactly one is expected")
        if acks == ALL and not partition.has_enough_in_sync:
            return _refused(topic, index, ErrorCode.NOT_ENOUGH_REPLICAS, too_few(partition))
        if len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            sentence = "this node does not take part in transactions yet: send without a transactional id"
            return _refused(topic, index, ErrorCode.INVALID_TXN_STATE, sentence)
        rules = partition.rules
        if rules.opens_records and len(records) >= HEADER_BYTES:
            if isinstance(verdict, ProtocolError):
                return _refused(topic, index, verdict.code, str(verdict))
            if isinstance(verdict, Rules):
                rules = without_opening(rules)
            elif not opens_small or not is_small(BatchView(records)):
                return None
        behind = self._sequence_gaps.code_for_unknown_producer(part, partition, now_ms)
        try:
            if behind is not None:
                check_batch(records, rules, now_ms)  # an invalid batch must not be retried
                return _refused(topic, index, behind, SENT_BEFORE)
            appended = partition.append(records, now_ms=now_ms, rules=rules)
        except OutOfOrderSequence as error:
            behind = self._sequence_gaps.code_for_gap(part, partition, now_ms)
            return _refused(topic, index, error.code if behind is None else behind, str(error))
        except ProtocolError as error:
            return _refused(topic, index, error.code, str(error))
        except OSError as error:
            return _refused(topic, index, ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.log.path}: {error}")
        return ProduceResult(
            topic,
            index,
            ErrorCode.NONE,
            None,
            appended.base_offset,
            appended.append_time_ms,
            partition.log.start_offset,
            partition,
            appended.last_offset + 1,
        )


def _repeated(parts: Sequence[ProducedPartition]) -> dict[tuple[str | bytes, int], None]:
    """Partitions that are named more than once."""
    named: set[tuple[str | bytes, int]] = set()
    repeated: dict[tuple[str | bytes, int], None] = {}
    for topic, index, _ in parts:
        key = (topic, index)
        if key in named:
            repeated[key] = None
        named.add(key)
    return repeated


def _refused(topic: str | bytes, index: int, code: ErrorCode, sentence: str) -> ProduceResult:
    return ProduceResult(topic, index, code, sentence)


def _raise_if_failed(results: Sequence[ProduceResult]) -> None:
    for result in results:
        if result.error_code:
            raise UnansweredProduceFailed(
                f"partition {result.index}: {result.error_code.name}, {result.error_message or 'not led here'}"
            )
