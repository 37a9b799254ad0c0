"""Batches through Apache Kafka: peers read the batches that we build, and we read those that peers build.

Kafka opens every batch that it accepts, so its acceptance is a check of its own; and it keeps the bytes, so a client
reads and writes the same here as it would with us.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from harness.kafka.kafka_node import KafkaNode
from harness.kafka.oracle import Oracle
from harness.raw_client import RawClient, Topic
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.compression import Codec
from penstock.records.header import BatchView, TimestampType, patch, stamp_log_append_time
from penstock.records.rows import Record, rows
from penstock.records.snappy import XERIAL_MAGIC
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.produce import ProduceRequest
from tests.compatibility.peer_clients import Aiokafka, Java, KafkaPython, Librdkafka, PeerClient
from tests.compatibility.samples import ANY_TIME, SCENES, build, only, records_of
from tests.compatibility.seen import Seen

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

PARTITIONS = dict(enumerate(SCENES))
ENDS = {partition: len(records_of(SCENES[name])) for partition, name in PARTITIONS.items()}
PEERS: Mapping[str, Callable[[], PeerClient]] = {each.name: each for each in (Librdkafka, Aiokafka, KafkaPython)}
CAP_BYTES = DEFAULT_LIMITS.batch_decompressed_bytes_max
STORED = Rules(validation=Validation.FULL, is_from_client=False)

codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())


@pytest.fixture(scope="session", params=[*PEERS, Java.name])
def peer(request: pytest.FixtureRequest, oracle: Oracle) -> PeerClient:
    return Java(oracle) if request.param == Java.name else PEERS[request.param]()


class Relayed(NamedTuple):
    """A topic with a partition per scene, and the batches that we sent there."""

    topic: Topic
    sent: Mapping[int, list[bytearray]]


@pytest.fixture(scope="session")
def relayed(kafka_client: RawClient) -> Mapping[Codec, Relayed]:
    """All scenes in every codec, built by us and accepted by Kafka."""
    return {codec: send_scenes(kafka_client, codec) for codec in Codec}


def send_scenes(client: RawClient, codec: Codec) -> Relayed:
    topic = client.create_topic(f"ours-{codec.name.lower()}", len(PARTITIONS), ANY_TIME)
    sent = {partition: [build(batch, codec) for batch in SCENES[name]] for partition, name in PARTITIONS.items()}
    for partition, batches in sent.items():
        for batch in batches:
            client.produce(topic, partition, batch)
    return Relayed(topic, sent)


def read_fully(batch: BatchView) -> list[Record]:
    """The records of a batch that passes all our checks."""
    checked = check_batch(batch.whole, STORED)
    return list(rows(checked, CAP_BYTES))


@codecs
def test_kafka_keeps_our_batches_as_we_would(
    kafka: KafkaNode, kafka_client: RawClient, relayed: Mapping[Codec, Relayed], codec: Codec
) -> None:
    """It assigns offset and epoch in place, as `patch` does, and changes no other byte."""
    topic, sent = relayed[codec]
    for partition, name in PARTITIONS.items():
        kept = list(kafka_client.fetch_batches(topic, partition))
        offset = 0
        for ours, theirs in zip(sent[partition], kept, strict=True):
            patch(ours, offset, leader_epoch=0)
            assert bytes(theirs.whole) == bytes(ours), name
            offset = theirs.last_offset + 1
        assert [record for batch in kept for record in read_fully(batch)] == records_of(SCENES[name])


@codecs
def test_a_peer_reads_what_we_built(
    kafka: KafkaNode, relayed: Mapping[Codec, Relayed], peer: PeerClient, codec: Codec
) -> None:
    read = peer.read(kafka.bootstrap, relayed[codec].topic.name, ENDS)
    for partition, name in PARTITIONS.items():
        expected = [Seen(record, TimestampType.CREATE_TIME) for record in records_of(SCENES[name])]
        assert read[partition] == expected, name


@codecs
def test_we_read_what_a_peer_wrote(kafka: KafkaNode, kafka_client: RawClient, peer: PeerClient, codec: Codec) -> None:
    topic = kafka_client.create_topic(f"{peer.name}-{codec.name.lower()}", len(PARTITIONS), ANY_TIME)
    written = {partition: only(SCENES[name], peer.accepts) for partition, name in PARTITIONS.items()}
    peer.write(kafka.bootstrap, topic.name, codec, written)
    framings: set[str] = set()
    for partition, name in PARTITIONS.items():
        batches = list(kafka_client.fetch_batches(topic, partition))
        assert [record for batch in batches for record in read_fully(batch)] == written[partition], name
        framings |= {framing(batch) for batch in batches}
    # Some clients leave a batch uncompressed if compression would not make it smaller.
    assert framings - {PLAIN} == ({FRAMINGS[peer.name][codec]} if codec else set())


PLAIN = "plain"
FRAMINGS: Mapping[str, Mapping[Codec, str]] = {
    "librdkafka": {
        Codec.GZIP: "gzip",
        Codec.SNAPPY: "raw",
        Codec.LZ4: "independent blocks",
        Codec.ZSTD: "without content size",
    },
    "aiokafka": {
        Codec.GZIP: "gzip",
        Codec.SNAPPY: "xerial",
        Codec.LZ4: "independent blocks, block checksums",
        Codec.ZSTD: "with content size",
    },
    "kafka-python": {
        Codec.GZIP: "gzip",
        Codec.SNAPPY: "xerial",
        Codec.LZ4: "independent blocks, content size",
        Codec.ZSTD: "with content size",
    },
    "java": {
        Codec.GZIP: "gzip",
        Codec.SNAPPY: "xerial",
        Codec.LZ4: "independent blocks",
        Codec.ZSTD: "without content size",
    },
}
"""The dialect of each client. We reject none of them; a change here means that one of them is no longer covered."""


def framing(batch: BatchView) -> str:
    """The dialect of its codec that a batch is written in."""
    payload = bytes(batch.payload)
    match batch.codec:
        case Codec.NONE:
            return PLAIN
        case Codec.GZIP:
            assert payload.startswith(b"\x1f\x8b")
            return "gzip"
        case Codec.SNAPPY:
            return "xerial" if payload.startswith(XERIAL_MAGIC) else "raw"
        case Codec.LZ4:
            assert payload.startswith(b"\x04\x22\x4d\x18")
            marks = ((0x10, "block checksums"), (0x08, "content size"), (0x04, "content checksum"))
            blocks = "independent blocks" if payload[4] & 0x20 else "linked blocks"
            return ", ".join([blocks, *(mark for bit, mark in marks if payload[4] & bit)])
        case Codec.ZSTD:
            assert payload.startswith(b"\x28\xb5\x2f\xfd")
            # Neither a size field nor the single-segment bit, which implies one.
            return "with content size" if payload[4] & 0xE0 else "without content size"


@codecs
def test_the_time_of_append_is_set_as_we_set_it(kafka: KafkaNode, kafka_client: RawClient, codec: Codec) -> None:
    settings = {**ANY_TIME, "message.timestamp.type": "LogAppendTime"}
    topic = kafka_client.create_topic(f"append-time-{codec.name.lower()}", settings=settings)
    for sent in (build(batch, codec) for scene in ("thousand", "timestamps") for batch in SCENES[scene]):
        answer = kafka_client.produce(topic, 0, sent)
        (theirs,) = kafka_client.fetch_batches(topic, 0, answer.base_offset)
        stamp_log_append_time(sent, answer.log_append_time_ms)
        patch(sent, answer.base_offset, leader_epoch=0)
        assert bytes(theirs.whole) == bytes(sent)
        assert {record.timestamp_ms for record in read_fully(theirs)} == {answer.log_append_time_ms}


def test_peers_see_the_time_of_append(kafka: KafkaNode, kafka_client: RawClient, peer: PeerClient) -> None:
    settings = {**ANY_TIME, "message.timestamp.type": "LogAppendTime"}
    topic = kafka_client.create_topic(f"append-time-{peer.name}", settings=settings)
    stamp_ms = kafka_client.produce(topic, 0, build(SCENES["thousand"][0], Codec.ZSTD)).log_append_time_ms
    expected = [
        Seen(record._replace(timestamp_ms=stamp_ms), TimestampType.LOG_APPEND_TIME)
        for record in records_of(SCENES["thousand"])
    ]
    assert peer.read(kafka.bootstrap, topic.name, {0: len(expected)}) == {0: expected}


def test_every_version_of_produce_and_fetch_carries_batches(kafka: KafkaNode, kafka_client: RawClient) -> None:
    topic = kafka_client.create_topic("versions")
    served = kafka_client.served[ProduceRequest.KEY]
    sent: list[bytearray] = []
    for version in (version for version in ProduceRequest.VERSIONS if version in served):
        batch = build(SCENES["thousand"][0], Codec.LZ4)
        base_offset = kafka_client.produce(topic, 0, batch, version).base_offset
        assert base_offset == 1000 * len(sent)
        patch(batch, base_offset, leader_epoch=0)
        sent.append(batch)
    assert len(sent) == 11
    for version in FetchRequest.VERSIONS:
        assert kafka_client.fetch(topic, 0, 0, version=version).records == b"".join(sent), version
