"""Counts the voters' replies to the Vote requests of an election or a pre-vote."""

from enum import Enum

from penstock.raft.messages import Vote
from penstock.raft.replica import Replica


class CampaignOutcome(Enum):
    """State of a campaign."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


class Campaign:
    """Sends every other voter one Vote request and counts the replies. The voter set is that of its start."""

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
        """The voters that granted their vote."""
        return tuple(sorted(self._granted))

    @property
    def answering(self) -> int:
        """The number of voters that have replied, with this node if it is one."""
        return len(self._granted | self._rejected)

    @property
    def voters(self) -> int:
        """The number of voters."""
        return len(self._voters)

    @property
    def is_answered(self) -> bool:
        """Whether a majority of the voters has replied, whatever the replies are."""
        return self.answering >= self._voters.majority

    @property
    def outcome(self) -> CampaignOutcome:
        """WON if a majority granted, LOST if no majority can any more, else OPEN."""
        if len(self._granted) >= self._voters.majority:
            return CampaignOutcome.WON
        if len(self._voters) - len(self._rejected) < self._voters.majority:
            return CampaignOutcome.LOST
        return CampaignOutcome.OPEN

    def count(self, number: int, *, is_granted: bool) -> None:
        """Counts a reply; ignores replies to requests of other campaigns."""
        voter_id = self._asked.pop(number, None)
        if voter_id is not None:
            (self._granted if is_granted else self._rejected).add(voter_id)
