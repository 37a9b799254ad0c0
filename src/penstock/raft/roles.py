"""Roles of a replica, the moves between them, and its persistent state.

Invariants: the epoch never goes back; in one epoch a replica votes for at most one candidate and knows at most one
leader. All three are on disk before any message reveals them.
"""

from enum import Enum
from typing import Final, NamedTuple

from penstock.raft.messages import NO_LEADER
from penstock.raft.replicas import ReplicaKey


class Role(Enum):
    """The role of a replica in its epoch."""

    UNATTACHED = "unattached"
    """Knows the epoch, but no leader, and has not voted in it."""
    VOTED = "voted"
    """Has voted in this epoch, and waits for the outcome."""
    PROSPECTIVE = "prospective"
    """Requests pre-votes, in its present epoch (KIP-996)."""
    CANDIDATE = "candidate"
    """Has voted for itself in a new epoch, and requests votes."""
    LEADER = "leader"
    """Appends, answers fetches, and advances the high watermark."""
    RESIGNED = "resigned"
    """Led this epoch and has resigned; can neither vote nor follow in it."""
    FOLLOWER = "follower"
    """Fetches from the leader of the epoch."""
    OBSERVER = "observer"
    """Not in the voter set: fetches like a follower, or searches for a leader. Never campaigns."""


_U, _V, _P, _C, _L, _R, _F, _O = Role

ANY_NEWER_EPOCH: Final = "heard of a newer epoch"
MOVES: Final[dict[tuple[Role, Role], str]] = {
    # from, to → cause; every move is asserted against this table
    (_U, _V): "gave its vote",
    (_U, _P): "the election time-out passed",
    (_U, _F): "heard of a leader",
    (_U, _O): "a snapshot told that it is no voter any more",
    (_V, _U): ANY_NEWER_EPOCH,
    (_V, _P): "the election time-out passed and nobody has won",
    (_V, _F): "heard of a leader",
    (_V, _O): "a snapshot told that it is no voter any more",
    (_P, _C): "a majority would elect it",
    (_P, _V): "gave its vote to somebody who is further",
    (_P, _U): "no majority would elect it, or " + ANY_NEWER_EPOCH,
    (_P, _F): "no majority would elect it and there is a leader",
    (_C, _L): "a majority elected it",
    (_C, _P): "the election time-out passed",
    (_C, _U): ANY_NEWER_EPOCH,
    (_C, _F): "heard of a leader",
    (_L, _R): "hears from no majority, is removed, or is asked to stop",
    (_L, _U): ANY_NEWER_EPOCH,
    (_L, _F): "heard of a leader of a newer epoch",
    (_R, _U): "the election time-out passed: on to the next epoch",
    (_R, _F): "heard of a leader of a newer epoch",
    (_R, _O): "was removed, and the election time-out passed",
    (_F, _P): "the leader has not answered for too long, or resigned",
    (_F, _U): ANY_NEWER_EPOCH,
    (_F, _F): "heard of a leader of a newer epoch",
    (_F, _O): "fetched a voter set without itself",
    (_O, _F): "fetched a voter set with itself",
    (_O, _U): "was made a voter, and there is no leader",
    (_O, _V): "was made a voter after it had given its vote, and there is no leader",
    (_O, _O): ANY_NEWER_EPOCH,
    (_U, _U): ANY_NEWER_EPOCH,
}


class QuorumState(NamedTuple):
    """The state that must survive every crash."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted_for: ReplicaKey | None = None
