"""Time-outs and limits of the quorum. Defaults are Kafka's `controller.quorum.*` where Kafka has one."""

from dataclasses import dataclass

from penstock.model.limits import MIB


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Everything here is the same on all voters, or nearly so: nothing breaks when it is not, elections take longer."""

    election_timeout_ms: int = 1_000
    """How long a campaign, or the wait for somebody else's, may take; up to twice that, by chance."""

    fetch_timeout_ms: int = 2_000
    """How long a follower goes without an answer of its leader before it asks for an election."""

    request_timeout_ms: int = 1_000
    """After this a request counts as lost."""

    retry_backoff_ms: int = 20
    """Between a failed request and the next."""

    fetch_wait_ms: int = 500
    """How long the leader may hold a fetch that has nothing to bring."""

    fetch_bytes_max: int = 8 * MIB
    """Records in one answer to a fetch."""

    snapshot_chunk_bytes_max: int = MIB
    """A snapshot travels in pieces of this size."""

    snapshots_kept: int = 2
    """The log begins where the oldest of them ends, so that who is a little behind need not fetch all of the newest."""

    observer_idle_ms: int = 300_000
    """An observer that has not fetched for this long is forgotten."""

    epochs_ahead_max: int = 1_000_000
    """A peer's epoch may be this far above the replica's own; a request or reply with a higher one is refused."""

    @property
    def check_quorum_ms(self) -> int:
        """A leader that hears from no majority for this long resigns; later than its followers give it up."""
        return self.fetch_timeout_ms * 3 // 2
