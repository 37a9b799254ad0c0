"""Common base of both group protocols: sessions, and the assignment and revocation of partitions.

Heartbeats continue while partitions are assigned and revoked, so that a reader that is slow with a batch does not cause
a rebalance. The assignment is a target for the holder, which first revokes partitions, then takes new ones.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.client.arguments import check_fields
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, Refused
from penstock.client.groups.bell import Bell
from penstock.client.groups.commits import NO_EPOCH, Identity
from penstock.client.groups.coordinator_link import MOVED, CoordinatorLink
from penstock.client.metadata import TopicPartition
from penstock.client.retry import pause_ms
from penstock.model.errors import ErrorCode

GroupProtocol = Literal["auto", "consumer", "classic"]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a group member."""

    protocol: GroupProtocol = "auto"
    """consumer is KIP-848, classic is JoinGroup and SyncGroup; auto is consumer if broker and group allow it."""
    session_timeout_ms: int = 45_000
    """Session timeout; with KIP-848 the broker decides. Without heartbeats, no record is returned after this time."""
    heartbeat_ms: int = 3_000
    """Heartbeat interval of a classic member; with KIP-848 the broker decides."""
    rebalance_timeout_ms: int = 300_000
    """How long the reader may process a batch, and how long others wait for a partition to be revoked."""
    commit_interval_ms: int = 1_000
    """Interval of automatic commits."""

    def __post_init__(self) -> None:
        check_fields(self)


class Holder(Protocol):
    """The reader behind a member."""

    def owned(self) -> list[TopicPartition]:
        """The partitions that it owns, including those not yet revoked."""

    async def give(self, partitions: Sequence[TopicPartition]) -> None:
        """Adds partitions, which are read from the committed offsets."""

    async def take_back(self, partitions: Sequence[TopicPartition]) -> None:
        """Revokes partitions; returns when their read offsets are committed."""

    def lose(self) -> None:
        """Drops all partitions: the group has already reassigned them."""

    @property
    def in_hand_since_ms(self) -> int | None:
        """When the reader received its current batch; None if it has none."""


class Membership:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        holder: Holder,
        settings: GroupSettings,
        instance_id: str | None,
    ) -> None:
        self.member_id = ""
        self.epoch = NO_EPOCH
        """The member epoch, or the generation of a classic group."""
        self.valid_until_ms = 0
        """Until then no other member owns its partitions: one session timeout after the last answered heartbeat."""
        self.pending: ClientError | None = None
        """The error of the last attempt to reach the coordinator; None if it succeeded."""
        self.failing_since_ms = 0
        """When the first of the attempts failed that have failed in a row."""
        self.bell = Bell()
        """Rings when the next heartbeat should be sent at once."""
        self._cluster = cluster
        self._clock = cluster.ports.clock
        self._group_id = group_id
        self._topics = tuple(topics)
        self._holder = holder
        self._settings = settings
        self._instance_id = instance_id
        self._lane = cluster.new_lane("group")
        self._link = CoordinatorLink(cluster, group_id, self._lane)
        self._target: list[TopicPartition] = []
        self._changing: asyncio.Task[None] | None = None
        self._trouble: Exception | None = None
        self._failures = 0

    @property
    def identity(self) -> Identity:
        """The identity for commits."""
        return Identity(self.member_id, self.epoch, self._instance_id)

    async def run(self) -> None:
        """Maintains the membership until cancelled; raises errors that make it impossible."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Leaves the group, so that it need not wait for the session to expire. A static member keeps its place."""
        raise NotImplementedError

    async def close(self) -> None:
        """Cancels tasks and closes connections, without leaving the group."""
        self._stop_changing()
        await self._cluster.close_lane(self._lane)

    # --- partitions

    @property
    def is_settled(self) -> bool:
        """Whether no change of the holder's partitions is in progress."""
        return self._changing is None or self._changing.done()

    def _strive(self, target: Iterable[TopicPartition]) -> None:
        """Moves the holder to this target assignment; it may have to wait for the reader to finish a batch."""
        self._target = sorted(target)
        if self.is_settled and self._target != sorted(self._holder.owned()):
            self._changing = asyncio.get_running_loop().create_task(self._change())

    async def _change(self) -> None:
        try:
            while True:
                owned = self._holder.owned()
                gone = [each for each in owned if each not in self._target]
                new = [each for each in self._target if each not in owned]
                if gone:
                    await self._holder.take_back(gone)
                    self.bell.ring()
                elif new:
                    await self._holder.give(new)
                else:
                    return
        except Exception as error:
            self._trouble = error
        finally:
            self.bell.ring()

    def _stop_changing(self) -> None:
        if self._changing is not None:
            self._changing.cancel()
            self._changing = None

    def _out(self) -> None:
        """Handles removal from the group: this member owns no partitions any more."""
        self._stop_changing()
        self._target = []
        self.epoch = NO_EPOCH
        self.valid_until_ms = 0
        self._holder.lose()

    # --- sessions and time limits

    def _heard(self, sent_ms: int) -> None:
        self._failures = 0
        self.pending = None
        self.valid_until_ms = sent_ms + self._settings.session_timeout_ms

    async def _pause(self, error: ClientError) -> None:
        """Pauses after a transient failure, or raises it; drops all partitions if the session has expired."""
        now_ms = self._clock.monotonic_ms()
        if not self._failures:
            self.failing_since_ms = now_ms
        self._failures += 1
        self.pending = error
        if not is_passing(error) or now_ms - self.failing_since_ms >= self._cluster.timeout_ms:
            raise error
        if not isinstance(error, Refused) or error.code in MOVED:
            self._link.forget()
        if self.epoch != NO_EPOCH and now_ms >= self.valid_until_ms:
            self._out()
        await asyncio.sleep(pause_ms(self._failures, self._cluster.ports.entropy) / 1000)

    def _check_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    @property
    def _is_reader_lost(self) -> bool:
        since_ms = self._holder.in_hand_since_ms
        return since_ms is not None and self._clock.monotonic_ms() - since_ms > self._settings.rebalance_timeout_ms

    async def _wait_for_reader(self) -> None:
        """Leaves the group while the reader exceeds the rebalance timeout, so that it does not block other members."""
        if not self._is_reader_lost:
            return
        if self.epoch != NO_EPOCH:
            await self.leave()
            self._out()
        while self._is_reader_lost:
            await self.bell.wait()


PASSING = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNRELEASED_INSTANCE_ID)
"""A rebalance is in progress, or the session of a killed process has not expired yet."""


def is_passing(error: ClientError) -> bool:
    """Whether a retry may succeed."""
    return error.is_retriable or is_one_of(error, *PASSING)


def is_one_of(error: ClientError, *codes: ErrorCode) -> bool:
    """Whether a broker answered with one of these codes."""
    return isinstance(error, Refused) and error.code in codes
