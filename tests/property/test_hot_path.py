"""The hand-written Produce and Fetch path agrees with the compiled codec on every input."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.wire.codec import decode, encode
from penstock.wire.headers import response_frame
from penstock.wire.hot.fetch import Endpoint, FetchedPartition, FetchedTopic, write_fetch
from penstock.wire.hot.produce import read_produce
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(codec="utf-8"), max_size=60)
blobs = st.none() | st.binary(max_size=300)
uuids = st.binary(min_size=16, max_size=16)
produce_versions = st.sampled_from(list(ProduceRequest.VERSIONS))
fetch_versions = st.sampled_from(list(FetchResponse.VERSIONS))


@st.composite
def produce_requests(draw: st.DrawFn) -> tuple[int, ProduceRequest]:
    version = draw(produce_versions)
    topics = [
        TopicProduceData(
            name=draw(names) if version < 13 else "",
            topic_id=draw(uuids) if version >= 13 else bytes(16),
            partition_data=[
                PartitionProduceData(index=draw(int32), records=draw(blobs)) for _ in range(draw(st.integers(0, 3)))
            ],
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    request = ProduceRequest(
        transactional_id=draw(st.none() | names), acks=draw(int16), timeout_ms=draw(int32), topic_data=topics
    )
    return version, request


def flat(request: ProduceRequest, version: int) -> list[tuple[str | bytes, int, bytes | None]]:
    return [
        (topic.topic_id if version >= 13 else topic.name, p.index, None if p.records is None else bytes(p.records))
        for topic in request.topic_data
        for p in topic.partition_data
    ]


@given(produce_requests())
def test_produce_reads_what_the_codec_wrote(case: tuple[int, ProduceRequest]) -> None:
    version, request = case
    frame = memoryview(b"header" + encode(request, version))
    produced = read_produce(version, frame, 6)
    assert (produced.transactional_id, produced.acks, produced.timeout_ms) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
    )
    assert [(t, p, None if r is None else bytes(r)) for t, p, r in produced.parts] == flat(request, version)


@given(produce_requests(), st.data())
def test_produce_refuses_what_the_codec_refuses(case: tuple[int, ProduceRequest], data: st.DataObject) -> None:
    """Any damage: both readers accept it or reject it alike, and never with anything but a ProtocolError."""
    version, request = case
    body = encode(request, version)
    for _ in range(data.draw(st.integers(1, 3))):
        if body and data.draw(st.booleans()):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        elif data.draw(st.booleans()):
            body = body[: data.draw(st.integers(0, len(body)))]
        else:
            body += data.draw(st.binary(max_size=8))
    try:
        expected = decode(ProduceRequest, version, body)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            read_produce(version, memoryview(body), 0)
        return
    produced = read_produce(version, memoryview(body), 0)
    assert produced.transactional_id == expected.transactional_id
    assert [(t, p, None if r is None else bytes(r)) for t, p, r in produced.parts] == flat(expected, version)


def test_produce_does_not_copy_records() -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"old" * 100)])],
    )
    body = encode(request, 9)
    produced = read_produce(9, memoryview(body), 0)
    _, _, records = produced.parts[0]
    assert records is not None
    body[body.index(b"old")] = ord("b")
    assert bytes(records[:3]) == b"bld"


pairs32 = st.tuples(int32, int32)


@st.composite
def fetch_responses(draw: st.DrawFn) -> tuple[int, dict[str, Any], list[FetchedTopic]]:
    version = draw(fetch_versions)
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        partitions = [
            FetchedPartition(
                partition=draw(int32),
                error_code=draw(st.sampled_from(list(ErrorCode))),
                high_watermark=draw(int64),
                last_stable_offset=draw(int64),
                log_start_offset=draw(int64) if version >= 5 else -1,
                aborted=draw(st.none() | st.lists(st.tuples(int64, int64), max_size=3)),
                records=draw(blobs | st.binary(max_size=300).map(bytearray)),
                preferred_read_replica=draw(int32) if version >= 11 else -1,
                diverging_epoch=draw(st.none() | st.tuples(int32, int64)) if version >= 12 else None,
                current_leader=draw(st.none() | pairs32) if version >= 12 else None,
                snapshot_id=draw(st.none() | st.tuples(int64, int32)) if version >= 12 else None,
            )
            for _ in range(draw(st.integers(0, 3)))
        ]
        topics.append(
            FetchedTopic(draw(names) if version < 13 else "", draw(uuids) if version >= 13 else bytes(16), partitions)
        )
    head = {
        "throttle_time_ms": draw(int32),
        "error_code": draw(st.sampled_from(list(ErrorCode))) if version >= 7 else ErrorCode.NONE,
        "session_id": draw(int32) if version >= 7 else 0,
        "endpoints": draw(st.lists(st.builds(Endpoint, int32, names, int32, st.none() | names), max_size=2))
        if version >= 16
        else [],
    }
    return version, head, topics


def declared(head: dict[str, Any], topics: list[FetchedTopic]) -> FetchResponse:
    def partition(p: FetchedPartition) -> PartitionData:
        epoch, leader, snapshot = p.diverging_epoch, p.current_leader, p.snapshot_id
        return PartitionData(
            partition_index=p.partition,
            error_code=ErrorCode(p.error_code),
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            log_start_offset=p.log_start_offset,
            diverging_epoch=EpochEndOffset(epoch=epoch[0], end_offset=epoch[1]) if epoch else EpochEndOffset(),
            current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            if leader
            else LeaderIdAndEpoch(),
            snapshot_id=SnapshotId(end_offset=snapshot[0], epoch=snapshot[1]) if snapshot else SnapshotId(),
            aborted_transactions=None
            if p.aborted is None
            else [AbortedTransaction(producer_id=i, first_offset=o) for i, o in p.aborted],
            preferred_read_replica=p.preferred_read_replica,
            records=p.records,  # type: ignore[arg-type]
        )

    return FetchResponse(
        throttle_time_ms=head["throttle_time_ms"],
        error_code=head["error_code"],
        session_id=head["session_id"],
        responses=[
            FetchableTopicResponse(topic=t.name, topic_id=t.topic_id, partitions=[partition(p) for p in t.partitions])
            for t in topics
        ],
        node_endpoints=[NodeEndpoint(node_id=n, host=h, port=p, rack=r) for n, h, p, r in head["endpoints"]],
    )


@given(fetch_responses(), int32)
def test_fetch_writes_what_the_codec_writes(
    case: tuple[int, dict[str, Any], list[FetchedTopic]], correlation_id: int
) -> None:
    version, head, topics = case
    buffers = write_fetch(version, correlation_id, topics, **head)
    assert b"".join(buffers) == response_frame(declared(head, topics), version, correlation_id)  # type: ignore[arg-type]


def test_fetch_hands_records_through_untouched() -> None:
    records = memoryview(b"a batch")
    topic = FetchedTopic("", bytes(16), [FetchedPartition(0, 0, 7, records=records)])
    buffers = write_fetch(17, 1, [topic])
    assert any(b is records for b in buffers)
    assert struct.unpack(">i", bytes(buffers[0][:4]))[0] == sum(map(len, buffers)) - 4  # type: ignore[index]
