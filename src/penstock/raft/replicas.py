"""Members of the quorum: replicas by id and directory, voters, and the voter set at every offset.

A voter is both an id and a data directory (KIP-853): a node that returns with an empty disk is another replica, and
cannot break promises that it has lost. The set in force is always the last one in the log, committed or not; a
truncation restores the one before it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.wire.types import ZERO_UUID


class ReplicaKey(NamedTuple):
    """A replica: its node id and the id of its data directory, all zeros if unknown."""

    node_id: int
    directory_id: bytes = ZERO_UUID


class Endpoint(NamedTuple):
    """The address of a voter, and the name of its listener."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """A member of the voter set, its endpoints and the kraft.version range that it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 1


class VoterSet:
    """Voters by id; immutable."""

    __slots__ = ("by_id", "ids", "majority")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.by_id: Mapping[int, Voter] = {voter.key.node_id: voter for voter in sorted(voters)}
        self.ids: tuple[int, ...] = tuple(self.by_id)
        self.majority = len(self.ids) // 2 + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.by_id == other.by_id

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({list(self.ids)})"

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self.by_id.get(key.node_id)
        return voter is not None and voter.key.directory_id in (key.directory_id, ZERO_UUID)

    def key_of(self, node_id: int) -> ReplicaKey:
        """The key of the voter with this id."""
        return self.by_id[node_id].key

    def having(self, voter: Voter) -> "VoterSet":
        """A copy with this voter, which replaces the one with its id."""
        return VoterSet({**self.by_id, voter.key.node_id: voter}.values())

    def without(self, node_id: int) -> "VoterSet":
        """A copy without this voter."""
        return VoterSet(voter for voter in self.by_id.values() if voter.key.node_id != node_id)


NOBODY: Final = VoterSet()


class VotersAt(NamedTuple):
    """A voter set and the offset of the record that holds it."""

    offset: int
    voters: VoterSet


class VoterHistory:
    """The voter sets of a log, oldest first. Offset -1 is the set of a snapshot or of the configuration."""

    __slots__ = ("_sets",)

    def __init__(self, before_log: VoterSet) -> None:
        self._sets = [VotersAt(-1, before_log)]

    @property
    def latest(self) -> VoterSet:
        """The set in force."""
        return self._sets[-1].voters

    @property
    def latest_offset(self) -> int:
        """The offset of its record."""
        return self._sets[-1].offset

    def names(self, key: ReplicaKey, committed_end: int) -> bool:
        """Whether a replica is in the set in force, or was before a change that is not known to be committed."""
        latest = self._sets[-1]
        return key in latest.voters or (latest.offset >= committed_end and key in self._sets[-2].voters)

    def add(self, found: VotersAt) -> None:
        """Adds the set of a later record."""
        assert found.offset > self._sets[-1].offset, "voter sets are found in the order of the log"
        self._sets.append(found)

    def cut_end(self, end_offset: int) -> None:
        """Drops the sets at or after the end of a truncated log."""
        while self._sets[-1].offset >= end_offset:
            self._sets.pop()

    def at(self, end_offset: int) -> VoterSet:
        """The set in force for a log that ends at `end_offset`."""
        return self.found_at(end_offset).voters

    def found_at(self, end_offset: int) -> VotersAt:
        """The same, with the offset of its record."""
        return next(each for each in reversed(self._sets) if each.offset < end_offset)

    def cut_start(self, start_offset: int) -> None:
        """Replaces the sets before the log's new start by the one in force there."""
        kept = [each for each in self._sets if each.offset >= start_offset]
        self._sets = [VotersAt(-1, self.at(start_offset)), *kept]
