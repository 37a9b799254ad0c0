"""Every limit of the house, in one place, unit last. A limit is a bound that is enforced, not a hint."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a peer may make us hold or do. Defaults are Kafka's where Kafka has one."""

    frame_bytes_max: int = 100 * MIB
    """A request frame after login (Kafka: socket.request.max.bytes)."""

    frame_before_login_bytes_max: int = 64 * 1024
    """A request frame before login (Kafka: 512 KiB)."""

    frame_first_bytes: int = 4 * 1024
    """What a connection with nothing under way receives into; freed again when it is drained."""

    frame_growth_bytes: int = 64 * 1024
    """A declared frame length is only a promise; the buffer grows by this much as bytes really arrive."""

    batch_bytes_max: int = MIB + 12
    """A record batch as it is stored (Kafka: max.message.bytes)."""

    batch_decompressed_bytes_max: int = 10 * (MIB + 12)
    """What one batch may decompress to, enforced while it streams."""


DEFAULT_LIMITS = Limits()
