"""The load of a cluster and the hardware of its brokers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DAY_S: Final = 86_400
RECORD_OVERHEAD_BYTES: Final = 10
"""Maximum overhead of the format for a record without key; a batch adds 61 bytes once."""
BATCH_OVERHEAD_BYTES: Final = 61


class Durability(StrEnum):
    """When a record is acknowledged: the setting `durability` of a topic."""

    FSYNC = "fsync"
    """Once it is on stable storage on every replica of the ISR."""
    REPLICATED = "replicated"
    """Once every replica of the ISR has it in its page cache."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of producers and consumers."""

    write_bytes_s: float
    """Bytes of record values as producers send them, after compression if they compress."""
    read_fanout: float = 1.0
    """How many times each byte is read."""
    replication_factor: int = 3
    partitions: int = 1
    retention_s: float = 7 * DAY_S
    record_bytes: float = 1_000
    batch_bytes: float = 64 * 1024
    """Bytes for one partition in one produce request."""
    durability: Durability = Durability.FSYNC

    @property
    def request_bytes(self) -> float:
        """Bytes of record values in one produce request."""
        return max(self.record_bytes, self.batch_bytes)

    @property
    def requests_s(self) -> float:
        """Produce requests per second."""
        return self.write_bytes_s / self.request_bytes

    @property
    def stored_bytes_s(self) -> float:
        """Record values plus the overhead of the format."""
        per_record = self.record_bytes + RECORD_OVERHEAD_BYTES
        per_request = per_record * self.request_bytes / self.record_bytes + BATCH_OVERHEAD_BYTES
        return self.requests_s * per_request


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of each broker."""

    cores: float = 2.0
    memory_bytes: float = 8e9
    disk_bytes: float | None = None
    """None if the plan is to determine it."""
    disk_write_bytes_s: float = 400e6
    network_bytes_s: float = 10e9 / 8
    """In each direction."""
    busy_max: float = 0.6
    """The planned utilization of a broker's CPU, disk throughput and network."""
