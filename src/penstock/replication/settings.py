"""Time-outs and limits of replication. Names and defaults are Kafka's `replica.*` where Kafka has one."""

from dataclasses import dataclass
from typing import Final

from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.limits import MIB

RESEND_MS: Final = 1_000
"""A change of the in-sync replicas that nothing has come of is asked for again after this."""
CHANGES_PER_REQUEST_MAX: Final = 1_000
"""Partitions in one AlterPartition."""
LOOKS_PER_STEP_MAX: Final = 500
"""Partitions that are looked at in one step for followers that lag."""
TRIM_WAIT_MS: Final = 20
"""How long a leader may hold a fetch of a follower that is about to report a new log start."""
FIRST_REST_MS: Final = 20
"""A leader that does not know of its partition yet will in a moment, and until then nothing is committed there."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """What a broker is told about replication."""

    lag_time_max_ms: int = 30_000
    """A follower that has not been at the end of the log for this long leaves the in-sync replicas."""

    fetch_wait_ms: int = 500
    """How long a leader may hold a fetch that has nothing to bring."""

    fetch_bytes_min: int = 1
    """What an answer should hold before it is sent."""

    fetch_bytes_max: int = 10 * MIB
    """Records in one answer."""

    partition_bytes_max: int = MIB
    """Records of one partition in one answer."""

    backoff_ms: int = 1_000
    """How long a partition, or a source that does not answer, is left alone after some failures; at first, less."""

    request_timeout_ms: int = 30_000
    """After this a request counts as lost."""

    def rest_ms(self, failures: int) -> int:
        """How long something is left alone that has failed so often before, in a row."""
        return min(self.backoff_ms, FIRST_REST_MS << min(failures, 16))

    @classmethod
    def of(cls, settings: BrokerSettings) -> "ReplicationSettings":
        """As a broker's settings say."""
        return cls(
            lag_time_max_ms=settings.number("replica.lag.time.max.ms"),
            fetch_wait_ms=settings.number("replica.fetch.wait.max.ms"),
            fetch_bytes_min=settings.number("replica.fetch.min.bytes"),
            fetch_bytes_max=settings.number("replica.fetch.response.max.bytes"),
            partition_bytes_max=settings.number("replica.fetch.max.bytes"),
            backoff_ms=settings.number("replica.fetch.backoff.ms"),
            request_timeout_ms=settings.number("replica.socket.timeout.ms"),
        )
