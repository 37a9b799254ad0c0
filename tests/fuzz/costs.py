"""Fuzz cases about amplification: memory and work that bytes cause beyond being read.

`budgets` reads requests within small budgets; `subscriptions` reads the subscriptions and assignments that classic
consumers exchange; `stamps` looks up timestamps in batches; `sessions` feeds fetch sessions; `groups` feeds a shard of
groups, one request after the other. Bounds on time and memory are those of `guard`.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

from penstock.coordinator import subscriptions as classic
from penstock.coordinator.settings import GroupSettings
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.records.compression import Codec
from penstock.records.header import BatchView, TimestampType
from penstock.records.rows import rows
from penstock.records.stamps import Stamp, first_since, latest
from penstock.replication.fetch_sessions import FetchSessions
from penstock.wire.api import api_for, request_class
from penstock.wire.budget import Budget
from penstock.wire.codec import decode_request, read_from
from penstock.wire.declare import Message, Request, Struct
from penstock.wire.elements import has_more_elements
from penstock.wire.hot.fetch import FetchedPartition
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from tests.fuzz.batching import PAYLOAD_BYTES_MAX, make_batch
from tests.fuzz.declarations import version_of
from tests.unit.coordinator.shard_driver import Counter, ShardDriver, topic, topics

# --- requests within a budget -----------------------------------------------------------------------------------------

ELEMENTS: Final = (1, 8, 64, 1_024)
MEMORY_BYTES: Final = (256, 4_096, 16_384, 65_536)
BUDGET_SLACK_BYTES: Final = 64 * 1024
"""Memory of the reader itself, of an exception with its text, and of a fuzzer that traces the reader."""


def budget_of(data: bytes) -> Budget:
    """The budget that the third byte chooses."""
    choice = data[2] if len(data) > 2 else 0
    return Budget(ELEMENTS[choice & 3], MEMORY_BYTES[choice >> 2 & 3])


def budgets(data: bytes) -> None:
    """Bytes for the key, the version and the budget, then the body of a request."""
    if len(data) < 3:
        return
    try:
        kind = request_class(api_for(data[0]))
    except ProtocolError:
        return
    budget = budget_of(data)
    try:
        message, _ = read_from(kind, version_of(kind, data[1]), memoryview(data)[3:], 0, budget)
    except ProtocolError:  # RequestTooCostly is one
        return
    assert not has_more_elements(message, budget.elements), "more elements than the budget has"


def budgeted_bytes_max(data: bytes) -> int:
    """The bound that a budget guarantees: its bytes of memory, and those of the frame."""
    return budget_of(data).memory_bytes + len(data) + BUDGET_SLACK_BYTES


# --- subscriptions and assignments of classic consumers ---------------------------------------------------------------


def subscriptions(data: bytes) -> None:
    """Two bytes with a length, then two byte strings."""
    if len(data) < 2:
        return
    cut = 2 + int.from_bytes(data[:2])
    one, other = data[2:cut], data[cut:]
    classic.asks_for_the_same(one, other)
    classic.gives_up(one, other)
    classic.subscription(other)
    found = classic.assignment(one)
    if found is None:
        return
    given: dict[str, list[int]] = {}
    for each in found.assigned_partitions:
        given.setdefault(each.topic, []).extend(each.partitions)
    again = classic.assignment(classic.assignment_bytes(given, classic.version_of(one)))
    assert again is not None
    assert {each.topic: list(each.partitions) for each in again.assigned_partitions} == given


# --- look-ups by time -------------------------------------------------------------------------------------------------

_LOOKUP = struct.Struct(">bhqqq")
CODECS: Final = tuple(Codec)


def stamps(data: bytes) -> None:
    """How the batch is made, its codec, a count, a timestamp and a range of offsets, then the bytes of the batch."""
    if len(data) < 1 + _LOOKUP.size:
        return
    choice, count, timestamp_ms, start, limit = _LOOKUP.unpack_from(data, 1)
    content = make_batch(CODECS[data[0] % len(CODECS)], choice & 3, count & 0xFF, data[1 + _LOOKUP.size :])
    try:
        batch = BatchView(content)
        _ = batch.codec
    except ProtocolError:
        return
    since = first_since(batch, timestamp_ms, start, limit, PAYLOAD_BYTES_MAX)
    last = latest(batch, start, limit, PAYLOAD_BYTES_MAX)
    for stamp in (since, last):
        if stamp is not None:
            assert batch.base_offset <= stamp.offset <= batch.last_offset, "no offset of the batch"
            assert start <= stamp.offset < limit, "outside of what was asked for"
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return  # all records have one timestamp, and none is read
    try:
        records = [
            Stamp(record.timestamp_ms, record.offset)
            for record in rows(batch, PAYLOAD_BYTES_MAX)
            if start <= record.offset < limit
        ]
    except ProtocolError:
        return
    expected = next((each for each in records if each.timestamp_ms >= timestamp_ms), None)
    assert since == expected, "another record than the first since then"
    if last is not None and records:
        assert last.timestamp_ms >= max(each.timestamp_ms for each in records), "a record is later"


# --- fetch sessions ---------------------------------------------------------------------------------------------------

SESSIONS_MAX: Final = 4
SESSION_PARTITIONS_MAX: Final = 16
STEPS_MAX: Final = 32
_LAST_SESSION, _FOLLOWER, _UNANSWERED, _LATER = 1, 2, 4, 8


def steps(data: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """Steps of an input: a byte with choices, a byte for the version, two bytes with a length, and the bytes."""
    view = memoryview(data)
    position = 0
    for _ in range(STEPS_MAX):
        if position + 4 > len(data):
            return
        length = int.from_bytes(data[position + 2 : position + 4])
        yield data[position], data[position + 1], view[position + 4 : position + 4 + length]
        position += 4 + length


def sessions(data: bytes) -> None:
    """Fetch requests, some of which continue the last session; partitions with odd numbers do not exist."""
    held = FetchSessions(Numbers(), SESSIONS_MAX, 1_000, SESSION_PARTITIONS_MAX)
    session_id, epoch, now_ms = 0, 0, 0
    for choice, version_choice, body in steps(data):
        version = 7 + version_choice % 12
        try:
            request = decode_request(FetchRequest, version, body)
        except ProtocolError:
            continue
        has_ids = version >= 13
        if choice & _LAST_SESSION:
            request.session_id, request.session_epoch = session_id, epoch
        if choice & _LATER:
            now_ms += 1_001
        fetching = held.begin(
            request.session_id,
            request.session_epoch,
            request.topics,
            request.forgotten_topics_data,
            now_ms,
            has_ids=has_ids,
            is_follower=bool(choice & _FOLLOWER),
        )
        _check_sessions(held)
        if fetching.error_code or choice & _UNANSWERED:
            continue
        found = [
            (each, FetchedPartition(each.index, _code_of(each.index), 0, records=b"")) for each in fetching.requested
        ]
        told = fetching.answer(found, now_ms)
        assert told.error_code or len(told.found) <= len(found)
        if told.session_id:
            session_id, epoch = told.session_id, 1 if told.session_id != session_id else epoch + 1
        _check_sessions(held)


def _check_sessions(held: FetchSessions) -> None:
    assert len(held) <= SESSIONS_MAX, "more sessions than there may be"
    assert held.partitions == sum(len(session.requested) for session in held._sessions.values()), (
        "partitions miscounted"
    )
    assert held.partitions <= SESSION_PARTITIONS_MAX, "more partitions than sessions may hold"


def _code_of(index: int) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if index & 1 else ErrorCode.NONE


class Numbers(Counter):
    """Session ids in sequence."""

    def below(self, end: int) -> int:
        self._next += 1
        return self._next % end


# --- groups -----------------------------------------------------------------------------------------------------------

GROUP_REQUESTS: Final[tuple[type[Request], ...]] = (
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ConsumerGroupHeartbeatRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetDeleteRequest,
    DescribeGroupsRequest,
    ConsumerGroupDescribeRequest,
    ListGroupsRequest,
    DeleteGroupsRequest,
)
_KINDS: Final = 15
"""Of the 16 choices, those beyond GROUP_REQUESTS advance the time."""
_KNOWN_GROUP, _KNOWN_MEMBER, _KNOWN_EPOCH = 16, 32, 64
_SETTINGS: Final = GroupSettings(initial_delay_ms=0, assignment_interval_ms=0, members_max=50, consumer_members_max=50)
_TOPICS: Final = topics(topic("a", 4), topic("b", 1), topic("a" * 249, 2), topic("ab.ab_ab-" * 20, 3))


def groups(data: bytes) -> None:
    """Requests to a shard of groups; group, member and epoch may be existing ones."""
    driver = ShardDriver(_SETTINGS, _TOPICS)
    member_id, epoch = "", 0
    for choice, version_choice, body in steps(data):
        if choice & _KINDS >= len(GROUP_REQUESTS):
            driver.pass_time(version_choice * 250)
            continue
        kind = GROUP_REQUESTS[choice & _KINDS]
        version = version_of(kind, version_choice)
        try:
            request = decode_request(kind, version, body)
        except ProtocolError:
            continue
        _patch(request, choice, member_id, epoch)
        for command in _commands(request):
            driver.send(command, version)
        for answer in driver.answers.values():
            member_id = getattr(answer, "member_id", None) or member_id
            epoch = getattr(answer, "member_epoch", getattr(answer, "generation_id", epoch))
        driver.answers.clear()
    driver.pass_time(60_000)
    for group in driver.shard.groups.values():
        assert len(getattr(group, "members", ())) <= 50, "more members than a group may have"
    rows_bytes = sum(len(key) + len(value or b"") for key, value in driver.log.rows)
    assert rows_bytes <= LOGGED_TIMES * len(data) + LOGGED_BYTES, f"{rows_bytes:,} bytes logged for {len(data):,}"


LOGGED_TIMES: Final = 64
"""Bound on the bytes that a shard logs for its requests: each join may write all members of the group again."""
LOGGED_BYTES: Final = 64 * 1024


def _patch(request: Any, choice: int, member_id: str, epoch: int) -> None:
    names = {each.name for each in type(request).FIELDS}
    if choice & _KNOWN_GROUP and "group_id" in names:
        request.group_id = "g"
    if choice & _KNOWN_MEMBER and "member_id" in names:
        request.member_id = member_id
    if choice & _KNOWN_EPOCH:
        for name in ("member_epoch", "generation_id", "generation_id_or_member_epoch"):
            if name in names:
                setattr(request, name, epoch)


def _commands(request: Request) -> list[Struct | Message]:
    """Offsets are fetched group by group."""
    return list(request.groups) if isinstance(request, OffsetFetchRequest) else [request]
