"""What both ways of being in a group share: a member that lives, and a reader that is given partitions and gives up.

Heartbeats go on while partitions change hands, so that a reader who takes long over a batch costs nobody a rebalance.
What is to be read is a target; the holder is led there, first giving up, then taking.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.client.bell import Bell
from penstock.client.cluster import Cluster
from penstock.client.commits import NO_EPOCH, Identity
from penstock.client.coordinator_link import MOVED, CoordinatorLink
from penstock.client.errors import ClientError, Refused
from penstock.client.metadata import TopicPartition
from penstock.client.retry import pause_ms
from penstock.model.errors import ErrorCode

GroupProtocol = Literal["auto", "consumer", "classic"]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a member behaves."""

    protocol: GroupProtocol = "auto"
    """consumer is KIP-848, classic has members meet; auto takes the first where brokers and the group allow."""
    session_timeout_ms: int = 45_000
    """Who is not heard for so long is out. With KIP-848 the broker decides; no record is given after this time."""
    heartbeat_ms: int = 3_000
    """How often a classic member says that it lives; with KIP-848 the broker decides."""
    rebalance_timeout_ms: int = 300_000
    """How long a batch may be in hand, and how long others wait for a partition that is given up."""
    commit_interval_ms: int = 1_000
    """How often what was read is committed by itself."""


class Holder(Protocol):
    """Whoever reads for a member."""

    def owned(self) -> list[TopicPartition]:
        """What it has, or has not given up yet."""

    async def give(self, partitions: Sequence[TopicPartition]) -> None:
        """It reads these, too, from where the group is."""

    async def take_back(self, partitions: Sequence[TopicPartition]) -> None:
        """Returns when it has given these up, and what it had read of them is committed."""

    def lose(self) -> None:
        """Everything is in other hands already."""

    @property
    def in_hand_since_ms(self) -> int | None:
        """Since when a batch is in the reader's hands; None if it waits for one."""


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
        """Of the member, or the generation of a classic group."""
        self.valid_until_ms = 0
        """Until then nobody else has what this member has: it was heard a session before, at most."""
        self.pending: ClientError | None = None
        """Why the coordinator is not heard at present; None if it is."""
        self.bell = Bell()
        """Rings when there is something to say before the next heartbeat."""
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
        self._failing_since_ms = 0

    @property
    def identity(self) -> Identity:
        """As which commits are made."""
        return Identity(self.member_id, self.epoch, self._instance_id)

    async def run(self) -> None:
        """Is a member until it is cancelled; what makes that impossible is raised."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Tells the coordinator, which need not wait for a session to end. A static member will be back."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends what was begun; the group is not told."""
        self._stop_changing()
        await self._cluster.close_lane(self._lane)

    # --- partitions

    @property
    def is_settled(self) -> bool:
        """Whether the holder has what it should have."""
        return self._changing is None or self._changing.done()

    def _strive(self, target: Iterable[TopicPartition]) -> None:
        """Lets the holder come to have these and no others; that may take as long as the reader does."""
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
        """The group goes on without this member, which has nothing any more."""
        self._stop_changing()
        self._target = []
        self.epoch = NO_EPOCH
        self.valid_until_ms = 0
        self._holder.lose()

    # --- time

    def _heard(self, sent_ms: int) -> None:
        self._failures = 0
        self.pending = None
        self.valid_until_ms = sent_ms + self._settings.session_timeout_ms

    async def _pause(self, error: ClientError) -> None:
        """After a failure that may pass. It is told if it does not; and the session may be over meanwhile."""
        now_ms = self._clock.monotonic_ms()
        if not self._failures:
            self._failing_since_ms = now_ms
        self._failures += 1
        self.pending = error
        if not is_passing(error) or now_ms - self._failing_since_ms >= self._cluster.timeout_ms:
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
        """A reader that keeps a batch for ever holds nobody up: the member leaves, and is back when the reader is."""
        if not self._is_reader_lost:
            return
        if self.epoch != NO_EPOCH:
            await self.leave()
            self._out()
        while self._is_reader_lost:
            await self.bell.wait()


PASSING = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNRELEASED_INSTANCE_ID)
"""Others are about to join, or a process that was killed still has its session."""


def is_passing(error: ClientError) -> bool:
    """Whether it may go well later."""
    return error.is_retriable or is_one_of(error, *PASSING)


def is_one_of(error: ClientError, *codes: ErrorCode) -> bool:
    """Whether a broker answered with one of these."""
    return isinstance(error, Refused) and error.code in codes
