"""Fuzz seeds: one well-formed message for every kind and version, streams of requests, batches per codec."""

import gzip
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import cramjam
import lz4.frame

from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec, compress
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import HEADER_BYTES
from penstock.records.snappy import XERIAL_MAGIC
from penstock.wire.api import Api, request_class, response_class
from penstock.wire.codec import encode
from penstock.wire.declare import NEVER, Array, Field, Message, Struct
from penstock.wire.headers import request_frame, response_frame
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.types import Blob, Fixed, Text
from tests.fuzz.batching import FIXED, PAYLOAD, PAYLOAD_BYTES_MAX, PLAIN, RAW
from tests.fuzz.costs import CODECS, GROUP_REQUESTS
from tests.fuzz.declarations import OTHERS
from tests.fuzz.guard import INPUT_BYTES_MAX
from tests.fuzz.targets import FIRST_OTHER

_TEXTS = ("", "a", "orders", "group-1", "żółw", "x" * 40)
_INTEGER_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63, "error_code": 15}

# Position and width: base offset, attributes, last offset delta, timestamps, producer, epoch, sequence, count.
_HEADER_FIELDS = ((0, 8), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))


def seeds_for(name: str, chance: random.Random) -> list[bytes]:
    """Seeds for one target, which depend on `chance`."""
    return [seed for seed in _seeds(name, chance) if len(seed) <= INPUT_BYTES_MAX]


def _seeds(name: str, chance: random.Random) -> Iterator[bytes]:
    if name == "frames":
        return _streams(chance)
    if name == "requests":
        return _requests(chance)
    if name == "budgets":
        return (seed[:2] + bytes((chance.randrange(16),)) + seed[2:] for seed in _requests(chance))
    if name == "subscriptions":
        return _subscriptions(chance)
    if name == "stamps":
        return _stamps(chance)
    if name == "sessions":
        return _sessions(chance)
    if name == "groups":
        return _groups(chance)
    if name == "produce":
        return _produce_requests(chance)
    if name == "responses":
        return chain(_responses(chance), _others(chance))
    return _batches(Codec[name.removeprefix("batches_").upper()], chance)


def random_message(kind: type[Struct], version: int, chance: random.Random) -> Any:
    """A message with every field of the version."""
    present = [f for f in kind.FIELDS if version in f.versions]
    return kind(**{f.name: _value(f, f.type, version, chance) for f in present})


def _value(field: Field, kind: Any, version: int, chance: random.Random) -> Any:
    if version in field.nullable and chance.random() < 0.2:
        return None
    match kind:
        case Fixed(name="bool"):
            return chance.random() < 0.5
        case Fixed(name="uuid"):
            return chance.randbytes(16)
        case Fixed(name="float64"):
            return chance.choice((0.0, -1.5, 1e300))
        case Fixed(name=name):
            top = 2 ** _INTEGER_BITS[name] - 1
            low = 0 if name == "uint16" else -top - 1
            return chance.choice((0, 1, low, top, chance.randint(low, top)))
        case Text():
            return chance.choice(_TEXTS)
        case Blob():
            return chance.choice((b"", b"\0\1\2", chance.randbytes(20)))
        case Array():
            item = replace(field, nullable=NEVER)
            return [_value(item, kind.item, version, chance) for _ in range(chance.choice((0, 1, 1, 2, 2, 5)))]
    return random_message(kind, version, chance)


def _requests(chance: random.Random) -> Iterator[bytes]:
    for api in Api:
        kind = request_class(api)
        for version in kind.VERSIONS:
            choice = version - kind.VERSIONS.first
            yield bytes((api, choice)) + encode(random_message(kind, version, chance), version)


def _subscriptions(chance: random.Random) -> Iterator[bytes]:
    def told() -> bytes:
        kind = chance.choice((ConsumerProtocolSubscription, ConsumerProtocolAssignment))
        version = chance.choice(list(kind.VERSIONS))
        return struct.pack(">h", version) + encode(random_message(kind, version, chance), version)

    for _ in range(50):
        one = told()
        yield struct.pack(">H", len(one)) + one + chance.choice((b"", one, told()))


def _stamps(chance: random.Random) -> Iterator[bytes]:
    for place, codec in enumerate(CODECS):
        for seed in _batches(codec, chance):
            start = chance.choice((0, 0, 1, 5))
            since_ms = chance.choice((-1, 0, 1_700_000_000_000))
            yield struct.pack(">bbhqqq", place, seed[0] & 3, seed[1], since_ms, start, 2**62) + seed[2:]


def _step(choice: int, version: int, body: bytes | bytearray) -> bytes:
    return struct.pack(">BBH", choice, version, len(body)) + body


def _sessions(chance: random.Random) -> Iterator[bytes]:
    for _ in range(100):
        seed = b""
        for number in range(chance.choice((1, 2, 4))):
            version = chance.randrange(7, 19)
            request = random_message(FetchRequest, version, chance)
            request.session_epoch = chance.choice((0, 0, -1, 1))
            body = encode(request, version)
            seed += _step(chance.randrange(16) if number else 0, version - 7, body)
        yield seed


def _groups(chance: random.Random) -> Iterator[bytes]:
    for _ in range(150):
        seed = b""
        for _ in range(chance.choice((1, 2, 4, 6))):
            place = chance.choice((0, 0, 4, 4, 4, *range(len(GROUP_REQUESTS))))
            kind = GROUP_REQUESTS[place]
            version = chance.choice(list(kind.VERSIONS))
            request: Any = random_message(kind, version, chance)
            if isinstance(request, ConsumerGroupHeartbeatRequest):
                request.member_epoch = chance.choice((0, 0, 1, -1))
                request.topic_partitions = chance.choice(((), None))
                request.rebalance_timeout_ms = 1_000
                request.server_assignor = chance.choice((None, "uniform", "range"))
                request.subscribed_topic_names = chance.choice((None, ["a", "b"], ["a"]))
                if version:
                    request.subscribed_topic_regex = chance.choice((None, "a.*", "(a|ab)*c", "[ab._-]+$"))
                request.member_id = chance.choice(("m", "n"))
            body = encode(request, version)
            seed += _step(place | chance.choice((0, 16, 48, 112)), version - kind.VERSIONS.first, body)
        yield seed + bytes((15, chance.randrange(256), 0, 0))


def _produce_requests(chance: random.Random) -> Iterator[bytes]:
    for version in ProduceRequest.VERSIONS:
        for _ in range(5):
            message = random_message(ProduceRequest, version, chance)
            yield bytes((version - ProduceRequest.VERSIONS.first,)) + encode(message, version)


def _responses(chance: random.Random) -> Iterator[bytes]:
    for api in Api:
        kind = response_class(api)
        for version in kind.VERSIONS:
            choice = version - kind.VERSIONS.first
            frame = response_frame(random_message(kind, version, chance), version, chance.randint(0, 100))
            yield bytes((api, choice)) + frame[4:]


def _others(chance: random.Random) -> Iterator[bytes]:
    for place, kind in enumerate(OTHERS):
        for version in kind.VERSIONS:
            message: Message = random_message(kind, version, chance)
            yield bytes((FIRST_OTHER + place, version - kind.VERSIONS.first)) + encode(message, version)


def _streams(chance: random.Random) -> Iterator[bytes]:
    every = [(request_class(api), version) for api in Api for version in request_class(api).VERSIONS]
    for kind, version in every:
        if chance.random() < 0.5:
            yield _stream(chance, [(kind, version), *chance.choices(every, k=chance.choice((0, 0, 1, 2)))])
    yield bytes(3) + struct.pack(">i", -1)
    yield b"\3\0\0" + struct.pack(">i", 100 * 1024 * 1024) + b"short"


def _stream(chance: random.Random, chosen: list[tuple[Any, int]]) -> bytes:
    stream = bytearray((chance.randrange(256) | 2, chance.randrange(256), chance.randrange(256)))
    for kind, version in chosen:
        request = random_message(kind, version, chance)
        stream += request_frame(request, version, chance.randint(0, 99), chance.choice((None, "client")))
    return bytes(stream)


def _batches(codec: Codec, chance: random.Random) -> Iterator[bytes]:
    for count in (1, 2, 3, 20):
        for options in _batch_options(chance):
            builder = BatchBuilder(codec=codec, **options)
            plain = BatchBuilder(**options)
            for _ in range(count):
                record = (
                    chance.choice((None, b"", b"key")),
                    chance.choice((None, b"", b"value", chance.randbytes(30), b"v" * 300)),
                    chance.choice(((), (("header", b"1"),), (("", None), ("ü", b"")))),
                    1_700_000_000_000 + chance.randint(-300, 300),
                )
                builder.append(*record)
                plain.append(*record)
            batch = bytes(builder.build())
            rules = chance.randrange(8) << 2 | chance.choice((0, 32, 0xE0))
            yield bytes((rules | RAW, 0)) + batch
            yield bytes((rules | FIXED, 0)) + batch
            yield bytes((rules | PAYLOAD, count)) + batch[HEADER_BYTES:]
            yield bytes((rules | PLAIN, count)) + bytes(plain.build())[HEADER_BYTES:]
            yield bytes((rules | FIXED, 0)) + _extreme(batch, chance)
    marker = marker_batch(EndTransactionMarker(ControlType.COMMIT, 1), producer_id=7, producer_epoch=1, timestamp_ms=9)
    yield bytes((FIXED, 0)) + marker
    plain.append(b"large", bytes(PAYLOAD_BYTES_MAX - 2000))
    records = bytes(plain.build())[HEADER_BYTES:]
    for payload in (b"", records[:700], records, records * 2, bytes(2**20)):
        for rules in (0, 0xE0):
            yield from (bytes((rules | PAYLOAD, 21)) + packed for packed in _spellings(codec, payload))


def _spellings(codec: Codec, data: bytes) -> Iterator[bytes]:
    """The payload as different writers of the codec compress it."""
    yield compress(codec, data)
    half = len(data) // 2
    match codec:
        case Codec.GZIP:
            yield gzip.compress(data[:half], 9) + gzip.compress(data[half:], 1)
        case Codec.SNAPPY:
            blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (data[:half], data[half:]) if part]
            yield XERIAL_MAGIC + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
        case Codec.LZ4:
            yield lz4.frame.compress(data, content_checksum=True, block_checksum=True)
            yield lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=True)
        case Codec.ZSTD:
            streamed = cramjam.zstd.Compressor(level=19)
            streamed.compress(data)
            frame = bytes(streamed.finish())
            yield frame
            yield struct.pack("<II", 0x184D2A5F, 3) + b"any" + frame + compress(codec, b"")


def _extreme(batch: bytes, chance: random.Random) -> bytes:
    """The batch with one field of its header at an extreme value."""
    changed = bytearray(batch)
    position, width = chance.choice(_HEADER_FIELDS)
    low = -(2 ** (width * 8 - 1))
    changed[position : position + width] = chance.choice((low, low + 1, -2, -1, 0, 1, -low - 1)).to_bytes(
        width, "big", signed=True
    )
    return bytes(changed)


def _batch_options(chance: random.Random) -> Iterator[dict[str, Any]]:
    yield {}
    yield {"producer_id": 1000, "producer_epoch": 2, "base_sequence": chance.randint(0, 2**31 - 1)}
    yield {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    yield {"base_offset": chance.randint(0, 2**62), "leader_epoch": 5, "delete_horizon_ms": 1_700_000_000_000}
