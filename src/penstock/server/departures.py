"""Brokers that were lost a moment ago, and what clients are told of them meanwhile.

A client asks who leads as soon as its connection to a leader breaks, which may be before the controller has heard of
it; told the old leader again, it waits until its next turn to ask (librdkafka: up to a second). So for a moment after
the connection for fetches from a broker was lost, Metadata waits for what the controller makes of it.

A broker that was fenced stays among the brokers that Metadata lists for a moment, though it leads nothing: a client may
throw away what it has for a broker that is not listed before it has taken the partitions elsewhere (librdkafka since
2.10, which then waits for its next turn, too).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

from penstock.metadata.image import Broker, Image
from penstock.model.errors import ProtocolError
from penstock.model.ports import Clock
from penstock.server.controller_runner import ControllerRunner

DOUBT_MS: Final = 1_000
"""How long a lost connection makes Metadata wait at most: another controller may have to be elected first. What takes
longer waits for the broker's session to end."""
LISTED_MS: Final = 2_000
"""How long a broker that was fenced stays listed."""


class Reached(Protocol):
    """A connection."""

    @property
    def is_closed(self) -> bool:
        """Whether it has ended, by whomever."""


class Departures:
    """See the module."""

    __slots__ = ("_brokers", "_clock", "_fenced_ms", "_lost_ms", "_reached")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_ms: dict[int, int] = {}
        """When a broker was lost that has not answered since."""
        self._reached: dict[int, Reached] = {}
        """By which connection a broker answered last."""
        self._brokers: Mapping[int, Broker] = {}
        self._fenced_ms: dict[int, int] = {}

    # --- whom fetches reach

    def lost(self, broker_id: int) -> None:
        """A fetch was not answered."""
        self._reached.pop(broker_id, None)
        self._lost_ms.setdefault(broker_id, self._clock.monotonic_ms())

    def answered(self, broker_id: int, connection: Reached) -> None:
        """A fetch was answered."""
        self._reached[broker_id] = connection
        if self._lost_ms:
            self._lost_ms.pop(broker_id, None)

    # --- what clients are told

    async def settled(self, controller: ControllerRunner) -> None:
        """Returns when the controller has fenced those who were just lost, or when that takes too long."""
        for broker_id in [each for each, connection in self._reached.items() if connection.is_closed]:
            self.lost(broker_id)  # between two fetches
        if self._lost_ms and self._is_in_doubt(controller.image):
            with suppress(TimeoutError, ProtocolError):
                async with asyncio.timeout(DOUBT_MS / 1000):
                    await controller.until(lambda: not self._is_in_doubt(controller.image))

    def _is_in_doubt(self, image: Image) -> bool:
        since_ms = self._clock.monotonic_ms() - DOUBT_MS
        return any(
            lost_ms > since_ms and broker_id in image.brokers and not image.brokers[broker_id].is_fenced
            for broker_id, lost_ms in self._lost_ms.items()
        )

    def is_listed(self, broker: Broker, image: Image) -> bool:
        """Whether clients are told where a broker is: while it is not fenced, and a moment longer."""
        if image.brokers is not self._brokers:
            self._look_at(image.brokers)
        if not broker.is_fenced:
            return True
        fenced_ms = self._fenced_ms.get(broker.broker_id)
        return fenced_ms is not None and self._clock.monotonic_ms() - fenced_ms < LISTED_MS

    def _look_at(self, brokers: Mapping[int, Broker]) -> None:
        """Notes who was fenced since the last look."""
        now_ms = self._clock.monotonic_ms()
        for broker_id, before in self._brokers.items():
            if broker_id in brokers and brokers[broker_id].is_fenced and not before.is_fenced:
                self._fenced_ms[broker_id] = now_ms
        self._fenced_ms = {
            broker_id: fenced_ms
            for broker_id, fenced_ms in self._fenced_ms.items()
            if broker_id in brokers and brokers[broker_id].is_fenced
        }
        self._brokers = brokers
