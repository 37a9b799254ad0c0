"""Fuzz targets: hostile bytes must end in a value or in a ProtocolError, within the bounds of `guard`.

Targets are plain functions of bytes, so that a corpus is replayed without a fuzzer. Any other exception of a target is
a finding. Each target also has an oracle: frames a plain model, messages their own round trip, Produce its hand-written
twin, batches the builder.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from penstock.model.errors import FrameTooLarge, ProtocolError, RequestTooCostly
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.compression import Codec, compress, decompress
from penstock.records.control import read_control_key, read_marker
from penstock.records.header import (
    BatchView,
    batches,
)
from penstock.records.rows import Record, rows
from penstock.wire.api import api_for, request_class, response_class
from penstock.wire.budget import request_budget
from penstock.wire.codec import decode, encode, read_from
from penstock.wire.declare import Message
from penstock.wire.frames import FrameReader
from penstock.wire.headers import read_request_header, read_response_header, read_start
from penstock.wire.hot.produce import read_produce
from penstock.wire.messages.produce import ProduceRequest
from tests.fuzz.batching import PAYLOAD_BYTES_MAX, PLAIN, RAW, make_batch
from tests.fuzz.costs import budgeted_bytes_max, budgets, groups, sessions, stamps, subscriptions
from tests.fuzz.declarations import OTHERS, version_of
from tests.fuzz.guard import Target, proportional

# --- frames -----------------------------------------------------------------------------------------------------------

FRAME_BYTES_MAX = (64, 4096, DEFAULT_LIMITS.frame_before_login_bytes_max, DEFAULT_LIMITS.frame_bytes_max)
_PIECES_MAX = 256


def frames(data: bytes) -> None:
    """Three bytes with parameters, then a stream: cut into frames, and each frame read as a request."""
    if len(data) < 3:
        return
    frame_bytes_max = FRAME_BYTES_MAX[data[0] & 3]
    growth_bytes = 1 + (data[0] >> 2) * 64
    first_bytes = 5 + data[1]
    stream = data[3:]
    piece_bytes = max(1 + data[2], len(stream) // _PIECES_MAX)
    reader = FrameReader(frame_bytes_max, first_bytes, growth_bytes, large_bytes=frame_bytes_max // 2)
    found, is_refused = _cut(reader, stream, piece_bytes, step_bytes=max(first_bytes, growth_bytes))
    expected, must_refuse = _cut_plainly(stream, frame_bytes_max)
    assert [bytes(frame) for frame in found] == expected, "frames differ from the stream"
    assert is_refused == must_refuse, "a frame length is refused by one and accepted by the other"
    for frame in found:
        _read_request(frame)


def _cut(reader: FrameReader, stream: bytes, piece_bytes: int, step_bytes: int) -> tuple[list[memoryview], bool]:
    found: list[memoryview] = []
    position = handed_out_bytes = 0
    try:
        while position < len(stream):
            room = reader.writable()
            assert len(room) > 0, "no room"
            count = min(len(room), piece_bytes, len(stream) - position)
            room[:count] = stream[position : position + count]
            reader.received(count)
            position += count
            whole = reader.frames()
            handed_out_bytes += sum(4 + len(frame) for frame in whole)
            found += whole
            assert reader.held_bytes <= 2 * (position - handed_out_bytes) + step_bytes, "holds more than arrived"
        reader.frames()
    except FrameTooLarge:
        return found, True
    return found, False


def _cut_plainly(stream: bytes, frame_bytes_max: int) -> tuple[list[bytes], bool]:
    found: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        length = int.from_bytes(stream[position : position + 4], "big", signed=True)
        if not 0 <= length <= frame_bytes_max:
            return found, True
        if position + 4 + length > len(stream):
            break
        found.append(stream[position + 4 : position + 4 + length])
        position += 4 + length
    return found, False


def _read_request(frame: memoryview) -> None:
    try:
        start = read_start(frame)
        api = api_for(start.key)
        header, position = read_request_header(api, start.version, frame)
    except ProtocolError:
        return
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == start
    _read_message(request_class(api), start.version, frame[position:])


# --- messages ---------------------------------------------------------------------------------------------------------

FIRST_OTHER = 128
"""From here on, the first byte of a response chooses from OTHERS."""


def requests(data: bytes) -> None:
    """A byte for the key, a byte for the version, then the body of a request."""
    if len(data) < 2:
        return
    try:
        api = api_for(data[0])
    except ProtocolError:
        return
    kind = request_class(api)
    version = version_of(kind, data[1])
    body = memoryview(data)[2:]
    _read_within_budget(kind, version, body, _read_message(kind, version, body))


def produce(data: bytes) -> None:
    """A byte for the version, then the body of a Produce request: the codec and the hand-written reader must agree."""
    if not data:
        return
    version = version_of(ProduceRequest, data[0])
    body = memoryview(data)[1:]
    _compare_produce(version, body, _read_message(ProduceRequest, version, body))


def responses(data: bytes) -> None:
    """As for requests. From FIRST_OTHER on, the first byte chooses from OTHERS instead."""
    if len(data) < 2:
        return
    if data[0] >= FIRST_OTHER:
        other = OTHERS[(data[0] - FIRST_OTHER) % len(OTHERS)]
        _read_message(other, version_of(other, data[1]), memoryview(data)[2:])
        return
    try:
        api = api_for(data[0])
        kind = response_class(api)
        version = version_of(kind, data[1])
        _, position = read_response_header(api, version, memoryview(data)[2:])
    except ProtocolError:
        return
    _read_message(kind, version, memoryview(data)[2 + position :])


def _read_message(kind: type[Message], version: int, body: memoryview) -> Message | None:
    """Returns None if it is rejected. An accepted message can be encoded, and decodes to the same message."""
    try:
        message = decode(kind, version, body)
    except ProtocolError:
        return None
    written = encode(message, version)
    # Compact forms can be longer than necessary, never shorter; the others have one length.
    is_loose = version in kind.FLEXIBLE
    assert len(written) == len(body) or (is_loose and len(written) < len(body)), "something was lost or made up"
    again = decode(kind, version, written)
    # NaN is not equal to itself, so such a message differs even from its twin.
    if again != message and decode(kind, version, body) == message:
        raise AssertionError(f"{message} becomes {again}")
    assert encode(again, version) == written, "written twice, it is not the same"
    return message


def _read_within_budget(kind: type[Message], version: int, body: memoryview, message: Message | None) -> None:
    """No input of a case is over budget; the budgeted reader accepts and rejects the same as the other."""
    try:
        again, end = read_from(kind, version, body, 0, request_budget())
    except RequestTooCostly:
        raise AssertionError("a small request is over budget") from None
    except ProtocolError:
        assert message is None, "refused within a budget, accepted without"
        return
    if end != len(body):
        assert message is None
    elif again != message:
        assert message is not None, "accepted within a budget, refused without"
        assert encode(again, version) == encode(message, version), "within a budget it reads differently"


def _compare_produce(version: int, body: memoryview, message: Message | None) -> None:
    try:
        produced = read_produce(version, body, 0)
    except ProtocolError:
        assert message is None, "refused by hand, accepted by the codec"
        return
    assert isinstance(message, ProduceRequest), "accepted by hand, refused by the codec"
    assert (produced.transactional_id, produced.acks, produced.timeout_ms) == (
        message.transactional_id,
        message.acks,
        message.timeout_ms,
    )
    assert produced.parts == [
        (topic.topic_id if version >= 13 else topic.name, part.index, part.records)
        for topic in message.topic_data
        for part in topic.partition_data
    ]


# --- batches ----------------------------------------------------------------------------------------------------------

_RULES = tuple(
    Rules(
        validation=validation,
        batch_decompressed_bytes_max=PAYLOAD_BYTES_MAX,
        is_from_client=is_from_client,
        is_compacted=is_compacted,
        timestamp_before_ms_max=1000 if is_compacted else None,
    )
    for is_compacted in (False, True)
    for is_from_client in (False, True)
    for validation in (Validation.FULL, Validation.HEADER)
)
_NOW_MS = 1_700_000_000_000


def batch_case(codec: Codec) -> Callable[[bytes], None]:
    """A byte that sets what follows and how it is judged, a byte for the count of records, then the bytes."""

    def case(data: bytes) -> None:
        if len(data) < 2:
            return
        how, rules, has_clock, has_room = data[0] & 3, _RULES[data[0] >> 2 & 7], data[0] & 32, data[0] >= 0xE0
        batch = make_batch(codec, how, data[1], data[2:])
        _decompress(codec, data[2:] if how != PLAIN else compress(codec, data[2:]), has_room)
        _judge(batch, rules, _NOW_MS if has_clock else None)
        if how == RAW:
            _walk_log(batch)

    return case


def _decompress(codec: Codec, payload: bytes, has_room: bool) -> None:
    bytes_max = DEFAULT_LIMITS.batch_decompressed_bytes_max if has_room else PAYLOAD_BYTES_MAX
    try:
        plain = decompress(codec, payload, bytes_max)
    except ProtocolError:
        return
    assert len(plain) <= bytes_max, "decompressed beyond the cap"


def _judge(data: bytes, rules: Rules, now_ms: int | None) -> None:
    is_accepted = False
    try:
        batch = check_batch(data, rules, now_ms)
        is_accepted = True
    except ProtocolError:
        try:
            batch = BatchView(data)
        except ProtocolError:
            return
    try:
        found = list(rows(batch, PAYLOAD_BYTES_MAX))
    except ProtocolError:
        # A batch that was opened and accepted must stay readable: it cannot be removed from the log again.
        if is_accepted and rules.validation is Validation.FULL:
            raise
        return
    assert len(found) == batch.count, "the count of records is wrong"
    assert all(batch.base_offset <= record.offset <= batch.last_offset for record in found)
    if batch.is_control:
        _read_control(found)
    if is_accepted:
        _rebuild(batch, found)


def _read_control(found: Sequence[Record]) -> None:
    for record in found:
        try:
            read_control_key(record.key)
            read_marker(record.key, record.value)
        except ProtocolError:
            continue


def _rebuild(batch: BatchView, found: Sequence[Record]) -> None:
    """The same records, rebuilt, read the same."""
    if any(later.offset <= earlier.offset for earlier, later in pairwise(found)):
        return
    builder = BatchBuilder(codec=batch.codec, base_offset=batch.base_offset, timestamp_type=batch.timestamp_type)
    for record in found:
        builder.append(
            record.key,
            record.value,
            record.headers,
            record.timestamp_ms,
            offset_delta=record.offset - batch.base_offset,
        )
    again = list(rows(check_batch(builder.build(), Rules(is_from_client=False)), PAYLOAD_BYTES_MAX * 2))
    is_stamped = batch.attributes & 8
    assert [r[:1] + r[2:] for r in again] == [r[:1] + r[2:] for r in found], "built anew, the records differ"
    assert is_stamped or again == found, "built anew, the timestamps differ"


def _walk_log(data: bytes) -> None:
    """Reads the data as a segment: consecutive batches, until they end or are torn."""
    try:
        for batch in batches(data):
            if batch.is_intact:
                for _ in rows(batch, PAYLOAD_BYTES_MAX):
                    pass
    except ProtocolError:
        return


# --- all of them ------------------------------------------------------------------------------------------------------

KIB = 1024
# Messages are decoded, encoded and decoded again. An error code without a name takes about 500 bytes, and two on the
# wire. The constant covers tracing of a new reader.
ROUND_TRIP = proportional(128, 128 * KIB)
WITH_CODES = proportional(1_024, 128 * KIB)
# Some inputs may be decompressed up to the default limit, and the result is copied once.
OPENED = proportional(64, 2 * DEFAULT_LIMITS.batch_decompressed_bytes_max + 2_048 * KIB)

TARGETS = {
    target.name: target
    for target in (
        Target("frames", frames, ROUND_TRIP),
        Target("requests", requests, ROUND_TRIP),
        Target("budgets", budgets, budgeted_bytes_max, sampled_every=1),
        Target("produce", produce, ROUND_TRIP),
        Target("responses", responses, WITH_CODES),
        Target("subscriptions", subscriptions, ROUND_TRIP),
        Target("sessions", sessions, ROUND_TRIP),
        Target("groups", groups, proportional(256, 256 * KIB)),
        Target("stamps", stamps, proportional(64, 1_024 * KIB)),
        *(Target(f"batches_{codec.name.lower()}", batch_case(codec), OPENED) for codec in Codec),
    )
}
