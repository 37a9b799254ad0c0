"""One direction between two hosts: its delays, and whether it passes data at all.

TCP hides loss behind retransmission, so loss is delay here, and a cut link holds bytes back until it heals or the
sender gives up. Nothing is ever dropped from the middle of a stream.
"""

from dataclasses import dataclass, replace
from math import log
from random import Random
from typing import Protocol


@dataclass(slots=True)
class LinkSettings:
    """How a link behaves while it is not cut."""

    delay_s_min: float = 0.0001
    delay_s_mean: float = 0.0005
    """Mean of the exponential delay on top of the minimum."""
    loss: float = 0.0
    """Chance that a piece must be sent again, after 0.2 s, 0.4 s, …"""
    straggler: float = 0.0
    """Chance that a piece is late for no reason, by up to `straggler_s_max`."""
    straggler_s_max: float = 5.0
    fragment: float = 0.0
    """Chance that a piece arrives in two parts."""
    bytes_per_s: float = 0.0
    """Bandwidth of the link, shared by its connections; 0 is no limit."""

    def copy(self) -> "LinkSettings":
        """A copy, for a link with settings of its own."""
        return replace(self)


class Waiting(Protocol):
    """A pipe whose pieces or acknowledgements wait for a link."""

    def release(self) -> None:
        """Sends pieces that were held back."""

    def acknowledge(self) -> None:
        """Sends acknowledgements that were held back."""


class Link:
    """The link from one host to another."""

    __slots__ = (
        "acks_waiting",
        "clogged_until_s",
        "cuts",
        "free_at_s",
        "settings",
        "source",
        "stalled",
        "stream",
        "target",
    )

    def __init__(self, source: str, target: str, settings: LinkSettings, stream: Random) -> None:
        self.source = source
        self.target = target
        self.settings = settings
        self.stream = stream
        self.cuts = 0
        """Number of partitions that cut it now."""
        self.clogged_until_s = 0.0
        self.free_at_s = 0.0
        self.stalled: dict[Waiting, None] = {}
        """Pipes with pieces that wait for this link."""
        self.acks_waiting: dict[Waiting, None] = {}
        """Pipes of the other direction whose acknowledgements wait for this link."""

    def delay_s(self) -> float:
        """Draws the delay of the next piece."""
        settings, stream = self.settings, self.stream
        delay_s = settings.delay_s_min - log(1.0 - stream.random()) * settings.delay_s_mean  # expovariate, but faster
        if settings.loss:
            wait_s = 0.2
            while stream.random() < settings.loss and wait_s < 10.0:
                delay_s += wait_s
                wait_s *= 2
        if settings.straggler and stream.random() < settings.straggler:
            delay_s += stream.random() * settings.straggler_s_max
        return delay_s

    def arrival_s(self, now_s: float, size_bytes: int) -> float:
        """Arrival time of a piece that is sent now."""
        rate = self.settings.bytes_per_s
        if rate:
            now_s = self.free_at_s = max(self.free_at_s, now_s) + size_bytes / rate
        return now_s + self.delay_s()
