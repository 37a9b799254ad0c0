"""One shard of groups on this node, from its election to its resignation: carries out what its runtime wants.

One step after the other: an append may move the high watermark at once, which is told when the step is over. Before
each step the shard is told how long it may believe to lead (`lease`). Whoever does not want its answer any more is
forgotten, and never told. After steps about PIECE_ELEMENTS elements the rest of the events waits until others had their
turn on the loop; their order stays.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.coordinator.chronicle import ChronicledShard
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
)
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.ports import Now
from penstock.coordinator.runtime import Role, ShardRuntime
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.group_events import GroupEvent
from penstock.model.ports import Clock
from penstock.server.group_log import LogReader, PartitionLog
from penstock.server.partition import Partition
from penstock.server.pieces import PIECE_ELEMENTS

logger = logging.getLogger("penstock.groups")

Told: TypeAlias = Callable[[Any, ErrorCode], None]
"""Called once, without waiting: with the reply, or with None and why there is none."""

TIMER_MS_MAX: Final = 60_000
GATHERED_MAX: Final = 50
"""Commits that are written together; a client commits up to some hundred partitions at once."""
MEMBER_ELEMENTS: Final = 2
"""What a member of a described group counts as."""
WATCHER: Final = -1
"""Among the watchers of a partition, who are fetches otherwise."""


class TopicsDeleted(NamedTuple):
    """Topics that are gone; waits with the events that came before."""

    names: Set[str]


class DrivenShard:
    """See the module. `run` starts what takes time, `on_retired` is told when the partition is led here no longer.

    `on_events` is told what happened to groups.
    """

    def __init__(
        self,
        index: int,
        make: Callable[[], GroupShard],
        log: PartitionLog,
        clock: Clock,
        lease: Callable[[], int],
        run: Callable[[Coroutine[None, None, None]], None],
        on_retired: Callable[[int], None],
        on_events: Callable[[Sequence[GroupEvent]], None],
    ) -> None:
        self.index = index
        self.runtime = ShardRuntime(make, log)
        self._log = log
        self._clock = clock
        self._lease = lease
        self._leased_ms: int | None = None
        self._run = run
        self._on_retired = on_retired
        self._on_events = on_events
        self._events: deque[tuple[Event | TopicsDeleted, int]] = deque()
        """With the number of elements that each is about."""
        self._is_stepping = False
        self._is_resting = False
        """Whether events wait until others had their turn."""
        self._waiting: dict[int, Told] = {}
        self._gathered: list[Asked] = []
        self._gathered_elements = 0
        self._tickets = 0
        self._partition: Partition | None = None
        self._reader: LogReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    @property
    def is_active(self) -> bool:
        """Whether it has read its log, and decides."""
        return self.runtime.role is Role.ACTIVE

    @property
    def shard(self) -> GroupShard | None:
        """What it knows, if it is active."""
        shard = self.runtime.shard
        return shard if self.is_active and isinstance(shard, GroupShard) else None

    def size_of(self, group_id: str) -> int:
        """How many elements it counts as to look at a group and its members."""
        group = None if self.shard is None else self.shard.groups.get(group_id)
        return 1 if group is None else 1 + MEMBER_ELEMENTS * len(group.members)

    def commits_of(self, group_id: str) -> int:
        """How many offsets a group has committed."""
        return 0 if self.shard is None else self.shard.offsets.count_of(group_id)

    # --- what it is told ------------------------------------------------------------------------------------------

    def elect(self, partition: Partition) -> None:
        """The partition is led here, in an epoch that may be new."""
        if self._partition is not partition:
            self._partition = partition
            partition.watchers.add(WATCHER, lambda: self._changed(partition))
        if partition.leader_epoch > self.runtime.epoch:
            self._reader = LogReader(partition.log)
            self._take_first(
                Elected(partition.leader_epoch, partition.log.start_offset), Committed(partition.log.high_watermark)
            )

    def resign(self) -> None:
        """The partition is led here no longer: whoever waits is sent elsewhere. The end."""
        if self._partition is not None:
            self._partition.watchers.discard(WATCHER)
            self._partition = None
        self._take_first(Resigned(self.runtime.epoch))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ask(self, command: Any, told: Told, elements: int = 1) -> int:
        """Asks about so many elements; `told` may be called before this returns. A ticket to lose interest with."""
        self._tickets += 1
        ticket = self._tickets
        self._waiting[ticket] = told
        self._hand_in()  # whoever asks now knows of them
        self._take(Asked(ticket, command), elements)
        return ticket

    def gather(self, command: Any, told: Told, elements: int = 1) -> int:
        """The same for a commit: all that come in the same turn of the loop are decided and written together."""
        self._tickets += 1
        ticket = self._tickets
        self._waiting[ticket] = told
        if self._gathered_elements + elements > PIECE_ELEMENTS:
            self._hand_in()
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._hand_in)
        self._gathered.append(Asked(ticket, command))
        self._gathered_elements += elements
        if len(self._gathered) >= GATHERED_MAX:
            self._hand_in()
        return ticket

    def _hand_in(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            elements, self._gathered_elements = self._gathered_elements, 0
            self._take(AskedTogether(gathered) if len(gathered) > 1 else gathered[0], elements)

    def forget(self, ticket: int) -> None:
        """Nobody waits for that any more."""
        self._waiting.pop(ticket, None)

    def topics_deleted(self, names: Set[str]) -> None:
        """What was committed until now is of topics that are gone, even if others have their names."""
        self._hand_in()
        if self._is_resting:  # what was asked before is decided before
            self._events.append((TopicsDeleted(names), 1))
        else:
            self._forget_topics(names)

    def _forget_topics(self, names: Set[str]) -> None:
        shard = self.runtime.shard
        if isinstance(shard, GroupShard):
            shard.topics_deleted(names, Now(self._clock.monotonic_ms(), self._clock.wall_ms()))
            self._set_timer()

    def go_on(self) -> None:
        """The lease may be another: what waited for that goes out."""
        if not self._is_stepping and not self._is_resting:
            self._work_off()

    def _changed(self, partition: Partition) -> None:
        if partition is not self._partition:
            return
        if partition.is_retired:
            self._on_retired(self.index)
            return
        partition.watchers.add(WATCHER, lambda: self._changed(partition))
        self._take(Committed(partition.log.high_watermark))

    # --- steps ----------------------------------------------------------------------------------------------------

    def _take(self, event: Event, elements: int = 1) -> None:
        self._events.append((event, elements))
        if not self._is_stepping and not self._is_resting:
            self._work_off()

    def _take_first(self, *events: Event) -> None:
        """Whoever leads now comes before requests that wait: those are of another epoch."""
        self._events.extendleft((event, 1) for event in reversed(events))
        if not self._is_stepping:
            self._work_off()

    def _rest_is_over(self) -> None:
        self._is_resting = False
        self._work_off()

    def _work_off(self) -> None:
        clock, runtime = self._clock, self.runtime
        self._is_stepping = True
        try:
            now = Now(clock.monotonic_ms(), clock.wall_ms())
            leased_ms = self._lease()
            if leased_ms != self._leased_ms:
                self._leased_ms = leased_ms
                self._carry_out(runtime.step(Leased(leased_ms), now))
            room = PIECE_ELEMENTS
            while self._events and room > 0:
                event, elements = self._events.popleft()
                if isinstance(event, TopicsDeleted):
                    self._forget_topics(event.names)
                else:
                    self._carry_out(runtime.step(event, now))
                room -= elements
            if self._events and not self._is_resting:
                self._is_resting = True
                asyncio.get_running_loop().call_soon(self._rest_is_over)
        finally:
            self._is_stepping = False
        shard = runtime.shard
        if isinstance(shard, ChronicledShard) and shard.events:
            events, shard.events = shard.events, []
            self._on_events(events)
        self._set_timer()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer():
                    told = self._waiting.pop(effect.ticket, None)
                    if told is not None:
                        told(effect.reply, ErrorCode.NONE)
                case Refuse():
                    told = self._waiting.pop(effect.ticket, None)
                    if told is not None:
                        told(None, effect.code)
                case ReadLog():
                    self._read(effect)

    def _set_timer(self) -> None:
        wake_at = self.runtime.wake_at
        if wake_at is None:
            return
        if self._timer is not None:
            if self._timer_ms <= wake_at:
                return
            self._timer.cancel()
        wait_ms = min(max(1, wake_at - self._clock.monotonic_ms()), TIMER_MS_MAX)
        self._timer_ms = wake_at
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        wake_at = self.runtime.wake_at
        if wake_at is not None and wake_at <= self._clock.monotonic_ms():
            self._take(TimePassed())
        else:
            self._set_timer()

    # --- reading --------------------------------------------------------------------------------------------------

    def _read(self, wanted: ReadLog) -> None:
        """What is there at once where there is little; otherwise others have their turn first."""
        if wanted.offset < wanted.end_offset:
            self._run(self._read_soon(wanted))
        else:
            self._read_now(wanted)

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
        self._take(found)
