"""The invariants of worlds of groups, checked after every event that may affect them.

The seven of groups: NoDoubleClientAssignment, LegalTargetAssignment, ValidMemberEpoch, ValidStableGroupState,
ValidPartitionEpoch, MonotoneMemberEpochs, AckedCommitsStay. Besides: NothingSkipped, ZombieCommitsRefused,
LiveOffsetsStay (R25), GroupSizeBounded (R27), LiveMembersStay, StaleAnswersAreBrief, ReloadIsTheSame; at the end
Convergence (also R26).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.consumer import ConsumerGroup, MemberState
from penstock.coordinator.events import Asked, Event
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.records import GroupRecord, decode_record
from penstock.coordinator.requests import GroupAsk, group_id_of
from penstock.coordinator.subscriptions import assignment
from penstock.coordinator.timers import Timer
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from tests.simulation.kit.invariants import CONVERGENCE, broken

if TYPE_CHECKING:
    from tests.simulation.groups_core.world import Broker, Leadership, World

COMMIT_MS: Final = 2_500.0
"""How long a response may wait until all that it depends on is committed."""
SKEW_MS: Final = 2_000.0
"""How long a former leader may go on answering, at most, after the end of its lease."""


class Checks:
    """The checks of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._owners: dict[tuple[str, int, int], str] = {}
        """The assigned reader of a partition, by group, generation or epoch, and partition."""
        self._newest: dict[tuple[str, int], int] = {}
        """The newest generation or epoch in which a partition was assigned."""
        self._epochs: dict[tuple[str, str], int] = {}
        self._generations: dict[str, int] = {}
        self._had_epochs_ms: dict[str, float] = {}
        """When a group was last seen as one in which each member has its own epoch."""
        self._places: dict[str, list[int]] = {}
        """Offsets of a commit in the log, by its metadata; a duplicated request has two."""
        self._log_end = 0
        self._acked: dict[tuple[str, int], tuple[int, str]] = {}
        """The last acknowledged commit of each partition: its offset in the log, its metadata."""
        self._forgotten: dict[tuple[str, int], int] = {}
        """Offset in the log where the commits of a partition were last deleted."""
        self.processed: dict[tuple[str, int], int] = {}
        self._alive_ms: dict[str, float] = {}
        self._arrived_ms: dict[tuple[int, str, str], float] = {}
        self.acknowledged = 0
        self.rebalances = 0

    # --- at the coordinator ---------------------------------------------------------------------------------------

    def session_ends(self, shard: GroupShard, timer: Timer, broker: "Broker") -> None:
        """Checks that a member whose session ends was indeed silent."""
        group = shard.groups.get(timer.group_id)
        member = None if group is None else group.members.get(timer.member_id)
        if group is None or member is None:
            return
        session_ms = self._world.options.session_ms
        if isinstance(group, ClassicGroup) and group.members[timer.member_id].is_new:
            return
        heard_ms = self._arrived_ms.get((broker.number, timer.group_id, timer.member_id), -1.0)
        since_ms = max(heard_ms, broker.active_since_ms)
        silent_ms = self._world.time_ms - since_ms - broker.deaf_ms(since_ms)
        is_in_hand = broker.has_in_hand(timer.group_id, timer.member_id, since_ms + session_ms)  # later is too late
        if silent_ms < session_ms - 1.0 or is_in_hand:
            broken("LiveMembersStay", f"{timer.member_id} was heard of {silent_ms:.0f} ms ago")

    def appended(self, leadership: "Leadership", records: Sequence[GroupRecord]) -> None:
        """Notes records of the leader that are appended, before they are applied."""
        offset = leadership.end - len(records)
        shard = self._world.brokers[leadership.broker].shard
        for number, (key, value) in enumerate(records):
            if isinstance(key, OffsetCommitKey):
                if value is not None:
                    assert isinstance(value, OffsetCommitValue)
                    self._places.setdefault(value.metadata, []).append(offset + number)
                elif shard is not None:
                    self._forgets(shard, key)
                    self._forgotten[key.group, key.partition] = offset + number

    def _forgets(self, shard: GroupShard, key: OffsetCommitKey) -> None:
        group = shard.groups.get(key.group)
        if group is not None and not group.is_empty:
            broken("LiveOffsetsStay", f"{key.group} is at work and forgets {key.partition}")
        empty_ms = self._world.time_ms - self._alive_ms.get(key.group, 0.0)
        if empty_ms < self._world.options.retention_ms - 1.0 and not self._world.is_deleting:
            broken("LiveOffsetsStay", f"{key.group} forgets {key.partition} {empty_ms:.0f} ms after somebody was there")
        self._world.counts["deleted" if self._world.is_deleting else "expired"] += 1
        self._acked.pop((key.group, key.partition), None)

    def cut(self, end: int) -> None:
        """Removes lost uncommitted records; no acknowledged commit may be among them."""
        for note in [note for note, places in self._places.items() if places[-1] >= end]:
            self._places[note] = [place for place in self._places[note] if place < end]
            if not self._places[note]:
                del self._places[note]
        self._forgotten = {where: place for where, place in self._forgotten.items() if place < end}
        lost = [note for place, note in self._acked.values() if note not in self._places]
        if lost:
            broken("AckedCommitsStay", f"{lost} were acknowledged and are cut off")

    def after(self, broker: "Broker", event: Event) -> None:
        """Checks the groups after a step of a broker."""
        shard = broker.shard
        if shard is None or not self._is_leader(broker):
            return
        asked = group_id_of(event.command.request) if isinstance(event, Asked) else ""
        groups = [asked] if asked else list(self._world.partitions)
        for group_id in groups:
            group = shard.groups.get(group_id)
            if group is None:
                self._forget(group_id)
                continue
            if not group.is_empty:
                self._alive_ms[group_id] = self._world.time_ms
            if isinstance(group, ConsumerGroup):
                self._consumer(group)
            else:
                self._classic(group)

    def _forget(self, group_id: str) -> None:
        """Drops the notes of a deleted group; one of the same name starts afresh."""
        if self._generations.pop(group_id, None) is None and not any(who[0] == group_id for who in self._epochs):
            return
        self._owners = {where: owner for where, owner in self._owners.items() if where[0] != group_id}
        self._newest = {where: epoch for where, epoch in self._newest.items() if where[0] != group_id}
        self._epochs = {who: epoch for who, epoch in self._epochs.items() if who[0] != group_id}

    def _is_leader(self, broker: "Broker") -> bool:
        world = self._world
        return world.leadership.broker == broker.number and broker.log.leadership is world.leadership

    def _classic(self, group: ClassicGroup) -> None:
        if len(group.members) + len(group.pending) > self._world.settings.members_max:
            broken("GroupSizeBounded", f"{group.group_id} has {len(group.members)} members, {len(group.pending)} wait")
        if group.state is State.EMPTY and group.members:
            broken("ValidStableGroupState", f"{group.group_id} is empty and has members")
        if group.leader is not None and group.leader not in group.members:
            broken("ValidStableGroupState", f"{group.leader} leads {group.group_id} and is not in it")

    def _consumer(self, group: ConsumerGroup) -> None:
        self._had_epochs_ms[group.group_id] = self._world.time_ms
        if len(group.members) > self._world.settings.members_max:
            broken("GroupSizeBounded", f"{group.group_id} has {list(group.members)}")
        if group.target_epoch > group.epoch:
            broken("ValidMemberEpoch", f"{group.group_id} is in {group.epoch}, its target in {group.target_epoch}")
        count = 0
        for member in group.members.values():
            if member.epoch > group.target_epoch or member.epoch < -2:
                broken("ValidMemberEpoch", f"{member.member_id} is in {member.epoch} of {group.target_epoch}")
            if (member.state is MemberState.UNREVOKED) != bool(member.revoking):
                broken("ValidStableGroupState", f"{member.member_id} is {member.state.name}, revokes {member.revoking}")
            if member.state is MemberState.STABLE and member.epoch == group.target_epoch:
                target = group.targets.get(member.member_id, frozenset())
                if member.assigned != target:
                    broken("ValidStableGroupState", f"{member.member_id} has {member.assigned}, is to have {target}")
            owned = member.owned
            count += len(owned)
            for partition in owned:
                if group.owners.get(partition) != member.member_id:
                    broken("ValidPartitionEpoch", f"{partition} is {member.member_id}'s and another's")
        if count != len(group.owners):
            broken("ValidPartitionEpoch", f"{count} partitions are owned, {len(group.owners)} have owners")
        self._targets(group)
        self._clients(group)

    def _clients(self, group: ConsumerGroup) -> None:
        """A client in a current epoch reads only partitions that the coordinator counts as its own."""
        for client in self._world.clients:
            member = group.members.get(client.member_id) if client.group_id == group.group_id else None
            if member is None or not client.is_up or client.reads_in not in (member.epoch, member.previous_epoch):
                continue
            has = {partition for _, partition in member.owned}
            if not has.issuperset(client.owned):
                broken("NoDoubleClientAssignment", f"{client.name} reads {sorted(client.owned)}, and may {sorted(has)}")

    def _targets(self, group: ConsumerGroup) -> None:
        total = sum(map(len, group.targets.values()))
        union = frozenset().union(*group.targets.values())
        if total != len(union):
            broken("LegalTargetAssignment", f"{group.group_id} means to give partitions out twice: {group.targets}")
        if any(member_id not in group.members for member_id in group.targets):
            broken("LegalTargetAssignment", f"{group.group_id} means to give partitions to who is gone")
        if group.target_epoch == group.epoch and group.members:
            wanted = self._world.partitions[group.group_id]
            if total > wanted:
                broken("LegalTargetAssignment", f"{group.group_id} means to give out {total} of {wanted}")

    # --- responses ------------------------------------------------------------------------------------------------

    def answered(self, broker: "Broker", ask: GroupAsk, reply: Any, arrived_ms: float) -> None:
        """Checks and notes a response, on which its client relies from now on."""
        leadership = broker.log.leadership
        assert leadership is not None
        answers_until_ms = leadership.deposed_ms + self._world.options.lease_ms + SKEW_MS
        if not leadership.is_current and self._world.time_ms > answers_until_ms:
            broken("StaleAnswersAreBrief", f"broker {broker.number} answers and leads no more")
        request = ask.request
        if isinstance(request, HeartbeatRequest | ConsumerGroupHeartbeatRequest) and (
            reply.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        ):
            self._arrived_ms[broker.number, request.group_id, request.member_id] = arrived_ms
        match request:
            case ConsumerGroupHeartbeatRequest():
                if reply.error_code is ErrorCode.NONE and reply.member_epoch > 0:
                    self._told_epoch(request, reply, is_current=leadership.is_current)
            case SyncGroupRequest():
                if reply.error_code is ErrorCode.NONE:
                    self._told_assignment(request, reply.assignment, is_current=leadership.is_current)
            case JoinGroupRequest():
                self.rebalances += reply.error_code is ErrorCode.NONE and reply.leader == reply.member_id
            case OffsetCommitRequest():
                self._told_committed(request, reply, is_current=leadership.is_current)
            case OffsetFetchRequestGroup():
                if leadership.is_current:
                    self._told_offsets(request, reply)

    def _told_epoch(self, request: ConsumerGroupHeartbeatRequest, reply: Any, *, is_current: bool) -> None:
        who = (request.group_id, request.member_id)
        newest = self._epochs.get(who, 0)
        if reply.member_epoch < newest and is_current:
            broken("MonotoneMemberEpochs", f"{who} was in {newest} and is in {reply.member_epoch}")
        self._epochs[who] = max(newest, reply.member_epoch)
        if reply.assignment is not None:
            owner = request.instance_id or request.member_id
            for topic in reply.assignment.topic_partitions:
                for partition in topic.partitions:
                    self._told_to_read(request.group_id, reply.member_epoch, partition, owner)

    def _told_assignment(self, request: SyncGroupRequest, data: bytes, *, is_current: bool) -> None:
        newest = self._generations.get(request.group_id, 0)
        had_ms = self._had_epochs_ms.get(request.group_id, -COMMIT_MS)  # it may have been decided then
        has_epochs = self._world.time_ms - had_ms < COMMIT_MS
        if request.generation_id < newest and is_current and not has_epochs:  # those are per member
            broken("MonotoneMemberEpochs", f"{request.group_id} goes from {newest} back to {request.generation_id}")
        self._generations[request.group_id] = max(newest, request.generation_id)
        found = assignment(data)
        owner = request.group_instance_id or request.member_id
        for topic in found.assigned_partitions if found is not None else ():
            for partition in topic.partitions:
                self._told_to_read(request.group_id, request.generation_id, partition, owner)

    def _told_to_read(self, group_id: str, epoch: int, partition: int, owner: str) -> None:
        other = self._owners.setdefault((group_id, epoch, partition), owner)
        if other != owner:
            broken("NoDoubleClientAssignment", f"{partition} of {group_id} is {other}'s and {owner}'s in {epoch}")
        self._newest[group_id, partition] = max(epoch, self._newest.get((group_id, partition), 0))

    def _told_committed(self, request: OffsetCommitRequest, reply: Any, *, is_current: bool) -> None:
        epoch = request.generation_id_or_member_epoch
        for topic, verdicts in zip(request.topics, reply.topics, strict=True):
            for each, verdict in zip(topic.partitions, verdicts.partitions, strict=True):
                if verdict.error_code is not ErrorCode.NONE:
                    continue
                where = (request.group_id, each.partition_index)
                note = each.committed_metadata or ""
                newest = self._newest.get(where, 0)
                owner = self._owners.get((*where[:1], newest, where[1]))
                if 0 <= epoch < newest and owner not in (request.member_id, request.group_instance_id):
                    broken("ZombieCommitsRefused", f"{request.member_id} commits {where} in {epoch} of {newest}")
                if note not in self._places:
                    broken("AckedCommitsStay", f"{note} is acknowledged and not in the log")
                place = self._places[note][0]
                if place >= self._acked.get(where, (self._forgotten.get(where, -1), ""))[0]:
                    self._acked[where] = (place, note)
                self.acknowledged += 1

    def _told_offsets(self, request: OffsetFetchRequestGroup, reply: Any) -> None:
        if reply.error_code is not ErrorCode.NONE:
            return
        known = {part.partition_index: part for topic in reply.topics for part in topic.partitions}
        for partition in range(self._world.partitions[request.group_id]):
            acked = self._acked.get((request.group_id, partition))
            told = known.get(partition)
            if acked is None:
                continue
            if told is None or told.committed_offset < 0:
                broken("AckedCommitsStay", f"{acked[1]} was acknowledged and {partition} is not known")
            if self._places.get(told.metadata, [-1])[-1] < acked[0]:
                broken("AckedCommitsStay", f"{acked[1]} was acknowledged, and {told.metadata} is older")
            if told.committed_offset > self.processed.get((request.group_id, partition), 0):
                broken("NothingSkipped", f"{partition} of {request.group_id} is read from {told.committed_offset} on")

    # --- the log --------------------------------------------------------------------------------------------------

    def _same_again(self, shard: GroupShard) -> None:
        """Loading the log, compacted or not, gives the leader's state."""
        world = self._world
        again = GroupShard(world.settings, world.dice, lambda: world.topics)
        for _, key, value in world.leadership.rows:
            record = decode_record(key, value)
            if record is not None:
                again.apply(record)
        for group_id in world.partitions:
            mine, other = shard.groups.get(group_id), again.groups.get(group_id)
            if again.offsets.of(group_id) != shard.offsets.of(group_id):
                broken("ReloadIsTheSame", f"offsets of {group_id}")
            if isinstance(mine, ConsumerGroup):
                for name in ("epoch", "target_epoch", "members", "targets", "owners", "static", "patterns"):
                    if getattr(mine, name) != getattr(other, name, None):
                        broken("ReloadIsTheSame", f"{name} of {group_id}: {getattr(mine, name)}")
            elif (
                mine is not None
                and mine.state is State.STABLE
                and (not isinstance(other, ClassicGroup) or other.value() != mine.value())
            ):
                broken("ReloadIsTheSame", f"{group_id}: {mine.value()}")

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """With all faults healed: every partition is read by exactly one member, and all groups are stable."""
        world = self._world
        shard = world.brokers[world.leadership.broker].shard
        if shard is None:
            broken(CONVERGENCE, "nobody coordinates")
        self._same_again(shard)
        for group_id in world.partitions:
            members = [each for each in world.clients if each.group_id == group_id and each.is_up]
            if not members:
                continue
            group = shard.groups.get(group_id)
            state = "gone" if group is None else group.state if isinstance(group, ConsumerGroup) else group.state.value
            if state != "Stable":
                broken(CONVERGENCE, f"{group_id} is {state}")
            read = sorted(partition for each in members for partition in each.owned)
            if read != list(range(world.partitions[group_id])):
                told = {each.name: sorted(each.owned) for each in members}
                broken(CONVERGENCE, f"of {group_id} is read {told}, there are {world.partitions[group_id]}")
