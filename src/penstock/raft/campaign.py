"""A campaign: who was asked for a vote or a pre-vote, and what they said."""

from enum import Enum

from penstock.raft.messages import Vote
from penstock.raft.replica import Replica


class Outcome(Enum):
    """How a campaign stands."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


class Campaign:
    """Asks every other voter once, and counts. The voter set is that of the moment it began."""

    __slots__ = ("_asked", "_granted", "_rejected", "_voters")

    def __init__(self, replica: Replica, *, is_pre_vote: bool) -> None:
        voters = replica.voters.latest
        self._voters = voters
        self._granted = {replica.node_id} if replica.key in voters else set()
        self._rejected: set[int] = set()
        self._asked: dict[int, int] = {}
        log = replica.log
        for voter_id in voters.ids:
            if voter_id != replica.node_id:
                vote = Vote(
                    replica.state.epoch,
                    replica.key,
                    voters.key_of(voter_id),
                    log.last_epoch,
                    log.end_offset,
                    is_pre_vote,
                )
                self._asked[replica.send(voter_id, vote)] = voter_id

    @property
    def granted(self) -> tuple[int, ...]:
        """Who is for it."""
        return tuple(sorted(self._granted))

    @property
    def outcome(self) -> Outcome:
        """A majority is for it, or can no longer be, or neither yet."""
        if len(self._granted) >= self._voters.majority:
            return Outcome.WON
        if len(self._voters) - len(self._rejected) < self._voters.majority:
            return Outcome.LOST
        return Outcome.OPEN

    def count(self, number: int, *, is_granted: bool) -> None:
        """Notes an answer, if it is one to this campaign."""
        voter_id = self._asked.pop(number, None)
        if voter_id is not None:
            (self._granted if is_granted else self._rejected).add(voter_id)
