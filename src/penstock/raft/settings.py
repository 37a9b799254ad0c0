"""Time-outs and limits of the quorum. Defaults are Kafka's `controller.quorum.*` where Kafka has one."""

from dataclasses import dataclass

from penstock.model.limits import MIB


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Should be equal on all voters, or nearly so: differences are safe, but make elections slower."""

    election_timeout_ms: int = 1_000
    """How long a campaign, or the wait for another replica's, may take; up to twice that, at random."""

    fetch_timeout_ms: int = 2_000
    """How long a follower waits for a reply of its leader before it requests pre-votes."""

    request_timeout_ms: int = 1_000
    """After this a request counts as lost."""

    retry_backoff_ms: int = 20
    """Delay between a failed request and the next."""

    fetch_wait_ms: int = 500
    """How long the leader may hold a fetch for which there is nothing to send."""

    fetch_bytes_max: int = 8 * MIB
    """Bytes of records in one fetch reply."""

    snapshot_chunk_bytes_max: int = MIB
    """A snapshot is fetched in chunks of this size."""

    snapshots_kept: int = 2
    """The log starts where the oldest of them ends, so that replicas slightly behind need not fetch the newest."""

    observer_idle_ms: int = 300_000
    """An observer that has not fetched for this long is forgotten."""

    epochs_ahead_max: int = 1_000_000
    """A peer's epoch may be this far above the replica's own; a request or reply with a higher one is refused."""

    @property
    def check_quorum_ms(self) -> int:
        """A leader without fetches of a majority for this long resigns; later than its followers give it up."""
        return self.fetch_timeout_ms * 3 // 2
