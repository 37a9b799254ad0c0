"""Changes of the voter set: one voter at a time, by a record in the log (KIP-853).

Majorities of two sets that differ by one voter overlap, and only then is it safe to use a set before it is committed.
So a change is refused while another is not committed, and before the leader has committed a record of its own epoch:
until then it may not know of a change that its predecessor began.
"""

from penstock.model.errors import ErrorCode
from penstock.raft.leader import Leader
from penstock.raft.messages import AddVoter, RemoveVoter, UpdateVoter
from penstock.raft.replica import Replica
from penstock.raft.replicas import VoterSet

BUSY = "Another change of the voters is not committed yet, or the leader is new; try again."


class VoterChangeRefused(Exception):
    """The change is refused: an error code, and a sentence that says what to do."""

    def __init__(self, error: ErrorCode, sentence: str) -> None:
        super().__init__(sentence)
        self.error = error
        self.sentence = sentence


def changed_voters(
    replica: Replica, leader: Leader, request: AddVoter | RemoveVoter | UpdateVoter, now: int
) -> VoterSet:
    """The voter set after the requested change. Raises VoterChangeRefused."""
    if leader.change is not None or not leader.has_committed or replica.voters.latest_offset >= replica.high_watermark:
        raise VoterChangeRefused(ErrorCode.REQUEST_TIMED_OUT, BUSY)
    match request:
        case AddVoter():
            return _with(replica, leader, request, now)
        case RemoveVoter():
            return _without(replica, request)
        case UpdateVoter():
            return _updated(replica, request)


def _with(replica: Replica, leader: Leader, request: AddVoter, now: int) -> VoterSet:
    voters, key = replica.voters.latest, request.voter.key
    if key.node_id in voters.by_id:
        raise VoterChangeRefused(
            ErrorCode.DUPLICATE_VOTER,
            f"Node {key.node_id} is a voter already; remove it before you add it with another directory.",
        )
    progress = leader.progress.get(key)
    is_fetching = progress is not None and now - progress.fetched_at <= replica.settings.fetch_timeout_ms
    if progress is None or not is_fetching or progress.caught_up_at < 0:
        raise VoterChangeRefused(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Node {key.node_id} has not fetched all of the log yet; start it, then try again.",
        )
    return voters.having(request.voter)


def _without(replica: Replica, request: RemoveVoter) -> VoterSet:
    voters, key = replica.voters.latest, request.key
    if key not in voters:
        raise VoterChangeRefused(ErrorCode.VOTER_NOT_FOUND, f"Node {key.node_id} with this directory is not a voter.")
    if len(voters) == 1:
        raise VoterChangeRefused(
            ErrorCode.INVALID_REQUEST, f"Node {key.node_id} is the last voter; add another one first."
        )
    return voters.without(key.node_id)


def _updated(replica: Replica, request: UpdateVoter) -> VoterSet:
    voters, key = replica.voters.latest, request.voter.key
    if key not in voters:
        raise VoterChangeRefused(ErrorCode.VOTER_NOT_FOUND, f"Node {key.node_id} with this directory is not a voter.")
    return voters.having(request.voter)
