"""Produce: a producer hands in record batches, one per partition.

Serves    Produce 3–13, acks 0, 1 and all (-1), topic names and ids.
Answers   when its records are durable here (acks=1), when the high watermark has passed them (acks=all), or with
          REQUEST_TIMED_OUT. A batch that was sent before is answered like the first time, and waits like it. acks=0 is
          never answered; an error then closes the connection, which is how such a producer learns of it. What was sent
          behind a batch that is to come again is refused like that batch, and not as out of order. Internal topics
          are INVALID_TOPIC_EXCEPTION. Large batches whose records are opened are opened by workers; later requests of
          the connection wait for that. Requests of many partitions or bytes are appended in pieces; a partition that is
          named several times is refused, once, with INVALID_REQUEST.
Departs   from Kafka 4.3: acks=1 waits for the leader's disk; batches of transactions are INVALID_TXN_STATE until there
          are transactions; of a partition that is named several times Kafka appends one batch; a request names at most
          `produce_partitions_max` partitions; `error_message` says which rule a batch broke, `record_errors` stays
          empty.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.model.errors import ErrorCode, OutOfOrderSequence, ProtocolError
from penstock.model.limits import MIB
from penstock.records.check import DEFAULT_RULES, Rules, check_batch, without_opening
from penstock.records.header import HEADER_BYTES, TRANSACTIONAL_BIT, BatchView
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.handlers.produce_answer import Outcome, write_outcomes
from penstock.server.handlers.produce_wait import (
    ALL,
    LEADER,
    NO_ANSWER,
    Confirmation,
    ManyConfirmed,
    is_reached,
    too_few,
)
from penstock.server.opening import is_small
from penstock.server.pieces import Turns
from penstock.server.serving import Answer, Buffers, Call, Unfinished, serves_frames
from penstock.wire.hot.produce import ProducedPartition, read_produce
from penstock.wire.messages.produce import ProduceRequest

_ATTRIBUTES_LOW_BYTE = 22
AT_ONCE_PARTITIONS: Final = 500
AT_ONCE_BYTES: Final = 8 * MIB
"""A request of more than that is appended in pieces, with turns for others."""
ELEMENT_SHIFT: Final = 14
"""To append so many bytes, as a power of two, takes as long as an element of `pieces`."""
REPEATED: Final = "the partition is named several times in one request; send one batch for it"
OPENED_AT_ONCE: Final = 16
"""Small batches that are opened on the loop; of a request with more partitions all are opened by workers."""
SENT_BEFORE = "what the producer sent before has to come first; send both again, in order"


class UnansweredProduceFailed(ProtocolError):
    """A producer that wants no answer sent something that could not be appended: its connection is to be closed."""


@serves_frames(ProduceRequest, is_prompt=True)
def produce(call: Call, frame: memoryview, position: int) -> Answer | Unfinished:
    """Appends everything now, in order; the answer may have to wait."""
    _, acks, timeout_ms, parts = read_produce(call.version, frame, position)
    node = node_of(call)
    if acks not in (NO_ANSWER, LEADER, ALL):
        sentence = f"acks is {acks}, but only 0, 1 and -1 have a meaning"
        refused = [_refused(topic, index, ErrorCode.INVALID_REQUIRED_ACKS, sentence) for topic, index, _ in parts]
        if len(parts) > AT_ONCE_PARTITIONS:
            return _write_many(call, node, refused)
        return write_outcomes(call.version, call.correlation_id, refused)
    if len(parts) > 1:
        repeated = _repeated(parts)
        if repeated or len(parts) > AT_ONCE_PARTITIONS or call.request_bytes > AT_ONCE_BYTES:
            return Unfinished(_append_in_pieces(call, node, parts, [], acks, timeout_ms, repeated))
    now_ms = node.clock.wall_ms()
    outcomes: list[Outcome] = []
    opens_small = len(parts) <= OPENED_AT_ONCE
    for part in parts:
        outcome = _append(node, part, acks, now_ms, opens_small=opens_small)
        if outcome is None:
            return Unfinished(_append_in_pieces(call, node, parts, outcomes, acks, timeout_ms, {}))
        outcomes.append(outcome)
    return _answer(call, outcomes, acks, timeout_ms)


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


async def _append_in_pieces(
    call: Call,
    node: Needs,
    parts: Sequence[ProducedPartition],
    outcomes: list[Outcome],
    acks: int,
    timeout_ms: int,
    repeated: dict[tuple[str | bytes, int], None],
) -> Answer:
    """A request of many partitions or bytes, or one in which large batches have to be opened; or the rest of it."""
    turns, refused = Turns(), dict.fromkeys(repeated, False)
    for part in parts[len(outcomes) :]:
        topic, index, records = part
        await turns.after(1 + (len(records or b"") >> ELEMENT_SHIFT))
        if repeated and (topic, index) in repeated:
            if not refused[topic, index]:
                refused[topic, index] = True
                outcomes.append(_refused(topic, index, ErrorCode.INVALID_REQUEST, REPEATED))
            continue
        outcome = _append(node, part, acks, node.clock.wall_ms(), opens_small=False)
        if outcome is None:
            verdict = await _open(node, part)
            outcome = _append(node, part, acks, node.clock.wall_ms(), verdict, opens_small=False)
        assert outcome is not None
        outcomes.append(outcome)
    if len(outcomes) <= AT_ONCE_PARTITIONS or acks == NO_ANSWER:
        return _answer(call, outcomes, acks, timeout_ms)
    return _answer_many(call, node, outcomes, acks, timeout_ms)


async def _answer_many(call: Call, node: Needs, outcomes: Sequence[Outcome], acks: int, timeout_ms: int) -> Buffers:
    await ManyConfirmed(call.version, call.correlation_id, outcomes, acks, timeout_ms).wait()
    return await _write_many(call, node, outcomes)


async def _write_many(call: Call, node: Needs, outcomes: Sequence[Outcome]) -> Buffers:
    codec = node.codec
    return await codec.run(partial(write_outcomes, call.version, call.correlation_id, outcomes, codec.breathe))


async def _open(node: Needs, part: ProducedPartition) -> ProtocolError | Rules:
    """What is wrong with a batch whose records are opened; or the rules that it has passed."""
    topic, index, records = part
    partition = node.partitions.find(topic, index)
    assert records is not None
    rules = DEFAULT_RULES if partition is None else partition.rules
    try:
        batch = BatchView(records)
        await node.opener.open(batch, partial(check_batch, records, rules, node.clock.wall_ms()))
    except ProtocolError as error:
        return error
    return rules


def _answer(call: Call, outcomes: Sequence[Outcome], acks: int, timeout_ms: int) -> Answer:
    if acks == NO_ANSWER:
        _raise_if_failed(outcomes)
        return None
    for outcome in outcomes:
        if outcome.partition is not None and not is_reached(outcome.partition, outcome.end_offset, acks):
            return Confirmation(call.version, call.correlation_id, outcomes, acks, timeout_ms)
    return write_outcomes(call.version, call.correlation_id, outcomes)


def _append(
    node: Needs,
    part: ProducedPartition,
    acks: int,
    now_ms: int,
    verdict: ProtocolError | Rules | None = None,
    *,
    opens_small: bool,
) -> Outcome | None:
    """What became of a batch; None if it has to be opened first, which takes too long for the loop."""
    outcome = _try_to_append(node, part, acks, now_ms, verdict, opens_small=opens_small)
    if outcome is None:
        return None
    if outcome.error_code:
        node.predecessors.was_refused(part, outcome.error_code, now_ms)
        partition = node.partitions.find(part[0], part[1])
        node.partitions.traffic.produce_failed(None if partition is None else partition.traffic, outcome.error_code)
    elif node.predecessors:
        node.predecessors.was_appended(part)
    return outcome


def _try_to_append(
    node: Needs,
    part: ProducedPartition,
    acks: int,
    now_ms: int,
    verdict: ProtocolError | Rules | None,
    *,
    opens_small: bool,
) -> Outcome | None:
    topic, index, records = part
    partition = node.partitions.find(topic, index)
    if partition is None:
        code, leader = node.partitions.why_missing(topic, index)
        return Outcome(topic, index, code, leader=leader)
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
    behind = node.predecessors.code_for_stranger(part, partition, now_ms)
    try:
        if behind is not None:
            check_batch(records, rules, now_ms)  # what is wrong in itself must not come again
            return _refused(topic, index, behind, SENT_BEFORE)
        appended = partition.append(records, now_ms=now_ms, rules=rules)
    except OutOfOrderSequence as error:
        behind = node.predecessors.code_for_gap(part, partition, now_ms)
        return _refused(topic, index, error.code if behind is None else behind, str(error))
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


def _raise_if_failed(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error_code:
            raise UnansweredProduceFailed(
                f"partition {outcome.index}: {outcome.error_code.name}, {outcome.error_message or 'not led here'}"
            )
