"""A classic group: members join a generation, and their leader computes the assignment.

State transitions are a table. State that is not in the group's record (waiting joins and syncs, pending member ids) is
soft: a new coordinator starts without it, and members join again. Decisions work on a copy (`copy`), which replaces the
group once the decision is in the log.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from penstock.wire.stored.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL: Final = "consumer"
NO_GENERATION: Final = -1

Protocols = tuple[tuple[str, bytes], ...]
"""Protocols of a member, preferred first: names and metadata."""


def known_to_all(protocols: Protocols, others: Iterable[Protocols]) -> list[str]:
    """The names of these protocols that all others support, too."""
    common = [name for name, _ in protocols]
    for other in others:
        known = {name for name, _ in other}
        common = [name for name in common if name in known]
    return common


class State(Enum):
    """State of a classic group, by the names that clients see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


MOVES: Final = {
    (State.EMPTY, State.PREPARING): "the first member joins",
    (State.PREPARING, State.COMPLETING): "all known members have joined, or time is up",
    (State.PREPARING, State.EMPTY): "everybody has left, or nobody joined in time",
    (State.COMPLETING, State.STABLE): "the leader has handed in the assignment",
    (State.COMPLETING, State.PREPARING): "a member joined, left, or timed out",
    (State.STABLE, State.PREPARING): "a member joined, left, or timed out",
}


class Member(NamedTuple):
    """One member. `joining` and `syncing` are the tickets of its waiting requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    is_new: bool = False
    """Its first JoinGroup is not answered yet."""
    owes_sync: bool = False
    """It has received the generation and has not sent SyncGroup yet."""
    held_bytes: int = 0
    """Bytes of its metadata under all protocols."""

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata under a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """See the module."""

    group_id: str
    state: State = State.EMPTY
    since_wall_ms: int = -1
    """When the state was entered; retention of an empty group's offsets counts from it (R25)."""
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    pending: dict[str, None] = field(default_factory=dict)
    """Member ids that were handed out and not used yet."""
    is_gathering: bool = False
    """The group was empty, and waits for more members (initial rebalance delay)."""
    gathering_left_ms: int = 0
    grown_ms: int = 0
    """When a new member last joined, on the monotonic clock."""
    held_bytes: int = 0
    """Bytes of its members' metadata."""

    def copy(self) -> "ClassicGroup":
        """A copy to change."""
        return ClassicGroup(
            self.group_id,
            self.state,
            self.since_wall_ms,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            dict(self.members),
            dict(self.static),
            dict(self.pending),
            self.is_gathering,
            self.gathering_left_ms,
            self.grown_ms,
            self.held_bytes,
        )

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the group is in state Empty."""
        return self.state is State.EMPTY

    @property
    def is_nothing(self) -> bool:
        """Whether the group never had a member, and none is about to join."""
        return self.is_empty and self.is_simple and not self.pending and not self.generation

    @property
    def is_simple(self) -> bool:
        """Whether the group has only offsets: its consumers choose their partitions themselves."""
        return self.protocol_type is None

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def have_all_joined(self) -> bool:
        """Whether all members have joined, and no member id is pending."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    def candidates(self) -> list[str]:
        """Protocols that all members support, in the order of the first member."""
        members = list(self.members.values())
        if not members:
            return []
        return known_to_all(members[0].protocols, (member.protocols for member in members[1:]))

    def would_take(self, protocol_type: str, protocols: Protocols, besides: str = "") -> bool:
        """Whether a member with these protocols can join."""
        if not protocol_type or not protocols:
            return False
        others = [member for member in self.members.values() if member.member_id != besides]
        if not others:
            return self.is_empty or protocol_type == self.protocol_type
        if protocol_type != self.protocol_type:
            return False
        return bool(known_to_all(protocols, (other.protocols for other in others)))

    def elected_protocol(self) -> str:
        """The protocol that most members prefer, among those that all support."""
        candidates = self.candidates()
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in votes)] += 1
        return max(candidates, key=lambda name: votes[name])

    # --- changing a copy ------------------------------------------------------------------------------------------

    def move(self, state: State, wall_ms: int) -> None:
        """Enters a state; every move must be in the table."""
        assert (self.state, state) in MOVES, f"no move from {self.state} to {state}"
        self.state = state
        self.since_wall_ms = wall_ms

    def put(self, member: Member) -> None:
        """Adds or replaces a member."""
        if not self.members:
            self.leader = member.member_id
        before = self.members.get(member.member_id)
        self.held_bytes += member.held_bytes - (0 if before is None else before.held_bytes)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member:
        """Removes a member."""
        member = self.members.pop(member_id)
        self.held_bytes -= member.held_bytes
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    # --- its record -----------------------------------------------------------------------------------------------

    def key(self) -> GroupMetadataKey:
        """The key of its record."""
        return GroupMetadataKey(group=self.group_id)

    def value(self) -> GroupMetadataValue:
        """The value of its record."""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol),
                assignment=member.assignment,
            )
            for member in self.members.values()
        ]
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.since_wall_ms,
            members=members,
        )


def group_of(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group of a record: stable or empty, as nothing is recorded in between."""
    members = {
        each.member_id: Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout,
            each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
            ((value.protocol or "", each.subscription),),
            each.assignment,
            held_bytes=len(each.subscription),
        )
        for each in value.members
    }
    return ClassicGroup(
        group_id,
        State.STABLE if members else State.EMPTY,
        value.current_state_timestamp,
        value.generation,
        value.protocol_type or None,
        value.protocol,
        value.leader,
        members,
        {each.instance_id: each.member_id for each in members.values() if each.instance_id is not None},
        held_bytes=sum(each.held_bytes for each in members.values()),
    )
