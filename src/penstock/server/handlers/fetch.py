"""Fetch: a consumer, or a follower, reads record batches from an offset on, and may wait for them.

Serves    Fetch 4–18, with and without sessions (KIP-227), topic names and ids; to followers from version 15 on, in
          which they name their broker epoch (KIP-903).
Answers   at once with an error, with `min_bytes`, or with nothing to wait for; else when there are, or after
          `max_wait_ms`. OFFSET_OUT_OF_RANGE comes with high watermark and log start. A follower is told where its log
          parts from this one; its fetch acknowledges what is before its offset. A consumer that names its rack is sent
          to a replica there that is in sync, and is served by followers up to what they know to be committed (KIP-392).
Departs   from Kafka 4.3: consumers are sent to their rack unless `replica.selector.class` is Kafka's LeaderSelector,
          and followers serve only who names a rack; a log that is offline is KAFKA_STORAGE_ERROR, whatever it holds;
          FENCED_LEADER_EPOCH does not name the leader, which is this node. Until listeners know who asks, a follower is
          whoever knows its epoch.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from penstock.model.errors import ErrorCode, RequestTooCostly
from penstock.model.limits import MIB
from penstock.replication.fetch_sessions import Fetching, Told, Wanted
from penstock.replication.leader import Verdict
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.long_poll import LongPoll
from penstock.server.nearby_reading import NearbyReading
from penstock.server.peer_connections import recognize_broker
from penstock.server.pieces import Turns, cut
from penstock.server.reading import NO_RECORDS, PIECE_PARTITIONS, Reading
from penstock.server.replica_reading import ReplicaReading
from penstock.server.serving import Answer, Buffers, Call, Unfinished, serves_overlapping
from penstock.server.session_poll import SessionPoll
from penstock.wire.hot.fetch import (
    FIRST_WITH_ENDPOINTS,
    FIRST_WITH_TOPIC_IDS,
    Endpoint,
    FetchedPartition,
    FetchedTopic,
    write_fetch,
)
from penstock.wire.messages.fetch import FetchRequest, ReplicaState
from penstock.wire.types import ZERO_UUID

RESPONSE_BYTES_MAX = 55 * MIB
"""Records in one answer, whatever the client asks for (Kafka: fetch.max.bytes)."""

AT_ONCE_BYTES: Final = 40 * 1024
"""A request of this size names at most 2,500 partitions, 1,200 in new versions; more are looked at in pieces."""
FOLLOWER_AT_ONCE_BYTES: Final = 64 * 1024
"""The same for followers (`replication/source_session.py`)."""
PARTITIONS_MAX: Final = 20_000
"""Of one request."""
LOOK_AGAIN_S: Final = 0.05
LOOK_AGAIN_TIMES: Final = 4
"""A request of many partitions that waits looks again after this time, and after so many times what a look took."""

READ_COMMITTED = 1
LAST_WITHOUT_STORAGE_ERROR = 5
FIRST_WITH_BROKER_EPOCHS = 15


@serves_overlapping(FetchRequest, is_prompt=True)
def fetch(request: FetchRequest, call: Call) -> Answer | Unfinished:
    """Looks once; if that is not enough, the rest waits."""
    node = node_of(call)
    is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
    if is_follower and call.version < FIRST_WITH_BROKER_EPOCHS and call.request_bytes <= AT_ONCE_BYTES:
        return _refuse(call, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    is_known = is_follower and call.version >= FIRST_WITH_BROKER_EPOCHS and _is_known(node, request, call)
    if call.request_bytes > (FOLLOWER_AT_ONCE_BYTES if is_known else AT_ONCE_BYTES):
        return Unfinished(_begin_large(request, call))
    has_ids = call.version >= FIRST_WITH_TOPIC_IDS
    fetching = node.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        request.topics,
        request.forgotten_topics_data,
        node.clock.monotonic_ms(),
        has_ids=has_ids,
        is_follower=is_follower,
    )
    if fetching.error_code:
        return _write(call, Told(0, fetching.error_code, ()))
    bytes_max = min(request.max_bytes, RESPONSE_BYTES_MAX)
    if is_follower:
        reading: Reading = _for_follower(node, request, fetching, bytes_max)
    else:
        reading = _for_consumer(node, request, fetching, bytes_max)
    reading.look()
    bytes_min = min(request.min_bytes, bytes_max)
    wait_ms = request.max_wait_ms
    if wait_ms <= 0 or reading.size_bytes >= bytes_min or reading.is_final or not fetching.has_wanted:
        return _answer(call, node, fetching, reading)
    deadline_s = asyncio.get_running_loop().time() + wait_ms / 1000
    answer = partial(_answer, call, node, fetching, reading)
    session = fetching.marked_session
    if is_follower and session is not None:
        return SessionPoll(reading, session, bytes_min, deadline_s, answer)
    return LongPoll(reading, fetching.wanted, bytes_min, deadline_s, answer)


def _is_known(node: Needs, request: FetchRequest, call: Call) -> bool:
    """Whether a request comes from a broker of this cluster, which names no more partitions than can be looked at."""
    state = request.replica_state
    if call.client.is_peer:
        return True
    return recognize_broker(call.client, node.controller.image, state.replica_id, state.replica_epoch)


# --- many partitions --------------------------------------------------------------------------------------------------


async def _begin_large(request: FetchRequest, call: Call) -> Answer:
    """The first stage of a request that names many partitions: everything is looked at in pieces."""
    node, turns = node_of(call), Turns(is_hurried=call.client.is_peer)
    is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
    if is_follower and call.version < FIRST_WITH_BROKER_EPOCHS:
        return _write(call, Told(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ()))
    has_ids, now_ms = call.version >= FIRST_WITH_TOPIC_IDS, node.clock.monotonic_ms()
    fetching = node.fetch_sessions.open(
        request.session_id, request.session_epoch, now_ms, has_ids=has_ids, is_follower=is_follower
    )
    named: dict[tuple[bytes, int], None] = {}
    if not fetching.error_code:
        for topic in request.topics:
            for piece in cut(topic.partitions, PIECE_PARTITIONS):
                await turns.after(len(piece))
                fetching.take(topic.topic_id if has_ids else topic.topic, piece)
                if is_follower:
                    named.update(((topic.topic_id, each.partition), None) for each in piece)
            await turns.after()
            if fetching.size > PARTITIONS_MAX and fetching.session is None:
                raise RequestTooCostly(f"its Fetch request names more than {PARTITIONS_MAX:,} partitions")
        for gone in request.forgotten_topics_data:
            for numbers in cut(gone.partitions, PIECE_PARTITIONS):
                await turns.after(len(numbers))
                fetching.forget(gone.topic_id if has_ids else gone.topic, numbers)
            await turns.after()
        node.fetch_sessions.settle(fetching)
    if fetching.error_code:
        return _write(call, Told(0, fetching.error_code, ()))
    bytes_max = min(request.max_bytes, RESPONSE_BYTES_MAX)
    if is_follower:
        refused: dict[tuple[bytes, int], Verdict] = {}
        for keys in cut(list(named), PIECE_PARTITIONS):
            await turns.after(len(keys))
            pairs = [(key, wanted) for key in keys if (wanted := fetching.named(key)) is not None]
            refused |= _examined(node, request.replica_state, pairs)
        state = request.replica_state
        reading: Reading = ReplicaReading(
            node.partitions, fetching, bytes_max, node.replicas, state.replica_id, refused
        )
    else:
        reading = _for_consumer(node, request, fetching, bytes_max)
    deadline_s = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
    return _look_until(call, fetching, reading, min(request.min_bytes, bytes_max), deadline_s)


async def _look_until(call: Call, fetching: Fetching, reading: Reading, bytes_min: int, deadline_s: float) -> Buffers:
    """Looks again and again: to watch so many partitions costs more."""
    node, turns, time = node_of(call), Turns(is_hurried=call.client.is_peer), asyncio.get_running_loop().time
    try:
        while True:
            began_s = time()
            await reading.look_in_pieces(turns)
            now_s = time()
            if now_s >= deadline_s or reading.size_bytes >= bytes_min or reading.is_final or not fetching.has_wanted:
                break
            reading.release()
            rest_s = max(LOOK_AGAIN_S, LOOK_AGAIN_TIMES * (now_s - began_s))
            await asyncio.sleep(min(rest_s, deadline_s - now_s))
        told = fetching.answer(reading.found, node.clock.monotonic_ms())
        endpoints = _endpoints(reading)
        await turns.after(len(told.found))
        reading.count(told.found)
        return await node.codec.run(partial(_write, call, told, endpoints))
    except BaseException:
        reading.release()
        raise


# --- what both share --------------------------------------------------------------------------------------------------


def _for_consumer(node: Needs, request: FetchRequest, fetching: Fetching, bytes_max: int) -> Reading:
    is_committed = request.isolation_level == READ_COMMITTED
    if request.rack_id:
        return NearbyReading(
            node.partitions, fetching, bytes_max, node.replicas, request.rack_id, is_committed=is_committed
        )
    return Reading(node.partitions, fetching, bytes_max, is_committed=is_committed)


def _for_follower(node: Needs, request: FetchRequest, fetching: Fetching, bytes_max: int) -> ReplicaReading:
    """Notes how far the follower is in what it names."""
    state = request.replica_state
    named = {(topic.topic_id, asked.partition): None for topic in request.topics for asked in topic.partitions}
    pairs = [(key, wanted) for key in named if (wanted := fetching.named(key)) is not None]
    refused = _examined(node, state, pairs)
    return ReplicaReading(node.partitions, fetching, bytes_max, node.replicas, state.replica_id, refused)


def _examined(
    node: Needs, state: ReplicaState, pairs: Sequence[tuple[tuple[bytes, int], Wanted]]
) -> dict[tuple[bytes, int], Verdict]:
    """Notes how far a follower is; what cannot be noted."""
    verdicts = node.replicas.examine(state.replica_id, state.replica_epoch, pairs)
    return {key: verdict for (key, _), verdict in zip(pairs, verdicts, strict=True) if not verdict.fits}


def _endpoints(reading: Reading) -> list[Endpoint]:
    return [Endpoint(leader.node_id, leader.host, leader.port, leader.rack) for leader in reading.leaders.values()]


def _answer(call: Call, node: Needs, fetching: Fetching, reading: Reading) -> Buffers:
    """The slices in `reading` belong to the answer from here on, or are released."""
    try:
        told = fetching.answer(reading.found, node.clock.monotonic_ms())
        endpoints = _endpoints(reading)
        if told.error_code:
            reading.release()
        else:
            reading.count(told.found)
        return _write(call, told, endpoints)
    except BaseException:
        reading.release()
        raise


def _write(call: Call, told: Told, endpoints: list[Endpoint] | None = None) -> Buffers:
    """Partitions of one topic that follow each other share its entry."""
    version = call.version
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    topics: list[FetchedTopic] = []
    partitions: list[FetchedPartition] = []
    last: str | bytes | None = None
    for wanted, part in told.found:
        if wanted.topic != last:
            last = wanted.topic
            partitions = []
            topics.append(
                FetchedTopic("", cast("bytes", last), partitions)
                if has_ids
                else FetchedTopic(cast("str", last), ZERO_UUID, partitions)
            )
        partitions.append(_as_understood(version, part) if part.error_code else part)
    return cast(
        "Buffers",
        write_fetch(
            version,
            call.correlation_id,
            topics,
            error_code=told.error_code,
            session_id=told.session_id,
            endpoints=endpoints or (),
        ),
    )


def _as_understood(version: int, part: FetchedPartition) -> FetchedPartition:
    """An error as a client of that version knows it."""
    if part.current_leader is not None and version < FIRST_WITH_ENDPOINTS:
        part = part._replace(current_leader=None)
    if part.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version <= LAST_WITHOUT_STORAGE_ERROR:
        return part._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return part


def _refuse(call: Call, request: FetchRequest, code: ErrorCode) -> Buffers:
    """An error for the whole request; before topic ids came, clients look for it at the partitions."""
    topics = []
    if call.version < FIRST_WITH_TOPIC_IDS:
        for topic in request.topics:
            parts = [FetchedPartition(asked.partition, code, -1, records=NO_RECORDS) for asked in topic.partitions]
            topics.append(FetchedTopic(topic.topic, ZERO_UUID, parts))
    return cast("Buffers", write_fetch(call.version, call.correlation_id, topics, error_code=code))
