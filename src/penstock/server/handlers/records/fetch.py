"""Fetch: a consumer or a follower reads record batches from an offset on, and may wait for new ones.

Serves    Fetch 4–18, with and without fetch sessions (KIP-227), topic names and ids; for followers from version 15 on,
          in which they name their broker epoch (KIP-903).
Answers   at once if there is an error, if `min_bytes` are available, or if there is nothing to wait for; otherwise when
          `min_bytes` are available, or after `max_wait_ms`. OFFSET_OUT_OF_RANGE comes with the high watermark and the
          log start offset. A follower receives the offset at which its log diverges from this one; its fetch
          acknowledges the records below its fetch offset. A consumer that names its rack is sent to an in-sync replica
          there, and followers serve it up to their high watermark (KIP-392).
Departs   from Kafka 4.3: consumers are sent to their rack unless `replica.selector.class` is Kafka's LeaderSelector,
          and followers serve only consumers that name a rack; an offline log is KAFKA_STORAGE_ERROR for every offset;
          FENCED_LEADER_EPOCH does not name the leader, which is this node. Until there is authentication, a client that
          sends the current epoch of a broker counts as that follower.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from penstock.model.errors import ErrorCode, RequestTooCostly
from penstock.model.limits import MIB
from penstock.model.ports import Clock
from penstock.replication.fetch_sessions import Fetching, FetchResult, FetchSessions, RequestedPartition
from penstock.replication.leader import Verdict
from penstock.server.connections.advertised import address_in
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.peer_connections import recognize_broker
from penstock.server.connections.serving import Answer, Buffers, Call, Unfinished, serves_overlapping
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.fetching.follower_fetching import FollowerFetching
from penstock.server.fetching.long_poll import LongPoll
from penstock.server.fetching.reading import NO_RECORDS, PIECE_PARTITIONS, Reading
from penstock.server.fetching.replica_reading import ReplicaReading
from penstock.server.fetching.session_poll import SessionPoll
from penstock.server.loop.pieces import Turns, cut
from penstock.server.partitions.partitions import Partitions
from penstock.server.replicas.replica_runner import ReplicaRunner
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
"""Bytes of records in one response, whatever the client requests (Kafka: fetch.max.bytes)."""

AT_ONCE_BYTES: Final = 40 * 1024
"""A request of this size names at most 2,500 partitions, 1,200 in new versions; more are read in pieces."""
FOLLOWER_AT_ONCE_BYTES: Final = 64 * 1024
"""The same for followers (`replication/source_session.py`)."""
PARTITIONS_MAX: Final = 20_000
"""Partitions of one request outside an existing fetch session."""
LOOK_AGAIN_S: Final = 0.05
LOOK_AGAIN_TIMES: Final = 4
"""A waiting request of many partitions reads again after this time, or this multiple of a read's duration."""

READ_COMMITTED = 1
LAST_WITHOUT_STORAGE_ERROR = 5
FIRST_WITH_BROKER_EPOCHS = 15


class FetchHandler:
    """Serves consumers and followers from led partitions, and consumers with a rack from followed ones."""

    def __init__(
        self,
        partitions: Partitions,
        replicas: ReplicaRunner,
        fetch_sessions: FetchSessions,
        controller: ControllerRunner,
        codec: CodecWorker,
        clock: Clock,
    ) -> None:
        self._partitions = partitions
        self._replicas = replicas
        self._fetch_sessions = fetch_sessions
        self._controller = controller
        self._codec = codec
        self._clock = clock

    @serves_overlapping(FetchRequest, is_prompt=True)
    def fetch(self, request: FetchRequest, call: Call) -> Answer | Unfinished:
        """Reads once; if that does not satisfy the request, returns a long poll."""
        is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
        if is_follower and call.version < FIRST_WITH_BROKER_EPOCHS and call.request_bytes <= AT_ONCE_BYTES:
            return _refuse(call, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        is_known = is_follower and call.version >= FIRST_WITH_BROKER_EPOCHS and self._is_known(request, call)
        if call.request_bytes > (FOLLOWER_AT_ONCE_BYTES if is_known else AT_ONCE_BYTES):
            return Unfinished(self._begin_large(request, call))
        has_ids = call.version >= FIRST_WITH_TOPIC_IDS
        fetching = self._fetch_sessions.begin(
            request.session_id,
            request.session_epoch,
            request.topics,
            request.forgotten_topics_data,
            self._clock.monotonic_ms(),
            has_ids=has_ids,
            is_follower=is_follower,
        )
        if fetching.error_code:
            return _write(call, FetchResult(0, fetching.error_code, ()))
        bytes_max = min(request.max_bytes, RESPONSE_BYTES_MAX)
        if is_follower:
            reading: Reading = self._for_follower(request, fetching, bytes_max)
        else:
            reading = self._for_consumer(request, call, fetching, bytes_max)
        reading.look()
        bytes_min = min(request.min_bytes, bytes_max)
        wait_ms = request.max_wait_ms
        if wait_ms <= 0 or reading.size_bytes >= bytes_min or reading.is_final or not fetching.has_partitions:
            return self._answer(call, fetching, reading)
        deadline_s = asyncio.get_running_loop().time() + wait_ms / 1000
        answer = partial(self._answer, call, fetching, reading)
        session = fetching.marked_session
        if is_follower and session is not None:
            return SessionPoll(reading, session, bytes_min, deadline_s, answer)
        return LongPoll(reading, fetching.requested, bytes_min, deadline_s, answer)

    def _is_known(self, request: FetchRequest, call: Call) -> bool:
        """Whether a broker of this cluster sent the request; it names no more partitions than fit in one read."""
        state = request.replica_state
        if call.client.is_peer:
            return True
        return recognize_broker(call.client, self._controller.image, state.replica_id, state.replica_epoch)

    # --- many partitions ----------------------------------------------------------------------------------------------

    async def _begin_large(self, request: FetchRequest, call: Call) -> Answer:
        """The first stage of a request that names many partitions, which are handled in pieces."""
        turns = Turns(is_hurried=call.client.is_peer)
        is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
        if is_follower and call.version < FIRST_WITH_BROKER_EPOCHS:
            return _write(call, FetchResult(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ()))
        has_ids, now_ms = call.version >= FIRST_WITH_TOPIC_IDS, self._clock.monotonic_ms()
        fetching = self._fetch_sessions.open(
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
            self._fetch_sessions.settle(fetching)
        if fetching.error_code:
            return _write(call, FetchResult(0, fetching.error_code, ()))
        bytes_max = min(request.max_bytes, RESPONSE_BYTES_MAX)
        if is_follower:
            refused: dict[tuple[bytes, int], Verdict] = {}
            for keys in cut(list(named), PIECE_PARTITIONS):
                await turns.after(len(keys))
                pairs = [(key, requested) for key in keys if (requested := fetching.named(key)) is not None]
                refused |= self._examined(request.replica_state, pairs)
            state = request.replica_state
            reading: Reading = ReplicaReading(
                self._partitions, fetching, bytes_max, self._replicas, state.replica_id, refused
            )
        else:
            reading = self._for_consumer(request, call, fetching, bytes_max)
        deadline_s = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        return self._look_until(call, fetching, reading, min(request.min_bytes, bytes_max), deadline_s)

    async def _look_until(
        self, call: Call, fetching: Fetching, reading: Reading, bytes_min: int, deadline_s: float
    ) -> Buffers:
        """Reads repeatedly until the request is satisfied: waiters on many partitions would cost more."""
        turns, time = Turns(is_hurried=call.client.is_peer), asyncio.get_running_loop().time
        try:
            while True:
                began_s = time()
                await reading.look_in_pieces(turns)
                now_s = time()
                if (
                    now_s >= deadline_s
                    or reading.size_bytes >= bytes_min
                    or reading.is_final
                    or not fetching.has_partitions
                ):
                    break
                reading.release()
                rest_s = max(LOOK_AGAIN_S, LOOK_AGAIN_TIMES * (now_s - began_s))
                await asyncio.sleep(min(rest_s, deadline_s - now_s))
            result = fetching.answer(reading.found, self._clock.monotonic_ms())
            endpoints = _endpoints(reading, call.client.listener)
            await turns.after(len(result.found))
            reading.count(result.found)
            return await self._codec.run(partial(_write, call, result, endpoints))
        except BaseException:
            reading.release()
            raise

    # --- common to both -----------------------------------------------------------------------------------------------

    def _for_consumer(self, request: FetchRequest, call: Call, fetching: Fetching, bytes_max: int) -> Reading:
        is_committed = request.isolation_level == READ_COMMITTED
        if request.rack_id:
            return FollowerFetching(
                self._partitions,
                fetching,
                bytes_max,
                self._replicas,
                request.rack_id,
                call.client.listener,
                is_committed=is_committed,
            )
        return Reading(self._partitions, fetching, bytes_max, is_committed=is_committed)

    def _for_follower(self, request: FetchRequest, fetching: Fetching, bytes_max: int) -> ReplicaReading:
        """Records the follower's fetch offsets of the partitions that it names."""
        state = request.replica_state
        named = {(topic.topic_id, asked.partition): None for topic in request.topics for asked in topic.partitions}
        pairs = [(key, requested) for key in named if (requested := fetching.named(key)) is not None]
        refused = self._examined(state, pairs)
        return ReplicaReading(self._partitions, fetching, bytes_max, self._replicas, state.replica_id, refused)

    def _examined(
        self, state: ReplicaState, pairs: Sequence[tuple[tuple[bytes, int], RequestedPartition]]
    ) -> dict[tuple[bytes, int], Verdict]:
        """Records a follower's fetch offsets; returns the verdicts on partitions that do not fit."""
        verdicts = self._replicas.examine(state.replica_id, state.replica_epoch, pairs)
        return {key: verdict for (key, _), verdict in zip(pairs, verdicts, strict=True) if not verdict.fits}

    def _answer(self, call: Call, fetching: Fetching, reading: Reading) -> Buffers:
        """Builds the response, which takes over the slices in `reading`, or releases them."""
        try:
            result = fetching.answer(reading.found, self._clock.monotonic_ms())
            endpoints = _endpoints(reading, call.client.listener)
            if result.error_code:
                reading.release()
            else:
                reading.count(result.found)
            return _write(call, result, endpoints)
        except BaseException:
            reading.release()
            raise


def _endpoints(reading: Reading, listener: str) -> list[Endpoint]:
    """The addresses that leaders elsewhere have on a listener."""
    return [
        Endpoint(leader.node_id, *address, leader.rack)
        for leader in reading.leaders.values()
        if (address := address_in(leader.endpoints, listener)) is not None
    ]


def _write(call: Call, result: FetchResult, endpoints: list[Endpoint] | None = None) -> Buffers:
    """Encodes the response; consecutive partitions of one topic share its entry."""
    version = call.version
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    topics: list[FetchedTopic] = []
    partitions: list[FetchedPartition] = []
    last: str | bytes | None = None
    for requested, part in result.found:
        if requested.topic != last:
            last = requested.topic
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
            error_code=result.error_code,
            session_id=result.session_id,
            endpoints=endpoints or (),
        ),
    )


def _as_understood(version: int, part: FetchedPartition) -> FetchedPartition:
    """Maps an error to one that a client of that version understands."""
    if part.current_leader is not None and version < FIRST_WITH_ENDPOINTS:
        part = part._replace(current_leader=None)
    if part.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version <= LAST_WITHOUT_STORAGE_ERROR:
        return part._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return part


def _refuse(call: Call, request: FetchRequest, code: ErrorCode) -> Buffers:
    """An error for the whole request; before topic ids (version 13), clients read it from the partitions."""
    topics = []
    if call.version < FIRST_WITH_TOPIC_IDS:
        for topic in request.topics:
            parts = [FetchedPartition(asked.partition, code, -1, records=NO_RECORDS) for asked in topic.partitions]
            topics.append(FetchedTopic(topic.topic, ZERO_UUID, parts))
    return cast("Buffers", write_fetch(call.version, call.correlation_id, topics, error_code=code))
