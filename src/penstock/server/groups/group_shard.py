"""One group shard on this node, from its election to its resignation: carries out the effects of its runtime.

Before each step the shard receives the end of its lease (`lease`). A request that its caller gave up gets no reply.
After requests that count PIECE_ELEMENTS elements together, the loop serves other work first.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

from penstock.coordinator.events import (
    Answer,
    Asked,
    AskedTogether,
    Committed,
    Effect,
    Elected,
    Event,
    Leased,
    ReadFailed,
    ReadLog,
    Refuse,
    Resigned,
    TimePassed,
    TopicsDeleted,
)
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.history import GroupHistory
from penstock.coordinator.ports import Now
from penstock.coordinator.requests import Ask, GroupReply
from penstock.coordinator.runtime import Role, ShardRuntime
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.group_events import GroupEvent
from penstock.model.report import Report
from penstock.server.groups import group_reports
from penstock.server.groups.group_log import LogReader, PartitionLog
from penstock.server.groups.group_reports import report_of
from penstock.server.loop.driver import Driver
from penstock.server.loop.loop_port import LoopPort, Work
from penstock.server.loop.pieces import PIECE_ELEMENTS
from penstock.server.loop.reporting import Reporter
from penstock.server.membership.lease import Lease
from penstock.server.partitions.partition import Partition

logger = logging.getLogger("penstock.groups")

Reply = TypeVar("Reply", bound=GroupReply)
Told: TypeAlias = Callable[[Reply | None, ErrorCode], None]
"""Callback that is called once and must not block, with the reply, or with None and the error code."""

GATHERED_MAX: Final = 50
"""Commits that are written together; one client commits up to some hundred partitions at once."""
MEMBER_ELEMENTS: Final = 2
"""Elements that each member of a described group counts as."""
WATCHER: Final = -1
"""Key of the shard among the watchers of its partition; the other watchers are fetches."""


class Happened(NamedTuple):
    """Effect: events of groups, for operators."""

    events: Sequence[GroupEvent]


Wanted: TypeAlias = Effect | Happened | Report


class ShardPort(LoopPort):
    """The event loop with the monotonic and the wall clock."""

    __slots__ = ()

    def now(self) -> Now:  # type: ignore[override]
        """The time on both clocks."""
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())


class LeasedShard:
    """A runtime that receives its lease before each step and reports the events of groups.

    An exception in a request, which is a bug, fails that request only.
    """

    __slots__ = ("_history", "_index", "_lease", "_leased_ms", "_runtime")

    def __init__(self, index: int, runtime: ShardRuntime[GroupShard], history: GroupHistory, lease: Lease) -> None:
        """`history` observes the runtime."""
        self._index = index
        self._runtime = runtime
        self._history = history
        self._lease = lease
        self._leased_ms: int | None = None

    @property
    def wake_at(self) -> int | None:
        """When the runtime expects TimePassed."""
        return self._runtime.wake_at

    def step(self, event: Event, now: Now) -> list[Wanted]:
        """Applies an event and returns the effects."""
        runtime = self._runtime
        was = (runtime.role, runtime.epoch)
        effects: list[Wanted] = []
        leased_ms = self._lease.until_ms
        if leased_ms != self._leased_ms:
            self._leased_ms = leased_ms
            effects += runtime.step(Leased(leased_ms), now)
        try:
            effects += runtime.step(event, now)
        except Exception as error:
            if not isinstance(event, (Asked, AskedTogether)):
                raise
            logger.critical("A request about groups failed by a mistake of ours: please report this.", exc_info=error)
            asks = (event,) if isinstance(event, Asked) else event.asks
            effects += [Refuse(each.ticket, ErrorCode.UNKNOWN_SERVER_ERROR) for each in asks]
        history = self._history
        if history.events:
            events, history.events = history.events, []
            effects.append(Happened(events))
        if (runtime.role, runtime.epoch) != was:
            effects.append(self._report())
        return effects

    def _report(self) -> Report:
        runtime, partition = self._runtime, self._index
        shard = runtime.shard
        if runtime.role is Role.LOADING:
            return group_reports.SHARD_LOADING(partition=partition, epoch=runtime.epoch)
        if runtime.role is Role.ACTIVE and isinstance(shard, GroupShard):
            groups = len(shard.groups)
            return group_reports.SHARD_ACTIVE(partition=partition, epoch=runtime.epoch, groups=groups)
        return group_reports.SHARD_GONE(partition=partition)


class DrivenShard:
    """See the module."""

    def __init__(
        self,
        index: int,
        make: Callable[[], GroupShard],
        history: GroupHistory,
        log: PartitionLog,
        port: ShardPort,
        lease: Lease,
        on_retired: Callable[[int], None],
        on_events: Callable[[Sequence[GroupEvent]], None],
        reporter: Reporter,
    ) -> None:
        """`on_retired` is called when this node no longer leads the partition, `on_events` with events of groups."""
        self.index = index
        self.runtime = ShardRuntime(make, log, observer=history)
        self._log = log
        self._lease = lease
        self._on_retired = on_retired
        self._on_events = on_events
        self._driver: Driver[Event, Wanted, Now, Work] = Driver(
            LeasedShard(index, self.runtime, history, lease),
            port,
            {
                Answer: self._answer,
                Refuse: self._refuse,
                ReadLog: self._read,
                Happened: self._tell,
                Report: reporter.tell,
            },
            time_passed=TimePassed(),
            on_broken=self._broke,
            weight_max=PIECE_ELEMENTS,
        )
        self._reporter = reporter
        self._waiting: dict[int, Told[GroupReply]] = {}
        self._gathered: list[Asked] = []
        self._gathered_elements = 0
        self._tickets = 0
        self._partition: Partition | None = None
        self._reader: LogReader | None = None

    @property
    def is_active(self) -> bool:
        """Whether the shard has loaded its log and serves requests."""
        return self.runtime.role is Role.ACTIVE

    @property
    def shard(self) -> GroupShard | None:
        """The state of the shard if it is active."""
        return self.runtime.shard if self.is_active else None

    def size_of(self, group_id: str) -> int:
        """Elements that a description of a group and its members counts as."""
        group = None if self.shard is None else self.shard.groups.get(group_id)
        return 1 if group is None else 1 + MEMBER_ELEMENTS * len(group.members)

    def commits_of(self, group_id: str) -> int:
        """Number of offsets that a group has committed."""
        return 0 if self.shard is None else self.shard.offsets.count_of(group_id)

    # --- inputs ---------------------------------------------------------------------------------------------------

    def elect(self, partition: Partition) -> None:
        """Starts loading if this node leads the partition in a new leader epoch."""
        if self._partition is not partition:
            self._partition = partition
            partition.watchers.add(WATCHER, lambda: self._changed(partition))
        if partition.leader_epoch > self.runtime.epoch:
            self._reader = LogReader(partition.log)
            self._driver.post_first(
                Elected(partition.leader_epoch, partition.log.start_offset), Committed(partition.log.high_watermark)
            )

    def resign(self) -> None:
        """Ends the shard because this node no longer leads the partition; waiting requests get NOT_COORDINATOR."""
        if self._partition is not None:
            self._partition.watchers.discard(WATCHER)
            self._partition = None
        self._driver.post_first(Resigned(self.runtime.epoch))

    def ask(self, command: Ask[Reply], told: Told[Reply], elements: int = 1) -> int:
        """Submits a request that counts as `elements`, and returns a ticket for `forget`.

        `told` may be called before this returns.
        """
        asked = self._asked(command, told)
        self._hand_in()  # gathered commits are decided before this request
        self._ask(asked, elements)
        return asked.ticket

    def gather(self, command: Ask[Reply], told: Told[Reply], elements: int = 1) -> int:
        """Submits a commit: commits of the same turn of the loop are decided and written together."""
        asked = self._asked(command, told)
        if self._gathered_elements + elements > PIECE_ELEMENTS:
            self._hand_in()
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._hand_in)
        self._gathered.append(asked)
        self._gathered_elements += elements
        if len(self._gathered) >= GATHERED_MAX:
            self._hand_in()
        return asked.ticket

    def _asked(self, command: Ask[Reply], told: Told[Reply]) -> Asked:
        """Registers `told` under a new ticket. The shard answers a ticket with the reply type of its request."""
        self._tickets += 1
        self._waiting[self._tickets] = cast("Told[GroupReply]", told)
        return Asked(self._tickets, command)

    def _hand_in(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            elements, self._gathered_elements = self._gathered_elements, 0
            self._ask(AskedTogether(gathered) if len(gathered) > 1 else gathered[0], elements)

    def _ask(self, event: Asked | AskedTogether, elements: int) -> None:
        self._driver.post(event, elements)
        if self._driver.is_closed:
            self._give_up()

    def forget(self, ticket: int) -> None:
        """Drops the callback of a request that its caller gave up."""
        self._waiting.pop(ticket, None)

    def topics_deleted(self, names: Set[str]) -> None:
        """Drops the offsets committed so far for deleted topics, even if new topics have the same names."""
        self._hand_in()
        self._driver.post(TopicsDeleted(names))

    def go_on(self) -> None:
        """Passes the new lease to the runtime, which sends the replies that waited for it."""
        self._driver.post(Leased(self._lease.until_ms))

    def _changed(self, partition: Partition) -> None:
        if partition is not self._partition:
            return
        if partition.is_retired:
            self._on_retired(self.index)
            return
        partition.watchers.add(WATCHER, lambda: self._changed(partition))
        self._driver.post(Committed(partition.log.high_watermark))

    # --- effects --------------------------------------------------------------------------------------------------

    def _answer(self, effect: Answer) -> None:
        told = self._waiting.pop(effect.ticket, None)
        if told is not None:
            told(effect.reply, ErrorCode.NONE)

    def _refuse(self, effect: Refuse) -> None:
        told = self._waiting.pop(effect.ticket, None)
        if told is not None:
            told(None, effect.code)

    def _tell(self, effect: Happened) -> None:
        for event in effect.events:
            self._reporter.tell(report_of(event))
        self._on_events(effect.events)

    def _broke(self, error: BaseException) -> None:
        logger.critical(
            "The groups of partition %d cannot be served by a mistake of ours: restart the node, and report this.",
            self.index,
            exc_info=error,
        )
        self._give_up()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for told in waiting.values():
            told(None, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # --- reading --------------------------------------------------------------------------------------------------

    def _read(self, wanted: ReadLog) -> Work | None:
        """Reads immediately if the read is at the end of the log; otherwise the loop serves other work first."""
        if wanted.offset < wanted.end_offset:
            return self._read_soon(wanted)
        self._read_now(wanted)
        return None

    async def _read_soon(self, wanted: ReadLog) -> None:
        await asyncio.sleep(0)
        self._read_now(wanted)

    def _read_now(self, wanted: ReadLog) -> None:
        partition, reader = self._partition, self._reader
        if partition is None or reader is None or wanted.epoch != self.runtime.epoch:
            return
        try:
            found: Event = reader.read(wanted)
        except (ProtocolError, OSError) as error:
            logger.error(
                "%s cannot be read, and its groups cannot be served: %s; have another broker lead it, or restore it.",
                partition.log.path,
                error,
            )
            found = ReadFailed(wanted.epoch)
        self._driver.post(found)
