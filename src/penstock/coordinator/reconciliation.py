"""How a member of a consumer group comes from what it reads to what it is meant to read (KIP-848).

First it gives up what is not its any more, and stays in its epoch until it says that it has. Then it goes to the epoch
of the target, with what it keeps and what is free; what others have not given up yet it gets when they have. So no
partition is ever with two members, and one that does not move is never paused.
"""

from penstock.coordinator.consumer import NOTHING, ConsumerGroup, Member, MemberState, Partitions


def reconciled(group: ConsumerGroup, member: Member, owned: Partitions | None, *, is_joining: bool = False) -> Member:
    """The member's next step; `owned` is what it says to have, if it says so, and is to be believed."""
    if member.state is MemberState.STABLE and member.epoch == group.target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and (owned is None or owned & member.revoking):
        return member
    target = group.targets.get(member.member_id, NOTHING)
    kept = member.assigned & target
    revoking = member.assigned - target
    if owned is not None and is_joining:
        revoking &= owned  # whoever joins has given up the rest
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
