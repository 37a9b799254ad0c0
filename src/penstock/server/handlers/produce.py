"""Produce: a producer hands in record batches, one per partition.

Serves    Produce 3–13, acks 0, 1 and all (-1), topic names and ids.
Answers   when its records are durable here (acks=1), when the high watermark has passed them (acks=all), or with
          REQUEST_TIMED_OUT. A batch that was sent before is answered like the first time, and waits like it. acks=0 is
          never answered; an error then closes the connection, which is how such a producer learns of it. What was sent
          behind a batch that is to come again is refused like that batch, and not as out of order. Internal topics
          are INVALID_TOPIC_EXCEPTION.
Departs   from Kafka 4.3: acks=1 waits for the leader's disk; batches of transactions are INVALID_TXN_STATE until there
          are transactions; `error_message` says which rule a batch broke, `record_errors` stays empty.
"""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode, OutOfOrderSequence, ProtocolError
from penstock.records.check import check_batch
from penstock.records.header import TRANSACTIONAL_BIT
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.handlers.produce_answer import Outcome, write_outcomes
from penstock.server.handlers.produce_wait import ALL, LEADER, NO_ANSWER, Confirmation, is_reached, too_few
from penstock.server.serving import Answer, Call, serves_frames
from penstock.wire.hot.produce import ProducedPartition, read_produce
from penstock.wire.messages.produce import ProduceRequest

_ATTRIBUTES_LOW_BYTE = 22
SENT_BEFORE = "what the producer sent before has to come first; send both again, in order"


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
        if outcome.partition is not None and not is_reached(outcome.partition, outcome.end_offset, acks):
            return Confirmation(call.version, call.correlation_id, outcomes, acks, timeout_ms)
    return write_outcomes(call.version, call.correlation_id, outcomes)


def _append(node: Needs, part: ProducedPartition, acks: int, now_ms: int) -> Outcome:
    outcome = _try_to_append(node, part, acks, now_ms)
    if outcome.error_code:
        node.predecessors.was_refused(part, outcome.error_code, now_ms)
        partition = node.partitions.find(part[0], part[1])
        node.partitions.traffic.produce_failed(None if partition is None else partition.traffic, outcome.error_code)
    elif node.predecessors:
        node.predecessors.was_appended(part)
    return outcome


def _try_to_append(node: Needs, part: ProducedPartition, acks: int, now_ms: int) -> Outcome:
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
    behind = node.predecessors.code_for_stranger(part, partition, now_ms)
    try:
        if behind is not None:
            check_batch(records, partition.rules, now_ms)  # what is wrong in itself must not come again
            return _refused(topic, index, behind, SENT_BEFORE)
        appended = partition.append(records, now_ms=now_ms, rules=partition.rules)
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
