"""Produce: a producer hands in record batches, one per partition.

Serves    Produce 3–13, acks 0, 1 and all (-1), topic names and ids.
Answers   when its records are durable here (acks=1), when the high watermark has passed them (acks=all), or with
          REQUEST_TIMED_OUT. A batch that was sent before is answered like the first time, and waits like it. acks=0 is
          never answered; an error then closes the connection, which is how such a producer learns of it.
Departs   from Kafka 4.3: acks=1 waits for the leader's disk; batches of transactions are INVALID_TXN_STATE until there
          are transactions; `error_message` says which rule a batch broke, `record_errors` stays empty.
"""

import asyncio
from collections.abc import Sequence

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.records.header import TRANSACTIONAL_BIT
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.handlers.produce_answer import NO_OFFSET, Outcome, write_outcomes
from penstock.server.partition import Partition
from penstock.server.serving import Answer, Buffers, Call, serves_frames
from penstock.wire.hot.produce import ProducedPartition, read_produce
from penstock.wire.messages.produce import ProduceRequest

NO_ANSWER = 0
LEADER = 1
ALL = -1

_ATTRIBUTES_LOW_BYTE = 22


class UnansweredProduceFailed(ProtocolError):
    """A producer that wants no answer sent something that could not be appended: its connection is to be closed."""


@serves_frames(ProduceRequest, is_prompt=True)
def produce(call: Call, frame: memoryview, position: int) -> Answer:
    """Appends everything now, in order; the answer may have to wait."""
    _, acks, timeout_ms, parts = read_produce(call.version, frame, position)
    node = node_of(call)
    if acks not in (NO_ANSWER, LEADER, ALL):
        sentence = f"acks is {acks}, but only 0, 1 and -1 have a meaning"
        refused = [_refused(topic, index, ErrorCode.INVALID_REQUIRED_ACKS, sentence) for topic, index, _ in parts]
        return write_outcomes(call.version, call.correlation_id, refused)
    now_ms = node.clock.wall_ms()
    outcomes = [_append(node, part, acks, now_ms) for part in parts]
    if acks == NO_ANSWER:
        _raise_if_failed(outcomes)
        return None
    for outcome in outcomes:
        if outcome.partition is not None and not _is_reached(outcome.partition, outcome.end_offset, acks):
            deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
            return _later(call.version, call.correlation_id, outcomes, acks, deadline_s)
    return write_outcomes(call.version, call.correlation_id, outcomes)


def _append(node: Needs, part: ProducedPartition, acks: int, now_ms: int) -> Outcome:
    topic, index, records = part
    partition = node.partitions.find(topic, index)
    if partition is None:
        code, leader = node.partitions.why_missing(topic, index)
        return Outcome(topic, index, code, leader=leader)
    if records is None:
        return _refused(topic, index, ErrorCode.INVALID_RECORD, "no batch where exactly one is expected")
    if acks == ALL and not partition.has_enough_in_sync:
        return _refused(topic, index, ErrorCode.NOT_ENOUGH_REPLICAS, _too_few(partition))
    if len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        sentence = "this node does not take part in transactions yet: send without a transactional id"
        return _refused(topic, index, ErrorCode.INVALID_TXN_STATE, sentence)
    try:
        appended = partition.append(records, now_ms=now_ms, rules=partition.rules)
    except ProtocolError as error:
        return _refused(topic, index, error.code, str(error))
    except OSError as error:
        return _refused(topic, index, ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.log.path}: {error}")
    return Outcome(
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


def _refused(topic: str | bytes, index: int, code: ErrorCode, sentence: str) -> Outcome:
    return Outcome(topic, index, code, sentence)


def _too_few(partition: Partition) -> str:
    return f"{partition.in_sync_count} replicas are in sync, {partition.in_sync_min} must be (min.insync.replicas)"


def _raise_if_failed(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error_code:
            raise UnansweredProduceFailed(
                f"partition {outcome.index}: {outcome.error_code.name}, {outcome.error_message or 'not led here'}"
            )


def _is_reached(partition: Partition, end_offset: int, acks: int) -> bool:
    return (partition.log.durable_end if acks == LEADER else partition.log.high_watermark) >= end_offset


async def _later(
    version: int, correlation_id: int, outcomes: Sequence[Outcome], acks: int, deadline_s: float
) -> Buffers:
    """Waits for all of them until the deadline, then looks at each: a wake-up says nothing by itself."""
    waiting = []
    for outcome in outcomes:
        partition = outcome.partition
        if partition is None:
            continue
        trouble = _trouble(partition, outcome.end_offset, acks)
        if trouble is not None:
            _fail(outcome, *trouble)
        elif not _is_reached(partition, outcome.end_offset, acks):
            waiters = partition.durable if acks == LEADER else partition.committed
            waiting.append((outcome, partition, waiters.wait_for(outcome.end_offset)))
    futures = [future for _, _, future in waiting]
    timer = asyncio.get_running_loop().call_at(deadline_s, _wake, futures)
    try:
        for outcome, partition, future in waiting:
            try:
                await future
            except ProtocolError as error:
                _fail(outcome, error.code, str(error))
                continue
            if not _is_reached(partition, outcome.end_offset, acks):
                _fail(outcome, ErrorCode.REQUEST_TIMED_OUT, "the records were appended, but not confirmed in time")
            elif acks == ALL and not partition.has_enough_in_sync:
                _fail(outcome, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _too_few(partition))
    finally:
        timer.cancel()
        for future in futures:
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()  # somebody has looked
    return write_outcomes(version, correlation_id, outcomes)


def _trouble(partition: Partition, end_offset: int, acks: int) -> tuple[ErrorCode, str] | None:
    """Why waiting is in vain."""
    if partition.retirement is not None:
        return partition.retirement.code, str(partition.retirement)
    log = partition.log
    if log.offline_reason is not None and not _is_reached(partition, end_offset, acks):
        return ErrorCode.KAFKA_STORAGE_ERROR, f"{log.path} is offline: {log.offline_reason}"
    return None


def _fail(outcome: Outcome, code: ErrorCode, sentence: str) -> None:
    outcome.error_code = code
    outcome.error_message = sentence
    if code not in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        outcome.base_offset = outcome.append_time_ms = outcome.log_start_offset = NO_OFFSET


def _wake(futures: "list[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
