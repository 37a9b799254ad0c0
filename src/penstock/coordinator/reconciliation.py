"""Reconciliation of a consumer group member: from its current to its target assignment (KIP-848).

The member first revokes partitions that are not in its target, and stays in its epoch until it reports that. Then it
moves to the target epoch, with the partitions that it keeps and those that are free; it gets the others when their
owners have revoked them. So no partition ever has two owners, and one that does not move is never paused.
"""

from penstock.coordinator.consumer import NOTHING, ConsumerGroup, Member, MemberState, Partitions


def reconciled(group: ConsumerGroup, member: Member, owned: Partitions | None, *, is_joining: bool = False) -> Member:
    """The member after its next step; `owned` is its report of partitions, None if missing or not trusted."""
    if member.state is MemberState.STABLE and member.epoch == group.target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and (owned is None or owned & member.revoking):
        return member
    target = group.targets.get(member.member_id, NOTHING)
    kept = member.assigned & target
    revoking = member.assigned - target
    if owned is not None and is_joining:
        revoking &= owned  # a joining member has given up the rest
    if revoking:
        return member._replace(state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    wanted = target - kept
    free = frozenset(each for each in wanted if group.owners.get(each, member.member_id) == member.member_id)
    return member._replace(
        epoch=group.target_epoch,
        previous_epoch=member.previous_epoch if member.epoch == group.target_epoch else member.epoch,
        state=MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED,
        assigned=kept | free if free else kept,
        revoking=NOTHING,
    )
