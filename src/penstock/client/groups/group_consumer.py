"""Reads topics as a member of a group: its assigned partitions, from the committed offsets, at least once.

Records count as read when the reader requests more. Their offsets are committed automatically: at most a
`commit_interval_ms` later, before a partition is revoked, and on close; so the batch in the reader's hands at a failure
is delivered again, to this or another member. No record of a lost partition is returned: neither prefetched ones, nor
any after the session may have expired.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Final, NamedTuple

from penstock.client.arguments import typed
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, Message, OutOfRangeName, PartitionRecords, Start, check_batch
from penstock.client.consumer.fetcher import FetchSettings, Trouble
from penstock.client.consumer.reading import check_group, topic_names
from penstock.client.errors import ClientError, Closed, CommitFailed, Refused, TimedOut
from penstock.client.groups.bell import Bell
from penstock.client.groups.classic_member import ClassicMember
from penstock.client.groups.commits import FENCED, commit_offsets, committed_offsets
from penstock.client.groups.consumer_member import ConsumerMember, is_not_for_us
from penstock.client.groups.coordinator_link import CoordinatorLink
from penstock.client.groups.membership import GroupSettings, Membership
from penstock.client.metadata import TopicPartition
from penstock.client.retry import Retry, pause_ms
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

LEAVE_MS: Final = 5_000
"""Time limit on close for the last commit, and for leaving the group."""
LOOK_MS: Final = 100


class InHand(NamedTuple):
    """The batch that the reader is processing."""

    partition: TopicPartition
    claim: int
    next_offset: int
    since_ms: int


class GroupConsumer:
    """See the module. One reader at a time; its first fetch joins the group."""

    @typed
    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        *,
        start: Start = "earliest",
        out_of_range: OutOfRangeName = "error",
        instance_id: str | None = None,
        commits: bool = True,
        settings: GroupSettings | None = None,
        fetching: FetchSettings | None = None,
    ) -> None:
        check_group(group_id, start, instance_id)
        self.group_id = group_id
        self._cluster = cluster
        self._clock = cluster.ports.clock
        self._topics = topic_names(topics)
        self._start: Start = start
        self._instance_id = instance_id
        self._commits = commits
        self._settings = settings if settings is not None else GroupSettings()
        self._consumer = Consumer(cluster, fetching, out_of_range=out_of_range)
        self._link = CoordinatorLink(cluster, group_id)
        self._claims: dict[TopicPartition, int] = {}
        self._claimed = 0
        self._read: dict[TopicPartition, int] = {}
        """Offsets to be committed: everything before them is read."""
        self._committed: dict[TopicPartition, int] = {}
        self._in_hand: InHand | None = None
        self._taken: tuple[PartitionRecords, int, int] | None = None
        """A fetched batch not yet returned to the reader, its claim, and the offset after it."""
        self._handed_back = Bell()
        self._to_commit = Bell()
        self._news = Bell()
        """Rings when partitions are assigned, or when membership fails."""
        self._lock = asyncio.Lock()
        self._membership: Membership | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    # --- reading

    @typed
    async def fetch_records(self, max_records: int = 500, timeout_ms: int | None = None) -> PartitionRecords | None:
        """The next records of some partition; None if none arrives in time. Marks the previous batch as read."""
        check_batch(max_records)
        self.hand_back()
        deadline_ms = None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        await self._begin()
        await asyncio.sleep(0)  # gives heartbeats a turn, however much is prefetched
        while True:
            left_ms = None if deadline_ms is None else max(0, deadline_ms - self._clock.monotonic_ms())
            if self._taken is None:
                piece = await self._consumer.fetch_records(max_records, left_ms)
                if piece is None:
                    return None
                self._taken = (piece, self._claims[piece.partition], self._consumer.position(piece.partition))
            piece, claim, next_offset = self._taken
            if not self.holds(piece.partition, claim):
                self._taken = None
            elif self._is_valid():
                self._taken = None
                self._in_hand = InHand(piece.partition, claim, next_offset, self._clock.monotonic_ms())
                return piece
            elif left_ms == 0:
                return None
            else:  # the session may have expired: wait for the coordinator
                await asyncio.sleep(LOOK_MS / 1000)

    def _is_valid(self) -> bool:
        member = self._membership
        return member is not None and self._clock.monotonic_ms() < member.valid_until_ms

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (piece := await self.fetch_records()) is not None:
            for message in self.messages(piece):
                yield message

    @typed
    def messages(self, piece: PartitionRecords) -> "Messages":
        """The records of a batch one by one; each counts as read when the next is requested."""
        return Messages(self, piece)

    def claim(self, partition: TopicPartition) -> int:
        """Identifies the period for which this member owns a partition; -1 if it does not own it."""
        return self._claims.get(partition, -1)

    def holds(self, partition: TopicPartition, claim: int) -> bool:
        """Whether this member has owned a partition without interruption since the claim."""
        return self._claims.get(partition, -1) == claim >= 0

    def done(self, partition: TopicPartition, offset: int) -> None:
        """Marks everything before this offset as read."""
        if partition in self._claims:
            self._read[partition] = max(offset, self._read.get(partition, offset))
            if self._commits:
                self._to_commit.ring()

    def hand_back(self) -> None:
        """Marks the batch in hand as read."""
        if self._in_hand is None:
            return
        partition, claim, next_offset, since_ms = self._in_hand
        self._in_hand = None
        if self.holds(partition, claim):
            self.done(partition, next_offset)
        self._handed_back.ring()
        was_away = self._clock.monotonic_ms() - since_ms > self._settings.rebalance_timeout_ms
        if was_away and self._membership is not None:
            self._membership.bell.ring()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions of this member, sorted."""
        return sorted(self._claims)

    def troubles(self) -> list[Trouble]:
        """The partitions that cannot be read at the moment, and the coordinator if it cannot be reached."""
        member = self._membership
        found = self._consumer.troubles()
        if member is not None and member.pending is not None:
            found.append(Trouble(None, member.failing_since_ms, member.pending))
        return found

    # --- committing

    async def commit(self) -> None:
        """Commits read offsets now. Raises CommitFailed if this member is fenced or its generation is outdated."""
        await self._commit(list(self._read))

    async def _commit(self, partitions: Sequence[TopicPartition]) -> None:
        async with self._lock:
            offsets = {each: self._read[each] for each in partitions if each in self._read}
            news = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
            if not news or self._membership is None:
                return
            await commit_offsets(self._link, news, self._membership.identity)
            self._committed |= {each: offset for each, offset in news.items() if each in self._claims}

    async def _commit_at_times(self) -> None:
        while True:
            await self._to_commit.wait()
            try:
                await self._commit(list(self._read))
            except CommitFailed:
                pass  # a rebalance: kept partitions are committed later, others are read again
            except Exception as error:
                if not isinstance(error, ClientError) or not error.is_retriable:
                    self._consumer.fail(error)
                    return
            await asyncio.sleep(self._settings.commit_interval_ms / 1000)
            if any(self._committed.get(each) != offset for each, offset in self._read.items()):
                self._to_commit.ring()

    # --- membership

    async def join(self) -> None:
        """Joins the group and waits for partitions, at most for the `timeout_ms` of the cluster.

        After that, a member without partitions is surplus: there are more members than partitions. If the consumer is
        not a member by then, the reason is raised.
        """
        began_ms = self._clock.monotonic_ms()
        await self._begin()
        while not self._claims:
            self._consumer.check()
            left_ms = began_ms + self._cluster.timeout_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._check_joined()
                return
            await self._news.wait(left_ms)

    def _check_joined(self) -> None:
        if self._is_valid():
            return
        if self._membership is not None and self._membership.pending is not None:
            raise self._membership.pending
        raise TimedOut(
            f"group {self.group_id} did not come together in {self._cluster.timeout_ms} ms: another member may take "
            "long over a batch; try again, allow more time (timeout_ms of the client), or leave out idle_ms_max"
        )

    async def _begin(self) -> None:
        """Looks up topics and coordinator, then starts the membership and commit tasks."""
        self._check_open()
        if self._tasks:
            return
        retry = self._cluster.retry()
        for topic in self._topics:
            await self._cluster.topic(topic, timeout_ms=retry.left_ms)
        is_new = await self._speaks_new_protocol(retry)
        self._check_open()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._take_part(is_new)), loop.create_task(self._commit_at_times())]

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("this consumer was closed")

    async def _take_part(self, is_new: bool) -> None:
        try:
            if is_new:
                self._membership = self._member_of(ConsumerMember)
                try:
                    await self._membership.run()
                except ClientError as error:
                    if self._settings.protocol != "auto" or not is_not_for_us(error):
                        raise
                    await self._membership.close()
            self._membership = self._member_of(ClassicMember)
            await self._membership.run()
        except Exception as error:
            self.lose()
            self._consumer.fail(error)
            self._news.ring()

    def _member_of(self, kind: type[Membership]) -> Membership:
        return kind(self._cluster, self.group_id, self._topics, self, self._settings, self._instance_id)

    async def _speaks_new_protocol(self, retry: Retry) -> bool:
        while True:
            try:
                connection = await self._link.connection(timeout_ms=retry.left_ms)
            except ClientError as error:
                await retry.after(error)
            else:
                break
        if self._settings.protocol != "auto":
            return self._settings.protocol == "consumer"
        return ConsumerGroupHeartbeatRequest.KEY in connection.served

    @property
    def in_hand_since_ms(self) -> int | None:
        """See Holder."""
        return None if self._in_hand is None else self._in_hand.since_ms

    def owned(self) -> list[TopicPartition]:
        """See Holder."""
        return sorted(self._claims)

    @typed
    async def give(self, partitions: Sequence[TopicPartition]) -> None:
        """See Holder."""
        for each in partitions:
            if self._cluster.view.partition(*each) is None:  # the topic has grown
                self._cluster.distrust(each.topic)
                await self._cluster.topic(each.topic, is_coming=True)
        known = await committed_offsets(self._link, partitions)
        starts: dict[TopicPartition, Start] = {each: known.get(each, self._start) for each in partitions}
        ranges = await self._consumer.resolve(starts)
        for each in partitions:
            self._claimed += 1
            self._claims[each] = self._claimed
            if each in known:
                self._committed[each] = known[each]
            else:  # commits the start, so that a next owner resumes there even if nothing was read
                self.done(each, ranges[each][0])
        self._consumer.add_ranges(ranges)
        self._news.ring()

    @typed
    async def take_back(self, partitions: Sequence[TopicPartition]) -> None:
        """See Holder."""
        self._consumer.drop(partitions)
        while self._in_hand is not None and self._in_hand.partition in partitions:
            await self._handed_back.wait()
        if self._commits:
            await self._commit_before_leaving(partitions)
        for each in partitions:
            self._forget(each)

    async def _commit_before_leaving(self, partitions: Sequence[TopicPartition]) -> None:
        """Commits, retrying until this member is fenced: uncommitted records are read again by another member.

        A topic that the coordinator does not know until the time limit was deleted: nobody reads on from its offsets.
        """
        failures = 0
        while True:
            try:
                await self._commit(partitions)
            except CommitFailed as error:
                if error.code in FENCED:
                    return
                failures += 1
                await asyncio.sleep(pause_ms(failures, self._cluster.ports.entropy) / 1000)
            except Refused as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return
            else:
                return

    def lose(self) -> None:
        """See Holder."""
        gone = list(self._claims)
        self._consumer.drop(gone)
        for each in gone:
            self._forget(each)
        self._handed_back.ring()

    def _forget(self, partition: TopicPartition) -> None:
        for table in (self._claims, self._read, self._committed):
            table.pop(partition, None)

    # --- the end

    async def close(self) -> None:
        """Commits read offsets, leaves the group, and stops fetching. The batch in hand does not count as read."""
        if self._is_closed:
            return
        self._is_closed = True
        self._in_hand = None
        self._handed_back.ring()
        if self._commits:
            await self._in_time(self._commit_before_leaving(list(self._read)))  # while it is still a member
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._membership is not None:
            await self._in_time(self._membership.leave())
            await self._membership.close()
        await self._consumer.close()

    @staticmethod
    async def _in_time(goodbye: Coroutine[None, None, None]) -> None:
        """Limits the time of a step of close: uncommitted records are read again, a silent member times out."""
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(LEAVE_MS / 1000):
                await goodbye


class Messages:
    """The records of one batch, while this member owns the partition."""

    def __init__(self, consumer: GroupConsumer, piece: PartitionRecords) -> None:
        self._consumer = consumer
        self._partition = piece.partition
        self._claim = consumer.claim(piece.partition)
        self._rest = piece.messages()
        self._next_offset: int | None = None

    def __iter__(self) -> "Messages":
        return self

    def __next__(self) -> Message:
        if not self._consumer.holds(self._partition, self._claim):
            raise StopIteration
        if self._next_offset is not None:
            self._consumer.done(self._partition, self._next_offset)
        message = next(self._rest)
        self._next_offset = message.offset + 1
        return message
