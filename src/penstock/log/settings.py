"""Settings of one log. Names follow Kafka's topic settings where Kafka has one."""

from dataclasses import dataclass, field
from enum import Enum

from penstock.model.limits import MIB


class Durability(Enum):
    """When an append counts as durable."""

    FSYNC = "fsync"
    """When it is on stable storage: survives a power cut of every node at once."""
    REPLICATED = "replicated"
    """When it is written: survives any process crash, and power cuts of fewer nodes than there are replicas."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of one log."""

    durability: Durability = Durability.FSYNC
    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * 24 * 3_600_000
    index_interval_bytes: int = 4096
    retention_ms: int | None = 7 * 24 * 3_600_000
    retention_bytes: int | None = None
    producer_expiration_ms: int = 24 * 3_600_000
    flush_messages: int | None = None
    """If appends do not wait for syncs: sync after this many records."""
    flush_ms: int | None = None
    """If appends do not wait for syncs: sync after this time; None uses the node's default."""

    waits_for_sync: bool = field(init=False)
    """Whether an append counts only once it is on stable storage."""

    def __post_init__(self) -> None:
        waits = self.durability is Durability.FSYNC or self.flush_messages == 1
        object.__setattr__(self, "waits_for_sync", waits)


SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions are kept in 32 bits."""

SEGMENT_OFFSETS_MAX = 2**31 - 1
"""Offsets inside a segment are kept relative to its base, in 32 bits."""

DEFAULT_SETTINGS = LogSettings()
