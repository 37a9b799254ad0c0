"""Wire codecs in microseconds: the hot path against the compiled codec, and the compiled codec against kio.

./dev bench micro                                         everything in benchmarks/micro
python -m benchmarks.micro.bench_wire [--json]
"""

import io
from functools import partial

from benchmarks.micro.timing import Row, compare, report
from penstock.model.errors import ErrorCode
from penstock.wire.codec import decode, encode
from penstock.wire.headers import response_frame
from penstock.wire.hot.fetch import FetchedPartition, FetchedTopic, write_fetch
from penstock.wire.hot.produce import read_produce
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MIB = 1024 * 1024


def produce_rows() -> list[Row]:
    rows = []
    for partitions, size in ((1, MIB), (10, 16 * 1024)):
        parts = [PartitionProduceData(index=i, records=bytes(size)) for i in range(partitions)]
        request = ProduceRequest(
            acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(topic_id=b"0123456789abcdef", partition_data=parts)]
        )
        body = memoryview(encode(request, 13))
        limit = 5.0 if partitions == 1 else None
        rows.append(
            compare(
                f"read Produce v13, {partitions} × {size // 1024} KiB",
                partial(read_produce, 13, body, 0),
                partial(decode, ProduceRequest, 13, body),
                "compiled",
                limit,
            )
        )
    return rows


def fetch_rows() -> list[Row]:
    records = memoryview(bytes(16 * 1024))
    hot = [
        FetchedTopic("", b"0123456789abcdef", [FetchedPartition(i, 0, 10, 10, 0, None, records) for i in range(100)])
    ]

    def compiled() -> bytearray:
        partitions = [
            PartitionData(
                partition_index=i,
                error_code=ErrorCode.NONE,
                high_watermark=10,
                last_stable_offset=10,
                log_start_offset=0,
                aborted_transactions=None,
                records=records,
            )
            for i in range(100)
        ]
        topic = FetchableTopicResponse(topic_id=b"0123456789abcdef", partitions=partitions)
        return response_frame(FetchResponse(throttle_time_ms=0, responses=[topic]), 17, 1)

    return [
        compare(
            "write Fetch v17, 100 partitions × 16 KiB", lambda: write_fetch(17, 1, hot), compiled, "compiled", 150.0
        )
    ]


def metadata() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=i,
            leader_id=i % 3,
            leader_epoch=4,
            replica_nodes=(0, 1, 2),
            isr_nodes=(0, 1, 2),
            offline_replicas=(),
        )
        for i in range(100)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=i, host=f"broker-{i}.example", port=9092) for i in range(3)],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[
            MetadataResponseTopic(error_code=ErrorCode.NONE, name=f"topic-{i}", partitions=partitions)
            for i in range(10)
        ],
    )


def metadata_rows() -> list[Row]:
    from kio.schema.metadata.v12.response import MetadataResponse as KioMetadata
    from kio.serial import entity_reader, entity_writer

    message = metadata()
    body = bytes(encode(message, 12))
    theirs = entity_reader(KioMetadata)(body, 0)
    entity = theirs[0]
    read, write = entity_reader(KioMetadata), entity_writer(KioMetadata)

    def kio_write() -> bytes:
        out = io.BytesIO()
        write(out, entity)
        return out.getvalue()

    assert kio_write() == body
    return [
        compare("write Metadata v12, 1,000 partitions", lambda: encode(message, 12), kio_write, "kio", 3000.0),
        compare(
            "read Metadata v12, 1,000 partitions",
            lambda: decode(MetadataResponse, 12, body),
            lambda: read(body, 0),
            "kio",
            3000.0,
        ),
    ]


def main() -> None:
    rows = [*produce_rows(), *fetch_rows(), *metadata_rows()]
    report(rows)
    if any(row.limit_us is not None and row.ours_us > row.limit_us for row in rows):
        raise SystemExit("a limit was missed")


if __name__ == "__main__":
    main()
