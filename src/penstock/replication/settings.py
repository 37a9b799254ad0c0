"""Timeouts and limits of replication. Names and defaults are Kafka's `replica.*` where Kafka has one."""

from dataclasses import dataclass
from typing import Final

from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.limits import MIB

RESEND_MS: Final = 1_000
"""A proposed ISR change without a result is sent again after this time."""
CHANGES_PER_REQUEST_MAX: Final = 1_000
"""Partitions in one AlterPartition."""
LOOKS_PER_STEP_MAX: Final = 500
"""Partitions that one step checks for lagging followers."""
PLACED_AT_ONCE: Final = 1_000
"""New partitions that one step places on a broker; the rest follow in later steps, so that other work has its turn."""
TRIM_WAIT_MS: Final = 20
"""How long a leader may hold a fetch of a follower that is about to report a new log start."""
FIRST_REST_MS: Final = 20
"""The first back-off. A new leader soon learns of its partition, and until then nothing is committed there."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The replication settings of a broker."""

    lag_time_max_ms: int = 30_000
    """A follower that has not been at the end of the log for this long leaves the ISR."""

    fetch_wait_ms: int = 500
    """How long a leader may hold a fetch that has no data to return."""

    fetch_bytes_min: int = 1
    """Bytes that a response should hold before it is sent."""

    fetch_bytes_max: int = 10 * MIB
    """Bytes of records in one response."""

    partition_bytes_max: int = MIB
    """Bytes of records of one partition in one response."""

    backoff_ms: int = 1_000
    """Maximum back-off of a failing partition, or of a source that does not respond; the first ones are shorter."""

    request_timeout_ms: int = 30_000
    """After this time a request counts as lost."""

    def rest_ms(self, failures: int) -> int:
        """The back-off after a failure that was preceded by this many consecutive failures."""
        return min(self.backoff_ms, FIRST_REST_MS << min(failures, 16))

    @classmethod
    def of(cls, settings: BrokerSettings) -> "ReplicationSettings":
        """Reads them from a broker's settings."""
        return cls(
            lag_time_max_ms=settings.number("replica.lag.time.max.ms"),
            fetch_wait_ms=settings.number("replica.fetch.wait.max.ms"),
            fetch_bytes_min=settings.number("replica.fetch.min.bytes"),
            fetch_bytes_max=settings.number("replica.fetch.response.max.bytes"),
            partition_bytes_max=settings.number("replica.fetch.max.bytes"),
            backoff_ms=settings.number("replica.fetch.backoff.ms"),
            request_timeout_ms=settings.number("replica.socket.timeout.ms"),
        )
