"""Writes a Fetch response (versions 4 to 18) around record bytes, which it never touches.

Twin of `messages.fetch.FetchResponse`. The result is a list of buffers for the socket: bytes written here, and between
them the objects that were passed as records (views of memory or slices of files), in wire order.
"""

import struct
from collections.abc import Sequence, Sized
from typing import NamedTuple

from penstock.model.errors import ErrorCode, UnsupportedVersion
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.varint import write_uvarint

FIRST_WITH_LOG_START = 5
FIRST_WITH_SESSIONS = 7
FIRST_WITH_PREFERRED_REPLICA = 11
FIRST_COMPACT = FetchResponse.FLEXIBLE.first
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_ENDPOINTS = 16

_TWO_INT64 = struct.Struct(">qq").pack
_THROTTLE_SESSION = struct.Struct(">ihi").pack
_INT32 = struct.Struct(">i")
_FRAME_START = struct.Struct(">ii")
_COMPACT_PARTITION = struct.Struct(">ihqqq").pack
_COMPACT_PARTITION_PLAIN = struct.Struct(">ihqqqBi").pack
_CLASSIC_V4 = struct.Struct(">ihqq").pack
_CLASSIC_V5 = struct.Struct(">ihqqq").pack


class FetchedPartition(NamedTuple):
    """One partition of a response. Its records may be any object with a length."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions in range; None outside read_committed."""
    records: Sized | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset): the reader's log diverges after it."""
    current_leader: tuple[int, int] | None = None
    """(leader id, leader epoch): for a client that sent the request to the wrong broker."""
    snapshot_id: tuple[int, int] | None = None
    """(end offset, epoch): the metadata log starts after the fetch offset; the reader must fetch this snapshot."""


class FetchedTopic(NamedTuple):
    """One topic of a response, by name up to version 12 and by id from 13 on."""

    name: str
    topic_id: bytes
    partitions: Sequence[FetchedPartition]


class Endpoint(NamedTuple):
    """Address of a leader named in `current_leader`."""

    node_id: int
    host: str
    port: int
    rack: str | None


def write_fetch(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_time_ms: int = 0,
    error_code: int = ErrorCode.NONE,
    session_id: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> list[Sized]:
    """The complete response frame as buffers to be sent in order."""
    if version not in FetchResponse.VERSIONS:
        raise UnsupportedVersion(f"FetchResponse has versions {FetchResponse.VERSIONS}, not {version}")
    out = bytearray(_FRAME_START.pack(0, correlation_id))
    buffers: list[Sized] = [out]
    if version >= FIRST_COMPACT:
        out.append(0)  # the header's tags
    if version >= FIRST_WITH_SESSIONS:
        out += _THROTTLE_SESSION(throttle_time_ms, error_code, session_id)
    else:
        out += _INT32.pack(throttle_time_ms)
    if version >= FIRST_COMPACT:
        _write_compact(version, buffers, out, topics, endpoints)
    else:
        _write_classic(version, buffers, out, topics)
    _INT32.pack_into(out, 0, sum(map(len, buffers)) - _INT32.size)
    return buffers


def _write_compact(
    version: int,
    buffers: list[Sized],
    out: bytearray,
    topics: Sequence[FetchedTopic],
    endpoints: Sequence[Endpoint],
) -> None:
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    write_uvarint(out, len(topics) + 1)
    for name, topic_id, partitions in topics:
        if has_ids:
            out += topic_id
        else:
            _compact_text(out, name)
        write_uvarint(out, len(partitions) + 1)
        for part in partitions:
            (
                partition,
                error,
                high_watermark,
                last_stable,
                log_start,
                aborted,
                records,
                preferred,
                diverging,
                leader,
                snapshot,
            ) = part
            if aborted is None:
                out += _COMPACT_PARTITION_PLAIN(partition, error, high_watermark, last_stable, log_start, 0, preferred)
            else:
                out += _COMPACT_PARTITION(partition, error, high_watermark, last_stable, log_start)
                write_uvarint(out, len(aborted) + 1)
                for producer_id, first_offset in aborted:
                    out += _TWO_INT64(producer_id, first_offset)
                    out.append(0)
                out += _INT32.pack(preferred)
            if records is None:
                out.append(0)
            else:
                size = len(records)
                write_uvarint(out, size + 1)
                if size:
                    out = bytearray()
                    buffers += (records, out)
            if diverging is leader is snapshot is None:
                out.append(0)
            else:
                _partition_tags(out, part)
        out.append(0)
    if endpoints and version >= FIRST_WITH_ENDPOINTS:
        _endpoint_tag(out, endpoints)
    else:
        out.append(0)


def _write_classic(version: int, buffers: list[Sized], out: bytearray, topics: Sequence[FetchedTopic]) -> None:
    out += _INT32.pack(len(topics))
    for name, _, partitions in topics:
        data = name.encode()
        out += struct.pack(">h", len(data))
        out += data
        out += _INT32.pack(len(partitions))
        for part in partitions:
            head = part[:4] if version < FIRST_WITH_LOG_START else part[:5]
            out += _CLASSIC_V4(*head) if version < FIRST_WITH_LOG_START else _CLASSIC_V5(*head)
            aborted, records = part.aborted, part.records
            if aborted is None:
                out += b"\xff\xff\xff\xff"
            else:
                out += _INT32.pack(len(aborted))
                for producer_id, first_offset in aborted:
                    out += _TWO_INT64(producer_id, first_offset)
            if version >= FIRST_WITH_PREFERRED_REPLICA:
                out += _INT32.pack(part.preferred_read_replica)
            if records is None:
                out += b"\xff\xff\xff\xff"
                continue
            size = len(records)
            out += _INT32.pack(size)
            if size:
                out = bytearray()
                buffers += (records, out)


def _partition_tags(out: bytearray, part: FetchedPartition) -> None:
    present = [
        (tag, layout, pair)
        for tag, layout, pair in (
            (0, ">iqB", part.diverging_epoch),
            (1, ">iiB", part.current_leader),
            (2, ">qiB", part.snapshot_id),
        )
        if pair is not None and pair != (-1, -1)
    ]
    write_uvarint(out, len(present))
    for tag, layout, pair in present:
        write_uvarint(out, tag)
        write_uvarint(out, struct.calcsize(layout))
        out += struct.pack(layout, *pair, 0)


def _endpoint_tag(out: bytearray, endpoints: Sequence[Endpoint]) -> None:
    body = bytearray()
    write_uvarint(body, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        body += _INT32.pack(node_id)
        _compact_text(body, host)
        body += _INT32.pack(port)
        if rack is None:
            body.append(0)
        else:
            _compact_text(body, rack)
        body.append(0)
    out += b"\x01\x00"  # one tagged field, with tag 0
    write_uvarint(out, len(body))
    out += body


def _compact_text(out: bytearray, text: str) -> None:
    data = text.encode()
    write_uvarint(out, len(data) + 1)
    out += data
