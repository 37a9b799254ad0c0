"""Writes Produce responses. The most frequent one, a single partition without an error, is packed by hand.

Both ways must write the same bytes; the tests compare them in every version.
"""

from collections.abc import Sequence
from struct import Struct

from penstock.model.errors import ErrorCode
from penstock.server.connections.advertised import address_in
from penstock.server.connections.serving import Buffers
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Leader
from penstock.wire.compile import Breathe
from penstock.wire.headers import response_frame
from penstock.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.types import ZERO_UUID
from penstock.wire.varint import write_uvarint

NO_OFFSET = -1
FIRST_WITH_LEADERS = 10

_FIRST_COMPACT = ProduceResponse.FLEXIBLE.first
_FRAME = Struct(">i").pack_into
_COMPACT_START = Struct(">iiBB").pack
_CLASSIC_START = Struct(">iiih").pack
_ONE = Struct(">i").pack(1)
# One partition to the end of the frame: index, error, base offset, append time[, log start[, no record errors, no
# message]], tags of partition and topic, throttle time, tags.
_COMPACT_REST = Struct(">ihqqqHHiB").pack
_CLASSIC_V3 = Struct(">ihqqi").pack
_CLASSIC_V5 = Struct(">ihqqqi").pack
_CLASSIC_V8 = Struct(">ihqqqihi").pack
_NO_ERRORS_NO_MESSAGE = 0x0100


class ProduceResult:
    """The result for one partition of a request."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "end_offset",
        "error_code",
        "error_message",
        "index",
        "leader",
        "log_start_offset",
        "partition",
        "topic",
    )

    def __init__(
        self,
        topic: str | bytes,
        index: int,
        error_code: ErrorCode,
        error_message: str | None = None,
        base_offset: int = NO_OFFSET,
        append_time_ms: int = NO_OFFSET,
        log_start_offset: int = NO_OFFSET,
        partition: Partition | None = None,
        end_offset: int = NO_OFFSET,
        leader: Leader | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.error_code = error_code
        self.error_message = error_message
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.log_start_offset = log_start_offset
        self.partition = partition
        """The partition that was appended to; None if nothing was appended."""
        self.end_offset = end_offset
        self.leader = leader


def write_results(
    version: int, correlation_id: int, listener: str, results: Sequence[ProduceResult], breathe: Breathe | None = None
) -> Buffers:
    """The whole response frame, partitions in the order of the request, with addresses of the listener."""
    if len(results) == 1 and not results[0].error_code:
        return (write_one(version, correlation_id, results[0]),)
    return (response_frame(_response(version, listener, results), version, correlation_id, breathe),)


def write_one(version: int, correlation_id: int, result: ProduceResult) -> bytearray:
    """The frame for a single partition without an error."""
    topic, index, base_offset = result.topic, result.index, result.base_offset
    append_time_ms, log_start = result.append_time_ms, result.log_start_offset
    if version >= _FIRST_COMPACT:
        out = bytearray(_COMPACT_START(0, correlation_id, 0, 2))
        if isinstance(topic, bytes):
            out += topic
        else:
            name = topic.encode()
            write_uvarint(out, len(name) + 1)
            out += name
        out.append(2)
        out += _COMPACT_REST(index, 0, base_offset, append_time_ms, log_start, _NO_ERRORS_NO_MESSAGE, 0, 0, 0)
    else:
        assert isinstance(topic, str)
        name = topic.encode()
        out = bytearray(_CLASSIC_START(0, correlation_id, 1, len(name)))
        out += name
        out += _ONE
        if version >= 8:
            out += _CLASSIC_V8(index, 0, base_offset, append_time_ms, log_start, 0, -1, 0)
        elif version >= 5:
            out += _CLASSIC_V5(index, 0, base_offset, append_time_ms, log_start, 0)
        else:
            out += _CLASSIC_V3(index, 0, base_offset, append_time_ms, 0)
    _FRAME(out, 0, len(out) - 4)
    return out


def _response(version: int, listener: str, results: Sequence[ProduceResult]) -> ProduceResponse:
    topics: list[tuple[str | bytes, list[PartitionProduceResponse]]] = []
    leaders: dict[int, Leader] = {}
    for result in results:
        if not topics or topics[-1][0] != result.topic:
            topics.append((result.topic, []))
        current = LeaderIdAndEpoch()
        if result.leader is not None and version >= FIRST_WITH_LEADERS:
            leaders[result.leader.node_id] = result.leader
            current = LeaderIdAndEpoch(leader_id=result.leader.node_id, leader_epoch=result.leader.epoch)
        topics[-1][1].append(
            PartitionProduceResponse(
                index=result.index,
                error_code=result.error_code,
                base_offset=result.base_offset,
                log_append_time_ms=result.append_time_ms,
                log_start_offset=result.log_start_offset,
                error_message=result.error_message,
                current_leader=current,
            )
        )
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
                partition_responses=parts,
            )
            for topic, parts in topics
        ],
        node_endpoints=[
            NodeEndpoint(node_id=leader.node_id, host=address.host, port=address.port, rack=leader.rack)
            for leader in leaders.values()
            if (address := address_in(leader.endpoints, listener)) is not None
        ],
    )
