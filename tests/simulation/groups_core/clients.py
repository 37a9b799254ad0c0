"""Simulated consumers: classic ones, eager and cooperative, and those of the new protocol (KIP-848).

They behave as real ones: join, adopt their assignment, read from the committed offsets, commit, revoke partitions when
required, send heartbeats, and rejoin on errors. Sometimes they pause, are killed, or leave.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.coordinator.requests import Ask
from penstock.coordinator.subscriptions import assignment, assignment_bytes, subscription
from penstock.model.errors import ErrorCode
from penstock.wire.codec import write_into
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.kit.invariants import broken

if TYPE_CHECKING:
    from tests.simulation.groups_core.world import World

REQUEST_MS: Final = 2_500.0
NONE: Final = ErrorCode.NONE
TRY_AGAIN: Final = {
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}


class Client:
    """The common part of both protocols: reading, committing, requests."""

    def __init__(self, world: "World", number: int, group_id: str, instance: str | None) -> None:
        self.world = world
        self.name = f"{group_id}-{number}"
        self.group_id = group_id
        self.instance = instance
        self.random = world.streams.stream("client", self.name)
        self.coordinator = 0
        self.is_up = False
        self.is_paused = False
        self.is_wanted = True
        """Whether it is to run at the end."""
        self.member_id = ""
        self.epoch = -1
        self.reads_in = -1
        """The epoch in which it was assigned its partitions."""
        self.owned: dict[int, int | None] = {}
        """The assigned partitions with the next offset to read; None until it is fetched."""
        self.heard = 0
        self.life = 0
        self._number = 0
        self._flights: dict[str, tuple[int, float]] = {}
        self._ticks = 0

    # --- lifecycle ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.is_up:
            return
        self.is_up, self.is_paused = True, False
        self.life += 1
        self._flights.clear()
        self.owned.clear()
        self.coordinator = self.world.find_coordinator()
        self.world.tell(f"{self.name} starts")
        self.begin()
        self.world.after(self._interval_ms(), self._tick, self.life)
        self.act()

    def crash(self) -> None:
        self.is_up = False
        self.life += 1
        self.owned.clear()
        self.world.tell(f"{self.name} is killed")

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def lose(self) -> None:
        """Drops all partitions."""
        self.owned.clear()

    def begin(self) -> None:
        raise NotImplementedError

    def act(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def _interval_ms(self) -> float:
        return self.world.options.heartbeat_ms * (0.8 + 0.4 * self.random.random())

    def _tick(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        self.world.after(self._interval_ms(), self._tick, life)
        if self.is_paused:
            return
        self._ticks += 1
        now = self.world.time_ms
        for kind, (_, deadline) in list(self._flights.items()):
            if deadline <= now:
                del self._flights[kind]
                self.coordinator = self.world.find_coordinator()
                self.timed_out(kind)
        self._read()
        self.act()
        if self._ticks % 2:
            self.commit(self.owned)

    def timed_out(self, kind: str) -> None:
        """Handles a request without a response."""

    # --- requests -------------------------------------------------------------------------------------------------

    def is_asking(self, kind: str) -> bool:
        return kind in self._flights

    def ask(
        self,
        kind: str,
        request: Any,
        answered: Callable[[Any], None],
        *,
        version: int = 9,
        timeout_ms: float = REQUEST_MS,
    ) -> None:
        self._number += 1
        self._flights[kind] = (self._number, self.world.time_ms + timeout_ms)
        life = self.life

        def arrive(number: int, reply: Any) -> None:
            flight = self._flights.get(kind)
            if life != self.life or self.is_paused or flight is None or flight[0] != number:
                return
            del self._flights[kind]
            if isinstance(reply, ErrorCode):
                self.coordinator = self.world.find_coordinator()
                self.timed_out(kind)
            else:
                answered(reply)

        self.world.send(self, self._number, Ask(request, version, self.name, "/simulated"), arrive)

    # --- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        processed = self.world.checks.processed
        is_asked = False
        for partition, position in self.owned.items():
            if position is None:
                is_asked = True
                continue
            read_to = position + self.random.randrange(4)
            self.owned[partition] = read_to
            where = (self.group_id, partition)
            if read_to > processed.get(where, 0):
                processed[where] = read_to
        if is_asked and not self.is_asking("fetch"):
            self.ask("fetch", self.fetch_request(), self._fetched)

    def fetch_request(self) -> OffsetFetchRequestGroup:
        return OffsetFetchRequestGroup(group_id=self.group_id, topics=None)

    def _fetched(self, reply: Any) -> None:
        if reply.error_code is not NONE:
            return
        known = {part.partition_index: part.committed_offset for topic in reply.topics for part in topic.partitions}
        for partition, position in self.owned.items():
            if position is None:
                self.owned[partition] = max(0, known.get(partition, 0))

    def commit(self, partitions: Any) -> None:
        positions = {each: at for each in sorted(partitions) if (at := self.owned.get(each)) is not None}
        if not positions or self.is_asking("commit"):
            return
        self.world.counts["commits"] += 1
        note = f"c{self.world.counts['commits']}"
        listed = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=at, committed_metadata=note)
            for each, at in positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=self.group_id, partitions=listed)],
        )
        self.ask("commit", request, lambda _: None)


class Classic(Client):
    """A member of the classic protocol."""

    def __init__(
        self, world: "World", number: int, group_id: str, instance: str | None, *, is_cooperative: bool
    ) -> None:
        super().__init__(world, number, group_id, instance)
        self.is_cooperative = is_cooperative
        self.is_old = False
        """Whether it joins without a member id, and gives up soon (R27)."""
        self._is_in = False
        self._leads_of: int | None = None

    def begin(self) -> None:
        self.member_id, self.epoch, self._is_in, self._leads_of = "", -1, False, None

    def lose(self) -> None:
        super().lose()
        self._is_in = False
        self.epoch = -1

    def act(self) -> None:
        if self.is_asking("join") or self.is_asking("sync"):
            return
        if self._is_in and self._leads_of not in (None, self.world.partitions[self.group_id]):
            self._is_in = False
        if not self._is_in:
            self._join()
        elif not self.is_asking("heartbeat"):
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            self.ask("heartbeat", request, self._heartbeat, version=4)

    def timed_out(self, kind: str) -> None:
        if kind == "sync":
            self._is_in = False

    def _join(self) -> None:
        options = self.world.options
        if not self.is_cooperative:
            self.owned.clear()
        owned = [TopicPartition(topic=self.group_id, partitions=sorted(self.owned))] if self.owned else []
        told = ConsumerProtocolSubscription(
            topics=[self.group_id], owned_partitions=owned, generation_id=self.epoch, rack_id=None
        )
        data = bytearray(struct.pack(">h", 3))
        write_into(data, told, 3)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=options.session_ms,
            rebalance_timeout_ms=options.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="some", metadata=bytes(data))],
        )
        is_old = self.is_old and not self.world.is_calm
        timeout_ms = 600.0 if is_old else options.rebalance_ms + 2_000.0
        self.ask("join", request, self._joined, version=3 if is_old else 9, timeout_ms=timeout_ms)

    def _start_over(self, code: ErrorCode) -> None:
        if code in TRY_AGAIN:
            self._is_in = False
            return
        self.lose()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        elif code is not ErrorCode.ILLEGAL_GENERATION:
            broken("Protocol", f"{self.name} is told {code.name}")

    def _joined(self, reply: Any) -> None:
        if reply.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._join()
            return
        if reply.error_code is not NONE:
            self._start_over(reply.error_code)
            return
        self.member_id, self.epoch = reply.member_id, reply.generation_id
        self._leads_of = None
        assignments: list[SyncGroupRequestAssignment] = []
        if reply.leader == self.member_id:
            if not reply.skip_assignment:
                count = self.world.assigned_for[self.group_id] = self.world.partitions[self.group_id]
                assignments = self._assign(reply.members, count)
            self._leads_of = self.world.assigned_for.get(self.group_id, -1)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=assignments,
        )
        self.ask("sync", request, self._synced, version=5)

    def _assign(self, members: Any, partitions: int) -> list[SyncGroupRequestAssignment]:
        """Assigns evenly and stickily; a partition that another member still owns must be revoked first."""
        claims: dict[int, tuple[int, str]] = {}
        for member in members:
            told = subscription(member.metadata)
            assert told is not None
            for topic in told.owned_partitions:
                for partition in topic.partitions:
                    claim = (told.generation_id, member.member_id)
                    claims[partition] = max(claims.get(partition, claim), claim)
        names = sorted(member.member_id for member in members)
        has: dict[str, list[int]] = {name: [] for name in names}
        most = -(-partitions // len(names))
        free = []
        for partition in range(partitions):
            owner = claims.get(partition, (0, ""))[1]
            if owner in has and len(has[owner]) < most:
                has[owner].append(partition)
            else:
                free.append(partition)
        for partition in free:
            name = min(names, key=lambda each: (len(has[each]), each))
            owner = claims.get(partition, (0, ""))[1]
            if owner in has and owner != name and self.is_cooperative:
                continue
            has[name].append(partition)
        return [
            SyncGroupRequestAssignment(member_id=name, assignment=assignment_bytes({self.group_id: mine}, 3))
            for name, mine in has.items()
        ]

    def _synced(self, reply: Any) -> None:
        if reply.error_code is not NONE:
            self._start_over(reply.error_code)
            return
        found = assignment(reply.assignment)
        given = [number for topic in found.assigned_partitions for number in topic.partitions] if found else []
        gone = [partition for partition in self.owned if partition not in given]
        if gone:
            self.commit(gone)
        self.owned = {partition: self.owned.get(partition) for partition in given}
        self._is_in = True
        self.reads_in = self.epoch
        self.world.tell(f"{self.name} reads {given} in {self.epoch}")
        if gone and self.is_cooperative:
            self._is_in = False
            self._join()

    def _heartbeat(self, reply: Any) -> None:
        if reply.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.commit(self.owned)
            self._is_in = False
            if not self.is_asking("join"):
                self._join()
        elif reply.error_code is not NONE:
            self._start_over(reply.error_code)

    def leave(self) -> None:
        who = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        if self.member_id:
            self.ask("leave", LeaveGroupRequest(group_id=self.group_id, members=[who]), lambda _: None, version=5)
        self.crash()


class Modern(Client):
    """A member of the new protocol."""

    def __init__(self, world: "World", number: int, group_id: str, instance: str | None) -> None:
        super().__init__(world, number, group_id, instance)
        self._says_all = True
        self._said: list[int] | None = None
        self._target: list[int] = []
        self._is_revoking = False
        self._taking: set[int] = set()
        """Newly assigned partitions that it does not report until its application has adopted them."""
        self._pace = world.streams.stream("taking", self.name)

    def begin(self) -> None:
        self.member_id, self.epoch = f"{self.name}-life-{self.life}", 0
        self.lose()

    def lose(self) -> None:
        super().lose()
        self.epoch = 0
        self._says_all, self._is_revoking, self._said, self._target = True, False, None, []
        self._taking = set()

    def fetch_request(self) -> OffsetFetchRequestGroup:
        return OffsetFetchRequestGroup(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, topics=None
        )

    def timed_out(self, kind: str) -> None:
        if kind == "heartbeat":
            self._says_all = True

    def act(self) -> None:
        if self.is_asking("heartbeat"):
            return
        mine = sorted(partition for partition in self.owned if partition not in self._taking)
        says_all = self._says_all or self.epoch == 0 or (bool(self._taking) and self._pace.random() < 0.5)
        says_owned = says_all or mine != self._said
        listed = [TopicPartitions(topic_id=self._topic_id, partitions=mine)] if mine else []
        pattern = f"^{self.group_id}$|x.*" if self.world.options.uses_patterns else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=self.world.options.rebalance_ms if says_all else -1,
            subscribed_topic_names=[self.group_id] if says_all and pattern is None else None,
            subscribed_topic_regex=pattern if says_all else None,
            topic_partitions=listed if says_owned else None,
        )
        self._says_all = False
        if says_owned:
            self._said = mine
        self.ask("heartbeat", request, self._answered, version=1)

    @property
    def _topic_id(self) -> bytes:
        return self.group_id.encode().ljust(16, b".")

    def _answered(self, reply: Any) -> None:
        code = reply.error_code
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.lose()
            self.act()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.crash()
            self.world.after(2_000.0, self.start_again)
        elif code in TRY_AGAIN:
            self._says_all = True
        elif code is not NONE:
            broken("Protocol", f"{self.name} is told {code.name}: {reply.error_message}")
        else:
            self.epoch = self.reads_in = reply.member_epoch
            if reply.assignment is not None:
                self._target = [each for topic in reply.assignment.topic_partitions for each in topic.partitions]
            if not self._is_revoking and not self._taking:
                self._reconcile()

    def start_again(self) -> None:
        if self.is_wanted:
            self.start()

    def _reconcile(self) -> None:
        gone = [partition for partition in self.owned if partition not in self._target]
        if gone:
            self._is_revoking = True
            options = self.world.options
            if not self.world.is_calm and self.random.random() < options.slow_revokes:
                self.world.after(1.6 * options.rebalance_ms * self.random.random(), self._revoke, self.life)
            else:
                self._revoke(self.life)
        elif new := [partition for partition in self._target if partition not in self.owned]:
            self.owned.update(dict.fromkeys(new))
            options = self.world.options
            if not self.world.is_calm and self._pace.random() < options.slow_takes:
                self._taking = set(new)
                most_ms = min(2.0 * options.heartbeat_ms, 0.45 * options.rebalance_ms)
                self.world.after(most_ms * self._pace.random(), self._taken, self.life)

    def _taken(self, life: int) -> None:
        if life != self.life or not self._taking:
            return
        self._taking = set()
        self.act()
        self._reconcile()

    def _revoke(self, life: int) -> None:
        if life != self.life or not self._is_revoking:
            return
        self._is_revoking = False
        gone = [partition for partition in self.owned if partition not in self._target]
        self.commit(gone)
        for partition in gone:
            del self.owned[partition]
        for partition in self._target:
            self.owned.setdefault(partition, None)
        self.world.tell(f"{self.name} reads {sorted(self.owned)} in {self.epoch}")
        self.act()

    def leave(self) -> None:
        is_away = self.instance is not None and self.random.random() < 0.5
        if self.epoch > 0:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=-2 if is_away else -1,
                instance_id=self.instance,
            )
            self.ask("leave", request, lambda _: None, version=1)
        self.crash()
