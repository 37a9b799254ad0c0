"""What is asked of a cluster, and what its brokers have."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DAY_S: Final = 86_400
RECORD_OVERHEAD_BYTES: Final = 10
"""What the format adds to the value of a record without key, at most; a batch adds 61 once."""
BATCH_OVERHEAD_BYTES: Final = 61


class Durability(StrEnum):
    """When a record is acknowledged: the setting `durability` of a topic."""

    FSYNC = "fsync"
    """Once it is on stable storage, on every replica in sync."""
    REPLICATED = "replicated"
    """Once every replica in sync has it in its page cache."""


@dataclass(frozen=True, slots=True)
class Load:
    """What producers and consumers do."""

    write_bytes_s: float
    """Of record values, as producers send them: compressed, where they compress."""
    read_fanout: float = 1.0
    """How many times every byte is read."""
    replication_factor: int = 3
    partitions: int = 1
    retention_s: float = 7 * DAY_S
    record_bytes: float = 1_000
    batch_bytes: float = 64 * 1024
    """What one request of a producer brings for a partition."""
    durability: Durability = Durability.FSYNC

    @property
    def request_bytes(self) -> float:
        """Of values, in one request."""
        return max(self.record_bytes, self.batch_bytes)

    @property
    def requests_s(self) -> float:
        """Of producers."""
        return self.write_bytes_s / self.request_bytes

    @property
    def stored_bytes_s(self) -> float:
        """Values, and what the format adds to them."""
        per_record = self.record_bytes + RECORD_OVERHEAD_BYTES
        per_request = per_record * self.request_bytes / self.record_bytes + BATCH_OVERHEAD_BYTES
        return self.requests_s * per_request


@dataclass(frozen=True, slots=True)
class Hardware:
    """What each broker has for itself."""

    cores: float = 2.0
    memory_bytes: float = 8e9
    disk_bytes: float | None = None
    """None where it is to be found out."""
    disk_write_bytes_s: float = 400e6
    network_bytes_s: float = 10e9 / 8
    """In each direction."""
    busy_max: float = 0.6
    """The share of what a broker can do, of its disk's pace and of its network, that is planned for."""
