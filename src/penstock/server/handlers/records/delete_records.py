"""DeleteRecords: deletes the records before an offset.

Serves    DeleteRecords 0–2. Offset -1 stands for the high watermark.
Answers   the low watermark once it has reached the offset: the lowest durable log start offset of all replicas that are
          live or may be elected (ISR, ELR). An offset below the log start offset deletes nothing and is no error.
          REQUEST_TIMED_OUT if that takes longer than `timeout_ms`: the leader has deleted the records by then, and
          other replicas have or will; only a request with very many partitions may be left unfinished. POLICY_VIOLATION
          if `cleanup.policy` is `compact` alone, INVALID_TOPIC_EXCEPTION for internal topics. A partition that is named
          several times is answered once, for the last offset.
Departs   from Kafka 4.3: the response also waits for eligible leaders that are down, so that no clean election brings
          deleted records back; it does not wait for replicas that are being added and have not begun to fetch.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from penstock.model.errors import ErrorCode, OffsetOutOfRange, ProtocolError
from penstock.server.connections.serving import Call, serves
from penstock.server.loop.pieces import Turns
from penstock.server.loop.waiters import OffsetWaiters, Waiting
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partition_checks import find_or_raise
from penstock.server.partitions.partitions import Partitions
from penstock.server.partitions.upkeep_loop import Upkeep
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
UNKNOWN = -1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class InternalTopic(ProtocolError):
    """The topic belongs to the coordinators."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class CompactedOnly(ProtocolError):
    """The topic's clean-up policy does not delete."""

    code = ErrorCode.POLICY_VIOLATION


class Deletion:
    """One partition of a request, and its result."""

    __slots__ = ("code", "index", "low_watermark", "offset", "partition")

    def __init__(self, index: int, offset: int) -> None:
        self.index = index
        self.offset = offset
        self.partition: Partition | None = None
        """None if the request was refused."""
        self.code = ErrorCode.REQUEST_TIMED_OUT
        """The result until another one is known."""
        self.low_watermark = UNKNOWN

    def fail(self, error: Exception) -> None:
        """Sets an error as the result."""
        self.code = error.code if isinstance(error, ProtocolError) else ErrorCode.KAFKA_STORAGE_ERROR

    def succeed(self, low_watermark: int) -> None:
        """Sets success as the result."""
        self.code, self.low_watermark = ErrorCode.NONE, low_watermark


class Deletions:
    """Deletes in all partitions of one request one after another, and waits for replicas concurrently."""

    def __init__(self, upkeep: Upkeep, deadline_s: float) -> None:
        self._upkeep = upkeep
        self._loop = asyncio.get_running_loop()
        self._deadline_s = deadline_s
        self._waits: list[tuple[OffsetWaiters, Waiting]] = []
        self._left = 0
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._is_over = False

    async def run(self, deletions: Sequence[Deletion]) -> None:
        """Returns when all deletions have succeeded or failed, or the time is up."""
        self._left = len(deletions)
        if not deletions:
            return
        # Not in this task, which ends when the client disconnects: work on a log must not stop in the middle.
        self._upkeep.begin(self._delete_all(deletions))
        try:
            async with asyncio.timeout_at(self._deadline_s):
                await self._done
        except TimeoutError:
            pass
        finally:
            self._is_over = True
            for waiters, waiting in self._waits:
                waiters.discard(waiting)

    async def _delete_all(self, deletions: Iterable[Deletion]) -> None:
        for deletion in deletions:
            if self._is_over or self._loop.time() >= self._deadline_s:
                return
            try:
                await self._delete(deletion)
            except (ProtocolError, OSError) as error:
                self._told(deletion, error)

    async def _delete(self, deletion: Deletion) -> None:
        partition, offset = deletion.partition, deletion.offset
        assert partition is not None
        log = partition.log
        if offset > log.start_offset:
            try:
                await self._upkeep.delete_before(log, offset)
            except OffsetOutOfRange:
                if offset > log.start_offset:
                    raise  # else retention has deleted the records meanwhile
        if partition.retirement is not None:
            raise partition.retirement
        if partition.keeper is None:
            deletion.succeed(log.start_offset)
            self._count()
        elif not self._is_over:
            waiting = partition.starts.add(offset, partial(self._told, deletion))
            self._waits.append((partition.starts, waiting))
            partition.keeper.await_start(partition)

    def _told(self, deletion: Deletion, error: Exception | None) -> None:
        if error is not None:
            deletion.fail(error)
        else:
            assert deletion.partition is not None
            deletion.succeed(deletion.partition.low_watermark)
        self._count()

    def _count(self) -> None:
        self._left -= 1
        if not self._left and not self._done.done():
            self._done.set_result(None)


class DeleteRecordsHandler:
    """Deletes records of partitions that are led here."""

    def __init__(self, partitions: Partitions, upkeep: Upkeep) -> None:
        self._partitions = partitions
        self._upkeep = upkeep

    @serves(DeleteRecordsRequest)
    async def delete_records(self, request: DeleteRecordsRequest, _call: Call) -> DeleteRecordsResponse:
        """Deletes records; all partitions share one time-out."""
        deadline_s = asyncio.get_running_loop().time() + max(0, request.timeout_ms) / 1000
        topics: dict[str, dict[int, Deletion]] = {}
        turns = Turns()
        async for topic in turns.through(request.topics):
            deletions = topics.setdefault(topic.name, {})
            async for asked in turns.through(topic.partitions):
                deletions[asked.partition_index] = Deletion(asked.partition_index, asked.offset)
        named = ((name, each) for name, deletions in topics.items() for each in deletions.values())
        accepted = [each async for name, each in turns.through(named) if self._is_accepted(name, each)]
        await Deletions(self._upkeep, deadline_s).run(accepted)
        found = []
        for name, deletions in topics.items():
            results = [_result(each) async for each in turns.through(deletions.values())]
            await turns.after()
            found.append(DeleteRecordsTopicResult(name=name, partitions=results))
        return DeleteRecordsResponse(throttle_time_ms=0, topics=found)

    def _is_accepted(self, topic: str, deletion: Deletion) -> bool:
        """Resolves the partition and the offset; False if the deletion is refused."""
        try:
            if topic in INTERNAL_TOPICS:
                raise InternalTopic(f"records of {topic} are deleted by their coordinator alone")
            partition = find_or_raise(self._partitions, topic, deletion.index)
            if not partition.can_delete:
                raise CompactedOnly(f"the clean-up policy of {topic} is compaction alone")
            log = partition.log
            if deletion.offset == HIGH_WATERMARK:
                deletion.offset = log.high_watermark
            if not 0 <= deletion.offset <= log.high_watermark:
                raise OffsetOutOfRange(f"offset {deletion.offset} is not below the high watermark {log.high_watermark}")
        except ProtocolError as error:
            deletion.fail(error)
            return False
        deletion.partition = partition
        return True


def _result(deletion: Deletion) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=deletion.index, low_watermark=deletion.low_watermark, error_code=deletion.code
    )
