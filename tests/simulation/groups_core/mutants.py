"""Groups with one rule removed at a time: `python -m tests.simulation.groups_core.mutants --help`."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from penstock.coordinator import conversion, groups, heartbeats, offsets, rebalance, reconciliation, staying
from penstock.coordinator.assignors import ASSIGNORS, assign_uniform
from penstock.coordinator.changes import SetEmptySince
from penstock.coordinator.classic import ClassicGroup, group_of
from penstock.coordinator.consumer import ConsumerGroup, Member, MemberState, epoch_record
from penstock.coordinator.events import LogRead, ReadFailed, Resigned
from penstock.coordinator.groups import EXPIRY_TIMER, GroupShard
from penstock.coordinator.heartbeats import Draft
from penstock.coordinator.ports import AppendRefused, Now
from penstock.coordinator.runtime import Role, ShardRuntime
from penstock.coordinator.shard import GroupDecision
from penstock.coordinator.timers import SetTimer, Timers
from penstock.model.errors import ErrorCode
from tests.simulation.groups_core.faults import run_seed
from tests.simulation.kit.mutants import Measured, Mutants

SEVEN = (
    "NoDoubleClientAssignment",
    "LegalTargetAssignment",
    "ValidMemberEpoch",
    "ValidStableGroupState",
    "ValidPartitionEpoch",
    "MonotoneMemberEpochs",
    "AckedCommitsStay",
)
MUTANTS = Mutants("group", run_seed, seeds_max=400, must_fall=SEVEN)
caught_by = MUTANTS.caught_by
VALID = ("ValidMemberEpoch", "ValidStableGroupState", "ValidPartitionEpoch")
LOSSES = ("AckedCommitsStay", "NoDoubleClientAssignment", "MonotoneMemberEpochs", "ReloadIsTheSame")

# --- the runtime ------------------------------------------------------------------------------------------------------


@caught_by(*LOSSES)
def answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    answer = ShardRuntime._answer

    def hasty(self: ShardRuntime[GroupShard], now: Now) -> None:
        self.committed_end = max(self.committed_end, self.applied_end)
        answer(self, now)

    patch.setattr(ShardRuntime, "_answer", hasty)


@caught_by(*LOSSES, *VALID, "Convergence", "ZombieCommitsRefused")
def keeps_what_it_knew_when_it_leads_again(patch: pytest.MonkeyPatch) -> None:
    load = ShardRuntime._load

    def keeps(self: ShardRuntime[GroupShard], event: Any) -> None:
        known = self.shard if self.role is Role.ACTIVE else None
        load(self, event)
        if known is not None and self.role is Role.LOADING:
            self.shard = known

    patch.setattr(ShardRuntime, "_load", keeps)


@caught_by("Convergence")
def looks_for_what_compaction_took(patch: pytest.MonkeyPatch) -> None:
    """R26: the load goes on until it has seen the last offset."""
    take_in = ShardRuntime._take_in

    def waits(self: ShardRuntime[GroupShard], event: LogRead, now: Now) -> None:
        if not event.records and event.offset < self._load_end and event.epoch == self.epoch:
            self._read_on(event.offset)
            return
        take_in(self, event, now)

    patch.setattr(ShardRuntime, "_take_in", waits)


@caught_by("Convergence")
def believes_old_news(patch: pytest.MonkeyPatch) -> None:
    """R26: a resignation of an older epoch unloads the shard that a newer one has loaded."""

    def believes(self: ShardRuntime[GroupShard], _event: Resigned) -> None:
        if self.role is not Role.ELSEWHERE:
            self._unload(Role.ELSEWHERE)

    patch.setattr(ShardRuntime, "_resign", believes)


@caught_by(*LOSSES, "Convergence", "ZombieCommitsRefused", "LiveOffsetsStay", *VALID)
def goes_on_without_what_it_cannot_read(patch: pytest.MonkeyPatch) -> None:
    """R26: the log goes offline while it is being loaded."""
    step = ShardRuntime.step

    def goes_on(self: ShardRuntime[GroupShard], event: Any, now: Now) -> Any:
        if isinstance(event, ReadFailed):
            event = LogRead(event.epoch, self.applied_end, (), self._load_end)
        return step(self, event, now)

    patch.setattr(ShardRuntime, "step", goes_on)


@caught_by(*LOSSES, "Convergence", "ZombieCommitsRefused", "LiveOffsetsStay", *VALID)
def decides_before_everything_is_read(patch: pytest.MonkeyPatch) -> None:
    take_in = ShardRuntime._take_in

    def hasty(self: ShardRuntime[GroupShard], event: LogRead, now: Now) -> None:
        take_in(self, event._replace(next_offset=self._load_end), now)

    patch.setattr(ShardRuntime, "_take_in", hasty)


@caught_by(*LOSSES)
def takes_a_refused_append_for_done(patch: pytest.MonkeyPatch) -> None:
    carry_out = ShardRuntime._carry_out

    def done(self: ShardRuntime[GroupShard], decision: GroupDecision, now: Now) -> None:
        try:
            carry_out(self, decision, now)
        except AppendRefused:
            assert self.shard is not None
            for record in decision.records:
                self.shard.apply(record)
            carry_out(self, replace(decision, records=()), now)

    patch.setattr(ShardRuntime, "_carry_out", done)


@caught_by("StaleAnswersAreBrief", "LiveMembersStay")
def answers_although_another_may_lead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShardRuntime, "_is_leased", lambda *_: True)


@caught_by("LiveMembersStay")
def judges_before_it_has_listened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timers, "chance", lambda *_: None)


@caught_by("LiveMembersStay")
def counts_time_in_which_nobody_could_be_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupShard, "put_off", lambda *_: None)


# --- offsets ----------------------------------------------------------------------------------------------------------


@caught_by("LiveOffsetsStay")
def forgets_offsets_of_groups_at_work(patch: pytest.MonkeyPatch) -> None:
    """R25: KIP-211."""
    expired = offsets.expired

    def some(groups_: Any, known: Any, work: Any) -> bool:
        for group_id in known.groups():
            gone = expired(ClassicGroup(group_id), known, work)
            work.records += [offsets.forgotten(group_id, *place) for place in gone]
        return False

    patch.setattr(offsets, "expire_some", some)


@caught_by("LiveOffsetsStay")
def counts_from_the_commit(patch: pytest.MonkeyPatch) -> None:
    """R25: not from the time when the group became empty."""
    expired = offsets.expired

    def counts(group: Any, known: Any, work: Any) -> Any:
        return expired(ClassicGroup(group.group_id) if group.is_empty else group, known, work)

    patch.setattr(offsets, "expired", counts)


@caught_by("LiveOffsetsStay")
def forgets_what_it_has_just_loaded(patch: pytest.MonkeyPatch) -> None:
    """R25: KAFKA-8069, KAFKA-13636."""
    begin = GroupShard.begin

    def begins(self: GroupShard, now: Now) -> GroupDecision:
        decision = begin(self, now)
        for group in self.groups.values():
            if group.is_empty:
                group.since_wall_ms = -1
        changes = [each for each in decision.changes if not isinstance(each, SetEmptySince)]
        return replace(decision, changes=(*changes, SetTimer(EXPIRY_TIMER, now.ms)))

    patch.setattr(GroupShard, "begin", begins)


@caught_by("ZombieCommitsRefused")
def takes_commits_of_any_generation(patch: pytest.MonkeyPatch) -> None:
    may_commit = offsets._may_commit

    def takes(group: Any, request: Any, work: Any) -> ErrorCode:
        code = may_commit(group, request, work)
        wrong = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE if code in wrong and isinstance(group, ClassicGroup) else code

    patch.setattr(offsets, "_may_commit", takes)


@caught_by("ZombieCommitsRefused")
def takes_commits_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "may_commit", lambda *_: ErrorCode.NONE)
    patch.setattr(ConsumerGroup, "may_commit_of", lambda *_: ErrorCode.NONE)


# --- classic groups ---------------------------------------------------------------------------------------------------


@caught_by("GroupSizeBounded")
def counts_no_ids_that_wait(patch: pytest.MonkeyPatch) -> None:
    """R27: KAFKA-7610, KAFKA-7641."""
    patch.setattr(rebalance, "_has_room", lambda *_: True)


@caught_by("NoDoubleClientAssignment", "MonotoneMemberEpochs")
def hands_out_assignments_to_any_generation(patch: pytest.MonkeyPatch) -> None:
    may_sync = rebalance._may_sync

    def may(group: Any, request: Any) -> ErrorCode:
        code = may_sync(group, request)
        return ErrorCode.NONE if code is ErrorCode.ILLEGAL_GENERATION else code

    patch.setattr(rebalance, "_may_sync", may)


@caught_by("ReloadIsTheSame", "Convergence", "NoDoubleClientAssignment")
def forgets_assignments_when_it_loads(patch: pytest.MonkeyPatch) -> None:
    def forgets(group_id: str, value: Any) -> ClassicGroup:
        group = group_of(group_id, value)
        group.members = {name: member._replace(assignment=b"") for name, member in group.members.items()}
        return group

    patch.setattr(groups, "group_of", forgets)


@caught_by("NoDoubleClientAssignment", "MonotoneMemberEpochs", "ZombieCommitsRefused")
def does_not_count_generations(patch: pytest.MonkeyPatch) -> None:
    complete = rebalance.complete

    def same(group: ClassicGroup, work: Any) -> None:
        before = group.generation
        complete(group, work)
        if group.members and before:
            group.generation = before

    patch.setattr(rebalance, "complete", same)


@caught_by("Convergence", "ValidStableGroupState")
def keeps_those_whose_session_ended(patch: pytest.MonkeyPatch) -> None:
    """R27: members that gave up are waited for, again and again."""

    def keeps(group: ClassicGroup, member_id: str, work: Any, code: ErrorCode, *, settles: bool = True) -> None:
        work.hear(group.group_id, member_id, group.members[member_id].session_timeout_ms)

    for module in (rebalance, staying):
        patch.setattr(module, "remove_member", keeps)


# --- consumer groups --------------------------------------------------------------------------------------------------


@caught_by("ValidPartitionEpoch", "NoDoubleClientAssignment")
def gives_partitions_before_they_are_free(patch: pytest.MonkeyPatch) -> None:
    def hasty(group: ConsumerGroup, member: Member, owned: Any, **how: Any) -> Member:
        alone = group.draft()
        alone.owners = {}
        return reconciliation.reconciled(alone, member, owned, **how)

    for module in (heartbeats, conversion):
        patch.setattr(module, "reconciled", hasty)


@caught_by("NoDoubleClientAssignment")
def goes_on_before_partitions_are_given_up(patch: pytest.MonkeyPatch) -> None:
    def hasty(group: ConsumerGroup, member: Member, _owned: Any, **_: Any) -> Member:
        return reconciliation.reconciled(group, member, frozenset(), is_joining=True)

    for module in (heartbeats, conversion):
        patch.setattr(module, "reconciled", hasty)


@caught_by("NoDoubleClientAssignment")
def takes_what_members_do_not_have_yet_for_given_up(patch: pytest.MonkeyPatch) -> None:
    """The assignment was sent a moment ago, and their applications are about to adopt it."""

    def believing(draft: Draft, member_id: str, owned: Any) -> None:
        heartbeats.step(draft, member_id, owned, is_joining=True)

    patch.setattr(heartbeats, "_step_as_said", believing)


@caught_by("ValidMemberEpoch")
def sends_members_ahead_of_the_target(patch: pytest.MonkeyPatch) -> None:
    def ahead(group: ConsumerGroup, member: Member, owned: Any, **how: Any) -> Member:
        after = reconciliation.reconciled(group, member, owned, **how)
        return after._replace(epoch=group.epoch) if after.epoch == group.target_epoch else after

    for module in (heartbeats, conversion):
        patch.setattr(module, "reconciled", ahead)


@caught_by("ValidStableGroupState", "Convergence")
def calls_members_stable_that_wait(patch: pytest.MonkeyPatch) -> None:
    def stable(group: ConsumerGroup, member: Member, owned: Any, **how: Any) -> Member:
        after = reconciliation.reconciled(group, member, owned, **how)
        return after._replace(state=MemberState.STABLE) if after.state is MemberState.UNRELEASED else after

    for module in (heartbeats, conversion):
        patch.setattr(module, "reconciled", stable)


@caught_by("LegalTargetAssignment")
def means_to_give_a_partition_to_two(patch: pytest.MonkeyPatch) -> None:
    def twice(wishes: Any, topics: Any) -> Any:
        found = assign_uniform(wishes, topics)
        return {name: frozenset().union(*found.values()) for name in found}

    for name in ("uniform", "range"):
        patch.setitem(ASSIGNORS, name, twice)


@caught_by("NoDoubleClientAssignment", "Convergence", "ValidStableGroupState", "LegalTargetAssignment")
def does_not_count_epochs(patch: pytest.MonkeyPatch) -> None:
    def same(self: Draft, metadata_hash: int | None = None) -> None:
        group = self.group
        seen = group.metadata_hash if metadata_hash is None else metadata_hash
        self.put(epoch_record(group.group_id, max(1, group.epoch), seen))

    patch.setattr(Draft, "bump", same)


@caught_by("Convergence", "LegalTargetAssignment")
def does_not_notice_who_leaves(patch: pytest.MonkeyPatch) -> None:
    remove = heartbeats.remove_member

    def quietly(draft: Draft, member_id: str) -> None:
        bump, Draft.bump = Draft.bump, lambda *_: None  # type: ignore[method-assign]
        try:
            remove(draft, member_id)
        finally:
            Draft.bump = bump  # type: ignore[method-assign]

    patch.setattr(heartbeats, "remove_member", quietly)


@caught_by("Convergence")
def does_not_notice_new_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heartbeats, "_topics_seen", lambda draft, *_, **__: (draft.group.metadata_hash, True))


# --- between the two protocols ----------------------------------------------------------------------------------------


@caught_by("NoDoubleClientAssignment")
def forgets_what_was_not_given_up_yet(patch: pytest.MonkeyPatch) -> None:
    """A group becomes classic while a member still owns partitions that it was asked to revoke."""
    patch.setattr(Member, "owned", property(lambda self: self.assigned))


def _without(member: Member) -> Member:
    return member._replace(assigned=frozenset(), revoking=frozenset(), state=MemberState.STABLE)


@caught_by("NoDoubleClientAssignment")
def forgets_what_members_say_they_have(patch: pytest.MonkeyPatch) -> None:
    members_of = conversion._members_of

    def forgets(group: ClassicGroup, topics: Any) -> Any:
        found = members_of(group, topics)
        return None if found is None else [_without(member) for member in found]

    patch.setattr(conversion, "_members_of", forgets)


# --- running them -----------------------------------------------------------------------------------------------------


def measure(name: str) -> Measured:
    return MUTANTS.measure(name)


TITLE = "Groups with one rule taken out"
ABOUT = """\
The coordinator core (`penstock.coordinator`) in worlds of coordinators and simulated consumers
(`tests/simulation/groups_core/mutants.py`)."""

if __name__ == "__main__":
    sys.exit(MUTANTS.main(measure, TITLE, ABOUT))
